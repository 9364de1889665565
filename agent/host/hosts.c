/* hosts.c - opens what is enabled, keeps what was refused and why, closes all. Loop thread. */
#include "host/host_inner.h"

#include "base/assert.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/mem.h"
#include "base/metric.h"
#include "base/option.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENABLED_MAX 1024u

/* The settings of a wrapper whose inner backend is named by the instance: fault:shm. */
struct wrapper_config {
    struct nxl_config config;
    struct nxl_config *base; /* lent */
    char inner[NXL_BACKEND_NAME_MAX + 1];
};

static const char *wrapper_text(const struct nxl_config *config, const char *key)
{
    const struct wrapper_config *wrapper =
        nxl_container_of(config, const struct wrapper_config, config);

    return strcmp(key, "inner") == 0 ? wrapper->inner : wrapper->base->text(wrapper->base, key);
}

static int64_t wrapper_number(const struct nxl_config *config, const char *key)
{
    const struct wrapper_config *wrapper =
        nxl_container_of(config, const struct wrapper_config, config);

    return wrapper->base->number(wrapper->base, key);
}

static struct nxl_config *config_lend(struct nxl_instance *instance, const char *backend)
{
    NXL_CLEANUP(nxl_freep) char *section = nxl_format("backends.%s", backend);
    struct nxl_config *config = nxl_settings_config(instance->hosts->settings, section);

    instance->loop.lent[instance->loop.lent_count++] = config;
    return config;
}

static enum nxl_code host_find(struct nxl_host *host, const char *name,
                               const struct nxl_backend_ops **ret_ops,
                               const struct nxl_config **ret_config, struct nxl_err *err)
{
    struct nxl_instance *instance = nxl_container_of(host, struct nxl_instance, host);
    const struct nxl_hosts *hosts = instance->hosts;
    enum nxl_code code;

    if (instance->loop.lent_count == NXL_COUNT_OF(instance->loop.lent) || instance->backend != NULL)
        return nxl_err_set(err, NXL_NOT_ALLOWED, 0,
                           "another backend is found inside open() only, and one at most");
    code = host_table_find(hosts->statics, hosts->plugin_dir, name, ret_ops, err);
    if (code == NXL_OK)
        *ret_config = config_lend(instance, name);
    return code;
}

static void refuse(struct nxl_hosts *hosts, const char *name, const struct nxl_err *err)
{
    char quoted[2 * HOST_INSTANCE_NAME_MAX + 2], labels[96];
    struct host_refusal *refusal;

    nxl_warn("host", "event=\"backend refused\" backend=%s reason=%s", nxl_quote(name),
             nxl_quote(err->text));
    if (hosts->metrics != NULL) {
        snprintf(labels, sizeof(labels), "backend=\"%s\"",
                 nxl_metric_label(quoted, sizeof(quoted), name));
        nxl_metric_add(nxl_metric_open(hosts->metrics, NXL_METRIC_COUNTER,
                                       "nixlet_backend_refused_total",
                                       "Backends that were enabled and not opened", labels),
                       1);
    }
    if (hosts->refused_count == HOST_REFUSED_MAX)
        return;
    refusal = &hosts->refused[hosts->refused_count++];
    (void)nxl_copy_text(refusal->name, sizeof(refusal->name),
                        name); /* cut names are still a hint */
    (void)nxl_copy_text(refusal->reason, sizeof(refusal->reason), err->text);
}

static void instance_free(struct nxl_instance *instance)
{
    host_slots_fini(instance);
    host_conns_fini(instance);
    for (uint32_t i = 0; i < instance->loop.lent_count; i++)
        free(instance->loop.lent[i]);
    free(instance);
}

static enum nxl_code instance_open_backend(struct nxl_instance *instance, const char *backend,
                                           const char *inner, struct nxl_err *err)
{
    struct wrapper_config wrapper = {
        {sizeof(wrapper.config), wrapper_text, wrapper_number}, NULL, ""};
    const struct nxl_config *config = config_lend(instance, backend);
    struct nxl_backend *opened = NULL;
    enum nxl_code code;

    if (inner != NULL) {
        wrapper.base = instance->loop.lent[0];
        (void)nxl_copy_text(wrapper.inner, sizeof(wrapper.inner), inner); /* length was checked */
        config = &wrapper.config;
    }
    code = instance->ops->open(&instance->host, config, &opened, err);
    for (; instance->loop.lent_count > 0; instance->loop.lent_count--)
        free(instance->loop.lent[instance->loop.lent_count - 1]);
    if (code != NXL_OK)
        return code == NXL_AGAIN || code == NXL_IN_PROG
                   ? nxl_err_set(err, NXL_BACKEND, 0, "its open() answered '%s'",
                                 nxl_code_word(code))
                   : code;
    if (opened == NULL)
        return nxl_err_set(err, NXL_BACKEND, 0, "its open() succeeded without a backend");
    instance->backend = opened;
    instance->caps.size = sizeof(instance->caps);
    instance->ops->query(opened, &instance->caps);
    code = host_caps_check(instance->ops, &instance->caps, err);
    if (code != NXL_OK) {
        instance->ops->close(opened);
        instance->backend = NULL;
    }
    return code;
}

/* "fault:shm": only a backend with the option "inner" wraps another. */
static int is_wrapper(const struct nxl_backend_ops *ops)
{
    for (const struct nxl_option *row = ops->options; row != NULL && row->key != NULL; row++)
        if (strcmp(row->key, "inner") == 0)
            return 1;
    return 0;
}

static enum nxl_code instance_open(struct nxl_hosts *hosts, const char *name,
                                   struct nxl_instance **ret, struct nxl_err *err)
{
    char backend[HOST_INSTANCE_NAME_MAX + 1];
    struct nxl_instance *instance;
    enum nxl_code code;
    char *inner;

