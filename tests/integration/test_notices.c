/* test_notices.c - notices of any size and content, alone and after data, in order and exactly
 * once, also over a line that breaks; to the dead, to the deaf, to oneself. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/near.h"
#include "support/proxy.h"

#define MIB (1u << 20)
#define FACT_NS 20000000000u

struct rig {
    struct cluster cluster;
    struct near a, b;      /* at agent 0; at agent 0 or 1 */
    struct nxl_remote *to; /* a knows b */
    struct proxy proxies[2];
    int proxied;
};

static void rig_meet(struct rig *r, int b_agent)
{
    near_open(&r->cluster, 0, "a", 4 * MIB, &r->a);
    near_open(&r->cluster, b_agent, "b", 4 * MIB, &r->b);
    r->to = near_load(&r->a, &r->b);
}

static int open_one_agent(void **state)
{
    struct rig *r = *state = calloc(1, sizeof(struct rig));

    cluster_start(&r->cluster, 1, 1);
    rig_meet(r, 0);
    return 0;
}

static int open_two_agents(void **state)
{
    struct rig *r = *state = calloc(1, sizeof(struct rig));

    r->cluster.secure = 1;
    near_fix_address(&r->cluster, 1);
    cluster_start(&r->cluster, 2, 1);
    rig_meet(r, 1);
    return 0;
}

/* The line between the agents can be cut. */
static int open_proxied(void **state)
{
    struct rig *r = *state = calloc(1, sizeof(struct rig));

    r->cluster.secure = 1;
    r->proxied = 1;
    proxy_agents_start(&r->cluster, r->proxies, 1);
    rig_meet(r, 1);
    assert_int_not_equal(r->proxies[0].connections + r->proxies[1].connections, 0);
    return 0;
}

static int rig_down(void **state)
{
    struct rig *r = *state;

    near_close(&r->a);
    near_close(&r->b);
    cluster_stop(&r->cluster);
    for (int i = 0; r->proxied && i < 2; i++)
        proxy_stop(&r->proxies[i]);
    free(r);
    return 0;
}

static void notify(struct near *from, struct nxl_remote *to, const void *data, size_t size)
{
    struct nxl_err err = {0};

    if (nxl_notify(from->peer, to, data, size, &err) != NXL_OK)
        fail_msg("notify: %s", err.text);
}

/* The next notice at near is exactly this. */
static void expect_notice(struct near *near, const char *from, const void *data, size_t size)
{
    struct nxl_event event;

    if (!cluster_event(near->client, near->peer, NXL_EVENT_NOTICE, FACT_NS, &event))
        fail_msg("a notice of %zu bytes did not come", size);
    assert_int_equal(event.size, size);
    if (size > 0)
        assert_memory_equal(event.payload, data, size);
    assert_string_equal(event.name, from);
    assert_true(event.at_ns <= cluster_now());
}

static void notices_of_any_size_and_content_arrive_as_they_were_sent(void **state)
{
    struct rig *r = *state;
    unsigned char *data = malloc(NXL_NOTICE_MAX + 1);
    static const size_t sizes[] = {0, 1, 7, 256, 4096, 65537, NXL_NOTICE_MAX - 1, NXL_NOTICE_MAX};
    struct nxl_err err = {0};

    for (size_t i = 0; i < NXL_NOTICE_MAX + 1; i++)
        data[i] = (unsigned char)(i * 7 + i / 256); /* every byte value, zeros too */
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        notify(&r->a, r->to, sizes[i] > 0 ? data : NULL, sizes[i]);
        expect_notice(&r->b, "a", data, sizes[i]);
    }
    assert_int_not_equal(nxl_notify(r->a.peer, r->to, data, NXL_NOTICE_MAX + 1, &err), NXL_OK);
    assert_int_equal(near_count(&r->b, NXL_EVENT_NOTICE, 200000000u), 0); /* each once */
    free(data);
}

static void a_notice_to_oneself_arrives_once(void **state)
{
    struct rig *r = *state; /* C-017 */
    struct nxl_remote *self;
    struct nxl_err err = {0};

    assert_int_equal(nxl_remote_find(r->a.peer, "a", &self, &err), NXL_OK);
    notify(&r->a, self, "to me", 5);
    expect_notice(&r->a, "a", "to me", 5);
    notify(&r->a, self, NULL, 0);
    expect_notice(&r->a, "a", NULL, 0);
    assert_int_equal(near_count(&r->a, NXL_EVENT_NOTICE, 200000000u), 0);
    assert_int_equal(nxl_remote_find(r->a.peer, "nobody", &self, &err),
                     NXL_NOT_FOUND); /* not a backend error */
}

