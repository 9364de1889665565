/* test_link.c - links in plaintext: up, crossing, cut, silent, replaced; notices exactly once. */
#include "link_rig.h"

#include "cluster/link_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rig {
    struct nxl_loop *loop;
    struct side a, b, c;
    struct proxy *to_a,
        *to_b; /* each agent is reached only through its proxy when these are open */
};

static int rig_open(void **state)
{
    struct rig *rig = nxl_new0(sizeof(*rig));
    struct nxl_err err;

    assert_int_equal(nxl_loop_open(&rig->loop, &err), NXL_OK);
    *state = rig;
    return 0;
}

static void rig_pair(struct rig *rig)
{
    side_open(&rig->a, rig->loop, "node-a", "node-a/boot/1", SETTINGS_END);
    side_open(&rig->b, rig->loop, "node-b", "node-b/boot/1", SETTINGS_END);
}

static void rig_proxied(struct rig *rig, const char *key, const char *value)
{
    rig->to_a = proxy_open(rig->loop);
    rig->to_b = proxy_open(rig->loop);
    side_open(&rig->a, rig->loop, "node-a", "node-a/boot/1", "link.advertise",
              proxy_address(rig->to_a), key, value, SETTINGS_END);
    side_open(&rig->b, rig->loop, "node-b", "node-b/boot/1", "link.advertise",
              proxy_address(rig->to_b), key, value, SETTINGS_END);
    proxy_target(rig->to_a, side_port(&rig->a));
    proxy_target(rig->to_b, side_port(&rig->b));
}

static void rig_cut(struct rig *rig)
{
    proxy_cut(rig->to_a);
    proxy_cut(rig->to_b);
}

static void rig_swallow(struct rig *rig, int on)
{
    proxy_swallow(rig->to_a, on);
    proxy_swallow(rig->to_b, on);
}

static int rig_close(void **state)
{
    struct rig *rig = *state;

    for (struct side *side = &rig->a; side <= &rig->c; side++) {
        if (side->links != NULL)
            side_close(side);
    }
    if (rig->to_a != NULL)
        proxy_close(rig->to_a);
    if (rig->to_b != NULL)
        proxy_close(rig->to_b);
    nxl_loop_close(rig->loop);
    free(rig);
    return 0;
}

static int both_up(struct rig *rig)
{
    return side_is_up(&rig->a, &rig->b) && side_is_up(&rig->b, &rig->a);
}

static void rig_link(struct rig *rig)
{
    (void)side_dial(&rig->a, nxl_links_address(rig->b.links), rig->b.agent);
    WAIT(rig->loop, both_up(rig));
}

/* ---- up ----------------------------------------------------------------------------------- */

static void two_agents_come_up_and_talk_both_ways(void **state)
{
    struct rig *rig = *state;
    const struct nxl_message query = {.type = NXL_MESSAGE_QUERY, .request = 5, .name = "p"};
    const struct nxl_message_backend *backends;
    struct nxl_link *ab, *ba;
    struct nxl_err err;
    uint32_t count;

    rig_pair(rig);
    ab = side_dial(&rig->a, nxl_links_address(rig->b.links), NULL);
    assert_false(nxl_link_up(ab));
    assert_string_equal(nxl_link_agent(ab), "");
    assert_int_equal(nxl_link_send(ab, &query, &err), NXL_UNREACHABLE);
    WAIT(rig->loop, both_up(rig));
    ba = side_link(&rig->b, &rig->a);
    assert_ptr_equal(side_link(&rig->a, &rig->b), ab);
    assert_string_equal(nxl_link_agent(ab), "node-b/boot/1");
    assert_string_equal(nxl_link_node(ab), "node-b");
    assert_string_equal(nxl_link_node(ba), "node-a");
    assert_string_equal(nxl_link_address(ba), nxl_links_address(rig->a.links));
    backends = nxl_link_backends(ba, &count);
    assert_int_equal(count, 1);
    assert_string_equal(backends[0].name, "ucx");
    assert_memory_equal(backends[0].address.data, "node-a/boot/1", 13);
    assert_int_equal(nxl_link_send(ab, &query, &err), NXL_OK);
    assert_int_equal(nxl_link_send(ba, &query, &err), NXL_OK);
    WAIT(rig->loop, rig->a.messages == 1 && rig->b.messages == 1);
    assert_int_equal(rig->b.last_request, 5);
    assert_int_equal(rig->a.ups, 1);
    assert_int_equal(side_metric(&rig->a, "nixlet_link_up", ""), 1);
    WAIT(rig->loop, side_metric(&rig->a, "nixlet_link_ping_rtt_us_count", "") > 0);
    assert_int_equal(nxl_link_send(ab, &(struct nxl_message){.type = NXL_MESSAGE_HELLO}, &err),
                     NXL_INVALID_PARAM);
}

