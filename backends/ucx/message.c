/* message.c - an operation's turn by messages between the agents: over TCP, UCX's put and get are
 * emulated and several times slower than its active messages. Each message carries the keys, ranges
 * and (WRITE) bytes of up to 32 rows and is answered once the far agent has copied. Nothing here
 * relies on the order of messages. Progress thread. */
#include "ucx.h"

#include <string.h>

static void head_fill(struct ucx_request *request, enum ucx_message_kind kind)
{
    request->message.head = (struct ucx_message){
        .magic = UCX_MESSAGE_MAGIC,
        .version = UCX_MESSAGE_VERSION,
        .kind = (uint8_t)kind,
        .count = (uint16_t)request->count,
        .token = request->conn->own.token,
        .request = (uint64_t)request->generation << 32 | request->index,
    };
}

/* Fills request with the next rows of op. Small rows share a message. */
static void message_fill(struct ucx_request *request, struct ucx_op *op)
{
    struct ucx_slice slice;

    while (request->count < UCX_SEGMENTS_MAX && request->len < UCX_MESSAGE_MAX &&
           ucx_op_slice(op, UCX_MESSAGE_MAX - request->len, &slice)) {
        request->message.segments[request->count] = (struct ucx_segment){
            .nonce = slice.remote->nonce,
            .offset = slice.offset,
            .slot = slice.remote->slot,
            .len = (uint32_t)slice.len,
        };
        request->iov[request->count++] = (ucp_dt_iov_t){.buffer = slice.local, .length = slice.len};
        request->len += slice.len;
    }
    head_fill(request, op->kind == NXL_WRITE ? UCX_MESSAGE_WRITE : UCX_MESSAGE_READ);
}

static ucs_status_ptr_t message_post(struct ucx_request *request)
{
    struct nxl_backend_conn *conn = request->conn;
    size_t header = sizeof(request->message.head) + request->count * sizeof(struct ucx_segment);
    const void *buffer = NULL;
    size_t count = 0;
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_DATATYPE,
        .flags = UCP_AM_SEND_FLAG_REPLY | UCP_AM_SEND_FLAG_EAGER,
        .cb = {.send = ucx_request_on_sent},
        .datatype = ucp_dt_make_contig(1),
        .user_data = request,
    };

    if (request->kind == UCX_REQUEST_WRITE) {
        buffer = request->iov[0].buffer;
        count = request->iov[0].length;
        if (request->count > 1) {
            param.datatype = UCP_DATATYPE_IOV;
            buffer = request->iov;
            count = request->count;
        }
    }
    return conn->backend->lib.ucp_am_send_nbx(conn->own.ep, UCX_MESSAGE_ID, &request->message,
                                              header, buffer, count, &param);
}

void ucx_message_issue(struct ucx_op *op)
{
    struct ucx_request *request = ucx_request_take(
        op->conn, op, op->kind == NXL_WRITE ? UCX_REQUEST_WRITE : UCX_REQUEST_READ);

    if (request == NULL)
        return;
    message_fill(request, op);
    if (request->count == 0)
        ucx_request_return(request);
    else if (!ucx_request_posted(request, message_post(request)))
        return;
    op->all_issued = op->issued == op->total;
}

/* A write of nothing: its answer says that the far agent is there and works. */
void ucx_message_ping(struct nxl_backend_conn *conn)
{
    struct ucx_request *request = ucx_request_take(conn, NULL, UCX_REQUEST_PING);

    if (request == NULL)
        return; /* no memory: the connect timeout ends the connection */
    head_fill(request, UCX_MESSAGE_WRITE);
    (void)ucx_request_posted(request, message_post(request));
}

/* Only an answer to a message that is out, to this life of its record, from who was asked. */
static struct ucx_request *request_find(struct nxl_backend *backend, const struct ucx_message *head)
{
    uint32_t index = (uint32_t)head->request;
    struct ucx_request *request;

    if (index >= backend->own.requests_count)
        return NULL;
    request = backend->own.requests[index];
    if (!request->busy || request->answered ||
        request->generation != (uint32_t)(head->request >> 32) ||
        request->conn->own.token != head->token)
        return NULL;
    if ((request->kind == UCX_REQUEST_READ) != (head->kind == UCX_MESSAGE_DATA) ||
        !ucx_request_answers(request))
        return NULL;
    return request;
}

static void answer_take(struct nxl_backend *backend, const struct ucx_message *head,
                        const uint8_t *data, size_t length)
{
    struct ucx_request *request = request_find(backend, head);
    int32_t code = head->code;

    if (request == NULL)
        return;
    if (code == NXL_OK && head->kind == UCX_MESSAGE_DATA && length != request->len)
        code = NXL_MISMATCH;
    if (code != NXL_OK) {
        request->status = UCS_ERR_IO_ERROR;
        if (request->op != NULL && request->op->far_code == NXL_OK)
            request->op->far_code = code;
    } else if (head->kind == UCX_MESSAGE_DATA && request->op != NULL && !request->op->ended) {
        for (uint32_t i = 0; i < request->count; i++) {
            memcpy(request->iov[i].buffer, data, request->iov[i].length);
            data += request->iov[i].length;
        }
    }
    request->answered = 1;
    ucx_request_check(request);
}

/* From inside ucp_worker_progress. What is malformed is dropped: its sender is broken or hostile
 * and has its own deadline. */
ucs_status_t ucx_message_on_arrival(void *arg, const void *header, size_t header_length, void *data,
                                    size_t length, const ucp_am_recv_param_t *param)
{
    struct nxl_backend *backend = arg;
    struct ucx_segment segments[UCX_SEGMENTS_MAX];
    struct ucx_message head;

    if (header_length < sizeof(head))
        return UCS_OK;
    memcpy(&head, header, sizeof(head));
    if (head.magic != UCX_MESSAGE_MAGIC || head.version != UCX_MESSAGE_VERSION ||
        head.count > UCX_SEGMENTS_MAX ||
        header_length != sizeof(head) + head.count * sizeof(segments[0]) ||
        (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0)
        return UCS_OK;
    memcpy(segments, (const uint8_t *)header + sizeof(head), head.count * sizeof(segments[0]));
    switch (head.kind) {
    case UCX_MESSAGE_WRITE:
    case UCX_MESSAGE_READ:
        if ((param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0)
            ucx_reply_serve(backend, &head, segments, data, length, param->reply_ep);
        break;
    case UCX_MESSAGE_DONE:
    case UCX_MESSAGE_DATA:
        answer_take(backend, &head, data, length);
        break;
    default:
        break;
    }
    return UCS_OK;
}
