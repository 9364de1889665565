/* conn.c - one agent's connection: its queue of shared frames, its bytes in, its end. A queue that
 * grows too long is dropped for a snapshot; one that does not move at all ends. Loop thread. */
#include "push/push_internal.h"

#include "base/assert.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- buffers ------------------------------------------------------------------------------ */

struct push_buffer *push_buffer_new(const void *data, size_t size, uint64_t seq, uint32_t records)
{
    struct push_buffer *buffer = nxl_new0(sizeof(*buffer) + size);

    buffer->refs = 1;
    buffer->size = (uint32_t)size;
    buffer->records = records;
    buffer->seq = seq;
    memcpy(buffer->data, data, size);
    return buffer;
}

void push_buffer_unref(struct push_buffer *buffer)
{
    if (--buffer->refs == 0)
        free(buffer);
}

/* ---- groups that it holds ------------------------------------------------------------------ */

void push_hold(struct push_conn *conn, uint32_t group, int hold)
{
    uint32_t words = group / 64 + 1;

    if (words > conn->held_words) {
        if (!hold)
            return;
        conn->held = nxl_resize(conn->held, words, sizeof(*conn->held));
        memset(conn->held + conn->held_words, 0, (words - conn->held_words) * sizeof(*conn->held));
        conn->held_words = words;
    }
    if (hold)
        conn->held[group / 64] |= 1ull << (group % 64);
    else
        conn->held[group / 64] &= ~(1ull << (group % 64));
}

/* ---- the end ------------------------------------------------------------------------------ */

static void queue_clear(struct push_conn *conn, uint32_t keep)
{
    while (conn->queue_count > keep) {
        uint32_t last = (conn->queue_first + conn->queue_count - 1) % conn->queue_room;
        struct push_buffer *buffer = conn->queue[last];

        if (buffer->seq != 0) {
            conn->queue_records -= buffer->records;
            conn->queue_bytes -= buffer->size;
        }
        push_buffer_unref(buffer);
        conn->queue_count--;
        nxl_metric_move(conn->push->metrics.waiting, -1);
    }
}

static void node_unlink(struct push_conn *conn)
{
    struct push_conn **at;

    if (conn->node == NULL)
        return;
    for (at = &conn->node->conns; *at != NULL; at = &(*at)->node_next) {
        if (*at == conn) {
            *at = conn->node_next;
            break;
        }
    }
}

static void conn_end(struct push_conn *conn)
{
    struct nxl_push *push = conn->push;
    struct nxl_push_agent agent;

    if (conn->dead)
        return;
    conn->dead = 1;
    push_hello_drop(conn);
    nxl_tls_close(conn->tls);
    conn->tls = NULL;
    if (conn->prev != NULL)
        conn->prev->next = conn->next;
    else
        push->conns = conn->next;
    if (conn->next != NULL)
        conn->next->prev = conn->prev;
    node_unlink(conn);
    push->conn_count--;
    if (conn->state == CONN_LIVE) {
        push->live_count--;
        nxl_metric_set(push->metrics.agents, push->live_count);
        if (conn->silent)
            nxl_metric_move(push->metrics.silent, -1);
    }
    queue_clear(conn, 0);
    conn->next_dead = push->dead;
    push->dead = conn;
    if (conn->told && push->ops->on_agent != NULL && !push->closing) {
        push_conn_show(conn, &agent);
        push->ops->on_agent(push->arg, &agent, 0);
    }
    push_flush_later(push); /* also frees the dead */
    push_accept_resume(push);
}

void push_conns_free_dead(struct nxl_push *push)
{
    while (push->dead != NULL) {
        struct push_conn *conn = push->dead;

        push->dead = conn->next_dead;
        push_node_put(push, conn->node);
        nxl_bytes_fini(&conn->in);
        free(conn->hello.csr);
        free(conn->queue);
        free(conn->held);
        free(conn);
    }
}

static void say_end(struct push_conn *conn, enum push_failure failure, const char *why)
{
    struct nxl_push *push = conn->push;

    nxl_metric_add(push->metrics.failures[failure], 1);
    if (conn->node != NULL)
        nxl_info("push", "event=\"agent gone\" node=%s agent=%s why=%s",
                 nxl_quote(conn->node->name), nxl_quote(conn->agent), nxl_quote(why));
    else if (nxl_log_gate_open(&push->gate, 5))
        nxl_warn("push", "event=\"connection ended\" peer=%s why=%s",
                 nxl_quote(conn->tls != NULL ? nxl_tls_peer(conn->tls) : "?"), nxl_quote(why));
}

