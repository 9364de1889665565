/* link_notice.c - notices that arrive exactly once. Ours wait here, numbered, until the far agent
 * says taken or refused, and go out again on each new connection; theirs are taken in order, once,
 * by the highest number seen. Called by link.c, link_conn.c and xfer. Loop thread. */
#include "cluster/link_internal.h"

#include "base/assert.h"
#include "base/mem.h"

#include <endian.h>
#include <stdlib.h>

#define SEQUENCE_OFFSET 6u /* in a NOTICE frame: after u32 size and u16 type */

/* ---- queues ------------------------------------------------------------------------------- */

static struct link_frame *frame_new(const void *data, size_t size, uint64_t sequence,
                                    uint64_t cookie)
{
    struct link_frame *frame = nxl_new0(sizeof(*frame) + size);

    frame->sequence = sequence;
    frame->cookie = cookie;
    frame->size = size;
    memcpy(frame->data, data, size);
    return frame;
}

static void queue_append(struct link_queue *queue, struct link_frame *frame)
{
    frame->next = NULL;
    if (queue->tail != NULL)
        queue->tail->next = frame;
    else
        queue->head = frame;
    queue->tail = frame;
    queue->count++;
    queue->bytes += frame->size;
}

static struct link_frame *queue_pop(struct link_queue *queue)
{
    struct link_frame *frame = queue->head;

    if (frame == NULL)
        return NULL;
    queue->head = frame->next;
    if (queue->head == NULL)
        queue->tail = NULL;
    queue->count--;
    queue->bytes -= frame->size;
    return frame;
}

static struct link_frame *queue_take(struct link_queue *queue, uint64_t sequence)
{
    struct link_frame *before = NULL;

    for (struct link_frame *frame = queue->head; frame != NULL;
         before = frame, frame = frame->next) {
        if (frame->sequence != sequence)
            continue;
        if (before == NULL)
            return queue_pop(queue);
        before->next = frame->next;
        if (queue->tail == frame)
            queue->tail = before;
        queue->count--;
        queue->bytes -= frame->size;
        return frame;
    }
    return NULL;
}

/* ---- ours --------------------------------------------------------------------------------- */

/* Frees the frame before it tells, so that the callback may do anything. */
static void frame_end(struct nxl_link *link, struct link_frame *frame, enum nxl_code code,
                      const char *why)
{
    struct nxl_links *links = link->links;
    uint64_t cookie = frame->cookie;

    if (link->notices.unsent == frame)
        link->notices.unsent = frame->next;
    free(frame);
    nxl_metric_move(links->metrics.unacked, -1);
    links->ops->on_notice_end(links->arg, cookie, code, why);
}

enum nxl_code nxl_link_notice(struct nxl_link *link, const struct nxl_message *notice,
                              uint64_t cookie, struct nxl_err *err)
{
    struct nxl_links *links = link->links;
    struct link_notices *notices = &link->notices;
    NXL_CLEANUP(nxl_bytes_fini) struct nxl_bytes bytes = {0};
    struct nxl_message message = *notice;
    struct link_frame *frame;
    enum nxl_code code;

    if (notice->type != NXL_MESSAGE_NOTICE)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "notice: message type %u is no notice",
                           notice->type);
    if (link->over)
        return nxl_err_set(err, NXL_REMOTE_DISCONNECT, 0, "notice: agent '%s' is gone",
                           link->agent);
    message.sequence = notices->last + 1;
    code = nxl_message_encode(&message, &bytes, err);
    if (code != NXL_OK)
        return code;
    if (notices->unacked.count >= links->notices_max ||
        notices->unacked.bytes + bytes.size > links->notice_bytes_max)
        return nxl_err_set(
            err, NXL_LIMIT, 0,
            "notice: %u notices of %zu bytes wait for agent '%s' already (link.notices_max %u, "
            "link.notice_bytes_max %zu)",
            notices->unacked.count, notices->unacked.bytes, link->agent, links->notices_max,
            links->notice_bytes_max);
    frame = frame_new(bytes.data, bytes.size, ++notices->last, cookie);
    queue_append(&notices->unacked, frame);
    if (notices->unsent == NULL)
        notices->unsent = frame;
    nxl_metric_move(links->metrics.unacked, 1);
    notices_pump(link);
    return NXL_OK;
}

