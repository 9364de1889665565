/* shm.c - the ops table of the shm backend, its settings, memory, start and stop. Loop thread. */
#include "shm.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static const struct nxl_option shm_options[] = {
    {"threads", NXL_OPTION_INT, "0", 0, SHM_THREADS_MAX, NULL,
     "copy threads; 0: half of the CPUs, at least 1 and at most 4"},
    {"inline_bytes", NXL_OPTION_SIZE, "32Ki", 0, 1 << 20, NULL,
     "operations up to this size are copied by the loop thread itself"},
    {"chunk", NXL_OPTION_SIZE, "1Mi", 4096, 1 << 30, NULL,
     "bytes a worker copies before it turns to the next operation"},
    {"stream_bytes", NXL_OPTION_SIZE, "8Mi", 0, INT64_MAX, NULL,
     "operations from this size on are written past the CPU caches; 0: all"},
    {"help_bytes", NXL_OPTION_SIZE, "128Ki", 0, 1 << 30, NULL,
     "where there is only one copy thread, the loop thread copies this much per turn; 0: nothing"},
    {"spin", NXL_OPTION_DURATION, "20us", 0, 1000000, NULL,
     "how long an idle worker looks for work before it sleeps"},
    {"queue", NXL_OPTION_INT, "4096", 1, 65536, NULL, "operations in flight before NXL_AGAIN"},
    {NULL, NXL_OPTION_BOOL, NULL, 0, 0, NULL, NULL},
};

static uint32_t default_threads(void)
{
    cpu_set_t set;
    uint32_t half;

    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) != 0)
        return 1;
    half = (uint32_t)CPU_COUNT(&set) / 2;
    return half < 1 ? 1 : half > 4 ? 4 : half;
}

static void mem_free(struct nxl_backend_mem *mem)
{
    *mem->link = mem->next;
    if (mem->next != NULL)
        mem->next->link = mem->link;
    free(mem);
}

static void shm_close(struct nxl_backend *backend)
{
    if (backend == NULL)
        return;
    if (backend->lock_made) {
        pthread_mutex_lock(&backend->locked.lock);
        shm_cancel_all(backend);
        backend->locked.closing = 1;
        pthread_cond_broadcast(&backend->locked.work);
        pthread_mutex_unlock(&backend->locked.lock);
        for (uint32_t i = 0; i < backend->started; i++)
            pthread_join(backend->threads[i], NULL);
        while (shm_progress(backend) > 0)
            ;
        pthread_cond_destroy(&backend->locked.work);
        pthread_mutex_destroy(&backend->locked.lock);
    }
    while (backend->loop.mems != NULL)
        mem_free(backend->loop.mems);
    free(backend->ops);
    free(backend);
}

static void options_read(struct nxl_backend *backend, const struct nxl_config *config)
{
    backend->option.threads = (uint32_t)config->number(config, "threads");
    if (backend->option.threads == 0)
        backend->option.threads = default_threads();
    backend->option.inline_bytes = (uint64_t)config->number(config, "inline_bytes");
    backend->option.chunk_bytes = (uint64_t)config->number(config, "chunk");
    backend->option.stream_bytes = (uint64_t)config->number(config, "stream_bytes");
    backend->option.help_bytes = (uint64_t)config->number(config, "help_bytes");
    backend->option.spin_ns = (uint64_t)config->number(config, "spin");
    backend->option.queue = (uint32_t)config->number(config, "queue");
}

/* Workers take no signals but those that a copy itself can raise: a blocked SIGBUS would kill the
 * agent where the guard of the mapping means to survive it. */
static int workers_start(struct nxl_backend *backend)
{
    sigset_t all, old;
    int failed = 0;

    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGILL);
    sigdelset(&all, SIGFPE);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    for (uint32_t i = 0; i < backend->option.threads && failed == 0; i++) {
        char name[24]; /* 15 and NUL are used */

        failed = pthread_create(&backend->threads[i], NULL, shm_worker_main, backend);
        if (failed == 0) {
            snprintf(name, sizeof(name), "nxl-shm-%u", i % 100);
            (void)pthread_setname_np(backend->threads[i], name); /* only a help for top and gdb */
            backend->started++;
        }
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return failed;
}

