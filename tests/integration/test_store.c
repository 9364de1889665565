/* test_store.c - Redis goes, hangs, is wiped, is replaced, comes late: transfers go on, nobody is
 * judged, and the directory is right again by itself. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "support/near.h"

#define MIB (1u << 20)
#define FACT_NS 20000000000u
#define BEATS_NS 10000000000u /* a few heartbeats, reconnect pauses included */
#define NAMED 5
#define OUTAGE_NS 60000000000u
#define HANG_NS 10000000000u /* two leases */

struct rig {
    struct cluster cluster;
    struct near a, b; /* at agent 0, at agent 1 */
    struct nxl_remote *remote;
    struct near named[NAMED]; /* at agent 1 */
};

static void publish(struct near *near)
{
    struct nxl_err err = {0};

    if (nxl_send_metadata(near->peer, NULL, NULL, NULL, 0, 0, &err) != NXL_OK)
        fail_msg("publish: %s", err.text);
}

static void rig_fill(struct rig *r)
{
    near_open(&r->cluster, 0, "a", 4 * MIB, &r->a);
    near_open(&r->cluster, 1, "b", 4 * MIB, &r->b);
    memset(r->b.memory, 'b', 4 * MIB);
    publish(&r->a);
    publish(&r->b);
    for (int i = 0; i < NAMED; i++) {
        char name[16];

        snprintf(name, sizeof(name), "named%d", i);
        near_open(&r->cluster, 1, name, 4096, &r->named[i]);
        publish(&r->named[i]);
    }
}

static int open_store(void **state)
{
    struct rig *r = *state = calloc(1, sizeof(struct rig));

    r->cluster.secure = 1;
    near_fix_address(&r->cluster, 0);
    near_fix_address(&r->cluster, 1);
    cluster_start(&r->cluster, 2, 0);
    rig_fill(r);
    r->remote = near_fetch(&r->a, "b");
    return 0;
}

/* The agents look for a server that is not there yet. */
static int open_early(void **state)
{
    struct rig *r = *state = calloc(1, sizeof(struct rig));

    r->cluster.secure = 1;
    cluster_start(&r->cluster, 0, 1);
    snprintf(r->cluster.redis_socket, sizeof(r->cluster.redis_socket), "%s/redis.sock",
             r->cluster.dir);
    snprintf(r->cluster.redis_log, sizeof(r->cluster.redis_log), "%s/redis.log", r->cluster.dir);
    for (int i = 0; i < 2; i++)
        cluster_agent_start(&r->cluster, i);
    rig_fill(r);
    return 0;
}

static int rig_down(void **state)
{
    struct rig *r = *state;

    near_close(&r->a);
    near_close(&r->b);
    for (int i = 0; i < NAMED; i++)
        near_close(&r->named[i]);
    cluster_stop(&r->cluster);
    free(r);
    return 0;
}

/* First line of what the server answers; "" if it does not. */
static void ask(struct rig *r, const char *words, char *to, size_t room)
{
    char command[400];
    FILE *pipe;

    snprintf(command, sizeof(command), "redis-cli -s %s %s 2>/dev/null", r->cluster.redis_socket,
             words);
    pipe = popen(command, "r");
    assert_non_null(pipe);
    to[0] = '\0';
    if (fgets(to, (int)room, pipe) != NULL)
        to[strcspn(to, "\n")] = '\0';
    pclose(pipe);
}

static int listed(void *arg)
{
    struct rig *r = arg;
    char first[64], second[64];

    ask(r, "HLEN 'nixlet:{test}:peers:node0'", first, sizeof(first));
    ask(r, "HLEN 'nixlet:{test}:peers:node1'", second, sizeof(second));
    return atoi(first) == 1 && atoi(second) == 1 + NAMED;
}

/* All records are there, and a client that knows nobody finds everybody by name. */
static void expect_directory(struct rig *r)
{
    struct near fresh;

    assert_true(cluster_until(listed, r, BEATS_NS));
    near_open(&r->cluster, 0, "fresh", 0, &fresh);
    for (int i = 0; i < NAMED; i++) {
        char name[16];

        snprintf(name, sizeof(name), "named%d", i);
        assert_string_equal(nxl_remote_incarnation(near_fetch(&fresh, name)),
                            nxl_peer_incarnation(r->named[i].peer));
    }
    near_close(&fresh);
}

