/* status.c - vendor status to our codes, transport names to path classes. Pure; any thread. */
#include "status.h"

#include <string.h>

enum nxl_code ucx_status_code(ucs_status_t status)
{
    switch (status) {
    case UCS_OK:
        return NXL_OK;
    case UCS_INPROGRESS:
        return NXL_IN_PROG;
    case UCS_ERR_CANCELED:
    case UCS_ERR_CONNECTION_RESET:
    case UCS_ERR_ENDPOINT_TIMEOUT:
    case UCS_ERR_NOT_CONNECTED:
    case UCS_ERR_REJECTED:
        return NXL_REMOTE_DISCONNECT;
    case UCS_ERR_UNREACHABLE:
    case UCS_ERR_SOME_CONNECTS_FAILED:
        return NXL_UNREACHABLE;
    case UCS_ERR_INVALID_ADDR:
        return NXL_MISMATCH;
    case UCS_ERR_INVALID_PARAM:
    case UCS_ERR_OUT_OF_RANGE:
        return NXL_INVALID_PARAM;
    case UCS_ERR_NO_MEMORY:
    case UCS_ERR_EXCEEDS_LIMIT:
    case UCS_ERR_NO_RESOURCE:
        return NXL_LIMIT;
    case UCS_ERR_UNSUPPORTED:
    case UCS_ERR_NOT_IMPLEMENTED:
    case UCS_ERR_NO_DEVICE:
        return NXL_NOT_SUPPORTED;
    case UCS_ERR_TIMED_OUT:
        return NXL_TIMEOUT;
    default:
        return UCS_IS_ENDPOINT_ERROR(status) || UCS_IS_LINK_ERROR(status) ? NXL_REMOTE_DISCONNECT
                                                                          : NXL_BACKEND;
    }
}

int ucx_status_fatal(ucs_status_t status)
{
    enum nxl_code code = ucx_status_code(status);

    return code == NXL_REMOTE_DISCONNECT || code == NXL_UNREACHABLE;
}

enum nxl_path_class ucx_status_path(const char *transport)
{
    static const struct {
        const char *prefix;
        enum nxl_path_class path;
    } table[] = {
        {"tcp", NXL_PATH_TCP},     {"sysv", NXL_PATH_SHARED},  {"posix", NXL_PATH_SHARED},
        {"cma", NXL_PATH_SHARED},  {"xpmem", NXL_PATH_SHARED}, {"knem", NXL_PATH_SHARED},
        {"self", NXL_PATH_SHARED}, {"rc_", NXL_PATH_RDMA},     {"rc", NXL_PATH_RDMA},
        {"ud", NXL_PATH_RDMA},     {"dc", NXL_PATH_RDMA},      {"gga", NXL_PATH_RDMA},
        {"srd", NXL_PATH_RDMA},    {"ugni", NXL_PATH_RDMA},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (strncmp(transport, table[i].prefix, strlen(table[i].prefix)) == 0)
            return table[i].path;
    return NXL_PATH_TCP; /* unknown: the slowest, so that a minimum path refuses it */
}
