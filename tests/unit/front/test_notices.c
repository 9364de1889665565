/* Notices and events: in order, once, kept within a bound for a slow reader, never lost in silence.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "rig.h"
#include "base/clock.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct rig rig;
static struct raw raw;
static char payload[6000];

static int setup(void **state)
{
    (void)state;
    rig_open(&rig, "notice_queue_max", "16Ki", NULL);
    raw_open(&raw, &rig);
    raw_welcome(&raw);
    memset(payload, 'p', sizeof(payload));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    raw_close(&raw);
    rig_close(&rig);
    return 0;
}

static enum nxl_code tell(uint64_t number, size_t size, int must)
{
    struct nxl_xfer_session *session = rig.xfer->sessions;
    struct nxl_xfer_event event = {
        .kind = 1,
        .peer = 3,
        .code = NXL_OK,
        .transfer = number,
        .at_ns = 10 + number,
        .name = "decode",
        .incarnation = "pod/container/2",
        .payload = {payload, size},
    };

    return session->front->event(session->front_arg, &event, must);
}

static void an_event_arrives_with_every_field_and_wakes_a_parked_client_once(void **state)
{
    struct nxl_ring_event got = {0};
    uint64_t woken = 0;

    (void)state;
    assert_int_equal(tell(1, 5, 0), NXL_OK); /* not parked: not woken */
    assert_int_equal(read(raw.wake, &woken, sizeof(woken)), -1);
    atomic_store(&raw.ring.header->client_parked, 1);
    assert_int_equal(tell(2, 0, 0), NXL_OK);
    assert_int_equal(tell(3, 0, 0), NXL_OK);
    assert_int_equal(read(raw.wake, &woken, sizeof(woken)), sizeof(woken));
    assert_int_equal(woken, 1);
    assert_int_equal(nxl_ring_notice_peek(&raw.ring, &got), NXL_OK);
    assert_int_equal(got.kind, 1);
    assert_int_equal(got.peer, 3);
    assert_int_equal(got.transfer, 1);
    assert_int_equal(got.at_ns, 11);
    assert_int_equal(got.payload.size, 5);
    assert_memory_equal(got.payload.data, "ppppp", 5);
    assert_int_equal(got.name.size, 6);
    assert_memory_equal(got.name.data, "decode", 6);
    assert_int_equal(got.incarnation.size, 15);
}

struct reading {
    uint64_t next, until; /* next number expected; done when it is until */
};

/* Reads what is there; every number must be the next one. */
static int read_in_order(void *arg)
{
    struct reading *reading = arg;
    struct nxl_ring_event got;

    while (nxl_ring_notice_peek(&raw.ring, &got) == NXL_OK) {
        assert_int_equal(got.transfer, reading->next);
        reading->next++;
        nxl_ring_notice_done(&raw.ring);
    }
    return reading->next == reading->until;
}

static int has_room(void *arg)
{
    (void)arg;
    return rig.xfer->room > 0;
}

/* C-009: a reader that comes late finds everything, in order and once, and what did not fit is held
 * back by the engine, which is told when it may go on. No doorbell says that the client has read.
 */
static void a_slow_reader_gets_everything_in_order_and_the_engine_is_held_back(void **state)
{
    struct reading reading = {.next = 1};
    uint64_t number = 0;

    (void)state;
    while (nxl_front_park(rig.front))
        continue;
    while (tell(number + 1, 500, 0) == NXL_OK)
        number++;
    assert_true(number > 4096 / 600 && number < 60);
    assert_int_equal(tell(number + 1, 500, 0), NXL_AGAIN); /* still */
    assert_true(rig_metric(&rig, "nixlet_notice_queue_bytes", "") > 14000);
    assert_true(rig_metric(&rig, "nixlet_notice_queue_bytes", "") <= 16384);
    rig_turns(&rig, 5);
    assert_int_equal(rig.xfer->room, 0);
    reading.until = number + 1;
    assert_true(rig_run(&rig, read_in_order, &reading));
    assert_true(rig_run(&rig, has_room, NULL));
    assert_int_equal(rig.xfer->room, 1);
    assert_int_equal(rig_metric(&rig, "nixlet_notice_queue_bytes", ""), 0);
    assert_int_equal(tell(number + 1, 500, 0), NXL_OK);
    reading.until++;
    assert_true(rig_run(&rig, read_in_order, &reading));
}

