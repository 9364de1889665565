/* workload.h - what the sample's two roles share: the shape of the request, the table that they
 * send each other, waiting for events. Uses nothing but nixlet.h and xxHash. */
#ifndef NIXLET_SAMPLE_WORKLOAD_H
#define NIXLET_SAMPLE_WORKLOAD_H

#include <nixlet.h>

/* Llama-3-70B, BF16, one of eight tensor-parallel ranks: 80 layers, one KV head of 128 for K and V,
 * blocks of 16 tokens: 2 * 128 * 2 * 16 bytes. A request of 4,096 tokens has 256 blocks a layer. */
#define SAMPLE_LAYERS 80u
#define SAMPLE_BLOCK 8192u
#define SAMPLE_BLOCKS 256u /* of one request */
#define SAMPLE_POOL 512u   /* blocks of one layer's region */
#define SAMPLE_DESCRIPTORS (SAMPLE_LAYERS * SAMPLE_BLOCKS)
#define SAMPLE_BYTES ((uint64_t)SAMPLE_DESCRIPTORS * SAMPLE_BLOCK)

enum sample_kind { SAMPLE_TABLE = 1, SAMPLE_PUSH, SAMPLE_PUSHED, SAMPLE_PING, SAMPLE_BYE };

struct sample_table { /* one notice: where my cache lies and which blocks the request has */
    uint32_t kind, pid;
    uint64_t digest, stamp;
    uint64_t base[SAMPLE_LAYERS];
    uint32_t blocks[SAMPLE_BLOCKS];
};

struct sample {
    struct nxl_client *client;
    struct nxl_peer *peer;
    struct nxl_memreg *regs[SAMPLE_LAYERS];
    unsigned char *cache; /* SAMPLE_LAYERS regions of SAMPLE_POOL blocks */
    uint32_t blocks[SAMPLE_BLOCKS];
};

uint64_t sample_now(void); /* CLOCK_MONOTONIC, ns */
void sample_say(const char *role, const char *fmt, ...) NXL_PRINTF(2, 3);
/* Connects, registers 80 layers, publishes the peer by name. Ends the process with a sentence on
 * error. */
void sample_open(struct sample *s, const char *socket_path, const char *role, uint64_t seed);
void sample_close(struct sample *s);
void sample_fill(struct sample *s, uint64_t seed);
uint64_t
sample_digest(const struct sample *s); /* of the request's blocks, layer by layer, in order */
void sample_table(const struct sample *s, enum sample_kind kind, struct sample_table *ret);
/* 20,480 descriptors by index into two prepared lists of 80 runs. */
struct nxl_transfer *sample_transfer(struct sample *s, enum nxl_op_kind op,
                                     struct nxl_remote *remote, const struct sample_table *theirs,
                                     const struct nxl_transfer_options *options);
/* Waits for an event of this kind (0: any); copies a table's payload if it has that size. */
int sample_event(struct sample *s, uint32_t kind, uint64_t timeout_ns, struct nxl_event *ret,
                 struct sample_table *ret_table);
void sample_check(enum nxl_code code, const struct nxl_err *err,
                  const char *what); /* exits unless OK */

#endif
