/* test_policy.c - allow rules resolved to groups, refusals, interest. */
#include "world_rig.h"

#include <string.h>

#define R NXL_MAY_READ
#define W NXL_MAY_WRITE
#define N NXL_MAY_NOTIFY

static void nothing_is_allowed_by_default(void **state)
{
    struct rig *rig = *state;

    rig_put(rig, rig_group("a", "p", NXL_ROLE_PREFILL, "app=p"));
    rig_put(rig, rig_group("a", "d", NXL_ROLE_DECODE, "app=d"));
    rig_synced(rig);
    rig_expect(rig, "policy a/d\npolicy a/p\n");
}

static void a_name_a_selector_and_a_role_become_groups(void **state)
{
    struct rig *rig = *state;
    struct nxl_nixlpeer *peer = rig_group("a", "p", NXL_ROLE_PREFILL, "app=p");

    rig_rule(peer, "d1", R | N);
    rig_rule(peer, NULL, N)->role = NXL_ROLE_DECODE;
    rig_rule(peer, NULL, W)->peers = rig_selector("model=llama");
    rig_put(rig, peer);
    rig_put(rig, rig_group("a", "d1", NXL_ROLE_DECODE, "app=d1"));
    peer = rig_group("a", "d2", NXL_ROLE_DECODE, "app=d2");
    peer->labels[peer->label_count++] =
        (struct nxl_label){nxl_nixlpeer_keep(peer, "model"), nxl_nixlpeer_keep(peer, "llama")};
    rig_put(rig, peer);
    rig_put(rig, rig_group("b", "d1", NXL_ROLE_DECODE, "app=d1")); /* another namespace */
    rig_synced(rig);
    rig_expect(rig, "policy a/d1\npolicy a/d2\npolicy a/p a/d1:RN a/d1:N a/d2:N a/d2:W\n"
                    "policy b/d1\n");
    /* A group that comes later, and one that goes. */
    rig_put(rig, rig_group("a", "d3", NXL_ROLE_DECODE, "app=d3"));
    rig_expect(rig, "policy a/d3\npolicy a/p a/d1:RN a/d1:N a/d2:N a/d3:N a/d2:W\n");
    nxl_world_drop_nixlpeer(rig->world, "a", "d2", "uid-a-d2", 0);
    rig_expect(rig, "gone a/d2\npolicy a/p a/d1:RN a/d1:N a/d3:N\n");
}

static void other_namespaces_by_their_labels_and_never_to_write(void **state)
{
    struct rig *rig = *state;
    struct nxl_nixlpeer *peer = rig_group("kv", "store", NXL_ROLE_STORAGE, "app=kv");
    struct nxl_rule *rule = rig_rule(peer, NULL, R | W);

    rule->role = NXL_ROLE_DECODE;
    rule->spaces = rig_selector("reader=true");
    rule = rig_rule(peer, NULL, W);
    rule->role = NXL_ROLE_DECODE;
    rule->spaces = rig_selector("reader=true");
    rig_put(rig, peer);
    rig_put(rig, rig_group("a", "d", NXL_ROLE_DECODE, "app=d"));
    rig_put(rig, rig_group("b", "d", NXL_ROLE_DECODE, "app=d"));
    rig_space(rig, "a", "reader=true");
    rig_space(rig, "b", "-");
    rig_synced(rig);
    rig_expect(rig, "policy a/d\npolicy b/d\npolicy kv/store a/d:R\n");
    rig_space(rig, "b", "reader=true");
    rig_expect(rig, "policy kv/store a/d:R b/d:R\n");
    rig_space(rig, "a", "reader=false");
    rig_expect(rig, "policy kv/store b/d:R\n");
    nxl_world_drop_namespace(rig->world, "b", 0);
    rig_expect(rig, "policy kv/store\n");
}

static void a_dangling_name_is_reported_and_the_other_rules_hold(void **state)
{
    struct rig *rig = *state;
    struct nxl_nixlpeer *peer = rig_group("a", "p", NXL_ROLE_PREFILL, "app=p");

    rig_rule(peer, "d", R);
    rig_rule(peer, "nobody", R);
    rig_put(rig, peer);
    rig_put(rig, rig_group("a", "d", NXL_ROLE_DECODE, "app=d"));
    assert_string_equal(rig_ask(rig, "a/p").refusal, ""); /* not before all is read */
    rig_synced(rig);
    rig_expect(rig, "policy a/d\npolicy a/p a/d:R\n");
    assert_string_equal(rig_ask(rig, "a/p").refusal, "PeerNotFound");
    assert_non_null(strstr(rig_ask(rig, "a/p").field, "spec.allow[1].from.peerName"));
    assert_string_equal(rig_ask(rig, "a/d").refusal, "");
    rig_noted(rig, "nobody");
    rig_put(rig, rig_group("a", "nobody", NXL_ROLE_DECODE, "app=n"));
    assert_string_equal(rig_ask(rig, "a/p").refusal, "");
}

