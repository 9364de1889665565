/* instance.c - one opened backend: every call checked before and after, operations counted in and
 * out. Loop thread. */
#include "host/host_inner.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metric.h"

#include <stdio.h>
#include <string.h>

void host_instance_metrics(struct nxl_instance *instance)
{
    struct nxl_metrics *metrics = instance->hosts->metrics;
    char quoted[2 * HOST_INSTANCE_NAME_MAX + 2], labels[96];

    if (metrics == NULL)
        return;
    snprintf(labels, sizeof(labels), "backend=\"%s\"",
             nxl_metric_label(quoted, sizeof(quoted), instance->name));
    instance->loop.bytes =
        nxl_metric_open(metrics, NXL_METRIC_COUNTER, "nixlet_backend_bytes_total",
                        "Bytes that operations moved for sure", labels);
    instance->loop.again =
        nxl_metric_open(metrics, NXL_METRIC_COUNTER, "nixlet_backend_again_total",
                        "Submits that were held back by a full backend", labels);
    instance->loop.cancels =
        nxl_metric_open(metrics, NXL_METRIC_COUNTER, "nixlet_backend_cancels_total",
                        "Operations that were asked to end early", labels);
    instance->loop.gauge = nxl_metric_open(metrics, NXL_METRIC_GAUGE, "nixlet_backend_inflight",
                                           "Operations that are running or not quiet yet", labels);
    instance->loop.time_us =
        nxl_metric_open(metrics, NXL_METRIC_HISTOGRAM, "nixlet_backend_op_microseconds",
                        "Time from submit to the delivered outcome", labels);
    instance->shared.broken_metric =
        nxl_metric_open(metrics, NXL_METRIC_COUNTER, "nixlet_backend_broken_promises_total",
                        "Calls of a backend that break the contract; they are ignored", labels);
}

static struct nxl_metric *ended_metric(struct nxl_instance *instance, int code)
{
    uint32_t index = code <= 0 && code > -(int)HOST_CODES ? (uint32_t)-code : HOST_CODES - 1;
    char quoted[2 * HOST_INSTANCE_NAME_MAX + 2], labels[128];

    if (instance->loop.ended[index] == NULL) {
        snprintf(labels, sizeof(labels), "backend=\"%s\",code=\"%s\"",
                 nxl_metric_label(quoted, sizeof(quoted), instance->name), nxl_code_word(code));
        instance->loop.ended[index] =
            nxl_metric_open(instance->hosts->metrics, NXL_METRIC_COUNTER,
                            "nixlet_backend_ops_total", "Operations that ended, by code", labels);
    }
    return instance->loop.ended[index];
}

void host_inflight_show(struct nxl_instance *instance)
{
    if (instance->loop.gauge != NULL)
        nxl_metric_set(instance->loop.gauge, instance->loop.inflight);
}

void host_instance_ended(struct nxl_instance *instance, const struct host_slot *slot,
                         const struct nxl_outcome *outcome)
{
    if (instance->hosts->metrics == NULL)
        return;
    nxl_metric_add(ended_metric(instance, outcome->code), 1);
    nxl_metric_add(instance->loop.bytes, outcome->bytes);
    nxl_metric_observe(instance->loop.time_us, (nxl_now_ns() - slot->loop.begin_ns) / NXL_US);
}

uint32_t nxl_instance_index(const struct nxl_instance *instance)
{
    return instance->index;
}

const char *nxl_instance_name(const struct nxl_instance *instance)
{
    return instance->name;
}

const struct nxl_backend_caps *nxl_instance_caps(const struct nxl_instance *instance)
{
    return &instance->caps;
}

const struct nxl_backend_ops *nxl_instance_ops(const struct nxl_instance *instance)
{
    return instance->ops;
}

uint32_t nxl_instance_inflight(const struct nxl_instance *instance)
{
    return instance->loop.inflight;
}

/* For every call but submit: puts the backend's name in front, and lets no half answer through. */
static enum nxl_code answer(struct nxl_instance *instance, enum nxl_code code, int complete,
                            const char *what, struct nxl_err *err)
{
    if (code == NXL_OK && complete)
        return NXL_OK;
    if (code == NXL_OK)
        code = nxl_err_set(err, NXL_BACKEND, 0, "it answered success without a result");
    else if (code > 0)
        code = nxl_err_set(err, NXL_BACKEND, 0, "it answered '%s', which is no answer here",
                           nxl_code_word(code));
    return nxl_err_wrap(err, code, "backend '%s': %s", instance->name, what);
}