void notices_pump(struct nxl_link *link)
{
    struct link_notices *notices = &link->notices;
    struct conn *conn = link->conn;

    if (conn == NULL || conn->broken || conn->dead)
        return;
    while (notices->unsent != NULL && conn_backlog(conn) < LINK_OUT_PUMP) {
        struct link_frame *frame = notices->unsent;

        conn_put_frame(conn, frame->data, frame->size);
        if (frame->sent)
            nxl_metric_add(link->links->metrics.resends, 1);
        frame->sent = 1;
        notices->unsent = frame->next;
        if (!conn->corked && (notices->unsent == NULL || conn_backlog(conn) >= LINK_OUT_PUMP))
            conn_flush(conn);
        if (conn->broken)
            return;
    }
}

void notices_on_ack(struct nxl_link *link, const struct nxl_message *ack)
{
    struct link_notices *notices = &link->notices;
    struct link_frame *frame;

    if ((ack->flags & LINK_ACK_UP_TO) != 0) {
        while (!link->over && notices->unacked.head != NULL &&
               notices->unacked.head->sequence <= ack->sequence)
            frame_end(link, queue_pop(&notices->unacked), NXL_OK, "");
        return;
    }
    frame = queue_take(&notices->unacked, ack->sequence);
    if (frame != NULL) /* a refusal may be said twice */
        frame_end(link, frame, ack->code < 0 ? (enum nxl_code)ack->code : NXL_UNKNOWN, ack->text);
}

void notices_end_all(struct nxl_link *link, const char *why)
{
    struct link_frame *frame;

    while ((frame = queue_pop(&link->notices.unacked)) != NULL)
        frame_end(link, frame, NXL_REMOTE_DISCONNECT, why);
}

static void frame_number(struct link_frame *frame, uint64_t sequence)
{
    uint64_t wire = htole64(sequence);

    frame->sequence = sequence;
    memcpy(frame->data + SEQUENCE_OFFSET, &wire, sizeof(wire));
}

void notices_renumber(struct nxl_link *link, uint64_t last)
{
    struct link_notices *notices = &link->notices;

    notices->last = last;
    for (struct link_frame *frame = notices->unacked.head; frame != NULL; frame = frame->next)
        frame_number(frame, ++notices->last);
}

void notices_move(struct nxl_link *from, struct nxl_link *to)
{
    struct link_frame *frame;

    from->notices.unsent = NULL;
    while ((frame = queue_pop(&from->notices.unacked)) != NULL) {
        frame_number(frame, ++to->notices.last);
        queue_append(&to->notices.unacked, frame);
        if (to->notices.unsent == NULL)
            to->notices.unsent = frame;
    }
    notices_pump(to);
}

/* ---- theirs ------------------------------------------------------------------------------- */

static void refusal_say(struct nxl_link *link, const struct link_refusal *refusal)
{
    const struct nxl_message ack = {.type = NXL_MESSAGE_NOTICE_ACK,
                                    .sequence = refusal->sequence,
                                    .code = refusal->code,
                                    .text = nxl_code_text(refusal->code)};
    struct nxl_err err;

    if (link->conn != NULL && conn_backlog(link->conn) < 2 * LINK_OUT_MAX)
        (void)conn_put(link->conn, &ack, &err); /* a short text always fits a frame */
}

static void refusal_keep(struct nxl_link *link, uint64_t sequence, enum nxl_code code)
{
    struct link_notices *notices = &link->notices;
    struct link_refusal *refusal;

    if (notices->refusals == NULL)
        notices->refusals = nxl_new0_array(LINK_REFUSALS_MAX, sizeof(*notices->refusals));
    refusal = &notices->refusals[notices->refusal_next];
    notices->refusal_next = (notices->refusal_next + 1) % LINK_REFUSALS_MAX;
    if (notices->refusal_count < LINK_REFUSALS_MAX)
        notices->refusal_count++;
    *refusal = (struct link_refusal){.sequence = sequence, .code = code};
    notices_flush_acks(link); /* what was taken before it is said before it */
    refusal_say(link, refusal);
}

void notices_flush_acks(struct nxl_link *link)
{
    struct nxl_message ack = {.type = NXL_MESSAGE_NOTICE_ACK, .flags = LINK_ACK_UP_TO};
    struct nxl_err err;

    if (!link->notices.ack_due || link->conn == NULL ||
        conn_backlog(link->conn) >= 2 * LINK_OUT_MAX)
        return;
    link->notices.ack_due = 0;
    ack.sequence = link->notices.seen;
    (void)conn_put(link->conn, &ack, &err); /* no text: it always fits a frame */
}

/* 1: taken or refused. 0: to be held. The link may be over afterwards. */
static int notice_offer(struct nxl_link *link, const struct nxl_message *notice)
{
    struct nxl_links *links = link->links;
    uint64_t sequence = notice->sequence;
    enum nxl_code code = links->ops->on_notice(links->arg, link, notice);

    if (code == NXL_AGAIN)
        return 0;
    if (code == NXL_OK) {
        link->notices.seen = sequence;
        link->notices.ack_due = 1;
        return 1;
    }
    if (!link->over)
        refusal_keep(link, sequence, code);
    link->notices.seen = sequence;
    link->notices.ack_due = 1; /* an "up to" after the refusal cannot undo it: it has ended there */
    return 1;
}

