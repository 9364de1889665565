/* frame.c - what is known about every frame type, and the rules for names. Pure, any thread. */
#include "wire/frame_layout.h"

#include <string.h>

struct frame_kind {
    const char *name;
    unsigned request, reply; /* enum frame_part */
};

static const struct frame_kind frame_kinds[NXL_FRAME_TYPES] = {
    [NXL_FRAME_HELLO] = {"HELLO", FRAME_HELLO, FRAME_HELLO},
    [NXL_FRAME_PEER_OPEN] = {"PEER_OPEN", 0, 0},
    [NXL_FRAME_PEER_CLOSE] = {"PEER_CLOSE", 0, 0},
    [NXL_FRAME_REGISTER] = {"REGISTER", FRAME_REGIONS, FRAME_IDS},
    [NXL_FRAME_DEREGISTER] = {"DEREGISTER", FRAME_IDS, 0},
    [NXL_FRAME_LIST] = {"LIST", 0, 0},
    [NXL_FRAME_LIST_FREE] = {"LIST_FREE", 0, 0},
    [NXL_FRAME_METADATA] = {"METADATA", FRAME_IDS, FRAME_BLOB},
    [NXL_FRAME_LOAD] = {"LOAD", FRAME_BLOB, 0},
    [NXL_FRAME_SEND] = {"SEND", FRAME_IDS, 0},
    [NXL_FRAME_FETCH] = {"FETCH", 0, 0},
    [NXL_FRAME_WITHDRAW] = {"WITHDRAW", 0, 0},
    [NXL_FRAME_INVALIDATE] = {"INVALIDATE", 0, 0},
    [NXL_FRAME_FIND] = {"FIND", 0, 0},
    [NXL_FRAME_CHECK] = {"CHECK", 0, 0},
    [NXL_FRAME_CONNECT] = {"CONNECT", 0, 0},
    [NXL_FRAME_STATE] = {"STATE", 0, FRAME_STATE},
    [NXL_FRAME_EXPLAIN] = {"EXPLAIN", 0, 0},
    [NXL_FRAME_GOAWAY] = {"GOAWAY", 0, 0},
};

unsigned nxl_frame_parts(uint16_t type, int reply, int32_t code)
{
    if (!reply)
        return frame_kinds[type].request;
    return code < 0 ? 0 : frame_kinds[type].reply;
}

const char *nxl_frame_type_name(uint16_t type)
{
    type &= (uint16_t)~NXL_FRAME_REPLY;
    if (type == 0 || type >= NXL_FRAME_TYPES)
        return "unknown";
    return frame_kinds[type].name;
}

const char *nxl_frame_region_flaw(const struct nxl_frame_region *region)
{
    if (region->reserved != 0)
        return "reserved is not 0";
    if (region->kind >= NXL_MEM_KINDS)
        return "kind is unknown";
    if (region->fd_index >= NXL_FRAME_FDS_MAX)
        return "fd_index is out of bounds";
    if (region->addr + region->len < region->addr)
        return "addr plus len overflows";
    if (region->fd_offset + region->len < region->fd_offset)
        return "fd_offset plus len overflows";
    return NULL;
}

int nxl_frame_text_clean(const char *data, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)data[i] < 0x20 || data[i] == 0x7f)
            return 0;
    return 1;
}

int nxl_name_valid(const char *name)
{
    size_t size = strnlen(name, NXL_NAME_MAX + 1);

    if (size == 0 || size > NXL_NAME_MAX)
        return 0;
    for (size_t i = 0; i < size; i++)
        if (name[i] <= 0x20 || name[i] >= 0x7f || name[i] == '/')
            return 0;
    return 1;
}

static int alnum(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

int nxl_namespace_valid(const char *ns)
{
    size_t size = strnlen(ns, NXL_NAMESPACE_MAX + 1);

    if (size == 0 || size > NXL_NAMESPACE_MAX)
        return 0;
    if (!alnum(ns[0]) || !alnum(ns[size - 1]))
        return 0;
    for (size_t i = 0; i < size; i++)
        if (!alnum(ns[i]) && ns[i] != '-')
            return 0;
    return 1;
}
