/* transfer.c - an operation from submit() to quiesced: its checks, its turn among others, its one
 * end and its draining. submit() and cancel() run on the loop thread, all else on the progress
 * thread. */
#include "ucx.h"

#include "status.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TURNS_MAX 16u /* per connection between two rounds of progress */

enum nxl_code ucx_submit(struct nxl_backend *backend, const struct nxl_op *op, struct nxl_err *err)
{
    struct ucx_op *mine;

    if (op->conn == NULL)
        return nxl_err_set(err, NXL_NOT_SUPPORTED, 0,
                           "ucx moves between agents only; the shm backend is local");
    if (atomic_load(&op->conn->shared.failed))
        return nxl_err_set(err, NXL_REMOTE_DISCONNECT, 0,
                           "the ucx endpoint to this agent has failed");
    if (atomic_load(&backend->shared.ops) >= backend->settings.depth) {
        atomic_store(&backend->shared.starved, 1);
        if (atomic_load(&backend->shared.ops) >= backend->settings.depth)
            return NXL_AGAIN;
        atomic_store(&backend->shared.starved, 0); /* room came meanwhile */
    }
    mine = calloc(1, sizeof(*mine));
    if (mine == NULL)
        return nxl_err_set(err, NXL_LIMIT, 0, "no memory for an operation");
    mine->op = op;
    mine->conn = op->conn;
    mine->id = op->id;
    mine->kind = op->kind;
    mine->deadline_ns = op->deadline_ns;
    ucx_link_init(&mine->link);
    ucx_link_init(&mine->issue);
    ucx_link_init(&mine->dirty);
    atomic_fetch_add(&backend->shared.ops, 1);
    ucx_command_push(backend, &mine->command, UCX_COMMAND_SUBMIT);
    return NXL_OK;
}

void ucx_cancel(struct nxl_backend *backend, uint64_t op_id)
{
    struct ucx_cancel *cancel = calloc(1, sizeof(*cancel));

    if (cancel == NULL)
        return; /* a wish that cannot be passed on; the operation ends by itself or by its deadline
                 */
    cancel->op_id = op_id;
    ucx_command_push(backend, &cancel->command, UCX_COMMAND_CANCEL);
}

static int range_fits(uint64_t offset, uint64_t len, uint64_t stride, uint32_t count, uint64_t size)
{
    uint64_t span, end;

    return !__builtin_mul_overflow(stride, (uint64_t)count - 1, &span) &&
           !__builtin_add_overflow(span, len, &end) && !__builtin_add_overflow(end, offset, &end) &&
           end <= size;
}

/* The agent has checked all this; a mistake there must not become a write into foreign memory. */
static enum nxl_code op_check(struct ucx_op *op, char *text, size_t size)
{
    const struct nxl_op *lent = op->op;

    if (lent->kind != NXL_READ && lent->kind != NXL_WRITE) {
        (void)snprintf(text, size, "unknown kind of operation %d", lent->kind);
        return NXL_INVALID_PARAM;
    }
    for (uint32_t i = 0; i < lent->piece_count; i++) {
        const struct nxl_piece *piece = &lent->pieces[i];
        struct nxl_backend_remote *remote;
        uint64_t bytes;

        if (piece->local >= lent->local_count || piece->remote >= lent->remote_count ||
            piece->count == 0 ||
            !range_fits(piece->local_offset, piece->len, piece->local_stride, piece->count,
                        lent->locals[piece->local]->size) ||
            !range_fits(piece->remote_offset, piece->len, piece->remote_stride, piece->count,
                        lent->remotes[piece->remote]->size) ||
            __builtin_mul_overflow(piece->len, piece->count, &bytes) ||
            __builtin_add_overflow(op->total, bytes, &op->total)) {
            (void)snprintf(text, size, "piece %u lies outside of its regions", i);
            return NXL_INVALID_PARAM;
        }
        remote = lent->remotes[piece->remote];
        if (remote->conn != op->conn) {
            (void)snprintf(text, size, "piece %u names a key of another connection", i);
            return NXL_INVALID_PARAM;
        }
        if (remote->status != UCS_OK) {
            (void)snprintf(text, size, "the key of piece %u cannot be used: %s", i,
                           op->conn->backend->lib.ucs_status_string(remote->status));
            return ucx_status_fatal(remote->status) ? NXL_REMOTE_DISCONNECT : NXL_MISMATCH;
        }
    }
    return NXL_OK;
}

