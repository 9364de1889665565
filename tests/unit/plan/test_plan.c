/* test_plan.c - what the planner makes of pairs: joins, cuts, sums, and its refusals of bad input.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>

#include "unit/plan/rig.h"

/* "local>remote+len" per piece, "xcount/local_stride/remote_stride" behind it if there are rows;
 * offsets with "a:" in front for region a where that is not the first. */
static void shows(struct rig *rig, const char *expected)
{
    char text[900] = "";
    size_t used = 0;

    assert_non_null(rig->plan);
    for (uint32_t i = 0; i < rig->plan->piece_count; i++) {
        const struct nxl_piece *p = &rig->plan->pieces[i];
        uint64_t local = rig->plan->locals[p->local]->id,
                 remote = rig->plan->remotes[p->remote]->id;

        assert_true(p->local < rig->plan->local_count && p->remote < rig->plan->remote_count);
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s", i > 0 ? " " : "");
        if (local != 1)
            used += (size_t)snprintf(text + used, sizeof(text) - used,
                                     "%llu:", (unsigned long long)local);
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%llu>",
                                 (unsigned long long)p->local_offset);
        if (remote != 1)
            used += (size_t)snprintf(text + used, sizeof(text) - used,
                                     "%llu:", (unsigned long long)remote);
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%llu+%llu",
                                 (unsigned long long)p->remote_offset, (unsigned long long)p->len);
        if (p->count > 1)
            used += (size_t)snprintf(text + used, sizeof(text) - used, "x%u/%llu/%llu", p->count,
                                     (unsigned long long)p->local_stride,
                                     (unsigned long long)p->remote_stride);
        assert_true(used < sizeof(text));
    }
    assert_string_equal(text, expected);
}

struct pairs {
    const char *what;
    struct nxl_run local[8], remote[8]; /* up to the first with count 0 */
    const char *merged, *unmerged;
};

static uint32_t runs_of(const struct nxl_run *runs)
{
    uint32_t count = 0;

    while (count < 8 && runs[count].count > 0)
        count++;
    return count;
}

static void pairs_set(struct rig *rig, const struct pairs *pairs)
{
    rig_side_list(&rig->local);
    rig_side_list(&rig->remote);
    rig_runs(&rig->local, pairs->local, runs_of(pairs->local));
    rig_runs(&rig->remote, pairs->remote, runs_of(pairs->remote));
    assert_int_equal(rig->local.list->size, rig->remote.list->size);
}

#define ONE(addr, len)                                                                             \
    {                                                                                              \
        addr, len, 0, 1, 0                                                                         \
    }

