/* policy.c - decides for one candidate and says why not. Called by plan.c; pure. */
#include "plan/policy.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/assert.h"
#include "base/mem.h"
#include "catalog/region.h"

const char *nxl_policy_path_word(int path)
{
    static const char *const words[] = {
        [NXL_PATH_NONE] = "none", [NXL_PATH_TCP] = "tcp",       [NXL_PATH_STAGED] = "staged",
        [NXL_PATH_RDMA] = "rdma", [NXL_PATH_SHARED] = "shared", [NXL_PATH_ONE_COPY] = "one-copy",
    };

    return path >= 0 && (size_t)path < NXL_COUNT_OF(words) ? words[path] : "unknown";
}

static enum nxl_policy say(enum nxl_policy policy, char *reason, size_t room, const char *text)
{
    if (reason != NULL)
        snprintf(reason, room, "%s", text);
    return policy;
}

static int has_region(const struct nxl_plan_candidate *candidate,
                      const struct nxl_catalog_region *region, int by_key)
{
    return by_key ? region->keys[candidate->instance].data != NULL
                  : region->mems[candidate->instance] != NULL;
}

static enum nxl_policy side_check(const struct nxl_merge_side *side, const char *name,
                                  const struct nxl_plan_candidate *candidate, int by_key,
                                  char *reason, size_t room)
{
    for (uint32_t i = 0; i < side->used_count; i++) {
        const struct nxl_catalog_region *region = side->used[i];

        if (has_region(candidate, region, by_key))
            continue;
        if (reason != NULL)
            snprintf(reason, room, "%s region %" PRIu64 " [0x%" PRIx64 ", 0x%" PRIx64 ") %s it",
                     name, region->id, region->addr, region->addr + region->len,
                     by_key ? "has no key for" : "is not registered with");
        return NXL_POLICY_UNFIT;
    }
    return NXL_POLICY_FITS;
}

static enum nxl_policy reach_check(const struct nxl_plan_request *request,
                                   const struct nxl_plan_candidate *candidate, char *reason,
                                   size_t room)
{
    if (request->only >= 0 && (uint32_t)request->only != candidate->instance)
        return say(NXL_POLICY_UNFIT, reason, room, "not the one asked for");
    if (candidate->local)
        return (candidate->caps.flags & NXL_CAP_LOCAL) != 0
                   ? NXL_POLICY_FITS
                   : say(NXL_POLICY_UNFIT, reason, room, "cannot move within one agent");
    if ((candidate->caps.flags & NXL_CAP_REMOTE) == 0)
        return say(NXL_POLICY_UNFIT, reason, room, "cannot reach another agent");
    if (!candidate->reachable)
        return say(NXL_POLICY_UNFIT, reason, room, "the far agent does not have it");
    return NXL_POLICY_FITS;
}

enum nxl_policy nxl_policy_check(const struct nxl_plan_request *request,
                                 const struct nxl_merge *merge,
                                 const struct nxl_plan_candidate *candidate, char *reason,
                                 size_t room)
{
    enum nxl_policy policy = reach_check(request, candidate, reason, room);
    uint64_t pieces;

    NXL_ASSERT(candidate->instance < NXL_BACKENDS_MAX);
    if (policy == NXL_POLICY_FITS)
        policy = side_check(&merge->local, "local", candidate, 0, reason, room);
    if (policy == NXL_POLICY_FITS)
        policy = side_check(&merge->remote, "remote", candidate, !candidate->local, reason, room);
    if (policy != NXL_POLICY_FITS)
        return policy;
    if (candidate->caps.path < (int)request->min_path) {
        if (reason != NULL)
            snprintf(reason, room, "takes path %s", nxl_policy_path_word(candidate->caps.path));
        return NXL_POLICY_SLOW;
    }
    pieces = nxl_split_count(merge, &candidate->caps);
    if (pieces > NXL_PLAN_PIECES_MAX) {
        if (reason != NULL)
            snprintf(reason, room, "needs %" PRIu64 " pieces, a plan holds %u", pieces,
                     NXL_PLAN_PIECES_MAX);
        return NXL_POLICY_LARGE;
    }
    return NXL_POLICY_FITS;
}