static void the_notice_of_a_transfer_is_seen_after_its_data(void **state)
{
    struct rig *r = *state;
    struct nxl_transfer *t =
        near_create(&r->a, NXL_WRITE, r->to, 0, (uint64_t)(uintptr_t)r->b.memory, MIB);
    struct nxl_transfer_report report = {.size = sizeof(report)};
    struct nxl_err err = {0};

    for (unsigned round = 1; round <= 100; round++) {
        struct nxl_event event;

        memset(r->a.memory, (int)round, MIB);
        assert_int_equal(nxl_transfer_notice(t, &round, sizeof(round), 1, &err), NXL_OK);
        assert_int_equal(nxl_transfer_post(t, &err), NXL_OK);
        /* The target does not wait for the sender's end: its own notice is all it needs. */
        assert_true(cluster_event(r->b.client, r->b.peer, NXL_EVENT_NOTICE, FACT_NS, &event));
        for (uint32_t k = 0; k < MIB; k += 4096)
            assert_int_equal(r->b.memory[k], round);
        assert_int_equal(r->b.memory[MIB - 1], round);
        assert_memory_equal(event.payload, &round, sizeof(round));
        assert_int_equal(nxl_transfer_wait(t, FACT_NS, &err), NXL_OK);
        assert_int_equal(nxl_transfer_report(t, &report), NXL_OK);
        assert_true(event.transfer != 0 && event.transfer == report.id);
    }
    near_release(t);
}

struct stream {
    uint32_t number;
    unsigned char filler[60];
};

/* Takes what is there: each the successor of the one before. */
static void drain(struct near *near, uint32_t *expected)
{
    struct nxl_event event;

    while (nxl_peer_next(near->peer, &event) == NXL_OK) {
        struct stream one;

        if (event.kind != NXL_EVENT_NOTICE)
            continue;
        assert_int_equal(event.size, sizeof(one));
        memcpy(&one, event.payload, sizeof(one));
        if (one.number != *expected)
            fail_msg("notice %u came where %u was due", one.number, *expected);
        ++*expected;
    }
}

struct draining {
    struct near *near;
    uint32_t expected, until;
};

static int drained(void *arg)
{
    struct draining *d = arg;

    drain(d->near, &d->expected);
    return d->expected >= d->until;
}

static void stream_run(struct rig *r, uint32_t count, uint32_t window, uint32_t cut_every)
{
    struct draining d = {.near = &r->b};
    struct stream one = {0};
    struct nxl_event event;

    for (one.number = 0; one.number < count; one.number++) {
        memset(one.filler, (int)one.number, sizeof(one.filler));
        if (cut_every > 0 && one.number % cut_every == cut_every / 2) {
            proxy_cut(&r->proxies[0]);
            proxy_cut(&r->proxies[1]);
        }
        notify(&r->a, r->to, &one, sizeof(one));
        d.until = one.number + 1 > window ? one.number + 1 - window : 0;
        if (!cluster_until(drained, &d, 60000000000u))
            fail_msg("%u came of %u sent", d.expected, one.number + 1);
    }
    d.until = count;
    if (!cluster_until(drained, &d, 60000000000u))
        fail_msg("%u of %u came", d.expected, count);
    assert_int_equal(near_count(&r->b, NXL_EVENT_NOTICE, 300000000u), 0); /* none twice */
    assert_false(cluster_event(r->a.client, r->a.peer, NXL_EVENT_NOTICE_LOST, 1000000u, &event));
}

static void ten_thousand_notices_arrive_in_order_exactly_once(void **state)
{
    stream_run(*state, 10000, 10000, 0); /* as fast as they can be sent */
}

static void ten_thousand_notices_survive_a_line_that_is_cut_again_and_again(void **state)
{
    struct rig *r = *state;

    stream_run(r, 10000, 500, 700);
    assert_true(r->proxies[0].connections + r->proxies[1].connections >=
                5); /* it was cut, and came again */
    assert_true(cluster_metric(&r->cluster, 0, "nixlet_link_notice_resends_total") > 0);
}

static void a_notice_sent_right_before_the_close_arrives(void **state)
{
    struct rig *r = *state;
    struct near brief;

    for (int i = 0; i < 20; i++) {
        near_open(&r->cluster, 0, "brief", 0, &brief);
        notify(&brief, near_load(&brief, &r->b), "bye", 3);
        near_close(&brief);
        expect_notice(&r->b, "brief", "bye", 3);
    }
}

/* 1 if the sender learns that its notice did not arrive: at once, or by an event. */
static int told_lost(struct near *from, struct nxl_remote *to, struct nxl_event *ret)
{
    struct nxl_err err = {0};
    enum nxl_code code = nxl_notify(from->peer, to, "anybody there", 13, &err);

    memset(ret, 0, sizeof(*ret));
    if (code != NXL_OK)
        return code == NXL_STALE;
    return cluster_event(from->client, from->peer, NXL_EVENT_NOTICE_LOST, FACT_NS, ret);
}

