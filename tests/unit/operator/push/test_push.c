/* The stream end to end over real TLS on loopback: an operator's server and agents' own clients. */
#include "support/stream_rig.h"

#include "base/fd.h"

#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct nxl_loop *loop;
static struct stream_rig rig;
static struct stream_client a, b;
static struct nxl_err err;

static int setup(void **state)
{
    assert_int_equal(nxl_loop_open(&loop, &err), NXL_OK);
    return 0;
}

static int teardown(void **state)
{
    nxl_loop_close(loop);
    return 0;
}

#define WAIT(expr) STREAM_WAIT(loop, expr)

static void operator_start(void)
{
    stream_rig_open(&rig, loop, NULL, "stream.ping", "50ms", "stream.silent_after", "500ms",
                    RIG_END);
    stream_rig_policy(&rig, "ns/prefill", 1, "ns/decode", NXL_STREAM_READ);
    stream_rig_policy(&rig, "ns/decode", 1, NULL, 0);
    (void)stream_rig_put(&rig, "p1", "ns/prefill", "n1", "11");
    (void)stream_rig_put(&rig, "d1", "ns/decode", "n2", "12");
    nxl_push_rv(rig.push, "12");
    nxl_push_synced(rig.push);
}

static void agent_start(struct stream_client *client, const char *node)
{
    stream_client_open(client, loop, &rig, node, NULL, NULL, NULL, 0, RIG_END);
    WAIT(nxl_stream_up(client->stream) == 1);
}

static int knows(const struct stream_client *client, const char *uid)
{
    struct nxl_member_view view;

    return nxl_members_find(client->members, uid, &view) && view.life != NXL_LIFE_DEAD;
}

static int is_synced(const char *group, uint32_t agents)
{
    struct nxl_push_group state;

    return nxl_push_group(rig.push, group, &state) && state.interested == agents &&
           state.synced == agents;
}

static void an_agent_gets_a_snapshot_and_every_change_after_it(void **state)
{
    uint64_t seq;

    operator_start();
    agent_start(&a, "n1");
    assert_true(knows(&a, "p1") && knows(&a, "d1"));
    assert_int_equal(nxl_members_allows(a.members, "d1", "p1", NXL_STREAM_READ, NXL_MEM_DRAM,
                                        NXL_PATH_NONE, &err),
                     NXL_OK);
    assert_int_equal(nxl_members_allows(a.members, "p1", "d1", NXL_STREAM_READ, NXL_MEM_DRAM,
                                        NXL_PATH_NONE, &err),
                     NXL_NOT_ALLOWED);
    (void)stream_rig_put(&rig, "d2", "ns/decode", "n2", "13");
    WAIT(knows(&a, "d2"));
    seq = stream_rig_dead(&rig, "d1", "deleted");
    WAIT(a.deaths == 1);
    assert_string_equal(a.dead, "d1");
    assert_string_equal(a.reason, "deleted");
    WAIT(rig.acked_seq >= seq);
    assert_int_equal(rig.acked_purged, 1);
    WAIT(is_synced("ns/decode", 1));
    stream_client_close(&a);
    stream_rig_close(&rig);
}

static void hellos_wait_until_the_operator_has_read_everything(void **state)
{
    stream_rig_open(&rig, loop, NULL, "stream.ping", "50ms", RIG_END);
    stream_client_open(&a, loop, &rig, "n1", NULL, NULL, NULL, 0, RIG_END);
    WAIT(rig.ups == 1);
    stream_run(loop, 200 * NXL_MS);
    assert_int_equal(nxl_stream_up(a.stream), 0);
    assert_int_equal(nxl_members_spoken(a.members), 0);
    assert_int_equal(nxl_members_allows(a.members, "d1", "p1", NXL_STREAM_READ, NXL_MEM_DRAM,
                                        NXL_PATH_NONE, &err),
                     NXL_AGAIN);
    assert_false(nxl_push_ready(rig.push));
    (void)stream_rig_put(&rig, "p1", "ns/prefill", "n1", "11");
    nxl_push_synced(rig.push);
    WAIT(nxl_stream_up(a.stream) == 1);
    assert_true(knows(&a, "p1"));
    assert_true(nxl_push_ready(rig.push));
    stream_client_close(&a);
    stream_rig_close(&rig);
}