static void expect_move(struct rig *r)
{
    struct nxl_err err = {0};

    r->a.memory[0] = 0;
    if (near_move(&r->a, NXL_READ, r->remote, 0, (uint64_t)(uintptr_t)r->b.memory, MIB, &err) !=
        NXL_OK)
        fail_msg("read: %s", err.text);
    assert_int_equal(r->a.memory[0], 'b');
    if (near_move(&r->a, NXL_WRITE, r->remote, 2 * MIB, (uint64_t)(uintptr_t)r->b.memory + 2 * MIB,
                  MIB, &err) != NXL_OK)
        fail_msg("write: %s", err.text);
}

static void move_for(struct rig *r, uint64_t ns)
{
    for (uint64_t end = cluster_now() + ns; cluster_now() < end;)
        expect_move(r);
}

/* Nobody was told of a death or a suspicion, and the first handles still work. */
static void expect_nobody_judged(struct rig *r)
{
    struct near *all[] = {&r->a, &r->b, &r->named[0]};

    for (int i = 0; i < 3; i++) {
        struct nxl_event event;

        while (nxl_peer_next(all[i]->peer, &event) == NXL_OK) {
            if (event.kind == NXL_EVENT_PEER_DOWN || event.kind == NXL_EVENT_PEER_SUSPECT ||
                event.kind == NXL_EVENT_AGENT_GONE)
                fail_msg("%s was told event %u about %s", nxl_peer_name(all[i]->peer), event.kind,
                         event.name);
        }
    }
    assert_int_equal(near_state(&r->a, r->remote).life, NXL_LIFE_LIVE);
    assert_int_equal(near_state(&r->a, r->remote).suspect, 0);
    expect_move(r);
}

/* What must go on without the store: known peers, and new ones by address and by blob. */
static void expect_life_without(struct rig *r)
{
    struct near late;
    struct nxl_remote *remote = NULL;
    struct nxl_event event;
    struct nxl_err err = {0};

    near_open(&r->cluster, 1, "late", MIB, &late);
    publish(&late); /* kept until the store is back */
    assert_int_not_equal(nxl_fetch_metadata(r->a.peer, "late", NULL, NULL, 300, &remote, &err),
                         NXL_OK);
    if (nxl_fetch_metadata(r->a.peer, "late", NULL, r->cluster.agents[1].address, 10000, &remote,
                           &err) != NXL_OK)
        fail_msg("fetch by address: %s", err.text);
    if (near_move(&r->a, NXL_READ, remote, 0, (uint64_t)(uintptr_t)late.memory, 4096, &err) !=
        NXL_OK)
        fail_msg("read from the new peer: %s", err.text);
    near_close(&late); /* a death is told without the store, and it is the only one */
    assert_true(cluster_event(r->a.client, r->a.peer, NXL_EVENT_PEER_DOWN, FACT_NS, &event));
    assert_string_equal(event.name, "late");
}

static int store_down(void *arg)
{
    return cluster_metric(&((struct rig *)arg)->cluster, 0, "nixlet_store_up") == 0;
}

static void without_the_store_transfers_go_on_and_an_empty_one_is_filled_again(void **state)
{
    struct rig *r = *state; /* C-030, C-033 */
    char body[2000];
    uint64_t back;

    expect_directory(r);
    cluster_redis_kill(&r->cluster);
    move_for(r, OUTAGE_NS / 3);
    assert_true(cluster_until(store_down, r, FACT_NS)); /* and it can be seen */
    expect_life_without(r);
    move_for(r, 2 * OUTAGE_NS / 3);
    assert_int_equal(cluster_http(&r->cluster, 0, "/healthz", body, sizeof(body)), 200);
    assert_int_equal(cluster_http(&r->cluster, 0, "/readyz", body, sizeof(body)),
                     200); /* not in the data path */
    expect_nobody_judged(r);
    cluster_redis_start(&r->cluster); /* a new, empty one */
    back = cluster_now();
    assert_true(cluster_until(listed, r, BEATS_NS));
    print_message("the directory was whole %llu ms after the store was back\n",
                  (unsigned long long)((cluster_now() - back) / 1000000u));
    expect_directory(r);
    move_for(r, 2000000000u);
    expect_nobody_judged(r);
}

