/* test_life.c - lives of pods and containers: what comes, goes, comes again under the same name. */
#include "world_rig.h"

static struct rig *with_group(void **state)
{
    struct rig *rig = *state;

    rig_put(rig, rig_group("a", "g", NXL_ROLE_PREFILL, "app=x"));
    rig_synced(rig);
    rig_expect(rig, "policy a/g\n");
    return rig;
}

static void a_pod_is_told_once_it_has_a_node(void **state)
{
    struct rig *rig = with_group(state);

    rig_pod(rig, "a/p u1 - P app=x");
    rig_expect(rig, "");
    assert_int_equal(rig_ask(rig, "a/g").pending, 1);
    rig_pod(rig, "a/p u1 n1 P app=x");
    rig_expect(rig, "live u1 in a/g on n1\n");
    assert_int_equal(rig_ask(rig, "a/g").pending, 1);
    rig_pod(rig, "a/p u1 n1 R app=x c=1111");
    rig_expect(rig, "live u1/1111 in a/g on n1\n");
    assert_int_equal(rig_ask(rig, "a/g").live, 1);
    rig_pod(rig, "a/p u1 n1 R app=x c=1111"); /* nothing new */
    rig_expect(rig, "");
}

static void a_pod_drains_at_the_deletion_timestamp_and_dies_at_deleted(void **state)
{
    struct rig *rig = with_group(state);

    rig_pod(rig, "a/p u1 n1 R app=x");
    rig->log[0] = '\0';
    rig_pod_at(rig, "a/p u1 n1 R app=x", "9000", 1, "");
    rig_expect(rig, "draining u1 deleting in a/g on n1\n");
    assert_int_equal(rig_ask(rig, "a/g").draining, 1);
    rig_drop(rig, "a/p u1");
    rig_expect(rig, "dead u1 deleted in a/g on n1\n");
    assert_int_equal(rig_ask(rig, "a/g").total, 0);
    assert_string_equal(rig_ask(rig, "a/g").dead_reason, "deleted");
}

static void failed_succeeded_and_evicted_pods_are_dead(void **state)
{
    struct rig *rig = with_group(state);

    rig_pod(rig, "a/p1 u1 n1 R app=x");
    rig_pod(rig, "a/p2 u2 n1 R app=x");
    rig_pod(rig, "a/p3 u3 n1 R app=x");
    rig->log[0] = '\0';
    rig_pod(rig, "a/p1 u1 n1 F app=x");
    rig_expect(rig, "dead u1 failed in a/g on n1\n");
    rig_pod(rig, "a/p2 u2 n1 S app=x");
    rig_expect(rig, "dead u2 succeeded in a/g on n1\n");
    rig_pod_at(rig, "a/p3 u3 n1 F app=x", "9001", 0, "Evicted");
    rig_expect(rig, "dead u3 Evicted in a/g on n1\n");
    rig_drop(rig, "a/p3 u3"); /* said once */
    rig_expect(rig, "");
    assert_int_equal(rig_ask(rig, "a/g").total, 0);
}

/* C-084, C-083: a StatefulSet's pod comes back under its name; the old one is dead before. */
static void the_same_name_with_another_uid_kills_the_old_first(void **state)
{
    struct rig *rig = with_group(state);

    rig_pod(rig, "a/p-0 u1 n1 R app=x c=1111");
    rig->log[0] = '\0';
    rig_pod(rig, "a/p-0 u2 n2 R app=x c=2222");
    rig_expect(rig, "dead u1 replaced in a/g on n1\nlive u2/2222 in a/g on n2\n");
    rig_drop(rig, "a/p-0 u1"); /* late DELETED of the old: the new one stays */
    rig_expect(rig, "");
    assert_int_equal(rig_ask(rig, "a/g").live, 1);
}