static void an_unknown_backend_is_left_out_and_a_required_one_closes_the_group(void **state)
{
    struct rig *rig = *state;

    for (uint8_t required = 0; required <= 1; required++) {
        struct nxl_nixlpeer *peer = rig_group("a", "p", NXL_ROLE_PREFILL, "app=p");

        peer->generation = required + 1;
        rig_rule(peer, "p", R);
        peer->spec.backends[0] = (struct nxl_backend_wish){"UCX", 0};
        peer->spec.backends[1] = (struct nxl_backend_wish){"UXC", required};
        peer->spec.backend_count = 2;
        rig_put(rig, peer);
        rig_synced(rig);
        rig_expect(rig, required ? "policy a/p +UCX\n" : "policy a/p +UCX a/p:R\n");
        assert_string_equal(rig_ask(rig, "a/p").refusal, "UnknownBackend");
        assert_non_null(strstr(rig_ask(rig, "a/p").field, "spec.backends[1].name"));
    }
}

static void agents_need_their_own_groups_and_both_ends_of_a_rule(void **state)
{
    struct rig *rig = *state;
    struct nxl_nixlpeer *peer = rig_group("a", "p", NXL_ROLE_PREFILL, "app=p");

    rig_rule(peer, "d", R);
    rig_put(rig, peer);
    rig_put(rig, rig_group("a", "d", NXL_ROLE_DECODE, "app=d"));
    rig_put(rig, rig_group("a", "other", NXL_ROLE_DECODE, "app=o"));
    rig_synced(rig);
    rig_pod(rig, "a/p1 u1 n1 R app=p");
    rig_pod(rig, "a/d1 u2 n2 R app=d");
    rig_pod(rig, "a/o1 u3 n3 R app=o");
    assert_int_equal(nxl_world_interested(rig->world, "n1", "a/p"), 1);
    assert_int_equal(nxl_world_interested(rig->world, "n1", "a/d"), 1); /* it must know whom */
    assert_int_equal(nxl_world_interested(rig->world, "n2", "a/p"), 1);
    assert_int_equal(nxl_world_interested(rig->world, "n3", "a/p"), 0);
    assert_int_equal(nxl_world_interested(rig->world, "n1", "a/other"), 0);
    assert_int_equal(nxl_world_interested(rig->world, "n9", "a/p"), 0);
    assert_int_equal(nxl_world_interested(rig->world, "n1", "a/none"), 0);
    assert_int_equal(rig_ask(rig, "a/p").nodes, 2);
    /* The last pod of the group leaves: the node needs neither. */
    rig->interests = 0;
    rig_drop(rig, "a/d1 u2");
    assert_int_equal(nxl_world_interested(rig->world, "n2", "a/p"), 0);
    assert_true(rig->interests > 0);
}

static void a_group_being_deleted_is_revoked_before_its_members_are_forgotten(void **state)
{
    struct rig *rig = *state;
    struct nxl_nixlpeer *peer = rig_group("a", "p", NXL_ROLE_PREFILL, "app=p");

    rig_put(rig, peer);
    rig_pod(rig, "a/p1 u1 n1 R app=p");
    rig_synced(rig);
    rig->log[0] = '\0';
    peer = rig_group("a", "p", NXL_ROLE_PREFILL, "app=p");
    peer->deleting = 1;
    peer->generation = 2; /* the API server counts deletion as a generation */
    rig_put(rig, peer);
    rig_expect(rig, "gone a/p\nforget u1\n");
    nxl_world_drop_nixlpeer(rig->world, "a", "p", "uid-a-p", 0);
    rig_expect(rig, "");
}

static void an_edit_is_one_new_policy_and_a_stale_object_none(void **state)
{
    struct rig *rig = *state;
    struct nxl_nixlpeer *old = rig_group("a", "p", NXL_ROLE_PREFILL, "app=p"), *peer;

    peer = rig_group("a", "p", NXL_ROLE_PREFILL, "app=p");
    rig_put(rig, peer);
    rig_synced(rig);
    rig->log[0] = '\0';
    peer = rig_group("a", "p", NXL_ROLE_PREFILL, "app=p");
    peer->generation = 2;
    rig_rule(peer, "p", N);
    rig_put(rig, peer);
    rig_expect(rig, "policy a/p a/p:N\n");
    rig_put(rig, old);
    rig_expect(rig, "");
    assert_int_equal(rig_ask(rig, "a/p").peer->generation, 2);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, rig_open, rig_close)
    const struct CMUnitTest tests[] = {
        T(nothing_is_allowed_by_default),
        T(a_name_a_selector_and_a_role_become_groups),
        T(other_namespaces_by_their_labels_and_never_to_write),
        T(a_dangling_name_is_reported_and_the_other_rules_hold),
        T(an_unknown_backend_is_left_out_and_a_required_one_closes_the_group),
        T(agents_need_their_own_groups_and_both_ends_of_a_rule),
        T(a_group_being_deleted_is_revoked_before_its_members_are_forgotten),
        T(an_edit_is_one_new_policy_and_a_stale_object_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
