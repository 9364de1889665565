/* ucx.c - the UCX backend: its table, open, close and query. Loop thread. */
#include "ucx.h"

#include "environment.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* Others' settings change what we do: said aloud, because nothing else would show it. */
static void environment_report(struct nxl_backend *backend)
{
    char text[384];
    unsigned count = ucx_environment_variables(text, sizeof(text));

    if (count > 0)
        ucx_log(
            backend, 1,
            "ucx finds %u UCX_* variables in the environment and they take effect, except where "
            "backends.ucx sets the same: %s",
            count, text);
}

void ucx_backend_free(struct nxl_backend *backend)
{
    ucx_log_leave(backend);
    ucx_settings_fini(&backend->settings);
    ucx_lanes_free(backend);
    if (backend->event_fd >= 0)
        (void)close(backend->event_fd);
    (void)pthread_mutex_destroy(&backend->start.lock);
    (void)pthread_cond_destroy(&backend->start.changed);
    (void)pthread_mutex_destroy(&backend->regions.lock);
    (void)pthread_cond_destroy(&backend->regions.unpinned);
    free(backend->address);
    free(backend);
}

static struct nxl_backend *backend_new(struct nxl_host *host)
{
    struct nxl_backend *backend = calloc(1, sizeof(*backend));
    pthread_condattr_t attr;

    if (backend == NULL)
        return NULL;
    backend->host = host;
    backend->event_fd = -1;
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&backend->start.lock, NULL);
    (void)pthread_cond_init(&backend->start.changed, &attr);
    (void)pthread_mutex_init(&backend->regions.lock, NULL);
    (void)pthread_cond_init(&backend->regions.unpinned, &attr);
    (void)pthread_condattr_destroy(&attr);
    return backend;
}

/* The thread takes no signals: they belong to the agent's loop. */
static int thread_create(struct nxl_backend *backend)
{
    sigset_t all, before;
    int error;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&backend->thread, NULL, ucx_progress_main, backend);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

static enum ucx_start_phase start_wait(struct nxl_backend *backend)
{
    enum ucx_start_phase phase;
    struct timespec until;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(backend->settings.init_ns / 1000000000);
    until.tv_nsec += (long)(backend->settings.init_ns % 1000000000);
    until.tv_sec += until.tv_nsec / 1000000000l;
    until.tv_nsec %= 1000000000l;
    (void)pthread_mutex_lock(&backend->start.lock);
    while (backend->start.phase == UCX_STARTING &&
           pthread_cond_timedwait(&backend->start.changed, &backend->start.lock, &until) == 0)
        continue;
    if (backend->start.phase == UCX_STARTING)
        backend->start.phase = UCX_ABANDONED;
    phase = backend->start.phase;
    (void)pthread_mutex_unlock(&backend->start.lock);
    return phase;
}

/* Takes backend unless it returns NXL_OK. */
static enum nxl_code backend_start(struct nxl_backend *backend, struct nxl_err *err)
{
    double limit_s = (double)backend->settings.init_ns / 1e9;
    int error = thread_create(backend);
    enum nxl_code code;

    if (error != 0) {
        ucx_backend_free(backend);
        return nxl_err_set(err, NXL_LIMIT, error, "start the progress thread of ucx");
    }
    switch (start_wait(backend)) {
    case UCX_READY:
        return NXL_OK;
    case UCX_START_FAILED:
        (void)pthread_join(backend->thread, NULL);
        code = backend->start.err.code;
        if (err != NULL)
            *err = backend->start.err;
        ucx_backend_free(backend);
        return code;
    default: /* abandoned: the thread cleans up if it ever comes back */
        (void)pthread_detach(backend->thread);
        return nxl_err_set(err, NXL_TIMEOUT, 0,
                           "UCX did not come up within %.1f s; see backends.ucx.init_timeout",
                           limit_s);
    }
}

static enum nxl_code ucx_open(struct nxl_host *host, const struct nxl_config *config,
                              struct nxl_backend **ret, struct nxl_err *err)
{
    struct nxl_backend *backend = backend_new(host);
    enum nxl_code code;

    if (backend == NULL)
        return nxl_err_set(err, NXL_LIMIT, 0, "no memory for the ucx backend");
    code = ucx_settings_read(&backend->settings, config, err);
    if (code == NXL_OK)
        code = ucx_library_load(config->text(config, "library"), &backend->lib, err);
    if (code == NXL_OK) {
        backend->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (backend->event_fd < 0)
            code = nxl_err_set(err, NXL_IO, errno, "eventfd for the progress thread of ucx");
    }
    if (code != NXL_OK) {
        ucx_backend_free(backend);
        return code;
    }
    ucx_log_listen(backend);
    environment_report(backend);
    code = backend_start(backend, err);
    if (code != NXL_OK)
        return code;
    ucx_log(backend, 2, "ucx opened version=%u.%u.%u tls=%s devices=%s", backend->lib.major,
            backend->lib.minor, backend->lib.release, backend->settings.tls,
            backend->settings.device_list[0] ? backend->settings.device_list : "all");
    *ret = backend;
    return NXL_OK;
}

static void ucx_close(struct nxl_backend *backend)
{
    if (backend == NULL)
        return;
    ucx_command_push(backend, &backend->own.stop_command, UCX_COMMAND_STOP);
    (void)pthread_join(backend->thread, NULL);
    ucx_backend_free(backend);
}

static void ucx_query(struct nxl_backend *backend, struct nxl_backend_caps *ret)
{
    (void)backend;
    ret->flags = NXL_CAP_REMOTE | NXL_CAP_CANCEL | NXL_CAP_STRIDED;
    ret->mem_kinds = 1u << NXL_MEM_DRAM;
    ret->pieces_max = 0;
    ret->piece_len_max = 0;
    ret->path = NXL_PATH_SHARED; /* at best; the outcome names what was taken */
    ret->honesty = NXL_HONESTY_REAL;
    /* Measured over tcp on loopback: see README.md. */
    ret->op_ns = 25000;
    ret->piece_ns = 700;
    ret->kib_ns = 250;
}

extern const struct nxl_backend_ops nxl_backend_ucx_ops;
const struct nxl_backend_ops nxl_backend_ucx_ops = {
    .size = sizeof(struct nxl_backend_ops),
    .abi_major = NXL_BACKEND_ABI_MAJOR,
    .abi_minor = NXL_BACKEND_ABI_MINOR,
    .name = "ucx",
    .about = "between agents by UCX 1.12 or later (libucp.so.0): TCP, shared memory, RDMA",
    .options = ucx_options,
    .open = ucx_open,
    .close = ucx_close,
    .query = ucx_query,
    .register_mem = ucx_register,
    .deregister_mem = ucx_deregister,
    .submit = ucx_submit,
    .cancel = ucx_cancel,
    .address = ucx_address,
    .connect = ucx_connect,
    .disconnect = ucx_disconnect,
    .export_key = ucx_export,
    .import_key = ucx_import,
    .forget = ucx_forget,
};
