/* test_restart.c - an agent ends, is killed, is stopped: its clients come back by themselves, the
 * other side suspects and judges nobody until a new life of that agent answers. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/near.h"

#define MIB (1u << 20)
#define FACT_NS 20000000000u

struct rig {
    struct cluster cluster;
    struct near near[2];          /* at agent 0 and agent 1; agent 1 is the one that restarts */
    struct nxl_remote *remote[2]; /* near[i] knows near[1 - i] */
};

static void rig_make(struct rig *r, int no_store, const char *backends)
{
    r->cluster.secure = 1;
    r->cluster.backends = backends;
    cluster_start(&r->cluster, 2, no_store);
    for (int i = 0; i < 2; i++) {
        struct nxl_err err = {0};

        near_open(&r->cluster, i, i == 0 ? "stays" : "moves", 8 * MIB, &r->near[i]);
        memset(r->near[i].memory, 'a' + i, 8 * MIB);
        if (!no_store)
            assert_int_equal(nxl_send_metadata(r->near[i].peer, NULL, NULL, NULL, 0, 0, &err),
                             NXL_OK);
    }
    for (int i = 0; i < 2; i++)
        r->remote[i] = no_store ? near_load(&r->near[i], &r->near[1 - i])
                                : near_fetch(&r->near[i], i == 0 ? "moves" : "stays");
}

static int open_plain(void **state)
{
    rig_make(*state = calloc(1, sizeof(struct rig)), 0, NULL);
    return 0;
}

/* The agent that restarts comes back at the same address. */
static int open_same_port(void **state)
{
    struct rig *r = *state = calloc(1, sizeof(struct rig));

    near_fix_address(&r->cluster, 1);
    rig_make(r, 0, NULL);
    return 0;
}

static int open_storeless(void **state)
{
    rig_make(*state = calloc(1, sizeof(struct rig)), 1, NULL);
    return 0;
}

static int open_slow(void **state)
{
    struct rig *r = *state = calloc(1, sizeof(struct rig));

    r->cluster.extra[0] = "--backends.fault.delay=4s";
    rig_make(r, 0, "fault:shm,fault:ucx");
    return 0;
}

static int rig_down(void **state)
{
    struct rig *r = *state;

    near_close(&r->near[0]);
    near_close(&r->near[1]);
    cluster_stop(&r->cluster);
    free(r);
    return 0;
}

static void expect_reads(struct rig *r, int i)
{
    uint64_t there = (uint64_t)(uintptr_t)r->near[1 - i].memory + 4 * MIB;

    memset(r->near[i].memory, 0, 4096);
    if (!near_moves(&r->near[i], NXL_READ, r->remote[i], there, 65536, FACT_NS))
        fail_msg("%s does not read", i == 0 ? "stays" : "moves");
    for (int k = 0; k < 4096; k++)
        assert_int_equal(r->near[i].memory[k], 'a' + 1 - i);
}

static int connected(void *arg)
{
    struct near *near = arg;
    struct nxl_err err = {0};

    return nxl_client_check(near->client, &err) == NXL_OK;
}

/* The new incarnation of "moves", as agent 0's client gets it. */
static void fetch_next_life(struct rig *r, const char *old)
{
    struct nxl_remote *remote = NULL;
    uint64_t deadline = cluster_now() + FACT_NS;

    while (cluster_now() < deadline) {
        struct nxl_err err = {0};

        if (nxl_fetch_metadata(r->near[0].peer, "moves", NULL, NULL, 2000, &remote, &err) ==
                NXL_OK &&
            strcmp(nxl_remote_incarnation(remote), old) != 0) {
            r->remote[0] = remote;
            return;
        }
        (void)poll(NULL, 0, 20); /* the store lives elsewhere */
    }
    fail_msg("no new life of 'moves' is known");
}

