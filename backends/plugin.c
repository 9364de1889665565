/* plugin.c - the one exported symbol of a plug-in; compiled once per backend. */
#include <nxl/backend.h>

extern const struct nxl_backend_ops NXL_PLUGIN_OPS;
NXL_EXPORT const struct nxl_backend_ops *nxl_backend_entry(void);

const struct nxl_backend_ops *nxl_backend_entry(void)
{
    return &NXL_PLUGIN_OPS;
}
