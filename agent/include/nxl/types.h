/* types.h - ids, memory kinds, views and limits that application, agent and backends share.
 * Strict C11, valid C++; only plain data, no functions. */
#ifndef NXL_TYPES_H
#define NXL_TYPES_H

#include <stddef.h>
#include <stdint.h>

/* Values are NIXL's nixl_mem_t. */
enum nxl_mem_kind {
    NXL_MEM_DRAM = 0,
    NXL_MEM_VRAM = 1,
    NXL_MEM_BLOCK = 2,
    NXL_MEM_OBJECT = 3,
    NXL_MEM_FILE = 4,
};
#define NXL_MEM_KINDS 5

/* Values are NIXL's nixl_xfer_op_t. READ moves remote to local. */
enum nxl_op_kind {
    NXL_READ = 0,
    NXL_WRITE = 1,
};

/* How bytes reach the other side, slowest first: a policy's minimum compares with <. */
enum nxl_path_class {
    NXL_PATH_NONE = 0,    /* nothing moved yet */
    NXL_PATH_TCP = 1,     /* through the kernel's TCP */
    NXL_PATH_STAGED = 2,  /* packed, sent, unpacked */
    NXL_PATH_RDMA = 3,    /* a NIC reads and writes mapped memory */
    NXL_PATH_SHARED = 4,  /* between agents of one host, through shared memory */
    NXL_PATH_ONE_COPY = 5 /* same agent: one copy between two mappings */
};

enum nxl_protocol {
    NXL_PROTOCOL_NONE = 0,
    NXL_PROTOCOL_DIRECT = 1, /* one-sided put or get between registered regions */
    NXL_PROTOCOL_STAGED = 2,
    NXL_PROTOCOL_LOCAL = 3 /* both ends at the same agent */
};

/* Life of a peer's incarnation: only moves right; suspicion is a flag beside it. */
enum nxl_life {
    NXL_LIFE_LIVE = 0,
    NXL_LIFE_DRAINING = 1,
    NXL_LIFE_DEAD = 2,
};

/* Bytes somebody else owns; travels by value. */
struct nxl_view {
    const void *data;
    size_t size;
};

/* A run of equal pieces: piece k lies at addr + k * stride, 0 <= k < count. One descriptor is a
 * run with count 1. stride may be smaller than len only when count is 1. Addresses are the
 * owner's virtual addresses; they are names, never dereferenced by anybody else. */
struct nxl_run {
    uint64_t addr;
    uint64_t len;    /* bytes of one piece */
    uint64_t stride; /* bytes between starts */
    uint32_t count;
    uint32_t device; /* DRAM: 0 */
};

/* Limits that both sides compile in. What an operator may tune is an agent option instead. */
#define NXL_NAME_MAX 255        /* bytes of a peer name, without NUL */
#define NXL_NAMESPACE_MAX 63    /* as in Kubernetes */
#define NXL_NODE_MAX 253        /* as in Kubernetes */
#define NXL_INCARNATION_MAX 159 /* "pod/container/session" */
#define NXL_NOTICE_MAX (1u << 20)
#define NXL_LABEL_MAX 63
#define NXL_BACKENDS_MAX 8
#define NXL_BACKEND_NAME_MAX 15

#endif
