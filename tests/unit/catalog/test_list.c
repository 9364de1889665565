/* test_list.c - descriptor lists: joining, splitting at regions, look-up by index, freshness. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "catalog/list.h"
#include "catalog/peer.h"
#include "unit/catalog/random.h"

#define REGIONS_MAX 128

struct rig {
    struct nxl_catalog *catalog;
    struct nxl_catalog_peer *peer;
    struct nxl_catalog_region *regions[REGIONS_MAX];
    uint32_t region_count;
    struct nxl_catalog_list *list;
    struct nxl_err err;
};

static struct nxl_catalog_region *rig_region(struct rig *rig, uint64_t addr, uint64_t len)
{
    struct nxl_catalog_region *region =
        nxl_catalog_region_new(rig->peer, rig->region_count + 1, addr, len, NXL_MEM_DRAM, 0);

    assert_true(rig->region_count < REGIONS_MAX);
    rig->regions[rig->region_count++] = region;
    assert_int_equal(nxl_region_table_add(rig->peer->regions, region, &rig->err), NXL_OK);
    return region;
}

static void rig_drop(struct rig *rig, uint32_t index)
{
    nxl_region_table_remove(rig->peer->regions, rig->regions[index]);
    nxl_catalog_region_free(rig->regions[index]);
    rig->regions[index] = NULL;
}

static int rig_open(void **state)
{
    struct rig *rig = nxl_new0(sizeof(*rig));

    rig->catalog = nxl_catalog_new(NULL, NULL);
    assert_int_equal(
        nxl_catalog_add(rig->catalog, "default", "owner", "p/c/1", 1, &rig->peer, &rig->err),
        NXL_OK);
    rig->list = nxl_catalog_list_new(rig->peer, NXL_MEM_DRAM);
    *state = rig;
    return 0;
}

static int rig_close(void **state)
{
    struct rig *rig = *state;

    nxl_catalog_list_free(rig->list);
    for (uint32_t i = 0; i < rig->region_count; i++) {
        if (rig->regions[i] != NULL)
            rig_drop(rig, i);
    }
    nxl_catalog_free(rig->catalog);
    nxl_freep(state);
    return 0;
}

static enum nxl_code append(struct rig *rig, const struct nxl_run *runs, uint32_t count)
{
    return nxl_catalog_list_append(rig->list, runs, count, NULL, NULL, &rig->err);
}

/* "offset+len*count/stride@region" of every run. */
static void shows(struct rig *rig, const char *expected)
{
    char text[600] = "";
    size_t used = 0;

    for (uint32_t i = 0; i < rig->list->run_count; i++) {
        const struct nxl_list_run *run = &rig->list->runs[i];

        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%llu+%llux%u",
                                 i > 0 ? " " : "", (unsigned long long)run->offset,
                                 (unsigned long long)run->len, run->count);
        if (run->count > 1)
            used += (size_t)snprintf(text + used, sizeof(text) - used, "/%llu",
                                     (unsigned long long)run->stride);
        used += (size_t)snprintf(text + used, sizeof(text) - used, "@%llu",
                                 (unsigned long long)run->region_id);
        assert_true(used < sizeof(text));
        assert_ptr_equal(rig->list->regions[run->region_index].region, run->region);
    }
    assert_string_equal(text, expected);
}

