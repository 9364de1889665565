/* test_region.c - the region table against a brute-force oracle, and its edges one by one. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "catalog/region.h"
#include "catalog/region_tree.h"
#include "unit/catalog/random.h"

#define ORACLE_MAX 256

struct oracle { /* a table and the same regions in a plain array */
    struct nxl_region_table *table;
    struct nxl_catalog_region *regions[ORACLE_MAX];
    uint32_t count;
    uint64_t next_id;
};

static struct nxl_catalog_region *put_as(struct nxl_region_table *table, uint64_t id, uint64_t addr,
                                         uint64_t len, uint32_t kind, uint32_t device)
{
    struct nxl_catalog_region *region = nxl_catalog_region_new(NULL, id, addr, len, kind, device);
    struct nxl_err err;

    assert_int_equal(nxl_region_table_add(table, region, &err), NXL_OK);
    return region;
}

static struct nxl_catalog_region *put(struct nxl_region_table *table, uint64_t id, uint64_t addr,
                                      uint64_t len)
{
    return put_as(table, id, addr, len, NXL_MEM_DRAM, 0);
}

static void drop(struct nxl_region_table *table, struct nxl_catalog_region *region)
{
    nxl_region_table_remove(table, region);
    nxl_catalog_region_free(region);
}

static int first_of(void *arg, struct nxl_catalog_region *region)
{
    *(struct nxl_catalog_region **)arg = region;
    return 1;
}

static void drop_all(struct nxl_region_table *table)
{
    struct nxl_catalog_region *region = NULL;

    while (nxl_region_table_each(table, first_of, &region))
        drop(table, region);
    nxl_region_table_free(table);
}

static uint64_t found(struct nxl_region_table *table, uint64_t addr, uint64_t len)
{
    struct nxl_catalog_region *region = nxl_region_table_find(table, addr, len, NXL_MEM_DRAM, 0);

    return region != NULL ? region->id : 0;
}

/* ---- the oracle ------------------------------------------------------------------------------ */

static int odd_ids(void *arg, const struct nxl_catalog_region *region)
{
    (void)arg;
    return region->id % 2 == 1;
}

static struct nxl_catalog_region *oracle_find(const struct oracle *oracle, uint64_t addr,
                                              uint64_t len, uint32_t kind, uint32_t device,
                                              int odd_only, int exact)
{
    struct nxl_catalog_region *best = NULL;

    for (uint32_t i = 0; i < oracle->count; i++) {
        struct nxl_catalog_region *r = oracle->regions[i];

        if (len > UINT64_MAX - addr || r->kind != kind || r->device != device ||
            (odd_only && r->id % 2 == 0))
            continue;
        if (exact ? r->addr != addr || r->len != len
                  : r->addr > addr || r->addr + r->len < addr + len)
            continue;
        if (best == NULL || r->len < best->len || (r->len == best->len && r->id > best->id))
            best = r;
    }
    return best;
}

static int rising(void *arg, struct nxl_catalog_region *region)
{
    const struct nxl_catalog_region **last = arg, *before = *last;

    if (before != NULL) {
        assert_true(before->kind <= region->kind);
        if (before->kind == region->kind)
            assert_true(before->device <= region->device);
        if (before->kind == region->kind && before->device == region->device)
            assert_true(before->addr <= region->addr);
    }
    *last = region;
    return 0;
}

static void oracle_compare(struct oracle *oracle, struct random *random, uint64_t base,
                           uint64_t room)
{
    uint64_t addr = base + random_below(random, room);
    uint64_t len = random_below(random, 4) == 0 ? 0 : random_below(random, 96);
    uint32_t kind = (uint32_t)random_below(random, 2), device = (uint32_t)random_below(random, 2);

    if (oracle->count > 0 && random_below(random, 2) == 0) { /* exact ends and starts */
        const struct nxl_catalog_region *r = oracle->regions[random_below(random, oracle->count)];

        kind = r->kind;
        device = r->device;
        addr = r->addr + (random_below(random, 2) ? random_below(random, r->len + 1) : 0);
        len = random_below(random, 3) ? r->addr + r->len - addr : len;
    }
    assert_ptr_equal(nxl_region_table_find(oracle->table, addr, len, kind, device),
                     oracle_find(oracle, addr, len, kind, device, 0, 0));
    assert_ptr_equal(
        nxl_region_table_find_if(oracle->table, addr, len, kind, device, odd_ids, NULL),
        oracle_find(oracle, addr, len, kind, device, 1, 0));
    assert_ptr_equal(nxl_region_table_exact(oracle->table, addr, len, kind, device),
                     oracle_find(oracle, addr, len, kind, device, 0, 1));
}

