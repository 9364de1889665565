/* The life of a transfer as the client sees it in shared memory. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rig.h"

#define QUIET NXL_RING_QUIET

static void a_transfer_that_was_never_posted_says_so(void **state)
{
    struct rig *rig = *state;
    struct nxl_transfer *transfer = rig_transfer(rig);
    struct nxl_transfer_report report = {.size = sizeof(report)};

    assert_int_equal(nxl_transfer_poll(transfer), NXL_NOT_POSTED);
    assert_int_equal(nxl_transfer_quiesced(transfer), 1);
    assert_code(NXL_NOT_POSTED, rig, nxl_transfer_wait(transfer, 0, &rig->err));
    assert_code(NXL_NOT_POSTED, rig, nxl_transfer_cancel(transfer, &rig->err));
    assert_int_equal(nxl_transfer_report(transfer, &report), NXL_OK);
    assert_int_equal(report.code, NXL_NOT_POSTED);
    assert_int_equal(report.descriptors, RIG_BLOCKS);
    assert_code(NXL_OK, rig, nxl_transfer_release(transfer, &rig->err));
    /* The agent never heard of it, and does not now. */
    assert_int_equal(nxl_ring_take(fake_agent_ring(rig->agent), &(struct nxl_ring_entry){0}),
                     NXL_AGAIN);
}

static void states_of_the_slot_become_codes(void **state)
{
    static const struct {
        unsigned slot_state;
        enum nxl_code slot_code, want;
        int quiet;
    } rows[] = {
        {NXL_RING_DONE | QUIET, NXL_OK, NXL_OK, 1},
        {NXL_RING_DONE, NXL_OK, NXL_OK, 0},
        {NXL_RING_DONE | QUIET, NXL_BACKEND, NXL_OK, 1}, /* the state decides */
        {NXL_RING_FAILED | QUIET, NXL_BACKEND, NXL_BACKEND, 1},
        {NXL_RING_FAILED, NXL_TIMEOUT, NXL_TIMEOUT, 0},    /* C-008: ended, but not ours again */
        {NXL_RING_FAILED | QUIET, NXL_OK, NXL_UNKNOWN, 1}, /* no failure looks like success */
        {NXL_RING_FAILED | QUIET, NXL_IN_PROG, NXL_UNKNOWN, 1},
        {NXL_RING_CANCELLED | QUIET, NXL_CANCELED, NXL_CANCELED, 1},
        {NXL_RING_RUNNING, NXL_OK, NXL_IN_PROG, 0},
        {NXL_RING_IDLE, NXL_OK, NXL_IN_PROG, 0},
        {NXL_RING_RUNNING | QUIET, NXL_OK, NXL_IN_PROG, 0}, /* quiet means nothing before the end */
        {0x7f | QUIET, NXL_OK, NXL_IN_PROG, 0},
    };
    struct rig *rig = *state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct nxl_transfer *transfer = rig_transfer(rig);
        struct nxl_ring_entry entry = rig_post(rig, transfer);

        assert_int_equal(nxl_transfer_poll(transfer), NXL_IN_PROG);
        assert_int_equal(nxl_transfer_quiesced(transfer), 0);
        rig_end(rig, entry, rows[i].slot_state, rows[i].slot_code);
        assert_int_equal(nxl_transfer_poll(transfer), rows[i].want);
        assert_int_equal(nxl_transfer_poll(transfer), rows[i].want); /* sticky */
        assert_int_equal(nxl_transfer_quiesced(transfer), rows[i].quiet);
        assert_code(rows[i].quiet ? NXL_OK : NXL_BUSY, rig,
                    nxl_transfer_release(transfer, &rig->err));
        if (rows[i].quiet)
            assert_int_equal(rig_take(rig).kind, NXL_RING_RELEASE);
    }
}

static void the_word_of_an_earlier_post_says_nothing(void **state)
{
    struct rig *rig = *state;
    struct nxl_transfer *transfer = rig_transfer(rig);
    struct nxl_ring_entry first = rig_post(rig, transfer), second;

    rig_end(rig, first, NXL_RING_DONE | QUIET, NXL_OK);
    assert_int_equal(nxl_transfer_poll(transfer), NXL_OK);
    second = rig_post(rig, transfer);
    assert_int_equal(second.slot, first.slot);
    assert_int_equal(second.generation, first.generation + 1);
    assert_int_equal(first.flags & NXL_RING_REUSE, 0);
    assert_int_equal(second.flags & NXL_RING_REUSE, NXL_RING_REUSE);
    assert_int_equal(nxl_transfer_poll(transfer), NXL_IN_PROG);
    rig_end(rig, first, NXL_RING_FAILED | QUIET, NXL_BACKEND); /* late and of the wrong post */
    assert_int_equal(nxl_transfer_poll(transfer), NXL_IN_PROG);
    rig_end(rig, second, NXL_RING_DONE | QUIET, NXL_OK);
    assert_int_equal(nxl_transfer_poll(transfer), NXL_OK);
}

