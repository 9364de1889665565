/* rma.c - an operation's turn by UCX's own put and get. Progress thread. */
#include "ucx.h"

static ucs_status_ptr_t slice_post(struct ucx_request *request, const struct ucx_slice *slice)
{
    struct ucx_op *op = request->op;
    struct nxl_backend_conn *conn = op->conn;
    const struct ucx_library *lib = &conn->backend->lib;
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_MEMH | UCP_OP_ATTR_FLAG_MULTI_SEND,
        .cb = {.send = ucx_request_on_sent},
        .user_data = request,
        .memh = slice->mem->memh,
    };
    uint64_t remote = slice->remote->base + slice->offset;

    if (op->kind == NXL_WRITE)
        return lib->ucp_put_nbx(conn->own.ep, slice->local, slice->len, remote, slice->remote->rkey,
                                &param);
    return lib->ucp_get_nbx(conn->own.ep, slice->local, slice->len, remote, slice->remote->rkey,
                            &param);
}

void ucx_rma_issue(struct ucx_op *op)
{
    struct nxl_backend_conn *conn = op->conn;
    const struct ucx_settings *settings = &conn->backend->settings;
    uint64_t bytes = 0;

    for (uint32_t rows = 0; rows < UCX_TURN_ROWS && bytes < UCX_TURN_BYTES; rows++) {
        struct ucx_request *request;
        struct ucx_slice slice;

        if (conn->own.outstanding >= UCX_REQUESTS_MAX ||
            conn->own.outstanding_bytes >= settings->window_bytes || conn->own.error != UCS_OK)
            return;
        request = ucx_request_take(op->conn, op, UCX_REQUEST_RMA);
        if (request == NULL)
            return;
        if (!ucx_op_slice(op, settings->chunk_bytes, &slice)) {
            ucx_request_return(request);
            break;
        }
        request->len = slice.len;
        bytes += slice.len;
        if (!ucx_request_posted(request, slice_post(request, &slice)))
            return;
    }
    op->all_issued = op->cursor.piece == op->op->piece_count || op->issued == op->total;
}

/* After it, what was put before is in the target's memory. */
int ucx_rma_flush(struct ucx_op *op)
{
    struct ucx_request *request = ucx_request_take(op->conn, op, UCX_REQUEST_FLUSH);
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .cb = {.send = ucx_request_on_sent},
        .user_data = request,
    };

    if (request == NULL)
        return 0;
    return ucx_request_posted(request,
                              op->conn->backend->lib.ucp_ep_flush_nbx(op->conn->own.ep, &param));
}
