/* rig.c - the strict host: opening, regions, operations, and the checks of every callback. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "contract/rig.h"

#include "backends/backends.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/option.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define RIG_DEADLINE_NS (60 * NXL_SEC)

/* Set while this thread is inside submit or cancel: an end made there is a broken promise. */
static _Thread_local int inside_call;

static void violation(struct rig *rig, const char *fmt, ...) NXL_PRINTF(2, 3);
static void violation(struct rig *rig, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    if (rig->shared.violations++ == 0)
        vsnprintf(rig->shared.violation, sizeof(rig->shared.violation), fmt, args);
    va_end(args);
}

static struct rig *rig_of(struct nxl_host *host)
{
    return ((struct rig_end *)(void *)host)->rig;
}

static void host_complete(struct nxl_host *host, const struct nxl_outcome *outcome)
{
    struct rig *rig = rig_of(host);
    struct rig_op *op;

    pthread_mutex_lock(&rig->shared.lock);
    op = outcome->op_id < RIG_OPS_MAX ? rig->shared.ops[outcome->op_id] : NULL;
    if (inside_call)
        violation(rig, "complete() of %llu came from inside submit() or cancel()",
                  (unsigned long long)outcome->op_id);
    if (outcome->size < sizeof(*outcome))
        violation(rig, "outcome of %llu has size %u", (unsigned long long)outcome->op_id,
                  outcome->size);
    if (op == NULL) {
        violation(rig, "complete() of %llu, which was never submitted",
                  (unsigned long long)outcome->op_id);
    } else {
        if (op->completes++ > 0)
            violation(rig, "second complete() of %llu", (unsigned long long)outcome->op_id);
        if (outcome->code == NXL_AGAIN || outcome->code == NXL_IN_PROG)
            violation(rig, "%llu ended with %s, which is no end",
                      (unsigned long long)outcome->op_id, nxl_code_word(outcome->code));
        if (outcome->code == NXL_OK && outcome->bytes != op->op.bytes)
            violation(rig, "%llu is done with %llu of %llu bytes",
                      (unsigned long long)outcome->op_id, (unsigned long long)outcome->bytes,
                      (unsigned long long)op->op.bytes);
        if (outcome->untouched && (outcome->code == NXL_OK || outcome->bytes > 0))
            violation(rig, "%llu is untouched with code %s and %llu bytes",
                      (unsigned long long)outcome->op_id, nxl_code_word(outcome->code),
                      (unsigned long long)outcome->bytes);
        op->outcome = *outcome;
        op->order = ++rig->shared.ends;
        if (outcome->quiesced && op->quiesces++ > 0)
            violation(rig, "%llu was quiet before its end", (unsigned long long)outcome->op_id);
    }
    pthread_cond_broadcast(&rig->shared.moved);
    pthread_mutex_unlock(&rig->shared.lock);
}

static void host_quiesced(struct nxl_host *host, uint64_t op_id)
{
    struct rig *rig = rig_of(host);
    struct rig_op *op;

    pthread_mutex_lock(&rig->shared.lock);
    op = op_id < RIG_OPS_MAX ? rig->shared.ops[op_id] : NULL;
    if (op == NULL || op->completes == 0)
        violation(rig, "quiesced() of %llu before its complete()", (unsigned long long)op_id);
    else if (op->quiesces++ > 0)
        violation(rig, "second quiesced() of %llu", (unsigned long long)op_id);
    pthread_cond_broadcast(&rig->shared.moved);
    pthread_mutex_unlock(&rig->shared.lock);
}

static void host_ready(struct nxl_host *host)
{
    struct rig *rig = rig_of(host);

    pthread_mutex_lock(&rig->shared.lock);
    rig->shared.readies++;
    pthread_cond_broadcast(&rig->shared.moved);
    pthread_mutex_unlock(&rig->shared.lock);
}

