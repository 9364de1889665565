/* plan.c - merge, choose a backend, cut to its limits. Called by xfer; pure: nothing is touched,
 * nothing logged, the same input gives the same plan. */
#include "plan/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "catalog/list.h"
#include "plan/cost.h"
#include "plan/merge.h"
#include "plan/policy.h"

static enum nxl_code request_check(const struct nxl_plan_request *request, struct nxl_err *err)
{
    const struct nxl_catalog_list *lists[2] = {request->local, request->remote};
    const uint32_t *indices[2] = {request->local_index, request->remote_index};

    if (request->count == 0)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "a transfer needs at least one pair of descriptors");
    for (int i = 0; i < 2; i++) {
        if (indices[i] == NULL && request->count > lists[i]->size)
            return nxl_err_set(
                err, NXL_INVALID_PARAM, 0,
                "pair %" PRIu64 ": %s list has only %" PRIu64 " descriptors for %" PRIu64 " pairs",
                lists[i]->size, i == 0 ? "local" : "remote", lists[i]->size, request->count);
    }
    return NXL_OK;
}

/* 1 if a is to be taken rather than b. */
static int better(const struct nxl_plan_candidate *a, uint64_t a_cost,
                  const struct nxl_plan_candidate *b, uint64_t b_cost)
{
    if (!a->avoid != !b->avoid)
        return !a->avoid;
    if (a_cost != b_cost)
        return a_cost < b_cost;
    if (a->caps.path != b->caps.path)
        return a->caps.path > b->caps.path;
    return a->instance < b->instance;
}

static const struct nxl_plan_candidate *candidate_choose(const struct nxl_plan_request *request,
                                                         const struct nxl_merge *merge,
                                                         uint64_t *ret_cost)
{
    const struct nxl_plan_candidate *best = NULL;
    uint64_t best_cost = 0;

    for (uint32_t i = 0; i < request->candidate_count; i++) {
        const struct nxl_plan_candidate *candidate = &request->candidates[i];
        uint64_t cost;

        if (nxl_policy_check(request, merge, candidate, NULL, 0) != NXL_POLICY_FITS)
            continue;
        cost =
            nxl_cost_ns(&candidate->caps, nxl_split_count(merge, &candidate->caps), merge->bytes);
        if (best == NULL || better(candidate, cost, best, best_cost)) {
            best = candidate;
            best_cost = cost;
        }
    }
    *ret_cost = best_cost;
    return best;
}

/* No candidate fits: the mildest refusal gives the code, every one its reason. */
static enum nxl_code refuse(const struct nxl_plan_request *request, const struct nxl_merge *merge,
                            struct nxl_err *err)
{
    enum nxl_policy mildest = NXL_POLICY_UNFIT;
    char reasons[400] = "", reason[128];
    size_t used = 0;

    if (request->candidate_count == 0)
        return nxl_err_set(err, NXL_NOT_FOUND, 0, "no backend is open that could carry this");
    for (uint32_t i = 0; i < request->candidate_count; i++) {
        enum nxl_policy policy =
            nxl_policy_check(request, merge, &request->candidates[i], reason, sizeof(reason));
        int written;

        if (policy < mildest)
            mildest = policy;
        written = snprintf(reasons + used, sizeof(reasons) - used, "%s%s: %s", used > 0 ? "; " : "",
                           request->candidates[i].name, reason);
        used = written > 0 && (size_t)written < sizeof(reasons) - used ? used + (size_t)written
                                                                       : sizeof(reasons) - 1;
    }
    if (mildest == NXL_POLICY_SLOW)
        return nxl_err_set(err, NXL_PATH_REFUSED, 0, "no backend takes path %s or better: %s",
                           nxl_policy_path_word((int)request->min_path), reasons);
    if (mildest == NXL_POLICY_LARGE)
        return nxl_err_set(err, NXL_LIMIT, 0, "too many pieces for one transfer: %s", reasons);
    return nxl_err_set(err, NXL_NOT_FOUND, 0, "no backend can carry this: %s", reasons);
}

static struct nxl_plan *plan_of(const struct nxl_plan_request *request, struct nxl_merge *merge,
                                const struct nxl_plan_candidate *chosen, uint64_t cost_ns)
{
    struct nxl_plan *plan = nxl_new0(sizeof(*plan));

    nxl_split_pieces(merge, &chosen->caps);
    plan->instance = chosen->instance;
    plan->protocol = chosen->local ? NXL_PROTOCOL_LOCAL : NXL_PROTOCOL_DIRECT;
    plan->path = (enum nxl_path_class)chosen->caps.path;
    plan->piece_count = merge->count;
    plan->pieces = NXL_TAKE(merge->pieces);
    plan->local_count = merge->local.used_count;
    plan->locals = NXL_TAKE(merge->local.used);
    plan->remote_count = merge->remote.used_count;
    plan->remotes = NXL_TAKE(merge->remote.used);
    plan->descriptors = request->count;
    plan->bytes = merge->bytes;
    plan->cost_ns = cost_ns;
    return plan;
}

enum nxl_code nxl_plan_build(const struct nxl_plan_request *request, struct nxl_plan **ret,
                             struct nxl_err *err)
{
    NXL_CLEANUP(nxl_merge_fini) struct nxl_merge merge = {0};
    const struct nxl_plan_candidate *chosen;
    uint64_t cost_ns;
    enum nxl_code code = request_check(request, err);

    if (code == NXL_OK)
        code = nxl_merge_pairs(request, &merge, err);
    if (code != NXL_OK)
        return code;
    chosen = candidate_choose(request, &merge, &cost_ns);
    if (chosen == NULL)
        return refuse(request, &merge, err);
    *ret = plan_of(request, &merge, chosen, cost_ns);
    return NXL_OK;
}

void nxl_plan_free(struct nxl_plan *plan)
{
    if (plan == NULL)
        return;
    free(plan->pieces);
    free(plan->locals);
    free(plan->remotes);
    free(plan);
}