static const struct pairs pair_rows[] = {
    {"a single pair", {ONE(1000, 8)}, {ONE(5000, 8)}, "0>0+8", "0>0+8"},
    {"adjacent on both sides",
     {ONE(1000, 8), ONE(1008, 8), ONE(1016, 8)},
     {ONE(5000, 8), ONE(5008, 8), ONE(5016, 8)},
     "0>0+24",
     "0>0+8x3/8/8"},
    {"adjacent, unequal lengths",
     {ONE(1000, 8), ONE(1008, 4)},
     {ONE(5000, 8), ONE(5008, 4)},
     "0>0+12",
     "0>0+8 8>8+4"},
    {"adjacent downwards",
     {ONE(1016, 8), ONE(1008, 8), ONE(1000, 8)},
     {ONE(5016, 8), ONE(5008, 8), ONE(5000, 8)},
     "0>0+24",
     "16>16+8 8>8+8 0>0+8"},
    {"adjacent here only, two",
     {ONE(1000, 8), ONE(1008, 8)},
     {ONE(5000, 8), ONE(5100, 8)},
     "0>0+8 8>100+8",
     "0>0+8 8>100+8"},
    {"adjacent here only, three",
     {ONE(1000, 8), ONE(1008, 8), ONE(1016, 8)},
     {ONE(5000, 8), ONE(5100, 8), ONE(5200, 8)},
     "0>0+8x3/8/100",
     "0>0+8x3/8/100"},
    {"up here, down there",
     {ONE(1000, 8), ONE(1008, 8), ONE(1016, 8)},
     {ONE(5016, 8), ONE(5008, 8), ONE(5000, 8)},
     "0>16+8 8>8+8 16>0+8",
     "0>16+8 8>8+8 16>0+8"},
    {"blocks of two at equal distances",
     {ONE(1000, 8), ONE(1008, 8), ONE(1032, 8), ONE(1040, 8), ONE(1064, 8), ONE(1072, 8)},
     {ONE(5000, 8), ONE(5008, 8), ONE(5100, 8), ONE(5108, 8), ONE(5200, 8), ONE(5208, 8)},
     "0>0+16x3/32/100",
     "0>0+8x2/8/8 32>100+8x2/8/8 64>200+8x2/8/8"},
    {"random order",
     {ONE(1000, 8), ONE(1100, 8), ONE(1050, 8), ONE(1300, 8)},
     {ONE(5300, 8), ONE(5000, 8), ONE(5090, 8), ONE(5010, 8)},
     "0>300+8 100>0+8 50>90+8 300>10+8",
     "0>300+8 100>0+8 50>90+8 300>10+8"},
    {"overlapping here",
     {ONE(1000, 8), ONE(1004, 8), ONE(1008, 8)},
     {ONE(5000, 8), ONE(5100, 8), ONE(5200, 8)},
     "0>0+8 4>100+8 8>200+8",
     "0>0+8 4>100+8 8>200+8"},
    {"overlapping there",
     {ONE(1000, 8), ONE(1100, 8), ONE(1200, 8)},
     {ONE(5000, 8), ONE(5004, 8), ONE(5008, 8)},
     "0>0+8 100>4+8 200>8+8",
     "0>0+8 100>4+8 200>8+8"},
    {"a strided run on both sides",
     {{1000, 8, 32, 20, 0}},
     {{5000, 8, 16, 20, 0}},
     "0>0+8x20/32/16",
     "0>0+8x20/32/16"},
    {"dense runs on both sides",
     {{1000, 8, 8, 20, 0}},
     {{5000, 8, 8, 20, 0}},
     "0>0+160",
     "0>0+8x20/8/8"},
    {"runs against singles",
     {{1000, 8, 32, 4, 0}},
     {ONE(5000, 8), ONE(5100, 8), ONE(5200, 8), ONE(5300, 8)},
     "0>0+8x4/32/100",
     "0>0+8x4/32/100"},
    {"runs that end at different pairs",
     {{1000, 8, 32, 3, 0}, {1300, 8, 32, 3, 0}},
     {{5000, 8, 64, 2, 0}, {5200, 8, 64, 4, 0}},
     "0>0+8x2/32/64 64>200+8 300>264+8x3/32/64",
     "0>0+8x2/32/64 64>200+8 300>264+8x3/32/64"},
    {"adjacent regions stay apart",
     {ONE(1992, 8), ONE(2000, 8)},
     {ONE(5000, 8), ONE(5008, 8)},
     "992>0+8 2:0>8+8",
     "992>0+8 2:0>8+8"},
    {"length 0 moves nothing",
     {ONE(1000, 8), ONE(1004, 0), ONE(1008, 8)},
     {ONE(5000, 8), ONE(5500, 0), ONE(5008, 8)},
     "0>0+16",
     "0>0+8 8>8+8"},
};

/* C-103: what is adjacent on both sides is one piece, whatever the form it came in. C-104: strides
 * stay whole. */