static void neighbours_and_strides_are_joined(void **state)
{
    static const struct {
        struct nxl_run runs[6];
        uint32_t count;
        const char *shows;
    } rows[] = {
        {{{1000, 8, 0, 1, 0}}, 1, "0+8x1@1"},
        {{{1000, 8, 0, 1, 0}, {1008, 8, 0, 1, 0}}, 2, "0+8x2/8@1"},
        {{{1000, 8, 0, 1, 0}, {1008, 8, 0, 1, 0}, {1016, 8, 0, 1, 0}}, 3, "0+8x3/8@1"},
        /* two at a distance are no stride yet, the third makes it one, the fourth goes on */
        {{{1000, 8, 0, 1, 0}, {1020, 8, 0, 1, 0}}, 2, "0+8x1@1 20+8x1@1"},
        {{{1000, 8, 0, 1, 0}, {1020, 8, 0, 1, 0}, {1040, 8, 0, 1, 0}, {1060, 8, 0, 1, 0}},
         4,
         "0+8x4/20@1"},
        {{{1000, 8, 0, 1, 0}, {1020, 8, 0, 1, 0}, {1041, 8, 0, 1, 0}},
         3,
         "0+8x1@1 20+8x1@1 41+8x1@1"},
        /* downwards and overlapping ones stay single */
        {{{1040, 8, 0, 1, 0}, {1020, 8, 0, 1, 0}, {1000, 8, 0, 1, 0}},
         3,
         "40+8x1@1 20+8x1@1 0+8x1@1"},
        {{{1000, 8, 0, 1, 0}, {1004, 8, 0, 1, 0}, {1008, 8, 0, 1, 0}},
         3,
         "0+8x1@1 4+8x1@1 8+8x1@1"},
        /* unequal lengths */
        {{{1000, 8, 0, 1, 0}, {1008, 16, 0, 1, 0}}, 2, "0+8x1@1 8+16x1@1"},
        /* runs: kept whole, prolonged by runs and by singles, begun by a single */
        {{{1000, 8, 32, 4, 0}}, 1, "0+8x4/32@1"},
        {{{1000, 8, 32, 4, 0}, {1128, 8, 32, 2, 0}, {1192, 8, 0, 1, 0}}, 3, "0+8x7/32@1"},
        {{{1000, 8, 0, 1, 0}, {1032, 8, 32, 3, 0}}, 2, "0+8x4/32@1"},
        {{{1000, 8, 32, 4, 0}, {1128, 8, 16, 2, 0}}, 2, "0+8x4/32@1 128+8x2/16@1"},
        {{{1000, 8, 32, 4, 0}, {1129, 8, 32, 2, 0}}, 2, "0+8x4/32@1 129+8x2/32@1"},
        /* never across regions, adjacent as they are */
        {{{1992, 8, 0, 1, 0}, {2000, 8, 0, 1, 0}}, 2, "992+8x1@1 0+8x1@2"},
        /* length 0 is a descriptor too */
        {{{1000, 0, 0, 1, 0}, {1000, 0, 0, 1, 0}}, 2, "0+0x1@1 0+0x1@1"},
        {{{1000, 0, 0, 5, 0}}, 1, "0+0x5/0@1"},
    };
    struct rig *rig = *state;

    (void)rig_region(rig, 1000, 1000);
    (void)rig_region(rig, 2000, 1000);
    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        uint64_t size = 0, bytes = 0;

        nxl_catalog_list_free(rig->list);
        rig->list = nxl_catalog_list_new(rig->peer, NXL_MEM_DRAM);
        assert_int_equal(append(rig, rows[i].runs, rows[i].count), NXL_OK);
        shows(rig, rows[i].shows);
        nxl_catalog_list_free(rig->list);
        rig->list = nxl_catalog_list_new(rig->peer, NXL_MEM_DRAM);
        for (uint32_t k = 0; k < rows[i].count; k++) { /* in many calls it is the same list */
            assert_int_equal(append(rig, &rows[i].runs[k], 1), NXL_OK);
            size += rows[i].runs[k].count;
            bytes += rows[i].runs[k].count * rows[i].runs[k].len;
        }
        shows(rig, rows[i].shows);
        assert_int_equal(rig->list->size, size);
        assert_int_equal(rig->list->bytes, bytes);
    }
}

static void a_run_is_split_between_regions_and_never_within_a_piece(void **state)
{
    struct rig *rig = *state;
    struct nxl_run run = {1000, 100, 150, 8, 0}; /* pieces at 1000, 1150, ..., 2050 */

    (void)rig_region(rig, 1000, 400);  /* pieces 0, 1, 2 ends at 1400 */
    (void)rig_region(rig, 1400, 300);  /* piece 3 at 1450, piece 4 ends at 1700 */
    (void)rig_region(rig, 1750, 1000); /* the rest */
    assert_int_equal(append(rig, &run, 1), NXL_OK);
    shows(rig, "0+100x3/150@1 50+100x2/150@2 0+100x3/150@3");
    run.addr = 1350; /* its first piece lies across the border of 1 and 2 */
    assert_int_equal(append(rig, &run, 1), NXL_NOT_FOUND);
    assert_non_null(strstr(rig->err.text, "descriptor 8 at 0x546, 100 bytes"));
    shows(rig, "0+100x3/150@1 50+100x2/150@2 0+100x3/150@3");
}

static void one_region_for_the_whole_run_is_preferred(void **state)
{
    struct rig *rig = *state;
    struct nxl_run run = {1000, 100, 200, 10, 0};

    (void)rig_region(rig, 1000, 2000);
    (void)rig_region(rig, 1200, 100); /* nested and smaller, but it would cut the run in three */
    assert_int_equal(append(rig, &run, 1), NXL_OK);
    shows(rig, "0+100x10/200@1");
}

