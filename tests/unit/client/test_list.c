/* Prepared lists and transfers made of them: what is sent, and every mistake that shows here. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "rig.h"

static enum nxl_code make(struct rig *rig, const uint32_t *local, const uint32_t *remote,
                          uint32_t count, struct nxl_transfer **ret)
{
    return nxl_transfer_make(rig->peer, NXL_READ, rig->local, local, rig->far, remote, count, NULL,
                             ret, &rig->err);
}

/* ---- preparing -------------------------------------------------------------------------- */

static void equal_descriptors_travel_as_one_run(void **state)
{
    struct rig *rig = *state;
    struct nxl_run runs[1000];
    struct nxl_list *list = NULL;
    uint64_t before = fake_agent_list_runs(rig->agent);

    for (uint32_t i = 0; i < 1000; i++)
        runs[i] = (struct nxl_run){.addr = 0x1000 + i * 640ull, .len = 128, .count = 1};
    assert_code(NXL_OK, rig,
                nxl_list_prepare(rig->peer, NULL, NXL_MEM_DRAM, runs, 1000, &list, &rig->err));
    assert_int_equal(nxl_list_size(list), 1000);
    assert_int_equal(fake_agent_list_runs(rig->agent), before + 1);
    assert_int_equal(fake_agent_run(rig->agent, before).stride, 640);
    assert_int_equal(fake_agent_run(rig->agent, before).count, 1000);
    nxl_list_free(list);
    nxl_list_free(NULL);
}

/* The arena has 64 KiB; 10,000 runs of different lengths need 320 KB. */
static void a_list_larger_than_the_arena_goes_in_parts(void **state)
{
    struct rig *rig = *state;
    struct nxl_run *runs = calloc(10000, sizeof(*runs));
    struct nxl_list *list = NULL;
    uint64_t before = fake_agent_list_runs(rig->agent);
    unsigned frames = fake_agent_count(rig->agent, NXL_FRAME_LIST);
    struct nxl_frame *frame = malloc(sizeof(*frame));

    for (uint32_t i = 0; i < 10000; i++)
        runs[i] = (struct nxl_run){.addr = 0x1000 + i * 40000ull, .len = i + 1, .count = 1};
    assert_code(NXL_OK, rig,
                nxl_list_prepare(rig->peer, NULL, NXL_MEM_DRAM, runs, 10000, &list, &rig->err));
    assert_true(fake_agent_count(rig->agent, NXL_FRAME_LIST) >= frames + 6);
    assert_int_equal(fake_agent_list_runs(rig->agent), before + 10000);
    for (uint32_t i = 0; i < 10000; i += 37) {
        assert_int_equal(fake_agent_run(rig->agent, before + i).addr, runs[i].addr);
        assert_int_equal(fake_agent_run(rig->agent, before + i).len, runs[i].len);
    }
    fake_agent_last(rig->agent, NXL_FRAME_LIST, frame);
    assert_int_equal(frame->more, 0);
    assert_true(frame->list != 0); /* the last part names the list that the first one began */
    free(frame);
    free(runs);
}

static void a_part_that_fails_takes_the_list_along(void **state)
{
    struct rig *rig = *state;
    struct nxl_run *runs = calloc(10000, sizeof(*runs));
    struct nxl_list *list = NULL;
    unsigned freed = fake_agent_count(rig->agent, NXL_FRAME_LIST_FREE);

    for (uint32_t i = 0; i < 10000; i++)
        runs[i] = (struct nxl_run){.addr = 0x1000 + i * 40000ull, .len = i + 1, .count = 1};
    fake_agent_refuse(rig->agent, NXL_FRAME_LIST, NXL_NOT_FOUND, "descriptor 7000 lies nowhere", 2,
                      1);
    assert_code(NXL_NOT_FOUND, rig,
                nxl_list_prepare(rig->peer, NULL, NXL_MEM_DRAM, runs, 10000, &list, &rig->err));
    assert_says(rig, "descriptor 7000");
    assert_null(list);
    assert_code(NXL_OK, rig, nxl_client_check(rig->client, &rig->err));
    assert_int_equal(fake_agent_count(rig->agent, NXL_FRAME_LIST_FREE), freed + 1);
    /* The arena is whole again: the same goes through. */
    assert_code(NXL_OK, rig,
                nxl_list_prepare(rig->peer, NULL, NXL_MEM_DRAM, runs, 10000, &list, &rig->err));
    free(runs);
}