void ucx_op_start(struct ucx_op *op)
{
    struct nxl_backend_conn *conn = op->conn;
    struct nxl_backend *backend = conn->backend;
    char text[160];
    enum nxl_code code;

    ucx_link_append(&conn->own.ops, &op->link);
    op->started = 1;
    if (conn->own.state != UCX_CONN_OPEN || conn->own.error != UCS_OK) {
        ucx_op_end(op, NXL_REMOTE_DISCONNECT, conn->own.error,
                   "the endpoint to this agent has failed");
        return;
    }
    code = op_check(op, text, sizeof(text));
    if (code != NXL_OK) {
        ucx_op_end(op, code, UCS_OK, text);
        return;
    }
    if (op->deadline_ns != 0 && op->deadline_ns < backend->own.next_deadline_ns)
        backend->own.next_deadline_ns = op->deadline_ns;
    if (op->total > 0) {
        ucx_link_append(&conn->own.issue, &op->issue);
        return;
    }
    op->all_issued = 1;
    ucx_op_touch(op);
}

void ucx_op_touch(struct ucx_op *op)
{
    if (ucx_link_empty(&op->dirty))
        ucx_link_append(&op->conn->backend->own.dirty, &op->dirty);
}

static void op_free(struct ucx_op *op)
{
    struct nxl_backend_conn *conn = op->conn;
    struct nxl_backend *backend = conn->backend;

    ucx_link_remove(&op->link);
    ucx_link_remove(&op->issue);
    ucx_link_remove(&op->dirty);
    free(op);
    if (conn->own.gone)
        backend->own.conn_failed = 1;
    atomic_fetch_sub(&backend->shared.ops, 1);
    if (atomic_exchange(&backend->shared.starved, 0))
        backend->host->ready(backend->host);
}

/* Answers that come for an ended READ are thrown away, so its memory is quiet at once. */
static void answers_forget(struct ucx_op *op)
{
    struct nxl_backend *backend = op->conn->backend;

    for (uint32_t i = 0; i < backend->own.requests_count && op->in_flight > 0; i++) {
        struct ucx_request *request = backend->own.requests[i];

        if (request->busy && request->op == op) {
            request->op = NULL;
            op->in_flight--;
        }
    }
}

static int op_is_quiet(const struct ucx_op *op)
{
    if (op->in_flight > 0)
        return 0;
    return op->issued == 0 || op->flushed || op->kind == NXL_READ || op->conn->own.by_message ||
           op->conn->own.state == UCX_CONN_CLOSED;
}

/* The one end. op may be gone afterwards. */
void ucx_op_end(struct ucx_op *op, enum nxl_code code, ucs_status_t status, const char *why)
{
    struct nxl_backend_conn *conn = op->conn;
    struct nxl_backend *backend = conn->backend;
    struct nxl_outcome outcome = {
        .size = sizeof(outcome),
        .code = code,
        .op_id = op->id,
        .device = conn->own.device,
        .path = conn->own.path,
        .os = status,
    };

    if (code != NXL_OK && conn->own.by_message && op->kind == NXL_READ)
        answers_forget(op);
    outcome.bytes = code == NXL_OK ? op->total : op->sure;
    outcome.untouched = code != NXL_OK && op->issued == 0;
    outcome.quiesced = op_is_quiet(op) ? 1 : 0;
    (void)snprintf(outcome.text, sizeof(outcome.text), "%s", why);
    op->ended = 1;
    op->op = NULL; /* not lent any more */
    ucx_link_remove(&op->issue);
    if (!outcome.quiesced) {
        op->drain_ns = ucx_now_ns() + (uint64_t)backend->settings.drain_ns;
        if (op->drain_ns < backend->own.next_deadline_ns)
            backend->own.next_deadline_ns = op->drain_ns;
        ucx_op_touch(op);
    }
    backend->host->complete(backend->host, &outcome);
    if (outcome.quiesced)
        op_free(op);
}