static enum nxl_code shm_open_backend(struct nxl_host *host, const struct nxl_config *config,
                                      struct nxl_backend **ret, struct nxl_err *err)
{
    struct nxl_backend *backend = calloc(1, sizeof(*backend));
    int failed;

    if (backend == NULL)
        return nxl_err_set(err, NXL_LIMIT, 0, "no memory for the shm backend");
    backend->host = host;
    options_read(backend, config);
    pthread_mutex_init(&backend->locked.lock, NULL);
    pthread_cond_init(&backend->locked.work, NULL);
    backend->lock_made = 1;
    backend->ops = calloc(backend->option.queue, sizeof(*backend->ops));
    if (backend->ops == NULL) {
        shm_close(backend);
        return nxl_err_set(err, NXL_LIMIT, 0, "no memory for a queue; lower backends.shm.queue");
    }
    for (uint32_t i = backend->option.queue; i > 0; i--) {
        backend->ops[i - 1].next = backend->locked.free;
        backend->locked.free = &backend->ops[i - 1];
    }
    failed = workers_start(backend);
    if (failed != 0) {
        shm_close(backend);
        return nxl_err_set(err, NXL_IO, failed, "start copy thread; lower backends.shm.threads");
    }
    *ret = backend;
    return NXL_OK;
}

static void shm_query(struct nxl_backend *backend, struct nxl_backend_caps *ret)
{
    (void)backend;
    ret->flags = NXL_CAP_LOCAL | NXL_CAP_CANCEL | NXL_CAP_STRIDED;
    ret->mem_kinds = 1u << NXL_MEM_DRAM;
    ret->pieces_max = 0;
    ret->piece_len_max = 0;
    ret->path = NXL_PATH_ONE_COPY;
    ret->honesty = NXL_HONESTY_REAL;
    ret->op_ns = 2000;
    ret->piece_ns = 20;
    ret->kib_ns = 100; /* 10 GB/s */
}

static enum nxl_code shm_register(struct nxl_backend *backend, const struct nxl_memory *memory,
                                  struct nxl_backend_mem **ret, struct nxl_err *err)
{
    struct nxl_backend_mem *mem;

    if (memory->kind != NXL_MEM_DRAM)
        return nxl_err_set(err, NXL_NOT_SUPPORTED, 0, "shm copies DRAM only, not memory of kind %d",
                           memory->kind);
    if (memory->base == NULL && memory->size > 0)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "shm needs memory that the agent has mapped");
    mem = calloc(1, sizeof(*mem));
    if (mem == NULL)
        return nxl_err_set(err, NXL_LIMIT, 0, "no memory for a region record");
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

static enum nxl_code shm_deregister(struct nxl_backend *backend, struct nxl_backend_mem *mem,
                                    struct nxl_err *err)
{
    (void)backend;
    (void)err;
    mem_free(mem);
    return NXL_OK;
}

extern const struct nxl_backend_ops nxl_backend_shm_ops;
const struct nxl_backend_ops nxl_backend_shm_ops = {
    .size = sizeof(struct nxl_backend_ops),
    .abi_major = NXL_BACKEND_ABI_MAJOR,
    .abi_minor = NXL_BACKEND_ABI_MINOR,
    .name = "shm",
    .about = "one copy between two clients of this agent, through shared mappings",
    .options = shm_options,
    .open = shm_open_backend,
    .close = shm_close,
    .query = shm_query,
    .register_mem = shm_register,
    .deregister_mem = shm_deregister,
    .submit = shm_submit,
    .cancel = shm_cancel,
    .progress = shm_progress,
};