static void bad_runs_are_refused_and_append_nothing(void **state)
{
    static const struct {
        struct nxl_run run;
        enum nxl_code code;
        const char *says;
    } rows[] = {
        {{1000, 8, 8, 0, 0}, NXL_INVALID_PARAM, "descriptor 4 is a run at 0x3e8 with count 0"},
        {{1000, 8, 7, 2, 0}, NXL_INVALID_PARAM, "stride 7, less than its length 8"},
        {{UINT64_MAX - 3, 8, 0, 1, 0}, NXL_INVALID_PARAM, "beyond the address space"},
        {{1000, 8, UINT64_MAX / 2, 4, 0}, NXL_INVALID_PARAM, "beyond the address space"},
        {{1000, UINT64_MAX, 0, 1, 0}, NXL_INVALID_PARAM, "beyond the address space"},
        {{1000, 1001, 0, 1, 0},
         NXL_NOT_FOUND,
         "nearest region 1 is [0x3e8, 0x7d0), 1 bytes too short"},
        {{999, 1, 0, 1, 0},
         NXL_NOT_FOUND,
         "no registered region of peer 'owner' (p/c/1) covers it"},
        {{1000, 8, 0, 1, 3}, NXL_NOT_FOUND, "device 3"},
        {{1900, 8, 50, 3, 0},
         NXL_NOT_FOUND,
         "descriptor 6 at 0x7d0, 8 bytes"}, /* its third piece */
    };
    struct rig *rig = *state;
    /* Ends in two single pieces: a following one could fold them, and must be undone. */
    const struct nxl_run good[] = {{1000, 8, 8, 2, 0}, {1100, 8, 0, 1, 0}, {1120, 8, 0, 1, 0}};

    (void)rig_region(rig, 1000, 1000);
    assert_int_equal(append(rig, good, 3), NXL_OK);
    shows(rig, "0+8x2/8@1 100+8x1@1 120+8x1@1");
    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        const struct nxl_run pair[2] = {{1140, 8, 0, 1, 0}, rows[i].run};
        uint32_t hint = 0;

        assert_int_equal(append(rig, &rows[i].run, 1), rows[i].code);
        if (strstr(rig->err.text, rows[i].says) == NULL)
            fail_msg("row %zu says: %s", i, rig->err.text);
        assert_int_equal(append(rig, pair, 2),
                         rows[i].code); /* a good one before it does not stay */
        shows(rig, "0+8x2/8@1 100+8x1@1 120+8x1@1");
        assert_int_equal(rig->list->size, 4);
        assert_int_equal(rig->list->bytes, 32);
        assert_int_equal(nxl_catalog_list_at(rig->list, 3, &hint)->offset, 120);
    }
    assert_int_equal(append(rig, good, 0), NXL_OK); /* no descriptors: nothing happens */
    assert_int_equal(rig->list->size, 4);
}

static void a_refused_append_leaves_no_region_behind(void **state)
{
    struct rig *rig = *state;
    const struct nxl_run runs[] = {{1000, 8, 0, 1, 0}, {5000, 8, 0, 1, 0}, {9000, 8, 0, 1, 0}};

    (void)rig_region(rig, 1000, 1000);
    (void)rig_region(rig, 5000, 1000);
    assert_int_equal(append(rig, &runs[0], 1), NXL_OK);
    assert_int_equal(append(rig, &runs[1], 2), NXL_NOT_FOUND);
    assert_int_equal(rig->list->region_count, 1);
    rig_drop(rig, 1); /* was met by the refused append only */
    assert_true(nxl_catalog_list_fresh(rig->list));
    (void)rig_region(rig, 5000, 1000);
    assert_int_equal(append(rig, &runs[1], 1), NXL_OK);
    shows(rig, "0+8x1@1 0+8x1@3");
}

static int only_id(void *arg, const struct nxl_catalog_region *region)
{
    return region->id == *(uint64_t *)arg;
}

static void partial_metadata_hides_the_other_regions(void **state)
{
    struct rig *rig = *state;
    struct nxl_run run = {1200, 8, 0, 1, 0};
    uint64_t allowed = 1;

    (void)rig_region(rig, 1000, 1000);
    (void)rig_region(rig, 1200, 100);
    assert_int_equal(nxl_catalog_list_append(rig->list, &run, 1, only_id, &allowed, &rig->err),
                     NXL_OK);
    shows(rig, "200+8x1@1");
    allowed = 2;
    run.addr = 1300;
    assert_int_equal(nxl_catalog_list_append(rig->list, &run, 1, only_id, &allowed, &rig->err),
                     NXL_NOT_FOUND);
    assert_null(strstr(rig->err.text, "nearest"));
    assert_non_null(
        strstr(rig->err.text, "the metadata loaded for it names no region that covers this"));
}