static void lists_that_cannot_be_right_never_reach_the_agent(void **state)
{
    struct rig *rig = *state;
    struct nxl_run run = {.addr = 1, .len = 1, .count = 1};
    struct nxl_list *list = NULL;
    unsigned frames = fake_agent_count(rig->agent, NXL_FRAME_LIST);

    assert_code(NXL_INVALID_PARAM, rig,
                nxl_list_prepare(rig->peer, NULL, NXL_MEM_DRAM, &run, 0, &list, &rig->err));
    assert_says(rig, "empty");
    assert_code(NXL_NOT_SUPPORTED, rig,
                nxl_list_prepare(rig->peer, NULL, NXL_MEM_VRAM, &run, 1, &list, &rig->err));
    run.count = 0;
    assert_code(NXL_INVALID_PARAM, rig,
                nxl_list_prepare(rig->peer, NULL, NXL_MEM_DRAM, &run, 1, &list, &rig->err));
    assert_code(NXL_INVALID_PARAM, rig,
                nxl_list_prepare(NULL, NULL, NXL_MEM_DRAM, &run, 1, &list, &rig->err));
    assert_int_equal(fake_agent_count(rig->agent, NXL_FRAME_LIST), frames);
}

/* ---- making ----------------------------------------------------------------------------- */

static void indices_lie_in_the_arena_for_the_agent(void **state)
{
    struct rig *rig = *state;
    uint32_t local[3] = {5, 0, 15}, remote[3] = {2, 2, 1};
    struct nxl_transfer *transfer = NULL;
    struct nxl_ring_entry entry;
    const uint32_t *indices;

    assert_code(NXL_OK, rig, make(rig, local, remote, 3, &transfer));
    local[0] = remote[0] = 9; /* borrows nothing after return */
    entry = rig_post(rig, transfer);
    assert_int_equal(entry.kind, NXL_RING_POST);
    assert_int_equal(entry.count, 3);
    assert_int_equal(entry.flags, 0); /* READ, both sides by index */
    assert_int_equal(entry.generation, 1);
    indices = nxl_ring_arena(fake_agent_ring(rig->agent), entry.arena_offset, 24);
    assert_non_null(indices);
    assert_memory_equal(indices, ((uint32_t[]){5, 0, 15, 2, 2, 1}), 24);
    rig_end(rig, entry, NXL_RING_DONE | NXL_RING_QUIET, NXL_OK);
}

static void whole_lists_need_no_indices(void **state)
{
    struct rig *rig = *state;
    uint32_t remote[2] = {7, 8};
    struct nxl_transfer *transfer = NULL;
    struct nxl_ring_entry entry;
    const uint32_t *indices;

    assert_code(NXL_OK, rig, make(rig, NULL, NULL, RIG_BLOCKS, &transfer));
    entry = rig_post(rig, transfer);
    assert_int_equal(entry.flags, NXL_RING_LOCAL_ALL | NXL_RING_REMOTE_ALL);
    assert_int_equal(entry.count, RIG_BLOCKS);
    assert_code(NXL_OK, rig, make(rig, NULL, remote, 2, &transfer));
    entry = rig_post(rig, transfer);
    assert_int_equal(entry.flags, NXL_RING_LOCAL_ALL);
    indices = nxl_ring_arena(fake_agent_ring(rig->agent), entry.arena_offset, 8);
    assert_memory_equal(indices, remote, 8);
}

