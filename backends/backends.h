/* backends.h - the backends that are linked in; the same tables as in the plug-ins. */
#ifndef NXL_BACKENDS_BACKENDS_H
#define NXL_BACKENDS_BACKENDS_H

#include <nxl/backend.h>

/* NULL-terminated, in order of preference among equals. Static. */
const struct nxl_backend_ops *const *nxl_backends_static(void);

#endif
