/* plan.h - request + catalog views + candidates to ordered pieces. Pure: same input, same plan;
 * nothing is touched, nothing logged. */
#ifndef NXL_PLAN_PLAN_H
#define NXL_PLAN_PLAN_H

#include <nxl/backend.h>

struct nxl_catalog_list;
struct nxl_catalog_region;

/* A backend that could carry it. */
struct nxl_plan_candidate {
    uint32_t instance; /* index of the host instance */
    const char *name;
    struct nxl_backend_caps caps;
    int local;     /* both ends at this agent */
    int reachable; /* remote: the far agent has that backend too */
    int avoid;     /* failed just now for this peer: only if nothing else is left */
};

struct nxl_plan_request {
    enum nxl_op_kind op;
    const struct nxl_catalog_list *local, *remote;
    const uint32_t *local_index, *remote_index; /* NULL: 0..count-1 */
    uint64_t count;                             /* pairs */
    int no_merge;
    enum nxl_path_class min_path;
    int only; /* instance index, -1: any */
    const struct nxl_plan_candidate *candidates;
    uint32_t candidate_count;
};

struct nxl_plan {
    uint32_t instance;
    enum nxl_protocol protocol;
    enum nxl_path_class path; /* what the backend says it can do; the outcome tells what it did */
    struct nxl_piece *pieces;
    uint32_t piece_count; /* after merging and splitting; at least 1: of length 0 if there is no
                             byte to move */
    struct nxl_catalog_region **locals, **remotes; /* what piece->local and ->remote index */
    uint32_t local_count, remote_count;
    uint64_t descriptors; /* as given */
    uint64_t bytes;
    uint64_t cost_ns; /* estimate */
};

/* Gives *ret to nxl_plan_free(). Errors name the pair's index:
 * NXL_INVALID_PARAM length mismatch, index out of range, count 0; NXL_NOT_FOUND no backend has all
 * regions registered on both sides (err lists backend: reason); NXL_PATH_REFUSED only slower than
 * min_path. */
NXL_MUST_USE enum nxl_code nxl_plan_build(const struct nxl_plan_request *request,
                                          struct nxl_plan **ret, struct nxl_err *err);
void nxl_plan_free(struct nxl_plan *plan);

#endif