static void an_index_out_of_range_is_named(void **state)
{
    struct rig *rig = *state;
    uint32_t good[3] = {0, 1, 2}, bad[3] = {0, RIG_BLOCKS, 1};
    struct nxl_transfer *transfer = NULL;

    assert_code(NXL_INVALID_PARAM, rig, make(rig, bad, good, 3, &transfer));
    assert_says(rig, "local_index[1] is 16");
    assert_says(rig, "has 16 descriptors");
    assert_code(NXL_INVALID_PARAM, rig, make(rig, good, bad, 3, &transfer));
    assert_says(rig, "remote_index[1] is 16");
    assert_code(NXL_INVALID_PARAM, rig, make(rig, NULL, NULL, RIG_BLOCKS + 1, &transfer));
    assert_says(rig, "17 descriptors wanted");
    assert_code(NXL_INVALID_PARAM, rig, make(rig, good, good, 0, &transfer));
    assert_says(rig, "count is 0");
    assert_null(transfer);
}

static void pairs_of_unequal_length_are_named(void **state)
{
    struct rig *rig = *state;
    const struct nxl_run mixed[] = {
        {.addr = 0x1000, .len = RIG_PAGE, .stride = RIG_PAGE, .count = 3},
        {.addr = 0x9000, .len = 256, .count = 1},
        {.addr = 0xa000, .len = RIG_PAGE, .count = 1}};
    uint32_t around[4] = {0, 1, 2, 4}, through[4] = {0, 1, 4, 3};
    struct nxl_list *uniform = rig->local;
    struct nxl_transfer *transfer = NULL;

    assert_code(NXL_OK, rig,
                nxl_list_prepare(rig->peer, NULL, NXL_MEM_DRAM, mixed, 3, &rig->local, &rig->err));
    assert_int_equal(nxl_list_size(rig->local), 5);
    assert_code(NXL_OK, rig, make(rig, around, NULL, 4, &transfer));
    assert_code(NXL_MISMATCH, rig, make(rig, through, NULL, 4, &transfer));
    assert_says(
        rig, "pair 3 is unequal: local descriptor 3 has 256 bytes, remote descriptor 3 has 4096");
    assert_code(NXL_MISMATCH, rig, make(rig, NULL, NULL, 5, &transfer));
    assert_says(rig, "pair 3");
    nxl_list_free(uniform);
}

static void sides_and_owners_are_checked(void **state)
{
    struct rig *rig = *state;
    struct nxl_transfer *transfer = NULL;
    struct nxl_peer *other = NULL;

#define MAKE(peer, local, remote)                                                                  \
    nxl_transfer_make(peer, NXL_READ, local, NULL, remote, NULL, 1, NULL, &transfer, &rig->err)
    assert_code(NXL_INVALID_PARAM, rig, MAKE(rig->peer, rig->far, rig->far));
    assert_says(rig, "local list describes remote 'far'");
    assert_code(NXL_INVALID_PARAM, rig, MAKE(rig->peer, rig->local, rig->local));
    assert_says(rig, "own side");
    assert_code(NXL_INVALID_PARAM, rig, MAKE(rig->peer, NULL, rig->far));
    assert_says(rig, "local list is NULL");
    assert_code(NXL_INVALID_PARAM, rig, MAKE(rig->peer, rig->local, NULL));
    assert_code(NXL_INVALID_PARAM, rig, MAKE(NULL, rig->local, rig->far));
    assert_code(NXL_OK, rig, nxl_peer_open(rig->client, "other", &other, &rig->err));
    assert_code(NXL_INVALID_PARAM, rig, MAKE(other, rig->local, rig->far));
    assert_says(rig, "another peer than 'other'");
#undef MAKE
    assert_code(NXL_INVALID_PARAM, rig,
                nxl_transfer_make(rig->peer, (enum nxl_op_kind)7, rig->local, NULL, rig->far, NULL,
                                  1, NULL, &transfer, &rig->err));
    assert_null(transfer);
}