static enum nxl_code usable(struct nxl_instance *instance, int wired, const char *what,
                            struct nxl_err *err)
{
    if (instance->loop.closing)
        return nxl_err_set(err, NXL_NOT_ALLOWED, 0, "backend '%s': %s: it is being closed",
                           instance->name, what);
    if (!wired)
        return nxl_err_set(err, NXL_NOT_SUPPORTED, 0, "backend '%s': %s: it has no such operation",
                           instance->name, what);
    return NXL_OK;
}

enum nxl_code nxl_instance_register(struct nxl_instance *instance, const struct nxl_memory *memory,
                                    struct nxl_backend_mem **ret, struct nxl_err *err)
{
    struct nxl_backend_mem *mem = NULL;
    enum nxl_code code = usable(instance, 1, "register", err);

    if (code != NXL_OK)
        return code;
    if (memory->kind < 0 || memory->kind >= NXL_MEM_KINDS ||
        !(instance->caps.mem_kinds & 1u << memory->kind))
        return nxl_err_set(err, NXL_NOT_SUPPORTED, 0,
                           "backend '%s': register: it takes no memory of kind %d", instance->name,
                           memory->kind);
    code = instance->ops->register_mem(instance->backend, memory, &mem, err);
    code = answer(instance, code, mem != NULL, "register", err);
    if (code == NXL_OK)
        *ret = mem;
    return code;
}

enum nxl_code nxl_instance_deregister(struct nxl_instance *instance, struct nxl_backend_mem *mem,
                                      struct nxl_err *err)
{
    NXL_ASSERT(mem != NULL);
    return answer(instance, instance->ops->deregister_mem(instance->backend, mem, err), 1,
                  "deregister", err);
}

enum nxl_code nxl_instance_address(struct nxl_instance *instance, struct nxl_view *ret,
                                   struct nxl_err *err)
{
    struct nxl_view view = {NULL, 0};
    enum nxl_code code = usable(instance, NXL_BACKEND_HAS(instance->ops, address), "address", err);

    if (code != NXL_OK)
        return code;
    code = instance->ops->address(instance->backend, &view, err);
    code = answer(instance, code,
                  view.data != NULL && view.size > 0 && view.size <= NXL_BACKEND_ADDRESS_MAX,
                  "address", err);
    if (code == NXL_OK)
        *ret = view;
    return code;
}

enum nxl_code nxl_instance_connect(struct nxl_instance *instance, struct nxl_view address,
                                   struct nxl_backend_conn **ret, struct nxl_err *err)
{
    struct nxl_backend_conn *conn = NULL;
    enum nxl_code code = usable(instance, NXL_BACKEND_HAS(instance->ops, connect), "connect", err);

    if (code != NXL_OK)
        return code;
    if (address.data == NULL || address.size == 0 || address.size > NXL_BACKEND_ADDRESS_MAX)
        return nxl_err_set(err, NXL_MISMATCH, 0,
                           "backend '%s': connect: an address of %zu bytes, not 1 to %d",
                           instance->name, address.size, NXL_BACKEND_ADDRESS_MAX);
    code = instance->ops->connect(instance->backend, address, &conn, err);
    code = answer(instance, code, conn != NULL, "connect", err);
    if (code != NXL_OK)
        return code;
    host_conn_add(instance, conn);
    *ret = conn;
    return NXL_OK;
}

void nxl_instance_disconnect(struct nxl_instance *instance, struct nxl_backend_conn *conn)
{
    if (conn == NULL)
        return;
    NXL_ASSERT(NXL_BACKEND_HAS(instance->ops, disconnect));
    instance->ops->disconnect(instance->backend, conn);
    host_conn_forget(instance, conn);
}

enum nxl_code nxl_instance_export(struct nxl_instance *instance, struct nxl_backend_mem *mem,
                                  void *buf, size_t *ret_size, struct nxl_err *err)
{
    size_t size = 0;
    enum nxl_code code =
        usable(instance, NXL_BACKEND_HAS(instance->ops, export_key), "export", err);

    if (code != NXL_OK)
        return code;
    code = instance->ops->export_key(instance->backend, mem, buf, &size, err);
    code = answer(instance, code, size > 0 && size <= NXL_BACKEND_KEY_MAX, "export", err);
    if (code == NXL_OK)
        *ret_size = size;
    return code;
}