/* C-104: any number of blocks is one run and costs one look-up. */
static void six_million_descriptors_are_a_hundred_runs(void **state)
{
    enum { LAYERS = 100, BLOCKS = 65536 };
    struct rig *rig = *state;
    struct nxl_run runs[LAYERS];
    uint32_t hint = 0;

    for (uint32_t i = 0; i < LAYERS; i++) {
        (void)rig_region(rig, (i + 1) * (1ull << 40), (uint64_t)BLOCKS * 8192);
        runs[i] = (struct nxl_run){(i + 1) * (1ull << 40), 4096, 8192, BLOCKS, 0};
    }
    assert_int_equal(append(rig, runs, LAYERS), NXL_OK);
    assert_int_equal(rig->list->run_count, LAYERS);
    assert_int_equal(rig->list->region_count, LAYERS);
    assert_int_equal(rig->list->size, 6553600);
    assert_int_equal(rig->list->bytes, 6553600ull * 4096);
    for (uint64_t index = 0; index < 6553600; index += 65521) {
        const struct nxl_list_run *run = nxl_catalog_list_at(rig->list, index, &hint);

        assert_int_equal(run->region_id, index / BLOCKS + 1);
        assert_int_equal(run->first, index / BLOCKS * BLOCKS);
    }
}

/* C-005: other regions come and go, the list stays right; one of its own goes, it is stale for
 * ever. */
static void a_list_is_stale_once_a_region_of_it_went(void **state)
{
    struct rig *rig = *state;
    const struct nxl_run runs[] = {{1000, 8, 0, 1, 0}, {5000, 8, 0, 1, 0}};
    struct nxl_catalog_region *again;

    assert_true(nxl_catalog_list_fresh(rig->list)); /* empty, and the table too */
    (void)rig_region(rig, 1000, 1000);
    (void)rig_region(rig, 5000, 1000);
    (void)rig_region(rig, 9000, 1000);
    assert_int_equal(append(rig, runs, 2), NXL_OK);
    assert_true(nxl_catalog_list_fresh(rig->list));
    (void)rig_region(rig, 20000, 1000); /* (a) one more */
    assert_true(nxl_catalog_list_fresh(rig->list));
    rig_drop(rig, 2); /* one that the list does not use */
    assert_true(nxl_catalog_list_fresh(rig->list));
    assert_true(nxl_catalog_list_fresh(rig->list));
    rig_drop(rig, 1); /* (b) one that it uses */
    assert_false(nxl_catalog_list_fresh(rig->list));
    again = rig_region(rig, 5000, 1000); /* the same range is another region */
    assert_int_equal(again->id, 5);
    assert_false(nxl_catalog_list_fresh(rig->list));
}

static void a_region_that_goes_between_two_appends_makes_the_list_stale(void **state)
{
    struct rig *rig = *state;
    const struct nxl_run runs[] = {{1000, 8, 0, 1, 0}, {5000, 8, 0, 1, 0}};

    (void)rig_region(rig, 1000, 1000);
    (void)rig_region(rig, 5000, 1000);
    assert_int_equal(append(rig, &runs[0], 1), NXL_OK);
    rig_drop(rig, 0);
    assert_int_equal(append(rig, &runs[1], 1), NXL_OK);
    assert_false(nxl_catalog_list_fresh(rig->list));
}

/* ---- against an oracle ----------------------------------------------------------------------- */

struct descriptor {
    uint64_t addr, len;
};

static int covered(struct rig *rig, uint64_t addr, uint64_t len)
{
    for (uint32_t i = 0; i < rig->region_count; i++) {
        if (rig->regions[i]->addr <= addr &&
            addr + len <= rig->regions[i]->addr + rig->regions[i]->len)
            return 1;
    }
    return 0;
}

static void expanded_equals(struct rig *rig, const struct descriptor *all, uint64_t size,
                            struct random *random)
{
    uint32_t hint = (uint32_t)random_below(random, 1000);
    uint64_t bytes = 0;

