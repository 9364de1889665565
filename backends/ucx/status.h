/* status.h - UCX words in ours. Pure. */
#ifndef NXL_UCX_STATUS_H
#define NXL_UCX_STATUS_H

#include <nxl/err.h>
#include <nxl/types.h>

#include <ucs/type/status.h>

/* A canceled request means that its endpoint was closed under it: REMOTE_DISCONNECT. */
enum nxl_code ucx_status_code(ucs_status_t status);
/* True if the endpoint cannot be used any more, whatever the callback says later. */
int ucx_status_fatal(ucs_status_t status);
/* "tcp/lo" and the like. */
enum nxl_path_class ucx_status_path(const char *transport);

#endif