/* C-029: a pod that died while nobody listened must be dead for whoever comes back. */
static void what_died_while_an_agent_was_away_is_dead_when_it_is_back(void **state)
{
    operator_start();
    agent_start(&a, "n1");
    stream_rig_stop(&rig);
    WAIT(nxl_stream_up(a.stream) == 0);
    assert_true(knows(&a, "d1")); /* losing the operator changes nothing */
    stream_client_close(&a);
    stream_rig_close(&rig);

    operator_start();
    agent_start(&a, "n1");
    stream_rig_restart(&rig);
    stream_rig_policy(&rig, "ns/prefill", 1, "ns/decode", NXL_STREAM_READ);
    stream_rig_policy(&rig, "ns/decode", 1, NULL, 0);
    (void)stream_rig_put(&rig, "p1", "ns/prefill", "n1", "11");
    nxl_push_rv(rig.push, "20");
    nxl_push_synced(rig.push);
    WAIT(a.deaths == 1);
    assert_string_equal(a.dead, "d1");
    assert_true(knows(&a, "p1"));
    WAIT(nxl_stream_up(a.stream) == 1);
    stream_client_close(&a);
    stream_rig_close(&rig);
}

static void a_session_is_resumed_with_a_restarted_operator(void **state)
{
    operator_start();
    agent_start(&a, "n1");
    stream_run(loop, 50 * NXL_MS); /* the ticket follows the handshake */
    stream_rig_restart(&rig);
    nxl_push_synced(rig.push);
    WAIT(nxl_stream_up(a.stream) == 0);
    WAIT(nxl_stream_up(a.stream) == 1);
    assert_int_equal(stream_rig_metric(rig.metrics, "nixlet_stream_resumed_total", ""), 1);
    stream_client_close(&a);
    stream_rig_close(&rig);
}

static void an_agent_that_lost_a_record_is_healed_by_the_digest(void **state)
{
    const struct nxl_stream_member forged = {
        .id = "p1", .group = "ns/prefill", .node = "n9", .version = "11"};

    operator_start();
    agent_start(&a, "n1");
    WAIT(is_synced("ns/prefill", 1));
    assert_int_equal(nxl_members_put(a.members, 0, &forged, &err), NXL_OK);
    WAIT(stream_rig_metric(rig.metrics, "nixlet_stream_digest_mismatches_total", "") >= 1);
    WAIT(stream_rig_metric(rig.metrics, "nixlet_stream_snapshots_total", "") == 2);
    stream_run(loop, 300 * NXL_MS);
    assert_int_equal(stream_rig_metric(rig.metrics, "nixlet_stream_snapshots_total", ""), 2);
    stream_client_close(&a);
    stream_rig_close(&rig);
}

static void an_agent_hears_only_of_groups_that_concern_it(void **state)
{
    operator_start();
    rig.uninterested = "n1 ns/decode";
    agent_start(&a, "n1");
    agent_start(&b, "n2");
    assert_true(knows(&a, "p1"));
    assert_false(knows(&a, "d1"));
    assert_true(knows(&b, "d1"));
    (void)stream_rig_put(&rig, "d2", "ns/decode", "n2", "13");
    WAIT(knows(&b, "d2"));
    WAIT(is_synced("ns/decode", 1));
    assert_false(knows(&a, "d2"));
    rig.uninterested = NULL; /* a rule was added: it does now */
    nxl_push_interest(rig.push, "n1", "ns/decode");
    WAIT(knows(&a, "d1") && knows(&a, "d2"));
    WAIT(is_synced("ns/decode", 2));
    rig.uninterested = "n1 ns/decode"; /* and was taken away: forgotten, but nobody is dead */
    nxl_push_interest(rig.push, NULL, NULL);
    WAIT(!knows(&a, "d1") && !knows(&a, "d2"));
    assert_int_equal(a.deaths, 0);
    stream_run(loop, 200 * NXL_MS);
    assert_int_equal(stream_rig_metric(rig.metrics, "nixlet_stream_digest_mismatches_total", ""),
                     0);
    stream_client_close(&a);
    stream_client_close(&b);
    stream_rig_close(&rig);
}

