/* message.h - what agents say to each other, decoded; and the pure codec for it (message.c).
 * Frames on the link: u32 size, then a body that starts with u16 type. Bounds are checked before
 * use; trailing bytes of a known type are ignored, so that fields can be appended. */
#ifndef NXL_CLUSTER_MESSAGE_H
#define NXL_CLUSTER_MESSAGE_H

#include <nxl/err.h>
#include <nxl/types.h>

struct nxl_bytes;

#define NXL_MESSAGE_VERSION_MIN 1u
#define NXL_MESSAGE_VERSION_MAX 1u
#define NXL_MESSAGE_FRAME_MAX (2u << 20)
#define NXL_MESSAGE_REGIONS_MAX 512u /* per frame; `more` is set when others follow */

enum nxl_message_type {
    NXL_MESSAGE_HELLO = 1, /* version range, cluster, node, agent, address, backends, notice_seen */
    NXL_MESSAGE_PING,      /* sequence, at_ns (sender's clock, echoed) */
    NXL_MESSAGE_PONG,
    NXL_MESSAGE_BYE,        /* text: why */
    NXL_MESSAGE_NOTICE,     /* sequence, target incarnation, from*, transfer, payload */
    NXL_MESSAGE_NOTICE_ACK, /* sequence, code, text */
    NXL_MESSAGE_QUERY,  /* request, ns+name or incarnation, from_ns: who asks. flags 1: subscribe */
    NXL_MESSAGE_ANSWER, /* request, code, text, ns, name, incarnation, revision */
    NXL_MESSAGE_REGIONS, /* incarnation, revision, flags, regions: added; flags 1: first of a full
                            set */
    NXL_MESSAGE_REGION_GONE, /* incarnation, revision, ids */
    NXL_MESSAGE_FACT,     /* incarnation prefix, life, text: reason, sequence: asks for FACT_ACK */
    NXL_MESSAGE_FACT_ACK, /* sequence, at_ns: how long the fence took, ns */
    NXL_MESSAGE_UNSUBSCRIBE, /* incarnation: no more region deltas */
    NXL_MESSAGE_DIGEST, /* request, incarnation, from*: who asks, flags: memory kind, payload: rows,
                           each u64 addr, len, stride, u32 count, device */
    NXL_MESSAGE_DIGEST_ANSWER, /* request, code, text, sequence: XXH3-64 over the rows in order */
    NXL_MESSAGE_TYPES
};

struct nxl_message_backend { /* in HELLO; keys refer to it by name */
    char name[NXL_BACKEND_NAME_MAX + 1];
    struct nxl_view address;
};
struct nxl_message_key {
    uint8_t backend; /* index into the sender's HELLO backends */
    struct nxl_view key;
};
struct nxl_message_region {
    uint64_t id, addr, len;
    uint32_t kind, device;
    uint32_t key_count;
    struct nxl_message_key keys[NXL_BACKENDS_MAX];
};

struct nxl_message {
    uint16_t type;
    uint16_t version_min, version_max;
    uint32_t flags;
    uint32_t more;
    int32_t code;
    uint32_t life; /* enum nxl_life */
    uint64_t request, sequence, revision, transfer, at_ns;
    /* Texts: when decoding they are copied into storage[] and terminated; when encoding they may
     * point anywhere. Never NULL after decoding. */
    const char *cluster, *node, *agent, *address;
    const char *ns, *name, *incarnation; /* the peer spoken of; of a notice: the target's */
    const char *from_ns, *from_name, *from_incarnation;
    const char *text;
    struct nxl_view payload;
    uint32_t backend_count, region_count, id_count;
    struct nxl_message_backend backends[NXL_BACKENDS_MAX];
    const struct nxl_message_region
        *regions; /* encoding: caller's; decoding: in the decoder's scratch */
    const uint64_t *ids;
};

struct nxl_message_decoder; /* scratch for one connection: regions, ids, texts */
struct nxl_message_decoder *nxl_message_decoder_new(void);
void nxl_message_decoder_free(struct nxl_message_decoder *decoder);
/* body without the u32 size. Views point into body, the rest into decoder: lent until the next
 * decode. NXL_MISMATCH: err names type and field. */
NXL_MUST_USE enum nxl_code nxl_message_decode(struct nxl_message_decoder *decoder,
                                              struct nxl_view body, struct nxl_message *ret,
                                              struct nxl_err *err);
/* Appends u32 size and body. NXL_LIMIT: larger than NXL_MESSAGE_FRAME_MAX. NULL texts are written
 * as "". */
NXL_MUST_USE enum nxl_code nxl_message_encode(const struct nxl_message *message,
                                              struct nxl_bytes *to, struct nxl_err *err);

#endif
