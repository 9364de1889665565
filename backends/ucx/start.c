/* start.c - makes UCX's context and worker and takes them down. Runs on the progress thread, so
 * that open() can give up waiting: ucp_init has been seen to hang. */
#include "ucx.h"

#include "status.h"

#include <string.h>

static enum nxl_code ucx_failed(struct nxl_backend *backend, ucs_status_t status, const char *what,
                                struct nxl_err *err)
{
    return nxl_err_set(err, ucx_status_code(status), 0, "%s with tls '%s', devices '%s': %s", what,
                       backend->settings.tls, backend->settings.device_list,
                       backend->lib.ucs_status_string(status));
}

static enum nxl_code context_make(struct nxl_backend *backend, struct nxl_err *err)
{
    const struct ucx_library *lib = &backend->lib;
    ucp_params_t params = {
        .field_mask =
            UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED | UCP_PARAM_FIELD_NAME,
        .features =
            UCP_FEATURE_AM | UCP_FEATURE_WAKEUP | (backend->settings.rma ? UCP_FEATURE_RMA : 0u),
        .mt_workers_shared = 1, /* the loop thread maps memory and packs keys */
        .name = "nixlet",
    };
    ucp_context_attr_t attr = {.field_mask = UCP_ATTR_FIELD_THREAD_MODE};
    ucp_config_t *config = NULL;
    ucs_status_t status = lib->ucp_config_read(NULL, NULL, &config);
    enum nxl_code code;

    if (status != UCS_OK)
        return ucx_failed(backend, status, "ucp_config_read", err);
    code = ucx_settings_apply(backend, config, err);
    if (code == NXL_OK) {
        status =
            lib->ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &backend->context);
        if (status != UCS_OK)
            code = ucx_failed(backend, status, "ucp_init", err);
    }
    lib->ucp_config_release(config);
    if (code != NXL_OK)
        return code;
    status = lib->ucp_context_query(backend->context, &attr);
    if (status != UCS_OK || attr.thread_mode != UCS_THREAD_MODE_MULTI)
        return nxl_err_set(err, NXL_NOT_SUPPORTED, 0,
                           "this UCX was built without thread support (--enable-mt)");
    return NXL_OK;
}

static enum nxl_code worker_make(struct nxl_backend *backend, struct nxl_err *err)
{
    const struct ucx_library *lib = &backend->lib;
    ucp_worker_params_t params = {
        .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
        .thread_mode = UCS_THREAD_MODE_SINGLE,
    };
    ucp_am_handler_param_t handler = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                      UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id = UCX_MESSAGE_ID,
        .cb = ucx_message_on_arrival,
        .arg = backend,
    };
    ucp_worker_attr_t attr = {.field_mask = UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER};
    ucs_status_t status = lib->ucp_worker_create(backend->context, &params, &backend->own.worker);

    if (status != UCS_OK)
        return ucx_failed(backend, status, "ucp_worker_create", err);
    status = lib->ucp_worker_get_efd(backend->own.worker, &backend->own.efd);
    if (status != UCS_OK)
        return ucx_failed(backend, status, "ucp_worker_get_efd", err);
    status = lib->ucp_worker_set_am_recv_handler(backend->own.worker, &handler);
    if (status != UCS_OK)
        return ucx_failed(backend, status, "ucp_worker_set_am_recv_handler", err);
    status = lib->ucp_worker_query(backend->own.worker, &attr);
    if (status != UCS_OK)
        return ucx_failed(backend, status, "ucp_worker_query", err);
    if (attr.max_am_header < sizeof(((struct ucx_request *)NULL)->message))
        return nxl_err_set(err, NXL_NOT_SUPPORTED, 0,
                           "UCX takes message headers of %zu bytes with tls '%s'; %zu are "
                           "needed",
                           attr.max_am_header, backend->settings.tls,
                           sizeof(((struct ucx_request *)NULL)->message));
    return NXL_OK;
}

static enum nxl_code address_take(struct nxl_backend *backend, struct nxl_err *err)
{
    ucp_address_t *address = NULL;
    size_t size = 0;
    ucs_status_t status = backend->lib.ucp_worker_get_address(backend->own.worker, &address, &size);
    enum nxl_code code;

    if (status != UCS_OK)
        return ucx_failed(backend, status, "ucp_worker_get_address", err);
    code = ucx_address_pack(backend, address, size, err);
    backend->lib.ucp_worker_release_address(backend->own.worker, address);
    return code;
}

enum nxl_code ucx_start(struct nxl_backend *backend, struct nxl_err *err)
{
    enum nxl_code code;

    ucx_link_init(&backend->own.conns);
    ucx_link_init(&backend->own.dirty);
    backend->own.next_deadline_ns = UINT64_MAX;
    /* UCX hooks mmap and friends to keep caches that we do not use: we register by hand. */
    if (backend->lib.ucs_global_opts_set_value != NULL)
        (void)backend->lib.ucs_global_opts_set_value("MEM_EVENTS", "n");
    code = context_make(backend, err);
    if (code == NXL_OK)
        code = worker_make(backend, err);
    if (code == NXL_OK)
        code = address_take(backend, err);
    return code;
}

/* Accepts what a failed start has left. Every connection is closed by now. */
void ucx_finish(struct nxl_backend *backend)
{
    if (backend->own.worker != NULL)
        backend->lib.ucp_worker_destroy(backend->own.worker);
    backend->own.worker = NULL;
    ucx_requests_free(backend);
    ucx_replies_free(backend);
    if (backend->context != NULL) {
        ucx_regions_free(backend);
        backend->lib.ucp_cleanup(backend->context);
    }
    backend->context = NULL;
}