static void options_become_fields_of_the_entry(void **state)
{
    struct rig *rig = *state;
    struct nxl_transfer_options options = {.size = sizeof(options),
                                           .min_path = NXL_PATH_RDMA,
                                           .timeout_ns = 5000,
                                           .backend = "ucx",
                                           .no_merge = 1};
    struct nxl_transfer *transfer = NULL;
    struct nxl_ring_entry entry;

    assert_code(NXL_OK, rig,
                nxl_transfer_make(rig->peer, NXL_WRITE, rig->local, NULL, rig->far, NULL, 1,
                                  &options, &transfer, &rig->err));
    entry = rig_post(rig, transfer);
    assert_int_equal(entry.min_path, NXL_PATH_RDMA);
    assert_int_equal(entry.timeout_ns, 5000);
    assert_int_equal(entry.backend, 2);
    assert_true(entry.flags & NXL_RING_WRITE);
    assert_true(entry.flags & NXL_RING_NO_MERGE);
    options.backend = "gds";
    assert_code(NXL_NOT_FOUND, rig,
                nxl_transfer_make(rig->peer, NXL_WRITE, rig->local, NULL, rig->far, NULL, 1,
                                  &options, &transfer, &rig->err));
    assert_says(rig, "no backend 'gds', only: shm ucx");
    options.backend = "uc"; /* a prefix is not a name */
    assert_code(NXL_NOT_FOUND, rig,
                nxl_transfer_make(rig->peer, NXL_WRITE, rig->local, NULL, rig->far, NULL, 1,
                                  &options, &transfer, &rig->err));
    options.backend = NULL;
    options.min_path = 6;
    assert_code(NXL_INVALID_PARAM, rig,
                nxl_transfer_make(rig->peer, NXL_WRITE, rig->local, NULL, rig->far, NULL, 1,
                                  &options, &transfer, &rig->err));
}

/* ---- from runs -------------------------------------------------------------------------- */

static void runs_lie_in_the_arena_local_first(void **state)
{
    struct rig *rig = *state;
    const struct nxl_run near[] = {{.addr = 0x1000, .len = 64, .count = 1},
                                   {.addr = 0x1040, .len = 64, .count = 1},
                                   {.addr = 0x9000, .len = 64, .count = 1}};
    const struct nxl_run far[] = {{.addr = 0x5000, .len = 64, .stride = 128, .count = 3}};
    struct nxl_transfer *transfer = NULL;
    struct nxl_ring_entry entry;
    const struct nxl_run *runs;

    assert_code(NXL_OK, rig,
                nxl_transfer_create(rig->peer, NXL_WRITE, rig->remote, NXL_MEM_DRAM, near, 3, far,
                                    1, NULL, &transfer, &rig->err));
    entry = rig_post(rig, transfer);
    assert_int_equal(entry.flags, NXL_RING_RUNS | NXL_RING_WRITE);
    assert_int_equal(entry.count, 2);
    assert_int_equal(entry.remote_count, 1);
    assert_int_equal(entry.local_list, 0);
    assert_int_equal(entry.remote, 1100);
    runs = nxl_ring_arena(fake_agent_ring(rig->agent), entry.arena_offset, 3 * sizeof(*runs));
    assert_int_equal(runs[0].addr, 0x1000);
    assert_int_equal(runs[0].count, 2);
    assert_int_equal(runs[1].addr, 0x9000);
    assert_int_equal(runs[2].addr, 0x5000);
    assert_int_equal(runs[2].stride, 128);
}

static void runs_that_do_not_pair_up_are_named(void **state)
{
    struct rig *rig = *state;
    const struct nxl_run near[] = {{.addr = 0x1000, .len = 64, .stride = 64, .count = 3}};
    const struct nxl_run two[] = {{.addr = 0x5000, .len = 64, .stride = 128, .count = 2}};
    const struct nxl_run odd[] = {{.addr = 0x5000, .len = 64, .stride = 128, .count = 2},
                                  {.addr = 0x7000, .len = 63, .count = 1}};
    struct nxl_transfer *transfer = NULL;

#define CREATE(remote, runs, count)                                                                \
    nxl_transfer_create(rig->peer, NXL_READ, remote, NXL_MEM_DRAM, near, 1, runs, count, NULL,     \
                        &transfer, &rig->err)
    assert_code(NXL_MISMATCH, rig, CREATE(rig->remote, two, 1));
    assert_says(rig, "3 local descriptors, 2 remote");
    assert_code(NXL_MISMATCH, rig, CREATE(rig->remote, odd, 2));
    assert_says(rig, "pair 2 is unequal: the local descriptor has 64 bytes, the remote one 63");
    assert_code(NXL_INVALID_PARAM, rig, CREATE(rig->remote, odd, 0));
    assert_says(rig, "remote side");
    assert_code(NXL_INVALID_PARAM, rig, CREATE(NULL, near, 1));
    assert_null(transfer);
#undef CREATE
}