/* A force-deleted pod's own agent must fence the zombie. */
static void a_node_always_hears_of_its_own_pods(void **state)
{
    operator_start();
    rig.uninterested = "n3 ns/decode";
    agent_start(&a, "n3");
    assert_false(knows(&a, "d1"));
    (void)stream_rig_put(&rig, "d3", "ns/decode", "n3", "14");
    WAIT(knows(&a, "d3"));
    (void)stream_rig_dead(&rig, "d3", "force deleted");
    WAIT(a.deaths == 1);
    stream_client_close(&a);
    stream_rig_close(&rig);
}

static void a_pod_that_changes_its_group_lives_on_in_the_other(void **state)
{
    struct nxl_member_view view;

    operator_start();
    agent_start(&a, "n1");
    (void)stream_rig_put(&rig, "p1", "ns/decode", "n1", "30");
    WAIT(nxl_members_find(a.members, "p1", &view) && strcmp(view.group, "ns/decode") == 0);
    assert_int_equal(a.deaths, 0);
    stream_run(loop, 200 * NXL_MS);
    assert_int_equal(stream_rig_metric(rig.metrics, "nixlet_stream_digest_mismatches_total", ""),
                     0);
    stream_client_close(&a);
    stream_rig_close(&rig);
}

/* C-080: a container that restarts in its pod is another incarnation. */
static void a_restarted_container_is_dead_and_its_pod_is_not(void **state)
{
    operator_start();
    (void)stream_rig_put(&rig, "d5/c1", "ns/decode", "n2", "20");
    agent_start(&a, "n1");
    (void)stream_rig_dead(&rig, "d5/c1", "container restarted");
    (void)stream_rig_put(&rig, "d5/c2", "ns/decode", "n2", "21");
    WAIT(a.deaths == 1);
    assert_string_equal(a.dead, "d5/c1");
    WAIT(is_synced("ns/decode", 1));
    assert_true(knows(&a, "d5"));
    stream_run(loop, 200 * NXL_MS);
    assert_int_equal(a.deaths, 1);
    assert_int_equal(stream_rig_metric(rig.metrics, "nixlet_stream_digest_mismatches_total", ""),
                     0);
    stream_client_close(&a);
    stream_rig_close(&rig);
}

static void acknowledgements_wait_for_the_fence_and_keep_their_order(void **state)
{
    uint64_t first, second;

    operator_start();
    agent_start(&a, "n1");
    WAIT(is_synced("ns/decode", 1));
    a.hold_fences = 1;
    first = stream_rig_dead(&rig, "d1", "deleted");
    nxl_push_flush(rig.push);
    second = stream_rig_dead(&rig, "p1", "deleted");
    nxl_push_flush(rig.push);
    WAIT(a.fence_count == 2);
    stream_run(loop, 100 * NXL_MS);
    assert_true(rig.acked_seq < first);
    nxl_stream_fenced(a.stream, a.fences[1], 1);
    stream_run(loop, 50 * NXL_MS);
    assert_true(rig.acked_seq < first); /* the earlier one is not through */
    nxl_stream_fenced(a.stream, a.fences[0], 3);
    WAIT(rig.acked_seq >= second);
    assert_int_equal(rig.acked_purged, 4);
    assert_true(rig.acked_us >= 100000);
    stream_client_close(&a);
    stream_rig_close(&rig);
}