/* grid: regions only fill free slots, so that nothing overlaps but all are adjacent. */
static void oracle_step(struct oracle *oracle, struct random *random, uint64_t base, uint64_t room,
                        int grid)
{
    uint64_t addr = base + random_below(random, room), len = 1 + random_below(random, 200);
    uint32_t kind = (uint32_t)random_below(random, 2), device = (uint32_t)random_below(random, 2);
    int add = random_below(random, 2) == 0;

    if (grid) {
        len = 64;
        addr -= (addr - base) % 64;
    }
    if (!grid && oracle->count > 0 &&
        random_below(random, 4) == 0) { /* the same range again (C-003, C-004) */
        const struct nxl_catalog_region *r = oracle->regions[random_below(random, oracle->count)];

        addr = r->addr;
        len = random_below(random, 2) ? r->len : len;
    }
    if (grid && oracle_find(oracle, addr, len, kind, device, 0, 1) != NULL)
        add = 0;
    if (len > UINT64_MAX - addr)
        return;
    if (add && oracle->count < ORACLE_MAX) {
        oracle->regions[oracle->count++] =
            put_as(oracle->table, ++oracle->next_id, addr, len, kind, device);
    } else if (oracle->count > 0) {
        uint32_t victim = (uint32_t)random_below(random, oracle->count);
        struct nxl_catalog_region *region = oracle->regions[victim];

        assert_ptr_equal(nxl_region_table_by_id(oracle->table, region->id), region);
        nxl_region_table_remove(oracle->table, region);
        assert_null(nxl_region_table_by_id(oracle->table, region->id));
        nxl_catalog_region_free(region);
        oracle->regions[victim] = oracle->regions[--oracle->count];
    }
}

static void oracle_run(uint64_t seed, uint64_t base, uint64_t room, int grid)
{
    struct random random = random_seeded(seed);
    struct oracle oracle = {.table = nxl_region_table_new()};

    for (int step = 0; step < 3000; step++) {
        const struct nxl_catalog_region *last = NULL;

        oracle_step(&oracle, &random, base, room, grid);
        assert_int_equal(nxl_region_table_count(oracle.table), oracle.count);
        for (int i = 0; i < 8; i++)
            oracle_compare(&oracle, &random, base, room);
        if (step % 100 == 0)
            assert_int_equal(nxl_region_table_each(oracle.table, rising, &last), 0);
    }
    drop_all(oracle.table);
}

static void lookup_agrees_with_a_plain_search_under_random_overlap(void **state)
{
    for (uint64_t seed = 1; seed <= 6; seed++)
        oracle_run(seed, 4096, seed % 2 ? 2048 : 400, 0);
}

static void lookup_agrees_at_the_end_of_the_address_space(void **state)
{
    for (uint64_t seed = 11; seed <= 13; seed++)
        oracle_run(seed, UINT64_MAX - 1024, 1024, 0);
}

static void lookup_agrees_when_nothing_overlaps(void **state)
{
    for (uint64_t seed = 21; seed <= 24; seed++)
        oracle_run(seed, 0, 64 * 40, 1);
}

/* ---- edges --------------------------------------------------------------------------------- */