/* ---- lives ------------------------------------------------------------------------------ */

static void a_freed_list_lives_as_long_as_its_transfers(void **state)
{
    struct rig *rig = *state;
    struct nxl_transfer *transfer = rig_transfer(rig);
    unsigned freed = fake_agent_count(rig->agent, NXL_FRAME_LIST_FREE);

    nxl_list_free(rig->local);
    nxl_list_free(rig->far);
    assert_code(NXL_OK, rig, nxl_client_check(rig->client, &rig->err));
    assert_int_equal(fake_agent_count(rig->agent, NXL_FRAME_LIST_FREE), freed);
    rig_end(rig, rig_post(rig, transfer), NXL_RING_DONE | NXL_RING_QUIET, NXL_OK);
    assert_code(NXL_OK, rig, nxl_transfer_release(transfer, &rig->err));
    assert_code(NXL_OK, rig, nxl_client_check(rig->client, &rig->err));
    assert_int_equal(fake_agent_count(rig->agent, NXL_FRAME_LIST_FREE), freed + 2);
}

static void a_full_arena_and_used_up_slots_name_their_option(void **state)
{
    struct rig *rig = *state; /* 4 slots, 64 KiB */
    struct nxl_transfer *transfers[5] = {0};
    uint32_t *many = calloc(20000, sizeof(*many));

    assert_code(NXL_OK, rig, make(rig, many, NULL, RIG_BLOCKS, &transfers[0]));
    assert_code(NXL_LIMIT, rig, make(rig, many, many, 20000, &transfers[1]));
    assert_says(rig, "arena_bytes");
    for (int i = 1; i < 4; i++)
        assert_code(NXL_OK, rig, make(rig, NULL, NULL, 1, &transfers[i]));
    assert_code(NXL_LIMIT, rig, make(rig, NULL, NULL, 1, &transfers[4]));
    assert_says(rig, "options.slots");
    assert_code(NXL_OK, rig, nxl_transfer_release(transfers[2], &rig->err));
    assert_code(NXL_OK, rig, make(rig, NULL, NULL, 1, &transfers[4]));
    free(many);
}

static void a_thousand_transfers_in_turn_use_up_nothing(void **state)
{
    struct rig *rig = *state; /* 4 slots, 64 KiB */
    uint32_t index[512] = {0};
    struct nxl_transfer *transfer = NULL;

    for (int i = 0; i < 3000; i++) {
        assert_code(NXL_OK, rig, make(rig, index, index, 512, &transfer));
        assert_code(NXL_OK, rig, nxl_transfer_notice(transfer, index, 700, 1, &rig->err));
        rig_end(rig, rig_post(rig, transfer), NXL_RING_DONE | NXL_RING_QUIET, NXL_OK);
        assert_int_equal(nxl_transfer_poll(transfer), NXL_OK);
        assert_code(NXL_OK, rig, nxl_transfer_release(transfer, &rig->err));
        assert_int_equal(rig_take(rig).kind, NXL_RING_RELEASE);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)
#define TEST_SMALL(name) cmocka_unit_test_setup_teardown(name, rig_setup_small, rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(equal_descriptors_travel_as_one_run),
        TEST_SMALL(a_list_larger_than_the_arena_goes_in_parts),
        TEST_SMALL(a_part_that_fails_takes_the_list_along),
        TEST(lists_that_cannot_be_right_never_reach_the_agent),
        TEST(indices_lie_in_the_arena_for_the_agent),
        TEST(whole_lists_need_no_indices),
        TEST(an_index_out_of_range_is_named),
        TEST(pairs_of_unequal_length_are_named),
        TEST(sides_and_owners_are_checked),
        TEST(options_become_fields_of_the_entry),
        TEST(runs_lie_in_the_arena_local_first),
        TEST(runs_that_do_not_pair_up_are_named),
        TEST(a_freed_list_lives_as_long_as_its_transfers),
        TEST_SMALL(a_full_arena_and_used_up_slots_name_their_option),
        TEST_SMALL(a_thousand_transfers_in_turn_use_up_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
