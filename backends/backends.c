/* backends.c - the list of linked-in backends, in order of preference among equals. */
#include "backends.h"

extern const struct nxl_backend_ops nxl_backend_shm_ops;
extern const struct nxl_backend_ops nxl_backend_null_ops;
extern const struct nxl_backend_ops nxl_backend_fault_ops;
#ifdef NXL_HAVE_UCX
extern const struct nxl_backend_ops nxl_backend_ucx_ops;
#endif

const struct nxl_backend_ops *const *nxl_backends_static(void)
{
    static const struct nxl_backend_ops *const list[] = {
        &nxl_backend_shm_ops,
#ifdef NXL_HAVE_UCX
        &nxl_backend_ucx_ops,
#endif
        &nxl_backend_null_ops, &nxl_backend_fault_ops, NULL,
    };

    return list;
}
