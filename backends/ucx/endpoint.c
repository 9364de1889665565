/* endpoint.c - a connection's life: address and connect on the loop thread, the endpoint itself,
 * its failure and its closing on the progress thread. UCX's error callback only leaves a mark. */
#include "ucx.h"

#include "status.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define ADDRESS_MAGIC 0x414c584eu
#define ADDRESS_VERSION 1u
#define WIRE_GRACE_NS UINT64_C(500000000)

/* What others need to reach us: this head, then UCX's worker address. Little endian. */
struct address_head {
    uint32_t magic;
    uint16_t version, size;
    uint64_t checksum;
};
_Static_assert(sizeof(struct address_head) == 16, "no hidden padding in an address");

enum nxl_code ucx_address_pack(struct nxl_backend *backend, const void *address, size_t size,
                               struct nxl_err *err)
{
    struct address_head head = {
        .magic = ADDRESS_MAGIC, .version = ADDRESS_VERSION, .size = (uint16_t)size};

    if (sizeof(head) + size > NXL_BACKEND_ADDRESS_MAX)
        return nxl_err_set(err, NXL_LIMIT, 0,
                           "UCX's address has %zu bytes, at most %zu fit; name fewer devices in "
                           "backends.ucx.device_list",
                           size, NXL_BACKEND_ADDRESS_MAX - sizeof(head));
    backend->address = malloc(sizeof(head) + size);
    if (backend->address == NULL)
        return nxl_err_set(err, NXL_LIMIT, 0, "no memory for the worker's address");
    head.checksum = ucx_checksum(address, size, 0);
    memcpy(backend->address, &head, sizeof(head));
    memcpy(backend->address + sizeof(head), address, size);
    backend->address_size = sizeof(head) + size;
    return NXL_OK;
}

enum nxl_code ucx_address(struct nxl_backend *backend, struct nxl_view *ret, struct nxl_err *err)
{
    (void)err;
    *ret = (struct nxl_view){backend->address, backend->address_size};
    return NXL_OK;
}

static enum nxl_code address_check(struct nxl_view address, struct nxl_view *ret_inner,
                                   struct nxl_err *err)
{
    struct address_head head;
    const uint8_t *inner = (const uint8_t *)address.data + sizeof(head);

    if (address.size < sizeof(head))
        return nxl_err_set(err, NXL_MISMATCH, 0,
                           "a ucx address of %zu bytes is shorter than its head of %zu",
                           address.size, sizeof(head));
    memcpy(&head, address.data, sizeof(head));
    if (head.magic != ADDRESS_MAGIC)
        return nxl_err_set(err, NXL_MISMATCH, 0, "not a ucx address: magic 0x%08x", head.magic);
    if (head.version != ADDRESS_VERSION)
        return nxl_err_set(err, NXL_MISMATCH, 0, "ucx address of version %u; this agent reads %u",
                           head.version, ADDRESS_VERSION);
    if (head.size == 0 || address.size != sizeof(head) + head.size)
        return nxl_err_set(err, NXL_MISMATCH, 0, "a ucx address of %zu bytes should have %zu",
                           address.size, sizeof(head) + head.size);
    if (head.checksum != ucx_checksum(inner, head.size, 0))
        return nxl_err_set(err, NXL_MISMATCH, 0, "a ucx address is damaged: its checksum is wrong");
    *ret_inner = (struct nxl_view){inner, head.size};
    return NXL_OK;
}

enum nxl_code ucx_connect(struct nxl_backend *backend, struct nxl_view address,
                          struct nxl_backend_conn **ret, struct nxl_err *err)
{
    struct nxl_backend_conn *conn;
    struct nxl_view inner;
    enum nxl_code code = address_check(address, &inner, err);

    if (code != NXL_OK)
        return code;
    conn = calloc(1, sizeof(*conn) + inner.size);
    if (conn == NULL)
        return nxl_err_set(err, NXL_LIMIT, 0, "no memory for a connection");
    if (getrandom(&conn->own.token, sizeof(conn->own.token), 0) != sizeof(conn->own.token)) {
        free(conn);
        return nxl_err_set(err, NXL_IO, errno, "getrandom for a connection's token");
    }
    conn->backend = backend;
    (void)pthread_mutex_init(&conn->shared.told, NULL);
    conn->address_size = inner.size;
    memcpy(conn->address, inner.data, inner.size);
    ucx_link_init(&conn->link);
    ucx_link_init(&conn->own.ops);
    ucx_link_init(&conn->own.issue);
    ucx_link_init(&conn->own.remotes);
    conn->own.path = NXL_PATH_NONE;
    ucx_command_push(backend, &conn->connect, UCX_COMMAND_CONNECT);
    *ret = conn;
    return NXL_OK;
}

