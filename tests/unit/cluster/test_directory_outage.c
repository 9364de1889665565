/* test_directory_outage.c - the store wiped, killed, stopped, turned into a replica, late; and the
 * agent itself stopped. Losing the store loses nothing and fences nobody. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "directory_rig.h"

#include "base/mem.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static int was_wiped(void *agent)
{
    return ((struct agent *)agent)->wiped > 0;
}

/* C-030: everything of every agent is back within one heartbeat, and nobody is said to be dead. */
static void after_flushall_everything_is_back_within_one_heartbeat(void **state)
{
    struct rig *rig = *state;
    struct agent *one = agent_start(rig, "n1", "a"), *two = agent_start(rig, "n2", "b");
    struct nxl_directory_status before, after;
    uint64_t start;

    for (int i = 0; i < 50; i++) {
        char name[32], incarnation[64];

        (void)snprintf(name, sizeof(name), "p%d", i);
        (void)snprintf(incarnation, sizeof(incarnation), "n1/boot/%d", i);
        agent_publish(one, name, incarnation, 1, "");
    }
    agent_publish(two, "q", "n2/boot/1", 1, "");
    rig_until_record(rig, "n1", "n1/boot/49", 1);
    rig_until_record(rig, "n2", "n2/boot/1", 1);
    nxl_directory_status(one->directory, &before);

    (void)redis_server_ask(rig->server, "FLUSHALL");
    start = nxl_now_ns();
    rig_until_record(rig, "n1", "n1/boot/49", 1);
    rig_until_record(rig, "n2", "n2/boot/1", 1);
    assert_true(nxl_now_ns() - start < 2 * RIG_HEARTBEAT_MS * NXL_MS);
    rig_until(rig, was_wiped, one);
    rig_until(rig, was_wiped, two);
    assert_int_equal(redis_server_ask(rig->server, "HLEN " KEY("peers:n1"))->integer, 50);
    assert_true(rig_exists(rig, KEY("name:default/p0")));
    nxl_directory_status(one->directory, &after);
    assert_string_not_equal(before.epoch, after.epoch);
    rig_run_ms(rig, 2 * RIG_LEASE_MS);
    assert_int_equal(one->wiped, 1);
    assert_int_equal(one->facts + two->facts, 0);
    assert_int_equal(one->withdrawn + two->withdrawn, 0);
    assert_int_equal(one->fenced + two->fenced, 0);
    agent_close(one);
    agent_close(two);
}

#define MANY 10000

static int many_are_there(void *arg)
{
    const struct rig *rig = arg;

    return redis_server_ask(rig->server, "HLEN " KEY("peers:n1"))->integer == MANY;
}

/* All at once they would take longer than one command may: they go in portions, and no heartbeat
 * waits. */
static void ten_thousand_records_are_written_and_written_again(void **state)
{
    struct rig *rig = *state;
    struct agent *one = agent_start(rig, "n1", "a");

    for (int i = 0; i < MANY; i++) {
        char name[32], incarnation[64];

        (void)snprintf(name, sizeof(name), "p%d", i);
        (void)snprintf(incarnation, sizeof(incarnation), "n1/boot/%d", i);
        agent_publish(one, name, incarnation, 1, "");
    }
    assert_true(nxl_loop_run_until(rig->loop, many_are_there, rig, 30 * NXL_SEC));
    (void)redis_server_ask(rig->server, "FLUSHALL");
    assert_true(nxl_loop_run_until(rig->loop, many_are_there, rig, 30 * NXL_SEC));
    assert_int_equal(one->fenced, 0);
    agent_close(one);
}

static void a_lost_record_or_name_comes_back_by_itself(void **state)
{
    struct rig *rig = *state;
    struct agent *one = agent_start(rig, "n1", "a");

    agent_publish(one, "p", "n1/boot/1", 1, "");
    agent_publish(one, "q", "n1/boot/2", 1, "");
    rig_until_record(rig, "n1", "n1/boot/2", 1);
    rig_run_ms(rig, RIG_HEARTBEAT_MS);
    (void)redis_server_ask(rig->server, "HDEL " KEY("peers:n1") " n1/boot/1");
    rig_until_record(rig, "n1", "n1/boot/1", 1);
    (void)redis_server_ask(rig->server, "DEL " KEY("peers:n1"));
    rig_until_record(rig, "n1", "n1/boot/2", 1);
    (void)redis_server_ask(rig->server, "DEL " KEY("name:default/p"));
    rig_until_key(rig, KEY("name:default/p"), 1);
    (void)redis_server_ask(rig->server, "HSET " KEY("peers:n1") " n1/boot/77 leftover");
    rig_until_record(rig, "n1", "n1/boot/77", 0);
    rig_until_record(rig, "n1", "n1/boot/1", 1);
    agent_close(one);
}

