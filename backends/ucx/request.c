/* request.c - records of what is outstanding in UCX, taken from a free list. Progress thread. */
#include "ucx.h"

#include "status.h"

#include <stdlib.h>

static struct ucx_request *request_new(struct nxl_backend *backend)
{
    uint32_t index = backend->own.requests_count;
    struct ucx_request *request;

    if (index == backend->own.requests_room) {
        uint32_t room = index ? index * 2 : 64;
        struct ucx_request **table =
            realloc(backend->own.requests, room * sizeof(struct ucx_request *));

        if (table == NULL)
            return NULL;
        backend->own.requests = table;
        backend->own.requests_room = room;
    }
    request = calloc(1, sizeof(*request));
    if (request == NULL)
        return NULL;
    request->backend = backend;
    request->index = index;
    backend->own.requests[backend->own.requests_count++] = request;
    return request;
}

/* op may be NULL. NULL: no memory; the operation has got the status. */
struct ucx_request *ucx_request_take(struct nxl_backend_conn *conn, struct ucx_op *op,
                                     enum ucx_request_kind kind)
{
    struct nxl_backend *backend = conn->backend;
    struct ucx_request *request = backend->own.free_requests;

    if (request != NULL)
        backend->own.free_requests = request->next;
    else
        request = request_new(backend);
    if (request == NULL && op == NULL)
        return NULL;
    if (request == NULL) {
        op->status = UCS_ERR_NO_MEMORY;
        ucx_op_touch(op);
        return NULL;
    }
    request->op = op;
    request->conn = conn;
    request->kind = kind;
    request->busy = 1;
    request->orphan = 0;
    request->sent = request->answered = 0;
    request->status = UCS_OK;
    request->len = 0;
    request->count = 0;
    return request;
}

void ucx_request_return(struct ucx_request *request)
{
    request->busy = 0;
    request->next = request->backend->own.free_requests;
    request->backend->own.free_requests = request;
}

static void request_give(struct ucx_request *request)
{
    struct ucx_op *op = request->op;

    request->conn->own.outstanding--;
    request->conn->own.outstanding_bytes -= request->len;
    request->generation++; /* a late answer finds nobody */
    if (!request->orphan)
        ucx_request_return(request);
    if (request->kind == UCX_REQUEST_PING && request->answered)
        request->conn->own.wired = 1;
    if (request->conn->own.gone)
        request->backend->own.conn_failed =
            1; /* maybe the last one that the connection waited for */
    if (op == NULL)
        return;
    op->in_flight--;
    if (request->status == UCS_OK && (request->answered || op->kind == NXL_READ))
        op->sure += request->len;
    if (request->status != UCS_OK && op->status == UCS_OK)
        op->status = request->status;
    if (request->kind == UCX_REQUEST_FLUSH)
        op->flushed = 1;
    ucx_op_touch(op);
}

/* True for a message of ours, which the far agent answers. */
int ucx_request_answers(const struct ucx_request *request)
{
    return request->kind == UCX_REQUEST_WRITE || request->kind == UCX_REQUEST_READ ||
           request->kind == UCX_REQUEST_PING;
}

/* Gives the record back once UCX and, for a message, the far side are through with it. */
void ucx_request_check(struct ucx_request *request)
{
    if (!request->sent)
        return;
    if (ucx_request_answers(request) && !request->answered && request->status == UCS_OK &&
        request->conn->own.state != UCX_CONN_CLOSED)
        return;
    request_give(request);
}

void ucx_request_on_sent(void *handle, ucs_status_t status, void *user_data)
{
    struct ucx_request *request = user_data;
    struct nxl_backend_conn *conn;

    request->backend->lib.ucp_request_free(handle);
    if (request->orphan) { /* it came after all; its connection may be gone */
        ucx_request_return(request);
        return;
    }
    conn = request->conn;
    request->sent = 1;
    if (status != UCS_OK && request->status == UCS_OK)
        request->status = status;
    if (ucx_status_fatal(status) && conn->own.error == UCS_OK) {
        conn->own.error = status; /* no further post on it, even before the error callback runs */
        conn->backend->own.conn_failed = 1;
    }
    ucx_request_check(request);
}

/* Counts a post that was just made. 0: UCX refused it. */
int ucx_request_posted(struct ucx_request *request, ucs_status_ptr_t posted)
{
    struct ucx_op *op = request->op;
    struct nxl_backend_conn *conn = request->conn;
    int refused = UCS_PTR_IS_ERR(posted);

    if (op != NULL) {
        op->in_flight++;
        op->issued += request->len;
    }
    conn->own.outstanding++;
    conn->own.outstanding_bytes += request->len;
    if (UCS_PTR_IS_PTR(posted))
        return 1;
    request->sent = 1;
    if (refused) {
        request->status = UCS_PTR_RAW_STATUS(posted);
        if (ucx_status_fatal(request->status) && conn->own.error == UCS_OK) {
            conn->own.error = request->status;
            conn->backend->own.conn_failed = 1;
        }
    }
    ucx_request_check(request);
    return !refused;
}

/* The endpoint is closed: messages that wait for an answer only are over. */
void ucx_requests_drop(struct nxl_backend_conn *conn)
{
    struct nxl_backend *backend = conn->backend;

    for (uint32_t i = 0; i < backend->own.requests_count; i++) {
        struct ucx_request *request = backend->own.requests[i];

        if (!request->busy || request->conn != conn)
            continue;
        if (request->status == UCS_OK)
            request->status = UCS_ERR_CANCELED;
        ucx_request_check(request);
    }
}

/* UCX 1.13 leaves requests of a shared memory endpoint unfinished for ever when its peer was
 * killed, also after a forced close (seen with 25 at once). A closed endpoint has no lanes to send
 * by, and an answer finds no record of ours any more, so nothing of them moves memory: the
 * operations are quiet. The records stay allocated, because UCX may still complete them. */
void ucx_requests_abandon(struct nxl_backend_conn *conn)
{
    struct nxl_backend *backend = conn->backend;
    unsigned count = 0;

    for (uint32_t i = 0; i < backend->own.requests_count; i++) {
        struct ucx_request *request = backend->own.requests[i];

        if (!request->busy || request->orphan || request->conn != conn)
            continue;
        if (request->status == UCS_OK)
            request->status = UCS_ERR_CANCELED;
        request->orphan = 1;
        request_give(request);
        request->op = NULL; /* their addresses may be used again */
        request->conn = NULL;
        count++;
    }
    if (count > 0)
        ucx_log(backend, 2, "ucx kept %u requests of a closed endpoint, given up device=%s", count,
                conn->own.device);
}

void ucx_requests_free(struct nxl_backend *backend)
{
    for (uint32_t i = 0; i < backend->own.requests_count; i++)
        free(backend->own.requests[i]);
    free(backend->own.requests);
}