static void pairs_are_joined_where_both_sides_agree(void **state)
{
    struct rig *rig = *state;

    (void)rig_region(&rig->local, 1000, 1000);
    (void)rig_region(&rig->local, 2000, 1000);
    (void)rig_region(&rig->remote, 5000, 1000);
    (void)rig_candidate(rig, "any");
    for (size_t i = 0; i < NXL_COUNT_OF(pair_rows); i++) {
        print_message("  %s\n", pair_rows[i].what);
        pairs_set(rig, &pair_rows[i]);
        assert_int_equal(rig_plan(rig, rig->local.list->size), NXL_OK);
        shows(rig, pair_rows[i].merged);
        assert_int_equal(rig->plan->bytes, rig->local.list->bytes);
        assert_int_equal(rig->plan->descriptors, rig->local.list->size);
        rig->request.no_merge = 1;
        assert_int_equal(rig_plan(rig, rig->local.list->size), NXL_OK);
        shows(rig, pair_rows[i].unmerged);
        rig->request.no_merge = 0;
    }
}

static void indices_choose_and_may_repeat(void **state)
{
    static const uint32_t up[] = {3, 4, 5, 9}, down[] = {5, 4, 3}, twice[] = {7, 7}, last[] = {19};
    static const struct {
        const uint32_t *local, *remote;
        uint64_t count;
        const char *shows;
    } rows[] = {
        {up, up, 4, "24>48+8x3/8/16 72>144+8"},   {up, NULL, 4, "24>0+8x3/8/16 72>48+8"},
        {NULL, down, 3, "0>80+8 8>64+8 16>48+8"}, {down, down, 3, "40>80+8 32>64+8 24>48+8"},
        {twice, up, 2, "56>48+8 56>64+8"},        {last, last, 1, "152>304+8"},
    };
    struct rig *rig = *state;
    const struct nxl_run local = {1000, 8, 8, 20, 0}, remote = {5000, 8, 16, 20, 0};

    (void)rig_region(&rig->local, 1000, 1000);
    (void)rig_region(&rig->remote, 5000, 1000);
    (void)rig_candidate(rig, "any");
    rig_runs(&rig->local, &local, 1);
    rig_runs(&rig->remote, &remote, 1);
    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        rig->request.local_index = rows[i].local;
        rig->request.remote_index = rows[i].remote;
        assert_int_equal(rig_plan(rig, rows[i].count), NXL_OK);
        shows(rig, rows[i].shows);
    }
}

static void limits_of_the_backend_cut_pieces(void **state)
{
    static const struct {
        uint32_t strided;
        uint64_t len_max;
        const char *shows;
    } rows[] = {
        {1, 0, "0>0+100 200>200+10x3/20/30"},
        {1, 100, "0>0+100 200>200+10x3/20/30"},
        {1, 40, "0>0+40 40>40+40 80>80+20 200>200+10x3/20/30"},
        {1, 4, NULL}, /* counted below */
        {0, 0, "0>0+100 200>200+10 220>230+10 240>260+10"},
        {0, 60, "0>0+60 60>60+40 200>200+10 220>230+10 240>260+10"},
        {0, 7, NULL},
        {1, 6, NULL},
        {1, UINT64_MAX, "0>0+100 200>200+10x3/20/30"},
    };
    static const uint32_t counted[] = {[3] = 25 + 3, [6] = 15 + 3 * 2, [7] = 17 + 2};
    const struct nxl_run local[] = {{1000, 100, 0, 1, 0}, {1200, 10, 20, 3, 0}};
    const struct nxl_run remote[] = {{5000, 100, 0, 1, 0}, {5200, 10, 30, 3, 0}};
    struct rig *rig = *state;
    struct nxl_plan_candidate *candidate = rig_candidate(rig, "any");

    (void)rig_region(&rig->local, 1000, 1000);
    (void)rig_region(&rig->remote, 5000, 1000);
    rig_runs(&rig->local, local, 2);
    rig_runs(&rig->remote, remote, 2);
    candidate->caps.pieces_max = 1; /* xfer's business: no reason to refuse */
    candidate->caps.piece_ns = 1;
    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        candidate->caps.flags = NXL_CAP_REMOTE | (rows[i].strided ? NXL_CAP_STRIDED : 0);
        candidate->caps.piece_len_max = rows[i].len_max;
        assert_int_equal(rig_plan(rig, 4), NXL_OK);
        if (rows[i].shows != NULL)
            shows(rig, rows[i].shows);
        else
            assert_int_equal(rig->plan->piece_count, counted[i]);
        assert_int_equal(rig->plan->cost_ns,
                         rig->plan->piece_count); /* the estimate knows the cuts */
        assert_int_equal(rig->plan->bytes, 130);
    }
}

