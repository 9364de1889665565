/* ucx_rig.c - the recording host and its settings. */
#include "integration/ucx/ucx_rig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const struct nxl_option *option_find(const char *key)
{
    const struct nxl_option *option = nxl_backend_ucx_ops.options;

    while (option->key != NULL && strcmp(option->key, key) != 0)
        option++;
    return option;
}

static const char *config_text(const struct nxl_config *config, const char *key)
{
    const struct ucx_rig *rig =
        (const void *)((const char *)config - offsetof(struct ucx_rig, config));
    size_t length = strlen(key);

    for (const char *const *row = rig->settings; row != NULL && *row != NULL; row++)
        if (strncmp(*row, key, length) == 0 && (*row)[length] == '=')
            return *row + length + 1;
    return option_find(key)->initial;
}

static int64_t config_number(const struct nxl_config *config, const char *key)
{
    static const struct {
        const char *unit;
        int64_t times;
    } units[] = {{"ns", 1},         {"us", 1000}, {"ms", 1000000},
                 {"s", 1000000000}, {"Ki", 1024}, {"Mi", 1024 * 1024}};
    char *end = NULL;
    int64_t value = strtoll(config_text(config, key), &end, 10);

    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
        if (strcmp(end, units[i].unit) == 0)
            return value * units[i].times;
    return value;
}

static struct ucx_rig_op *op_of(struct ucx_rig *rig, uint64_t id)
{
    if (id == 0 || id > rig->ids)
        abort(); /* a callback for an operation that does not exist */
    return &rig->ops[id - 1];
}

static void host_complete(struct nxl_host *host, const struct nxl_outcome *outcome)
{
    struct ucx_rig *rig = (struct ucx_rig *)(void *)host;
    struct ucx_rig_op *op;

    pthread_mutex_lock(&rig->lock);
    op = op_of(rig, outcome->op_id);
    op->outcome = *outcome;
    op->completes++;
    op->quiesces += outcome->quiesced ? 1 : 0;
    pthread_cond_broadcast(&rig->moved);
    pthread_mutex_unlock(&rig->lock);
}

static void host_quiesced(struct nxl_host *host, uint64_t op_id)
{
    struct ucx_rig *rig = (struct ucx_rig *)(void *)host;

    pthread_mutex_lock(&rig->lock);
    op_of(rig, op_id)->quiesces++;
    pthread_cond_broadcast(&rig->moved);
    pthread_mutex_unlock(&rig->lock);
}

static void host_ready(struct nxl_host *host)
{
    struct ucx_rig *rig = (struct ucx_rig *)(void *)host;

    pthread_mutex_lock(&rig->lock);
    rig->readies++;
    pthread_cond_broadcast(&rig->moved);
    pthread_mutex_unlock(&rig->lock);
}

static void host_disconnected(struct nxl_host *host, struct nxl_backend_conn *conn, const char *why)
{
    struct ucx_rig *rig = (struct ucx_rig *)(void *)host;

    pthread_mutex_lock(&rig->lock);
    rig->disconnects++;
    rig->disconnected = conn;
    snprintf(rig->why, sizeof(rig->why), "%s", why);
    pthread_cond_broadcast(&rig->moved);
    pthread_mutex_unlock(&rig->lock);
}

static void host_log(struct nxl_host *host, int level, const char *text)
{
    struct ucx_rig *rig = (struct ucx_rig *)(void *)host;
    size_t used;

    if (getenv("NXL_RIG_VERBOSE") != NULL)
        fprintf(stderr, "[%d] level %d: %s\n", (int)getpid(), level, text);
    pthread_mutex_lock(&rig->lock);
    used = strlen(rig->log);
    snprintf(rig->log + used, sizeof(rig->log) - used, "%s\n", text);
    pthread_mutex_unlock(&rig->lock);
}

struct ucx_rig *ucx_rig_open(const char *const *settings, struct nxl_err *err)
{
    struct ucx_rig *rig = calloc(1, sizeof(*rig));
    pthread_condattr_t attr;

