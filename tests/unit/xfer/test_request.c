/* request.c, dispatch.c: whatever the backend does, a post ends exactly once, and "quiet" is told
 * apart from that. The rig's front fails the test when an end is told twice. */
#include "rig.h"

#include <string.h>

static int setup(void **state)
{
    *state = bed_new("hand", NULL);
    return 0;
}

static void a_post_that_the_backend_ends_well_is_done_and_quiet(void **state)
{
    struct bed *bed = *state;
    uint32_t post;
    const struct end *end;

    memset(bed->from.base, 7, 4096);
    post = bed_write(bed, 3);
    assert_null(client_end(&bed->from, post));
    hand_end(bed->hand, 0, NXL_OK, 1);
    WAIT(&bed->rig, client_ended(&bed->from, post, NXL_OK, 1));
    end = client_end(&bed->from, post);
    assert_int_equal(end->slot, 3);
    assert_int_equal(end->last.bytes, 4096);
    assert_int_equal(end->last.descriptors, 1);
    assert_int_equal(end->last.pieces, 1);
    assert_int_equal(end->last.path, NXL_PATH_RDMA); /* what was taken, told always (C-107) */
    assert_string_equal(end->last.device, "hand0");
    assert_true(end->last.ended_ns >= end->last.started_ns);
    assert_int_equal(bed->to.base[4096], 7);
    assert_int_equal(bed->to.base[8192], 0);
}

/* C-013: an error is an end, and it names both sides and the backend (C-015, C-109). */
static void a_post_that_the_backend_fails_ends_once_and_can_be_explained(void **state)
{
    struct bed *bed = *state;
    struct nxl_err err = {0};
    uint32_t post = bed_write(bed, 0);

    hand_end(bed->hand, 0, NXL_IO, 1);
    WAIT(&bed->rig, client_ended(&bed->from, post, NXL_IO, 1));
    assert_int_equal(nxl_xfer_explain(bed->from.session, 0, &err), NXL_OK);
    assert_int_equal(err.code, NXL_IO);
    assert_non_null(strstr(err.text, bed->to.incarnation));
    assert_non_null(strstr(err.text, "'hand'"));
    assert_int_equal(rig_metric(bed->engine, "agent_errors_total", "status=\"io\""), 1);
}

static void a_failure_leaves_the_slot_usable(void **state)
{
    struct bed *bed = *state;
    struct nxl_err err = {0};
    uint32_t post = bed_write(bed, 0);

    hand_end(bed->hand, 0, NXL_BACKEND, 1);
    WAIT(&bed->rig, client_ended(&bed->from, post, NXL_BACKEND, 1));
    post = bed_write(bed, 0);
    hand_end(bed->hand, 1, NXL_OK, 1);
    WAIT(&bed->rig, client_ended(&bed->from, post, NXL_OK, 1));
    assert_int_equal(nxl_xfer_explain(bed->from.session, 0, &err), NXL_NOT_FOUND);
}

/* C-013: synchronously, too. */
static void a_submit_that_is_refused_ends_the_post_inside_the_call(void **state)
{
    struct bed *bed = *state;
    uint32_t post;

    bed->hand->submit_code = NXL_LIMIT;
    post = bed_write(bed, 0);
    assert_true(client_ended(&bed->from, post, NXL_LIMIT, 1));
    assert_int_equal(bed->hand->submits, 0);
}

/* C-110: told twice by the backend, told once to the client. */
static void a_completion_that_comes_twice_is_one_end(void **state)
{
    struct bed *bed = *state;
    uint32_t post = bed_write(bed, 0), next;

    hand_end(bed->hand, 0, NXL_OK, 1);
    hand_end(bed->hand, 0, NXL_IO, 1);
    WAIT(&bed->rig, client_ended(&bed->from, post, NXL_OK, 1));
    hand_end(bed->hand, 0, NXL_IO, 1); /* and late, while the slot is used again */
    next = bed_write(bed, 0);
    hand_end(bed->hand, 0, NXL_IO, 1);
    rig_turn(&bed->rig);
    assert_null(client_end(&bed->from, next));
    hand_end(bed->hand, 1, NXL_OK, 1);
    WAIT(&bed->rig, client_ended(&bed->from, next, NXL_OK, 1));
    assert_int_equal(client_end(&bed->from, post)->updates, 1);
}