static void op_end_failed(struct ucx_op *op)
{
    struct nxl_backend *backend = op->conn->backend;
    char text[160];

    if (op->far_code != NXL_OK) {
        (void)snprintf(text, sizeof(text), "the far agent refused a message: %s",
                       nxl_code_text(op->far_code));
        ucx_op_end(op, op->far_code, UCS_OK, text);
        return;
    }
    (void)snprintf(text, sizeof(text), "%s failed: %s", op->kind == NXL_WRITE ? "write" : "read",
                   backend->lib.ucs_status_string(op->status));
    ucx_op_end(op, ucx_status_code(op->status), op->status, text);
}

/* One step towards the end after something of op has changed. */
void ucx_op_advance(struct ucx_op *op)
{
    struct nxl_backend_conn *conn = op->conn;
    int usable = conn->own.state == UCX_CONN_OPEN && conn->own.error == UCS_OK;

    if (op->status != UCS_OK && !op->ended) {
        op_end_failed(op);
        return;
    }
    if (!op->ended && !op->all_issued)
        return;
    if (usable && !conn->own.by_message && op->kind == NXL_WRITE && op->issued > 0 &&
        !op->flushing) {
        op->flushing = 1;
        if (!ucx_rma_flush(op))
            return; /* refused: touched again by its status */
    }
    if (!op_is_quiet(op))
        return;
    if (!op->ended) {
        ucx_op_end(op, NXL_OK, UCS_OK, "");
        return;
    }
    conn->backend->host->quiesced(conn->backend->host, op->id);
    op_free(op);
}

unsigned ucx_ops_settle(struct nxl_backend *backend)
{
    unsigned count = 0;

    while (!ucx_link_empty(&backend->own.dirty)) {
        struct ucx_op *op = UCX_OF(backend->own.dirty.next, struct ucx_op, dirty);

        ucx_link_remove(&op->dirty);
        ucx_op_advance(op);
        count++;
    }
    return count;
}

/* The next bytes of op, at most max of them. 0: none are left. */
int ucx_op_slice(struct ucx_op *op, uint64_t max, struct ucx_slice *ret)
{
    const struct nxl_op *lent = op->op;
    struct ucx_cursor *at = &op->cursor;

    while (at->piece < lent->piece_count) {
        const struct nxl_piece *piece = &lent->pieces[at->piece];

        if (piece->len == 0 || at->row == piece->count) {
            at->piece++;
            at->row = 0;
            continue;
        }
        ret->mem = lent->locals[piece->local];
        ret->remote = lent->remotes[piece->remote];
        ret->local =
            ret->mem->base + piece->local_offset + at->row * piece->local_stride + at->done;
        ret->offset = piece->remote_offset + at->row * piece->remote_stride + at->done;
        ret->len = piece->len - at->done < max ? piece->len - at->done : max;
        at->done += ret->len;
        if (at->done == piece->len) {
            at->row++;
            at->done = 0;
        }
        return 1;
    }
    return 0;
}

static int conn_has_room(const struct nxl_backend_conn *conn)
{
    return conn->own.state == UCX_CONN_OPEN && conn->own.error == UCS_OK &&
           conn->own.outstanding < UCX_REQUESTS_MAX &&
           conn->own.outstanding_bytes < conn->backend->settings.window_bytes;
}

/* Operations take turns, so a long one does not hold up a short one. */
static unsigned conn_issue(struct nxl_backend_conn *conn)
{
    unsigned turns = 0;

    while (turns < TURNS_MAX && conn_has_room(conn) && !ucx_link_empty(&conn->own.issue)) {
        struct ucx_op *op = UCX_OF(conn->own.issue.next, struct ucx_op, issue);

        ucx_link_remove(&op->issue);
        if (conn->own.by_message)
            ucx_message_issue(op);
        else
            ucx_rma_issue(op);
        turns++;
        if (op->status != UCS_OK || op->all_issued)
            ucx_op_touch(op);
        else
            ucx_link_append(&conn->own.issue, &op->issue);
    }
    return turns;
}

unsigned ucx_ops_issue(struct nxl_backend *backend)
{
    struct ucx_link *link;
    unsigned turns = 0;

    for (link = backend->own.conns.next; link != &backend->own.conns; link = link->next)
        turns += conn_issue(UCX_OF(link, struct nxl_backend_conn, link));
    return turns;
}

static struct ucx_op *op_find(struct nxl_backend *backend, uint64_t op_id)
{
    struct ucx_link *c, *o;