static void a_store_that_hangs_is_no_store_and_hurts_nobody(void **state)
{
    struct rig *r = *state; /* C-033 */

    kill(r->cluster.redis, SIGSTOP);
    move_for(r, HANG_NS);
    assert_true(cluster_until(store_down, r, FACT_NS));
    expect_life_without(r);
    expect_nobody_judged(r);
    kill(r->cluster.redis, SIGCONT);
    expect_directory(r);
    expect_nobody_judged(r);
}

static void a_wiped_store_is_filled_again_and_nobody_is_dead(void **state)
{
    struct rig *r = *state; /* C-030 */

    expect_directory(r);
    for (int round = 0; round < 3; round++) {
        char answer[64];

        ask(r, "FLUSHALL", answer, sizeof(answer));
        assert_string_equal(answer, "OK");
        expect_move(r);
        expect_directory(r);
        expect_nobody_judged(r);
    }
    move_for(r, 3000000000u);
    expect_nobody_judged(r);
}

static void agents_that_start_before_the_store_work_and_meet_when_it_comes(void **state)
{
    struct rig *r = *state; /* C-034 */
    char body[2000];

    assert_int_equal(cluster_http(&r->cluster, 0, "/readyz", body, sizeof(body)), 200);
    r->remote = near_load(&r->a, &r->b); /* blobs need no store */
    expect_move(r);
    cluster_redis_start(&r->cluster);
    expect_directory(r);
    r->remote = near_fetch(&r->a, "b");
    expect_nobody_judged(r);
}

static int lease_gone(void *arg)
{
    char answer[64];

    ask(arg, "EXISTS 'nixlet:{test}:node:node1'", answer, sizeof(answer));
    return strcmp(answer, "0") == 0;
}

static void an_agent_that_slept_over_its_lease_ends_to_take_a_new_life(void **state)
{
    struct rig *r = *state; /* C-037 */
    struct nxl_event event;
    pid_t pid = r->cluster.agents[1].pid;
    int status = 0;

    kill(pid, SIGSTOP);
    assert_true(cluster_until(lease_gone, r, FACT_NS));
    assert_int_equal(near_count(&r->a, NXL_EVENT_PEER_DOWN, 1000000u),
                     0); /* a lapse alone kills nobody */
    kill(pid, SIGCONT);
    for (uint64_t end = cluster_now() + FACT_NS; waitpid(pid, &status, WNOHANG) == 0;)
        assert_true(cluster_now() < end);
    r->cluster.agents[1].pid = 0;
    if (!WIFEXITED(status))
        fail_msg("the agent ended by signal %d:\n%s", WTERMSIG(status),
                 cluster_log(&r->cluster, 1));
    assert_int_equal(WEXITSTATUS(status), 75); /* EX_TEMPFAIL: start me again */
    cluster_agent_start(&r->cluster, 1);
    assert_true(cluster_event(r->a.client, r->a.peer, NXL_EVENT_PEER_DOWN, FACT_NS, &event));
    assert_string_equal(event.name, "b");
}

#define TEST(name, open) cmocka_unit_test_setup_teardown(name, open, rig_down)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(without_the_store_transfers_go_on_and_an_empty_one_is_filled_again, open_store),
        TEST(a_store_that_hangs_is_no_store_and_hurts_nobody, open_store),
        TEST(a_wiped_store_is_filled_again_and_nobody_is_dead, open_store),
        TEST(agents_that_start_before_the_store_work_and_meet_when_it_comes, open_early),
        TEST(an_agent_that_slept_over_its_lease_ends_to_take_a_new_life, open_store),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