static void host_disconnected(struct nxl_host *host, struct nxl_backend_conn *conn, const char *why)
{
    struct rig *rig = rig_of(host);

    (void)conn;
    (void)why;
    pthread_mutex_lock(&rig->shared.lock);
    rig->shared.disconnects++;
    pthread_cond_broadcast(&rig->shared.moved);
    pthread_mutex_unlock(&rig->shared.lock);
}

static void host_log(struct nxl_host *host, int level, const char *text)
{
    (void)host;
    if (level <= 1)
        fprintf(stderr, "backend: %s\n", text);
}

static const struct nxl_backend_ops *ops_find(const char *name)
{
    for (const struct nxl_backend_ops *const *ops = nxl_backends_static(); *ops != NULL; ops++)
        if (strcmp((*ops)->name, name) == 0)
            return *ops;
    return NULL;
}

static enum nxl_code host_find(struct nxl_host *host, const char *name,
                               const struct nxl_backend_ops **ret_ops,
                               const struct nxl_config **ret_config, struct nxl_err *err)
{
    struct rig_end *end = (struct rig_end *)(void *)host;
    const struct nxl_backend_ops *ops = ops_find(name);
    char section[64];

    if (ops == NULL)
        return nxl_err_set(err, NXL_NOT_FOUND, 0, "no backend '%s' is linked in", name);
    snprintf(section, sizeof(section), "backends.%s", name);
    if (end->inner_config == NULL)
        end->inner_config = nxl_settings_config(end->rig->settings, section);
    *ret_ops = ops;
    *ret_config = end->inner_config;
    return NXL_OK;
}

/* "key=value", in the section of the row, or of the wrapper behind "fault.". */
static void setting_apply(struct rig *rig, const char *text)
{
    const char *section = rig->with.row->name;
    struct nxl_err err = {0};
    char key[128];
    const char *equals = strchr(text, '=');

    assert_non_null(equals);
    if (strncmp(text, "fault.", 6) == 0) {
        section = "fault";
        text += 6;
    }
    snprintf(key, sizeof(key), "backends.%s.%.*s", section, (int)(equals - text), text);
    if (nxl_settings_set(rig->settings, key, equals + 1, "rig", &err) != NXL_OK)
        fail_msg("%s", err.text);
}

static void settings_make(struct rig *rig, const char *const *extra)
{
    char section[64], inner[64];

    rig->settings = nxl_settings_new();
    for (const struct nxl_backend_ops *const *ops = nxl_backends_static(); *ops != NULL; ops++) {
        snprintf(section, sizeof(section), "backends.%s", (*ops)->name);
        if ((*ops)->options != NULL)
            nxl_settings_declare(rig->settings, section, (*ops)->options);
    }
    if (rig->with.wrapped) {
        snprintf(inner, sizeof(inner), "fault.inner=%s", rig->with.row->name);
        setting_apply(rig, inner);
    }
    for (const char *const *text = rig->with.row->settings; text != NULL && *text != NULL; text++)
        setting_apply(rig, *text);
    for (; extra != NULL && *extra != NULL; extra++)
        setting_apply(rig, *extra);
}

static enum nxl_code end_open(struct rig *rig, struct rig_end *end, struct nxl_err *err)
{
    const char *name = rig->with.wrapped ? "fault" : rig->with.row->name;
    struct nxl_config *config;
    enum nxl_code code;
    char section[64];

    snprintf(section, sizeof(section), "backends.%s", name);
    end->rig = rig;
    end->host = (struct nxl_host){sizeof(end->host), host_complete, host_quiesced, host_ready,
                                  host_disconnected, host_log,      host_find};
    end->ops = ops_find(name);
    if (end->ops == NULL)
        return nxl_err_set(err, NXL_NOT_SUPPORTED, 0, "backend '%s' is not linked in", name);
    config = nxl_settings_config(rig->settings, section);
    code = end->ops->open(&end->host, config, &end->backend, err);
    free(config);
    free(end->inner_config);
    end->inner_config = NULL;
    if (code != NXL_OK)
        return code;
    end->caps.size = sizeof(end->caps);
    end->ops->query(end->backend, &end->caps);
    return NXL_OK;
}