/* C-102, C-104: lists cost per run: 6,553,600 descriptors are 100 steps and 100 pieces. */
static void six_million_descriptors_become_a_hundred_pieces(void **state)
{
    enum { LAYERS = 100, BLOCKS = 65536 };
    struct rig *rig = *state;
    struct nxl_plan_candidate *candidate = rig_candidate(rig, "strided");

    for (uint64_t i = 1; i <= LAYERS; i++) {
        const struct nxl_run local = {i << 40, 4096, 8192, BLOCKS, 0},
                             remote = {i << 41, 4096, 4096, BLOCKS, 0};

        (void)rig_region(&rig->local, i << 40, (uint64_t)BLOCKS * 8192);
        (void)rig_region(&rig->remote, i << 41, (uint64_t)BLOCKS * 4096);
        rig_runs(&rig->local, &local, 1);
        rig_runs(&rig->remote, &remote, 1);
    }
    assert_int_equal(rig_plan(rig, LAYERS * BLOCKS), NXL_OK);
    assert_int_equal(rig->plan->piece_count, LAYERS);
    assert_int_equal(rig->plan->bytes, 4096ull * LAYERS * BLOCKS);
    assert_int_equal(rig->plan->descriptors, LAYERS * BLOCKS);
    assert_int_equal(rig->plan->local_count, LAYERS);
    candidate->caps.flags =
        NXL_CAP_REMOTE; /* rows one by one, and cut in halves: more than a plan holds */
    candidate->caps.piece_len_max = 2048;
    assert_int_equal(rig_plan(rig, LAYERS * BLOCKS), NXL_LIMIT);
    assert_non_null(strstr(rig->err.text, "strided: needs 13107200 pieces, a plan holds 8388608"));
}

/* C-004: two handles on one base are two regions, each with its own block length. */
static void handles_on_one_base_plan_their_own_geometry(void **state)
{
    struct rig *rig = *state;
    const struct nxl_run x = {0x100000, 4096, 4096, 16, 0}, y = {0x100000, 1024, 1024, 16, 0};
    const struct nxl_run far = {0x900000, 4096, 4096, 16, 0},
                         far_small = {0x900000, 1024, 1024, 16, 0};
    const uint32_t five[] = {5};

    (void)rig_region(&rig->local, 0x100000, 65536);
    (void)rig_region(&rig->local, 0x100000, 16384);
    (void)rig_region(&rig->remote, 0x900000, 65536);
    (void)rig_candidate(rig, "any");
    rig->request.local_index = rig->request.remote_index = five;
    rig_runs(&rig->local, &x, 1);
    rig_runs(&rig->remote, &far, 1);
    assert_int_equal(rig_plan(rig, 1), NXL_OK);
    shows(rig, "20480>20480+4096");
    rig_side_list(&rig->local);
    rig_side_list(&rig->remote);
    rig_runs(&rig->local, &y, 1);
    rig_runs(&rig->remote, &far_small, 1);
    assert_int_equal(rig_plan(rig, 1), NXL_OK);
    shows(rig, "2:5120>5120+1024");
}