static void a_slot_used_again_goes_on_counting(void **state)
{
    struct rig *rig = *state; /* 4 slots */
    uint32_t last[4] = {0};

    for (int i = 0; i < 40; i++) {
        struct nxl_transfer *transfer = rig_transfer(rig);
        struct nxl_ring_entry entry = rig_post(rig, transfer), release;

        assert_true(entry.slot < 4);
        assert_int_equal(entry.generation, last[entry.slot] + 1);
        assert_int_equal(entry.flags & NXL_RING_REUSE, 0); /* another transfer, another plan */
        last[entry.slot] = entry.generation;
        assert_int_equal(nxl_transfer_poll(transfer), NXL_IN_PROG);
        rig_end(rig, entry, NXL_RING_DONE | QUIET, NXL_OK);
        assert_code(NXL_OK, rig, nxl_transfer_release(transfer, &rig->err));
        release = rig_take(rig);
        assert_int_equal(release.kind, NXL_RING_RELEASE);
        assert_int_equal(release.slot, entry.slot);
        assert_int_equal(release.generation, entry.generation);
    }
}

static void a_running_transfer_cannot_be_posted_or_released(void **state)
{
    struct rig *rig = *state;
    struct nxl_transfer *transfer = rig_transfer(rig);
    struct nxl_ring_entry entry = rig_post(rig, transfer);

    assert_code(NXL_REPOST_ACTIVE, rig, nxl_transfer_post(transfer, &rig->err));
    assert_code(NXL_BUSY, rig, nxl_transfer_release(transfer, &rig->err));
    assert_says(rig, "is running");
    assert_code(NXL_REPOST_ACTIVE, rig, nxl_transfer_notice(transfer, "x", 1, 1, &rig->err));
    rig_end(rig, entry, NXL_RING_FAILED, NXL_TIMEOUT);
    /* C-008: ended, but bytes may still move. */
    assert_code(NXL_REPOST_ACTIVE, rig, nxl_transfer_post(transfer, &rig->err));
    assert_says(rig, "not quiet");
    assert_code(NXL_BUSY, rig, nxl_transfer_release(transfer, &rig->err));
    assert_says(rig, "ended but is not quiet");
    assert_code(NXL_TIMEOUT, rig, nxl_transfer_wait_quiesced(transfer, 1000000, &rig->err));
    rig_end(rig, entry, NXL_RING_FAILED | QUIET, NXL_TIMEOUT);
    assert_code(NXL_OK, rig, nxl_transfer_wait_quiesced(transfer, 0, &rig->err));
    assert_code(NXL_OK, rig, nxl_transfer_release(transfer, &rig->err));
    assert_int_equal(nxl_ring_take(fake_agent_ring(rig->agent), &entry), NXL_OK);
    assert_int_equal(entry.kind, NXL_RING_RELEASE); /* and none of the refused calls before it */
}

/* C-007: cancel twice, cancel after the end, and who was faster. */
static void cancel_names_the_post_that_it_means(void **state)
{
    struct rig *rig = *state;
    struct nxl_transfer *transfer = rig_transfer(rig);
    struct nxl_ring_entry post = rig_post(rig, transfer), cancel;

    assert_code(NXL_OK, rig, nxl_transfer_cancel(transfer, &rig->err));
    cancel = rig_take(rig);
    assert_int_equal(cancel.kind, NXL_RING_CANCEL);
    assert_int_equal(cancel.slot, post.slot);
    assert_int_equal(cancel.generation, post.generation);
    assert_int_equal(nxl_transfer_poll(transfer), NXL_IN_PROG); /* the end still comes */
    assert_code(NXL_OK, rig, nxl_transfer_cancel(transfer, &rig->err));
    rig_take(rig);
    rig_end(rig, post, NXL_RING_DONE | QUIET, NXL_OK); /* it was faster */
    assert_code(NXL_OK, rig, nxl_transfer_cancel(transfer, &rig->err));
    assert_int_equal(nxl_transfer_poll(transfer), NXL_OK);
    assert_int_equal(nxl_ring_take(fake_agent_ring(rig->agent), &cancel), NXL_AGAIN);
}

