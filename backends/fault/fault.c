/* fault.c - the ops table of the fault wrapper, its settings, start and stop. Loop thread. */
#include "fault.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CLOSE_WAIT_NS 10000000000ull
#define EVERY(key, help)                                                                           \
    {                                                                                              \
        key, NXL_OPTION_INT, "0", 0, INT32_MAX, NULL, help                                         \
    }

static const struct {
    const char *word;
    int code;
} codes[] = {
    {"backend", NXL_BACKEND},
    {"invalid_param", NXL_INVALID_PARAM},
    {"not_found", NXL_NOT_FOUND},
    {"mismatch", NXL_MISMATCH},
    {"not_allowed", NXL_NOT_ALLOWED},
    {"unknown", NXL_UNKNOWN},
    {"not_supported", NXL_NOT_SUPPORTED},
    {"remote_disconnect", NXL_REMOTE_DISCONNECT},
    {"canceled", NXL_CANCELED},
    {"limit", NXL_LIMIT},
    {"timeout", NXL_TIMEOUT},
    {"io", NXL_IO},
    {"memory_lost", NXL_MEMORY_LOST},
    {"unreachable", NXL_UNREACHABLE},
};

const struct nxl_option fault_options[] = {
    {"inner", NXL_OPTION_TEXT, "", 0, 0, NULL,
     "the backend to wrap; an instance that is named fault:shm sets it by its name"},
    {"delay", NXL_OPTION_DURATION, "0s", 0, 60000000000, NULL, "added before every completion"},
    {"reorder", NXL_OPTION_DURATION, "0s", 0, 60000000000, NULL,
     "a random delay up to this, so that completions overtake each other"},
    EVERY("again_every", "every n-th submit is answered with again; ready follows (1 counts as 2)"),
    EVERY("fail_every", "every n-th operation fails with fail_code"),
    {"fail_code", NXL_OPTION_ENUM, "backend", 0, 0,
     "backend|invalid_param|not_found|mismatch|not_allowed|unknown|not_supported|remote_disconnect|"
     "canceled|"
     "limit|timeout|io|memory_lost|unreachable",
     "what failing operations say"},
    {"fail_touched", NXL_OPTION_BOOL, "false", 0, 0, NULL,
     "failing operations are carried out before they fail, instead of never starting"},
    EVERY("drop_every",
          "every n-th operation is carried out and its end is kept back until cancel or close"),
    EVERY("skip_every", "every n-th operation leaves out one row and reports success"),
    EVERY("flip_every", "every n-th operation delivers one wrong byte and reports success"),
    EVERY("late_every", "every n-th operation writes one row only after its end; see late_write"),
    {"late_write", NXL_OPTION_DURATION, "50ms", 0, 60000000000, NULL,
     "how long after its end such a row is written; its buffers are reported quiet after that"},
    EVERY("never_quiesce_every", "every n-th operation is not reported quiet before close"),
    {"seed", NXL_OPTION_INT, "0", 0, INT32_MAX, NULL,
     "chooses rows, bytes and delays; shifts every n-th"},
    {NULL, NXL_OPTION_BOOL, NULL, 0, 0, NULL, NULL},
};

uint64_t fault_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

uint64_t fault_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

void fault_options_read(struct nxl_backend *backend, const struct nxl_config *config)
{
    const char *word = config->text(config, "fail_code");

    backend->option.delay_ns = (uint64_t)config->number(config, "delay");
    backend->option.reorder_ns = (uint64_t)config->number(config, "reorder");
    backend->option.again_every = (uint64_t)config->number(config, "again_every");
    backend->option.fail_every = (uint64_t)config->number(config, "fail_every");
    backend->option.fail_touched = (int)config->number(config, "fail_touched");
    backend->option.drop_every = (uint64_t)config->number(config, "drop_every");
    backend->option.skip_every = (uint64_t)config->number(config, "skip_every");
    backend->option.flip_every = (uint64_t)config->number(config, "flip_every");
    backend->option.late_every = (uint64_t)config->number(config, "late_every");
    backend->option.late_ns = (uint64_t)config->number(config, "late_write");
    backend->option.never_quiesce_every = (uint64_t)config->number(config, "never_quiesce_every");
    backend->option.seed = (uint64_t)config->number(config, "seed");
    backend->option.fail_code = NXL_BACKEND;
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
        if (strcmp(codes[i].word, word) == 0)
            backend->option.fail_code = codes[i].code;
    /* Never 0, which the generator could not leave. */
    backend->loop.random = backend->option.seed * 0x9e3779b97f4a7c15ull + 0x2545f4914f6cdd1dull;
    backend->locked.random = backend->loop.random ^ 0x5bd1e995ull;
}

static void inner_ready(struct nxl_host *host)
{
    struct nxl_backend *backend =
        (struct nxl_backend *)((char *)host - offsetof(struct nxl_backend, inner_host));

    backend->host->ready(backend->host);
}