static void the_same_agent_gives_the_same_link(void **state)
{
    struct rig *rig = *state;
    struct nxl_link *link, *again;
    struct nxl_err err;

    rig_pair(rig);
    rig_link(rig);
    link = side_link(&rig->a, &rig->b);
    again = side_dial(&rig->a, "127.0.0.1:9", rig->b.agent);
    assert_ptr_equal(link, again);
    again = side_dial(&rig->a, nxl_links_address(rig->b.links), "");
    assert_ptr_equal(link, again);
    /* The accepting side, which never dialled, has one too. */
    again = side_dial(&rig->b, nxl_links_address(rig->a.links), rig->a.agent);
    assert_ptr_equal(again, side_link(&rig->b, &rig->a));
    assert_int_equal(nxl_links_get(rig->a.links, "nonsense", "x/y", &again, &err),
                     NXL_INVALID_PARAM);
    assert_int_equal(nxl_links_get(rig->a.links, "127.0.0.1:9", "a//b", &again, &err),
                     NXL_INVALID_PARAM);
    assert_int_equal(nxl_links_get(rig->a.links, "127.0.0.1:9", rig->a.agent, &again, &err),
                     NXL_INVALID_PARAM);
    assert_int_equal(
        nxl_links_get(rig->a.links, nxl_links_address(rig->a.links), NULL, &again, &err),
        NXL_INVALID_PARAM);
}

static void a_name_is_looked_up_without_blocking(void **state)
{
    struct rig *rig = *state;
    char address[64];

    rig_pair(rig);
    (void)snprintf(address, sizeof(address), "localhost:%d", side_port(&rig->b));
    (void)side_dial(&rig->a, address, rig->b.agent);
    WAIT(rig->loop, both_up(rig));
}

static void a_name_that_does_not_exist_is_told_and_tried_again(void **state)
{
    struct rig *rig = *state;
    struct nxl_link *link;

    rig_pair(rig);
    link = side_dial(&rig->a, "nobody.invalid:7741", NULL);
    WAIT(rig->loop, rig->a.downs > 0);
    assert_non_null(strstr(rig->a.why, "nobody.invalid"));
    assert_false(nxl_link_up(link));
    assert_int_equal(rig->a.gones, 0);
}

/* C-028: an address that leads back to this agent is a hard, named error. */
static void dialling_oneself_ends_with_its_reason(void **state)
{
    struct rig *rig = *state;
    char address[64];

    rig_pair(rig);
    (void)snprintf(address, sizeof(address), "localhost:%d", side_port(&rig->a));
    (void)side_dial(&rig->a, address, NULL);
    WAIT(rig->loop, rig->a.gones == 1);
    assert_non_null(strstr(rig->a.why, "itself"));
}

static void links_are_limited(void **state)
{
    struct rig *rig = *state;
    struct nxl_link *link;
    struct nxl_err err;

    side_open(&rig->a, rig->loop, "node-a", "node-a/boot/1", "link.links_max", "1", SETTINGS_END);
    side_open(&rig->b, rig->loop, "node-b", "node-b/boot/1", SETTINGS_END);
    side_open(&rig->c, rig->loop, "node-c", "node-c/boot/1", SETTINGS_END);
    rig_link(rig);
    assert_int_equal(nxl_links_get(rig->a.links, "127.0.0.1:9", "x/y/z", &link, &err), NXL_LIMIT);
    (void)side_dial(&rig->c, nxl_links_address(rig->a.links), NULL);
    WAIT(rig->loop, rig->c.downs > 0);
    assert_non_null(strstr(rig->c.why, "links_max"));
    assert_true(both_up(rig));
}

/* ---- crossing ----------------------------------------------------------------------------- */

static unsigned up_conns(const struct side *side)
{
    unsigned count = 0;

    for (const struct conn *conn = side->links->conns; conn != NULL; conn = conn->next)
        count += conn->state == CONN_UP;
    return count;
}

static int settled(struct rig *rig)
{
    return both_up(rig) && up_conns(&rig->a) == 1 && up_conns(&rig->b) == 1 &&
           rig->a.links->conns->next == NULL && rig->b.links->conns->next == NULL &&
           rig->a.links->conns->outbound != rig->b.links->conns->outbound;
}

static void crossing_dials_leave_one_connection(void **state)
{
    struct rig *rig = *state;

    for (int round = 0; round < 30; round++) {
        char agent_a[64], agent_b[64];

        (void)snprintf(agent_a, sizeof(agent_a), "node-a/boot/%d", round);
        (void)snprintf(agent_b, sizeof(agent_b), "node-b/boot/%d", round);
        side_open(&rig->a, rig->loop, "node-a", agent_a, SETTINGS_END);
        side_open(&rig->b, rig->loop, "node-b", agent_b, SETTINGS_END);
        (void)side_dial(&rig->a, nxl_links_address(rig->b.links), rig->b.agent);
        (void)side_dial(&rig->b, nxl_links_address(rig->a.links), rig->a.agent);
        WAIT(rig->loop, settled(rig));
        rig_run(rig->loop, 5 * NXL_MS);
        WAIT(rig->loop, settled(rig));
        assert_int_equal(rig->a.downs + rig->b.downs, 0);
        assert_int_equal(rig->a.gones + rig->b.gones, 0);
        side_close(&rig->a);
        side_close(&rig->b);
    }
}

