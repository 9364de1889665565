/* life.c, request.c, fence.c: a peer dies while transfers run. Its transfers end as
 * REMOTE_DISCONNECT once, then become quiet; new posts are STALE; its next life is another. */
#include "rig.h"

#include <string.h>

static int setup(void **state)
{
    *state = bed_new("hand", NULL);
    return 0;
}

/* C-018, C-021 */
static void a_death_ends_what_runs_once_and_later_posts_are_stale(void **state)
{
    struct bed *bed = *state;
    struct nxl_err err = {0};
    const struct seen *down;
    uint32_t first = bed_write(bed, 0), second, third;

    (void)client_prepare(&bed->from, 1, NXL_READ, bed->remote, 65536, 0, 64);
    second = client_post(&bed->from);
    client_gone(&bed->to);
    assert_true(client_ended(&bed->from, first, NXL_REMOTE_DISCONNECT, 0));
    assert_true(client_ended(&bed->from, second, NXL_REMOTE_DISCONNECT, 0));
    assert_int_equal(client_events(&bed->from, XFER_EVENT_PEER_DOWN), 1);
    down = client_event(&bed->from, XFER_EVENT_PEER_DOWN);
    assert_string_equal(down->incarnation, bed->to.incarnation);
    assert_string_equal(down->text, "its process is gone");
    assert_int_equal(down->ends, 2); /* told after its transfers had ended */
    assert_int_equal(nxl_xfer_explain(bed->from.session, 0, &err), NXL_OK);
    assert_non_null(strstr(err.text, bed->to.incarnation));
    (void)client_prepare(&bed->from, 2, NXL_READ, bed->remote, 65536, 0, 64);
    third = client_post(&bed->from);
    assert_true(client_ended(&bed->from, third, NXL_STALE, 1));
    hand_end(bed->hand, 0, NXL_OK, 1);
    hand_end(bed->hand, 1, NXL_REMOTE_DISCONNECT, 1);
    WAIT(&bed->rig, client_ended(&bed->from, first, NXL_REMOTE_DISCONNECT, 1));
    WAIT(&bed->rig, client_ended(&bed->from, second, NXL_REMOTE_DISCONNECT, 1));
    assert_int_equal(client_events(&bed->from, XFER_EVENT_PEER_DOWN), 1);
}

static void transfers_with_others_go_on(void **state)
{
    struct bed *bed = *state;
    struct client third;
    uint32_t remote, post;

    client_open(&third, &bed->rig, bed->engine, "ns", "third");
    remote = client_load(&bed->from, &third);
    (void)client_prepare(&bed->from, 0, NXL_WRITE, remote, 0, 0, 64);
    post = client_post(&bed->from);
    client_gone(&bed->to);
    assert_null(client_end(&bed->from, post));
    hand_end(bed->hand, 0, NXL_OK, 1);
    WAIT(&bed->rig, client_ended(&bed->from, post, NXL_OK, 1));
    assert_int_equal(client_events(&third, XFER_EVENT_PEER_DOWN), 0); /* had not loaded it */
    client_close(&third);
}

/* C-021, C-025: the same name, another life; the handle of the first stays stale. */
static void a_second_life_under_the_same_name_is_another_peer(void **state)
{
    struct bed *bed = *state;
    struct client again;
    struct nxl_xfer_remote_info info;
    struct nxl_err err = {0};
    uint32_t remote, post;

    client_gone(&bed->to);
    client_open(&again, &bed->rig, bed->engine, "ns", "to");
    assert_string_not_equal(again.incarnation, bed->to.incarnation);
    remote = client_load(&bed->from, &again);
    assert_int_not_equal(remote, bed->remote);
    assert_true(client_ended(&bed->from, bed_write(bed, 0), NXL_STALE, 1));
    assert_int_equal(nxl_xfer_state(bed->from.session, bed->from.peer, bed->remote, &info, &err),
                     NXL_OK);
    assert_int_equal(info.life, NXL_LIFE_DEAD);
    assert_int_equal(nxl_xfer_find(bed->from.session, bed->from.peer, "to", &info, &err), NXL_OK);
    assert_int_equal(info.remote, remote);
    (void)client_prepare(&bed->from, 0, NXL_WRITE, remote, 0, 0, 64);
    post = client_post(&bed->from);
    assert_null(client_end(&bed->from, post));
    client_close(&again);
}

