/* null.c - does nothing, correctly: the smallest backend that keeps the whole contract, and the
 * file to copy for a new one. It owns no thread: everything happens on the agent's loop thread, and
 * outcomes are made in progress(). */
#include <nxl/backend.h>

#include <stdlib.h>

#define NULL_QUEUE_MAX 65536

struct null_entry {
    const struct nxl_op *op; /* lent until complete() */
    int canceled;
};

struct nxl_backend {
    struct nxl_host *host;
    struct null_entry *queue; /* ring of `room` entries */
    uint32_t room, head, count;
    int starved;                  /* somebody was told NXL_AGAIN and waits for ready() */
    struct nxl_backend_mem *mems; /* registered */
};

struct nxl_backend_mem {
    struct nxl_backend_mem *next, **link; /* in backend->mems */
    uint64_t size;
};

static const struct nxl_option null_options[] = {
    {"queue", NXL_OPTION_INT, "1024", 1, NULL_QUEUE_MAX, NULL,
     "operations in flight before NXL_AGAIN"},
    {NULL, NXL_OPTION_BOOL, NULL, 0, 0, NULL, NULL},
};

/* The one place where an operation ends; the entry is free before the host hears of it. */
static void null_end_first(struct nxl_backend *backend, int closing)
{
    struct null_entry entry = backend->queue[backend->head];
    struct nxl_outcome outcome = {
        .size = sizeof(outcome),
        .op_id = entry.op->id,
        .quiesced = 1,
        .device = "nothing",
        .path = NXL_PATH_NONE,
    };

    backend->head = (backend->head + 1) % backend->room;
    backend->count--;
    if (entry.canceled || closing) {
        outcome.code = NXL_CANCELED;
        outcome.untouched = 1;
    } else {
        outcome.code = NXL_OK;
        outcome.bytes = entry.op->bytes;
    }
    backend->host->complete(backend->host, &outcome);
}

static void mem_free(struct nxl_backend_mem *mem)
{
    *mem->link = mem->next;
    if (mem->next != NULL)
        mem->next->link = mem->link;
    free(mem);
}

static void null_close(struct nxl_backend *backend)
{
    if (backend == NULL)
        return;
    while (backend->count > 0)
        null_end_first(backend, 1);
    while (backend->mems != NULL)
        mem_free(backend->mems);
    free(backend->queue);
    free(backend);
}

static enum nxl_code null_open(struct nxl_host *host, const struct nxl_config *config,
                               struct nxl_backend **ret, struct nxl_err *err)
{
    struct nxl_backend *backend = calloc(1, sizeof(*backend));

    if (backend == NULL)
        return nxl_err_set(err, NXL_LIMIT, 0, "no memory for the null backend");
    backend->host = host;
    backend->room = (uint32_t)config->number(config, "queue");
    backend->queue = calloc(backend->room, sizeof(*backend->queue));
    if (backend->queue == NULL) {
        null_close(backend);
        return nxl_err_set(err, NXL_LIMIT, 0, "no memory for a queue; lower backends.null.queue");
    }
    *ret = backend;
    return NXL_OK;
}

static void null_query(struct nxl_backend *backend, struct nxl_backend_caps *ret)
{
    (void)backend;
    ret->flags = NXL_CAP_LOCAL | NXL_CAP_CANCEL | NXL_CAP_STRIDED;
    ret->mem_kinds = (1u << NXL_MEM_KINDS) - 1; /* it touches none of them */
    ret->pieces_max = 0;
    ret->piece_len_max = 0;
    ret->path = NXL_PATH_NONE; /* so that any minimum path refuses it */
    ret->honesty = NXL_HONESTY_STUB;
    ret->op_ns = ret->piece_ns = ret->kib_ns = 0;
}

static enum nxl_code null_register(struct nxl_backend *backend, const struct nxl_memory *memory,
                                   struct nxl_backend_mem **ret, struct nxl_err *err)
{
    struct nxl_backend_mem *mem = calloc(1, sizeof(*mem));

    if (mem == NULL)
        return nxl_err_set(err, NXL_LIMIT, 0, "no memory for a region record");
    mem->size = memory->size;
    mem->next = backend->mems;
    mem->link = &backend->mems;
    if (mem->next != NULL)
        mem->next->link = &mem->next;
    backend->mems = mem;
    *ret = mem;
    return NXL_OK;
}

static enum nxl_code null_deregister(struct nxl_backend *backend, struct nxl_backend_mem *mem,
                                     struct nxl_err *err)
{
    (void)backend;
    (void)err;
    mem_free(mem);
    return NXL_OK;
}

static enum nxl_code null_submit(struct nxl_backend *backend, const struct nxl_op *op,
                                 struct nxl_err *err)
{
    (void)err; /* NXL_AGAIN carries no text: it is not an error */
    if (backend->count == backend->room) {
        backend->starved = 1;
        return NXL_AGAIN;
    }
    backend->queue[(backend->head + backend->count) % backend->room] = (struct null_entry){op, 0};
    backend->count++;
    return NXL_OK;
}

/* Only marks: the outcome comes from progress(), never from inside a call of the agent. */
static void null_cancel(struct nxl_backend *backend, uint64_t op_id)
{
    for (uint32_t i = 0; i < backend->count; i++) {
        struct null_entry *entry = &backend->queue[(backend->head + i) % backend->room];
        if (entry->op->id == op_id)
            entry->canceled = 1;
    }
}

/* Bounded: what is queued during the call waits for the next one. */
static int null_progress(struct nxl_backend *backend)
{
    uint32_t done = 0;

    for (uint32_t left = backend->count < 64 ? backend->count : 64; left > 0; left--, done++)
        null_end_first(backend, 0);
    if (done > 0 && backend->starved) {
        backend->starved = 0;
        backend->host->ready(backend->host);
    }
    return (int)done;
}

extern const struct nxl_backend_ops nxl_backend_null_ops;
const struct nxl_backend_ops nxl_backend_null_ops = {
    .size = sizeof(struct nxl_backend_ops),
    .abi_major = NXL_BACKEND_ABI_MAJOR,
    .abi_minor = NXL_BACKEND_ABI_MINOR,
    .name = "null",
    .about = "does nothing, correctly; for tests and as a start for new backends",
    .options = null_options,
    .open = null_open,
    .close = null_close,
    .query = null_query,
    .register_mem = null_register,
    .deregister_mem = null_deregister,
    .submit = null_submit,
    .cancel = null_cancel,
    .progress = null_progress,
};