void notices_on_notice(struct nxl_link *link, const struct nxl_message *notice,
                       struct nxl_view body)
{
    struct link_notices *notices = &link->notices;
    uint64_t newest = notices->held.tail != NULL ? notices->held.tail->sequence : notices->seen;

    if (notice->sequence <= newest) { /* sent again because our answer was lost */
        notices->ack_due = 1;
        return;
    }
    if (notices->held.head == NULL && !notices->busy) {
        int done;

        notices->busy = 1;
        done = notice_offer(link, notice);
        notices->busy = 0;
        if (done || link->over)
            return;
    }
    queue_append(&notices->held, frame_new(body.data, body.size, notice->sequence, 0));
    nxl_metric_move(link->links->metrics.held, 1);
    if (notices->held.bytes >= link->links->notice_bytes_max && link->conn != NULL)
        link->conn->paused = 1; /* the far side feels it; nxl_links_resume() reads on */
}

/* Offers what is held, in order, until one must wait again. */
void notices_resume(struct nxl_link *link)
{
    struct nxl_links *links = link->links;
    struct link_notices *notices = &link->notices;

    if (notices->busy)
        return; /* called from inside on_notice: that one decides */
    notices->busy = 1;
    while (!link->over && notices->held.head != NULL) {
        struct link_frame *frame = notices->held.head;
        struct nxl_message notice;
        struct nxl_err err;
        enum nxl_code code = nxl_message_decode(
            links->notice_decoder, (struct nxl_view){frame->data, frame->size}, &notice, &err);

        NXL_ASSERT(code == NXL_OK);      /* it was decoded when it came */
        (void)queue_pop(&notices->held); /* a callback may end the link and with it the queue */
        if (!notice_offer(link, &notice)) {
            if (link->over) {
                nxl_metric_move(links->metrics.held, -1);
                free(frame);
                break;
            }
            frame->next = notices->held.head;
            notices->held.head = frame;
            if (notices->held.tail == NULL)
                notices->held.tail = frame;
            notices->held.count++;
            notices->held.bytes += frame->size;
            break;
        }
        nxl_metric_move(links->metrics.held, -1);
        free(frame);
    }
    notices->busy = 0;
    if (link->over || link->conn == NULL)
        return;
    notices_flush_acks(link);
    if (link->conn->paused && notices->held.bytes < links->notice_bytes_max)
        conn_unpause(link->conn);
}

/* ---- connections come and go -------------------------------------------------------------- */

void notices_attach(struct nxl_link *link, uint64_t far_seen)
{
    struct link_notices *notices = &link->notices;
    uint32_t first =
        (notices->refusal_next + LINK_REFUSALS_MAX - notices->refusal_count) % LINK_REFUSALS_MAX;
    struct conn *conn = link->conn;
    int was_corked = conn->corked;

    conn->corked = 1;
    /* Refusals first: the "up to" that follows ends everything else as taken. */
    for (uint32_t i = 0; i < notices->refusal_count; i++)
        refusal_say(link, &notices->refusals[(first + i) % LINK_REFUSALS_MAX]);
    notices->ack_due = notices->seen > 0;
    notices_flush_acks(link);
    notices->unsent = notices->unacked.head;
    while (notices->unsent != NULL && notices->unsent->sequence <= far_seen)
        notices->unsent = notices->unsent->next; /* arrived; its answer is on the way */
    notices_pump(link);
    conn->corked = was_corked;
    if (was_corked)
        return; /* whoever reads the batch flushes and pumps */
    conn_flush(conn);
    notices_pump(link);
}

static void held_clear(struct nxl_link *link)
{
    struct link_frame *frame;

    while ((frame = queue_pop(&link->notices.held)) != NULL) {
        nxl_metric_move(link->links->metrics.held, -1);
        free(frame);
    }
}

void notices_detach(struct nxl_link *link)
{
    link->notices.unsent = NULL;
    link->notices.ack_due = 0;
    held_clear(link); /* never seen, so they are sent again */
}

void notices_fini(struct nxl_link *link)
{
    struct link_frame *frame;

    held_clear(link);
    while ((frame = queue_pop(&link->notices.unacked)) != NULL) {
        nxl_metric_move(link->links->metrics.unacked, -1);
        free(frame);
    }
    free(link->notices.refusals);
    link->notices.refusals = NULL;
}