/* C-030, C-038: another, empty server answers at the same place. */
static void a_killed_store_that_comes_back_empty_is_filled_again(void **state)
{
    struct rig *rig = *state;
    struct agent *one = agent_start(rig, "n1", "a");
    struct answer answer;
    struct nxl_directory_status status;

    agent_publish(one, "p", "n1/boot/1", 1, "");
    rig_until_record(rig, "n1", "n1/boot/1", 1);
    redis_server_kill(rig->server);
    rig_until(rig, agent_is_down, one);
    agent_publish(one, "q", "n1/boot/2", 1, "");
    nxl_directory_withdraw(one->directory, "n1/boot/1");
    (void)agent_lookup(one, "q", "", 150, &answer);
    rig_until(rig, answer_came, &answer);
    assert_int_equal(answer.code, NXL_UNREACHABLE);
    assert_non_null(strstr(answer.text, "down"));
    (void)agent_lookup(one, "q", "", 5000, &answer); /* this one lives to see it back */

    redis_server_start(rig->server);
    rig_until(rig, answer_came, &answer);
    assert_int_equal(answer.code, NXL_OK);
    assert_false(rig_has_record(rig, "n1", "n1/boot/1"));
    assert_int_equal(one->wiped, 1);
    assert_int_equal(one->fenced, 0);
    nxl_directory_status(one->directory, &status);
    assert_true(status.up);
    assert_true(status.reconnects >= 1);
    assert_true(status.failures >= 1);
    agent_close(one);
}

/* C-034: the store comes later than the agents; they wait calmly. */
static void an_agent_older_than_its_store_waits_for_it(void **state)
{
    struct rig *rig = *state;
    struct agent *one = agent_new(rig, "n1", "a");

    agent_open(one);
    agent_publish(one, "p", "n1/boot/1", 1, "");
    rig_run_ms(rig, 300);
    assert_int_equal(one->up, 0);
    redis_server_start(rig->server);
    rig_until_record(rig, "n1", "n1/boot/1", 1);
    assert_int_equal(one->wiped, 0);
    agent_close(one);
}

/* C-033: a store that hangs is noticed by deadline, blocks nothing, and fences nobody even when the
 * lease lapsed. */
static void a_stopped_store_hangs_nothing_and_fences_nobody(void **state)
{
    struct rig *rig = *state;
    struct agent *one = agent_start(rig, "n1", "a");
    struct answer answer;
    uint64_t start;

    agent_publish(one, "p", "n1/boot/1", 1, "");
    rig_until_record(rig, "n1", "n1/boot/1", 1);
    redis_server_pause(rig->server);
    start = nxl_now_ns();
    (void)agent_lookup(one, "p", "", 0, &answer);
    rig_until(rig, answer_came, &answer);
    assert_true(nxl_now_ns() - start < 400 * NXL_MS);
    assert_int_equal(answer.code, NXL_TIMEOUT);
    rig_until(rig, agent_is_down, one);
    assert_true(nxl_now_ns() - start < 600 * NXL_MS);
    rig_run_ms(rig, 2 * RIG_LEASE_MS);
    redis_server_resume(rig->server);
    rig_until(rig, agent_is_up, one);
    rig_until_record(rig, "n1", "n1/boot/1", 1);
    rig_until_key(rig, KEY("name:default/p"), 1);
    assert_int_equal(one->fenced, 0);
    assert_int_equal(one->wiped, 0);
    agent_close(one);
}

static void closing_beside_a_stopped_store_takes_a_fifth_of_a_second(void **state)
{
    struct rig *rig = *state;
    struct agent *one = agent_start(rig, "n1", "a");
    uint64_t start;

    agent_publish(one, "p", "n1/boot/1", 1, "");
    redis_server_pause(rig->server);
    start = nxl_now_ns();
    agent_close(one);
    assert_true(nxl_now_ns() - start < 300 * NXL_MS);
    redis_server_resume(rig->server);
}

