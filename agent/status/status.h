/* status.h - the HTTP side for people and machines: /metrics, /healthz, /readyz and JSON under /v1.
 * libmicrohttpd without threads of its own, driven by the loop. Loop thread. */
#ifndef NXL_STATUS_STATUS_H
#define NXL_STATUS_STATUS_H

#include <nxl/err.h>

struct nxl_bytes;
struct nxl_loop;
struct nxl_metrics;
struct nxl_settings;
struct nxl_status;

struct nxl_status_source { /* GET path gives JSON */
    const char *path;      /* "/v1/peers" */
    void (*write)(void *arg, const char *path, struct nxl_bytes *to);
    void *arg;
};
struct nxl_status_options {
    struct nxl_loop *loop;
    struct nxl_metrics *metrics;
    const struct nxl_settings *settings;     /* section "http", nxl_status_declare() */
    const struct nxl_status_source *sources; /* borrowed until close */
    unsigned source_count;
    /* 1: ready. 0: not, with a sentence in why (borrowed buffer of the caller). */
    int (*ready)(void *arg, struct nxl_bytes *why);
    void *ready_arg;
};

/* Options: socket (/run/nixlet/http.sock, "" = off), listen (127.0.0.1:7742, "" = off; port 0
 * allowed), connections_max, request_max. On an address that is not loopback only /metrics,
 * /healthz and /readyz are served. */
void nxl_status_declare(struct nxl_settings *settings);
NXL_MUST_USE enum nxl_code nxl_status_open(const struct nxl_status_options *options,
                                           struct nxl_status **ret, struct nxl_err *err);
void nxl_status_close(struct nxl_status *status); /* accepts NULL */
const char *nxl_status_address(
    const struct nxl_status *status); /* "127.0.0.1:7742" with the real port, "" if off */

#endif