/* Neither knew whom it would reach: both links stay, and what was queued on them arrives. */
static void crossing_dials_by_address_end_in_one_link(void **state)
{
    struct rig *rig = *state;

    for (int round = 0; round < 30; round++) {
        struct nxl_link *a, *b;

        rig_pair(rig);
        a = side_dial(&rig->a, nxl_links_address(rig->b.links), NULL);
        b = side_dial(&rig->b, nxl_links_address(rig->a.links), NULL);
        side_notify(&rig->a, a, 7);
        side_notify(&rig->b, b, 8);
        WAIT(rig->loop, settled(rig) && rig->a.ends == 1 && rig->b.ends == 1);
        assert_ptr_equal(a, side_link(&rig->a, &rig->b));
        assert_ptr_equal(b, side_link(&rig->b, &rig->a));
        assert_int_equal(rig->a.gones + rig->b.gones + rig->a.downs + rig->b.downs, 0);
        assert_true(rig->a.notices == 1 && rig->b.notices == 1);
        assert_int_equal(rig->a.links->count, 1);
        side_close(&rig->a);
        side_close(&rig->b);
    }
}

/* Another name for an agent that is linked already: the link that asked is over, says why, and
 * asking again gives the one that is; its notices went there. */
static void a_second_name_of_a_linked_agent_leads_to_its_link(void **state)
{
    struct rig *rig = *state;
    struct nxl_link *link;
    char address[64];

    rig_pair(rig);
    rig_link(rig);
    (void)snprintf(address, sizeof(address), "localhost:%d", side_port(&rig->b));
    link = side_dial(&rig->a, address, NULL);
    assert_ptr_not_equal(link, side_link(&rig->a, &rig->b));
    side_notify(&rig->a, link, 7);
    WAIT(rig->loop, rig->a.gones == 1 && rig->a.ends == 1);
    assert_string_equal(rig->a.gone_agent, "");
    assert_non_null(strstr(rig->a.why, "node-b/boot/1"));
    assert_true(side_ended(&rig->a, 7, NXL_OK));
    assert_ptr_equal(side_dial(&rig->a, address, NULL), side_link(&rig->a, &rig->b));
    WAIT(rig->loop, settled(rig));
    assert_int_equal(rig->a.downs + rig->b.downs, 0);
}

/* ---- cut ---------------------------------------------------------------------------------- */

static void a_cut_link_comes_back(void **state)
{
    struct rig *rig = *state;

    rig_proxied(rig, "link.links_max", "9");
    rig_link(rig);
    for (unsigned round = 1; round <= 5; round++) {
        unsigned downs_a = rig->a.downs, downs_b = rig->b.downs;

        rig_cut(rig);
        WAIT(rig->loop, rig->a.downs > downs_a && rig->b.downs > downs_b);
        WAIT(rig->loop, both_up(rig));
    }
    assert_int_equal(rig->a.gones + rig->b.gones, 0);
    assert_int_equal(rig->a.suspects, 0);
    assert_true(side_metric(&rig->a, "nixlet_link_reconnects_total", "") >= 5);
}

static void nobody_there_is_told_and_dialled_until_somebody_is(void **state)
{
    struct rig *rig = *state;

    rig_proxied(rig, "link.links_max", "9");
    proxy_refuse(rig->to_b, 1);
    (void)side_dial(&rig->a, nxl_links_address(rig->b.links), rig->b.agent);
    WAIT(rig->loop, rig->a.downs >= 3);
    assert_int_equal(rig->a.ups, 0);
    proxy_refuse(rig->to_b, 0);
    WAIT(rig->loop, both_up(rig));
}

/* The connect timeout covers the hello too: a stuck far side costs one dial, not the link. */
static void a_far_side_that_never_answers_times_out(void **state)
{
    struct rig *rig = *state;

    rig_proxied(rig, "link.connect_timeout", "50ms");
    rig_swallow(rig, 1);
    (void)side_dial(&rig->a, nxl_links_address(rig->b.links), rig->b.agent);
    WAIT(rig->loop, rig->a.downs >= 2);
    assert_non_null(strstr(rig->a.why, "connect_timeout"));
    assert_true(
        side_metric(&rig->a, "nixlet_link_handshake_failures_total", "reason=\"timeout\"") >= 2);
    rig_swallow(rig, 0);
    WAIT(rig->loop, both_up(rig));
}

/* ---- notices ------------------------------------------------------------------------------ */

static void assert_in_order(const struct side *side, unsigned count)
{
    assert_int_equal(side->notices, count);
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(side->transfers[i], i);
}

static void notices_arrive_in_order_and_end(void **state)
{
    struct rig *rig = *state;

    rig_pair(rig);
    rig_link(rig);
    for (unsigned i = 0; i < 1000; i++)
        side_notify(&rig->a, side_link(&rig->a, &rig->b), i);
    WAIT(rig->loop, rig->a.ends == 1000);
    assert_in_order(&rig->b, 1000);
    for (unsigned i = 0; i < 1000; i++)
        assert_true(side_ended(&rig->a, i, NXL_OK));
    assert_int_equal(side_metric(&rig->a, "nixlet_link_notices_unacked", ""), 0);
}