void ucx_disconnect(struct nxl_backend *backend, struct nxl_backend_conn *conn)
{
    (void)pthread_mutex_lock(&conn->shared.told);
    conn->shared.released = 1;
    (void)pthread_mutex_unlock(&conn->shared.told);
    ucx_command_push(backend, &conn->disconnect, UCX_COMMAND_DISCONNECT);
}

/* From inside ucp_worker_progress: only a mark, closing here would crash UCX. */
static void conn_on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    struct nxl_backend_conn *conn = arg;

    (void)ep;
    if (conn->own.error == UCS_OK)
        conn->own.error = status;
    atomic_store(&conn->shared.failed, 1);
    conn->backend->own.conn_failed = 1;
}

/* UCX has no limit of its own for wiring up: a peer behind shared memory that dies in between is
 * not reported at all, and its keep-alive starts only afterwards. So the first message asks for an
 * answer. */
static void conn_wire(struct nxl_backend_conn *conn)
{
    struct nxl_backend *backend = conn->backend;

    conn->own.wire_due_ns = ucx_now_ns() + (uint64_t)backend->settings.connect_ns;
    if (conn->own.wire_due_ns < backend->own.next_deadline_ns)
        backend->own.next_deadline_ns = conn->own.wire_due_ns;
    ucx_message_ping(conn);
}

/* Behind shared memory UCX emulates put and get, and 1.13 has been seen to write the late answer to
 * a get of a closed endpoint into memory that was given back. Our own messages check every answer.
 */
static int messages_wanted(const struct ucx_settings *settings, enum nxl_path_class path)
{
    if (path == NXL_PATH_SHARED || !settings->rma)
        return 1;
    return settings->protocol == UCX_PROTOCOL_AUTO && path == NXL_PATH_TCP;
}

void ucx_conn_open(struct nxl_backend_conn *conn)
{
    struct nxl_backend *backend = conn->backend;
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = (const ucp_address_t *)(const void *)conn->address,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = conn_on_error, .arg = conn},
    };
    ucs_status_t status;

    ucx_link_append(&backend->own.conns, &conn->link);
    status = backend->lib.ucp_ep_create(backend->own.worker, &params, &conn->own.ep);
    if (status != UCS_OK) {
        conn->own.ep = NULL;
        ucx_conn_fail(conn, status, "cannot make an endpoint");
        return;
    }
    conn->own.state = UCX_CONN_OPEN;
    ucx_lanes_read(conn);
    conn->own.by_message = messages_wanted(&backend->settings, conn->own.path);
    ucx_log(backend, 2, "ucx endpoint opened device=%s protocol=%s", conn->own.device,
            conn->own.by_message ? "message" : "rma");
    conn_wire(conn);
}

static void conn_closed(struct nxl_backend_conn *conn)
{
    struct ucx_link *link, *next;

    conn->own.state = UCX_CONN_CLOSED;
    conn->own.ep = NULL;
    ucx_requests_drop(conn); /* nobody will answer any more */
    conn->own.abandon_ns = ucx_now_ns() + UCX_ABANDON_NS;
    if (conn->own.outstanding > 0 && conn->own.abandon_ns < conn->backend->own.next_deadline_ns)
        conn->backend->own.next_deadline_ns = conn->own.abandon_ns;
    for (link = conn->own.ops.next; link != &conn->own.ops; link = next) {
        next = link->next;
        ucx_op_touch(UCX_OF(link, struct ucx_op, link));
    }
    conn->backend->own.conn_failed = 1;
}

static void conn_on_closed(void *request, ucs_status_t status, void *user_data)
{
    struct nxl_backend_conn *conn = user_data;

    (void)status; /* whatever it says, the endpoint is gone */
    conn->backend->lib.ucp_request_free(request);
    conn_closed(conn);
}