/* C-021: a blob of the first life that comes late is refused. */
static void a_late_blob_of_the_dead_is_stale(void **state)
{
    struct bed *bed = *state;
    struct nxl_bytes blob = {0};
    struct reply reply;

    client_blob(&bed->to, 0, NULL, 0, &blob);
    client_gone(&bed->to);
    client_load_blob(&bed->from, (struct nxl_view){blob.data, blob.size}, &reply);
    assert_int_equal(reply.code, NXL_STALE);
    nxl_bytes_fini(&blob);
}

static void both_ends_of_a_transfer_may_die(void **state)
{
    struct bed *bed = *state;

    (void)bed_write(bed, 0);
    client_gone(&bed->to);
    client_gone(&bed->from);
    assert_int_equal(bed->hand->mems, 2);
    hand_end(bed->hand, 0, NXL_CANCELED, 0);
    hand_quiet(bed->hand, 0);
    WAIT(&bed->rig, bed->hand->mems == 0);
    assert_int_equal(rig_metric(bed->engine, "nixlet_regions", ""), 0);
}

/* ---- across agents -----------------------------------------------------------------------------
 */

struct two {
    struct rig rig;
    struct engine *far;
    struct client near, other;
    struct hand *hand, *far_hand;
    uint32_t remote;
};

static int setup_two(void **state)
{
    struct two *two = nxl_new0(sizeof(*two));

    rig_open(&two->rig, "hand", "limits.fence_timeout", "30s", NULL);
    two->far = rig_join(&two->rig, "node-b", "hand", "limits.fence_timeout", "30s", NULL);
    client_open(&two->near, &two->rig, &two->rig.engines[0], "ns", "near");
    client_open(&two->other, &two->rig, two->far, "ns", "other");
    two->remote = client_load(&two->near, &two->other);
    two->hand = hand_of(&two->rig, &two->rig.engines[0]);
    two->far_hand = hand_of(&two->rig, two->far);
    *state = two;
    return 0;
}

static int teardown_two(void **state)
{
    struct two *two = *state;

    client_close(&two->near);
    client_close(&two->other);
    rig_close(&two->rig);
    free(two);
    return 0;
}

static uint32_t write_far(struct two *two, uint32_t slot)
{
    (void)client_prepare(&two->near, slot, NXL_WRITE, two->remote, 0, 0, 64);
    return client_post(&two->near);
}

/* C-027: the far agent keeps the memory mapped until ours has confirmed that nothing moves. */
static void the_memory_of_a_dead_far_peer_stays_until_we_are_quiet(void **state)
{
    struct two *two = *state;
    uint32_t post = write_far(two, 0);

    client_gone(&two->other);
    WAIT(&two->rig, client_ended(&two->near, post, NXL_REMOTE_DISCONNECT, 0));
    assert_int_equal(client_events(&two->near, XFER_EVENT_PEER_DOWN), 1);
    assert_int_equal(two->far_hand->mems, 1);
    assert_true(client_ended(&two->near, write_far(two, 1), NXL_STALE, 1));
    hand_end(two->hand, 0, NXL_CANCELED, 1);
    WAIT(&two->rig, two->far_hand->mems == 0);
    assert_true(client_ended(&two->near, post, NXL_REMOTE_DISCONNECT, 1));
    assert_int_equal(two->hand->remotes, 0);
    assert_int_equal(client_events(&two->near, XFER_EVENT_PEER_DOWN), 1);
}

/* An agent that does not confirm: after limits.fence_timeout the region goes, and its addresses
 * stay valid for whoever still writes. */
