/* test_member.c - who is in which group, overlap, modes, slices, cost and memory. */
#include "world_rig.h"

#include <stdio.h>
#include <string.h>

static void labels_decide_and_may_change(void **state)
{
    struct rig *rig = *state;

    rig_put(rig, rig_group("a", "g", NXL_ROLE_PREFILL, "app=x"));
    rig_put(rig, rig_group("a", "h", NXL_ROLE_DECODE, "app=y"));
    rig_put(rig, rig_group("b", "g", NXL_ROLE_DECODE, "app=x"));
    rig_synced(rig);
    rig->log[0] = '\0';
    rig_pod(rig, "a/p u1 n1 R app=x");
    rig_expect(rig, "live u1 in a/g on n1\n");
    rig_pod(rig, "a/p u1 n1 R app=y");
    rig_expect(rig, "live u1 in a/h on n1\n");
    rig_pod(rig, "a/p u1 n1 R app=z");
    rig_expect(rig, "forget u1\n");
    assert_int_equal(rig_ask(rig, "a/g").total, 0);
    assert_int_equal(rig_ask(rig, "a/h").total, 0);
    assert_true(rig_ask(rig, "a/h").revision >= 2);
}

static void pods_and_groups_may_come_in_any_order(void **state)
{
    struct rig *rig = *state;

    rig_pod(rig, "a/p u1 n1 R app=x");
    rig_expect(rig, "");
    rig_put(rig, rig_group("a", "g", NXL_ROLE_PREFILL, "app=x"));
    rig_expect(rig, "live u1 in a/g on n1\n");
    rig_synced(rig);
    rig_expect(rig, "policy a/g\n");
    nxl_world_drop_nixlpeer(rig->world, "a", "g", "uid-a-g", 0);
    rig_expect(rig, "gone a/g\nforget u1\n");
    assert_int_equal(nxl_world_group(rig->world, "a/g", &(struct nxl_world_group){0}), 0);
}

static void two_groups_of_different_roles_both_lose_the_pod(void **state)
{
    struct rig *rig = *state;
    struct nxl_nixlpeer *peer;

    rig_put(rig, rig_group("a", "g", NXL_ROLE_PREFILL, "app=x"));
    rig_synced(rig);
    rig_pod(rig, "a/p u1 n1 R app=x,tier=d");
    rig_pod(rig, "a/q u2 n1 R app=x,tier=p");
    rig->log[0] = '\0';
    rig_put(rig, rig_group("a", "h", NXL_ROLE_DECODE, "tier=d"));
    rig_expect(rig, "forget u1\npolicy a/h\n"); /* fails closed */
    assert_int_equal(rig_ask(rig, "a/g").total, 1);
    assert_int_equal(rig_ask(rig, "a/h").total, 0);
    assert_string_equal(rig_ask(rig, "a/g").refusal, "SelectorOverlap");
    assert_string_equal(rig_ask(rig, "a/h").refusal, "SelectorOverlap");
    assert_non_null(strstr(rig_ask(rig, "a/g").field, "spec.selector"));
    rig_noted(rig, "a/g 0 ");
    rig_noted(rig, "a/h 0 ");
    /* Repaired by the pod's label: the pod is back, both groups are well. */
    rig_pod(rig, "a/p u1 n1 R app=x,tier=p");
    rig_expect(rig, "live u1 in a/g on n1\n");
    assert_string_equal(rig_ask(rig, "a/g").refusal, "");
    assert_string_equal(rig_ask(rig, "a/h").refusal, "");
    /* And a barred pod that dies leaves no trace. */
    rig_pod(rig, "a/p u1 n1 R app=x,tier=d");
    rig_drop(rig, "a/p u1");
    assert_string_equal(rig_ask(rig, "a/h").refusal, "");
    /* The same role is no overlap: counted in both, told with the first by name. */
    peer = rig_group("a", "f", NXL_ROLE_PREFILL, "app=x");
    rig->log[0] = '\0';
    rig_put(rig, peer);
    rig_expect(rig, "live u2 in a/f on n1\npolicy a/f\n");
    assert_int_equal(rig_ask(rig, "a/f").total, 1);
    assert_int_equal(rig_ask(rig, "a/g").total, 1);
}

static void a_paused_group_keeps_whom_it_has_and_takes_nobody(void **state)
{
    struct rig *rig = *state;
    struct nxl_nixlpeer *peer = rig_group("a", "g", NXL_ROLE_PREFILL, "app=x");

    peer->spec.mode = NXL_MODE_PAUSED;
    rig_put(rig, peer);
    rig_pod(rig, "a/p u1 n1 R app=x"); /* before the first sync is complete */
    rig_synced(rig);
    rig->log[0] = '\0';
    rig_pod(rig, "a/q u2 n1 R app=x");
    rig_expect(rig, "");
    rig_pod(rig, "a/p u1 n1 R app=z");
    rig_expect(rig, "");
    assert_int_equal(rig_ask(rig, "a/g").total, 1);
    rig_drop(rig, "a/p u1"); /* a death is a fact, not membership */
    rig_expect(rig, "dead u1 deleted in a/g on n1\n");
    peer = rig_group("a", "g", NXL_ROLE_PREFILL, "app=x");
    peer->generation = 2;
    rig_put(rig, peer);
    rig_expect(rig, "live u2 in a/g on n1\npolicy a/g\n");
}