static void edges_are_exact(void **state)
{
    static const struct {
        uint64_t addr, len, id;
    } rows[] = {
        {0x1000, 0x1000, 1},            /* all of it */
        {0x1fff, 1, 1},                 /* its last byte */
        {0x0fff, 1, 0},                 /* one before */
        {0x0fff, 2, 0},                 /* starts outside */
        {0x2000, 1, 2},                 /* the adjacent one */
        {0x1fff, 2, 0},                 /* across the border: no single region covers it */
        {0x2fff, 2, 0},                 /* one beyond */
        {0x3000, 0, 2},                 /* zero length at the end */
        {0x3001, 0, 0},                 /* zero length beyond */
        {0x2000, 0, 2},                 /* at the border both are right: newest of equal size */
        {0x1000, UINT64_MAX, 0},        /* overflow covers nothing */
        {UINT64_MAX, 1, 0},             /* so does the last address with a length */
        {UINT64_MAX - 0xfff, 0xfff, 3}, /* up to the very last byte that can be named */
        {UINT64_MAX, 0, 3},
    };
    struct nxl_region_table *table = nxl_region_table_new();

    (void)put(table, 1, 0x1000, 0x1000);
    (void)put(table, 2, 0x2000, 0x1000);
    (void)put(table, 3, UINT64_MAX - 0xfff, 0xfff);
    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        if (found(table, rows[i].addr, rows[i].len) != rows[i].id)
            fail_msg("row %zu: found %llu, not %llu", i,
                     (unsigned long long)found(table, rows[i].addr, rows[i].len),
                     (unsigned long long)rows[i].id);
    }
    drop_all(table);
}

static void bad_ranges_and_taken_ids_are_refused(void **state)
{
    static const struct {
        uint64_t id, addr, len;
        const char *says;
    } rows[] = {
        {2, 0x5000, 0, "length 0"},
        {2, UINT64_MAX, 1, "beyond the address space"},
        {2, UINT64_MAX - 10, 11, "beyond the address space"},
        {2, 0x1000, UINT64_MAX, "beyond the address space"},
        {1, 0x9000, 16, "id 1 is taken"},
    };
    struct nxl_region_table *table = nxl_region_table_new();
    uint64_t changes;

    (void)put(table, 1, 0x1000, 0x1000);
    changes = nxl_region_table_changes(table);
    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        struct nxl_catalog_region *region =
            nxl_catalog_region_new(NULL, rows[i].id, rows[i].addr, rows[i].len, 0, 0);
        struct nxl_err err = {0};

        assert_int_equal(nxl_region_table_add(table, region, &err), NXL_INVALID_PARAM);
        assert_non_null(strstr(err.text, rows[i].says));
        nxl_catalog_region_free(region);
    }
    assert_int_equal(nxl_region_table_count(table), 1);
    assert_int_equal(nxl_region_table_changes(table), changes);
    drop_all(table);
}

/* C-003: the same range twice is two entries; one may go, the other still serves; a third
 * deregistration finds nothing. */
static void the_same_range_twice_survives_one_removal(void **state)
{
    struct nxl_region_table *table = nxl_region_table_new();
    struct nxl_catalog_region *first = put(table, 1, 0x10000, 1 << 20),
                              *second = put(table, 2, 0x10000, 1 << 20);

    assert_int_equal(found(table, 0x10000, 4096), 2);
    assert_ptr_equal(nxl_region_table_exact(table, 0x10000, 1 << 20, 0, 0), second);
    drop(table, second);
    assert_int_equal(found(table, 0x10000, 4096), 1);
    assert_ptr_equal(nxl_region_table_exact(table, 0x10000, 1 << 20, 0, 0), first);
    drop(table, first);
    assert_int_equal(found(table, 0x10000, 4096), 0);
    assert_null(nxl_region_table_exact(table, 0x10000, 1 << 20, 0, 0));
    assert_null(nxl_region_table_by_id(table, 1));
    drop_all(table);
}

/* C-004: a shared base is no shared identity; overlapping regions outlive each other. */
static void regions_with_one_base_keep_their_own_geometry(void **state)
{
    struct nxl_region_table *table = nxl_region_table_new();
    struct nxl_catalog_region *x = put(table, 1, 0x100000, 65536),
                              *y = put(table, 2, 0x100000, 16384);
    struct nxl_catalog_region *low, *high;

    assert_int_equal(found(table, 0x100000 + 5 * 1024, 1024), 2);
    assert_int_equal(found(table, 0x100000 + 5 * 4096, 4096), 1);
    drop(table, y);
    assert_int_equal(found(table, 0x100000 + 5 * 1024, 1024), 1);
    drop(table, x);

    low = put(table, 3, 0x400000, 2 << 20);
    high = put(table, 4, 0x400000 + (1 << 20), 2 << 20);
    assert_int_equal(found(table, 0x400000 + (1 << 20), 1 << 20), 4);
    drop(table, low);
    assert_int_equal(found(table, 0x400000 + (1 << 20), 2 << 20), 4);
    assert_int_equal(found(table, 0x400000, 16), 0);
    drop(table, high);
    drop_all(table);
}

