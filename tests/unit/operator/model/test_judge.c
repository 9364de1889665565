/* test_judge.c - silence: nodes, streams, heartbeats, the store; what is judged and what is not. */
#include "world_rig.h"

#include <stdio.h>
#include <string.h>

static void group_with(struct rig *rig, void (*change)(struct nxl_nixlpeer *peer))
{
    struct nxl_nixlpeer *peer = rig_group("a", "g", NXL_ROLE_PREFILL, "app=x");

    if (change != NULL)
        change(peer);
    rig_put(rig, peer);
    rig_synced(rig);
}

static void nodes_and_pods(struct rig *rig, unsigned count)
{
    char text[64], node[16];

    for (unsigned i = 0; i < count; i++) {
        snprintf(node, sizeof(node), "n%u", i);
        rig_node(rig, node, NXL_NODE_READY, 0, "-");
        snprintf(text, sizeof(text), "a/p%u u%u n%u R app=x", i, i, i);
        rig_pod(rig, text);
        nxl_world_heartbeat(rig->world, node, rig->now_ns);
    }
    rig->log[0] = '\0';
}

/* seconds pass; nodes of [0, beating) have a heartbeat in each. */
static void pass(struct rig *rig, unsigned seconds, unsigned first, unsigned end)
{
    char node[16];

    for (unsigned s = 0; s < seconds; s++) {
        rig->now_ns += SEC;
        for (unsigned i = first; i < end; i++) {
            snprintf(node, sizeof(node), "n%u", i);
            nxl_world_heartbeat(rig->world, node, rig->now_ns);
        }
        nxl_world_tick(rig->world, rig->now_ns);
    }
}

static void a_node_that_is_not_ready_is_suspect_and_comes_back(void **state)
{
    struct rig *rig = *state;

    group_with(rig, NULL);
    nodes_and_pods(rig, 2);
    rig_node(rig, "n1", NXL_NODE_UNKNOWN, 0, "-");
    rig_expect(rig, "live u1 suspect node-unknown in a/g on n1\n");
    assert_int_equal(rig_ask(rig, "a/g").suspect, 1);
    rig_node(rig, "n1", NXL_NODE_NOT_READY, 0, "-");
    rig_expect(rig, "live u1 suspect node-not-ready in a/g on n1\n");
    rig_node(rig, "n1", NXL_NODE_READY, 0, "-");
    rig_expect(rig, "live u1 in a/g on n1\n");
}

static void a_node_deleted_or_out_of_service_is_dead(void **state)
{
    struct rig *rig = *state;

    group_with(rig, NULL);
    nodes_and_pods(rig, 3);
    rig_node(rig, "n1", NXL_NODE_READY, 1, "-");
    rig_expect(rig, "dead u1 node-out-of-service in a/g on n1\n");
    nxl_world_drop_node(rig->world, "n2", "another", rig->now_ns);
    rig_expect(rig, "");
    nxl_world_drop_node(rig->world, "n2", "uid-n2", rig->now_ns);
    rig_expect(rig, "dead u2 node-deleted in a/g on n2\n");
    assert_int_equal(rig_ask(rig, "a/g").live, 1);
    rig_pod(rig, "a/p1 u1 n1 R app=x"); /* never again, by the same UID */
    rig_expect(rig, "");
}

static void one_lapsed_heartbeat_is_suspect_after_its_lease(void **state)
{
    struct rig *rig = *state;

    group_with(rig, NULL);
    nodes_and_pods(rig, 10);
    pass(rig, 4, 1, 10);
    rig_expect(rig, "");
    pass(rig, 1, 1, 10);
    rig_expect(rig, "live u0 suspect heartbeat-lapsed in a/g on n0\n");
    pass(rig, 100, 1, 10); /* Quarantine: for ever, and nothing worse */
    rig_expect(rig, "");
    nxl_world_heartbeat(rig->world, "n0", rig->now_ns);
    rig_expect(rig, "live u0 in a/g on n0\n");
}

static void a_silent_stream_is_suspect_at_once(void **state)
{
    struct rig *rig = *state;

    group_with(rig, NULL);
    nodes_and_pods(rig, 10);
    nxl_world_silent(rig->world, "n3", 1, rig->now_ns);
    rig_expect(rig, "live u3 suspect agent-silent in a/g on n3\n");
    nxl_world_silent(rig->world, "n3", 0, rig->now_ns);
    rig_expect(rig, "live u3 in a/g on n3\n");
}

static void purges(struct nxl_nixlpeer *peer)
{
    peer->spec.lapse_purges = 1;
    peer->spec.purge_s = 10;
}

static void purge_ends_the_sessions_known_then_and_no_pod(void **state)
{
    struct rig *rig = *state;

    group_with(rig, purges);
    nodes_and_pods(rig, 10);
    assert_int_equal(nxl_world_local(rig->world, "n0", "u0/c/1", NXL_LIFE_LIVE, "", 0), 1);
    assert_int_equal(nxl_world_local(rig->world, "n0", "u0/c/2", NXL_LIFE_LIVE, "", 0), 1);
    pass(rig, 10, 1, 10);
    rig_expect(rig, "live u0 suspect heartbeat-lapsed in a/g on n0\n");
    pass(rig, 1, 1, 10);
    rig_expect(rig, "dead u0/c/2 heartbeat-purged in a/g on n0\n"
                    "dead u0/c/1 heartbeat-purged in a/g on n0\n");
    rig_noted(rig, "2 sessions ended");
    pass(rig, 50, 1, 10); /* once */
    rig_expect(rig, "");
    /* A session that comes later is not ended for the old silence; the pod is back with it. */
    nxl_world_heartbeat(rig->world, "n0", rig->now_ns);
    rig_expect(rig, "live u0 in a/g on n0\n");
    assert_int_equal(nxl_world_local(rig->world, "n0", "u0/c/3", NXL_LIFE_LIVE, "", 0), 1);
    pass(rig, 1, 0, 10);
    rig_expect(rig, "");
}

