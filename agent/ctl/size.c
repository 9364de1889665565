/* size.c - the arithmetic behind `nixletctl size`. Pure; every product is checked. */
#include "ctl/size.h"

#include <string.h>

#include "base/assert.h"

#define INDEX_BYTES 8 /* a 32-bit index for each side */

/* The product of count factors; sets *over instead of wrapping. */
static uint64_t product(int *over, unsigned count, const uint64_t *factors)
{
    uint64_t value = 1;

    for (unsigned i = 0; i < count; i++)
        *over |= __builtin_mul_overflow(value, factors[i], &value);
    return value;
}
#define PRODUCT(over, ...)                                                                         \
    product(over, sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t),                      \
            (const uint64_t[]){__VA_ARGS__})

static enum nxl_code workload_check(const struct ctl_workload *w, struct nxl_err *err)
{
    const struct ctl_shape *s = w->shape;
    unsigned kinds = (s->kv_heads > 0) + (s->latent > 0) + (s->parts[0] > 0);

    if (s->layers == 0 || w->tokens == 0 || w->tp == 0 || w->block == 0 || w->requests == 0)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "layers, tokens, tp, block and requests must be at least 1");
    if (kinds != 1)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "a layer has either heads (--kv-heads and --head-dim) or a latent "
                           "(--latent)");
    if (s->parts[0] == 0 && s->element == 0)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "an element has at least 1 byte");
    if (s->kv_heads > 0 && s->head_dim == 0)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "a head has at least 1 element (--head-dim)");
    if (s->kv_heads > 0 && s->kv_heads % w->tp != 0 && w->tp % s->kv_heads != 0)
        return nxl_err_set(
            err, NXL_INVALID_PARAM, 0,
            "%llu ranks cannot share %llu KV heads evenly: tp must divide the heads, "
            "or be a multiple of them (heads are then replicated)",
            (unsigned long long)w->tp, (unsigned long long)s->kv_heads);
    return NXL_OK;
}

/* parts: pieces of a unit (a block, a token) in one layer; layers 0: one piece spans them all. */
static void layout_add(int *over, struct ctl_size *size, const char *name, uint64_t parts,
                       uint64_t layers, uint64_t units, const uint64_t *part_bytes)
{
    struct ctl_layout *layout = &size->layouts[size->layout_count++];
    uint64_t spread = layers == 0 ? 1 : layers;

    NXL_ASSERT(size->layout_count <= CTL_LAYOUTS_MAX);
    layout->name = name;
    layout->parts = parts;
    layout->part_bytes[0] = part_bytes[0];
    layout->part_bytes[1] = part_bytes[1];
    layout->regions = PRODUCT(over, spread, parts);
    layout->descriptors = PRODUCT(over, spread, parts, units);
    layout->index_bytes = PRODUCT(over, layout->descriptors, INDEX_BYTES);
}

/* rank: bytes of one token and layer at one rank. */
static void layouts_add(int *over, struct ctl_size *size, const struct ctl_workload *w,
                        uint64_t rank)
{
    const struct ctl_shape *s = w->shape;
    uint64_t all[2] = {PRODUCT(over, rank, w->block, s->layers), 0};

    if (s->kv_heads > 0) {
        uint64_t packed[2] = {PRODUCT(over, rank, w->block), 0};
        uint64_t apart[2] = {packed[0] / 2, packed[0] / 2};
        uint64_t slice[2] = {rank / 2, rank / 2};

        layout_add(over, size, "K and V packed", 1, s->layers, size->blocks, packed);
        layout_add(over, size, "K and V apart", 2, s->layers, size->blocks, apart);
        layout_add(over, size, "slices per token (unequal tp)", 2, s->layers, w->tokens, slice);
    } else if (s->latent > 0) {
        uint64_t latent[2] = {PRODUCT(over, rank, w->block), 0};

        layout_add(over, size, "latent", 1, s->layers, size->blocks, latent);
    } else {
        uint64_t parts[2] = {PRODUCT(over, s->parts[0], w->block),
                             PRODUCT(over, s->parts[1], w->block)};

        layout_add(over, size, "latent and indexer", s->parts[1] > 0 ? 2 : 1, s->layers,
                   size->blocks, parts);
    }
    layout_add(over, size, "all layers in one block", 1, 0, size->blocks, all);
}

enum nxl_code ctl_size_compute(const struct ctl_workload *w, struct ctl_size *ret,
                               struct nxl_err *err)
{
    const struct ctl_shape *s = w->shape;
    struct ctl_size size = {0};
    uint64_t rank; /* bytes of one token and layer at one rank */
    int over = 0;
    enum nxl_code code = workload_check(w, err);

    if (code != NXL_OK)
        return code;
    if (s->kv_heads > 0) {
        size.heads = w->tp > s->kv_heads ? 1 : s->kv_heads / w->tp;
        size.replicas = w->tp > s->kv_heads ? w->tp / s->kv_heads : 1;
        size.token_layer = PRODUCT(&over, 2, s->kv_heads, s->head_dim, s->element);
        rank = PRODUCT(&over, 2, size.heads, s->head_dim, s->element);
    } else {
        size.replicas = w->tp;
        size.token_layer =
            s->latent > 0 ? PRODUCT(&over, s->latent, s->element) : s->parts[0] + s->parts[1];
        rank = size.token_layer;
    }
    size.token = PRODUCT(&over, size.token_layer, s->layers);
    size.layer = PRODUCT(&over, size.token_layer, w->tokens);
    size.request = PRODUCT(&over, size.token, w->tokens);
    size.rank_token = PRODUCT(&over, rank, s->layers);
    size.rank_request = PRODUCT(&over, size.rank_token, w->tokens);
    size.rank_all = PRODUCT(&over, size.rank_request, w->requests);
    size.total = PRODUCT(&over, size.rank_all, w->tp);
    size.blocks = w->tokens / w->block + (w->tokens % w->block != 0);
    layouts_add(&over, &size, w, rank);
    for (unsigned i = 0; i < size.layout_count; i++)
        over |= size.layouts[i].index_bytes > INT64_MAX;
    if (over || size.total > INT64_MAX || size.layouts[0].part_bytes[0] > INT64_MAX)
        return nxl_err_set(err, NXL_LIMIT, 0,
                           "these numbers give more than 8 EiB: is one of them wrong?");
    *ret = size;
    return NXL_OK;
}