    if (rig == NULL)
        abort();
    rig->host = (struct nxl_host){
        .size = sizeof(rig->host),
        .complete = host_complete,
        .quiesced = host_quiesced,
        .ready = host_ready,
        .disconnected = host_disconnected,
        .log = host_log,
    };
    rig->config = (struct nxl_config){sizeof(rig->config), config_text, config_number};
    rig->settings = settings;
    pthread_mutex_init(&rig->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&rig->moved, &attr);
    pthread_condattr_destroy(&attr);
    if (nxl_backend_ucx_ops.open(&rig->host, &rig->config, &rig->backend, err) == NXL_OK)
        return rig;
    rig->backend = NULL;
    ucx_rig_close(rig);
    return NULL;
}

void ucx_rig_close(struct ucx_rig *rig)
{
    nxl_backend_ucx_ops.close(rig->backend);
    for (uint64_t i = 0; i < rig->ids; i++)
        if (rig->ops[i].pieces != &rig->ops[i].single)
            free(rig->ops[i].pieces);
    pthread_cond_destroy(&rig->moved);
    pthread_mutex_destroy(&rig->lock);
    free(rig);
}

struct ucx_rig_op *ucx_rig_op_new(struct ucx_rig *rig, int kind, struct nxl_backend_conn *conn,
                                  struct nxl_backend_mem *mem, struct nxl_backend_remote *remote)
{
    struct ucx_rig_op *op;

    pthread_mutex_lock(&rig->lock);
    if (rig->ids == UCX_RIG_OPS_MAX)
        abort();
    op = &rig->ops[rig->ids++];
    op->op.id = rig->ids;
    pthread_mutex_unlock(&rig->lock);
    op->locals[0] = mem;
    op->remotes[0] = remote;
    op->pieces = &op->single;
    op->op.size = sizeof(op->op);
    op->op.kind = kind;
    op->op.conn = conn;
    op->op.locals = op->locals;
    op->op.remotes = op->remotes;
    op->op.local_count = op->op.remote_count = 1;
    op->op.piece_count = 1;
    return op;
}

enum nxl_code ucx_rig_submit(struct ucx_rig *rig, struct ucx_rig_op *op, struct nxl_err *err)
{
    op->op.pieces = op->pieces;
    op->op.bytes = 0;
    for (uint32_t i = 0; i < op->op.piece_count; i++)
        op->op.bytes += op->pieces[i].len * op->pieces[i].count;
    return nxl_backend_ucx_ops.submit(rig->backend, &op->op, err);
}

/* Waits until *counter reaches count. */
static int counter_wait(struct ucx_rig *rig, const int *counter, int count, int limit_ms)
{
    struct timespec until;
    int reached;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += limit_ms / 1000;
    until.tv_nsec += (limit_ms % 1000) * 1000000l;
    until.tv_sec += until.tv_nsec / 1000000000l;
    until.tv_nsec %= 1000000000l;
    pthread_mutex_lock(&rig->lock);
    while (*counter < count && pthread_cond_timedwait(&rig->moved, &rig->lock, &until) != ETIMEDOUT)
        continue;
    reached = *counter >= count;
    pthread_mutex_unlock(&rig->lock);
    return reached;
}

int ucx_rig_wait_end(struct ucx_rig *rig, struct ucx_rig_op *op, int limit_ms)
{
    return counter_wait(rig, &op->completes, 1, limit_ms);
}

int ucx_rig_wait_quiet(struct ucx_rig *rig, struct ucx_rig_op *op, int limit_ms)
{
    return counter_wait(rig, &op->quiesces, 1, limit_ms);
}

int ucx_rig_wait_disconnect(struct ucx_rig *rig, int count, int limit_ms)
{
    return counter_wait(rig, &rig->disconnects, count, limit_ms);
}

uint64_t ucx_rig_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