static void rig_free(struct rig *rig)
{
    for (int i = rig->end_count - 1; i >= 0; i--)
        rig->ends[i].ops->close(rig->ends[i].backend);
    for (int i = 0; i < rig->region_count; i++)
        if (rig->regions[i].base != NULL) {
            munmap(rig->regions[i].base, rig->regions[i].size);
            close(rig->regions[i].fd);
        }
    for (uint64_t id = 0; id < RIG_OPS_MAX; id++)
        if (rig->shared.ops[id] != NULL) {
            struct rig_op *op = rig->shared.ops[id];
            free(op->locals);
            free(op->peers);
            free(op->remotes);
            free(op->pieces);
            free(op);
        }
    nxl_settings_free(rig->settings);
    pthread_cond_destroy(&rig->shared.moved);
    pthread_mutex_destroy(&rig->shared.lock);
    free(rig);
}

struct rig *rig_open(const struct rig_case *with, const char *const *extra)
{
    struct rig *rig = nxl_new0(sizeof(*rig));
    struct nxl_err err = {0};
    pthread_condattr_t attr;

    rig->with = *with;
    pthread_mutex_init(&rig->shared.lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&rig->shared.moved, &attr);
    pthread_condattr_destroy(&attr);
    settings_make(rig, extra);
    for (int i = 0; i < (with->remote ? 2 : 1); i++) {
        enum nxl_code code = end_open(rig, &rig->ends[i], &err);

        if (code == NXL_NOT_SUPPORTED) {
            print_message("SKIP %s: %s\n", with->row->name, err.text);
            rig_free(rig);
            return NULL;
        }
        if (code != NXL_OK)
            fail_msg("open '%s': %s", with->row->name, err.text);
        rig->end_count++;
    }
    if (with->remote) {
        struct nxl_view address;

        assert_true(rig->ends[0].caps.flags & NXL_CAP_REMOTE);
        if (rig->ends[1].ops->address(rig->ends[1].backend, &address, &err) != NXL_OK ||
            rig->ends[0].ops->connect(rig->ends[0].backend, address, &rig->conn, &err) != NXL_OK)
            fail_msg("connect: %s", err.text);
        assert_non_null(rig->conn);
    }
    return rig;
}

void rig_check(struct rig *rig)
{
    char text[sizeof(rig->shared.violation)];
    int count;

    pthread_mutex_lock(&rig->shared.lock);
    count = rig->shared.violations;
    memcpy(text, rig->shared.violation, sizeof(text));
    pthread_mutex_unlock(&rig->shared.lock);
    if (count > 0)
        fail_msg("%d broken promises, the first: %s", count, text);
}

static void ends_check(struct rig *rig)
{
    for (uint64_t id = 1; id <= rig->shared.ids; id++) {
        const struct rig_op *op = rig->shared.ops[id];

        if (op->completes != op->accepted)
            violation(rig, "%llu ended %d times and was accepted %d times", (unsigned long long)id,
                      op->completes, op->accepted);
        if (op->quiesces != op->accepted)
            violation(rig, "%llu became quiet %d times and was accepted %d times",
                      (unsigned long long)id, op->quiesces, op->accepted);
    }
}

/* Regions are let go of first where nothing runs, after the close where something still does. */
void rig_close(struct rig *rig)
{
    int running = 0;

    for (uint64_t id = 1; id <= rig->shared.ids; id++) {
        pthread_mutex_lock(&rig->shared.lock);
        running += rig->shared.ops[id]->accepted && rig->shared.ops[id]->quiesces == 0;
        pthread_mutex_unlock(&rig->shared.lock);
    }
    for (int i = 0; i < rig->region_count && running == 0; i++)
        rig_region_close(rig, &rig->regions[i]);
    if (rig->conn != NULL && running == 0)
        rig->ends[0].ops->disconnect(rig->ends[0].backend, rig->conn);
    for (int i = 0; i < rig->end_count; i++)
        rig->ends[i].ops->close(rig->ends[i].backend);
    rig->end_count = 0;
    ends_check(rig);
    rig_check(rig);
    rig_free(rig);
}