static void a_thousand_deaths_travel_as_lists(void **state)
{
    int64_t frames;
    char uid[32];

    operator_start();
    for (int i = 0; i < 1000; i++) {
        (void)snprintf(uid, sizeof(uid), "x%d", i);
        (void)stream_rig_put(&rig, uid, "ns/decode", "n2", "20");
    }
    agent_start(&a, "n1");
    WAIT(is_synced("ns/decode", 1));
    frames = stream_rig_metric(rig.metrics, "nixlet_stream_frames_total", "");
    for (int i = 0; i < 1000; i++) {
        (void)snprintf(uid, sizeof(uid), "x%d", i);
        (void)stream_rig_dead(&rig, uid, i % 2 < 1 && i < 2 ? "node lost" : "deleted");
    }
    WAIT(a.deaths == 1000);
    WAIT(is_synced("ns/decode", 1));
    frames = stream_rig_metric(rig.metrics, "nixlet_stream_frames_total", "") - frames;
    assert_in_range(frames, 3, 40); /* pings are among them */
    stream_client_close(&a);
    stream_rig_close(&rig);
}

static void policies_change_and_go(void **state)
{
    operator_start();
    agent_start(&a, "n1");
    stream_rig_policy(&rig, "ns/prefill", 2, "ns/decode", NXL_STREAM_READ | NXL_STREAM_WRITE);
    WAIT(nxl_members_allows(a.members, "d1", "p1", NXL_STREAM_WRITE, NXL_MEM_DRAM, NXL_PATH_NONE,
                            &err) == NXL_OK);
    (void)nxl_push_policy_gone(rig.push, "ns/prefill");
    WAIT(nxl_members_allows(a.members, "d1", "p1", NXL_STREAM_READ, NXL_MEM_DRAM, NXL_PATH_NONE,
                            &err) == NXL_NOT_ALLOWED);
    assert_non_null(strstr(err.text, "ns/prefill"));
    stream_run(loop, 200 * NXL_MS);
    assert_int_equal(stream_rig_metric(rig.metrics, "nixlet_stream_digest_mismatches_total", ""),
                     0);
    stream_client_close(&a);
    stream_rig_close(&rig);
}

static void two_operators_are_both_heard_and_dead_wins(void **state)
{
    struct stream_rig other;
    char both[256];

    operator_start();
    stream_rig_open(&other, loop, &rig, "stream.ping", "50ms", RIG_END);
    stream_rig_policy(&other, "ns/decode", 1, NULL, 0);
    (void)stream_rig_put(&other, "d1", "ns/decode", "n2", "12"); /* this one lags behind */
    nxl_push_rv(other.push, "12");
    nxl_push_synced(other.push);
    (void)snprintf(both, sizeof(both), "%s,%s", nxl_push_address(rig.push),
                   nxl_push_address(other.push));
    stream_client_open(&a, loop, &rig, "n1", NULL, both, NULL, 0, RIG_END);
    WAIT(nxl_stream_up(a.stream) == 2);
    (void)stream_rig_dead(&rig, "d1", "deleted");
    WAIT(a.deaths == 1);
    (void)stream_rig_put(&other, "d1", "ns/decode", "n2", "12"); /* again, unchanged: nothing */
    (void)stream_rig_put(&other, "d9", "ns/decode", "n2", "13");
    WAIT(knows(&a, "d9"));
    assert_false(knows(&a, "d1"));
    (void)stream_rig_dead(&other, "d1", "deleted");
    stream_run(loop, 300 * NXL_MS);
    assert_int_equal(a.deaths, 1); /* said once, however many say it */
    assert_int_equal(stream_rig_metric(rig.metrics, "nixlet_stream_digest_mismatches_total", ""),
                     0);
    assert_int_equal(stream_rig_metric(other.metrics, "nixlet_stream_digest_mismatches_total", ""),
                     0);
    stream_rig_stop(&other);
    WAIT(nxl_stream_up(a.stream) == 1);
    assert_true(knows(&a, "d9")); /* known to one that is gone: it stays */
    stream_client_close(&a);
    stream_rig_close(&other);
    stream_rig_close(&rig);
}

