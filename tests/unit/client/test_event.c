/* Notices and events: to the right peer, in order, lent long enough; and arming before a sleep. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "rig.h"

static int readable(struct rig *rig, int timeout_ms)
{
    struct pollfd item = {.fd = nxl_client_fd(rig->client), .events = POLLIN};

    return poll(&item, 1, timeout_ms);
}

static void disarm(struct rig *rig) /* until there is nothing new */
{
    while (nxl_client_arm(rig->client) == NXL_AGAIN) {
    }
}

static void a_notice_comes_with_its_sender(void **state)
{
    struct rig *rig = *state;
    struct nxl_event event;

    assert_int_equal(nxl_peer_next(rig->peer, &event), NXL_AGAIN);
    assert_int_equal(nxl_client_pending(rig->client), 0);
    rig_event(rig, rig_peer_id(rig), NXL_EVENT_NOTICE, "hello");
    assert_int_equal(nxl_client_pending(rig->client), 1);
    assert_int_equal(nxl_peer_next(rig->peer, &event), NXL_OK);
    assert_int_equal(event.kind, NXL_EVENT_NOTICE);
    assert_int_equal(event.transfer, 17);
    assert_int_equal(event.at_ns, 5);
    assert_string_equal(event.name, "far");
    assert_string_equal(event.incarnation, "far/1/0");
    assert_int_equal(event.size, 5);
    assert_memory_equal(event.payload, "hello", 5);
    assert_int_equal(nxl_client_pending(rig->client), 0);
    assert_int_equal(nxl_peer_next(rig->peer, &event), NXL_AGAIN);
}

static void each_peer_gets_its_own_in_order(void **state)
{
    struct rig *rig = *state;
    struct nxl_peer *other = NULL;
    struct nxl_event mine, its;
    uint32_t first = rig_peer_id(rig), second;
    struct nxl_remote *remote;

    assert_code(NXL_OK, rig, nxl_peer_open(rig->client, "other", &other, &rig->err));
    assert_code(NXL_OK, rig, nxl_load(other, "far", 3, &remote, &rig->err));
    second = rig_peer_id(rig);
    assert_int_not_equal(first, second);
    rig_event(rig, second, NXL_EVENT_NOTICE, "b1");
    rig_event(rig, first, NXL_EVENT_NOTICE, "a1");
    rig_event(rig, 4711, NXL_EVENT_NOTICE, "nobody's");
    rig_event(rig, second, NXL_EVENT_PEER_DOWN, "");
    rig_event(rig, first, NXL_EVENT_NOTICE, "a2");
    assert_int_equal(nxl_peer_next(rig->peer, &mine), NXL_OK);
    assert_memory_equal(mine.payload, "a1", 2);
    assert_int_equal(nxl_peer_next(other, &its), NXL_OK);
    assert_memory_equal(its.payload, "b1", 2);
    assert_memory_equal(mine.payload, "a1", 2); /* lent until the next call on that peer */
    assert_int_equal(nxl_peer_next(other, &its), NXL_OK);
    assert_int_equal(its.kind, NXL_EVENT_PEER_DOWN);
    assert_int_equal(its.size, 0);
    assert_int_equal(nxl_peer_next(other, &its), NXL_AGAIN);
    assert_int_equal(nxl_peer_next(rig->peer, &mine), NXL_OK);
    assert_memory_equal(mine.payload, "a2", 2);
    assert_int_equal(nxl_client_pending(rig->client), 0);
}

static void a_peer_that_nobody_asks_does_not_fill_this_process(void **state)
{
    struct rig *rig = *state; /* notice ring of 4 KiB */
    char payload[1001];
    struct nxl_ring_event event = {
        .kind = NXL_EVENT_NOTICE, .peer = rig_peer_id(rig), .payload = {payload, 1000}};
    struct nxl_peer *other = NULL;
    struct nxl_event got;
    unsigned sent = 0, received = 0;

    memset(payload, 'p', sizeof(payload));
    assert_code(NXL_OK, rig, nxl_peer_open(rig->client, "other", &other, &rig->err));
    /* The other peer's looks drain the ring, up to a bound. */
    while (nxl_ring_notice_put(fake_agent_ring(rig->agent), &event) == NXL_OK) {
        sent++;
        assert_int_equal(nxl_peer_next(other, &got), NXL_AGAIN);
        assert_true(sent < 1000);
    }
    assert_true(sent > 16 && sent < 100);
    while (nxl_peer_next(rig->peer, &got) == NXL_OK)
        received++;
    assert_int_equal(received, sent); /* late, but all */
}