    for (c = backend->own.conns.next; c != &backend->own.conns; c = c->next) {
        struct nxl_backend_conn *conn = UCX_OF(c, struct nxl_backend_conn, link);

        for (o = conn->own.ops.next; o != &conn->own.ops; o = o->next)
            if (UCX_OF(o, struct ucx_op, link)->id == op_id)
                return UCX_OF(o, struct ucx_op, link);
    }
    return NULL;
}

void ucx_op_cancel(struct nxl_backend *backend, uint64_t op_id)
{
    struct ucx_op *op = op_find(backend, op_id);

    if (op != NULL && !op->ended)
        ucx_op_end(op, NXL_CANCELED, UCS_OK, "cancelled on request");
}

/* Returns the time of op's next limit; op may be gone. */
static uint64_t op_deadline(struct ucx_op *op, uint64_t now_ns, int *stuck)
{
    uint64_t due = op->ended ? op->drain_ns : op->deadline_ns;
    char text[160];

    if (due == 0)
        return UINT64_MAX;
    if (now_ns < due)
        return due;
    if (op->ended) {
        *stuck = 1;
        op->drain_ns = 0; /* now it is the closing endpoint's turn */
        return UINT64_MAX;
    }
    (void)snprintf(text, sizeof(text),
                   "the deadline passed with %" PRIu64 " of %" PRIu64 " bytes moved for sure",
                   op->sure, op->total);
    due = now_ns + (uint64_t)op->conn->backend->settings.drain_ns;
    ucx_op_end(op, NXL_TIMEOUT, UCS_OK, text);
    return due;
}

/* Time of the limit of a connection that is not wired up yet, or closed and not drained. */
static uint64_t conn_deadline(struct nxl_backend_conn *conn, uint64_t now_ns)
{
    if (conn->own.state == UCX_CONN_CLOSED && conn->own.outstanding > 0) {
        if (now_ns < conn->own.abandon_ns)
            return conn->own.abandon_ns;
        /* Puts and gets may still touch memory if UCX comes back to them: not while it is
         * progressed. */
        if (conn->own.by_message || conn->backend->own.stop) {
            ucx_requests_abandon(conn);
            return UINT64_MAX;
        }
        conn->own.abandon_ns = now_ns + UCX_ABANDON_NS;
        return conn->own.abandon_ns;
    }
    if (conn->own.wired || conn->own.state != UCX_CONN_OPEN)
        return UINT64_MAX;
    if (now_ns < conn->own.wire_due_ns)
        return conn->own.wire_due_ns;
    ucx_conn_fail(conn, UCS_ERR_TIMED_OUT, "the peer did not answer the connection");
    return UINT64_MAX;
}

static uint64_t conn_ops_deadline(struct nxl_backend_conn *conn, uint64_t now_ns)
{
    uint64_t next_due = UINT64_MAX;
    struct ucx_link *link, *next;
    int stuck = 0;

    for (link = conn->own.ops.next; link != &conn->own.ops; link = next) {
        uint64_t due;

        next = link->next;
        due = op_deadline(UCX_OF(link, struct ucx_op, link), now_ns, &stuck);
        if (due < next_due)
            next_due = due;
    }
    if (stuck) /* after the loop: it ends every operation of the connection */
        ucx_conn_fail(conn, UCS_ERR_TIMED_OUT, "an ended operation did not become quiet in time");
    return next_due;
}

void ucx_ops_deadlines(struct nxl_backend *backend, uint64_t now_ns)
{
    uint64_t next_due = UINT64_MAX;
    struct ucx_link *link;

    backend->own.next_deadline_ns = UINT64_MAX;
    for (link = backend->own.conns.next; link != &backend->own.conns; link = link->next) {
        struct nxl_backend_conn *conn = UCX_OF(link, struct nxl_backend_conn, link);
        uint64_t wire_due = conn_deadline(conn, now_ns);
        uint64_t ops_due = conn_ops_deadline(conn, now_ns);

        if (wire_due < next_due)
            next_due = wire_due;
        if (ops_due < next_due)
            next_due = ops_due;
    }
    /* What ended just now may have set an earlier one. */
    if (next_due < backend->own.next_deadline_ns)
        backend->own.next_deadline_ns = next_due;
}
