/* hand.c - the hand backend, see rig.h. Loop thread only. */
#include "rig.h"

#include <stdlib.h>
#include <string.h>

struct nxl_backend {
    struct hand hand;
    struct nxl_backend_conn *conns;
};
struct nxl_backend_mem {
    unsigned char *base;
    uint64_t size;
};
struct nxl_backend_remote {
    struct nxl_backend_mem *mem;
    struct nxl_backend_remote *next;
};
struct nxl_backend_conn {
    struct nxl_backend_remote *remotes;
    struct nxl_backend_conn *next;
};

static struct nxl_backend *opened[RIG_ENGINES + 1]; /* by time */

static enum nxl_code hand_open(struct nxl_host *host, const struct nxl_config *config,
                               struct nxl_backend **ret, struct nxl_err *err)
{
    struct nxl_backend *backend = nxl_new0(sizeof(*backend));
    uint32_t at = 0;

    backend->hand.host = host;
    while (opened[at] != NULL)
        at++;
    assert_true(at < NXL_COUNT_OF(opened));
    opened[at] = backend;
    *ret = backend;
    return NXL_OK;
}

struct hand *hand_of(struct rig *rig, const struct engine *engine)
{
    for (uint32_t i = 0; i < rig->count; i++)
        if (&rig->engines[i] == engine)
            return opened[i] != NULL ? &opened[i]->hand : NULL;
    fail_msg("no such engine");
    return NULL;
}

void hand_end_all(struct hand *hand)
{
    for (uint32_t i = 0; i < hand->submits; i++)
        if (hand->ops[i] != NULL)
            hand_end(hand, i, NXL_CANCELED, 1);
}

static void hand_close(struct nxl_backend *backend)
{
    hand_end_all(&backend->hand);
    for (uint32_t i = 0; i < NXL_COUNT_OF(opened); i++)
        if (opened[i] == backend)
            opened[i] = NULL;
    /* The engine gave back all that it took. */
    assert_int_equal(backend->hand.mems, 0);
    assert_int_equal(backend->hand.conns, 0);
    assert_int_equal(backend->hand.remotes, 0);
    free(backend);
}

static void hand_query(struct nxl_backend *backend, struct nxl_backend_caps *ret)
{
    ret->flags = NXL_CAP_LOCAL | NXL_CAP_REMOTE | NXL_CAP_CANCEL | NXL_CAP_STRIDED;
    ret->mem_kinds = 1u << NXL_MEM_DRAM;
    ret->pieces_max = 4;
    ret->path = NXL_PATH_RDMA;
    ret->honesty = NXL_HONESTY_STUB;
}

static enum nxl_code hand_register(struct nxl_backend *backend, const struct nxl_memory *memory,
                                   struct nxl_backend_mem **ret, struct nxl_err *err)
{
    struct nxl_backend_mem *mem;

    if (backend->hand.register_code != NXL_OK)
        return nxl_err_set(err, backend->hand.register_code, 0, "the hand takes no memory");
    mem = nxl_new0(sizeof(*mem));
    mem->base = memory->base;
    mem->size = memory->size;
    backend->hand.mems++;
    *ret = mem;
    return NXL_OK;
}

static enum nxl_code hand_deregister(struct nxl_backend *backend, struct nxl_backend_mem *mem,
                                     struct nxl_err *err)
{
    backend->hand.mems--;
    free(mem);
    if (backend->hand.deregister_code != NXL_OK)
        return nxl_err_set(err, backend->hand.deregister_code, 0, "the hand does not let go");
    return NXL_OK;
}

static enum nxl_code hand_submit(struct nxl_backend *backend, const struct nxl_op *op,
                                 struct nxl_err *err)
{
    struct hand *hand = &backend->hand;

    if (hand->submit_code == NXL_AGAIN)
        return NXL_AGAIN;
    if (hand->submit_code != NXL_OK)
        return nxl_err_set(err, hand->submit_code, 0, "the hand refuses");
    assert_true(hand->submits < NXL_COUNT_OF(hand->ops));
    hand->ids[hand->submits] = op->id;
    hand->ops[hand->submits++] = op;
    return NXL_OK;
}

static void hand_cancel(struct nxl_backend *backend, uint64_t op_id)
{
    backend->hand.cancels++;
}

static void piece_move(const struct nxl_op *op, const struct nxl_piece *piece)
{
    const struct nxl_backend_mem *near = op->locals[piece->local];
    const struct nxl_backend_mem *far =
        op->conn != NULL ? op->remotes[piece->remote]->mem : op->peers[piece->remote];

    for (uint64_t k = 0; k < piece->count; k++) {
        uint64_t near_at = piece->local_offset + k * piece->local_stride;
        uint64_t far_at = piece->remote_offset + k * piece->remote_stride;

        assert_true(near_at + piece->len <= near->size);
        assert_true(far_at + piece->len <= far->size);
        if (op->kind == NXL_WRITE)
            memmove(far->base + far_at, near->base + near_at, piece->len);
        else
            memmove(near->base + near_at, far->base + far_at, piece->len);
    }
}