static void notices_arrive_exactly_once_over_100_cuts(void **state)
{
    struct rig *rig = *state;
    unsigned sent_a = 0, sent_b = 0;

    rig_proxied(rig, "link.links_max", "9");
    rig_link(rig);
    for (int cut = 0; cut < 100; cut++) {
        for (int i = 0; i < 20; i++) {
            side_notify(&rig->a, side_link(&rig->a, &rig->b), sent_a++);
            side_notify(&rig->b, side_link(&rig->b, &rig->a), sent_b++);
            if (i == cut % 20)
                rig_cut(rig);
            if (i % 3 == 0)
                rig_turn(rig->loop);
        }
        for (int turn = cut % 7; turn > 0; turn--)
            rig_turn(rig->loop);
        if (cut % 4 == 0)
            WAIT(rig->loop, both_up(rig));
    }
    WAIT(rig->loop, rig->a.ends == sent_a && rig->b.ends == sent_b);
    assert_in_order(&rig->a, sent_b);
    assert_in_order(&rig->b, sent_a);
    for (unsigned i = 0; i < sent_a; i++)
        assert_true(side_ended(&rig->a, i, NXL_OK));
    assert_true(side_metric(&rig->a, "nixlet_link_notice_resends_total", "") > 0);
    assert_true(side_metric(&rig->a, "nixlet_link_reconnects_total", "") >= 25);
}

static void notices_queued_before_the_first_connection_arrive(void **state)
{
    struct rig *rig = *state;
    struct nxl_link *link;

    rig_proxied(rig, "link.links_max", "9");
    proxy_refuse(rig->to_b, 1);
    link = side_dial(&rig->a, nxl_links_address(rig->b.links), NULL);
    for (unsigned i = 0; i < 10; i++)
        side_notify(&rig->a, link, i);
    WAIT(rig->loop, rig->a.downs > 0);
    assert_int_equal(rig->a.ends, 0);
    proxy_refuse(rig->to_b, 0);
    WAIT(rig->loop, rig->a.ends == 10);
    assert_in_order(&rig->b, 10);
}

/* More than the pump takes at once, all queued before the connection: none may wait for a ping. */
static void a_large_queue_leaves_as_soon_as_the_link_is_up(void **state)
{
    static char large[256 << 10];
    struct rig *rig = *state;
    struct nxl_message notice = {.type = NXL_MESSAGE_NOTICE, .payload = {large, sizeof(large)}};
    struct nxl_link *link;
    struct nxl_err err;

    side_open(&rig->a, rig->loop, "node-a", "node-a/boot/1", "link.ping", "30s",
              "link.suspect_after", "60s", SETTINGS_END);
    side_open(&rig->b, rig->loop, "node-b", "node-b/boot/1", "link.ping", "30s",
              "link.suspect_after", "60s", SETTINGS_END);
    link = side_dial(&rig->a, nxl_links_address(rig->b.links), NULL);
    for (unsigned i = 0; i < 50; i++) {
        notice.transfer = i;
        assert_int_equal(nxl_link_notice(link, &notice, i, &err), NXL_OK);
    }
    WAIT(rig->loop, rig->a.ends == 50);
    assert_in_order(&rig->b, 50);
}

static void held_notices_wait_and_other_messages_pass(void **state)
{
    struct rig *rig = *state;
    const struct nxl_message query = {.type = NXL_MESSAGE_QUERY, .request = 9};
    struct nxl_link *link;
    struct nxl_err err;

    rig_pair(rig);
    rig_link(rig);
    link = side_link(&rig->a, &rig->b);
    rig->b.answer = NXL_AGAIN;
    for (unsigned i = 0; i < 50; i++)
        side_notify(&rig->a, link, i);
    assert_int_equal(nxl_link_send(link, &query, &err), NXL_OK);
    WAIT(rig->loop, rig->b.messages == 1);
    assert_int_equal(rig->b.offers, 1); /* only the first is offered */
    assert_int_equal(rig->b.notices, 0);
    assert_int_equal(rig->a.ends, 0);
    nxl_links_resume(rig->b.links);
    assert_int_equal(rig->b.offers, 2); /* still not */
    rig->b.answer = NXL_OK;
    nxl_links_resume(rig->b.links);
    assert_in_order(&rig->b, 50);
    WAIT(rig->loop, rig->a.ends == 50);
    for (unsigned i = 50; i < 60; i++)
        side_notify(&rig->a, link, i);
    WAIT(rig->loop, rig->a.ends == 60);
    assert_in_order(&rig->b, 60);
}

static void held_notices_survive_a_cut(void **state)
{
    struct rig *rig = *state;

    rig_proxied(rig, "link.links_max", "9");
    rig_link(rig);
    rig->b.answer_after = 3;
    for (unsigned i = 0; i < 20; i++)
        side_notify(&rig->a, side_link(&rig->a, &rig->b), i);
    WAIT(rig->loop, rig->b.offers == 1);
    rig_cut(rig);
    WAIT(rig->loop, rig->b.downs > 0);
    nxl_links_resume(rig->b.links); /* nothing is there any more */
    WAIT(rig->loop, both_up(rig) && rig->b.offers == 2);
    nxl_links_resume(rig->b.links);
    nxl_links_resume(rig->b.links);
    WAIT(rig->loop, rig->a.ends == 20);
    assert_in_order(&rig->b, 20);
}

/* More than the window is held: the far side feels it, nobody is suspect for it, and all arrives.
 */