static void a_far_agent_that_does_not_confirm_is_not_waited_for_for_ever(void **state)
{
    struct two *two = *state;
    volatile unsigned char *there;

    (void)write_far(two, 0);
    there = hand_far_memory(two->hand, 0);
    client_gone(&two->other);
    WAIT(&two->rig, client_events(&two->near, XFER_EVENT_PEER_DOWN) == 1);
    for (int i = 0; i < 5; i++)
        rig_turn(&two->rig);
    assert_int_equal(two->far_hand->mems, 1);
    rig_skip(&two->rig, 31 * NXL_SEC);
    WAIT(&two->rig, two->far_hand->mems == 0);
    *there = 99; /* late: it still writes there, and reaches nobody */
    assert_int_equal(two->other.base[0], 0);
    hand_end(two->hand, 0, NXL_IO, 1);
    rig_turn(&two->rig);
}

/* deregister waits for far agents, says BUSY in time, and may be asked again. */
static void a_region_a_far_agent_still_writes_to_is_busy_until_it_is_quiet(void **state)
{
    struct two *two = *state;
    struct gone gone = {0};
    uint32_t post = write_far(two, 0);

    nxl_xfer_deregister(two->other.session, two->other.peer, &two->other.region, 1, NXL_SEC,
                        gone_take, &gone);
    for (int i = 0; i < 5; i++)
        rig_turn(&two->rig);
    assert_int_equal(gone.count, 0);
    rig_skip(&two->rig, 2 * NXL_SEC);
    WAIT(&two->rig, gone.count == 1);
    assert_int_equal(gone.code, NXL_BUSY);
    assert_int_equal(gone.done, 0);
    assert_int_equal(two->far_hand->mems, 1);
    assert_null(client_end(&two->near, post)); /* what runs is not harmed */
    hand_end(two->hand, 0, NXL_OK, 1);
    WAIT(&two->rig, client_ended(&two->near, post, NXL_OK, 1));
    gone = (struct gone){0};
    nxl_xfer_deregister(two->other.session, two->other.peer, &two->other.region, 1, NXL_SEC,
                        gone_take, &gone);
    WAIT(&two->rig, gone.count == 1);
    assert_int_equal(gone.code, NXL_OK);
    assert_int_equal(two->far_hand->mems, 0);
}

/* Our client dies while its transfer writes to a far peer: the far side is told nothing wrong. */
static void a_dead_initiator_leaves_the_far_peer_alone(void **state)
{
    struct two *two = *state;

    (void)write_far(two, 0);
    client_gone(&two->near);
    assert_int_equal(two->hand->mems, 1);
    hand_end(two->hand, 0, NXL_CANCELED, 1);
    WAIT(&two->rig, two->hand->mems == 0);
    assert_int_equal(two->other.seen_count, 0);
    assert_int_equal(two->far_hand->mems, 1);
}

static void a_second_life_at_the_far_agent_is_loaded_beside_the_first(void **state)
{
    struct two *two = *state;
    struct client again;
    uint32_t first = two->remote;

    client_gone(&two->other);
    client_open(&again, &two->rig, two->far, "ns", "other");
    WAIT(&two->rig, client_events(&two->near, XFER_EVENT_PEER_DOWN) == 1);
    two->remote = client_load(&two->near, &again);
    assert_int_not_equal(two->remote, first);
    assert_null(client_end(&two->near, write_far(two, 0)));
    two->remote = first;
    assert_true(client_ended(&two->near, write_far(two, 1), NXL_STALE, 1));
    client_close(&again);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, bed_teardown)
#define TEST_TWO(name) cmocka_unit_test_setup_teardown(name, setup_two, teardown_two)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_death_ends_what_runs_once_and_later_posts_are_stale),
        TEST(transfers_with_others_go_on),
        TEST(a_second_life_under_the_same_name_is_another_peer),
        TEST(a_late_blob_of_the_dead_is_stale),
        TEST(both_ends_of_a_transfer_may_die),
        TEST_TWO(the_memory_of_a_dead_far_peer_stays_until_we_are_quiet),
        TEST_TWO(a_far_agent_that_does_not_confirm_is_not_waited_for_for_ever),
        TEST_TWO(a_region_a_far_agent_still_writes_to_is_busy_until_it_is_quiet),
        TEST_TWO(a_dead_initiator_leaves_the_far_peer_alone),
        TEST_TWO(a_second_life_at_the_far_agent_is_loaded_beside_the_first),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