static void a_notice_to_a_dead_peer_is_reported_lost(void **state)
{
    struct rig *r = *state;
    struct nxl_event event;

    near_close(&r->b); /* what came into its ring before that was delivered, read or not */
    assert_true(cluster_event(r->a.client, r->a.peer, NXL_EVENT_PEER_DOWN, FACT_NS, &event));
    if (!told_lost(&r->a, r->to, &event))
        fail_msg("nobody says that the notice was lost");
    if (event.kind == NXL_EVENT_NOTICE_LOST) {
        assert_string_equal(event.name, "b");
        assert_true(event.size > 0);
    }
    assert_true(cluster_metric(&r->cluster, 0, "nixlet_notices_lost_total") >= 1);
}

static void notices_that_wait_for_an_agent_are_lost_when_its_next_life_answers(void **state)
{
    struct rig *r = *state;
    struct nxl_event event;

    cluster_agent_kill(&r->cluster, 1, SIGKILL);
    notify(&r->a, r->to, "waits", 5);
    assert_int_equal(near_count(&r->a, NXL_EVENT_NOTICE_LOST, 500000000u),
                     0); /* silence is not death */
    cluster_agent_start(&r->cluster, 1);
    assert_true(cluster_event(r->a.client, r->a.peer, NXL_EVENT_NOTICE_LOST, FACT_NS, &event));
    assert_string_equal(event.name, "b");
}

static void a_client_that_does_not_read_its_notices_disturbs_nobody(void **state)
{
    enum { COUNT = 100, SIZE = 512 << 10 };
    struct rig *r = *state;
    struct near deaf;
    struct nxl_remote *to_deaf;
    unsigned char *data = calloc(1, SIZE);
    int deaf_agent = r->cluster.agents[1].pid > 0;
    unsigned lost;
    struct nxl_err err = {0};

    near_open(&r->cluster, deaf_agent, "deaf", 0, &deaf);
    to_deaf = near_load(&r->a, &deaf);
    for (int i = 0; i < COUNT; i++) { /* 50 MiB: more than every queue on the way holds */
        struct nxl_event event;

        for (uint64_t end = cluster_now() + FACT_NS;
             nxl_notify(r->a.peer, to_deaf, data, SIZE, &err) != NXL_OK;)
            assert_true(cluster_now() < end);
        notify(&r->a, r->to, &i, sizeof(i));
        while (!cluster_event(r->b.client, r->b.peer, NXL_EVENT_NOTICE, FACT_NS, &event))
            fail_msg(
                "notice %d to the one that reads is stuck behind those to the one that does not",
                i);
        assert_memory_equal(event.payload, &i, sizeof(i));
    }
    if (near_move(&r->a, NXL_READ, r->to, 0, (uint64_t)(uintptr_t)r->b.memory, MIB, &err) != NXL_OK)
        fail_msg("%s", err.text);
    /* What did not fit was reported, each once; what did is read late, and all together is all. */
    lost = near_count(&r->a, NXL_EVENT_NOTICE_LOST, 500000000u);
    assert_true(lost > 0);
    assert_int_equal(lost + near_count(&deaf, NXL_EVENT_NOTICE, 1500000000u), COUNT);
    notify(&r->a, to_deaf, "now", 3);
    expect_notice(&deaf, "a", "now", 3);
    near_close(&deaf);
    free(data);
}

#define TEST(name, open) cmocka_unit_test_setup_teardown(name, open, rig_down)
#define TESTS(open)                                                                                \
    TEST(notices_of_any_size_and_content_arrive_as_they_were_sent, open),                          \
        TEST(a_notice_to_oneself_arrives_once, open),                                              \
        TEST(the_notice_of_a_transfer_is_seen_after_its_data, open),                               \
        TEST(ten_thousand_notices_arrive_in_order_exactly_once, open),                             \
        TEST(a_notice_sent_right_before_the_close_arrives, open),                                  \
        TEST(a_notice_to_a_dead_peer_is_reported_lost, open),                                      \
        TEST(a_client_that_does_not_read_its_notices_disturbs_nobody, open)

int main(void)
{
    static const struct CMUnitTest one[] = {TESTS(open_one_agent)};
    static const struct CMUnitTest two[] = {
        TESTS(open_two_agents),
        TEST(notices_that_wait_for_an_agent_are_lost_when_its_next_life_answers, open_two_agents),
        TEST(ten_thousand_notices_survive_a_line_that_is_cut_again_and_again, open_proxied),
    };

    return cmocka_run_group_tests_name("at one agent", one, NULL, NULL) +
           cmocka_run_group_tests_name("at two agents over TLS", two, NULL, NULL);
}