static void a_full_window_of_held_notices_stops_the_reading(void **state)
{
    static char large[NXL_NOTICE_MAX];
    struct rig *rig = *state;
    struct nxl_message notice = {.type = NXL_MESSAGE_NOTICE, .payload = {large, sizeof(large)}};
    struct nxl_link *link;
    struct nxl_err err;

    side_open(&rig->a, rig->loop, "node-a", "node-a/boot/1", "link.suspect_after", "200ms",
              SETTINGS_END);
    side_open(&rig->b, rig->loop, "node-b", "node-b/boot/1", "link.suspect_after", "200ms",
              "link.notice_bytes_max", "2Mi", SETTINGS_END);
    rig_link(rig);
    link = side_link(&rig->a, &rig->b);
    rig->b.answer = NXL_AGAIN;
    for (unsigned i = 0; i < 10; i++) {
        notice.transfer = i;
        assert_int_equal(nxl_link_notice(link, &notice, i, &err), NXL_OK);
    }
    WAIT(rig->loop, side_link(&rig->b, &rig->a)->conn->paused);
    rig_run(rig->loop, 400 * NXL_MS);
    assert_true(side_link(&rig->b, &rig->a)->notices.held.count <= 3);
    assert_int_equal(rig->a.suspects + rig->b.suspects, 0);
    rig->b.answer = NXL_OK;
    nxl_links_resume(rig->b.links);
    WAIT(rig->loop, rig->a.ends == 10);
    assert_in_order(&rig->b, 10);
}

static void a_refused_notice_is_told_with_its_code(void **state)
{
    struct rig *rig = *state;
    struct nxl_link *link;

    rig_pair(rig);
    rig_link(rig);
    link = side_link(&rig->a, &rig->b);
    side_notify(&rig->a, link, 0);
    WAIT(rig->loop, rig->a.ends == 1);
    rig->b.answer = NXL_NOT_FOUND;
    side_notify(&rig->a, link, 1);
    WAIT(rig->loop, rig->a.ends == 2);
    rig->b.answer = NXL_OK;
    side_notify(&rig->a, link, 2);
    WAIT(rig->loop, rig->a.ends == 3);
    assert_true(side_ended(&rig->a, 0, NXL_OK));
    assert_true(side_ended(&rig->a, 1, NXL_NOT_FOUND));
    assert_true(side_ended(&rig->a, 2, NXL_OK));
}

/* The answer is lost on the way: after the reconnect the refusal is still a refusal. */
static void a_refusal_survives_a_cut(void **state)
{
    struct rig *rig = *state;

    rig_proxied(rig, "link.links_max", "9");
    rig_link(rig);
    rig->b.answer = NXL_NOT_FOUND;
    side_notify(&rig->a, side_link(&rig->a, &rig->b), 0);
    while (rig->b.notices == 0)
        rig_turn(rig->loop);
    rig_cut(rig); /* mostly before the answer passed the proxy */
    rig->b.answer = NXL_OK;
    side_notify(&rig->a, side_link(&rig->a, &rig->b), 1);
    WAIT(rig->loop, rig->a.ends == 2);
    assert_true(side_ended(&rig->a, 0, NXL_NOT_FOUND));
    assert_true(side_ended(&rig->a, 1, NXL_OK));
    assert_int_equal(rig->b.notices, 2);
}

static void waiting_notices_are_limited_in_number_and_bytes(void **state)
{
    static char large[NXL_NOTICE_MAX];
    struct rig *rig = *state;
    struct nxl_message notice = {.type = NXL_MESSAGE_NOTICE};
    struct nxl_link *link;
    struct nxl_err err;

    side_open(&rig->a, rig->loop, "node-a", "node-a/boot/1", "link.notices_max", "3",
              "link.notice_bytes_max", "2Mi", SETTINGS_END);
    link = side_dial(&rig->a, "127.0.0.1:9", "x/y/z");
    for (unsigned i = 0; i < 3; i++)
        side_notify(&rig->a, link, i);
    assert_int_equal(nxl_link_notice(link, &notice, 3, &err), NXL_LIMIT);
    assert_non_null(strstr(err.text, "notices_max"));
    nxl_link_drop(link, "the test says so");
    assert_int_equal(rig->a.ends, 3);
    assert_true(side_ended(&rig->a, 2, NXL_REMOTE_DISCONNECT));
    link = side_dial(&rig->a, "127.0.0.1:9", "x/y/other");
    notice.payload = (struct nxl_view){large, sizeof(large)};
    assert_int_equal(nxl_link_notice(link, &notice, 10, &err), NXL_OK);
    assert_int_equal(nxl_link_notice(link, &notice, 11, &err),
                     NXL_LIMIT); /* two frames are above 2 MiB */
    assert_int_equal(
        nxl_link_notice(link, &(struct nxl_message){.type = NXL_MESSAGE_QUERY}, 12, &err),
        NXL_INVALID_PARAM);
}

static void a_reader_that_stops_is_felt_by_the_sender(void **state)
{
    static uint64_t ids[NXL_MESSAGE_REGIONS_MAX];
    struct rig *rig = *state;
    const struct nxl_message gone = {
        .type = NXL_MESSAGE_REGION_GONE, .id_count = NXL_MESSAGE_REGIONS_MAX, .ids = ids};
    enum nxl_code code = NXL_OK;
    unsigned sent = 0;
    struct nxl_err err;

    rig_proxied(rig, "link.links_max", "9");
    rig_link(rig);
    rig_swallow(rig, 1);
    while (code == NXL_OK && sent < 100000) {
        code = nxl_link_send(side_link(&rig->a, &rig->b), &gone, &err);
        sent += code == NXL_OK;
    }
    assert_int_equal(code, NXL_LIMIT);
    assert_non_null(strstr(err.text, "reads too slowly"));
    rig_swallow(rig, 0);
    WAIT(rig->loop, rig->b.messages == sent);
    assert_int_equal(nxl_link_send(side_link(&rig->a, &rig->b), &gone, &err), NXL_OK);
}