static void kinds_and_devices_are_worlds_apart(void **state)
{
    struct nxl_region_table *table = nxl_region_table_new();

    (void)put_as(table, 1, 0, 4096, NXL_MEM_DRAM, 0);
    (void)put_as(table, 2, 0, 4096, NXL_MEM_VRAM, 0);
    (void)put_as(table, 3, 0, 4096, NXL_MEM_VRAM, 1);
    (void)put_as(table, 4, 0, 1u << 30, NXL_MEM_FILE, 7);
    assert_int_equal(nxl_region_table_find(table, 0, 64, NXL_MEM_DRAM, 0)->id, 1);
    assert_int_equal(nxl_region_table_find(table, 0, 64, NXL_MEM_VRAM, 0)->id, 2);
    assert_int_equal(nxl_region_table_find(table, 0, 64, NXL_MEM_VRAM, 1)->id, 3);
    assert_null(nxl_region_table_find(table, 0, 64, NXL_MEM_DRAM, 1));
    assert_null(nxl_region_table_find(table, 0, 8192, NXL_MEM_VRAM, 1));
    assert_int_equal(nxl_region_table_find(table, 8192, 8192, NXL_MEM_FILE, 7)->id, 4);
    drop_all(table);
}

static void the_nearest_region_is_named(void **state)
{
    static const struct {
        uint64_t addr, len;
        uint32_t kind;
        const char *says;
    } rows[] = {
        {0x0f00, 16, 0, "nearest region 1 is [0x1000, 0x2000), 256 bytes further up"},
        {0x1f00, 512, 0, "nearest region 1 is [0x1000, 0x2000), 256 bytes too short"},
        {0x2000, 16, 0, "nearest region 1 is [0x1000, 0x2000), 0 bytes further down"},
        {0x2010, 16, 0, "nearest region 1 is [0x1000, 0x2000), 16 bytes further down"},
        {0x7000, 16, 0, "nearest region 2 is [0x8000, 0x9000), 4096 bytes further up"},
        {0x8fff, UINT64_MAX, 0,
         "nearest region 2 is [0x8000, 0x9000), 18446744073709514751 bytes too short"},
        {UINT64_MAX, 5, 0,
         "nearest region 2 is [0x8000, 0x9000), 18446744073709514751 bytes further down"},
        {0x1000, 16, 1, "there is no region of memory kind 1, device 0, only 2 of others"},
    };
    struct nxl_region_table *table = nxl_region_table_new();
    char text[200];

    nxl_region_table_nearest(table, 0, 1, 0, 0, text, sizeof(text));
    assert_string_equal(text, "there is no region");
    (void)put(table, 1, 0x1000, 0x1000);
    (void)put(table, 2, 0x8000, 0x1000);
    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        nxl_region_table_nearest(table, rows[i].addr, rows[i].len, rows[i].kind, 0, text,
                                 sizeof(text));
        assert_string_equal(text, rows[i].says);
    }
    drop_all(table);
}

/* C-105: 200 rounds of 10,000 small views, all of them found in the middle of every round. That the
 * work per step does not grow is test_region_tree.c's bound on the height; here nothing may be
 * left. */
static void two_hundred_rounds_of_ten_thousand_leave_nothing(void **state)
{
    enum { COUNT = 10000, ROUNDS = 200 };
    struct nxl_region_table *table = nxl_region_table_new();
    struct nxl_catalog_region **regions = calloc(COUNT, sizeof(struct nxl_catalog_region *));
    struct random random = random_seeded(105);
    uint64_t id = 0;

    assert_non_null(regions);
    for (int round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < COUNT; i++)
            regions[i] = put(table, ++id, (uint64_t)i * 204800, 204800);
        assert_int_equal(nxl_region_table_count(table), COUNT);
        for (uint32_t i = 0; i < 64; i++) {
            uint64_t which = random_below(&random, COUNT);

            assert_ptr_equal(nxl_region_table_find(table, which * 204800 + 204799, 1, 0, 0),
                             regions[which]);
            assert_ptr_equal(nxl_region_table_by_id(table, id - COUNT + 1 + which), regions[which]);
        }
        for (uint32_t i = 0; i < COUNT; i++) /* forwards, backwards, then every third first */
            drop(table, regions[round % 3 == 0   ? i
                                : round % 3 == 1 ? COUNT - 1 - i
                                                 : i * 3 % COUNT]);
        assert_int_equal(nxl_region_table_count(table), 0);
        assert_int_equal(nxl_region_table_changes(table), 2ull * COUNT * (uint64_t)(round + 1));
    }
    free(regions);
    nxl_region_table_free(table);
}

