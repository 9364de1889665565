/* digest.c - checks finished transfers by digest, some thousand pieces at a time. Loop thread. */
#include "xfer/digest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/mem.h"

struct xfer_digest {
    struct xfer_digest *prev, *next; /* of the engine */
    struct xfer_request *request;
    uint32_t first, count; /* pieces being compared */
    struct digest_sum here, there;
    uint32_t reading; /* sums on the pool */
    int asked;        /* a far agent has not answered yet */
    int over;         /* the request has ended */
    uint64_t question, told;
    char agent[NXL_INCARNATION_MAX + 1];
};

static void digest_free(struct xfer_digest *digest)
{
    struct nxl_xfer *xfer = digest->request->xfer;

    if (digest->prev != NULL)
        digest->prev->next = digest->next;
    else
        xfer->digests = digest->next;
    if (digest->next != NULL)
        digest->next->prev = digest->prev;
    digest_sum_fini(&digest->here);
    digest_sum_fini(&digest->there);
    free(digest);
}

void xfer_digest_over(struct xfer_request *request)
{
    struct xfer_digest *digest = NXL_TAKE(request->digest);

    if (digest == NULL)
        return;
    if (digest->reading == 0)
        digest_free(digest);
    else
        digest->over = 1; /* freed by the last sum, which also makes the request quiet */
}

/* ---- one comparison -------------------------------------------------------------------------- */

static void chunk_begin(struct xfer_digest *digest);

static void chunk_differs(struct xfer_digest *digest)
{
    struct xfer_request *request = digest->request;
    const struct nxl_piece *piece = &request->plan->pieces[digest->first];
    char text[NXL_ERR_TEXT_SIZE];

    snprintf(text, sizeof(text),
             "%s peer %s: the bytes there and here differ within pieces %u to %u of %u (the first: "
             "%" PRIu64 " bytes at 0x%" PRIx64 " here, 0x%" PRIx64
             " there): damaged on the way, or written while they moved",
             request->op == NXL_WRITE ? "write to" : "read from", xfer_show(request->target),
             digest->first, digest->first + digest->count - 1, request->plan->piece_count,
             piece->len * piece->count,
             request->plan->locals[piece->local]->addr + piece->local_offset,
             request->plan->remotes[piece->remote]->addr + piece->remote_offset);
    nxl_metric_add(request->xfer->metrics.digests_wrong, 1);
    xfer_request_end(request, NXL_DIGEST, 0, text);
}

static void chunk_check(struct xfer_digest *digest)
{
    struct xfer_request *request = digest->request;

    if (digest->reading > 0 || digest->asked)
        return;
    if (digest->here.value != (request->target->local ? digest->there.value : digest->told)) {
        chunk_differs(digest);
        return;
    }
    digest->first += digest->count;
    if (digest->first < request->plan->piece_count) {
        chunk_begin(digest);
        return;
    }
    nxl_metric_add(request->xfer->metrics.digest_bytes, request->plan->bytes);
    xfer_request_end(request, NXL_OK, 0, NULL);
}

static void sum_arrived(struct xfer_digest *digest)
{
    struct xfer_request *request = digest->request;

    if (--digest->reading == 0)
        request->reading = 0;
    if (!digest->over) {
        chunk_check(digest);
    } else if (digest->reading == 0) {
        digest_free(digest);
        xfer_request_settle(request);
    }
}

static void here_done(struct digest_sum *sum)
{
    sum_arrived(nxl_container_of(sum, struct xfer_digest, here));
}

static void there_done(struct digest_sum *sum)
{
    sum_arrived(nxl_container_of(sum, struct xfer_digest, there));
}

/* The rows of a side that this agent has mapped; pieces without a byte have none. */
static void side_begin(struct xfer_digest *digest, struct digest_sum *sum, int remote)
{
    const struct nxl_plan *plan = digest->request->plan;

    digest_sum_fini(sum);
    sum->rows = nxl_new0_array(digest->count, sizeof(*sum->rows));
    for (uint32_t i = 0; i < digest->count; i++) {
        const struct nxl_piece *piece = &plan->pieces[digest->first + i];
        const struct nxl_catalog_region *region =
            remote ? plan->remotes[piece->remote] : plan->locals[piece->local];

        NXL_ASSERT(region->base != NULL);
        if (piece->len > 0)
            sum->rows[sum->row_count++] = (struct digest_row){
                region->base + (remote ? piece->remote_offset : piece->local_offset), piece->len,
                remote ? piece->remote_stride : piece->local_stride, piece->count};
    }
    digest->reading++;
    digest->request->reading = 1;
    digest_sum_start(sum);
}