static void an_end_that_is_not_quiet_is_told_again_when_it_is(void **state)
{
    struct bed *bed = *state;
    uint32_t post = bed_write(bed, 0);

    hand_end(bed->hand, 0, NXL_OK, 0);
    WAIT(&bed->rig, client_ended(&bed->from, post, NXL_OK, 0));
    assert_int_equal(rig_metric(bed->engine, "nixlet_transfers_unquiet", ""), 1);
    hand_quiet(bed->hand, 0);
    WAIT(&bed->rig, client_ended(&bed->from, post, NXL_OK, 1));
    assert_int_equal(client_end(&bed->from, post)->updates, 2);
    assert_int_equal(rig_metric(bed->engine, "nixlet_transfers_unquiet", ""), 0);
}

/* C-010: the slot of a transfer that runs, or whose buffers are not quiet, takes no other. */
static void a_slot_in_use_refuses_a_second_post_and_keeps_the_first(void **state)
{
    struct bed *bed = *state;
    uint32_t first = bed_write(bed, 0);
    uint32_t second = bed_write(bed, 0), third;

    assert_true(client_ended(&bed->from, second, NXL_REPOST_ACTIVE, 1));
    assert_null(client_end(&bed->from, first));
    hand_end(bed->hand, 0, NXL_OK, 0);
    WAIT(&bed->rig, client_ended(&bed->from, first, NXL_OK, 0));
    third = bed_write(bed, 0);
    assert_true(client_ended(&bed->from, third, NXL_REPOST_ACTIVE, 1));
    hand_quiet(bed->hand, 0);
    WAIT(&bed->rig, client_ended(&bed->from, first, NXL_OK, 1));
    assert_int_equal(bed->hand->submits, 1);
}

/* So many pieces, each alone, for a backend that takes four at once: several parts, one end. */
static uint32_t parts_post(struct bed *bed, uint32_t pieces)
{
    struct nxl_xfer_post *post = client_prepare(&bed->from, 0, NXL_WRITE, bed->remote, 0, 0, 64);
    static struct nxl_run local[64], remote[64];

    assert_true(pieces <= NXL_COUNT_OF(local));
    for (uint32_t i = 0; i < pieces; i++) {
        local[i] = (struct nxl_run){.addr = CLIENT_ADDR + i * i * 128, .len = 64, .count = 1};
        remote[i] = (struct nxl_run){.addr = CLIENT_ADDR + i * 8192, .len = 64, .count = 1};
    }
    post->local_runs = local;
    post->remote_runs = remote;
    post->count = post->remote_count = pieces;
    return client_post(&bed->from);
}

static void a_transfer_in_parts_ends_when_all_of_them_have(void **state)
{
    struct bed *bed = *state;
    uint32_t post = parts_post(bed, 9);

    assert_int_equal(bed->hand->submits, 3);
    hand_end(bed->hand, 2, NXL_OK, 1);
    hand_end(bed->hand, 0, NXL_OK, 1);
    rig_turn(&bed->rig);
    assert_null(client_end(&bed->from, post));
    hand_end(bed->hand, 1, NXL_OK, 1);
    WAIT(&bed->rig, client_ended(&bed->from, post, NXL_OK, 1));
    assert_int_equal(client_end(&bed->from, post)->last.bytes, 9 * 64);
}

/* C-019, the sender's half: one part of several fails: the whole ends at once, the rest is
 * cancelled, and the buffers are not quiet before the rest is. */
static void one_failed_part_ends_the_transfer_and_the_others_make_it_quiet(void **state)
{
    struct bed *bed = *state;
    uint32_t post = parts_post(bed, 9);

    hand_end(bed->hand, 1, NXL_IO, 1);
    WAIT(&bed->rig, client_ended(&bed->from, post, NXL_IO, 0));
    assert_int_equal(bed->hand->cancels, 2);
    hand_end(bed->hand, 0, NXL_CANCELED, 1);
    rig_turn(&bed->rig);
    assert_true(client_ended(&bed->from, post, NXL_IO, 0));
    hand_end(bed->hand, 2, NXL_OK, 1);
    WAIT(&bed->rig, client_ended(&bed->from, post, NXL_IO, 1));
}

/* C-009: sixteen parts, the third fails at once; the slot is let go at the first error, and the
 * others answer late. */