static void a_stale_server_never_revives_the_dead(void **state)
{
    struct rig *rig = with_group(state);

    rig_pod_at(rig, "a/p-0 u1 n1 R app=x", "500", 0, "");
    rig_pod_at(rig, "a/p-0 u2 n1 R app=x", "600", 0, "");
    rig->log[0] = '\0';
    rig_pod_at(rig, "a/p-0 u1 n1 R app=x", "550", 0, "");
    rig_expect(rig, "");
    rig_drop(rig, "a/p-0 u2");
    rig->log[0] = '\0';
    rig_pod_at(rig, "a/p-0 u2 n1 R app=x", "601", 0, "");
    rig_pod_at(rig, "a/p-0 u1 n1 R app=x", "500", 0, "");
    rig_expect(rig, "");
    assert_int_equal(rig_ask(rig, "a/g").total, 0);
    /* A name never seen before, an older version than what is held. */
    rig_pod_at(rig, "a/q u3 n1 R app=x", "1000", 0, "");
    rig->log[0] = '\0';
    rig_pod_at(rig, "a/q u3 n2 F app=x", "999", 0, "");
    rig_expect(rig, "");
    rig_pod_at(rig, "a/r u9 n1 R app=x", "70", 0, "");
    rig->log[0] = '\0';
    rig_pod_at(rig, "a/r u8 n1 R app=x", "69", 0, ""); /* an older life of the name */
    rig_expect(rig, "");
}

static void after_a_restore_lower_versions_count_and_the_dead_stay_dead(void **state)
{
    struct rig *rig = with_group(state);

    rig_pod_at(rig, "a/p u1 n1 R app=x", "5000", 0, "");
    rig_pod_at(rig, "a/q u2 n1 R app=x", "5001", 0, "");
    rig_drop(rig, "a/q u2");
    rig->log[0] = '\0';
    nxl_world_restored(rig->world);
    rig_pod_at(rig, "a/q u2 n1 R app=x", "3000", 0, ""); /* the backup still had it */
    rig_expect(rig, "");
    rig_pod_at(rig, "a/p u1 n1 F app=x", "3001", 0, "");
    rig_expect(rig, "dead u1 failed in a/g on n1\n");
}

static void a_deletion_heard_before_the_pod_is_remembered(void **state)
{
    struct rig *rig = with_group(state);

    rig_drop(rig, "a/p u1");
    rig_pod(rig, "a/p u1 n1 R app=x");
    rig_expect(rig, "");
}

static void a_container_that_restarts_is_dead_and_the_pod_lives(void **state)
{
    struct rig *rig = with_group(state);

    rig_pod(rig, "a/p u1 n1 R app=x c=1111");
    rig->log[0] = '\0';
    rig_pod(rig, "a/p u1 n1 R app=x c=2222");
    rig_expect(rig, "dead u1/1111 container-restarted in a/g on n1\n"
                    "live u1/2222 in a/g on n1\n");
    /* It ends, and comes again later: dead once. */
    rig_pod(rig, "a/p u1 n1 R app=x c=2222!");
    rig_expect(rig, "dead u1/2222 container-ended in a/g on n1\nlive u1 in a/g on n1\n");
    rig_pod(rig, "a/p u1 n1 R app=x c=3333");
    rig_expect(rig, "live u1/3333 in a/g on n1\n");
    rig_pod(rig, "a/p u1 n1 R app=x c="); /* a status that lags */
    rig_expect(rig, "");
    assert_int_equal(rig_ask(rig, "a/g").total, 1);
}

static void the_named_container_is_the_one_that_counts(void **state)
{
    struct rig *rig = *state;
    struct nxl_nixlpeer *peer = rig_group("a", "g", NXL_ROLE_PREFILL, "app=x");

    peer->spec.container = nxl_nixlpeer_keep(peer, "vllm");
    rig_put(rig, peer);
    rig_put(rig, rig_group("a", "h", NXL_ROLE_DECODE, "app=y"));
    rig_synced(rig);
    rig->log[0] = '\0';
    rig_pod(rig, "a/p u1 n1 R app=x log=1111,vllm=2222");
    rig_expect(rig, "live u1/2222 in a/g on n1\n");
    rig_pod(rig, "a/q u2 n1 R app=y log=1111,vllm=2222"); /* not named: which is not known */
    rig_expect(rig, "live u2 in a/h on n1\n");
}

