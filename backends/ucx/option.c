/* option.c - settings of this backend and what they become in UCX's own configuration. */
#include "ucx.h"

#include "environment.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS INT64_C(1000000)
#define SECOND (1000 * MS)

const struct nxl_option ucx_options[] = {
    {"library", NXL_OPTION_TEXT, "libucp.so.0", 0, 0, NULL, "shared object to load"},
    {"tls", NXL_OPTION_TEXT, "all", 0, 0, NULL,
     "transports UCX may use (UCX_TLS), such as tcp or posix,sysv,cma,self"},
    {"device_list", NXL_OPTION_TEXT, "", 0, 0, NULL,
     "network devices (UCX_NET_DEVICES); empty: all"},
    {"engine_config", NXL_OPTION_TEXT, "", 0, 0, NULL,
     "further UCX settings as \"K=V,K=V\", applied last"},
    {"protocol", NXL_OPTION_ENUM, "auto", 0, 0, "auto|rma|message",
     "rma: UCX put and get; message: packed messages; auto: rma over RDMA only (shared memory: "
     "never)"},
    {"window", NXL_OPTION_SIZE, "2Mi", 4096, INT64_C(1) << 32, NULL,
     "bytes outstanding on one connection"},
    {"chunk", NXL_OPTION_SIZE, "1Mi", 4096, INT64_C(1) << 30, NULL, "longest single put or get"},
    {"depth", NXL_OPTION_INT, "4096", 1, 1 << 20, NULL, "operations in flight before NXL_AGAIN"},
    {"spin", NXL_OPTION_DURATION, "50us", 0, SECOND, NULL,
     "polling before the progress thread sleeps"},
    {"keepalive", NXL_OPTION_DURATION, "1s", 50 * MS, 3600 * SECOND, NULL,
     "UCX_KEEPALIVE_INTERVAL: how soon a dead peer behind shared memory is noticed"},
    {"drain_timeout", NXL_OPTION_DURATION, "2s", 10 * MS, 3600 * SECOND, NULL,
     "an ended operation that is not quiet by then takes its connection down"},
    {"connect_timeout", NXL_OPTION_DURATION, "5s", 10 * MS, 600 * SECOND, NULL,
     "a new connection that is not wired up by then has failed"},
    {"init_timeout", NXL_OPTION_DURATION, "10s", 10 * MS, 600 * SECOND, NULL, "limit of ucp_init"},
    {NULL, NXL_OPTION_BOOL, NULL, 0, 0, NULL, NULL},
};

void ucx_settings_fini(struct ucx_settings *settings)
{
    free(settings->tls);
    free(settings->device_list);
    free(settings->engine_config);
    memset(settings, 0, sizeof(*settings));
}

enum nxl_code ucx_settings_read(struct ucx_settings *settings, const struct nxl_config *config,
                                struct nxl_err *err)
{
    const char *protocol = config->text(config, "protocol");

    settings->tls = strdup(config->text(config, "tls"));
    settings->device_list = strdup(config->text(config, "device_list"));
    settings->engine_config = strdup(config->text(config, "engine_config"));
    if (settings->tls == NULL || settings->device_list == NULL || settings->engine_config == NULL)
        return nxl_err_set(err, NXL_LIMIT, 0, "no memory for the settings of ucx");
    settings->window_bytes = (uint64_t)config->number(config, "window");
    settings->chunk_bytes = (uint64_t)config->number(config, "chunk");
    settings->depth = (uint32_t)config->number(config, "depth");
    settings->spin_ns = config->number(config, "spin");
    settings->keepalive_ns = config->number(config, "keepalive");
    settings->drain_ns = config->number(config, "drain_timeout");
    settings->connect_ns = config->number(config, "connect_timeout");
    settings->init_ns = config->number(config, "init_timeout");
    settings->protocol = UCX_PROTOCOL_AUTO;
    if (strcmp(protocol, "rma") == 0)
        settings->protocol = UCX_PROTOCOL_RMA;
    if (strcmp(protocol, "message") == 0)
        settings->protocol = UCX_PROTOCOL_MESSAGE;
    settings->rma = settings->protocol == UCX_PROTOCOL_RMA ||
                    (settings->protocol == UCX_PROTOCOL_AUTO && ucx_environment_rdma());
    return NXL_OK;
}