/* ---- silence ------------------------------------------------------------------------------ */

/* Silence is never death: suspect, then back, and not one notice lost. */
static void a_silent_agent_is_suspect_and_recovers(void **state)
{
    struct rig *rig = *state;

    rig_proxied(rig, "link.suspect_after", "200ms");
    rig_link(rig);
    rig_swallow(rig, 1);
    side_notify(&rig->a, side_link(&rig->a, &rig->b), 0);
    WAIT(rig->loop, rig->a.suspects == 1 && rig->b.suspects == 1);
    assert_true(nxl_link_suspect(side_link(&rig->a, &rig->b)));
    WAIT(rig->loop, rig->a.downs > 0);
    assert_false(both_up(rig));
    assert_int_equal(rig->a.recovers, 0);
    rig_swallow(rig, 0);
    WAIT(rig->loop, both_up(rig) && rig->a.ends == 1);
    assert_int_equal(rig->a.suspects, 1); /* said once */
    assert_int_equal(rig->a.recovers, 1);
    assert_int_equal(rig->b.recovers, 1);
    assert_in_order(&rig->b, 1);
    assert_int_equal(rig->a.gones + rig->b.gones, 0);
}

/* The process was killed and nobody listens: connection refused is not death either. */
static void an_agent_that_is_not_there_any_more_becomes_suspect(void **state)
{
    struct rig *rig = *state;

    rig_proxied(rig, "link.suspect_after", "200ms");
    rig_link(rig);
    proxy_refuse(rig->to_a, 1);
    proxy_refuse(rig->to_b, 1);
    rig_cut(rig);
    WAIT(rig->loop, rig->a.suspects == 1);
    assert_int_equal(rig->a.gones, 0);
}

static void an_idle_link_stays_up(void **state)
{
    struct rig *rig = *state;

    rig_proxied(rig, "link.suspect_after", "150ms");
    rig_link(rig);
    rig_run(rig->loop, 600 * NXL_MS);
    assert_true(both_up(rig));
    assert_int_equal(rig->a.suspects + rig->b.suspects + rig->a.downs + rig->b.downs, 0);
}

/* It was we who slept, so nobody else is under suspicion. */
static void a_stop_of_this_process_makes_nobody_suspect(void **state)
{
    struct rig *rig = *state;

    rig_proxied(rig, "link.suspect_after", "200ms");
    rig_link(rig);
    for (int round = 0; round < 3; round++) {
        uint64_t end = nxl_now_ns() + 500 * NXL_MS;

        rig_run(rig->loop, 60 * NXL_MS);
        while (nxl_now_ns() < end)
            continue; /* the loop does not turn */
    }
    rig_run(rig->loop, 60 * NXL_MS);
    assert_true(both_up(rig));
    assert_int_equal(rig->a.suspects + rig->b.suspects + rig->a.downs + rig->b.downs, 0);
}

/* ---- the end ------------------------------------------------------------------------------ */

static void a_goodbye_ends_the_link_at_once(void **state)
{
    struct rig *rig = *state;

    rig_pair(rig);
    rig_link(rig);
    rig->b.answer = NXL_AGAIN;
    side_notify(&rig->a, side_link(&rig->a, &rig->b), 0);
    WAIT(rig->loop, rig->b.offers == 1);
    side_close(&rig->b);
    WAIT(rig->loop, rig->a.gones == 1);
    assert_int_equal(rig->a.downs, 0);
    assert_true(side_ended(&rig->a, 0, NXL_REMOTE_DISCONNECT));
    assert_null(nxl_links_find(rig->a.links, "node-b/boot/1"));
}

/* C-021, C-025: killed without a goodbye, the next life answers at the same address. */
static void a_new_incarnation_at_the_same_address_replaces_the_old(void **state)
{
    struct rig *rig = *state;
    struct nxl_link *link;
    struct nxl_err err;

    rig_proxied(rig, "link.links_max", "9");
    rig_link(rig);
    rig->b.answer = NXL_AGAIN;
    side_notify(&rig->a, side_link(&rig->a, &rig->b), 0);
    WAIT(rig->loop, rig->b.offers == 1);
    proxy_refuse(rig->to_a, 1);
    proxy_refuse(rig->to_b, 1);
    rig_cut(rig); /* its goodbye will not arrive */
    WAIT(rig->loop, rig->a.downs > 0 && rig->b.downs > 0);
    assert_int_equal(rig->a.gones, 0);
    side_close(&rig->b);
    side_open(&rig->b, rig->loop, "node-b", "node-b/boot/2", "link.advertise",
              proxy_address(rig->to_b), SETTINGS_END);
    proxy_target(rig->to_b, side_port(&rig->b));
    proxy_refuse(rig->to_a, 0);
    proxy_refuse(rig->to_b, 0);
    WAIT(rig->loop, both_up(rig)); /* nobody but the old link dialled */
    assert_int_equal(rig->a.gones, 1);
    assert_string_equal(rig->a.gone_agent, "node-b/boot/1");
    assert_non_null(strstr(rig->a.why, "node-b/boot/2"));
    assert_true(side_ended(&rig->a, 0, NXL_REMOTE_DISCONNECT));
    assert_int_equal(rig->b.notices, 0); /* what was meant for the old life never reaches the new */
    assert_int_equal(nxl_links_get(rig->a.links, "127.0.0.1:9", "node-b/boot/1", &link, &err),
                     NXL_REMOTE_DISCONNECT);
    side_notify(&rig->a, side_link(&rig->a, &rig->b), 1);
    WAIT(rig->loop, rig->a.ends == 2);
    assert_true(side_ended(&rig->a, 1, NXL_OK));
}