struct counted {
    uint32_t calls;
    int verdict;
};

static int counts(void *arg, const struct nxl_catalog_region *region)
{
    struct counted *counted = arg;

    counted->calls++;
    return counted->verdict;
}

/* A client may register the same memory in thousands of staggered pieces; a look-up still takes a
 * bounded number of looks and finds a region that covers the range. */
static void a_pile_of_staggered_regions_costs_a_bounded_search(void **state)
{
    enum { COUNT = 10000, LEN = 100000 };
    struct nxl_region_table *table = nxl_region_table_new();

    for (uint64_t i = 0; i < COUNT; i++) /* falling ids: every one further down is older */
        (void)put(table, i + 1, 0x100000 + COUNT - i, LEN - i % 7);
    for (uint64_t addr = 0x100000 + COUNT; addr < 0x100000 + LEN / 2; addr += 977) {
        struct counted taken = {.verdict = 1}, refused = {.verdict = 0};
        struct nxl_catalog_region *region =
            nxl_region_table_find_if(table, addr, 8, NXL_MEM_DRAM, 0, counts, &taken);

        assert_non_null(region);
        assert_true(region->addr <= addr && addr + 8 <= region->addr + region->len);
        assert_in_range(taken.calls, 1, NXL_REGION_LOOKS + 1);
        assert_null(nxl_region_table_find_if(table, addr, 8, NXL_MEM_DRAM, 0, counts, &refused));
        assert_in_range(refused.calls, 64, NXL_REGION_LOOKS_FILTERED + 1);
    }
    drop_all(table);
}

/* One range a thousand times: the newest at once; with a filter, any one that it takes. */
static int is_the_first(void *arg, const struct nxl_catalog_region *region)
{
    return region->id == 1;
}

static void one_range_a_thousand_times_is_no_pile(void **state)
{
    struct nxl_region_table *table = nxl_region_table_new();

    for (uint64_t i = 1; i <= 1000; i++)
        (void)put(table, i, 0x1000, 4096);
    assert_int_equal(found(table, 0x1800, 16), 1000);
    assert_int_equal(nxl_region_table_find_if(table, 0x1800, 16, 0, 0, is_the_first, NULL)->id, 1);
    drop_all(table);
}

static void freeing_a_region_frees_its_keys(void **state)
{
    struct nxl_catalog_region *region =
        nxl_catalog_region_new(NULL, 9, 0x1000, 16, NXL_MEM_DRAM, 3);

    assert_int_equal(region->id, 9);
    assert_int_equal(region->device, 3);
    assert_int_equal(region->uses, 0);
    region->keys[2] =
        (struct nxl_view){.data = strdup("key"), .size = 3}; /* the leak checker sees it */
    nxl_catalog_region_free(region);
    nxl_catalog_region_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lookup_agrees_with_a_plain_search_under_random_overlap),
        cmocka_unit_test(lookup_agrees_at_the_end_of_the_address_space),
        cmocka_unit_test(lookup_agrees_when_nothing_overlaps),
        cmocka_unit_test(edges_are_exact),
        cmocka_unit_test(bad_ranges_and_taken_ids_are_refused),
        cmocka_unit_test(the_same_range_twice_survives_one_removal),
        cmocka_unit_test(regions_with_one_base_keep_their_own_geometry),
        cmocka_unit_test(kinds_and_devices_are_worlds_apart),
        cmocka_unit_test(the_nearest_region_is_named),
        cmocka_unit_test(two_hundred_rounds_of_ten_thousand_leave_nothing),
        cmocka_unit_test(a_pile_of_staggered_regions_costs_a_bounded_search),
        cmocka_unit_test(one_range_a_thousand_times_is_no_pile),
        cmocka_unit_test(freeing_a_region_frees_its_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