/* C-003: the same memory registered twice: the plan uses one entry, and the other after it went. */
static void memory_registered_twice_is_planned_once(void **state)
{
    struct rig *rig = *state;
    const struct nxl_run run = {0x100000, 4096, 4096, 4, 0}, far = {0x900000, 4096, 4096, 4, 0};

    (void)rig_region(&rig->local, 0x100000, 1 << 20);
    (void)rig_region(&rig->local, 0x100000, 1 << 20);
    (void)rig_region(&rig->remote, 0x900000, 1 << 20);
    (void)rig_candidate(rig, "any");
    rig_runs(&rig->local, &run, 1);
    rig_runs(&rig->remote, &far, 1);
    assert_int_equal(rig_plan(rig, 4), NXL_OK);
    shows(rig, "2:0>0+16384");
    assert_int_equal(rig->plan->local_count, 1);
    nxl_region_table_remove(rig->local.peer->regions, rig->local.regions[1]);
    assert_false(nxl_catalog_list_fresh(
        rig->local.list)); /* C-005: the old list is stale, a new one works */
    rig_side_list(&rig->local);
    rig_runs(&rig->local, &run, 1);
    assert_int_equal(rig_plan(rig, 4), NXL_OK);
    shows(rig, "0>0+16384");
    assert_int_equal(
        nxl_region_table_add(rig->local.peer->regions, rig->local.regions[1], &rig->err), NXL_OK);
}

static void bad_requests_name_the_pair(void **state)
{
    static const uint32_t beyond[] = {0, 1, 20}, just[] = {0, 3}, just_far[] = {0, 4},
                          swapped[] = {2, 0, 1};
    static const struct {
        const uint32_t *local, *remote;
        uint64_t count;
        const char *says;
    } rows[] = {
        {NULL, NULL, 0, "at least one pair"},
        {NULL, NULL, 4, "pair 3: local list has only 3 descriptors for 4 pairs"},
        {swapped, NULL, 5, "pair 4: remote list has only 4 descriptors for 5 pairs"},
        {beyond, NULL, 3, "pair 2: local index 20 is beyond its list of 3 descriptors"},
        {just, NULL, 2, "pair 1: local index 3 is beyond its list of 3 descriptors"},
        {NULL, just_far, 2, "pair 1: remote index 4 is beyond its list of 4 descriptors"},
        {NULL, beyond, 3, "pair 2: remote index 20 is beyond its list of 4 descriptors"},
        {NULL, NULL, 3,
         "pair 2: local is 16 bytes at 0x44c, remote 8 bytes at 0x1398; the lengths must be equal"},
        {swapped, swapped, 3, "pair 0: local is 16 bytes at 0x44c, remote 8 bytes at 0x1398"},
    };
    const struct nxl_run local[] = {{1000, 8, 8, 2, 0}, {1100, 16, 0, 1, 0}},
                         remote = {5000, 8, 8, 4, 0};
    struct rig *rig = *state;

    (void)rig_region(&rig->local, 1000, 1000);
    (void)rig_region(&rig->remote, 5000, 1000);
    (void)rig_candidate(rig, "any");
    rig_runs(&rig->local, local, 2);
    rig_runs(&rig->remote, &remote, 1);
    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        rig->request.local_index = rows[i].local;
        rig->request.remote_index = rows[i].remote;
        assert_int_equal(rig_plan(rig, rows[i].count), NXL_INVALID_PARAM);
        if (strstr(rig->err.text, rows[i].says) == NULL)
            fail_msg("row %zu says: %s", i, rig->err.text);
    }
}

static void a_sum_beyond_64_bits_is_refused(void **state)
{
    static const uint32_t same[] = {0, 0, 0, 0, 0};
    const struct nxl_run huge = {0, UINT64_MAX / 4, 0, 1, 0};
    struct rig *rig = *state;

    (void)rig_region(&rig->local, 0, UINT64_MAX);
    (void)rig_region(&rig->remote, 0, UINT64_MAX);
    (void)rig_candidate(rig, "any");
    rig_runs(&rig->local, &huge, 1);
    rig_runs(&rig->remote, &huge, 1);
    rig->request.local_index = rig->request.remote_index = same;
    assert_int_equal(rig_plan(rig, 4), NXL_OK);
    assert_int_equal(rig_plan(rig, 5), NXL_INVALID_PARAM);
    assert_non_null(strstr(rig->err.text, "pair 4: the sum of all lengths overflows"));
}