static void a_released_handle_is_known_as_such(void **state)
{
    struct rig *rig = *state;
    struct nxl_transfer *transfer = rig_transfer(rig);

    assert_code(NXL_OK, rig, nxl_transfer_release(transfer, &rig->err));
    assert_int_equal(nxl_transfer_poll(transfer), NXL_INVALID_PARAM);
    assert_code(NXL_INVALID_PARAM, rig, nxl_transfer_post(transfer, &rig->err));
    assert_code(NXL_INVALID_PARAM, rig, nxl_transfer_cancel(transfer, &rig->err));
    assert_code(NXL_INVALID_PARAM, rig, nxl_transfer_notice(transfer, "x", 1, 1, &rig->err));
    assert_code(NXL_INVALID_PARAM, rig, nxl_transfer_release(transfer, &rig->err));
    assert_code(NXL_INVALID_PARAM, rig, nxl_transfer_wait(transfer, 5, &rig->err));
    assert_says(rig, "argument");
}

static void a_parked_agent_is_rung_for_and_a_busy_one_is_not(void **state)
{
    struct rig *rig = *state;
    struct nxl_transfer *transfer = rig_transfer(rig);
    struct nxl_ring_entry entry;

    entry = rig_post(rig, transfer);
    assert_int_equal(fake_agent_rang(rig->agent), 0);
    rig_end(rig, entry, NXL_RING_DONE | QUIET, NXL_OK);
    assert_int_equal(nxl_ring_park(fake_agent_ring(rig->agent)), NXL_OK);
    assert_code(NXL_OK, rig, nxl_transfer_post(transfer, &rig->err));
    assert_int_equal(fake_agent_rang(rig->agent), 1);
    assert_code(NXL_OK, rig, nxl_transfer_cancel(transfer, &rig->err));
    assert_int_equal(fake_agent_rang(rig->agent), 0); /* once per parking */
}

static void an_agent_that_takes_nothing_is_a_limit_and_changes_nothing(void **state)
{
    struct rig *rig = *state;
    struct nxl_transfer *transfer = rig_transfer(rig);
    struct nxl_ring_entry entry;

    for (unsigned i = 0; i < NXL_RING_ENTRIES; i++)
        assert_code(NXL_OK, rig, nxl_notify(rig->peer, rig->remote, NULL, 0, &rig->err));
    assert_code(NXL_LIMIT, rig, nxl_transfer_post(transfer, &rig->err));
    assert_says(rig, "submission ring");
    assert_int_equal(nxl_transfer_poll(transfer), NXL_NOT_POSTED);
    for (unsigned i = 0; i < NXL_RING_ENTRIES; i++)
        rig_take(rig);
    assert_int_equal(nxl_ring_take(fake_agent_ring(rig->agent), &entry), NXL_AGAIN);
    entry = rig_post(rig, transfer);
    assert_int_equal(entry.generation, 1);
}

static void the_notice_of_a_transfer_is_copied_and_may_be_empty(void **state)
{
    struct rig *rig = *state;
    struct nxl_transfer *transfer = rig_transfer(rig);
    char text[] = "layer 7";
    struct nxl_ring_entry entry;

    assert_code(NXL_OK, rig, nxl_transfer_notice(transfer, text, 7, 1, &rig->err));
    memset(text, 'x', 7);
    entry = rig_post(rig, transfer);
    assert_true(entry.flags & NXL_RING_NOTICE);
    assert_int_equal(entry.notice_size, 7);
    assert_memory_equal(nxl_ring_arena(fake_agent_ring(rig->agent), entry.notice_offset, 7),
                        "layer 7", 7);
    rig_end(rig, entry, NXL_RING_DONE | QUIET, NXL_OK);
    assert_code(NXL_OK, rig, nxl_transfer_notice(transfer, NULL, 0, 1, &rig->err));
    entry = rig_post(rig, transfer);
    assert_true(entry.flags & NXL_RING_NOTICE);
    assert_int_equal(entry.notice_size, 0);
    rig_end(rig, entry, NXL_RING_DONE | QUIET, NXL_OK);
    assert_code(NXL_OK, rig, nxl_transfer_notice(transfer, NULL, 0, 0, &rig->err));
    entry = rig_post(rig, transfer);
    assert_false(entry.flags & NXL_RING_NOTICE);
    rig_end(rig, entry, NXL_RING_DONE | QUIET, NXL_OK);
    assert_code(NXL_LIMIT, rig,
                nxl_transfer_notice(transfer, text, NXL_NOTICE_MAX + 1, 1, &rig->err));
    assert_code(NXL_INVALID_PARAM, rig, nxl_transfer_notice(transfer, NULL, 1, 1, &rig->err));
}

