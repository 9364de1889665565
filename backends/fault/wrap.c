/* wrap.c - memory, connections and keys, handed through to the wrapped backend. Loop thread. */
#include "fault.h"

#include <stdlib.h>

void fault_query(struct nxl_backend *backend, struct nxl_backend_caps *ret)
{
    uint32_t size = ret->size;

    *ret = backend->caps;
    ret->size = size;
    ret->flags |= NXL_CAP_CANCEL; /* what it holds back itself can always be ended */
    ret->honesty = NXL_HONESTY_STUB;
}

enum nxl_code fault_register(struct nxl_backend *backend, const struct nxl_memory *memory,
                             struct nxl_backend_mem **ret, struct nxl_err *err)
{
    struct nxl_backend_mem *mem = calloc(1, sizeof(*mem));
    enum nxl_code code;

    if (mem == NULL)
        return nxl_err_set(err, NXL_LIMIT, 0, "no memory for a region record");
    code = backend->inner_ops->register_mem(backend->inner, memory, &mem->inner, err);
    if (code != NXL_OK) {
        free(mem);
        return code;
    }
    mem->base = memory->base;
    mem->size = memory->size;
    mem->next = backend->loop.mems;
    mem->link = &backend->loop.mems;
    if (mem->next != NULL)
        mem->next->link = &mem->next;
    backend->loop.mems = mem;
    *ret = mem;
    return NXL_OK;
}

void fault_mem_free(struct nxl_backend_mem *mem)
{
    *mem->link = mem->next;
    if (mem->next != NULL)
        mem->next->link = mem->link;
    free(mem);
}

enum nxl_code fault_deregister(struct nxl_backend *backend, struct nxl_backend_mem *mem,
                               struct nxl_err *err)
{
    enum nxl_code code = backend->inner_ops->deregister_mem(backend->inner, mem->inner, err);

    if (code == NXL_OK)
        fault_mem_free(mem);
    return code;
}

enum nxl_code fault_address(struct nxl_backend *backend, struct nxl_view *ret, struct nxl_err *err)
{
    if (!NXL_BACKEND_HAS(backend->inner_ops, address))
        return nxl_err_set(err, NXL_NOT_SUPPORTED, 0, "'%s' reaches no other agent",
                           backend->inner_ops->name);
    return backend->inner_ops->address(backend->inner, ret, err);
}

enum nxl_code fault_connect(struct nxl_backend *backend, struct nxl_view address,
                            struct nxl_backend_conn **ret, struct nxl_err *err)
{
    if (!NXL_BACKEND_HAS(backend->inner_ops, connect))
        return nxl_err_set(err, NXL_NOT_SUPPORTED, 0, "'%s' reaches no other agent",
                           backend->inner_ops->name);
    return backend->inner_ops->connect(backend->inner, address, ret, err);
}

/* What is held back on conn ends here; what runs is ended by the wrapped backend. */
void fault_disconnect(struct nxl_backend *backend, struct nxl_backend_conn *conn)
{
    struct fault_op **link = &backend->locked.late_first;

    pthread_mutex_lock(&backend->locked.lock);
    while (*link != NULL) {
        struct fault_op *record = *link;

        if (record->op.conn == conn) {
            *link = record->due_next;
            fault_schedule(backend, record, FAULT_ACT_QUIET, 0);
        } else {
            link = &record->due_next;
        }
    }
    for (uint32_t i = 0; i < FAULT_BUCKETS; i++)
        for (struct fault_op *record = backend->locked.buckets[i]; record != NULL;
             record = record->bucket_next) {
            if (record->op.conn != conn)
                continue;
            record->late_open = 0;
            if (record->state == FAULT_HELD)
                fault_release(backend, record, NXL_REMOTE_DISCONNECT, "the connection was closed");
        }
    pthread_mutex_unlock(&backend->locked.lock);
    backend->inner_ops->disconnect(backend->inner, conn);
}

enum nxl_code fault_export(struct nxl_backend *backend, struct nxl_backend_mem *mem, void *buf,
                           size_t *ret_size, struct nxl_err *err)
{
    if (!NXL_BACKEND_HAS(backend->inner_ops, export_key))
        return nxl_err_set(err, NXL_NOT_SUPPORTED, 0, "'%s' has no region keys",
                           backend->inner_ops->name);
    return backend->inner_ops->export_key(backend->inner, mem->inner, buf, ret_size, err);
}

enum nxl_code fault_import(struct nxl_backend *backend, struct nxl_backend_conn *conn,
                           struct nxl_view key, struct nxl_backend_remote **ret,
                           struct nxl_err *err)
{
    if (!NXL_BACKEND_HAS(backend->inner_ops, import_key))
        return nxl_err_set(err, NXL_NOT_SUPPORTED, 0, "'%s' has no region keys",
                           backend->inner_ops->name);
    return backend->inner_ops->import_key(backend->inner, conn, key, ret, err);
}

void fault_forget(struct nxl_backend *backend, struct nxl_backend_remote *remote)
{
    if (NXL_BACKEND_HAS(backend->inner_ops, forget))
        backend->inner_ops->forget(backend->inner, remote);
}