static void lost_memory_is_named_if_it_is_used(void **state)
{
    static const uint32_t first[] = {0}, second[] = {1};
    const struct nxl_run runs[] = {ONE(1000, 8), ONE(2000, 8)}, far = {5000, 8, 8, 2, 0};
    struct rig *rig = *state;

    (void)rig_region(&rig->local, 1000, 1000);
    rig_region(&rig->local, 2000, 1000)->lost = 1;
    (void)rig_region(&rig->remote, 5000, 1000);
    (void)rig_candidate(rig, "any");
    rig_runs(&rig->local, runs, 2);
    rig_runs(&rig->remote, &far, 1);
    assert_int_equal(rig_plan(rig, 2), NXL_MEMORY_LOST);
    assert_non_null(strstr(
        rig->err.text, "pair 1: the memory behind local region 2 [0x7d0, 0xbb8) of peer 'mine'"));
    rig->request.local_index = second;
    assert_int_equal(rig_plan(rig, 1), NXL_MEMORY_LOST);
    rig->request.local_index = first;
    assert_int_equal(rig_plan(rig, 1), NXL_OK);
    rig->remote.regions[0]->lost = 1;
    assert_int_equal(rig_plan(rig, 1), NXL_MEMORY_LOST);
    assert_non_null(strstr(rig->err.text, "remote region 1"));
}

/* Never a plan without pieces: whoever cuts it into operations divides by them. */
static void pairs_without_bytes_are_one_empty_piece(void **state)
{
    static const uint32_t indices[] = {1, 0, 1};
    const struct nxl_run local = {1000, 0, 100, 2, 0}, remote = {5000, 0, 50, 2, 0};
    struct rig *rig = *state;
    struct nxl_plan_candidate *candidate = rig_candidate(rig, "any");

    (void)rig_region(&rig->local, 1000, 1000);
    (void)rig_region(&rig->remote, 5000, 1000);
    rig_runs(&rig->local, &local, 1);
    rig_runs(&rig->remote, &remote, 1);
    for (int variant = 0; variant < 4; variant++) {
        candidate->caps.flags = NXL_CAP_REMOTE | (variant & 1 ? NXL_CAP_STRIDED : 0);
        candidate->caps.piece_len_max = variant & 2 ? 16 : 0;
        rig->request.local_index = indices;
        assert_int_equal(rig_plan(rig, 2), NXL_OK);
        shows(rig, "100>0+0");
        assert_int_equal(rig->plan->pieces[0].count, 1);
        assert_int_equal(rig->plan->bytes, 0);
        assert_int_equal(rig->plan->local_count, 1);
        assert_int_equal(rig->plan->remote_count, 1);
        assert_int_equal(rig->plan->descriptors, 2);
    }
    rig->local.regions[0]->lost = 1;
    assert_int_equal(rig_plan(rig, 2), NXL_MEMORY_LOST);
    nxl_plan_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(pairs_are_joined_where_both_sides_agree, rig_open,
                                        rig_close),
        cmocka_unit_test_setup_teardown(indices_choose_and_may_repeat, rig_open, rig_close),
        cmocka_unit_test_setup_teardown(limits_of_the_backend_cut_pieces, rig_open, rig_close),
        cmocka_unit_test_setup_teardown(six_million_descriptors_become_a_hundred_pieces, rig_open,
                                        rig_close),
        cmocka_unit_test_setup_teardown(handles_on_one_base_plan_their_own_geometry, rig_open,
                                        rig_close),
        cmocka_unit_test_setup_teardown(memory_registered_twice_is_planned_once, rig_open,
                                        rig_close),
        cmocka_unit_test_setup_teardown(bad_requests_name_the_pair, rig_open, rig_close),
        cmocka_unit_test_setup_teardown(a_sum_beyond_64_bits_is_refused, rig_open, rig_close),
        cmocka_unit_test_setup_teardown(lost_memory_is_named_if_it_is_used, rig_open, rig_close),
        cmocka_unit_test_setup_teardown(pairs_without_bytes_are_one_empty_piece, rig_open,
                                        rig_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