/* Said again, the host must not pass it on: the operation is not looked at then. */
void hand_end(struct hand *hand, uint32_t index, int code, int quiet)
{
    const struct nxl_op *op = hand->ops[index];
    struct nxl_outcome outcome = {.size = sizeof(outcome),
                                  .op_id = hand->ids[index],
                                  .code = code,
                                  .quiesced = (uint32_t)quiet,
                                  .device = "hand0",
                                  .path = NXL_PATH_RDMA};

    assert_true(index < hand->submits);
    for (uint32_t i = 0; op != NULL && code == NXL_OK && i < op->piece_count; i++)
        piece_move(op, &op->pieces[i]);
    if (op != NULL && code == NXL_OK)
        outcome.bytes = op->bytes;
    hand->ops[index] = NULL;
    hand->host->complete(hand->host, &outcome);
}

unsigned char *hand_far_memory(struct hand *hand, uint32_t index)
{
    const struct nxl_op *op = hand->ops[index];

    return op->conn != NULL ? op->remotes[0]->mem->base : op->peers[0]->base;
}

void hand_quiet(struct hand *hand, uint32_t index)
{
    hand->host->quiesced(hand->host, hand->ids[index]);
}

static enum nxl_code hand_address(struct nxl_backend *backend, struct nxl_view *ret,
                                  struct nxl_err *err)
{
    *ret = (struct nxl_view){"hand", 4};
    return NXL_OK;
}

static enum nxl_code hand_connect(struct nxl_backend *backend, struct nxl_view address,
                                  struct nxl_backend_conn **ret, struct nxl_err *err)
{
    struct nxl_backend_conn *conn = nxl_new0(sizeof(*conn));

    conn->next = backend->conns;
    backend->conns = conn;
    backend->hand.conns++;
    backend->hand.last_conn = conn;
    *ret = conn;
    return NXL_OK;
}

static void hand_disconnect(struct nxl_backend *backend, struct nxl_backend_conn *conn)
{
    struct nxl_backend_conn **at = &backend->conns;

    for (uint32_t i = 0; i < backend->hand.submits; i++)
        if (backend->hand.ops[i] != NULL && backend->hand.ops[i]->conn == conn)
            hand_end(&backend->hand, i, NXL_REMOTE_DISCONNECT, 1);
    while (*at != conn)
        at = &(*at)->next;
    *at = conn->next;
    while (conn->remotes != NULL) {
        struct nxl_backend_remote *remote = conn->remotes;

        conn->remotes = remote->next;
        backend->hand.remotes--;
        free(remote);
    }
    backend->hand.conns--;
    backend->hand.disconnects++;
    free(conn);
}

static enum nxl_code hand_export(struct nxl_backend *backend, struct nxl_backend_mem *mem,
                                 void *buf, size_t *ret_size, struct nxl_err *err)
{
    memcpy(buf, &mem, sizeof(mem));
    *ret_size = sizeof(mem);
    return NXL_OK;
}

static enum nxl_code hand_import(struct nxl_backend *backend, struct nxl_backend_conn *conn,
                                 struct nxl_view key, struct nxl_backend_remote **ret,
                                 struct nxl_err *err)
{
    struct nxl_backend_remote *remote;

    if (backend->hand.import_code != NXL_OK || key.size != sizeof(remote->mem))
        return nxl_err_set(err, NXL_MISMATCH, 0, "the hand cannot read this key");
    remote = nxl_new0(sizeof(*remote));
    memcpy(&remote->mem, key.data, sizeof(remote->mem));
    remote->next = conn->remotes;
    conn->remotes = remote;
    backend->hand.remotes++;
    *ret = remote;
    return NXL_OK;
}

static void hand_forget(struct nxl_backend *backend, struct nxl_backend_remote *remote)
{
    for (struct nxl_backend_conn *conn = backend->conns; conn != NULL; conn = conn->next) {
        for (struct nxl_backend_remote **at = &conn->remotes; *at != NULL; at = &(*at)->next) {
            if (*at != remote)
                continue;
            *at = remote->next;
            backend->hand.remotes--;
            free(remote);
            return;
        }
    }
    fail_msg("forgotten twice, or after its connection");
}

const struct nxl_backend_ops hand_ops = {
    .size = sizeof(struct nxl_backend_ops),
    .abi_major = NXL_BACKEND_ABI_MAJOR,
    .abi_minor = NXL_BACKEND_ABI_MINOR,
    .name = "hand",
    .about = "ends what the test ends",
    .open = hand_open,
    .close = hand_close,
    .query = hand_query,
    .register_mem = hand_register,
    .deregister_mem = hand_deregister,
    .submit = hand_submit,
    .cancel = hand_cancel,
    .address = hand_address,
    .connect = hand_connect,
    .disconnect = hand_disconnect,
    .export_key = hand_export,
    .import_key = hand_import,
    .forget = hand_forget,
};