static enum nxl_code setting_modify(struct nxl_backend *backend, ucp_config_t *config,
                                    const char *key, const char *value, struct nxl_err *err)
{
    ucs_status_t status = backend->lib.ucp_config_modify(config, key, value);

    if (status == UCS_OK)
        return NXL_OK;
    return nxl_err_set(err, NXL_CONFIG, 0, "UCX refuses the setting %s=%s: %s", key, value,
                       backend->lib.ucs_status_string(status));
}

/* True if the list of transports may contain one whose name starts with prefix. */
static int tls_has(const char *tls, const char *prefix)
{
    size_t length = strlen(prefix);

    if (tls[0] == '^' || strcmp(tls, "all") == 0)
        return 1;
    for (const char *at = tls; at != NULL; at = strchr(at, ','), at = at ? at + 1 : NULL)
        if (strncmp(at, prefix, length) == 0 ||
            (at[0] == '\\' && strncmp(at + 1, prefix, length) == 0))
            return 1;
    return 0;
}

/* "K=V,K=V" as NIXL's engine_config; a leading UCX_ is taken off. */
static enum nxl_code engine_config_apply(struct nxl_backend *backend, ucp_config_t *config,
                                         struct nxl_err *err)
{
    char *text = strdup(backend->settings.engine_config), *rest = text;
    enum nxl_code code = NXL_OK;

    if (text == NULL)
        return nxl_err_set(err, NXL_LIMIT, 0, "no memory for engine_config");
    for (char *pair = strtok_r(text, ", ", &rest); pair && code == NXL_OK;
         pair = strtok_r(NULL, ", ", &rest)) {
        char *value = strchr(pair, '=');

        if (value == NULL || value == pair) {
            code = nxl_err_set(err, NXL_CONFIG, 0, "engine_config: '%s' is not KEY=VALUE", pair);
            break;
        }
        *value++ = '\0';
        code = setting_modify(backend, config, strncmp(pair, "UCX_", 4) == 0 ? pair + 4 : pair,
                              value, err);
    }
    free(text);
    return code;
}

enum nxl_code ucx_settings_apply(struct nxl_backend *backend, ucp_config_t *config,
                                 struct nxl_err *err)
{
    const struct ucx_settings *settings = &backend->settings;
    char keepalive[32];
    struct {
        const char *key, *value;
        int wanted;
    } table[] = {
        {"TLS", settings->tls, 1},
        {"NET_DEVICES", settings->device_list, settings->device_list[0] != '\0'},
        {"KEEPALIVE_INTERVAL", keepalive, 1},
        {"RNDV_THRESH", "inf", 1}, /* NIXL's value; a message must arrive with its bytes */
        {"MAX_RMA_RAILS", "2", 1},
        /* Without these, shared memory is not used in peer error mode: 1.13 reads the first, later
         * ones the other two. */
        {"MM_ERROR_HANDLING", "y",
         tls_has(settings->tls, "sysv") || tls_has(settings->tls, "posix") ||
             tls_has(settings->tls, "sm") || tls_has(settings->tls, "shm") ||
             tls_has(settings->tls, "mm")},
        /* Blocking connects would stop the thread for a dead host's SYN time-outs, and 1.13 aborts
         * the process if the peer dies between its connect() and its first send(). */
        {"CONN_NB", "y", tls_has(settings->tls, "tcp")},
        {"TCP_CONN_NB", "y", tls_has(settings->tls, "tcp")},
        /* 1.13 reads the short names, later versions the long ones. TX must not exceed RX. */
        {"RX_SEG_SIZE", "256k", tls_has(settings->tls, "tcp")},
        {"TX_SEG_SIZE", "256k", tls_has(settings->tls, "tcp")},
        {"TCP_RX_SEG_SIZE", "256k", tls_has(settings->tls, "tcp")},
        {"TCP_TX_SEG_SIZE", "256k", tls_has(settings->tls, "tcp")},
    };

    (void)snprintf(keepalive, sizeof(keepalive), "%" PRId64 "ms", settings->keepalive_ns / MS);
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        enum nxl_code code =
            table[i].wanted ? setting_modify(backend, config, table[i].key, table[i].value, err)
                            : NXL_OK;
        if (code != NXL_OK)
            return code;
    }
    return engine_config_apply(backend, config, err);
}