struct watch {
    struct rig *rig;
    int vanished, beats;
    struct agent *agent;
    int kills;
};

static int watched_enough(void *arg)
{
    struct watch *watch = arg;
    struct nxl_directory_status status;

    watch->vanished |= !rig_exists(watch->rig, KEY("node:n1"));
    nxl_directory_status(watch->agent->directory, &status);
    return (int)status.heartbeats >= watch->beats;
}

/* C-036: two heartbeats in a row are lost with their connection; the lease holds. */
static void one_or_two_lost_heartbeats_expire_nothing(void **state)
{
    struct rig *rig = *state;
    struct agent *one = agent_start(rig, "n1", "a");
    struct watch watch = {.rig = rig, .agent = one};
    struct nxl_directory_status status;

    agent_publish(one, "p", "n1/boot/1", 1, "");
    /* Late answers are no losses. */
    for (int round = 0; round < 3; round++) {
        (void)redis_server_ask(rig->server, "CLIENT PAUSE 120 ALL");
        rig_run_ms(rig, 150);
        watch.vanished |= !rig_exists(rig, KEY("node:n1"));
    }
    assert_int_equal(one->ups, 1);
    for (int round = 0; round < 3; round++) {
        for (int lost = 0; lost < 2; lost++) {
            (void)redis_server_ask(rig->server, "CLIENT KILL TYPE normal SKIPME yes");
            rig_until(rig, agent_is_down, one);
            watch.vanished |= !rig_exists(rig, KEY("node:n1"));
        }
        nxl_directory_status(one->directory, &status);
        watch.beats = (int)status.heartbeats + 3;
        rig_until(rig, watched_enough, &watch);
    }
    assert_int_equal(watch.vanished, 0);
    assert_int_equal(one->fenced, 0);
    assert_true(rig_has_record(rig, "n1", "n1/boot/1"));
    agent_close(one);
}

static int is_down_for_replica(void *arg)
{
    struct agent *agent = arg;

    return !agent->up &&
           (strstr(agent->why, "READONLY") != NULL || strstr(agent->why, "slave") != NULL);
}

/* C-039: READONLY means "wrong server": neither a success nor fatal. */
static void a_store_that_becomes_a_replica_is_left_and_found_again(void **state)
{
    struct rig *rig = *state;
    struct agent *one = agent_start(rig, "n1", "a");
    struct answer answer;

    agent_publish(one, "p", "n1/boot/1", 1, "");
    rig_until_record(rig, "n1", "n1/boot/1", 1);
    (void)redis_server_ask(rig->server, "REPLICAOF 127.0.0.1 1");
    rig_until(rig, is_down_for_replica, one);
    rig_run_ms(rig, RIG_LEASE_MS);
    assert_int_equal(one->up, 0);
    (void)agent_lookup(one, "p", "", 0,
                       &answer); /* a replica may be far behind: it is not asked either */
    rig_until(rig, answer_came, &answer);
    assert_int_equal(answer.code, NXL_UNREACHABLE);
    assert_non_null(strstr(answer.text, "not the primary"));
    (void)redis_server_ask(rig->server, "REPLICAOF NO ONE");
    rig_until(rig, agent_is_up, one);
    rig_until_record(rig, "n1", "n1/boot/1", 1);
    assert_int_equal(one->fenced, 0);
    agent_close(one);
}

/* ---- fencing ---- */

static int is_fenced(void *agent)
{
    return ((struct agent *)agent)->fenced > 0;
}

