/* request.h - what request.c, post.c and dispatch.c share. Loop thread. */
#ifndef NXL_XFER_REQUEST_H
#define NXL_XFER_REQUEST_H

#include "xfer/engine.h"

struct xfer_request *xfer_request_new(struct nxl_xfer_session *session, uint32_t slot);
void xfer_request_plan_free(struct xfer_request *request);
void xfer_request_timed(struct xfer_request *request); /* has a deadline: the tick looks at it */
/* Counts it as running and marks its regions used; undone when it ended and is quiet. */
void xfer_request_started(struct xfer_request *request);
void xfer_path_count(
    struct xfer_request *request); /* describe.c: bytes by backend, path and device */

#endif
