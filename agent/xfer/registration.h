/* registration.h - what registration.c and regions_leave.c share. Loop thread. */
#ifndef NXL_XFER_REGISTRATION_H
#define NXL_XFER_REGISTRATION_H

#include "xfer/engine.h"

void xfer_mapping_unref(struct nxl_xfer_session *session, struct xfer_mapping *mapping);
/* Deregisters at every backend; one that refuses keeps the mapping alive. */
void xfer_region_backends_close(struct nxl_xfer *xfer, struct nxl_catalog_region *region);

#endif