static void a_release_after_the_first_error_waits_for_the_other_parts(void **state)
{
    struct bed *bed = *state;
    struct gone gone = {0};
    uint32_t post = parts_post(bed, 64);

    assert_int_equal(bed->hand->submits, 16);
    hand_end(bed->hand, 2, NXL_IO, 1);
    WAIT(&bed->rig, client_ended(&bed->from, post, NXL_IO, 0));
    nxl_xfer_release(bed->from.session, 0);
    for (uint32_t i = 0; i < 16; i++) {
        nxl_xfer_deregister(bed->to.session, bed->to.peer, &bed->to.region, 1, 0, gone_take, &gone);
        assert_int_equal(gone.code, NXL_BUSY);
        gone = (struct gone){0};
        if (i != 2)
            hand_end(bed->hand, i, i % 2 ? NXL_OK : NXL_CANCELED, 1);
        rig_turn(&bed->rig);
    }
    nxl_xfer_deregister(bed->to.session, bed->to.peer, &bed->to.region, 1, 0, gone_take, &gone);
    assert_int_equal(gone.code, NXL_OK);
    assert_int_equal(client_end(&bed->from, post)->updates, 1);
}

static void back_pressure_is_no_error_and_keeps_the_order(void **state)
{
    struct bed *bed = *state;
    uint32_t first, second;

    bed->hand->submit_code = NXL_AGAIN;
    first = bed_write(bed, 0);
    second = bed_write(bed, 1);
    assert_int_equal(rig_metric(bed->engine, "nixlet_operations_waiting", ""), 2);
    bed->hand->host->ready(bed->hand->host); /* a false alarm */
    rig_turn(&bed->rig);
    assert_null(client_end(&bed->from, first));
    bed->hand->submit_code = NXL_OK;
    bed->hand->host->ready(bed->hand->host);
    WAIT(&bed->rig, bed->hand->submits == 2);
    hand_end(bed->hand, 0, NXL_OK, 1);
    WAIT(&bed->rig, client_ended(&bed->from, first, NXL_OK, 1));
    assert_null(client_end(&bed->from, second));
    hand_end(bed->hand, 1, NXL_OK, 1);
    WAIT(&bed->rig, client_ended(&bed->from, second, NXL_OK, 1));
    assert_int_equal(rig_metric(bed->engine, "nixlet_operations_waiting", ""), 0);
}

static void what_waited_and_is_refused_then_ends_once(void **state)
{
    struct bed *bed = *state;
    uint32_t first, second;

    bed->hand->submit_code = NXL_AGAIN;
    first = bed_write(bed, 0);
    second = bed_write(bed, 1);
    bed->hand->submit_code = NXL_BACKEND;
    bed->hand->host->ready(bed->hand->host);
    WAIT(&bed->rig, client_ended(&bed->from, second, NXL_BACKEND, 1));
    assert_true(client_ended(&bed->from, first, NXL_BACKEND, 1));
}

/* C-108: counters grow by what moved, and by nothing else. */
static void bytes_and_transfers_are_counted_once(void **state)
{
    struct bed *bed = *state;
    uint32_t post = bed_write(bed, 0);

    hand_end(bed->hand, 0, NXL_OK, 1);
    hand_end(bed->hand, 0, NXL_OK, 1);
    WAIT(&bed->rig, client_ended(&bed->from, post, NXL_OK, 1));
    post = bed_write(bed, 0);
    hand_end(bed->hand, 1, NXL_IO, 1);
    WAIT(&bed->rig, client_ended(&bed->from, post, NXL_IO, 1));
    assert_int_equal(rig_metric(bed->engine, "agent_tx_bytes_total", ""), 4096);
    assert_int_equal(rig_metric(bed->engine, "agent_tx_requests_num_total", ""), 1);
    assert_int_equal(rig_metric(bed->engine, "agent_rx_bytes_total", ""), 0);
    assert_int_equal(rig_metric(bed->engine, "nixlet_transfers_running", ""), 0);
    assert_int_equal(rig_metric(bed->engine, "nixlet_transfers_running_bytes", ""), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, bed_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_post_that_the_backend_ends_well_is_done_and_quiet),
        TEST(a_post_that_the_backend_fails_ends_once_and_can_be_explained),
        TEST(a_failure_leaves_the_slot_usable),
        TEST(a_submit_that_is_refused_ends_the_post_inside_the_call),
        TEST(a_completion_that_comes_twice_is_one_end),
        TEST(an_end_that_is_not_quiet_is_told_again_when_it_is),
        TEST(a_slot_in_use_refuses_a_second_post_and_keeps_the_first),
        TEST(a_transfer_in_parts_ends_when_all_of_them_have),
        TEST(one_failed_part_ends_the_transfer_and_the_others_make_it_quiet),
        TEST(a_release_after_the_first_error_waits_for_the_other_parts),
        TEST(back_pressure_is_no_error_and_keeps_the_order),
        TEST(what_waited_and_is_refused_then_ends_once),
        TEST(bytes_and_transfers_are_counted_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