/* design 7: silence of a node is told, and so is its end. A client that is not turned is silent. */
static void a_silent_agent_is_told_of_and_so_is_its_return(void **state)
{
    struct nxl_loop *other;

    operator_start();
    assert_int_equal(nxl_loop_open(&other, &err), NXL_OK);
    stream_client_open(&a, other, &rig, "n1", NULL, NULL, NULL, 0, RIG_END);
    for (int i = 0; i < 4000 && nxl_stream_up(a.stream) == 0; i++) {
        stream_turn(loop);
        stream_turn(other);
    }
    assert_int_equal(nxl_stream_up(a.stream), 1);
    WAIT(rig.silents == 1); /* the agent's loop does not turn */
    assert_int_equal(rig.downs, 0);
    for (int i = 0; i < 4000 && rig.heards == 0; i++) {
        stream_turn(loop);
        stream_turn(other);
    }
    assert_int_equal(rig.heards, 1);
    stream_client_close(&a);
    stream_rig_close(&rig);
    nxl_loop_close(other);
}

static void facts_of_the_own_node_are_taken_and_of_others_refused(void **state)
{
    static const char *const uids[] = {"p1", "px"};

    operator_start();
    agent_start(&a, "n1");
    nxl_stream_tell(a.stream, "p1/c/s1", NXL_LIFE_DEAD, "exited");
    WAIT(rig.locals == 1);
    assert_string_equal(rig.last, "n1 p1/c/s1 2 exited");
    nxl_stream_tell(a.stream, "d1", NXL_LIFE_DEAD, "I say so"); /* lives on n2 */
    nxl_stream_tell(a.stream, "nobody", NXL_LIFE_DEAD, "I say so");
    WAIT(stream_rig_metric(rig.metrics, "nixlet_stream_facts_refused_total", "") == 2);
    assert_int_equal(rig.locals, 1);
    nxl_stream_pods(a.stream, uids, 2);
    WAIT(rig.pods == 1);
    assert_string_equal(rig.last, "n1 2 p1");
    nxl_stream_tell_suspect(a.stream, "d1", "n2", "link silent");
    WAIT(rig.suspects == 1);
    assert_string_equal(rig.last, "n1 d1 n2 link silent");
    stream_rig_restart(&rig);
    nxl_push_synced(rig.push);
    WAIT(rig.pods == 2); /* told again to a new operator */
    stream_client_close(&a);
    stream_rig_close(&rig);
}

static void an_agent_gets_its_certificate_with_the_welcome_and_renews_it(void **state)
{
    operator_start();
    stream_client_open(&a, loop, &rig, "n1", "node:n1:pod-uid", NULL, NULL, 1, RIG_END);
    WAIT(nxl_stream_up(a.stream) == 1);
    WAIT(nxl_trust_ready(a.trust));
    assert_in_range(nxl_trust_left_s(a.trust), 86000, 86400);
    assert_int_equal(stream_rig_metric(rig.metrics, "nixlet_stream_certificates_total", ""), 1);
    stream_client_close(&a);
    /* One whose certificate always counts as nearly over asks again at the next dial. */
    stream_client_open(&a, loop, &rig, "n1", NULL, NULL, NULL, 1, "stream.cert_renew", "200000s",
                       RIG_END);
    WAIT(nxl_stream_up(a.stream) == 1 && nxl_trust_ready(a.trust));
    stream_rig_restart(&rig);
    nxl_push_synced(rig.push);
    WAIT(stream_rig_metric(rig.metrics, "nixlet_stream_certificates_total", "") == 3);
    stream_client_close(&a);
    stream_rig_close(&rig);
}