    assert_int_equal(rig->list->size, size);
    for (uint64_t i = 0; i < size; i++) {
        uint64_t index = random_below(random, 3) ? i : random_below(random, size);
        const struct nxl_list_run *run = nxl_catalog_list_at(rig->list, index, &hint);

        assert_true(run->first <= index && index - run->first < run->count);
        assert_int_equal(run->len, all[index].len);
        assert_int_equal(run->region->addr + run->offset + (index - run->first) * run->stride,
                         all[index].addr);
        assert_true(all[index].addr >= run->region->addr &&
                    all[index].addr + run->len <= run->region->addr + run->region->len);
        bytes += all[i].len;
    }
    assert_int_equal(rig->list->bytes, bytes);
}

static struct nxl_run random_run(struct random *random, const struct descriptor *last)
{
    struct nxl_run run = {.addr = 1000 + random_below(random, 3800),
                          .len = random_below(random, 3) ? 16 : random_below(random, 40)};

    if (last != NULL && random_below(random, 3) > 0) /* near the last one, so that much is joined */
        run.addr = last->addr + (random_below(random, 2) ? last->len : 32);
    run.count = random_below(random, 3) ? 1 : 1 + (uint32_t)random_below(random, 12);
    run.stride = run.len + (random_below(random, 2) ? 0 : random_below(random, 33));
    return run;
}

static void any_list_expands_to_what_was_appended(void **state)
{
    struct rig *rig = *state;
    struct descriptor *all = calloc(8192, sizeof(*all));
    uint32_t refused = 0;

    assert_non_null(all);
    for (uint64_t at = 1000; at < 5000; at += 400)
        (void)rig_region(rig, at, 400 - (at % 1200 == 0 ? 40 : 0)); /* adjacent, with some gaps */
    (void)rig_region(rig, 1500, 900);                               /* over the borders */
    (void)rig_region(rig, 3100, 60);                                /* nested */
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct random random = random_seeded(seed);
        uint64_t size = 0;

        nxl_catalog_list_free(rig->list);
        rig->list = nxl_catalog_list_new(rig->peer, NXL_MEM_DRAM);
        while (size < 300) {
            struct nxl_run runs[8];
            uint64_t next = size, missing = UINT64_MAX;
            uint32_t count = 1 + (uint32_t)random_below(&random, 8);
            char index[40];

            for (uint32_t i = 0; i < count; i++) {
                runs[i] = random_run(&random, next > 0 ? &all[next - 1] : NULL);
                for (uint32_t k = 0; k < runs[i].count; k++, next++) {
                    all[next] = (struct descriptor){runs[i].addr + k * runs[i].stride, runs[i].len};
                    if (missing == UINT64_MAX && !covered(rig, all[next].addr, all[next].len))
                        missing = next;
                }
            }
            assert_int_equal(append(rig, runs, count),
                             missing == UINT64_MAX ? NXL_OK : NXL_NOT_FOUND);
            if (missing == UINT64_MAX) {
                size = next;
            } else {
                refused++;
                snprintf(index, sizeof(index), "descriptor %llu at 0x%llx,",
                         (unsigned long long)missing, (unsigned long long)all[missing].addr);
                assert_ptr_equal(strstr(rig->err.text, index), rig->err.text);
            }
            expanded_equals(rig, all, size, &random);
        }
    }
    assert_true(refused > 50); /* both ends were met */
    free(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(neighbours_and_strides_are_joined, rig_open, rig_close),
        cmocka_unit_test_setup_teardown(a_run_is_split_between_regions_and_never_within_a_piece,
                                        rig_open, rig_close),
        cmocka_unit_test_setup_teardown(one_region_for_the_whole_run_is_preferred, rig_open,
                                        rig_close),
        cmocka_unit_test_setup_teardown(bad_runs_are_refused_and_append_nothing, rig_open,
                                        rig_close),
        cmocka_unit_test_setup_teardown(a_refused_append_leaves_no_region_behind, rig_open,
                                        rig_close),
        cmocka_unit_test_setup_teardown(partial_metadata_hides_the_other_regions, rig_open,
                                        rig_close),
        cmocka_unit_test_setup_teardown(six_million_descriptors_are_a_hundred_runs, rig_open,
                                        rig_close),
        cmocka_unit_test_setup_teardown(a_list_is_stale_once_a_region_of_it_went, rig_open,
                                        rig_close),
        cmocka_unit_test_setup_teardown(a_region_that_goes_between_two_appends_makes_the_list_stale,
                                        rig_open, rig_close),
        cmocka_unit_test_setup_teardown(any_list_expands_to_what_was_appended, rig_open, rig_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
