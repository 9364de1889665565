/* remote.h - what remote.c shares with lookup.c. Loop thread. */
#ifndef NXL_XFER_REMOTE_H
#define NXL_XFER_REMOTE_H

#include "xfer/engine.h"

/* NXL_LIMIT, and nothing is added. */
enum nxl_code xfer_remote_allow(struct xfer_remote *remote, const struct nxl_record *record,
                                struct nxl_err *err);
enum nxl_code xfer_record_make(struct xfer_peer *peer, uint32_t flags, const uint64_t *ids,
                               uint32_t count, struct nxl_record *ret, struct nxl_err *err);
void xfer_name_split(const struct xfer_peer *peer, const char *name, char *ret_ns, size_t room,
                     const char **ret_name);

#endif
