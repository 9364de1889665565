/* digest_sum.c - sums mapped memory off the loop, for our own checks and for far agents that ask.
 * Loop thread, but for sum_work(). */
#include "xfer/digest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/log.h"
#include "base/mem.h"
#include "xfer/policy.h"
#include "base/work.h"

#define ROW_WIRE_SIZE 32u

/* A thread of the pool. A file that is truncated meanwhile reads as zeros (base/guard). */
static void sum_work(void *arg)
{
    struct digest_sum *sum = arg;
    XXH3_state_t *state = XXH3_createState();

    NXL_ASSERT(state != NULL);
    (void)XXH3_64bits_reset(state);
    for (uint32_t i = 0; i < sum->row_count; i++) {
        const struct digest_row *row = &sum->rows[i];

        for (uint32_t k = 0; k < row->count; k++)
            (void)XXH3_64bits_update(state, row->base + k * row->stride, row->len);
    }
    sum->value = XXH3_64bits_digest(state);
    (void)XXH3_freeState(state);
}

static void sum_done(void *arg)
{
    struct digest_sum *sum = arg;

    sum->xfer->summing--;
    sum->done(sum);
}

void digest_sum_start(struct digest_sum *sum)
{
    sum->xfer->summing++;
    nxl_work_start(sum->xfer->loop, sum_work, sum_done, sum);
}

void digest_sum_fini(struct digest_sum *sum)
{
    free(NXL_TAKE(sum->rows));
    sum->row_count = 0;
}

/* ---- asked by a far agent ----------------------------------------------------------------------
 */

struct question {
    struct digest_sum sum; /* first */
    char agent[NXL_INCARNATION_MAX + 1];
    uint64_t request;
    struct nxl_catalog_region **regions; /* used while it is read, one per row */
};

static void answer_send(struct xfer_agent *agent, uint64_t request, enum nxl_code code,
                        uint64_t value, const char *text)
{
    struct nxl_message answer = {.type = NXL_MESSAGE_DIGEST_ANSWER,
                                 .request = request,
                                 .code = code,
                                 .sequence = value,
                                 .text = text};
    struct nxl_err err;

    NXL_IGNORE(xfer_agent_say(agent, &answer, &err)); /* asked again when the link is up again */
}

static void question_free(struct question *question)
{
    digest_sum_fini(&question->sum);
    free(question->regions);
    free(question);
}

static void question_done(struct digest_sum *sum)
{
    struct question *question = nxl_container_of(sum, struct question, sum);
    struct nxl_xfer *xfer = sum->xfer;
    struct xfer_agent *agent = xfer_agent_find(xfer, question->agent);
    int lost = 0;

    for (uint32_t i = 0; i < sum->row_count; i++) {
        lost |= xfer_region_lost(question->regions[i]);
        xfer_region_unused(xfer, question->regions[i]);
    }
    if (agent != NULL && lost)
        answer_send(agent, question->request, NXL_MEMORY_LOST, 0,
                    "the file behind a region was truncated by its owner");
    else if (agent != NULL)
        answer_send(agent, question->request, NXL_OK, sum->value, "");
    question_free(question);
}

/* Reads the rows and finds their regions; nothing is marked used yet. */
static enum nxl_code question_read(struct question *question, const struct xfer_peer *own,
                                   struct nxl_view rows, uint32_t kind, struct nxl_err *err)
{
    struct nxl_reader reader = nxl_reader_of(rows.data, rows.size);
    struct digest_sum *sum = &question->sum;

    if (rows.size % ROW_WIRE_SIZE != 0 || rows.size / ROW_WIRE_SIZE > XFER_DIGEST_PIECES)
        return nxl_err_set(err, NXL_MISMATCH, 0, "%zu bytes of rows", rows.size);
    sum->rows = nxl_new0_array(rows.size / ROW_WIRE_SIZE + 1, sizeof(*sum->rows));
    question->regions =
        nxl_new0_array(rows.size / ROW_WIRE_SIZE + 1, sizeof(struct nxl_catalog_region *));
    while (nxl_reader_left(&reader) > 0) {
        uint64_t addr = nxl_reader_u64(&reader), len = nxl_reader_u64(&reader),
                 stride = nxl_reader_u64(&reader), span;
        uint32_t count = nxl_reader_u32(&reader), device = nxl_reader_u32(&reader);
        struct nxl_catalog_region *region;

        if (len == 0 || count == 0 || __builtin_mul_overflow(stride, count - 1, &span) ||
            __builtin_add_overflow(span, len, &span))
            return nxl_err_set(err, NXL_INVALID_PARAM, 0, "row %u is empty or too long",
                               sum->row_count);
        region = nxl_region_table_find(own->peer->regions, addr, span, kind, device);
        if (region == NULL || region->base == NULL)
            return nxl_err_set(err, NXL_NOT_FOUND, 0, "row %u is in no region of peer %s",
                               sum->row_count, xfer_show(own->peer));
        question->regions[sum->row_count] = region;
        sum->rows[sum->row_count++] =
            (struct digest_row){region->base + (addr - region->addr), len, stride, count};
    }
    return NXL_OK;
}

void xfer_digest_asked(struct xfer_agent *agent, struct xfer_peer *own,
                       const struct nxl_message *message)
{
    struct nxl_xfer *xfer = agent->xfer;
    struct question *question;
    struct nxl_err err = {0};
    enum nxl_code code;

    if (own == NULL) {
        answer_send(agent, message->request, NXL_NOT_FOUND, 0, "no such peer lives here");
        return;
    }
    code = xfer_policy_asked(xfer, agent,
                             (struct xfer_end){message->from_ns, message->from_incarnation},
                             xfer_end_of(own->peer), NXL_STREAM_READ, message->flags, &err);
    if (code != NXL_OK) {
        answer_send(agent, message->request, code, 0, err.text);
        return;
    }
    if (xfer->summing >= xfer->limits.digests) {
        xfer_count_error(xfer, NXL_LIMIT);
        answer_send(agent, message->request, NXL_LIMIT, 0,
                    "limits.digests are being summed at that agent");
        return;
    }
    question = nxl_new0(sizeof(*question));
    question->sum.xfer = xfer;
    question->sum.done = question_done;
    question->request = message->request;
    (void)nxl_copy_text(question->agent, sizeof(question->agent), agent->agent);
    code = question_read(question, own, message->payload, message->flags, &err);
    if (code != NXL_OK) {
        answer_send(agent, message->request, code, 0, err.text);
        question_free(question);
        return;
    }
    for (uint32_t i = 0; i < question->sum.row_count; i++)
        xfer_region_used(question->regions[i]);
    digest_sum_start(&question->sum);
}
