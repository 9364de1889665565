/* bench_plan.c - not a test: prints what resolving and planning cost, as JSON lines. Run by hand on
 * a release build. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>

#include "base/clock.h"
#include "unit/catalog/random.h"
#include "unit/plan/rig.h"

enum { REGIONS = 80, BLOCKS = 256, PAIRS = REGIONS * BLOCKS, BLOCK = 8192, ROUNDS = 51 };

static int rising(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static void shuffle(struct random *random, uint32_t *all, uint32_t count)
{
    for (uint32_t i = count; i > 1; i--) {
        uint32_t k = (uint32_t)random_below(random, i), swap = all[i - 1];

        all[i - 1] = all[k];
        all[k] = swap;
    }
}

/* within: 1 shuffles blocks inside each region, as a layer by layer transfer does; 0 all of them.
 */
static void order_fill(struct random *random, uint32_t *order, int within)
{
    for (uint32_t i = 0; i < PAIRS; i++)
        order[i] = i;
    for (uint32_t i = 0; within && i < REGIONS; i++)
        shuffle(random, order + i * BLOCKS, BLOCKS);
    if (!within)
        shuffle(random, order, PAIRS);
}

static void report(const char *what, const struct rig *rig, uint64_t *ns)
{
    qsort(ns, ROUNDS, sizeof(*ns), rising);
    printf("{\"bench\":\"%s\",\"pairs\":%d,\"pieces\":%u,\"min_us\":%.1f,\"p50_us\":%.1f}\n", what,
           PAIRS, rig->plan->piece_count, (double)ns[0] / 1e3, (double)ns[ROUNDS / 2] / 1e3);
}

static void lists_as_runs(struct rig *rig)
{
    rig_side_list(&rig->local);
    rig_side_list(&rig->remote);
    for (uint64_t i = 0; i < REGIONS; i++) {
        const struct nxl_run local = {rig->local.regions[i]->addr, BLOCK, BLOCK, BLOCKS, 0};
        const struct nxl_run remote = {rig->remote.regions[i]->addr, BLOCK, BLOCK, BLOCKS, 0};

        rig_runs(&rig->local, &local, 1);
        rig_runs(&rig->remote, &remote, 1);
    }
}

static void runs_fill(const struct rig_side *side, const uint32_t *order, struct nxl_run *runs)
{
    for (uint32_t i = 0; i < PAIRS; i++)
        runs[i] = (struct nxl_run){
            side->regions[order[i] / BLOCKS]->addr + (order[i] % BLOCKS) * BLOCK, BLOCK, 0, 1, 0};
}

static void by_index(struct rig *rig, const char *what, const uint32_t *local,
                     const uint32_t *remote)
{
    uint64_t ns[ROUNDS];

    rig->request.local_index = local;
    rig->request.remote_index = remote;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t start = nxl_now_ns();

        assert_int_equal(rig_plan(rig, PAIRS), NXL_OK);
        ns[i] = nxl_now_ns() - start;
    }
    report(what, rig, ns);
}

static void by_descriptors(struct rig *rig, const char *what, const uint32_t *local,
                           const uint32_t *remote)
{
    struct nxl_run *runs = calloc(2 * PAIRS, sizeof(*runs));
    uint64_t resolve[ROUNDS], plan[ROUNDS];
    char name[64];

    assert_non_null(runs);
    runs_fill(&rig->local, local, runs);
    runs_fill(&rig->remote, remote, runs + PAIRS);
    rig->request.local_index = rig->request.remote_index = NULL;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t start = nxl_now_ns();

        rig_side_list(&rig->local);
        rig_side_list(&rig->remote);
        rig_runs(&rig->local, runs, PAIRS);
        rig_runs(&rig->remote, runs + PAIRS, PAIRS);
        resolve[i] = nxl_now_ns() - start;
        start = nxl_now_ns();
        assert_int_equal(rig_plan(rig, PAIRS), NXL_OK);
        plan[i] = nxl_now_ns() - start;
    }
    snprintf(name, sizeof(name), "%s, resolve both lists", what);
    report(name, rig, resolve);
    snprintf(name, sizeof(name), "%s, plan", what);
    report(name, rig, plan);
    free(runs);
}

static void rounds_of_registration(void)
{
    enum { COUNT = 10000, REG_ROUNDS = 200 };
    struct nxl_region_table *table = nxl_region_table_new();
    struct nxl_catalog_region **regions = calloc(COUNT, sizeof(struct nxl_catalog_region *));
    uint64_t first = 0, last = 0, id = 0;
    struct nxl_err err;

    assert_non_null(regions);
    for (int round = 0; round < REG_ROUNDS; round++) {
        uint64_t start = nxl_now_ns();

        for (uint64_t i = 0; i < COUNT; i++) {
            regions[i] = nxl_catalog_region_new(NULL, ++id, i * 204800, 204800, NXL_MEM_DRAM, 0);
            assert_int_equal(nxl_region_table_add(table, regions[i], &err), NXL_OK);
        }
        for (uint64_t i = 0; i < COUNT; i++) {
            nxl_region_table_remove(table, regions[i]);
            nxl_catalog_region_free(regions[i]);
        }
        *(round < 10 ? &first : &last) = nxl_now_ns() - start; /* the tenth and the last */
    }
    printf("{\"bench\":\"register and deregister "
           "10,000\",\"round_10_us\":%.1f,\"round_200_us\":%.1f}\n",
           (double)first / 1e3, (double)last / 1e3);
    free(regions);
    nxl_region_table_free(table);
}

static void bench(void **state)
{
    struct rig *rig = *state;
    struct random random = random_seeded(80);
    uint32_t *local = calloc(PAIRS, sizeof(*local)), *remote = calloc(PAIRS, sizeof(*remote));

    assert_true(local != NULL && remote != NULL);
    (void)rig_candidate(rig, "strided");
    for (uint64_t i = 0; i < REGIONS; i++) {
        (void)rig_region(&rig->local, 0x7f0000000000 + i * 3 * BLOCKS * BLOCK,
                         (uint64_t)BLOCKS * BLOCK);
        (void)rig_region(&rig->remote, 0x7e0000000000 + i * 5 * BLOCKS * BLOCK,
                         (uint64_t)BLOCKS * BLOCK);
    }
    lists_as_runs(rig);
    by_index(rig, "index, in order", NULL, NULL);
    order_fill(&random, local, 1);
    order_fill(&random, remote, 1);
    by_index(rig, "index, random within regions", local, remote);
    by_index(rig, "index, same random on both sides", local, local);
    by_descriptors(rig, "descriptors, random within regions", local, remote);
    order_fill(&random, local, 0);
    order_fill(&random, remote, 0);
    by_index(rig, "index on single descriptors, all random", local, remote);
    lists_as_runs(rig);
    by_index(rig, "index, all random", local, remote);
    by_descriptors(rig, "descriptors, all random", local, remote);
    rounds_of_registration();
    free(local);
    free(remote);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(bench, rig_open, rig_close)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
