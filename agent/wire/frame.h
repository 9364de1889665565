/* frame.h - control messages on the local socket: one SEQPACKET packet is one frame.
 * Layouts, limits, and the pure codec (frame.c) that client and agent share. Decoding copies into
 * checked structs: afterwards every length is inside its array and every text is terminated.
 *
 * A frame is struct nxl_frame_head and a body. The answer carries the same type with
 * NXL_FRAME_REPLY, the same seq, and a code; if code is negative its body is an error text. */
#ifndef NXL_WIRE_FRAME_H
#define NXL_WIRE_FRAME_H

#include <nxl/err.h>
#include <nxl/types.h>

#define NXL_FRAME_MAX 65536u /* bytes, head included */
#define NXL_FRAME_VERSION_MIN 1u
#define NXL_FRAME_VERSION_MAX 1u
#define NXL_FRAME_MAGIC 0x544c584eu /* "NXLT" */
#define NXL_FRAME_REPLY 0x8000u
#define NXL_FRAME_REGIONS_MAX 1024u /* regions of one REGISTER; ids of one DEREGISTER, METADATA */
#define NXL_FRAME_FDS_MAX 64u
#define NXL_FRAME_BLOB_MAX 32768u
#define NXL_FRAME_ADDRESS_MAX 300u /* "host:port" */

enum nxl_frame_type {
    NXL_FRAME_HELLO = 1,
    NXL_FRAME_PEER_OPEN,
    NXL_FRAME_PEER_CLOSE,
    NXL_FRAME_REGISTER,
    NXL_FRAME_DEREGISTER,
    NXL_FRAME_LIST,
    NXL_FRAME_LIST_FREE,
    NXL_FRAME_METADATA,
    NXL_FRAME_LOAD,
    NXL_FRAME_SEND,
    NXL_FRAME_FETCH,
    NXL_FRAME_WITHDRAW,
    NXL_FRAME_INVALIDATE,
    NXL_FRAME_FIND,
    NXL_FRAME_CHECK,
    NXL_FRAME_CONNECT,
    NXL_FRAME_STATE,
    NXL_FRAME_EXPLAIN,
    NXL_FRAME_GOAWAY, /* agent to client, no answer: it is leaving */
    NXL_FRAME_TYPES
};

/* Fields by type (scalars and the four texts travel in every frame, arrays only where named here):
 * | type       | request                                     | answer                            |
 * | HELLO      | hello: magic versions slots arena_bytes     | hello: version session ring_bytes |
 * |            | notice_bytes program                        | node ns backends; incarnation:    |
 * |            |                                             | the agent's. fds: ring memfd,     |
 * |            |                                             | doorbell, wake-up                 |
 * | PEER_OPEN  | name                                        | peer incarnation                  |
 * | PEER_CLOSE | peer                                        |                                   |
 * | REGISTER   | peer count regions[], fds                   | count ids[], one per region       |
 * | DEREGISTER | peer count ids[]                            | for all, or an error (see below)  |
 * | LIST       | peer remote kind count arena_offset more;   | list size (descriptors so far)    |
 * |            | list: 0 in the first part, then the answer's|                                   |
 * | LIST_FREE  | peer list                                   |                                   |
 * | METADATA   | peer flags count ids[]                      | blob                              |
 * | LOAD       | peer blob                                   | remote name incarnation           |
 * | SEND       | peer label address flags count ids[]        |                                   |
 * | FETCH      | peer name label address timeout_ms          | remote name incarnation           |
 * | WITHDRAW   | peer address                                |                                   |
 * | INVALIDATE | peer remote                                 |                                   |
 * | FIND       | peer name                                   | remote name incarnation           |
 * | CHECK      | peer remote kind count arena_offset more    |                                   |
 * | CONNECT    | peer remote                                 |                                   |
 * | STATE      | peer remote                                 | state                             |
 * | EXPLAIN    | slot generation                             | text                              |
 * | GOAWAY     | code text                                   | none                              |
 * Answers come in any order: seq tells. remote 0 is none; the own peer has an id of its own.
 * The runs of LIST and CHECK may be reused by the client as soon as the answer is there.
 * An error to DEREGISTER of several ids makes the client ask for each by itself; NOT_FOUND is then
 * one that had gone already. */