static void inner_disconnected(struct nxl_host *host, struct nxl_backend_conn *conn,
                               const char *why)
{
    struct nxl_backend *backend =
        (struct nxl_backend *)((char *)host - offsetof(struct nxl_backend, inner_host));

    backend->host->disconnected(backend->host, conn, why);
}

static void inner_log(struct nxl_host *host, int level, const char *text)
{
    struct nxl_backend *backend =
        (struct nxl_backend *)((char *)host - offsetof(struct nxl_backend, inner_host));

    backend->host->log(backend->host, level, text);
}

/* With the lock; drops it. The ids first: no lock of ours is held while the wrapped one works. */
static void running_cancel(struct nxl_backend *backend)
{
    uint64_t *ids = calloc(backend->locked.open + 1, sizeof(*ids));
    uint32_t count = 0;

    for (uint32_t i = 0; i < FAULT_BUCKETS && ids != NULL; i++)
        for (struct fault_op *record = backend->locked.buckets[i]; record != NULL;
             record = record->bucket_next)
            if (record->state == FAULT_RUNNING)
                ids[count++] = record->id;
    pthread_mutex_unlock(&backend->locked.lock);
    while (count > 0 && NXL_BACKEND_HAS(backend->inner_ops, cancel))
        backend->inner_ops->cancel(backend->inner, ids[--count]);
    free(ids);
    pthread_mutex_lock(&backend->locked.lock);
}

static int is_drained(const struct nxl_backend *backend)
{
    return backend->locked.running == 0 && backend->locked.due_first == NULL;
}

/* Everything that is held back ends now, and what runs is asked to. Then waits, bounded. */
static void operations_drain(struct nxl_backend *backend)
{
    uint64_t until = fault_now_ns() + CLOSE_WAIT_NS;

    pthread_mutex_lock(&backend->locked.lock);
    backend->locked.closing = 1;
    for (uint32_t i = 0; i < FAULT_BUCKETS; i++)
        for (struct fault_op *record = backend->locked.buckets[i]; record != NULL;
             record = record->bucket_next) {
            record->late_open = 0;
            if (record->state == FAULT_HELD)
                fault_release(backend, record, NXL_CANCELED, "held back until close");
        }
    while (backend->locked.late_first != NULL) {
        struct fault_op *record = backend->locked.late_first;

        backend->locked.late_first = record->due_next;
        fault_schedule(backend, record, FAULT_ACT_QUIET, 0);
    }
    running_cancel(backend);
    pthread_cond_broadcast(&backend->locked.moved);
    while (!is_drained(backend) && fault_now_ns() < until) {
        struct timespec to;

        pthread_mutex_unlock(&backend->locked.lock);
        if (NXL_BACKEND_HAS(backend->inner_ops, progress))
            (void)backend->inner_ops->progress(backend->inner);
        pthread_mutex_lock(&backend->locked.lock);
        if (is_drained(backend))
            break;
        clock_gettime(CLOCK_MONOTONIC, &to);
        to.tv_nsec += 1000000;
        if (to.tv_nsec >= 1000000000) {
            to.tv_nsec -= 1000000000;
            to.tv_sec++;
        }
        (void)pthread_cond_timedwait(&backend->locked.moved, &backend->locked.lock, &to);
    }
    pthread_mutex_unlock(&backend->locked.lock);
}

/* The wrapped backend is closed: nothing moves any more, so the last buffers are quiet. */
static void quiet_all(struct nxl_backend *backend)
{
    pthread_mutex_lock(&backend->locked.lock);
    while (backend->locked.due_first != NULL)
        pthread_cond_wait(&backend->locked.moved, &backend->locked.lock);
    for (uint32_t i = 0; i < FAULT_BUCKETS; i++)
        while (backend->locked.buckets[i] != NULL) {
            struct fault_op *record = backend->locked.buckets[i];

            record->inner_quiet = 1;
            record->outcome.op_id = record->id;
            record->outcome.size = sizeof(record->outcome);
            if (record->state == FAULT_ENDED)
                fault_quiet(backend, record);
            else if (record->state == FAULT_RUNNING)
                fault_release(backend, record, NXL_BACKEND,
                              "the wrapped backend closed without ending it");
            else
                pthread_cond_wait(&backend->locked.moved,
                                  &backend->locked.lock); /* the timer is at it */
        }
    backend->locked.stop = 1;
    pthread_cond_broadcast(&backend->locked.moved);
    pthread_mutex_unlock(&backend->locked.lock);
}

static void fault_close(struct nxl_backend *backend)
{
    if (backend == NULL)
        return;
    if (backend->inner != NULL) {
        struct nxl_err err;

        operations_drain(backend);
        if (backend->loop.scratch_mem != NULL && backend->locked.running == 0)
            (void)backend->inner_ops->deregister_mem(backend->inner, backend->loop.scratch_mem,
                                                     &err);
        backend->inner_ops->close(backend->inner);
    }
    if (backend->timer_made) {
        quiet_all(backend);
        pthread_join(backend->timer, NULL);
    }
    while (backend->loop.mems != NULL)
        fault_mem_free(backend->loop.mems);
    if (backend->lock_made) {
        pthread_cond_destroy(&backend->locked.moved);
        pthread_mutex_destroy(&backend->locked.lock);
    }
    free(backend->loop.scratch);
    free(backend);
}