static void after_the_restart(struct rig *r, const char *old)
{
    struct nxl_client_info info = {.size = sizeof(info)};
    struct nxl_event event;
    struct nxl_err err = {0};
    struct nxl_remote *stale = r->remote[1];

    assert_true(
        cluster_event(r->near[1].client, r->near[1].peer, NXL_EVENT_AGENT_GONE, FACT_NS, &event));
    assert_true(cluster_until(connected, &r->near[1], FACT_NS));
    assert_int_equal(near_count(&r->near[1], NXL_EVENT_AGENT_GONE, 100000000u), 0);
    assert_int_equal(nxl_client_info(r->near[1].client, &info), NXL_OK);
    assert_int_equal(info.reconnects, 1);
    assert_string_not_equal(nxl_peer_incarnation(r->near[1].peer), old);
    /* Its own client: what the new life was not told of is stale, not free (C-031); after a fetch
     * the same memory moves again. */
    assert_int_equal(near_move(&r->near[1], NXL_READ, stale, 0,
                               (uint64_t)(uintptr_t)r->near[0].memory, 4096, &err),
                     NXL_STALE);
    r->remote[1] = near_fetch(&r->near[1], "stays");
    expect_reads(r, 1);
    /* The other agent's client is told of the death by the new life and reads after a fetch. */
    assert_true(
        cluster_event(r->near[0].client, r->near[0].peer, NXL_EVENT_PEER_DOWN, FACT_NS, &event));
    assert_string_equal(event.incarnation, old);
    assert_int_equal(near_move(&r->near[0], NXL_READ, r->remote[0], 0,
                               (uint64_t)(uintptr_t)r->near[1].memory, 4096, &err),
                     NXL_STALE);
    fetch_next_life(r, old); /* the client published again by itself */
    expect_reads(r, 0);
    assert_int_equal(near_count(&r->near[0], NXL_EVENT_PEER_DOWN, 100000000u), 0); /* once */
}

static void clients_come_back_by_themselves_after_an_orderly_restart(void **state)
{
    struct rig *r = *state;
    char old[NXL_INCARNATION_MAX + 1];

    expect_reads(r, 0);
    expect_reads(r, 1);
    snprintf(old, sizeof(old), "%s", nxl_peer_incarnation(r->near[1].peer));
    cluster_agent_kill(&r->cluster, 1, SIGTERM);
    cluster_agent_start(&r->cluster, 1);
    after_the_restart(r, old);
}

static void clients_come_back_by_themselves_after_their_agent_was_killed(void **state)
{
    struct rig *r = *state;
    char old[NXL_INCARNATION_MAX + 1];

    expect_reads(r, 0);
    expect_reads(r, 1);
    snprintf(old, sizeof(old), "%s", nxl_peer_incarnation(r->near[1].peer));
    cluster_agent_kill(&r->cluster, 1, SIGKILL);
    cluster_agent_start(&r->cluster, 1);
    after_the_restart(r, old);
}

static void
silence_of_an_agent_is_suspected_and_kills_nobody_until_its_next_life_answers(void **state)
{
    struct rig *r = *state; /* C-024 */
    struct nxl_event event;
    struct nxl_remote_state s;

    expect_reads(r, 0);
    cluster_agent_kill(&r->cluster, 1, SIGKILL);
    if (!cluster_event(r->near[0].client, r->near[0].peer, NXL_EVENT_PEER_SUSPECT, FACT_NS, &event))
        fail_msg("nobody suspects");
    assert_string_equal(event.name, "moves");
    assert_int_equal(event.size, 1);
    assert_int_equal(((const unsigned char *)event.payload)[0], 1);
    /* More than a lease and many pings later it is still only suspect. */
    assert_int_equal(near_count(&r->near[0], NXL_EVENT_PEER_DOWN, 8000000000u), 0);
    s = near_state(&r->near[0], r->remote[0]);
    assert_int_equal(s.life, NXL_LIFE_LIVE);
    assert_int_equal(s.suspect, 1);
    cluster_agent_start(&r->cluster, 1);
    assert_true(
        cluster_event(r->near[0].client, r->near[0].peer, NXL_EVENT_PEER_DOWN, FACT_NS, &event));
    assert_string_equal(event.name, "moves");
}

static void a_next_life_at_another_address_is_found_through_the_store(void **state)
{
    struct rig *r = *state;
    struct nxl_event event;
    char old[NXL_INCARNATION_MAX + 1];

    expect_reads(r, 0);
    snprintf(old, sizeof(old), "%s", nxl_peer_incarnation(r->near[1].peer));
    cluster_agent_kill(&r->cluster, 1, SIGKILL);
    cluster_agent_start(&r->cluster, 1); /* another port; nobody there knows agent 0 */
    assert_true(cluster_until(connected, &r->near[1], FACT_NS));
    assert_true(
        cluster_event(r->near[0].client, r->near[0].peer, NXL_EVENT_PEER_DOWN, FACT_NS, &event));
    assert_string_equal(event.incarnation, old);
    fetch_next_life(r, old);
    expect_reads(r, 0);
}