static void the_servers_certificate_is_loaded_anew_without_a_restart(void **state)
{
    struct nxl_bytes cert = {0}, key = {0};
    char cert_path[128], key_path[128];
    struct stream_rig other;
    int64_t ends;

    stream_rig_open(&other, loop, NULL, RIG_END); /* lends its authority and its folder */
    (void)snprintf(cert_path, sizeof(cert_path), "%s/tls.crt", other.folder);
    (void)snprintf(key_path, sizeof(key_path), "%s/tls.key", other.folder);
    assert_int_equal(nxl_authority_serve(other.authority, "wrong.name", 60, &cert, &key, &err),
                     NXL_OK);
    assert_int_equal(nxl_write_file(cert_path, cert.data, cert.size, 0600, &err), NXL_OK);
    assert_int_equal(nxl_write_file(key_path, key.data, key.size, 0600, &err), NXL_OK);
    stream_rig_open(&rig, loop, &other, "stream.cert", cert_path, "stream.key", key_path, RIG_END);
    nxl_push_synced(rig.push);
    stream_client_open(&a, loop, &rig, "n1", NULL, NULL, NULL, 0, RIG_END);
    WAIT((ends = stream_rig_metric(a.metrics, "nixlet_operator_failures_total", "")) >= 1);
    assert_int_equal(nxl_stream_up(a.stream), 0); /* the name is not in it */
    nxl_bytes_clear(&cert);
    nxl_bytes_clear(&key);
    assert_int_equal(nxl_authority_serve(other.authority, "127.0.0.1", 60, &cert, &key, &err),
                     NXL_OK);
    assert_int_equal(nxl_write_file(cert_path, cert.data, cert.size, 0600, &err), NXL_OK);
    assert_int_equal(nxl_write_file(key_path, key.data, key.size, 0600, &err), NXL_OK);
    WAIT(nxl_stream_up(a.stream) == 1);
    /* Nonsense in the file changes nothing. */
    assert_int_equal(nxl_write_file(cert_path, "x", 1, 0600, &err), NXL_OK);
    agent_start(&b, "n2");
    stream_client_close(&a);
    stream_client_close(&b);
    stream_rig_close(&rig);
    stream_rig_close(&other);
    nxl_bytes_fini(&cert);
    nxl_bytes_fini(&key);
}

static void a_goodbye_is_told_to_every_agent(void **state)
{
    operator_start();
    agent_start(&a, "n1");
    agent_start(&b, "n2");
    nxl_push_close(rig.push);
    rig.push = NULL;
    WAIT(nxl_stream_up(a.stream) == 0 && nxl_stream_up(b.stream) == 0);
    stream_client_close(&a);
    stream_client_close(&b);
    stream_rig_close(&rig);
}

static void an_agent_that_comes_anew_replaces_its_own_connection(void **state)
{
    operator_start();
    agent_start(&a, "n1");
    stream_client_open(&b, loop, &rig, "n1", NULL, NULL, NULL, 0,
                       RIG_END); /* another agent of n1 */
    WAIT(nxl_stream_up(b.stream) == 1);
    assert_int_equal(nxl_push_agent_count(rig.push), 2); /* an upgrade has both for a while */
    assert_int_equal(nxl_stream_up(a.stream), 1);
    stream_client_close(&a);
    WAIT(nxl_push_agent_count(rig.push) == 1);
    stream_client_close(&b);
    stream_rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_agent_gets_a_snapshot_and_every_change_after_it),
        cmocka_unit_test(hellos_wait_until_the_operator_has_read_everything),
        cmocka_unit_test(what_died_while_an_agent_was_away_is_dead_when_it_is_back),
        cmocka_unit_test(a_session_is_resumed_with_a_restarted_operator),
        cmocka_unit_test(an_agent_that_lost_a_record_is_healed_by_the_digest),
        cmocka_unit_test(an_agent_hears_only_of_groups_that_concern_it),
        cmocka_unit_test(a_node_always_hears_of_its_own_pods),
        cmocka_unit_test(a_pod_that_changes_its_group_lives_on_in_the_other),
        cmocka_unit_test(a_restarted_container_is_dead_and_its_pod_is_not),
        cmocka_unit_test(acknowledgements_wait_for_the_fence_and_keep_their_order),
        cmocka_unit_test(a_thousand_deaths_travel_as_lists),
        cmocka_unit_test(policies_change_and_go),
        cmocka_unit_test(two_operators_are_both_heard_and_dead_wins),
        cmocka_unit_test(a_silent_agent_is_told_of_and_so_is_its_return),
        cmocka_unit_test(facts_of_the_own_node_are_taken_and_of_others_refused),
        cmocka_unit_test(an_agent_gets_its_certificate_with_the_welcome_and_renews_it),
        cmocka_unit_test(the_servers_certificate_is_loaded_anew_without_a_restart),
        cmocka_unit_test(a_goodbye_is_told_to_every_agent),
        cmocka_unit_test(an_agent_that_comes_anew_replaces_its_own_connection),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