static void arming_says_again_once_for_what_came_before(void **state)
{
    struct rig *rig = *state;
    struct nxl_transfer *transfer = rig_transfer(rig);
    struct nxl_ring_entry entry = rig_post(rig, transfer);

    disarm(rig);
    assert_int_equal(nxl_client_arm(rig->client), NXL_OK);
    assert_int_equal(readable(rig, 0), 0);
    rig_end(rig, entry, NXL_RING_DONE | NXL_RING_QUIET, NXL_OK);
    assert_int_equal(readable(rig, 0), 1);
    assert_int_equal(fake_agent_wakes(rig->agent), 1);
    assert_int_equal(nxl_client_arm(rig->client), NXL_AGAIN);
    assert_int_equal(nxl_client_arm(rig->client), NXL_OK);
    assert_int_equal(readable(rig, 0), 0);
    rig_event(rig, rig_peer_id(rig), NXL_EVENT_NOTICE, "n");
    assert_int_equal(readable(rig, 0), 1);
    /* A notice that nobody takes makes nobody spin. */
    assert_int_equal(nxl_client_arm(rig->client), NXL_AGAIN);
    assert_int_equal(nxl_client_arm(rig->client), NXL_OK);
    assert_int_equal(nxl_client_pending(rig->client), 1);
}

static void an_unarmed_client_is_not_woken(void **state)
{
    struct rig *rig = *state;

    rig_event(rig, rig_peer_id(rig), NXL_EVENT_NOTICE, "n");
    rig_event(rig, rig_peer_id(rig), NXL_EVENT_NOTICE, "n");
    assert_int_equal(fake_agent_wakes(rig->agent), 0);
    assert_int_equal(nxl_client_arm(rig->client), NXL_AGAIN);
}

static void the_lent_descriptor_works_after_a_restart(void **state)
{
    struct rig *rig = *state;
    struct nxl_event event;

    fake_agent_crash(rig->agent);
    fake_agent_restart(rig->agent);
    assert_code(NXL_OK, rig, nxl_client_check(rig->client, &rig->err));
    assert_int_equal(readable(rig, 0), 1); /* told to look */
    while (nxl_peer_next(rig->peer, &event) == NXL_OK) {
    }
    disarm(rig);
    assert_int_equal(readable(rig, 0), 0);
    assert_code(NXL_OK, rig, nxl_load(rig->peer, "far", 3, &rig->remote, &rig->err));
    rig_event(rig, rig_peer_id(rig), NXL_EVENT_NOTICE, "again");
    assert_int_equal(readable(rig, 0), 1);
    assert_int_equal(nxl_peer_next(rig->peer, &event), NXL_OK);
    assert_memory_equal(event.payload, "again", 5);
}

static void a_notice_of_its_own_goes_through_the_arena(void **state)
{
    struct rig *rig = *state; /* 64 KiB of arena */
    char text[1000];
    struct nxl_ring_entry entry;

    for (int i = 0; i < 300; i++) {
        memset(text, i, sizeof(text));
        assert_code(NXL_OK, rig, nxl_notify(rig->peer, rig->remote, text, sizeof(text), &rig->err));
        entry = rig_take(rig);
        assert_int_equal(entry.kind, NXL_RING_NOTIFY);
        assert_int_equal(entry.remote, 1100);
        assert_int_equal(entry.notice_size, sizeof(text));
        assert_memory_equal(
            nxl_ring_arena(fake_agent_ring(rig->agent), entry.notice_offset, sizeof(text)), text,
            sizeof(text));
    }
    assert_code(NXL_INVALID_PARAM, rig, nxl_notify(rig->peer, NULL, text, 1, &rig->err));
    /* An agent that takes nothing: the arena fills, and the call says so. */
    for (int i = 0; i < 60; i++)
        assert_code(NXL_OK, rig, nxl_notify(rig->peer, rig->remote, text, sizeof(text), &rig->err));
    while (nxl_notify(rig->peer, rig->remote, text, sizeof(text), &rig->err) == NXL_OK) {
    }
    assert_says(rig, "arena_bytes");
    for (int i = 0; i < 60; i++)
        rig_take(rig);
    assert_code(NXL_OK, rig, nxl_notify(rig->peer, rig->remote, text, sizeof(text), &rig->err));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)
#define TEST_SMALL(name) cmocka_unit_test_setup_teardown(name, rig_setup_small, rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_notice_comes_with_its_sender),
        TEST(each_peer_gets_its_own_in_order),
        TEST_SMALL(a_peer_that_nobody_asks_does_not_fill_this_process),
        TEST(arming_says_again_once_for_what_came_before),
        TEST(an_unarmed_client_is_not_woken),
        TEST(the_lent_descriptor_works_after_a_restart),
        TEST_SMALL(a_notice_of_its_own_goes_through_the_arena),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
