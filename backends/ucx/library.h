/* library.h - libucp.so.0 by dlopen: one pointer per call that we use. Loaded once, never closed.
 */
#ifndef NXL_UCX_LIBRARY_H
#define NXL_UCX_LIBRARY_H

#include <nxl/err.h>

#include <ucp/api/ucp.h>
#include <ucs/debug/log_def.h>

/* ucp_init() is an inline wrapper of ucp_init_version(). */
/* Rows of one macro never settle under clang-format 14. */
/* clang-format off */
#define UCX_SYMBOLS(X) \
    X(ucp_get_version) \
    X(ucp_config_read) \
    X(ucp_config_modify) \
    X(ucp_config_release) \
    X(ucp_init_version) \
    X(ucp_cleanup) \
    X(ucp_context_query) \
    X(ucp_worker_create) \
    X(ucp_worker_destroy) \
    X(ucp_worker_query) \
    X(ucp_worker_get_address) \
    X(ucp_worker_release_address) \
    X(ucp_worker_get_efd) \
    X(ucp_worker_arm) \
    X(ucp_worker_progress) \
    X(ucp_worker_set_am_recv_handler) \
    X(ucp_ep_create) \
    X(ucp_ep_close_nbx) \
    X(ucp_ep_flush_nbx) \
    X(ucp_ep_print_info) \
    X(ucp_mem_map) \
    X(ucp_mem_unmap) \
    X(ucp_rkey_pack) \
    X(ucp_rkey_buffer_release) \
    X(ucp_ep_rkey_unpack) \
    X(ucp_rkey_destroy) \
    X(ucp_put_nbx) \
    X(ucp_get_nbx) \
    X(ucp_am_send_nbx) \
    X(ucp_request_free) \
    X(ucs_status_string)
/* clang-format on */

struct ucx_library {
#define UCX_POINTER(name) __typeof__(name) *name;
    UCX_SYMBOLS(UCX_POINTER)
#undef UCX_POINTER
    /* Sets what only the environment could set otherwise; may be NULL. */
    ucs_status_t (*ucs_global_opts_set_value)(const char *name, const char *value);
    void (*ucs_log_push_handler)(ucs_log_func_t handler); /* may be NULL */
    int fresh;                                            /* loaded by this call, not before */
    unsigned major, minor, release;
};

/* Blocks for the loading of shared objects. NXL_NOT_SUPPORTED: absent, too old or a second copy. */
NXL_MUST_USE enum nxl_code ucx_library_load(const char *file, struct ucx_library *ret_library,
                                            struct nxl_err *err);

#endif