static void the_agent_of_the_node_is_the_nearest_witness(void **state)
{
    struct rig *rig = with_group(state);

    rig_pod(rig, "a/p u1 n1 R app=x c=1111");
    rig->log[0] = '\0';
    assert_int_equal(nxl_world_local(rig->world, "n2", "u1/1111", NXL_LIFE_DEAD, "exit", 0), 0);
    assert_int_equal(nxl_world_local(rig->world, "n1", "u7", NXL_LIFE_DEAD, "exit", 0), 0);
    rig_expect(rig, "");
    assert_int_equal(nxl_world_local(rig->world, "n1", "u1/1111/5", NXL_LIFE_LIVE, "", 0), 1);
    assert_int_equal(nxl_world_local(rig->world, "n1", "u1/1111/5", NXL_LIFE_DEAD, "exit", 0), 1);
    rig_expect(rig, "dead u1/1111/5 exit in a/g on n1\n");
    assert_int_equal(nxl_world_local(rig->world, "n1", "u1/1111", NXL_LIFE_DEAD, "exit", 0), 1);
    rig_expect(rig, "dead u1/1111 exit in a/g on n1\nlive u1 in a/g on n1\n");
    rig_pod(rig, "a/p u1 n1 R app=x c=1111!"); /* the status says it later: not twice */
    rig_expect(rig, "");
    assert_int_equal(nxl_world_local(rig->world, "n1", "u1", NXL_LIFE_DEAD, "sandbox", 0), 1);
    rig_expect(rig, "dead u1 sandbox in a/g on n1\n");
}

static void a_drain_ends_at_its_timeout_unless_it_is_only_observed(void **state)
{
    for (int mode = NXL_MODE_ENFORCE; mode <= NXL_MODE_OBSERVE; mode++) {
        void *own = NULL;
        struct rig *rig;
        struct nxl_nixlpeer *peer = rig_group("a", "g", NXL_ROLE_PREFILL, "app=x");

        assert_int_equal(rig_open(&own), 0);
        rig = own;
        peer->spec.mode = (uint8_t)mode;
        rig_put(rig, peer);
        rig_synced(rig);
        rig_pod(rig, "a/p u1 n1 R app=x");
        rig_pod_at(rig, "a/p u1 n1 R app=x", "9000", 1, "");
        rig->log[0] = '\0';
        for (int i = 0; i < 31; i++) {
            nxl_world_tick(rig->world, rig->now_ns);
            rig_expect(rig, "");
            rig->now_ns += SEC;
        }
        nxl_world_tick(rig->world, rig->now_ns);
        rig_expect(rig, mode == NXL_MODE_OBSERVE ? "" : "dead u1 drain-timeout in a/g on n1\n");
        rig_close(&own);
    }
}

static void purge_on_termination_is_dead_at_once(void **state)
{
    struct rig *rig = *state;
    struct nxl_nixlpeer *peer = rig_group("a", "g", NXL_ROLE_PREFILL, "app=x");

    peer->spec.drain_purges = 1;
    rig_put(rig, peer);
    rig_synced(rig);
    rig_pod(rig, "a/p u1 n1 R app=x");
    rig->log[0] = '\0';
    rig_pod_at(rig, "a/p u1 n1 R app=x", "9000", 1, "");
    rig_expect(rig, "dead u1 deleting in a/g on n1\n");
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, rig_open, rig_close)
    const struct CMUnitTest tests[] = {
        T(a_pod_is_told_once_it_has_a_node),
        T(a_pod_drains_at_the_deletion_timestamp_and_dies_at_deleted),
        T(failed_succeeded_and_evicted_pods_are_dead),
        T(the_same_name_with_another_uid_kills_the_old_first),
        T(a_stale_server_never_revives_the_dead),
        T(after_a_restore_lower_versions_count_and_the_dead_stay_dead),
        T(a_deletion_heard_before_the_pod_is_remembered),
        T(a_container_that_restarts_is_dead_and_the_pod_lives),
        T(the_named_container_is_the_one_that_counts),
        T(the_agent_of_the_node_is_the_nearest_witness),
        T(a_drain_ends_at_its_timeout_unless_it_is_only_observed),
        T(purge_on_termination_is_dead_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