static void what_comes_while_others_are_queued_does_not_overtake_them(void **state)
{
    struct reading reading = {.next = 1, .until = 12};

    (void)state;
    for (uint64_t number = 1; number <= 10; number++)
        assert_int_equal(tell(number, 600, 0), NXL_OK);
    for (int i = 0; i < 3; i++) { /* room for a small one, but it is not its turn */
        struct nxl_ring_event got;

        assert_int_equal(nxl_ring_notice_peek(&raw.ring, &got), NXL_OK);
        assert_int_equal(got.transfer, reading.next++);
        nxl_ring_notice_done(&raw.ring);
    }
    assert_int_equal(tell(11, 1, 1), NXL_OK);
    assert_true(rig_run(&rig, read_in_order, &reading));
}

static int session_closed(void *arg)
{
    (void)arg;
    return rig.xfer->sessions->closed;
}

static void what_must_not_be_lost_is_never_refused_but_ends_who_never_reads(void **state)
{
    uint64_t number = 0;

    (void)state;
    while (tell(number + 1, 500, 0) == NXL_OK)
        number++;
    for (uint64_t more = 0; more < 60; more++)
        assert_int_equal(tell(number + 1 + more, 500, 1), NXL_OK);
    assert_false(rig.xfer->sessions->closed); /* not from inside a call of the engine */
    assert_true(rig_run(&rig, session_closed, NULL));
    assert_non_null(strstr(rig.xfer->sessions->reason, "socket.notice_queue_max"));
    assert_int_equal(rig_metric(&rig, "nixlet_notice_queue_bytes", ""), 0);
    assert_true(rig_run(&rig, raw_ended, &raw));
    assert_non_null(strstr(raw.in->text, "does not read its notices"));
}

static void a_notice_that_can_never_fit_is_a_limit_whether_others_wait_or_not(void **state)
{
    struct reading reading = {.next = 1, .until = 12};

    (void)state;
    assert_int_equal(tell(1, sizeof(payload), 0), NXL_LIMIT);
    assert_int_equal(tell(1, 2048 - 40 - 21 + 1, 0), NXL_LIMIT);
    for (uint64_t number = 1; number <= 10; number++)
        assert_int_equal(tell(number, 600, 0), NXL_OK);
    assert_int_equal(tell(11, 2048 - 40 - 21 + 1, 0), NXL_LIMIT);
    assert_int_equal(tell(11, 2048 - 40 - 21, 0), NXL_OK);
    assert_true(rig_run(&rig, read_in_order, &reading));
}

/* The queue's limit is smaller than this one notice: it still has to come through. */
static void a_notice_larger_than_the_queue_is_kept_if_it_is_the_first(void **state)
{
    struct rig small;
    struct raw client;
    struct nxl_ring_event got = {0};
    struct nxl_xfer_event event = {
        .kind = 1, .name = "n", .incarnation = "i", .payload = {payload, sizeof(payload)}};
    struct nxl_xfer_session *session;
    int told = 0;

    (void)state;
    rig_open(&small, "notice_queue_max", "4Ki", NULL);
    raw_open(&client, &small);
    raw_welcome_sized(&client, 1, 4096, 16384);
    session = small.xfer->sessions;
    while (told < 50 && session->front->event(session->front_arg, &event, 0) == NXL_OK)
        told++;
    assert_int_equal(told, 3); /* two in the ring, one behind them */
    for (int i = 0; i < told; i++) {
        while (nxl_ring_notice_peek(&client.ring, &got) != NXL_OK)
            rig_turns(&small, 1);
        nxl_ring_notice_done(&client.ring);
    }
    while (small.xfer->room == 0)
        rig_turns(&small, 1);
    raw_close(&client);
    rig_close(&small);
}

static void a_scribbled_tail_costs_only_the_scribbler_its_notices(void **state)
{
    uint64_t number = 1;

    (void)state;
    atomic_store(&raw.ring.header->notice_tail, UINT64_MAX / 2);
    while (tell(number, 500, 0) == NXL_OK && number < 1000)
        number++;
    assert_true(number < 60); /* the queue's limit holds */
    rig_turns(&rig, 5);
    strcpy(raw_frame(&raw, NXL_FRAME_PEER_OPEN)->name, "a");
    assert_int_equal(raw_ask(&raw, NULL, 0), NXL_OK);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(an_event_arrives_with_every_field_and_wakes_a_parked_client_once),
        CASE(a_slow_reader_gets_everything_in_order_and_the_engine_is_held_back),
        CASE(what_comes_while_others_are_queued_does_not_overtake_them),
        CASE(what_must_not_be_lost_is_never_refused_but_ends_who_never_reads),
        CASE(a_notice_that_can_never_fit_is_a_limit_whether_others_wait_or_not),
        CASE(a_notice_larger_than_the_queue_is_kept_if_it_is_the_first),
        CASE(a_scribbled_tail_costs_only_the_scribbler_its_notices),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