/* The successor dials first: the old link, already down, is over by that. */
static void a_successor_that_dials_ends_its_predecessor(void **state)
{
    struct rig *rig = *state;

    rig_proxied(rig, "link.backoff_max", "5s");
    rig_link(rig);
    proxy_refuse(rig->to_b, 1); /* A cannot find out by dialling */
    proxy_refuse(rig->to_a, 1);
    rig_cut(rig);
    WAIT(rig->loop, rig->a.downs > 0);
    side_close(&rig->b);
    side_open(&rig->b, rig->loop, "node-b", "node-b/boot/2", "link.advertise",
              proxy_address(rig->to_b), SETTINGS_END);
    proxy_refuse(rig->to_a, 0);
    (void)side_dial(&rig->b, nxl_links_address(rig->a.links), rig->a.agent);
    WAIT(rig->loop, both_up(rig));
    assert_int_equal(rig->a.gones, 1);
    assert_string_equal(rig->a.gone_agent, "node-b/boot/1");
}

/* C-025: who answers counts, not that somebody does. */
static void another_agent_than_expected_ends_the_expected_one(void **state)
{
    struct rig *rig = *state;

    rig_pair(rig);
    (void)side_dial(&rig->a, nxl_links_address(rig->b.links), "node-b/boot/0");
    WAIT(rig->loop, both_up(rig));
    assert_int_equal(rig->a.gones, 1);
    assert_string_equal(rig->a.gone_agent, "node-b/boot/0");
    assert_non_null(strstr(rig->a.why, "node-b/boot/1"));
}

/* An address that leads to somebody on another node says nothing about the life of the expected
 * one. */
static void an_agent_of_another_node_at_the_address_is_no_death(void **state)
{
    struct rig *rig = *state;

    rig_pair(rig);
    side_open(&rig->c, rig->loop, "node-c", "node-c/boot/1", SETTINGS_END);
    (void)side_dial(&rig->a, nxl_links_address(rig->b.links), rig->c.agent);
    WAIT(rig->loop, both_up(rig) && rig->a.gones == 1);
    (void)side_dial(&rig->a, nxl_links_address(rig->c.links), rig->c.agent); /* not dead: dialled */
    WAIT(rig->loop, side_is_up(&rig->a, &rig->c));
}

static void a_dropped_incarnation_is_refused_for_good(void **state)
{
    struct rig *rig = *state;
    struct nxl_link *link;
    struct nxl_err err;

    rig_pair(rig);
    rig_link(rig);
    nxl_link_drop(side_link(&rig->a, &rig->b), "a fact said it is dead");
    assert_int_equal(rig->a.gones, 1);
    WAIT(rig->loop, rig->b.downs >= 3); /* it is alive after all and tries */
    assert_non_null(strstr(rig->b.why, "has ended"));
    assert_false(side_is_up(&rig->b, &rig->a));
    assert_null(side_link(&rig->a, &rig->b));
    assert_int_equal(
        nxl_links_get(rig->a.links, nxl_links_address(rig->b.links), rig->b.agent, &link, &err),
        NXL_REMOTE_DISCONNECT);
}

static void drop_on_message(struct side *side, struct nxl_link *link,
                            const struct nxl_message *message)
{
    nxl_link_drop(link, "from inside");
    assert_string_equal(message->name, "p"); /* still lent */
}

static void drop_on_up(struct side *side, struct nxl_link *link)
{
    nxl_link_drop(link, "from inside");
}

static void drop_on_notice(struct side *side, struct nxl_link *link)
{
    nxl_link_drop(link, "from inside");
}

static void a_link_may_be_dropped_inside_its_own_callbacks(void **state)
{
    struct rig *rig = *state;
    const struct nxl_message query = {.type = NXL_MESSAGE_QUERY, .request = 5, .name = "p"};
    struct nxl_err err;

    for (int kind = 0; kind < 4; kind++) {
        rig_pair(rig);
        if (kind == 1)
            rig->b.on_up = drop_on_up;
        (void)side_dial(&rig->a, nxl_links_address(rig->b.links), rig->b.agent);
        if (kind == 1) {
            WAIT(rig->loop, rig->b.gones == 1);
        } else {
            WAIT(rig->loop, both_up(rig));
            rig->b.on_message = drop_on_message;
            rig->b.on_notice = drop_on_notice;
            if (kind == 3)
                rig->b.answer = NXL_AGAIN;
            for (unsigned i = 0; i < 3; i++) {
                if (kind == 0)
                    assert_int_equal(nxl_link_send(side_link(&rig->a, &rig->b), &query, &err),
                                     NXL_OK);
                else
                    side_notify(&rig->a, side_link(&rig->a, &rig->b), i);
            }
            if (kind == 3) {
                WAIT(rig->loop, rig->b.offers == 1);
                rig->b.answer = NXL_OK;
                nxl_links_resume(rig->b.links);
            }
            WAIT(rig->loop, rig->b.gones == 1);
            assert_int_equal(rig->b.messages + rig->b.notices, 1); /* nothing came after the end */
        }
        side_close(&rig->a);
        side_close(&rig->b);
    }
}