enum nxl_code nxl_instance_import(struct nxl_instance *instance, struct nxl_backend_conn *conn,
                                  struct nxl_view key, struct nxl_backend_remote **ret,
                                  struct nxl_err *err)
{
    struct nxl_backend_remote *remote = NULL;
    enum nxl_code code =
        usable(instance, NXL_BACKEND_HAS(instance->ops, import_key), "import", err);

    if (code != NXL_OK)
        return code;
    if (key.data == NULL || key.size == 0 || key.size > NXL_BACKEND_KEY_MAX)
        return nxl_err_set(err, NXL_MISMATCH, 0,
                           "backend '%s': import: a key of %zu bytes, not 1 to %d", instance->name,
                           key.size, NXL_BACKEND_KEY_MAX);
    code = instance->ops->import_key(instance->backend, conn, key, &remote, err);
    code = answer(instance, code, remote != NULL, "import", err);
    if (code == NXL_OK)
        *ret = remote;
    return code;
}

void nxl_instance_forget(struct nxl_instance *instance, struct nxl_backend_remote *remote)
{
    if (remote != NULL && NXL_BACKEND_HAS(instance->ops, forget))
        instance->ops->forget(instance->backend, remote);
}

/* The planner keeps to the capabilities; this is what it would cost to trust that. */
static enum nxl_code op_check(const struct nxl_instance *instance, const struct nxl_op *op,
                              struct nxl_err *err)
{
    const struct nxl_backend_caps *caps = &instance->caps;
    uint32_t need = op->conn != NULL ? NXL_CAP_REMOTE : NXL_CAP_LOCAL;

    if (op->kind != NXL_READ && op->kind != NXL_WRITE)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "backend '%s': operation of kind %d",
                           instance->name, op->kind);
    if (!(caps->flags & need))
        return nxl_err_set(err, NXL_NOT_SUPPORTED, 0, "backend '%s' does not move %s",
                           instance->name,
                           op->conn != NULL ? "to other agents" : "inside one agent");
    if (caps->pieces_max != 0 && op->piece_count > caps->pieces_max)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "backend '%s': %u pieces, it takes %u",
                           instance->name, op->piece_count, caps->pieces_max);
    if (op->piece_count == 0 || op->pieces == NULL || op->locals == NULL ||
        (op->conn != NULL ? (const void *)op->remotes : (const void *)op->peers) == NULL)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "backend '%s': an operation without pieces or regions", instance->name);
    return NXL_OK;
}

enum nxl_code nxl_instance_submit(struct nxl_instance *instance, struct nxl_op *op,
                                  nxl_outcome_fn *on_outcome, nxl_quiesced_fn *on_quiesced,
                                  void *arg, struct nxl_err *err)
{
    enum nxl_code code = usable(instance, 1, "submit", err);
    struct host_slot *slot;

    if (code == NXL_OK)
        code = op_check(instance, op, err);
    if (code != NXL_OK)
        return code;
    slot = host_slot_take(instance);
    if (slot == NULL) {
        instance->loop.starved = 1;
        code = NXL_AGAIN;
    } else {
        slot->loop.on_outcome = on_outcome;
        slot->loop.on_quiesced = on_quiesced;
        slot->loop.arg = arg;
        slot->loop.begin_ns = nxl_now_ns();
        op->id = slot->loop.id;
        op->size = sizeof(*op);
        code = instance->ops->submit(instance->backend, op, err);
        if (code != NXL_OK)
            host_slot_settle(instance, slot); /* waits if the backend has ended what it refuses */
    }
    if (code == NXL_AGAIN && instance->loop.again != NULL)
        nxl_metric_add(instance->loop.again, 1);
    if (code == NXL_AGAIN)
        return NXL_AGAIN;
    if (code != NXL_OK)
        return answer(instance, code, 1, "submit", err);
    host_inflight_show(instance);
    if (NXL_BACKEND_HAS(instance->ops, progress))
        host_kick(instance->hosts);
    return NXL_OK;
}

void nxl_instance_cancel(struct nxl_instance *instance, uint64_t op_id)
{
    struct host_slot *slot = host_slot_of(instance, op_id);

    if (slot == NULL || slot->loop.state != SLOT_RUNNING || slot->loop.id != op_id ||
        instance->backend == NULL)
        return;
    if (!(instance->caps.flags & NXL_CAP_CANCEL) || !NXL_BACKEND_HAS(instance->ops, cancel))
        return;
    if (instance->loop.cancels != NULL)
        nxl_metric_add(instance->loop.cancels, 1);
    instance->ops->cancel(instance->backend, op_id);
    if (NXL_BACKEND_HAS(instance->ops, progress))
        host_kick(instance->hosts);
}
