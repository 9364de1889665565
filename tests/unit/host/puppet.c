/* puppet.c - see puppet.h. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/host/puppet.h"

#include "base/clock.h"
#include "base/loop.h"
#include "base/metric.h"

#include <stdio.h>
#include <string.h>

struct puppet puppet;

static enum nxl_code puppet_open(struct nxl_host *host, const struct nxl_config *config,
                                 struct nxl_backend **ret, struct nxl_err *err)
{
    (void)config;
    (void)err;
    puppet.host = host;
    *ret = (struct nxl_backend *)&puppet;
    return NXL_OK;
}

struct nxl_outcome puppet_outcome(uint64_t id, int code, int quiet)
{
    return (struct nxl_outcome){.size = sizeof(struct nxl_outcome),
                                .op_id = id,
                                .code = code,
                                .quiesced = (uint32_t)quiet,
                                .bytes = 7};
}

static void puppet_close(struct nxl_backend *backend)
{
    (void)backend;
    puppet.closes++;
    for (uint32_t i = 0; i < puppet.submits && !puppet.close_keeps; i++) {
        struct nxl_outcome outcome = puppet_outcome(puppet.ids[i], NXL_CANCELED, 1);

        if (puppet.ids[i] != 0)
            puppet.host->complete(puppet.host, &outcome);
    }
}

static void puppet_query(struct nxl_backend *backend, struct nxl_backend_caps *ret)
{
    (void)backend;
    ret->flags = NXL_CAP_LOCAL | NXL_CAP_REMOTE | NXL_CAP_CANCEL;
    ret->mem_kinds = 1u << NXL_MEM_DRAM;
    ret->pieces_max = 4;
}

static enum nxl_code puppet_register(struct nxl_backend *backend, const struct nxl_memory *memory,
                                     struct nxl_backend_mem **ret, struct nxl_err *err)
{
    (void)backend;
    puppet.memory = memory;
    if (puppet.register_code != NXL_OK)
        return nxl_err_set(err, puppet.register_code, 0, "the puppet does not like it");
    if (!puppet.register_nothing)
        *ret = (struct nxl_backend_mem *)&puppet;
    return NXL_OK;
}

static enum nxl_code puppet_deregister(struct nxl_backend *backend, struct nxl_backend_mem *mem,
                                       struct nxl_err *err)
{
    (void)backend;
    (void)mem;
    if (puppet.register_code != NXL_OK)
        return nxl_err_set(err, puppet.register_code, 0, "the puppet keeps it");
    return NXL_OK;
}

static enum nxl_code puppet_submit(struct nxl_backend *backend, const struct nxl_op *op,
                                   struct nxl_err *err)
{
    (void)backend;
    if (puppet.complete_inside) {
        struct nxl_outcome outcome = puppet_outcome(op->id, NXL_OK, 1);

        puppet.host->complete(puppet.host, &outcome);
    }
    if (puppet.submit_code != NXL_OK)
        return nxl_err_set(err, puppet.submit_code, 0, "the puppet refuses");
    puppet.ids[puppet.submits++] = op->id;
    return NXL_OK;
}

static void puppet_cancel(struct nxl_backend *backend, uint64_t op_id)
{
    (void)backend;
    (void)op_id;
    puppet.cancels++;
}

static int puppet_progress(struct nxl_backend *backend)
{
    int answer = puppet.progress_answer;

    (void)backend;
    puppet.progresses++;
    puppet.progress_answer = 0;
    return answer;
}

static enum nxl_code puppet_address(struct nxl_backend *backend, struct nxl_view *ret,
                                    struct nxl_err *err)
{
    (void)backend;
    (void)err;
    *ret = (struct nxl_view){"here", 4};
    return NXL_OK;
}

static enum nxl_code puppet_connect(struct nxl_backend *backend, struct nxl_view address,
                                    struct nxl_backend_conn **ret, struct nxl_err *err)
{
    (void)backend;
    if (puppet.connect_code != NXL_OK)
        return nxl_err_set(err, puppet.connect_code, 0, "the puppet does not connect");
    *ret = (struct nxl_backend_conn *)(uintptr_t)address.data;
    return NXL_OK;
}

static void puppet_disconnect(struct nxl_backend *backend, struct nxl_backend_conn *conn)
{
    (void)backend;
    (void)conn;
    puppet.disconnects++;
}

static enum nxl_code puppet_export(struct nxl_backend *backend, struct nxl_backend_mem *mem,
                                   void *buf, size_t *ret_size, struct nxl_err *err)
{
    (void)backend;
    (void)mem;
    (void)err;
    memcpy(buf, "key", 3);
    *ret_size = 3;
    return NXL_OK;
}

static enum nxl_code puppet_import(struct nxl_backend *backend, struct nxl_backend_conn *conn,
                                   struct nxl_view key, struct nxl_backend_remote **ret,
                                   struct nxl_err *err)
{
    (void)backend;
    (void)conn;
    (void)err;
    *ret = (struct nxl_backend_remote *)(uintptr_t)key.data;
    return NXL_OK;
}

static void puppet_forget(struct nxl_backend *backend, struct nxl_backend_remote *remote)
{
    (void)backend;
    (void)remote;
}

const struct nxl_backend_ops puppet_ops = {
    .size = sizeof(struct nxl_backend_ops),
    .abi_major = NXL_BACKEND_ABI_MAJOR,
    .abi_minor = NXL_BACKEND_ABI_MINOR,
    .name = "puppet",
    .open = puppet_open,
    .close = puppet_close,
    .query = puppet_query,
    .register_mem = puppet_register,
    .deregister_mem = puppet_deregister,
    .submit = puppet_submit,
    .cancel = puppet_cancel,
    .progress = puppet_progress,
    .address = puppet_address,
    .connect = puppet_connect,
    .disconnect = puppet_disconnect,
    .export_key = puppet_export,
    .import_key = puppet_import,
    .forget = puppet_forget,
};
const struct nxl_backend_ops *const puppet_statics[] = {&puppet_ops, NULL};

static void bed_on_ready(void *arg, struct nxl_instance *instance)
{
    struct bed *bed = arg;

    (void)instance;
    bed->readies++;
}

static void bed_on_disconnected(void *arg, struct nxl_instance *instance,
                                struct nxl_backend_conn *conn, const char *why)
{
    struct bed *bed = arg;

    (void)instance;
    (void)conn;
    bed->disconnecteds++;
    snprintf(bed->why, sizeof(bed->why), "%s", why);
}

static const struct nxl_hosts_ops bed_ops = {bed_on_ready, bed_on_disconnected};

void bed_open(struct bed *bed, const struct nxl_backend_ops *const *statics, const char *enabled)
{
    struct nxl_err err = {0};
    struct nxl_hosts_options options = {
        .statics = statics, .enabled = enabled, .ops = &bed_ops, .arg = bed};

    memset(bed, 0, sizeof(*bed));
    memset(&puppet, 0, sizeof(puppet));
    assert_int_equal(nxl_loop_open(&bed->loop, &err), NXL_OK);
    bed->metrics = nxl_metrics_new();
    options.loop = bed->loop;
    options.metrics = bed->metrics;
    assert_int_equal(nxl_hosts_open(&options, &bed->hosts, &err), NXL_OK);
    bed->instance = nxl_hosts_find(bed->hosts, "puppet");
}

void bed_close(struct bed *bed)
{
    nxl_hosts_close(bed->hosts);
    nxl_metrics_free(bed->metrics);
    nxl_loop_close(bed->loop);
}

void told_outcome(void *arg, const struct nxl_outcome *outcome)
{
    struct told *told = arg;

    assert_int_equal(told->quiets, 0);
    told->outcomes++;
    told->outcome = *outcome;
}

void told_quiet(void *arg, uint64_t op_id)
{
    struct told *told = arg;

    assert_int_equal(told->outcomes, 1);
    told->quiets++;
    told->quiet_id = op_id;
}

enum nxl_code bed_submit(struct bed *bed, struct nxl_op *op, struct told *told)
{
    static const struct nxl_piece piece = {.len = 7, .count = 1};
    static struct nxl_backend_mem *mems[1];
    struct nxl_err err = {0};

    memset(told, 0, sizeof(*told));
    *op = (struct nxl_op){.kind = NXL_WRITE,
                          .locals = mems,
                          .peers = mems,
                          .pieces = &piece,
                          .local_count = 1,
                          .remote_count = 1,
                          .piece_count = 1,
                          .bytes = 7};
    return nxl_instance_submit(bed->instance, op, told_outcome, told_quiet, told, &err);
}

struct goal {
    const uint32_t *counter;
    uint32_t want;
};

static int goal_reached(void *arg)
{
    const struct goal *goal = arg;

    return *goal->counter >= goal->want;
}

void bed_run_until(struct bed *bed, const uint32_t *counter, uint32_t want)
{
    struct goal goal = {counter, want};

    assert_true(nxl_loop_run_until(bed->loop, goal_reached, &goal, 10 * NXL_SEC));
}

long bed_metric(struct bed *bed, const char *name, const char *labels)
{
    enum nxl_metric_type type =
        strstr(name, "_total") != NULL ? NXL_METRIC_COUNTER : NXL_METRIC_GAUGE;
    static const struct {
        const char *name, *help;
    } helps[] = {{"nixlet_backend_broken_promises_total",
                  "Calls of a backend that break the contract; they are ignored"},
                 {"nixlet_backend_ops_total", "Operations that ended, by code"},
                 {"nixlet_backend_inflight", "Operations that are running or not quiet yet"},
                 {"nixlet_backend_refused_total", "Backends that were enabled and not opened"}};

    for (size_t i = 0; i < sizeof(helps) / sizeof(helps[0]); i++)
        if (strcmp(helps[i].name, name) == 0)
            return (long)nxl_metric_value(
                nxl_metric_open(bed->metrics, type, name, helps[i].help, labels));
    fail_msg("metric %s is not known here", name);
    return -1;
}