static void revision_and_topology_travel_with_the_record(void **state)
{
    struct rig *rig = *state;
    struct nxl_nixlpeer *peer = rig_group("a", "g", NXL_ROLE_PREFILL, "app=x");

    peer->spec.revision_key = nxl_nixlpeer_keep(peer, "rev");
    peer->spec.topology_key = nxl_nixlpeer_keep(peer, "zone");
    rig_put(rig, peer);
    rig_node(rig, "n1", NXL_NODE_READY, 0, "zone=z1");
    rig_pod(rig, "a/p u1 n1 R app=x,rev=r7");
    rig_expect(rig, "live u1 in a/g on n1 rev r7 zone z1\n");
    rig_node(rig, "n1", NXL_NODE_READY, 0, "zone=z2");
    rig_expect(rig, "live u1 in a/g on n1 rev r7 zone z2\n");
}

static void a_status_write_of_our_own_changes_nothing(void **state)
{
    struct rig *rig = *state;
    unsigned groups;

    rig_put(rig, rig_group("a", "g", NXL_ROLE_PREFILL, "app=x"));
    rig_pod(rig, "a/p u1 n1 R app=x");
    rig_synced(rig);
    rig->log[0] = '\0';
    rig->interests = 0;
    groups = rig->groups;
    rig_put(rig, rig_group("a", "g", NXL_ROLE_PREFILL, "app=x")); /* newer version only */
    rig_expect(rig, "");
    assert_int_equal(rig->interests, 0);
    assert_int_equal(rig->groups, groups + 1);
}

static void the_revision_goes_on_from_what_was_written(void **state)
{
    struct rig *rig = *state;
    struct nxl_nixlpeer *peer = rig_group("a", "g", NXL_ROLE_PREFILL, "app=x");

    peer->revision = 41;
    rig_put(rig, peer);
    rig_pod(rig, "a/p u1 n1 R app=x");
    assert_int_equal(rig_ask(rig, "a/g").revision, 42);
}

static void make_pods(struct rig *rig, unsigned count)
{
    char text[512];

    for (unsigned i = 0; i < count; i++) {
        snprintf(text, sizeof(text),
                 "a/llama70b-prefill-7c9d5b6f4-%05u 4b1f6c1e-8f0a-4c0e-9a5b-%012u node-%03u R "
                 "app=x,tier=prefill,pod-template-hash=7c9d5b6f4,nixlet.dev/transfer=true,"
                 "nixlet.dev/revision=r7,apps.kubernetes.io/pod-index=%u,"
                 "statefulset.kubernetes.io/pod-name=llama70b-prefill-%u "
                 "vllm=%064u",
                 i, i, i % 500, i, i, i);
        rig_pod(rig, text);
    }
}

static void slices_are_dense_and_one_leaving_pod_touches_two(void **state)
{
    struct rig *rig = *state;
    struct nxl_world_seat seats[NXL_SLICE_MEMBERS];

    rig->quiet = 1;
    rig_put(rig, rig_group("a", "g", NXL_ROLE_PREFILL, "app=x"));
    make_pods(rig, 250);
    assert_int_equal(rig_ask(rig, "a/g").slices, 3);
    assert_int_equal(nxl_world_slice(rig->world, "a/g", 0, seats), 100);
    assert_int_equal(nxl_world_slice(rig->world, "a/g", 2, seats), 50);
    assert_int_equal(nxl_world_slice(rig->world, "a/g", 3, seats), 0);
    rig->slices = 0;
    rig_drop(rig, "a/x 4b1f6c1e-8f0a-4c0e-9a5b-000000000003");
    assert_int_equal(rig->slices, 2);
    assert_int_equal(nxl_world_slice(rig->world, "a/g", 0, seats), 100);
    assert_int_equal(nxl_world_slice(rig->world, "a/g", 2, seats), 49);
}

static void five_thousand_pods_take_less_than_a_kilobyte_each(void **state)
{
    struct rig *rig = *state;
    struct nxl_world_size size;

    rig->quiet = 1;
    rig_put(rig, rig_group("a", "g", NXL_ROLE_PREFILL, "app=x"));
    rig_synced(rig);
    make_pods(rig, 5000);
    nxl_world_size(rig->world, &size);
    assert_int_equal(size.pods, 5000);
    print_message("%llu bytes a pod\n", (unsigned long long)(size.bytes / 5000));
    assert_true(size.bytes / 5000 < 1024);
    assert_int_equal(rig_ask(rig, "a/g").live, 5000);
    assert_int_equal(rig_ask(rig, "a/g").slices, 50);
    /* A pod's change costs its groups only: one record, one slice. */
    rig->members = rig->slices = rig->groups = 0;
    rig_drop(rig, "a/x 4b1f6c1e-8f0a-4c0e-9a5b-000000004999");
    assert_int_equal(rig->members, 1);
    assert_int_equal(rig->slices, 1);
    assert_true(rig->groups <= 4);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, rig_open, rig_close)
    const struct CMUnitTest tests[] = {
        T(labels_decide_and_may_change),
        T(pods_and_groups_may_come_in_any_order),
        T(two_groups_of_different_roles_both_lose_the_pod),
        T(a_paused_group_keeps_whom_it_has_and_takes_nobody),
        T(revision_and_topology_travel_with_the_record),
        T(a_status_write_of_our_own_changes_nothing),
        T(the_revision_goes_on_from_what_was_written),
        T(slices_are_dense_and_one_leaving_pod_touches_two),
        T(five_thousand_pods_take_less_than_a_kilobyte_each),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