static void an_agent_whose_node_another_took_over_is_fenced_once_and_writes_nothing(void **state)
{
    struct rig *rig = *state;
    struct agent *one = agent_start(rig, "n1", "a"), *two;
    static struct nxl_record record;
    struct nxl_err err = {0};
    const struct redisReply *reply;

    agent_publish(one, "p", "n1/boot/1", 1, "");
    rig_until_record(rig, "n1", "n1/boot/1", 1);
    two = agent_start(rig, "n1", "b"); /* its next life, or a node name used twice */
    assert_false(rig_has_record(rig, "n1", "n1/boot/1"));
    rig_until(rig, is_fenced, one);
    agent_publish(two, "q", "n1/boot/2", 1, "");
    rig_until_record(rig, "n1", "n1/boot/2", 1);
    rig_run_ms(rig, 3 * RIG_HEARTBEAT_MS);
    assert_int_equal(one->fenced, 1);
    assert_int_equal(two->fenced, 0);
    assert_non_null(strstr(one->why, "n1/boot/b"));
    rig_record(&record, "n1", one->incarnation, "p", "n1/boot/1", 2);
    assert_int_equal(nxl_directory_publish(one->directory, &record, "", &err), NXL_NOT_ALLOWED);
    agent_close(one); /* takes nothing of the holder away */
    reply = redis_server_ask(rig->server, "HGET " KEY("node:n1") " agent");
    assert_string_equal(reply->str, "n1/boot/b");
    assert_true(rig_has_record(rig, "n1", "n1/boot/2"));
    agent_close(two);
}

static void a_directory_may_be_closed_and_opened_again_when_it_is_fenced(void **state)
{
    struct rig *rig = *state;
    struct agent *one = agent_start(rig, "n1", "a"), *two;

    one->close_when_fenced = 1;
    two = agent_start(rig, "n1", "b");
    rig_until(rig, is_fenced, one);
    assert_null(one->directory);
    agent_close(two);
    one->close_when_fenced = 0;
    (void)nxl_copy_text(one->incarnation, sizeof(one->incarnation), "n1/boot/c");
    agent_open(one);
    rig_until(rig, agent_is_up, one);
    assert_int_equal(one->fenced, 1);
    agent_close(one);
}

static void an_agent_that_closes_after_its_successor_came_takes_nothing_away(void **state)
{
    struct rig *rig = *state;
    struct agent *one = agent_start(rig, "n1", "a"), *two = agent_start(rig, "n1", "b");
    const struct redisReply *reply;

    agent_publish(two, "q", "n1/boot/2", 1, "");
    rig_until_record(rig, "n1", "n1/boot/2", 1);
    agent_close(one); /* perhaps before it has heard that it is fenced */
    reply = redis_server_ask(rig->server, "HGET " KEY("node:n1") " agent");
    assert_int_equal(reply->type, REDIS_REPLY_STRING);
    assert_string_equal(reply->str, "n1/boot/b");
    assert_true(rig_has_record(rig, "n1", "n1/boot/2"));
    agent_close(two);
}

/* A process of its own that writes U when up and F when fenced. */
static pid_t spawn_reporter(struct rig *rig, int *ret_pipe)
{
    int ends[2];
    pid_t pid;

    assert_int_equal(pipe(ends), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct rig own = {.server = rig->server};
        struct nxl_err err = {0};
        struct agent *agent;

        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (nxl_loop_open(&own.loop, &err) != NXL_OK)
            _exit(1);
        agent = agent_new(&own, "n1", "a");
        agent_open(agent);
        agent_publish(agent, "p", "n1/boot/1", 1, "");
        if (!nxl_loop_run_until(own.loop, agent_is_up, agent, 5 * NXL_SEC) ||
            write(ends[1], "U", 1) != 1)
            _exit(1);
        if (!nxl_loop_run_until(own.loop, is_fenced, agent, 60 * NXL_SEC) ||
            write(ends[1], "F", 1) != 1)
            _exit(1);
        nxl_loop_run(own.loop);
        _exit(0);
    }
    (void)close(ends[1]);
    *ret_pipe = ends[0];
    return pid;
}

static char next_report(int fd, int timeout_ms)
{
    struct pollfd slot = {.fd = fd, .events = POLLIN};
    char letter = '-';

    if (poll(&slot, 1, timeout_ms) == 1 && read(fd, &letter, 1) != 1)
        letter = '!';
    return letter;
}

