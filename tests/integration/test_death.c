/* test_death.c - a client is killed with SIGKILL: who is told what, and what can be done next. Two
 * observers: a client of the same agent, and one of another agent. */
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
#define TOLD_NS 10000000000u /* a fact's deadline; how fast it really is, bench/death says */
#define ONCE_NS 300000000u

struct rig {
    struct cluster cluster;
    struct cluster_peer victim; /* at agent 0 */
    struct near near[2];        /* at agent 0 and 1 */
    struct nxl_remote *remote[2];
    struct proxy proxies[2];
    int proxied;
};

static void rig_make(struct rig *r, const char *backends, const char *mode)
{
    r->cluster.secure = 1;
    r->cluster.backends = backends;
    if (r->proxied)
        proxy_agents_start(&r->cluster, r->proxies, 0);
    else
        cluster_start(&r->cluster, 2, 0);
    cluster_peer_start(&r->cluster, 0, "victim", 8 * MIB, mode, &r->victim);
    for (int i = 0; i < 2; i++) {
        near_open(&r->cluster, i, i == 0 ? "witness0" : "witness1", 8 * MIB, &r->near[i]);
        r->remote[i] = near_fetch(&r->near[i], "victim");
    }
}

static int open_plain(void **state)
{
    rig_make(*state = calloc(1, sizeof(struct rig)), NULL, "fill");
    return 0;
}

static int open_forked(void **state)
{
    rig_make(*state = calloc(1, sizeof(struct rig)), NULL, "fork");
    return 0;
}

/* Every completion comes 3 s late, so that what is posted runs when the kill comes. */
static int open_slow(void **state)
{
    struct rig *r = *state = calloc(1, sizeof(struct rig));

    r->cluster.extra[0] = "--backends.fault.delay=3s";
    rig_make(r, "fault:shm,fault:ucx", "fill");
    return 0;
}

static int open_proxied(void **state)
{
    struct rig *r = *state = calloc(1, sizeof(struct rig));

    r->proxied = 1;
    rig_make(r, NULL, "fill");
    return 0;
}

static int rig_down(void **state)
{
    struct rig *r = *state;

    near_close(&r->near[0]);
    near_close(&r->near[1]);
    cluster_peer_kill(&r->victim, SIGKILL);
    cluster_stop(&r->cluster);
    for (int i = 0; r->proxied && i < 2; i++)
        proxy_stop(&r->proxies[i]);
    free(r);
    return 0;
}

static void expect_down(struct rig *r, int i, const char *incarnation)
{
    struct nxl_event event;

    if (!cluster_event(r->near[i].client, r->near[i].peer, NXL_EVENT_PEER_DOWN, TOLD_NS, &event))
        fail_msg("witness%d was not told", i);
    assert_string_equal(event.name, "victim");
    assert_string_equal(event.incarnation, incarnation);
    assert_int_equal(event.code, NXL_REMOTE_DISCONNECT);
    assert_true(event.at_ns <= cluster_now());
    assert_true(event.size > 0); /* the reason */
}

static void expect_stale_post(struct rig *r, int i)
{
    struct nxl_err err = {0};
    enum nxl_code code =
        near_move(&r->near[i], NXL_READ, r->remote[i], 0, r->victim.addr, 4096, &err);

    if (code != NXL_STALE)
        fail_msg("witness%d: a post after the death says %s: %s", i, nxl_code_name(code), err.text);
    assert_non_null(strstr(err.text, "victim"));
}

static void a_killed_client_is_told_once_to_its_own_and_to_another_agents_clients(void **state)
{
    struct rig *r = *state;
    char incarnation[2][NXL_INCARNATION_MAX + 1];

    for (int i = 0; i < 2; i++) {
        struct nxl_err err = {0};

        snprintf(incarnation[i], sizeof(incarnation[i]), "%s",
                 nxl_remote_incarnation(r->remote[i]));
        if (near_move(&r->near[i], NXL_READ, r->remote[i], 0, r->victim.addr + 4096, 65536, &err) !=
            NXL_OK)
            fail_msg("before the kill: %s", err.text);
        assert_true(*(uint64_t *)(void *)r->near[i].memory == near_word(4096));
    }
    assert_string_equal(incarnation[0], incarnation[1]);
    cluster_peer_kill(&r->victim, SIGKILL);
    for (int i = 0; i < 2; i++) {
        expect_down(r, i, incarnation[i]);
        expect_stale_post(r, i);
        assert_int_equal(near_count(&r->near[i], NXL_EVENT_PEER_DOWN, ONCE_NS), 0);
    }
}