void push_conn_fail(struct push_conn *conn, enum push_failure failure, const char *fmt, ...)
{
    char why[NXL_ERR_TEXT_SIZE];
    va_list args;

    if (conn->dead)
        return;
    va_start(args, fmt);
    (void)vsnprintf(why, sizeof(why), fmt, args);
    va_end(args);
    say_end(conn, failure, why);
    conn_end(conn);
}

void push_conn_refuse(struct push_conn *conn, enum push_failure failure, enum nxl_code code,
                      const char *fmt, ...)
{
    struct nxl_stream_frame frame = {.type = NXL_STREAM_REFUSE, .code = code};
    char why[NXL_ERR_TEXT_SIZE];
    va_list args;

    if (conn->dead)
        return;
    va_start(args, fmt);
    (void)vsnprintf(why, sizeof(why), fmt, args);
    va_end(args);
    frame.text = why;
    push_conn_say(conn, &frame);
    push_conn_pump(conn);
    if (conn->dead)
        return;
    say_end(conn, failure, why);
    conn_end(conn);
}

/* ---- out ---------------------------------------------------------------------------------- */

static void want_pump(struct push_conn *conn)
{
    struct nxl_push *push = conn->push;

    if (conn->ready || conn->dead)
        return;
    conn->ready = 1;
    conn->next_ready = push->ready;
    push->ready = conn;
    push_flush_later(push);
}

/* What waits is dropped; the head stays if part of it may be on its way. */
static void queue_reset(struct push_conn *conn)
{
    if (conn->resets > 0) {
        push_conn_fail(conn, PUSH_FAIL_SLOW, "it reads too slowly, even after a reset");
        return;
    }
    nxl_info("push", "event=\"agent set back to a snapshot\" node=%s why=\"it reads too slowly\"",
             nxl_quote(conn->node != NULL ? conn->node->name : "?"));
    nxl_metric_add(conn->push->metrics.resets, 1);
    queue_clear(conn, conn->queue_count > 0 && conn->blocked ? 1 : 0);
    conn->needs_snapshot = 1;
    conn->resets++;
    conn->queued_ns = nxl_now_ns();
    want_pump(conn);
}

static void queue_grow(struct push_conn *conn)
{
    uint32_t room = conn->queue_room == 0 ? 8 : conn->queue_room * 2;
    struct push_buffer **queue = nxl_new0_array(room, sizeof(struct push_buffer *));

    for (uint32_t i = 0; i < conn->queue_count; i++)
        queue[i] = conn->queue[(conn->queue_first + i) % conn->queue_room];
    free(conn->queue);
    conn->queue = queue;
    conn->queue_room = room;
    conn->queue_first = 0;
}

void push_conn_queue(struct push_conn *conn, struct push_buffer *buffer)
{
    struct nxl_push *push = conn->push;

    if (conn->dead)
        return;
    if (buffer->seq != 0) {
        conn->sent_seq = buffer->seq > conn->sent_seq ? buffer->seq : conn->sent_seq;
        if (conn->needs_snapshot)
            return; /* it will be in it */
        if (conn->queue_records + buffer->records > push->limits.queue_records ||
            conn->queue_bytes + buffer->size > push->limits.queue_bytes) {
            queue_reset(conn);
            return;
        }
        conn->queue_records += buffer->records;
        conn->queue_bytes += buffer->size;
    }
    if (conn->queue_count == conn->queue_room)
        queue_grow(conn);
    if (conn->queue_count == 0)
        conn->queued_ns = nxl_now_ns();
    buffer->refs++;
    conn->queue[(conn->queue_first + conn->queue_count++) % conn->queue_room] = buffer;
    nxl_metric_move(push->metrics.waiting, 1);
    want_pump(conn);
}

void push_conn_say(struct push_conn *conn, const struct nxl_stream_frame *frame)
{
    int acked = frame->type == NXL_STREAM_DELTA || frame->type == NXL_STREAM_POLICY;
    struct nxl_bytes bytes = {0};
    struct push_buffer *buffer;
    struct nxl_err err;

    if (conn->dead)
        return;
    if (nxl_stream_encode(frame, &bytes, &err) != NXL_OK) {
        nxl_error("push", "event=\"frame not sent\" why=%s", nxl_quote(err.text));
        return;
    }
    buffer = push_buffer_new(bytes.data, bytes.size, acked ? frame->seq : 0, frame->member_count);
    nxl_bytes_fini(&bytes);
    push_conn_queue(conn, buffer);
    if (frame->type == NXL_STREAM_SNAPSHOT && frame->seq > conn->sent_seq)
        conn->sent_seq = frame->seq;
    push_buffer_unref(buffer);
}