static int count_link(void *arg, struct nxl_link *link)
{
    ++*(int *)arg;
    nxl_link_drop(link, "while walking");
    return 0;
}

static void walking_over_links_may_drop_them(void **state)
{
    struct rig *rig = *state;
    int count = 0;

    rig_pair(rig);
    for (int i = 0; i < 5; i++) {
        char agent[32];

        (void)snprintf(agent, sizeof(agent), "x/y/%d", i);
        (void)side_dial(&rig->a, "127.0.0.1:9", agent);
    }
    assert_int_equal(nxl_links_each(rig->a.links, count_link, &count), 0);
    assert_int_equal(count, 5);
    assert_int_equal(rig->a.gones, 5);
    assert_int_equal(rig->a.links->count, 0);
}

static void wrong_settings_are_refused_by_name(void **state)
{
    static const struct {
        const char *word, *settings[5];
    } rows[] = {
        {"link.cert", {"link.insecure", "false", NULL}},
        {"link.listen", {"link.listen", "nonsense", NULL}},
        {"link.advertise", {"link.advertise", "nonsense", NULL}},
        {"link.suspect_after", {"link.ping", "1s", "link.suspect_after", "1500ms", NULL}},
    };
    struct rig *rig = *state;
    struct nxl_err err;

    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        assert_int_equal(
            side_try_open(&rig->a, rig->loop, "node-a", "node-a/b/1", rows[i].settings, &err),
            NXL_CONFIG);
        assert_non_null(strstr(err.text, rows[i].word));
    }
    assert_int_equal(
        side_try_open(&rig->a, rig->loop, "node-a", "node-b/b/1", (const char *[]){NULL}, &err),
        NXL_INVALID_PARAM);
}

static void the_advertised_address_has_the_real_port(void **state)
{
    struct rig *rig = *state;
    char want[64];

    side_open(&rig->a, rig->loop, "node-a", "node-a/boot/1", "link.advertise", "a.example:0",
              SETTINGS_END);
    (void)snprintf(want, sizeof(want), "a.example:%d", side_port(&rig->a));
    assert_string_equal(nxl_links_address(rig->a.links), want);
    side_open(&rig->b, rig->loop, "node-b", "node-b/boot/1", "link.listen", "0.0.0.0:0",
              SETTINGS_END);
    assert_null(strstr(nxl_links_address(rig->b.links), "0.0.0.0")); /* C-028 */
    (void)side_dial(&rig->a, nxl_links_address(rig->b.links), NULL);
    WAIT(rig->loop, side_is_up(&rig->a, &rig->b));
}

#define T(name) cmocka_unit_test_setup_teardown(name, rig_open, rig_close)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(two_agents_come_up_and_talk_both_ways),
        T(the_same_agent_gives_the_same_link),
        T(a_name_is_looked_up_without_blocking),
        T(a_name_that_does_not_exist_is_told_and_tried_again),
        T(dialling_oneself_ends_with_its_reason),
        T(links_are_limited),
        T(crossing_dials_leave_one_connection),
        T(crossing_dials_by_address_end_in_one_link),
        T(a_second_name_of_a_linked_agent_leads_to_its_link),
        T(a_cut_link_comes_back),
        T(nobody_there_is_told_and_dialled_until_somebody_is),
        T(a_far_side_that_never_answers_times_out),
        T(notices_arrive_in_order_and_end),
        T(notices_arrive_exactly_once_over_100_cuts),
        T(notices_queued_before_the_first_connection_arrive),
        T(a_large_queue_leaves_as_soon_as_the_link_is_up),
        T(held_notices_wait_and_other_messages_pass),
        T(held_notices_survive_a_cut),
        T(a_full_window_of_held_notices_stops_the_reading),
        T(a_refused_notice_is_told_with_its_code),
        T(a_refusal_survives_a_cut),
        T(waiting_notices_are_limited_in_number_and_bytes),
        T(a_reader_that_stops_is_felt_by_the_sender),
        T(a_silent_agent_is_suspect_and_recovers),
        T(an_agent_that_is_not_there_any_more_becomes_suspect),
        T(an_idle_link_stays_up),
        T(a_stop_of_this_process_makes_nobody_suspect),
        T(a_goodbye_ends_the_link_at_once),
        T(a_new_incarnation_at_the_same_address_replaces_the_old),
        T(a_successor_that_dials_ends_its_predecessor),
        T(another_agent_than_expected_ends_the_expected_one),
        T(an_agent_of_another_node_at_the_address_is_no_death),
        T(a_dropped_incarnation_is_refused_for_good),
        T(a_link_may_be_dropped_inside_its_own_callbacks),
        T(walking_over_links_may_drop_them),
        T(wrong_settings_are_refused_by_name),
        T(the_advertised_address_has_the_real_port),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