static void an_agent_that_was_only_stopped_for_a_while_is_cleared_and_goes_on(void **state)
{
    struct rig *r = *state;
    struct nxl_event event;

    expect_reads(r, 0);
    kill(r->cluster.agents[1].pid, SIGSTOP);
    assert_true(
        cluster_event(r->near[0].client, r->near[0].peer, NXL_EVENT_PEER_SUSPECT, FACT_NS, &event));
    assert_int_equal(((const unsigned char *)event.payload)[0], 1);
    kill(r->cluster.agents[1].pid, SIGCONT);
    assert_true(
        cluster_event(r->near[0].client, r->near[0].peer, NXL_EVENT_PEER_SUSPECT, FACT_NS, &event));
    assert_int_equal(((const unsigned char *)event.payload)[0], 0);
    assert_int_equal(near_state(&r->near[0], r->remote[0]).suspect, 0);
    expect_reads(r, 0); /* the same handle: nothing died */
    expect_reads(r, 1);
}

static void what_runs_when_its_own_agent_is_killed_ends_as_disconnected(void **state)
{
    struct rig *r = *state;
    struct nxl_transfer *running = near_create(&r->near[1], NXL_READ, r->remote[1], 0,
                                               (uint64_t)(uintptr_t)r->near[0].memory, MIB);
    struct nxl_event event;
    struct nxl_err err = {0};

    assert_int_equal(nxl_transfer_post(running, &err), NXL_OK);
    assert_int_equal(nxl_transfer_poll(running), NXL_IN_PROG);
    cluster_agent_kill(&r->cluster, 1, SIGKILL);
    assert_int_equal(nxl_transfer_wait(running, FACT_NS, &err), NXL_REMOTE_DISCONNECT);
    assert_true(
        cluster_event(r->near[1].client, r->near[1].peer, NXL_EVENT_AGENT_GONE, FACT_NS, &event));
    cluster_agent_start(&r->cluster, 1);
    assert_true(cluster_until(connected, &r->near[1], FACT_NS));
    assert_int_equal(nxl_transfer_poll(running),
                     NXL_REMOTE_DISCONNECT); /* sticky over the new session */
    (void)nxl_transfer_wait_quiesced(running, FACT_NS, &err);
    assert_int_equal(nxl_transfer_release(running, &err), NXL_OK);
}

static void without_a_store_new_blobs_bring_both_sides_together_again(void **state)
{
    struct rig *r = *state;

    expect_reads(r, 0);
    cluster_agent_kill(&r->cluster, 1, SIGKILL);
    cluster_agent_start(&r->cluster, 1);
    assert_true(cluster_until(connected, &r->near[1], FACT_NS));
    r->remote[0] = near_load(&r->near[0], &r->near[1]);
    r->remote[1] = near_load(&r->near[1], &r->near[0]);
    expect_reads(r, 0);
    expect_reads(r, 1);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(clients_come_back_by_themselves_after_an_orderly_restart,
                                        open_plain, rig_down),
        cmocka_unit_test_setup_teardown(
            clients_come_back_by_themselves_after_their_agent_was_killed, open_plain, rig_down),
        cmocka_unit_test_setup_teardown(
            silence_of_an_agent_is_suspected_and_kills_nobody_until_its_next_life_answers,
            open_same_port, rig_down),
        cmocka_unit_test_setup_teardown(a_next_life_at_another_address_is_found_through_the_store,
                                        open_plain, rig_down),
        cmocka_unit_test_setup_teardown(
            an_agent_that_was_only_stopped_for_a_while_is_cleared_and_goes_on, open_storeless,
            rig_down),
        cmocka_unit_test_setup_teardown(what_runs_when_its_own_agent_is_killed_ends_as_disconnected,
                                        open_slow, rig_down),
        cmocka_unit_test_setup_teardown(without_a_store_new_blobs_bring_both_sides_together_again,
                                        open_storeless, rig_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