static void queue_pop(struct push_conn *conn)
{
    struct push_buffer *buffer = conn->queue[conn->queue_first];

    if (buffer->seq != 0) {
        conn->queue_records -= buffer->records;
        conn->queue_bytes -= buffer->size;
    }
    conn->queue_first = (conn->queue_first + 1) % conn->queue_room;
    conn->queue_count--;
    conn->head_sent = 0;
    conn->blocked = 0;
    nxl_metric_move(conn->push->metrics.waiting, -1);
    nxl_metric_add(conn->push->metrics.frames, 1);
    nxl_metric_add(conn->push->metrics.bytes, buffer->size);
    push_buffer_unref(buffer);
}

void push_conn_pump(struct push_conn *conn)
{
    if (conn->dead || conn->tls == NULL || !nxl_tls_is_open(conn->tls))
        return;
    if (conn->queue_count == 0 && conn->needs_snapshot)
        push_snapshot(conn);
    while (conn->queue_count > 0) {
        const struct push_buffer *head = conn->queue[conn->queue_first];

        conn->head_sent +=
            nxl_tls_write(conn->tls, head->data + conn->head_sent, head->size - conn->head_sent);
        if (conn->head_sent < head->size) {
            conn->blocked = 1;
            return;
        }
        queue_pop(conn);
        if (conn->queue_count == 0 && conn->needs_snapshot)
            push_snapshot(conn);
        if (conn->dead)
            return;
    }
    conn->resets = 0;
}

void push_conn_pump_ready(struct nxl_push *push)
{
    while (push->ready != NULL) {
        struct push_conn *conn = push->ready;

        push->ready = conn->next_ready;
        conn->ready = 0;
        if (!conn->blocked)
            push_conn_pump(conn); /* else on_room goes on */
    }
}

/* ---- in ----------------------------------------------------------------------------------- */

static void on_open(void *arg)
{
    struct push_conn *conn = arg;

    conn->state = CONN_HELLO;
    if (nxl_tls_resumed(conn->tls))
        nxl_metric_add(conn->push->metrics.resumed, 1);
}

static void on_room(void *arg)
{
    struct push_conn *conn = arg;

    conn->blocked = 0;
    push_conn_pump(conn);
}

static void on_end(void *arg, const char *why)
{
    push_conn_fail(arg, PUSH_FAIL_TLS, "%s", why);
}

static void heard(struct push_conn *conn)
{
    struct nxl_push *push = conn->push;
    struct nxl_push_agent agent;

    conn->heard_ns = nxl_now_ns();
    if (!conn->silent)
        return;
    conn->silent = 0;
    nxl_metric_move(push->metrics.silent, -1);
    if (push->ops->on_silent == NULL)
        return;
    push_conn_show(conn, &agent);
    push->ops->on_silent(push->arg, &agent, 0);
}

static void take_frame(struct push_conn *conn, struct nxl_view body)
{
    struct nxl_stream_frame frame;
    struct nxl_err err;

    if (nxl_stream_decode(body, &frame, &err) != NXL_OK) {
        push_conn_refuse(conn, PUSH_FAIL_FRAME, NXL_MISMATCH, "%s", err.text);
        return;
    }
    if (conn->state == CONN_LIVE)
        push_on_frame(conn, &frame);
    else if (conn->state == CONN_HELLO && frame.type == NXL_STREAM_HELLO)
        push_on_hello(conn, &frame);
    else
        push_conn_refuse(conn, PUSH_FAIL_FRAME, NXL_MISMATCH, "the first frame is no HELLO");
    nxl_stream_frame_fini(&frame);
}

