/* rig.h - two peers with regions and lists, and candidates to plan over. Backends are marks in the
 * region's arrays: the planner never looks behind them. */
#ifndef NXL_TESTS_PLAN_RIG_H
#define NXL_TESTS_PLAN_RIG_H

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "catalog/list.h"
#include "catalog/peer.h"
#include "plan/plan.h"

#define RIG_REGIONS_MAX 128

struct rig_side {
    struct nxl_catalog_peer *peer;
    struct nxl_catalog_region *regions[RIG_REGIONS_MAX];
    uint32_t count;
    struct nxl_catalog_list *list;
};

struct rig {
    struct nxl_catalog *catalog;
    struct rig_side local, remote;
    struct nxl_plan_candidate candidates[NXL_BACKENDS_MAX];
    struct nxl_plan_request request;
    struct nxl_plan *plan;
    struct nxl_err err;
};

static inline void *rig_mark(void) /* stands for a registered memory; freed by nobody */
{
    static char mark;

    return &mark;
}

static inline void rig_side_list(struct rig_side *side)
{
    nxl_catalog_list_free(side->list);
    side->list = nxl_catalog_list_new(side->peer, NXL_MEM_DRAM);
}

static inline int rig_open(void **state)
{
    struct rig *rig = nxl_new0(sizeof(*rig));

    rig->catalog = nxl_catalog_new(NULL, NULL);
    assert_int_equal(
        nxl_catalog_add(rig->catalog, "ns", "mine", "p/c/1", 1, &rig->local.peer, &rig->err),
        NXL_OK);
    assert_int_equal(
        nxl_catalog_add(rig->catalog, "ns", "theirs", "q/c/1", 0, &rig->remote.peer, &rig->err),
        NXL_OK);
    rig_side_list(&rig->local);
    rig_side_list(&rig->remote);
    rig->request =
        (struct nxl_plan_request){.op = NXL_READ, .only = -1, .candidates = rig->candidates};
    *state = rig;
    return 0;
}

static inline void rig_side_close(struct rig_side *side)
{
    nxl_catalog_list_free(side->list);
    for (uint32_t i = 0; i < side->count; i++) {
        nxl_region_table_remove(side->peer->regions, side->regions[i]);
        memset(side->regions[i]->mems, 0, sizeof(side->regions[i]->mems));
        nxl_catalog_region_free(side->regions[i]);
    }
}

static inline int rig_close(void **state)
{
    struct rig *rig = *state;

    nxl_plan_free(rig->plan);
    rig_side_close(&rig->local);
    rig_side_close(&rig->remote);
    nxl_catalog_free(rig->catalog);
    nxl_freep(state);
    return 0;
}

/* Registered with every backend; theirs have a key of every backend too. */
static inline struct nxl_catalog_region *rig_region(struct rig_side *side, uint64_t addr,
                                                    uint64_t len)
{
    struct nxl_catalog_region *region =
        nxl_catalog_region_new(side->peer, side->count + 1, addr, len, NXL_MEM_DRAM, 0);
    struct nxl_err err;

    assert_true(side->count < RIG_REGIONS_MAX);
    side->regions[side->count++] = region;
    assert_int_equal(nxl_region_table_add(side->peer->regions, region, &err), NXL_OK);
    for (uint32_t i = 0; i < NXL_BACKENDS_MAX; i++) {
        region->mems[i] = rig_mark();
        if (!side->peer->local)
            region->keys[i] = (struct nxl_view){.data = strdup("key"), .size = 3};
    }
    return region;
}

static inline void rig_runs(struct rig_side *side, const struct nxl_run *runs, uint32_t count)
{
    struct nxl_err err;

    assert_int_equal(nxl_catalog_list_append(side->list, runs, count, NULL, NULL, &err), NXL_OK);
}

/* A remote candidate that can do everything for nothing. */
static inline struct nxl_plan_candidate *rig_candidate(struct rig *rig, const char *name)
{
    uint32_t index = rig->request.candidate_count++;
    struct nxl_plan_candidate *candidate = &rig->candidates[index];

    assert_true(index < NXL_BACKENDS_MAX);
    *candidate = (struct nxl_plan_candidate){.instance = index, .name = name, .reachable = 1};
    candidate->caps.size = sizeof(candidate->caps);
    candidate->caps.flags = NXL_CAP_REMOTE | NXL_CAP_STRIDED;
    candidate->caps.path = NXL_PATH_RDMA;
    return candidate;
}

static inline enum nxl_code rig_plan(struct rig *rig, uint64_t count)
{
    struct nxl_plan *plan = NULL;
    enum nxl_code code;

    nxl_plan_free(NXL_TAKE(rig->plan));
    rig->request.local = rig->local.list;
    rig->request.remote = rig->remote.list;
    rig->request.count = count;
    rig->err = (struct nxl_err){0};
    code = nxl_plan_build(&rig->request, &plan, &rig->err);
    assert_true((code == NXL_OK) == (plan != NULL));
    assert_int_equal(rig->err.code, code);
    rig->plan = plan;
    return code;
}

#endif