static void
transfers_that_run_when_the_client_dies_end_as_disconnected_and_become_quiet(void **state)
{
    struct rig *r = *state;
    struct nxl_transfer *running[2][2];
    struct nxl_err err = {0};

    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 2; k++) {
            uint64_t there =
                r->victim.addr + (uint64_t)(2 * i + k) * 2 * MIB; /* nobody shares a byte */

            running[i][k] = near_create(&r->near[i], k == 0 ? NXL_READ : NXL_WRITE, r->remote[i],
                                        (uint64_t)k * 4 * MIB, there, 2 * MIB);
            assert_int_equal(nxl_transfer_post(running[i][k], &err), NXL_OK);
        }
    }
    for (int i = 0; i < 2;
         i++) { /* a call comes after the posts before it: the agent has them now */
        (void)near_state(&r->near[i], r->remote[i]);
        for (int k = 0; k < 2; k++)
            assert_int_equal(nxl_transfer_poll(running[i][k]), NXL_IN_PROG);
    }
    cluster_peer_kill(&r->victim, SIGKILL);
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 2; k++) {
            enum nxl_code code = nxl_transfer_wait(running[i][k], TOLD_NS, &err);

            if (code != NXL_REMOTE_DISCONNECT)
                fail_msg("transfer %d of witness%d ended as %s: %s", k, i, nxl_code_name(code),
                         err.text);
            assert_int_equal(nxl_transfer_wait_quiesced(running[i][k], TOLD_NS, &err), NXL_OK);
            assert_true(nxl_transfer_quiesced(running[i][k]));
            assert_int_equal(nxl_transfer_poll(running[i][k]), NXL_REMOTE_DISCONNECT); /* one end */
            assert_int_equal(nxl_transfer_explain(running[i][k], &err), NXL_OK);
            assert_non_null(strstr(err.text, "victim"));
        }
        expect_down(r, i, nxl_remote_incarnation(r->remote[i]));
        /* Quiet means that memory is ours again: it can be deregistered. */
        for (int k = 0; k < 2; k++)
            near_release(running[i][k]);
        assert_int_equal(nxl_deregister(r->near[i].peer, &r->near[i].reg, 1, &err), NXL_OK);
        assert_null(r->near[i].reg);
    }
}

static int victim_gone(void *arg)
{
    struct rig *r = arg;

    return cluster_metric(&r->cluster, 0, "nixlet_sessions") == 1; /* witness0 alone */
}

static void a_forked_child_that_holds_the_socket_does_not_keep_the_session_alive(void **state)
{
    struct rig *r = *state;

    cluster_peer_kill(&r->victim, SIGKILL);
    for (int i = 0; i < 2; i++) {
        expect_down(r, i, nxl_remote_incarnation(r->remote[i]));
        expect_stale_post(r, i);
    }
    assert_true(cluster_until(victim_gone, r, TOLD_NS));
}

static void
a_death_is_told_through_the_store_while_the_line_between_the_agents_is_down(void **state)
{
    struct rig *r = *state;
    struct nxl_event event;

    proxy_refuse(&r->proxies[0]);
    proxy_refuse(&r->proxies[1]);
    assert_true(
        cluster_event(r->near[1].client, r->near[1].peer, NXL_EVENT_PEER_SUSPECT, TOLD_NS, &event));
    assert_int_equal(near_count(&r->near[1], NXL_EVENT_PEER_DOWN, ONCE_NS), 0);
    cluster_peer_kill(&r->victim, SIGKILL);
    for (int i = 0; i < 2; i++) {
        expect_down(r, i, nxl_remote_incarnation(r->remote[i]));
        expect_stale_post(r, i);
    }
}