    if (nxl_copy_text(backend, sizeof(backend), name) != 0)
        return nxl_err_set(err, NXL_CONFIG, 0, "the name is longer than %u bytes",
                           HOST_INSTANCE_NAME_MAX);
    inner = strchr(backend, ':');
    if (inner != NULL)
        *inner++ = '\0';
    if (nxl_hosts_find(hosts, name) != NULL)
        return nxl_err_set(err, NXL_CONFIG, 0, "it is enabled twice");
    if (hosts->count == NXL_BACKENDS_MAX)
        return nxl_err_set(err, NXL_LIMIT, 0, "%d backends are open already", NXL_BACKENDS_MAX);
    if (inner != NULL && !host_name_ok(inner))
        return nxl_err_set(err, NXL_CONFIG, 0, "'%s' behind the colon is no backend name", inner);
    instance = nxl_new0(sizeof(*instance));
    instance->hosts = hosts;
    instance->index = hosts->count;
    (void)nxl_copy_text(instance->name, sizeof(instance->name), name); /* length was checked */
    host_callbacks_init(instance);
    instance->host.find = host_find;
    code = host_table_find(hosts->statics, hosts->plugin_dir, backend, &instance->ops, err);
    if (code == NXL_OK && inner != NULL && !is_wrapper(instance->ops))
        code = nxl_err_set(err, NXL_CONFIG, 0, "'%s' wraps no other backend", backend);
    if (code == NXL_OK)
        code = instance_open_backend(instance, backend, inner, err);
    if (code != NXL_OK) {
        instance_free(instance);
        if (err->text[0] == '\0')
            (void)nxl_err_set(err, code, 0, "it answered '%s' and no reason", nxl_code_word(code));
        return code;
    }
    host_instance_metrics(instance);
    *ret = instance;
    return NXL_OK;
}

static void enabled_open(struct nxl_hosts *hosts, char *enabled)
{
    char *rest = NULL;

    for (char *name = strtok_r(enabled, ", \t", &rest); name != NULL;
         name = strtok_r(NULL, ", \t", &rest)) {
        struct nxl_instance *instance;
        struct nxl_err err = {0};

        if (instance_open(hosts, name, &instance, &err) != NXL_OK) {
            refuse(hosts, name, &err);
            continue;
        }
        hosts->instances[hosts->count++] = instance;
        nxl_info("host", "event=\"backend open\" backend=%s about=%s", nxl_quote(instance->name),
                 nxl_quote(instance->ops->about != NULL ? instance->ops->about : ""));
    }
}

enum nxl_code nxl_hosts_open(const struct nxl_hosts_options *options, struct nxl_hosts **ret,
                             struct nxl_err *err)
{
    NXL_CLEANUP(nxl_freep)
    char *enabled = nxl_strdup(options->enabled != NULL ? options->enabled : "");
    struct nxl_hosts *hosts;

    if (strlen(enabled) > ENABLED_MAX)
        return nxl_err_set(err, NXL_CONFIG, 0, "the list of backends is longer than %u bytes",
                           ENABLED_MAX);
    hosts = nxl_new0(sizeof(*hosts));
    hosts->loop = options->loop;
    hosts->metrics = options->metrics;
    hosts->settings = options->settings;
    hosts->statics = options->statics;
    hosts->plugin_dir = options->plugin_dir != NULL ? nxl_strdup(options->plugin_dir) : NULL;
    hosts->ops = options->ops;
    hosts->arg = options->arg;
    if (hosts->settings == NULL) {
        hosts->own_settings = nxl_settings_new();
        nxl_hosts_declare(hosts->own_settings, hosts->statics, hosts->plugin_dir);
        hosts->settings = hosts->own_settings;
    }
    hosts->waker = nxl_waker_open(options->loop, host_on_wake, hosts);
    hosts->guard = nxl_timer_open(options->loop, host_on_guard, hosts);
    atomic_store(&hosts->shared.parked, 1); /* nobody polls before the first call */
    enabled_open(hosts, enabled);
    *ret = hosts;
    return NXL_OK;
}

void nxl_hosts_close(struct nxl_hosts *hosts)
{
    if (hosts == NULL)
        return;
    for (uint32_t i = 0; i < hosts->count; i++)
        hosts->instances[i]->loop.closing = 1;
    for (uint32_t i = hosts->count; i > 0; i--) {
        struct nxl_instance *instance = hosts->instances[i - 1];

        instance->ops->close(instance->backend);
        host_queue_drain_all(hosts);
        host_slots_abandon(instance);
        instance->backend = NULL;
    }
    host_queue_drain_all(hosts);
    nxl_waker_close(hosts->waker);
    nxl_timer_close(hosts->guard);
    while (hosts->count > 0)
        instance_free(hosts->instances[--hosts->count]);
    nxl_settings_free(hosts->own_settings);
    free(hosts->plugin_dir);
    free(hosts);
}

uint32_t nxl_hosts_count(const struct nxl_hosts *hosts)
{
    return hosts->count;
}

struct nxl_instance *nxl_hosts_at(struct nxl_hosts *hosts, uint32_t index)
{
    NXL_ASSERT(index < hosts->count);
    return hosts->instances[index];
}

struct nxl_instance *nxl_hosts_find(struct nxl_hosts *hosts, const char *name)
{
    for (uint32_t i = 0; i < hosts->count; i++)
        if (strcmp(hosts->instances[i]->name, name) == 0)
            return hosts->instances[i];
    return NULL;
}

const char *nxl_hosts_refused(const struct nxl_hosts *hosts, uint32_t index,
                              const char **ret_reason)
{
    if (index >= hosts->refused_count)
        return NULL;
    *ret_reason = hosts->refused[index].reason;
    return hosts->refused[index].name;
}
