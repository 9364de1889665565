/* A repost keeps its plan as long as the plan is right, and not a moment longer. */
#include "rig.h"

#include <string.h>

static int setup(void **state)
{
    *state = bed_new("hand", NULL);
    return 0;
}

static uint32_t list_make(struct bed *bed, uint32_t remote, uint64_t at)
{
    struct nxl_run run = {.addr = CLIENT_ADDR + at, .len = 4096, .stride = 8192, .count = 4};
    struct nxl_err err = {0};
    uint32_t list;
    uint64_t size;

    if (nxl_xfer_list(bed->from.session, bed->from.peer, remote, NXL_MEM_DRAM, 0, &run, 1, 0, &list,
                      &size, &err) != NXL_OK)
        fail_msg("list: %s", err.text);
    assert_int_equal(size, 4);
    return list;
}

/* The next operation of the hand ends well. */
static void finish(struct bed *bed, uint32_t post)
{
    hand_end(bed->hand, bed->hand->submits - 1, NXL_OK, 1);
    WAIT(&bed->rig, client_ended(&bed->from, post, NXL_OK, 1));
}

static void first_post(struct bed *bed)
{
    uint32_t post;

    bed->from.post = (struct nxl_xfer_post){.slot = 2,
                                            .peer = bed->from.peer,
                                            .op = NXL_WRITE,
                                            .local_list = list_make(bed, 0, 0),
                                            .remote_list = list_make(bed, bed->remote, 65536),
                                            .count = 4};
    assert_int_equal(nxl_xfer_reusable(bed->from.session, 2), 0);
    post = client_post(&bed->from);
    finish(bed, post);
    assert_int_equal(nxl_xfer_reusable(bed->from.session, 2), 1);
    bed->from.post.reuse = 1;
}

static void a_repost_moves_the_bytes_of_now(void **state)
{
    struct bed *bed = *state;

    memset(bed->from.base, 1, 65536);
    first_post(bed);
    for (unsigned round = 2; round < 5; round++) {
        memset(bed->from.base, (int)round, 65536);
        finish(bed, client_post(&bed->from));
        assert_int_equal(bed->to.base[65536], round);
        assert_int_equal(bed->to.base[65536 + 3 * 8192], round);
        assert_int_equal(bed->to.base[65536 + 4096], 0); /* between the rows */
    }
}

static void a_repost_needs_neither_lists_nor_indices(void **state)
{
    struct bed *bed = *state;

    first_post(bed);
    bed->from.post.local_list = bed->from.post.remote_list = 0;
    finish(bed, client_post(&bed->from));
}

static void a_region_that_comes_leaves_plans_as_they_are(void **state)
{
    struct bed *bed = *state;
    struct nxl_err err = {0};
    uint64_t id;

    first_post(bed);
    assert_int_equal(client_register(&bed->to, 0, 4096, &id, &err), NXL_OK);
    assert_int_equal(nxl_xfer_reusable(bed->from.session, 2), 1);
    finish(bed, client_post(&bed->from));
}

/* From here on: what moves the epoch. A reuse without a good plan is a post with its lists. */

static void a_region_that_goes_ends_the_plan(void **state)
{
    struct bed *bed = *state;
    struct gone gone = {0};

    first_post(bed);
    nxl_xfer_deregister(bed->to.session, bed->to.peer, &bed->to.region, 1, 0, gone_take, &gone);
    assert_int_equal(gone.code, NXL_OK);
    assert_int_equal(nxl_xfer_reusable(bed->from.session, 2), 0);
    assert_true(client_ended(&bed->from, client_post(&bed->from), NXL_STALE, 1));
    assert_int_equal(bed->hand->submits, 1);
}

static void another_region_that_goes_makes_it_plan_again(void **state)
{
    struct bed *bed = *state;
    struct nxl_err err = {0};
    struct gone gone = {0};
    uint64_t id;

    assert_int_equal(client_register(&bed->to, 512 * 1024, 4096, &id, &err), NXL_OK);
    first_post(bed);
    nxl_xfer_deregister(bed->to.session, bed->to.peer, &id, 1, 0, gone_take, &gone);
    assert_int_equal(gone.code, NXL_OK);
    finish(bed, client_post(&bed->from)); /* whether or not the plan was kept */
}

static void a_remote_that_is_invalidated_ends_the_plan(void **state)
{
    struct bed *bed = *state;
    struct nxl_err err = {0};

    first_post(bed);
    assert_int_equal(nxl_xfer_invalidate(bed->from.session, bed->from.peer, bed->remote, &err),
                     NXL_OK);
    assert_int_equal(nxl_xfer_reusable(bed->from.session, 2), 0);
    assert_true(client_ended(&bed->from, client_post(&bed->from), NXL_NOT_FOUND, 1));
    assert_int_equal(bed->hand->submits, 1);
}

static void a_death_ends_the_plan(void **state)
{
    struct bed *bed = *state;

    first_post(bed);
    client_gone(&bed->to);
    assert_int_equal(nxl_xfer_reusable(bed->from.session, 2), 0);
    assert_true(client_ended(&bed->from, client_post(&bed->from), NXL_STALE, 1));
    assert_int_equal(bed->hand->submits, 1);
}

/* A failed post drops the plan of the one before: nothing of it may be reused. */
static void a_post_that_was_refused_leaves_no_plan(void **state)
{
    struct bed *bed = *state;

    first_post(bed);
    bed->from.post.reuse = 0;
    bed->from.post.local_list = 4711;
    assert_true(client_ended(&bed->from, client_post(&bed->from), NXL_NOT_FOUND, 1));
    assert_int_equal(nxl_xfer_reusable(bed->from.session, 2), 0);
}

static void the_plan_goes_with_the_slot(void **state)
{
    struct bed *bed = *state;

    first_post(bed);
    nxl_xfer_release(bed->from.session, 2);
    assert_int_equal(nxl_xfer_reusable(bed->from.session, 2), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, bed_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_repost_moves_the_bytes_of_now),
        TEST(a_repost_needs_neither_lists_nor_indices),
        TEST(a_region_that_comes_leaves_plans_as_they_are),
        TEST(a_region_that_goes_ends_the_plan),
        TEST(another_region_that_goes_makes_it_plan_again),
        TEST(a_remote_that_is_invalidated_ends_the_plan),
        TEST(a_death_ends_the_plan),
        TEST(a_post_that_was_refused_leaves_no_plan),
        TEST(the_plan_goes_with_the_slot),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