static void observes(struct nxl_nixlpeer *peer)
{
    purges(peer);
    peer->spec.mode = NXL_MODE_OBSERVE;
}

static void a_group_that_only_observes_purges_nobody(void **state)
{
    struct rig *rig = *state;

    group_with(rig, observes);
    nodes_and_pods(rig, 10);
    assert_int_equal(nxl_world_local(rig->world, "n0", "u0/c/1", NXL_LIFE_LIVE, "", 0), 1);
    pass(rig, 60, 1, 10);
    rig_expect(rig, "live u0 suspect heartbeat-lapsed in a/g on n0\n");
}

/* Check 26: 40 % of the agents fall silent; nobody is judged, people are told. */
static void many_at_once_freeze_judgement(void **state)
{
    struct rig *rig = *state;

    group_with(rig, purges);
    nodes_and_pods(rig, 10);
    assert_int_equal(nxl_world_local(rig->world, "n0", "u0/c/1", NXL_LIFE_LIVE, "", 0), 1);
    pass(rig, 60, 4, 10);
    rig_expect(rig, "");
    assert_int_equal(rig_ask(rig, "a/g").frozen, 1);
    assert_int_equal(rig_ask(rig, "a/g").lapsed, 4);
    assert_int_equal(rig_ask(rig, "a/g").tracked, 10);
    rig_noted(rig, "4 of 10 nodes");
    /* Three of ten is not more than 30 %: those are judged again. */
    nxl_world_heartbeat(rig->world, "n3", rig->now_ns);
    nxl_world_tick(rig->world, rig->now_ns);
    assert_int_equal(rig_ask(rig, "a/g").frozen, 0);
    assert_int_equal(rig_ask(rig, "a/g").suspect, 3);
}

static void streams_that_fall_silent_one_by_one_freeze_too(void **state)
{
    struct rig *rig = *state;
    char node[16];

    group_with(rig, NULL);
    nodes_and_pods(rig, 10);
    for (unsigned i = 0; i < 4; i++) {
        snprintf(node, sizeof(node), "n%u", i);
        nxl_world_silent(rig->world, node, 1, rig->now_ns);
    }
    assert_int_equal(rig_ask(rig, "a/g").frozen, 1);
    assert_int_equal(rig_ask(rig, "a/g").suspect, 0); /* those taken back that were said before */
}

static void one_of_two_nodes_is_no_mass(void **state)
{
    struct rig *rig = *state;

    group_with(rig, NULL);
    nodes_and_pods(rig, 2);
    pass(rig, 6, 1, 2);
    rig_expect(rig, "live u0 suspect heartbeat-lapsed in a/g on n0\n");
}

static void without_the_store_nobody_is_judged_by_heartbeats(void **state)
{
    struct rig *rig = *state;

    group_with(rig, purges);
    nodes_and_pods(rig, 10);
    nxl_world_store(rig->world, 0, 0, rig->now_ns);
    assert_int_equal(rig_ask(rig, "a/g").store_down, 1);
    pass(rig, 600, 0, 0);
    rig_expect(rig, "");
    /* Back, and empty: two leases pass before anybody is judged. */
    nxl_world_store(rig->world, 1, 1, rig->now_ns);
    pass(rig, 8, 1, 10);
    rig_expect(rig, "");
    pass(rig, 1, 1, 10);
    rig_expect(rig, "live u0 suspect heartbeat-lapsed in a/g on n0\n");
    /* Wiped while it answered. */
    nxl_world_store(rig->world, 1, 1, rig->now_ns);
    rig_expect(rig, "live u0 in a/g on n0\n");
}

static void our_own_sleep_is_nobodys_lapse(void **state)
{
    struct rig *rig = *state;

    group_with(rig, purges);
    nodes_and_pods(rig, 10);
    rig->now_ns += 60 * SEC; /* stopped and continued */
    nxl_world_tick(rig->world, rig->now_ns);
    pass(rig, 3, 0, 0);
    rig_expect(rig, "");
}

static void a_node_without_heartbeats_and_a_strange_name_are_not_judged(void **state)
{
    struct rig *rig = *state;
    struct nxl_world_size size;

    group_with(rig, NULL);
    rig_pod(rig, "a/p u1 n1 R app=x");
    rig->log[0] = '\0';
    pass(rig, 100, 0, 0);
    rig_expect(rig, "");
    nxl_world_heartbeat(rig->world, "stranger", rig->now_ns); /* a name written into the store */
    nxl_world_silent(rig->world, "stranger", 1, rig->now_ns);
    nxl_world_size(rig->world, &size);
    assert_int_equal(size.nodes, 1);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, rig_open, rig_close)
    const struct CMUnitTest tests[] = {
        T(a_node_that_is_not_ready_is_suspect_and_comes_back),
        T(a_node_deleted_or_out_of_service_is_dead),
        T(one_lapsed_heartbeat_is_suspect_after_its_lease),
        T(a_silent_stream_is_suspect_at_once),
        T(purge_ends_the_sessions_known_then_and_no_pod),
        T(a_group_that_only_observes_purges_nobody),
        T(many_at_once_freeze_judgement),
        T(streams_that_fall_silent_one_by_one_freeze_too),
        T(one_of_two_nodes_is_no_mass),
        T(without_the_store_nobody_is_judged_by_heartbeats),
        T(our_own_sleep_is_nobodys_lapse),
        T(a_node_without_heartbeats_and_a_strange_name_are_not_judged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
