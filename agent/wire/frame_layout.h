/* frame_layout.h - the bytes of a frame, shared by frame.c, frame_encode.c and frame_decode.c only.
 * head, body, then the texts that body sizes announce in the order of their sizes, then the parts
 * of the type in the order of enum frame_part. Little-endian hosts only, as ring.h. */
#ifndef NXL_WIRE_FRAME_LAYOUT_H
#define NXL_WIRE_FRAME_LAYOUT_H

#include "wire/frame.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "frames are copied as they lie in memory: little-endian only"
#endif

struct frame_body {
    uint32_t peer, remote, list, kind, flags, count, more, timeout_ms, slot, generation;
    int32_t os;
    uint32_t blob_size;
    uint64_t arena_offset, size;
    uint16_t name_size, incarnation_size, label_size, address_size, text_size;
    uint16_t reserved[3];
};
_Static_assert(sizeof(struct frame_body) == 80, "no hidden padding");

struct frame_hello { /* then node, ns, backends, program */
    uint32_t magic, version_min, version_max, version;
    uint32_t slots, session;
    uint64_t arena_bytes, notice_bytes, ring_bytes;
    uint16_t node_size, ns_size, backends_size, program_size;
};
_Static_assert(sizeof(struct frame_hello) == 56, "no hidden padding");

struct frame_state { /* then agent */
    uint32_t life, suspect, same_agent;
    uint16_t agent_size, reserved;
    uint64_t regions;
};
_Static_assert(sizeof(struct frame_state) == 24, "no hidden padding");
_Static_assert(sizeof(struct nxl_frame_head) == 16, "no hidden padding");
_Static_assert(sizeof(struct nxl_frame_region) == 40, "no hidden padding");

enum frame_part {
    FRAME_HELLO = 1 << 0,
    FRAME_STATE = 1 << 1,
    FRAME_BLOB = 1 << 2,
    FRAME_REGIONS = 1 << 3,
    FRAME_IDS = 1 << 4,
};

/* Parts that a frame of this type carries; refusals carry none. type is known. */
unsigned nxl_frame_parts(uint16_t type, int reply, int32_t code);
/* NULL if the region is sound, else what is wrong with it. */
const char *nxl_frame_region_flaw(const struct nxl_frame_region *region);
/* 1 if data may stand in an identifying text: no NUL, no control character. */
int nxl_frame_text_clean(const char *data, size_t size);

#endif