struct rig_region *rig_region_open(struct rig *rig, uint64_t size, int far)
{
    struct rig_region *region = &rig->regions[rig->region_count];
    struct nxl_memory memory = {.kind = NXL_MEM_DRAM, .size = size};
    struct nxl_err err = {0};

    assert_true(rig->region_count < RIG_REGIONS_MAX);
    region->end = far && rig->with.remote ? 1 : 0;
    region->size = size;
    region->fd = memfd_create("rig", MFD_CLOEXEC);
    assert_true(region->fd >= 0);
    assert_int_equal(ftruncate(region->fd, (off_t)size), 0);
    region->base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, region->fd, 0);
    assert_true(region->base != MAP_FAILED);
    rig->region_count++;
    memory.base = region->base;
    memory.fd = region->fd;
    struct rig_end *end = &rig->ends[region->end];
    if (end->ops->register_mem(end->backend, &memory, &region->mem, &err) != NXL_OK)
        fail_msg("register: %s", err.text);
    if (far && rig->with.remote) {
        unsigned char key[NXL_BACKEND_KEY_MAX];
        size_t key_size = sizeof(key);

        if (end->ops->export_key(end->backend, region->mem, key, &key_size, &err) != NXL_OK)
            fail_msg("export: %s", err.text);
        assert_in_range(key_size, 1, sizeof(key));
        if (rig->ends[0].ops->import_key(rig->ends[0].backend, rig->conn,
                                         (struct nxl_view){key, key_size}, &region->remote,
                                         &err) != NXL_OK)
            fail_msg("import: %s", err.text);
    }
    return region;
}

void rig_region_close(struct rig *rig, struct rig_region *region)
{
    struct rig_end *end = &rig->ends[region->end];
    struct nxl_err err = {0};

    if (region->mem == NULL)
        return;
    if (region->remote != NULL)
        rig->ends[0].ops->forget(rig->ends[0].backend, region->remote);
    if (end->ops->deregister_mem(end->backend, region->mem, &err) != NXL_OK)
        fail_msg("deregister: %s", err.text);
    region->mem = NULL;
    region->remote = NULL;
}

struct rig_op *rig_op_new(struct rig *rig, enum nxl_op_kind kind, struct rig_region *near,
                          struct rig_region *far, const struct nxl_piece *pieces, uint32_t count)
{
    struct rig_op *op = nxl_new0(sizeof(*op));

    op->locals = nxl_new0(sizeof(struct nxl_backend_mem *));
    op->peers = nxl_new0(sizeof(struct nxl_backend_mem *));
    op->remotes = nxl_new0(sizeof(struct nxl_backend_remote *));
    op->pieces = nxl_new0_array(count, sizeof(*pieces));
    memcpy(op->pieces, pieces, count * sizeof(*pieces));
    op->locals[0] = near->mem;
    op->peers[0] = far->mem;
    op->remotes[0] = far->remote;
    op->op = (struct nxl_op){
        .size = sizeof(op->op),
        .kind = kind,
        .conn = rig->conn,
        .locals = op->locals,
        .remotes = rig->with.remote ? op->remotes : NULL,
        .peers = rig->with.remote ? NULL : op->peers,
        .pieces = op->pieces,
        .local_count = 1,
        .remote_count = 1,
        .piece_count = count,
    };
    for (uint32_t i = 0; i < count; i++)
        op->op.bytes += pieces[i].len * pieces[i].count;
    assert_true(rig->shared.ids + 1 < RIG_OPS_MAX);
    pthread_mutex_lock(&rig->shared.lock);
    op->op.id = ++rig->shared.ids;
    rig->shared.ops[op->op.id] = op;
    pthread_mutex_unlock(&rig->shared.lock);
    return op;
}