static void on_data(void *arg, const void *data, size_t size)
{
    struct push_conn *conn = arg;
    size_t used = 0;

    if (conn->dead)
        return;
    heard(conn);
    nxl_bytes_put(&conn->in, data, size);
    while (!conn->dead) {
        struct nxl_view rest = {conn->in.data + used, conn->in.size - used}, body;
        size_t taken = 0;
        int got = nxl_stream_split(rest, &body, &taken);

        if (got < 0)
            push_conn_fail(conn, PUSH_FAIL_FRAME, "a frame's length is 0 or above %u",
                           NXL_STREAM_FRAME_MAX);
        if (got <= 0)
            break;
        used += taken;
        take_frame(conn, body);
    }
    if (conn->dead)
        return;
    nxl_bytes_drop(&conn->in, used);
    if (conn->in.size == 0 && conn->in.room > 0)
        nxl_bytes_fini(&conn->in); /* thousands of idle connections hold nothing */
}

static const struct nxl_tls_ops tls_ops = {
    .on_open = on_open, .on_data = on_data, .on_room = on_room, .on_end = on_end};

struct push_conn *push_conn_new(struct nxl_push *push, int fd, struct nxl_err *err)
{
    struct push_conn *conn = nxl_new0(sizeof(*conn));

    conn->push = push;
    conn->since_ns = conn->heard_ns = nxl_now_ns();
    if (nxl_tls_accept(push->loop, push->context, fd, &tls_ops, conn, &conn->tls, err) != NXL_OK) {
        free(conn);
        return NULL;
    }
    conn->next = push->conns;
    if (conn->next != NULL)
        conn->next->prev = conn;
    push->conns = conn;
    push->conn_count++;
    nxl_metric_add(push->metrics.accepted, 1);
    return conn;
}

/* ---- time --------------------------------------------------------------------------------- */

static void ping(struct push_conn *conn, uint64_t now_ns)
{
    struct nxl_push *push = conn->push;
    struct nxl_stream_frame frame = {.type = NXL_STREAM_PING, .rv = push->rv, .at_ns = now_ns};

    conn->ping_ns = now_ns + push->limits.ping_ns;
    if (conn->queue_count > 0)
        return; /* bytes are on their way anyway */
    frame.seq = conn->sent_seq;
    frame.digest = push_digest(conn);
    conn->asked_ns = conn->synced ? now_ns : 0;
    conn->asked_digest = frame.digest;
    push_conn_say(conn, &frame);
}

static void judge_silence(struct push_conn *conn, uint64_t now_ns)
{
    struct nxl_push *push = conn->push;
    struct nxl_push_agent agent;

    if (conn->silent || now_ns - conn->heard_ns < push->limits.silent_ns)
        return;
    conn->silent = 1;
    nxl_metric_move(push->metrics.silent, 1);
    nxl_warn("push", "event=\"agent silent\" node=%s agent=%s", nxl_quote(conn->node->name),
             nxl_quote(conn->agent));
    if (push->ops->on_silent == NULL)
        return;
    push_conn_show(conn, &agent);
    push->ops->on_silent(push->arg, &agent, 1);
}

void push_conn_tick(struct push_conn *conn, uint64_t now_ns)
{
    const struct nxl_push *push = conn->push;

    if (conn->state != CONN_LIVE) {
        if (now_ns - conn->since_ns > push->limits.hello_ns)
            push_conn_fail(conn, PUSH_FAIL_TIMEOUT,
                           "no hello, or no answer about its token, in time");
        return;
    }
    judge_silence(conn, now_ns);
    if (conn->dead)
        return;
    if (conn->queue_count > 0 && now_ns - conn->queued_ns > push->limits.queue_age_ns) {
        queue_reset(conn);
        return;
    }
    if (now_ns - conn->heard_ns > 10 * push->limits.silent_ns) {
        push_conn_fail(conn, PUSH_FAIL_TIMEOUT, "it was silent for too long");
        return;
    }
    if (now_ns >= conn->ping_ns && push->dirty == NULL && !conn->needs_snapshot)
        ping(conn, now_ns);
}

void push_conn_show(const struct push_conn *conn, struct nxl_push_agent *ret)
{
    *ret = (struct nxl_push_agent){
        .node = conn->node != NULL ? conn->node->name : "",
        .agent = conn->agent,
        .pod = conn->pod,
        .address = conn->tls != NULL ? nxl_tls_peer(conn->tls) : "",
        .sent_seq = conn->sent_seq,
        .acked_seq = conn->acked_seq,
        .since_ns = conn->since_ns,
        .heard_ns = conn->heard_ns,
        .waiting = conn->queue_count,
        .silent = conn->silent,
        .resumed = conn->tls != NULL && nxl_tls_resumed(conn->tls),
    };
}