static int timer_start(struct nxl_backend *backend)
{
    pthread_condattr_t attr;
    sigset_t all, old;
    int failed;

    pthread_mutex_init(&backend->locked.lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&backend->locked.moved, &attr);
    pthread_condattr_destroy(&attr);
    backend->lock_made = 1;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    failed = pthread_create(&backend->timer, NULL, fault_timer_main, backend);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    backend->timer_made = failed == 0;
    return failed;
}

/* A byte of it replaces a right one in a remote write. Without it such writes are not flipped. */
static void scratch_register(struct nxl_backend *backend)
{
    struct nxl_memory memory = {.kind = NXL_MEM_DRAM, .size = FAULT_SCRATCH_SIZE, .fd = -1};
    struct nxl_err err;

    if (!(backend->caps.flags & NXL_CAP_REMOTE) || backend->option.flip_every == 0)
        return;
    backend->loop.scratch = aligned_alloc(4096, FAULT_SCRATCH_SIZE);
    memory.base = backend->loop.scratch;
    if (memory.base == NULL ||
        backend->inner_ops->register_mem(backend->inner, &memory, &backend->loop.scratch_mem,
                                         &err) != NXL_OK)
        backend->host->log(backend->host, 1,
                           "fault has no memory of its own: remote writes are not flipped");
}

static enum nxl_code inner_open(struct nxl_backend *backend, const char *name, struct nxl_err *err)
{
    struct nxl_host *host = backend->host;
    const struct nxl_config *config;
    enum nxl_code code;

    if (name[0] == '\0')
        return nxl_err_set(
            err, NXL_CONFIG, 0,
            "fault wraps nothing: name the instance fault:shm, or set backends.fault.inner");
    if (strcmp(name, "fault") == 0)
        return nxl_err_set(err, NXL_CONFIG, 0, "fault does not wrap itself");
    if (host->size < offsetof(struct nxl_host, find) + sizeof(host->find) || host->find == NULL)
        return nxl_err_set(err, NXL_NOT_SUPPORTED, 0, "this agent lends no other backend to fault");
    code = host->find(host, name, &backend->inner_ops, &config, err);
    if (code != NXL_OK)
        return nxl_err_wrap(err, code, "find backend '%s'", name);
    backend->inner_host = (struct nxl_host){
        .size = sizeof(backend->inner_host),
        .complete = fault_inner_complete,
        .quiesced = fault_inner_quiesced,
        .ready = inner_ready,
        .disconnected = inner_disconnected,
        .log = inner_log,
    };
    code = backend->inner_ops->open(&backend->inner_host, config, &backend->inner, err);
    if (code != NXL_OK) {
        backend->inner = NULL;
        return nxl_err_wrap(err, code, "open wrapped backend '%s'", name);
    }
    backend->caps.size = sizeof(backend->caps);
    backend->inner_ops->query(backend->inner, &backend->caps);
    scratch_register(backend);
    return NXL_OK;
}

static enum nxl_code fault_open(struct nxl_host *host, const struct nxl_config *config,
                                struct nxl_backend **ret, struct nxl_err *err)
{
    struct nxl_backend *backend = calloc(1, sizeof(*backend));
    enum nxl_code code;
    int failed;

    if (backend == NULL)
        return nxl_err_set(err, NXL_LIMIT, 0, "no memory for the fault wrapper");
    backend->host = host;
    fault_options_read(backend, config);
    failed = timer_start(backend);
    code = failed != 0 ? nxl_err_set(err, NXL_IO, failed, "start the timer thread of fault")
                       : inner_open(backend, config->text(config, "inner"), err);
    if (code != NXL_OK) {
        fault_close(backend);
        return code;
    }
    *ret = backend;
    return NXL_OK;
}

extern const struct nxl_backend_ops nxl_backend_fault_ops;
const struct nxl_backend_ops nxl_backend_fault_ops = {
    .size = sizeof(struct nxl_backend_ops),
    .abi_major = NXL_BACKEND_ABI_MAJOR,
    .abi_minor = NXL_BACKEND_ABI_MINOR,
    .name = "fault",
    .about = "wraps another backend and harms operations on purpose; for tests",
    .options = fault_options,
    .open = fault_open,
    .close = fault_close,
    .query = fault_query,
    .register_mem = fault_register,
    .deregister_mem = fault_deregister,
    .submit = fault_submit,
    .cancel = fault_cancel,
    .progress = fault_progress,
    .address = fault_address,
    .connect = fault_connect,
    .disconnect = fault_disconnect,
    .export_key = fault_export,
    .import_key = fault_import,
    .forget = fault_forget,
};