enum nxl_code rig_try(struct rig *rig, struct rig_op *op, struct nxl_err *err)
{
    enum nxl_code code;

    inside_call = 1;
    code = rig->ends[0].ops->submit(rig->ends[0].backend, &op->op, err);
    inside_call = 0;
    pthread_mutex_lock(&rig->shared.lock);
    if (code == NXL_OK)
        op->accepted++;
    pthread_mutex_unlock(&rig->shared.lock);
    return code;
}

struct readies {
    struct rig *rig;
    int seen;
};

static int more_readies(void *arg)
{
    struct readies *readies = arg;

    return rig_readies(readies->rig) > readies->seen;
}

void rig_submit(struct rig *rig, struct rig_op *op)
{
    struct nxl_err err = {0};

    for (;;) {
        struct readies readies = {rig, rig_readies(rig)};
        enum nxl_code code = rig_try(rig, op, &err);

        if (code == NXL_OK)
            return;
        if (code != NXL_AGAIN)
            fail_msg("submit: %s: %s", nxl_code_word(code), err.text);
        rig_pump(rig, more_readies, &readies);
    }
}

void rig_cancel(struct rig *rig, struct rig_op *op)
{
    inside_call = 1;
    rig->ends[0].ops->cancel(rig->ends[0].backend, op->op.id);
    inside_call = 0;
}

/* The condition is what is waited for; the short time-out only gives progress() its turns. */
void rig_pump(struct rig *rig, int (*done)(void *arg), void *arg)
{
    uint64_t until = nxl_now_ns() + RIG_DEADLINE_NS;

    while (!done(arg)) {
        int advanced = 0;

        for (int i = 0; i < rig->end_count; i++)
            if (NXL_BACKEND_HAS(rig->ends[i].ops, progress))
                advanced += rig->ends[i].ops->progress(rig->ends[i].backend);
        if (nxl_now_ns() > until)
            fail_msg("nothing came within 60 s");
        if (advanced == 0) {
            struct timespec to;

            clock_gettime(CLOCK_MONOTONIC, &to);
            to.tv_nsec += 200000;
            if (to.tv_nsec >= 1000000000) {
                to.tv_nsec -= 1000000000;
                to.tv_sec++;
            }
            pthread_mutex_lock(&rig->shared.lock);
            pthread_cond_timedwait(&rig->shared.moved, &rig->shared.lock, &to);
            pthread_mutex_unlock(&rig->shared.lock);
        }
    }
}

struct watched {
    struct rig *rig;
    struct rig_op *op;
};

int rig_completes(struct rig *rig, struct rig_op *op)
{
    int count;

    pthread_mutex_lock(&rig->shared.lock);
    count = op->completes;
    pthread_mutex_unlock(&rig->shared.lock);
    return count;
}

int rig_readies(struct rig *rig)
{
    int count;

    pthread_mutex_lock(&rig->shared.lock);
    count = rig->shared.readies;
    pthread_mutex_unlock(&rig->shared.lock);
    return count;
}

static int op_ended(void *arg)
{
    struct watched *watched = arg;

    return rig_completes(watched->rig, watched->op) > 0;
}

static int op_quiet(void *arg)
{
    struct watched *watched = arg;
    int quiet;

    pthread_mutex_lock(&watched->rig->shared.lock);
    quiet = watched->op->completes > 0 && watched->op->quiesces > 0;
    pthread_mutex_unlock(&watched->rig->shared.lock);
    return quiet;
}

void rig_wait_end(struct rig *rig, struct rig_op *op)
{
    struct watched watched = {rig, op};

    rig_pump(rig, op_ended, &watched);
}

void rig_wait_quiet(struct rig *rig, struct rig_op *op)
{
    struct watched watched = {rig, op};

    rig_pump(rig, op_quiet, &watched);
}
