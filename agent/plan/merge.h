/* merge.h - the pairs of a request as few pieces; the step of plan.c before a backend is chosen.
 * Only agent/plan includes it. Pure. */
#ifndef NXL_PLAN_MERGE_H
#define NXL_PLAN_MERGE_H

#include "plan/plan.h"

#define NXL_PLAN_PIECES_MAX                                                                        \
    (1u << 23) /* 448 MiB of pieces; 65,536 blocks of 100 layers fit (C-104) */

struct nxl_merge_side {
    struct nxl_catalog_region **used; /* in order of first use: what pieces index */
    uint32_t used_count;
    uint32_t *map; /* region index in the list -> place in used + 1 */
};

struct nxl_merge {
    struct nxl_merge_side local, remote;
    struct nxl_piece *pieces;
    uint32_t count, room;
    uint64_t rows;    /* sum of piece->count */
    uint64_t longest; /* greatest piece->len */
    uint64_t bytes;
};

/* On NXL_OK and on failure: given to nxl_merge_fini(). */
enum nxl_code nxl_merge_pairs(const struct nxl_plan_request *request, struct nxl_merge *merge,
                              struct nxl_err *err);
void nxl_merge_fini(struct nxl_merge *merge);              /* zeroed memory is fine too */
struct nxl_piece *nxl_merge_slot(struct nxl_merge *merge); /* one more piece at the end */

/* split.c: pieces after cutting to what caps allow, and the cutting. */
uint64_t nxl_split_count(const struct nxl_merge *merge, const struct nxl_backend_caps *caps);
/* Replaces merge->pieces; the count must fit in 32 bits. */
void nxl_split_pieces(struct nxl_merge *merge, const struct nxl_backend_caps *caps);

#endif