static void conn_close(struct nxl_backend_conn *conn)
{
    ucp_request_param_t param = {
        .op_attr_mask =
            UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .flags = UCP_EP_CLOSE_FLAG_FORCE,
        .cb = {.send = conn_on_closed},
        .user_data = conn,
    };
    ucs_status_ptr_t closing;

    conn->own.state = UCX_CONN_CLOSING;
    atomic_store(&conn->shared.failed, 1);
    if (conn->own.ep == NULL) {
        conn_closed(conn);
        return;
    }
    closing = conn->backend->lib.ucp_ep_close_nbx(conn->own.ep, &param);
    if (!UCS_PTR_IS_PTR(closing))
        conn_closed(conn);
}

static void ops_end(struct nxl_backend_conn *conn, enum nxl_code code, ucs_status_t status,
                    const char *why)
{
    struct ucx_link *link, *next;

    for (link = conn->own.ops.next; link != &conn->own.ops; link = next) {
        struct ucx_op *op = UCX_OF(link, struct ucx_op, link);

        next = link->next;
        if (!op->ended)
            ucx_op_end(op, code, status, why);
    }
}

/* Every operation ends at once; its memory is quiet when the endpoint is closed and drained. */
void ucx_conn_fail(struct nxl_backend_conn *conn, ucs_status_t status, const char *why)
{
    struct nxl_backend *backend = conn->backend;
    enum nxl_code code = status == UCS_ERR_UNREACHABLE ? NXL_UNREACHABLE : NXL_REMOTE_DISCONNECT;
    char text[160];

    if (conn->own.state == UCX_CONN_CLOSING || conn->own.state == UCX_CONN_CLOSED)
        return;
    (void)snprintf(text, sizeof(text), "%s: %s", why, backend->lib.ucs_status_string(status));
    atomic_store(&conn->shared.failed, 1);
    ops_end(conn, code, status, text);
    conn_close(conn);
    (void)pthread_mutex_lock(&conn->shared.told);
    if (!conn->shared.released)
        backend->host->disconnected(backend->host, conn, text);
    (void)pthread_mutex_unlock(&conn->shared.told);
}

/* The DISCONNECT command, and shutdown. Forced: a friendly close waits for a peer that may be dead.
 * But UCX 1.13 aborts the far process if its half of wiring up meets a closed connection, so one
 * that is still wiring up gets a moment to finish. */
void ucx_conn_release(struct nxl_backend_conn *conn)
{
    struct nxl_backend *backend = conn->backend;
    uint64_t due_ns = ucx_now_ns() + WIRE_GRACE_NS;

    conn->own.gone = 1;
    backend->own.conn_failed = 1; /* ucx_conns_check() closes it */
    if (conn->own.state != UCX_CONN_OPEN)
        return;
    ops_end(conn, NXL_REMOTE_DISCONNECT, UCS_ERR_CANCELED, "the agent disconnected from the peer");
    if (due_ns < conn->own.wire_due_ns)
        conn->own.wire_due_ns = due_ns;
    if (conn->own.wire_due_ns < backend->own.next_deadline_ns)
        backend->own.next_deadline_ns = conn->own.wire_due_ns;
}

static void conn_free(struct nxl_backend_conn *conn)
{
    while (!ucx_link_empty(&conn->own.remotes))
        ucx_remote_free(UCX_OF(conn->own.remotes.next, struct nxl_backend_remote, link));
    ucx_link_remove(&conn->link);
    (void)pthread_mutex_destroy(&conn->shared.told);
    free(conn);
}

/* Outside of UCX's callbacks: acts upon the marks that they left. */
void ucx_conns_check(struct nxl_backend *backend)
{
    struct ucx_link *link, *next;

    backend->own.conn_failed = 0;
    for (link = backend->own.conns.next; link != &backend->own.conns; link = next) {
        struct nxl_backend_conn *conn = UCX_OF(link, struct nxl_backend_conn, link);

        next = link->next;
        if (conn->own.error != UCS_OK && conn->own.state == UCX_CONN_OPEN)
            ucx_conn_fail(conn, conn->own.error, "the endpoint failed");
        if (conn->own.gone && conn->own.state == UCX_CONN_OPEN && conn->own.wired)
            conn_close(conn);
        if (conn->own.gone && conn->own.state == UCX_CONN_CLOSED &&
            ucx_link_empty(&conn->own.ops) && conn->own.outstanding == 0)
            conn_free(conn);
    }
}