struct nxl_frame_head {
    uint16_t type;
    uint16_t reserved;
    uint32_t seq;  /* of the request; GOAWAY 0 */
    int32_t code;  /* replies */
    uint32_t size; /* whole frame, equals the packet's length */
};

struct nxl_frame_region { /* wire layout, 40 bytes */
    uint64_t addr, len;
    uint64_t fd_offset; /* where addr lies in the file */
    uint32_t kind, device;
    uint32_t fd_index; /* into the descriptors that came with the frame */
    uint32_t reserved;
};

/* Decoded requests. Arrays are caller-provided storage inside the struct: it is large (~80 KiB),
 * so keep one per session or thread, not on small stacks. */
struct nxl_frame {
    uint16_t type;
    int reply;
    uint32_t seq;
    int32_t code;
    char text[NXL_ERR_TEXT_SIZE]; /* replies with code < 0, EXPLAIN's answer */
    int32_t os;

    uint32_t peer, remote, list; /* ids; 0 where none */
    uint32_t kind, flags;        /* kind: enum nxl_mem_kind; flags: per type */
    uint32_t count;              /* of regions[], ids[], or runs in the arena */
    uint32_t more;               /* LIST, CHECK: further parts follow */
    uint32_t timeout_ms;
    uint32_t slot, generation; /* EXPLAIN */
    uint64_t arena_offset;     /* LIST, CHECK: struct nxl_run[count] */
    uint64_t size;             /* LIST's answer: descriptors */

    char name[NXL_NAME_MAX + 1];
    char incarnation[NXL_INCARNATION_MAX + 1];
    char label[NXL_LABEL_MAX + 1];
    char address[NXL_FRAME_ADDRESS_MAX + 1];

    struct { /* HELLO and its answer */
        uint32_t magic, version_min, version_max, version;
        uint32_t slots, session;
        uint64_t arena_bytes, notice_bytes, ring_bytes;
        char node[NXL_NODE_MAX + 1];
        char ns[NXL_NAMESPACE_MAX + 1];
        char backends[256];
        char program[64];
    } hello;
    struct { /* STATE's answer */
        uint32_t life, suspect, same_agent;
        uint64_t regions;
        char agent[NXL_NODE_MAX + 1];
    } state;

    uint32_t blob_size; /* LOAD, METADATA's answer */
    unsigned char blob[NXL_FRAME_BLOB_MAX];
    struct nxl_frame_region regions[NXL_FRAME_REGIONS_MAX]; /* REGISTER */
    uint64_t ids[NXL_FRAME_REGIONS_MAX]; /* REGISTER's answer, DEREGISTER, METADATA, SEND */
};

/* Pure. Any thread. Encodes into buf (NXL_FRAME_MAX bytes are always enough), *ret_size bytes. */
NXL_MUST_USE enum nxl_code nxl_frame_encode(const struct nxl_frame *frame, void *buf, size_t size,
                                            size_t *ret_size, struct nxl_err *err);
/* NXL_MISMATCH: not a frame we know, or a field out of bounds: err names it. *frame is then void.
 */
NXL_MUST_USE enum nxl_code nxl_frame_decode(struct nxl_view packet, struct nxl_frame *frame,
                                            struct nxl_err *err);
const char *nxl_frame_type_name(uint16_t type);
/* 1 if text is a legal peer name: 1..255 bytes of printable ASCII without '/' and space. */
int nxl_name_valid(const char *name);
int nxl_namespace_valid(const char *ns); /* DNS label: [a-z0-9]([-a-z0-9]*[a-z0-9])?, 1..63 */

#endif