static void
a_second_life_under_the_same_name_works_while_handles_of_the_first_say_stale(void **state)
{
    struct rig *r = *state; /* C-021, C-026 */
    struct nxl_remote *old[2] = {r->remote[0], r->remote[1]};
    char first[NXL_INCARNATION_MAX + 1];
    struct nxl_transfer *kept[2];

    for (int i = 0; i < 2; i++) { /* a transfer made for the first life, with its plan */
        kept[i] = near_create(&r->near[i], NXL_READ, old[i], 0, r->victim.addr, 65536);
        assert_int_equal(near_run(kept[i]), NXL_OK);
    }
    for (int life = 0; life < 5; life++) {
        snprintf(first, sizeof(first), "%s", nxl_remote_incarnation(r->remote[0]));
        cluster_peer_kill(&r->victim, SIGKILL);
        cluster_peer_start(&r->cluster, 0, "victim", 8 * MIB, "fill",
                           &r->victim); /* the name is free at once */
        for (int i = 0; i < 2; i++) {
            struct nxl_err err = {0};

            expect_down(r, i, first);
            r->remote[i] = near_fetch(&r->near[i], "victim");
            assert_string_not_equal(nxl_remote_incarnation(r->remote[i]), first);
            memset(r->near[i].memory, 0, 65536);
            if (near_move(&r->near[i], NXL_READ, r->remote[i], 0, r->victim.addr + 8192, 65536,
                          &err) != NXL_OK)
                fail_msg("life %d, witness%d: %s", life + 2, i, err.text);
            assert_true(*(uint64_t *)(void *)r->near[i].memory == near_word(8192));
            assert_int_equal(near_run(kept[i]), NXL_STALE);
            assert_int_equal(
                nxl_remote_check(r->near[i].peer, old[i], NXL_MEM_DRAM,
                                 &(struct nxl_run){.addr = r->victim.addr, .len = 8, .count = 1}, 1,
                                 &err),
                NXL_STALE);
        }
    }
    near_release(kept[0]);
    near_release(kept[1]);
}

static void nothing_of_the_dead_is_left_behind(void **state)
{
    struct rig *r = *state; /* C-027 with shared memory in the GPU's place */
    int fds[2];
    char first[NXL_INCARNATION_MAX + 1];

    for (int round = 0; round < 12; round++) {
        for (int i = 0; i < 2; i++) {
            struct nxl_err err = {0};

            if (near_move(&r->near[i], NXL_READ, r->remote[i], 0, r->victim.addr, MIB, &err) !=
                NXL_OK)
                fail_msg("round %d, witness%d: %s", round, i, err.text);
            if (round == 1)
                fds[i] = cluster_fd_count(r->cluster.agents[i].pid);
        }
        snprintf(first, sizeof(first), "%s", nxl_remote_incarnation(r->remote[0]));
        cluster_peer_kill(&r->victim, SIGKILL);
        for (int i = 0; i < 2; i++)
            expect_down(r, i, first);
        cluster_peer_start(&r->cluster, 0, "victim", 8 * MIB, "fill", &r->victim);
        for (int i = 0; i < 2; i++)
            r->remote[i] = near_fetch(&r->near[i], "victim");
    }
    for (int i = 0; i < 2; i++)
        assert_true(cluster_fd_count(r->cluster.agents[i].pid) <= fds[i] + 2);
    assert_int_equal(cluster_metric(&r->cluster, 0, "nixlet_regions"),
                     2); /* the victim's and witness0's */
    assert_int_equal(cluster_metric(&r->cluster, 1, "nixlet_peers_remote"), 1);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            a_killed_client_is_told_once_to_its_own_and_to_another_agents_clients, open_plain,
            rig_down),
        cmocka_unit_test_setup_teardown(
            transfers_that_run_when_the_client_dies_end_as_disconnected_and_become_quiet, open_slow,
            rig_down),
        cmocka_unit_test_setup_teardown(
            a_forked_child_that_holds_the_socket_does_not_keep_the_session_alive, open_forked,
            rig_down),
        cmocka_unit_test_setup_teardown(
            a_death_is_told_through_the_store_while_the_line_between_the_agents_is_down,
            open_proxied, rig_down),
        cmocka_unit_test_setup_teardown(
            a_second_life_under_the_same_name_works_while_handles_of_the_first_say_stale,
            open_plain, rig_down),
        cmocka_unit_test_setup_teardown(nothing_of_the_dead_is_left_behind, open_plain, rig_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
