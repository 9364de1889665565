/* size.h - how many bytes and descriptors a request's KV cache makes. Pure. */
#ifndef NXL_CTL_SIZE_H
#define NXL_CTL_SIZE_H

#include <nxl/err.h>

/* One of three: heads (K and V of kv_heads x head_dim), a latent (one vector of `latent` elements,
 * the same on every rank), or fixed parts in bytes (sparse attention: latent and indexer). */
struct ctl_shape {
    const char *name, *aliases; /* aliases: separated by spaces, may be NULL */
    const char *note;           /* may be NULL */
    uint64_t layers, kv_heads, head_dim, latent;
    uint64_t element;  /* bytes */
    uint64_t parts[2]; /* bytes per token and layer */
};

struct ctl_workload {
    const struct ctl_shape *shape;
    uint64_t tokens; /* of one request */
    uint64_t tp;     /* ranks that share the heads */
    uint64_t block;  /* tokens per block */
    uint64_t requests;
};

/* One way to lay blocks out; a descriptor moves one part of one block of one layer. */
struct ctl_layout {
    const char *name;
    uint64_t parts;         /* descriptors per block (and layer, unless it says all layers) */
    uint64_t part_bytes[2]; /* of one descriptor's payload */
    uint64_t regions;       /* per rank */
    uint64_t descriptors;   /* per request and rank, before merging */
    uint64_t index_bytes;   /* 4 bytes a side for each descriptor */
};

#define CTL_LAYOUTS_MAX 4
struct ctl_size {
    uint64_t token_layer, token; /* bytes, whole model */
    uint64_t layer, request;     /* bytes of one request, whole model */
    uint64_t heads;              /* per rank; 0 where there are none */
    uint64_t replicas;           /* ranks that hold the same bytes */
    uint64_t rank_token, rank_request;
    uint64_t rank_all, total; /* all requests: one rank, all ranks */
    uint64_t blocks;          /* per request */
    struct ctl_layout layouts[CTL_LAYOUTS_MAX];
    unsigned layout_count;
};

/* NXL_INVALID_PARAM: a count is 0, or tp does not divide the heads nor the heads tp. NXL_LIMIT: the
 * numbers are too large to mean anything. */
NXL_MUST_USE enum nxl_code ctl_size_compute(const struct ctl_workload *workload,
                                            struct ctl_size *ret, struct nxl_err *err);

/* Known models; NULL behind the last. */
const struct ctl_shape *ctl_model_at(size_t index);
/* By name or alias, upper or lower case. NULL: unknown; *ret_nearest is then a guess or NULL. */
const struct ctl_shape *ctl_model_find(const char *name, const char **ret_nearest);
/* "bf16" gives 2; 0: unknown. */
uint64_t ctl_element_size(const char *word);

#endif