static void the_report_says_where_the_bytes_went(void **state)
{
    struct rig *rig = *state;
    struct nxl_transfer *transfer = rig_transfer(rig);
    struct nxl_transfer_report report = {.size = sizeof(report)};
    struct nxl_ring_entry entry = rig_post(rig, transfer);

    rig_end(rig, entry, NXL_RING_DONE | QUIET, NXL_OK);
    assert_int_equal(nxl_transfer_report(transfer, &report), NXL_OK);
    assert_int_equal(report.code, NXL_OK);
    assert_int_equal(report.bytes, 4096);
    assert_int_equal(report.pieces, 2);
    assert_int_equal(report.descriptors, RIG_BLOCKS);
    assert_true(report.posted_ns > 0);
    assert_string_equal(report.backend, "shm");
    assert_string_equal(report.device, "mlx5_0");
    assert_string_equal(nxl_path_name(report.path), "one-copy");
    assert_string_equal(nxl_protocol_name(report.protocol), "local");
    assert_string_equal(nxl_path_name(99), "unknown");
    report.size = 8; /* an older application's report */
    report.bytes = 77;
    assert_int_equal(nxl_transfer_report(transfer, &report), NXL_OK);
    assert_int_equal(report.bytes, 77);
}

static void a_failure_is_explained_by_the_agent(void **state)
{
    struct rig *rig = *state;
    struct nxl_transfer *transfer = rig_transfer(rig);
    struct nxl_ring_entry entry = rig_post(rig, transfer);
    struct nxl_err why;
    char want[64];

    assert_int_equal(nxl_transfer_explain(transfer, &why), NXL_OK);
    assert_int_equal(why.code, NXL_IN_PROG);
    rig_end(rig, entry, NXL_RING_FAILED | QUIET, NXL_NOT_FOUND);
    assert_int_equal(nxl_transfer_explain(transfer, &why), NXL_OK);
    assert_int_equal(why.code, NXL_NOT_FOUND);
    snprintf(want, sizeof(want), "slot %u, post 1: index 4 broke", entry.slot);
    assert_string_equal(why.text, want);
}

static void waiting_tells_an_end_from_a_timeout(void **state)
{
    struct rig *rig = *state;
    struct nxl_transfer *transfer = rig_transfer(rig);
    struct nxl_ring_entry entry = rig_post(rig, transfer);

    assert_code(NXL_TIMEOUT, rig, nxl_transfer_wait(transfer, 0, &rig->err));
    assert_code(NXL_TIMEOUT, rig, nxl_transfer_wait(transfer, 3000000, &rig->err));
    assert_says(rig, "still runs after 3000 us");
    /* C-012: an end that is there counts, however short the time. */
    rig_end(rig, entry, NXL_RING_FAILED | QUIET, NXL_PATH_REFUSED);
    assert_code(NXL_PATH_REFUSED, rig, nxl_transfer_wait(transfer, 0, &rig->err));
    assert_code(NXL_PATH_REFUSED, rig, nxl_transfer_wait(transfer, UINT64_MAX, &rig->err));
}

static void a_peer_that_closed_takes_its_transfers_posts_along(void **state)
{
    struct rig *rig = *state;
    struct nxl_transfer *transfer = rig_transfer(rig);

    rig_end(rig, rig_post(rig, transfer), NXL_RING_DONE | QUIET, NXL_OK);
    assert_code(NXL_OK, rig, nxl_peer_close(rig->peer, &rig->err));
    assert_int_equal(fake_agent_count(rig->agent, NXL_FRAME_PEER_CLOSE), 1);
    assert_code(NXL_INVALID_PARAM, rig, nxl_transfer_post(transfer, &rig->err));
    assert_int_equal(nxl_transfer_poll(transfer), NXL_OK);
    assert_code(NXL_OK, rig, nxl_transfer_release(transfer, &rig->err));
    nxl_list_free(rig->local);
    nxl_list_free(rig->far); /* the last reference: the peer's memory goes (sanitizer) */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)
#define TEST_SMALL(name) cmocka_unit_test_setup_teardown(name, rig_setup_small, rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_transfer_that_was_never_posted_says_so),
        TEST(states_of_the_slot_become_codes),
        TEST(the_word_of_an_earlier_post_says_nothing),
        TEST_SMALL(a_slot_used_again_goes_on_counting),
        TEST(a_running_transfer_cannot_be_posted_or_released),
        TEST(cancel_names_the_post_that_it_means),
        TEST(a_released_handle_is_known_as_such),
        TEST(a_parked_agent_is_rung_for_and_a_busy_one_is_not),
        TEST(an_agent_that_takes_nothing_is_a_limit_and_changes_nothing),
        TEST(the_notice_of_a_transfer_is_copied_and_may_be_empty),
        TEST(the_report_says_where_the_bytes_went),
        TEST(a_failure_is_explained_by_the_agent),
        TEST(waiting_tells_an_end_from_a_timeout),
        TEST(a_peer_that_closed_takes_its_transfers_posts_along),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