static void far_ask(struct xfer_digest *digest)
{
    struct xfer_request *request = digest->request;
    const struct nxl_plan *plan = request->plan;
    struct xfer_agent *agent = xfer_agent_find(request->xfer, digest->agent);
    struct nxl_bytes rows = {0};
    struct nxl_message question = {.type = NXL_MESSAGE_DIGEST,
                                   .request = digest->question,
                                   .incarnation = request->target->incarnation,
                                   .from_ns = request->local->ns,
                                   .from_name = request->local->name,
                                   .from_incarnation = request->local->incarnation};
    struct nxl_err err;

    for (uint32_t i = 0; i < digest->count; i++) {
        const struct nxl_piece *piece = &plan->pieces[digest->first + i];
        const struct nxl_catalog_region *region = plan->remotes[piece->remote];

        question.flags = region->kind; /* one kind in a list */
        if (piece->len == 0)
            continue;
        nxl_bytes_put_u64(&rows, region->addr + piece->remote_offset);
        nxl_bytes_put_u64(&rows, piece->len);
        nxl_bytes_put_u64(&rows, piece->remote_stride);
        nxl_bytes_put_u32(&rows, piece->count);
        nxl_bytes_put_u32(&rows, region->device);
    }
    question.payload =
        (struct nxl_view){rows.data != NULL ? rows.data : (const unsigned char *)"", rows.size};
    if (agent != NULL) /* else, or if it cannot be said now: when its link is up again */
        NXL_IGNORE(xfer_agent_say(agent, &question, &err));
    nxl_bytes_fini(&rows);
}

static void chunk_begin(struct xfer_digest *digest)
{
    struct xfer_request *request = digest->request;
    uint32_t left = request->plan->piece_count - digest->first;

    digest->count = left < XFER_DIGEST_PIECES ? left : XFER_DIGEST_PIECES;
    side_begin(digest, &digest->here, 0);
    if (request->target->local) {
        side_begin(digest, &digest->there, 1);
        return;
    }
    digest->question = ++request->xfer->next_query;
    digest->asked = 1;
    far_ask(digest);
}

void xfer_digest_begin(struct xfer_request *request)
{
    struct nxl_xfer *xfer = request->xfer;
    struct xfer_digest *digest = nxl_new0(sizeof(*digest));

    NXL_ASSERT(request->state == XFER_RUNNING && request->digest == NULL);
    digest->request = request;
    digest->here.xfer = digest->there.xfer = xfer;
    digest->here.done = here_done;
    digest->there.done = there_done;
    (void)nxl_copy_text(digest->agent, sizeof(digest->agent), request->target->agent);
    digest->next = xfer->digests;
    if (xfer->digests != NULL)
        xfer->digests->prev = digest;
    xfer->digests = digest;
    request->digest = digest;
    chunk_begin(digest);
}

/* ---- links ----------------------------------------------------------------------------------- */

void xfer_digest_answered(struct xfer_agent *agent, const struct nxl_message *answer)
{
    struct xfer_digest *digest = agent->xfer->digests;
    char text[NXL_ERR_TEXT_SIZE];

    while (digest != NULL &&
           (digest->over || !digest->asked || digest->question != answer->request))
        digest = digest->next;
    if (digest == NULL || strcmp(digest->agent, agent->agent) != 0)
        return; /* the request has ended, or it was answered before */
    digest->asked = 0;
    digest->told = answer->sequence;
    if (answer->code == NXL_OK) {
        chunk_check(digest);
        return;
    }
    snprintf(text, sizeof(text), "agent %s of peer %s does not tell the digest: %.300s",
             agent->agent, xfer_show(digest->request->target), answer->text);
    xfer_request_end(digest->request, answer->code < 0 ? (enum nxl_code)answer->code : NXL_MISMATCH,
                     0, text);
}

void xfer_digests_ask_again(struct xfer_agent *agent)
{
    for (struct xfer_digest *digest = agent->xfer->digests; digest != NULL; digest = digest->next) {
        if (digest->asked && !digest->over && strcmp(digest->agent, agent->agent) == 0)
            far_ask(digest);
    }
}