/* C-037: stopped for longer than its lease, it wakes up fenced and does not simply go on. */
static void an_agent_that_was_stopped_beyond_its_lease_wakes_up_fenced(void **state)
{
    struct rig *rig = *state;
    int fd;
    pid_t pid = spawn_reporter(rig, &fd);

    assert_int_equal(next_report(fd, 5000), 'U');
    assert_int_equal(kill(pid, SIGSTOP), 0);
    rig_until_key(rig, KEY("node:n1"), 0);
    assert_int_equal(kill(pid, SIGCONT), 0);
    assert_int_equal(next_report(fd, 5000), 'F');
    rig_run_ms(rig, 2 * RIG_HEARTBEAT_MS);
    assert_false(rig_exists(rig, KEY("node:n1"))); /* it did not take its old place again */
    assert_false(rig_exists(rig, KEY("peers:n1")));
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
    (void)close(fd);
}

static void an_agent_that_was_stopped_shortly_goes_on(void **state)
{
    struct rig *rig = *state;
    int fd;
    pid_t pid = spawn_reporter(rig, &fd);

    assert_int_equal(next_report(fd, 5000), 'U');
    rig_until_record(rig, "n1", "n1/boot/1", 1);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    rig_run_ms(rig, RIG_LEASE_MS / 2);
    assert_int_equal(kill(pid, SIGCONT), 0);
    assert_int_equal(next_report(fd, 800), '-');
    assert_true(rig_has_record(rig, "n1", "n1/boot/1"));
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
    (void)close(fd);
}

/* ---- the caller's freedom ---- */

static void close_when_found(void *arg, enum nxl_code code, const struct nxl_record *record,
                             const struct nxl_err *err)
{
    struct agent *agent = arg;

    (void)record;
    (void)err;
    assert_int_equal(code, NXL_OK);
    nxl_directory_close(agent->directory);
    agent->directory = NULL;
}

static int is_closed(void *agent)
{
    return ((struct agent *)agent)->directory == NULL;
}

static void a_directory_may_be_closed_inside_its_own_answer(void **state)
{
    struct rig *rig = *state;
    struct agent *one = agent_start(rig, "n1", "a");
    struct answer waiting;
    struct nxl_err err = {0};
    uint64_t ticket, start;

    agent_publish(one, "p", "n1/boot/1", 1, "");
    rig_until_record(rig, "n1", "n1/boot/1", 1);
    (void)agent_lookup(one, "nobody", "", 4000, &waiting);
    assert_int_equal(nxl_directory_lookup(one->directory, "default", "p", "", 0, close_when_found,
                                          one, &ticket, &err),
                     NXL_OK);
    rig_until(rig, is_closed, one);
    assert_int_equal(waiting.calls, 1);
    assert_int_equal(waiting.code, NXL_CANCELED);
    start = nxl_now_ns();
    rig_until_key(rig, KEY("node:n1"), 0);
    assert_true(nxl_now_ns() - start < RIG_LEASE_MS * NXL_MS / 3); /* told, not lapsed */
    agent_close(one);
}

int main(void)
{
#define WITH_SERVER(test) cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        WITH_SERVER(after_flushall_everything_is_back_within_one_heartbeat),
        WITH_SERVER(ten_thousand_records_are_written_and_written_again),
        WITH_SERVER(a_lost_record_or_name_comes_back_by_itself),
        WITH_SERVER(a_killed_store_that_comes_back_empty_is_filled_again),
        cmocka_unit_test_setup_teardown(an_agent_older_than_its_store_waits_for_it,
                                        rig_setup_no_server, rig_teardown),
        WITH_SERVER(a_stopped_store_hangs_nothing_and_fences_nobody),
        WITH_SERVER(closing_beside_a_stopped_store_takes_a_fifth_of_a_second),
        WITH_SERVER(one_or_two_lost_heartbeats_expire_nothing),
        WITH_SERVER(a_store_that_becomes_a_replica_is_left_and_found_again),
        WITH_SERVER(an_agent_whose_node_another_took_over_is_fenced_once_and_writes_nothing),
        WITH_SERVER(a_directory_may_be_closed_and_opened_again_when_it_is_fenced),
        WITH_SERVER(an_agent_that_closes_after_its_successor_came_takes_nothing_away),
        WITH_SERVER(an_agent_that_was_stopped_beyond_its_lease_wakes_up_fenced),
        WITH_SERVER(an_agent_that_was_stopped_shortly_goes_on),
        WITH_SERVER(a_directory_may_be_closed_inside_its_own_answer),
    };
    int skip = rig_skip_without_redis();

    return skip != 0 ? skip : cmocka_run_group_tests(tests, NULL, NULL);
}
