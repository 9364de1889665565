/* test_directory.c - publish, look up and withdraw through a real Redis; what is in the store and
 * for how long. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "directory_rig.h"

#include "base/log.h"
#include "base/mem.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void a_published_peer_is_found_by_name_at_another_agent(void **state)
{
    struct rig *rig = *state;
    struct agent *one = agent_start(rig, "n1", "a"), *two = agent_start(rig, "n2", "b");
    struct answer answer;

    agent_publish(one, "prefill", "n1/boot/1", 7, "");
    (void)agent_lookup(two, "prefill", "", 2000, &answer);
    rig_until(rig, answer_came, &answer);
    assert_int_equal(answer.code, NXL_OK);
    assert_string_equal(answer.incarnation, "n1/boot/1");
    assert_string_equal(answer.address, "127.0.0.1:7741");
    assert_int_equal(answer.revision, 7);
    assert_int_equal(answer.calls, 1);
    agent_close(one);
    agent_close(two);
}

static void a_name_may_hold_what_keys_and_formats_find_special(void **state)
{
    static const char *const names[] = {"with space", "100%s%n", "{x}:y",
                                        "a*b?[c]",    "\"q\\",   "gr\xc3\xbc\xc3\x9f"};
    struct rig *rig = *state;
    struct agent *one = agent_start(rig, "n1", "a");

    for (size_t i = 0; i < NXL_COUNT_OF(names); i++) {
        char incarnation[64];
        struct answer answer;

        (void)snprintf(incarnation, sizeof(incarnation), "n1/boot/%zu", i);
        agent_publish(one, names[i], incarnation, 1, "");
        (void)agent_lookup(one, names[i], "", 2000, &answer);
        rig_until(rig, answer_came, &answer);
        assert_int_equal(answer.code, NXL_OK);
        assert_string_equal(answer.incarnation, incarnation);
    }
    agent_close(one);
}

static void a_name_that_nobody_has_is_not_found_at_once_without_patience(void **state)
{
    struct rig *rig = *state;
    struct agent *one = agent_start(rig, "n1", "a");
    struct answer answer;
    uint64_t start = nxl_now_ns();

    (void)agent_lookup(one, "nobody", "", 0, &answer);
    rig_until(rig, answer_came, &answer);
    assert_int_equal(answer.code, NXL_NOT_FOUND);
    assert_non_null(strstr(answer.text, "default/nobody"));
    assert_true(answer.at_ns - start < 150 * NXL_MS);
    agent_close(one);
}

/* C-035: the deadline is the call's own, both waiters wake, and nobody polls in a busy loop. */
static void two_waiters_of_one_name_keep_their_own_deadlines(void **state)
{
    struct rig *rig = *state;
    struct agent *one = agent_start(rig, "n1", "a"), *two = agent_start(rig, "n2", "b");
    struct answer brief, patient, third;
    uint64_t start = nxl_now_ns();

    (void)agent_lookup(two, "late", "", 200, &brief);
    (void)agent_lookup(two, "late", "", 4000, &patient);
    (void)agent_lookup(two, "late", "", 4000, &third);
    rig_until(rig, answer_came, &brief);
    assert_int_equal(brief.code, NXL_NOT_FOUND);
    assert_in_range(brief.at_ns - start, 195 * NXL_MS, 400 * NXL_MS);
    assert_int_equal(patient.calls, 0);
    agent_publish(one, "late", "n1/boot/1", 1, "");
    start = nxl_now_ns();
    rig_until(rig, answer_came, &patient);
    rig_until(rig, answer_came, &third);
    assert_int_equal(patient.code, NXL_OK);
    assert_int_equal(third.code, NXL_OK);
    assert_true(patient.at_ns - start < 200 * NXL_MS);
    agent_close(one);
    agent_close(two);
}

static void the_stream_wakes_a_waiter_long_before_it_would_ask_again(void **state)
{
    struct rig *rig = *state;
    struct agent *one = agent_start(rig, "n1", "a"), *two = agent_new(rig, "n2", "b");
    struct answer answer;
    struct nxl_err err = {0};
    uint64_t start;

    assert_int_equal(nxl_settings_set(two->settings, "store.wait_poll", "1h", "test", &err),
                     NXL_OK);
    agent_open(two);
    rig_until(rig, agent_is_up, two);
    (void)agent_lookup(two, "late", "", 4000, &answer);
    rig_run_ms(rig, 50); /* its question has been answered with nothing by now */
    agent_publish(one, "late", "n1/boot/1", 1, "");
    start = nxl_now_ns();
    rig_until(rig, answer_came, &answer);
    assert_int_equal(answer.code, NXL_OK);
    assert_true(answer.at_ns - start < 200 * NXL_MS);
    agent_close(one);
    agent_close(two);
}

static void a_hundred_waiters_do_not_hold_up_the_one_that_can_be_answered(void **state)
{
    struct rig *rig = *state;
    struct agent *one = agent_start(rig, "n1", "a"), *two = agent_start(rig, "n2", "b");
    static struct answer waiting[100];
    uint64_t tickets[100];
    struct answer answer;
    uint64_t start;

    agent_publish(one, "there", "n1/boot/1", 1, "");
    rig_until_record(rig, "n1", "n1/boot/1", 1);
    for (size_t i = 0; i < NXL_COUNT_OF(waiting); i++) {
        char name[32];

        (void)snprintf(name, sizeof(name), "missing-%zu", i);
        tickets[i] = agent_lookup(two, name, "", 4000, &waiting[i]);
    }
    start = nxl_now_ns();
    (void)agent_lookup(two, "there", "", 4000, &answer);
    rig_until(rig, answer_came, &answer);
    assert_int_equal(answer.code, NXL_OK);
    assert_true(answer.at_ns - start < 200 * NXL_MS);
    assert_int_equal(agent_metric(two, "nixlet_store_lookups"), 100);
    for (size_t i = 0; i < NXL_COUNT_OF(waiting); i++) {
        assert_int_equal(waiting[i].calls, 0);
        nxl_directory_forget(two->directory, tickets[i]);
    }
    rig_run_ms(rig, 100);
    for (size_t i = 0; i < NXL_COUNT_OF(waiting); i++)
        assert_int_equal(waiting[i].calls, 0);
    assert_int_equal(agent_metric(two, "nixlet_store_lookups"), 0);
    agent_close(one);
    agent_close(two);
}

/* C-020: two labels of one agent; withdrawing takes both and no other agent's. */
static void labels_are_apart_and_withdrawn_together(void **state)
{
    struct rig *rig = *state;
    struct agent *one = agent_start(rig, "n1", "a"), *two = agent_start(rig, "n2", "b");
    struct answer full, part, none;

    agent_publish(one, "p", "n1/boot/1", 1, "");
    agent_publish(one, "p", "n1/boot/1", 2, "layers-0-39");
    agent_publish(one, "q", "n1/boot/2", 3, "");
    agent_publish(two, "r", "n2/boot/1", 4, "");
    (void)agent_lookup(two, "p", "", 2000, &full);
    (void)agent_lookup(two, "p", "layers-0-39", 2000, &part);
    rig_until(rig, answer_came, &full);
    rig_until(rig, answer_came, &part);
    assert_int_equal(full.revision, 1);
    assert_int_equal(part.revision, 2);
    (void)agent_lookup(two, "p", "layers-40-79", 0, &none);
    rig_until(rig, answer_came, &none);
    assert_int_equal(none.code, NXL_NOT_FOUND);
    assert_non_null(strstr(none.text, "label"));

    nxl_directory_withdraw(one->directory, "n1/boot/1");
    rig_until_record(rig, "n1", "n1/boot/1", 0);
    assert_false(rig_has_record(rig, "n1", "n1/boot/1#layers-0-39"));
    assert_true(rig_has_record(rig, "n1", "n1/boot/2"));
    assert_true(rig_has_record(rig, "n2", "n2/boot/1"));
    (void)agent_lookup(two, "p", "", 0, &none);
    rig_until(rig, answer_came, &none);
    assert_int_equal(none.code, NXL_NOT_FOUND);
    agent_close(one);
    agent_close(two);
}

static int told_one_withdrawn(void *agent)
{
    return ((struct agent *)agent)->withdrawn >= 1;
}

static int told_two_records(void *agent)
{
    return ((struct agent *)agent)->records >= 2;
}

static void others_are_told_of_records_and_withdrawals_but_not_of_their_own(void **state)
{
    struct rig *rig = *state;
    struct agent *one = agent_start(rig, "n1", "a"), *two = agent_start(rig, "n2", "b");

    rig_run_ms(rig, 50); /* both read the streams by now */
    agent_publish(one, "p", "n1/boot/1", 1, "");
    agent_publish(one, "p", "n1/boot/1", 2, "");
    rig_until(rig, told_two_records, two);
    assert_string_equal(two->record[0].incarnation, "n1/boot/1");
    nxl_directory_withdraw(one->directory, "n1/boot/1");
    rig_until(rig, told_one_withdrawn, two);
    assert_string_equal(two->record[(two->records + two->withdrawn - 1) % RIG_EVENTS].name, "p");
    assert_int_equal(one->records, 0);
    assert_int_equal(one->withdrawn, 0);
    agent_close(one);
    agent_close(two);
}

/* C-021, C-025: a second life under the same name wins, and the first one, still publishing, never
 * takes the name back, not even after a wipe. */
static void a_name_moves_only_forward_to_the_newer_life(void **state)
{
    struct rig *rig = *state;
    struct agent *one = agent_start(rig, "n1", "a"), *two = agent_start(rig, "n2", "b");
    struct answer answer;
    char holder[200];

    agent_publish(one, "p", "n1/boot/1", 1, "");
    rig_until_record(rig, "n1", "n1/boot/1", 1);
    agent_publish(two, "p", "n2/boot/1", 1, "");
    rig_until_record(rig, "n2", "n2/boot/1", 1);
    rig_name_holder(rig, "p", holder, sizeof(holder));
    assert_string_equal(holder, "n2/boot/1");

    agent_publish(one, "p", "n1/boot/1", 2, "");
    rig_run_ms(rig, 2 * RIG_HEARTBEAT_MS);
    rig_name_holder(rig, "p", holder, sizeof(holder));
    assert_string_equal(holder, "n2/boot/1");

    (void)redis_server_ask(rig->server, "FLUSHALL");
    rig_until_record(rig, "n1", "n1/boot/1", 1);
    rig_until_record(rig, "n2", "n2/boot/1", 1);
    rig_name_holder(rig, "p", holder, sizeof(holder));
    assert_string_equal(holder, "n2/boot/1");
    (void)agent_lookup(one, "p", "", 0, &answer);
    rig_until(rig, answer_came, &answer);
    assert_string_equal(answer.incarnation, "n2/boot/1");

    nxl_directory_withdraw(one->directory,
                           "n1/boot/1"); /* the first life's end is not the second's */
    rig_until_record(rig, "n1", "n1/boot/1", 0);
    rig_name_holder(rig, "p", holder, sizeof(holder));
    assert_string_equal(holder, "n2/boot/1");

    nxl_directory_withdraw(two->directory, "n2/boot/1");
    rig_until_record(rig, "n2", "n2/boot/1", 0);
    rig_name_holder(rig, "p", holder, sizeof(holder));
    assert_string_equal(holder, "");
    agent_close(one);
    agent_close(two);
}

static void an_index_entry_without_its_record_finds_nothing(void **state)
{
    struct rig *rig = *state;
    struct agent *one = agent_start(rig, "n1", "a");
    struct answer answer;

    (void)redis_server_ask(
        rig->server, "HSET " KEY("name:default/ghost") " incarnation n9/boot/1 node n9 stamp 1");
    (void)agent_lookup(one, "ghost", "", 0, &answer);
    rig_until(rig, answer_came, &answer);
    assert_int_equal(answer.code, NXL_NOT_FOUND);
    assert_non_null(strstr(answer.text, "lapsed"));
    agent_close(one);
}

/* C-029: a damaged or foreign record is refused with its field's name. */
static void a_damaged_or_misplaced_record_is_refused(void **state)
{
    struct rig *rig = *state;
    struct agent *one = agent_start(rig, "n1", "a");
    struct answer answer;

    (void)redis_server_ask(
        rig->server, "HSET " KEY("name:default/bad") " incarnation n9/boot/1 node n9 stamp 1");
    (void)redis_server_ask(rig->server, "HSET " KEY("peers:n9") " n9/boot/1 %s", "not a record");
    (void)agent_lookup(one, "bad", "", 0, &answer);
    rig_until(rig, answer_came, &answer);
    assert_int_equal(answer.code, NXL_MISMATCH);

    agent_publish(one, "p", "n1/boot/1", 1, "");
    rig_until_record(rig, "n1", "n1/boot/1", 1);
    (void)redis_server_ask(
        rig->server, "HSET " KEY("name:default/other") " incarnation n1/boot/1 node n1 stamp 1");
    (void)agent_lookup(one, "other", "", 0, &answer);
    rig_until(rig, answer_came, &answer);
    assert_int_equal(answer.code, NXL_MISMATCH);
    assert_non_null(strstr(answer.text, "default/p"));
    agent_close(one);
}

static void closing_withdraws_everything(void **state)
{
    struct rig *rig = *state;
    struct agent *one = agent_start(rig, "n1", "a");
    char holder[64];

    agent_publish(one, "p", "n1/boot/1", 1, "");
    agent_publish(one, "q", "n1/boot/2", 1, "");
    rig_until_record(rig, "n1", "n1/boot/1", 1);
    agent_close(one);
    assert_false(rig_exists(rig, KEY("peers:n1")));
    assert_false(rig_exists(rig, KEY("node:n1")));
    rig_name_holder(rig, "p", holder, sizeof(holder));
    assert_string_equal(holder, "");
    rig_until_key(rig, KEY("name:default/p"), 0);
}

static void every_key_but_streams_and_epoch_expires(void **state)
{
    static const char *const keys[] = {KEY("node:n1"), KEY("peers:n1"), KEY("name:default/p")};
    struct rig *rig = *state;
    struct agent *one = agent_start(rig, "n1", "a");

    agent_publish(one, "p", "n1/boot/1", 1, "");
    rig_until_record(rig, "n1", "n1/boot/1", 1);
    rig_run_ms(rig, 2 * RIG_LEASE_MS);
    for (size_t i = 0; i < NXL_COUNT_OF(keys); i++)
        assert_in_range(redis_server_ask(rig->server, "PTTL %s", keys[i])->integer, 1,
                        2 * RIG_LEASE_MS);
    assert_int_equal(redis_server_ask(rig->server, "PTTL " KEY("epoch"))->integer, -1);
    agent_close(one);
}

/* ---- kill -9 ---- */

/* A process of its own that publishes and lives on until it is killed. */
static pid_t spawn_agent(struct rig *rig, const char *node, const char *name,
                         const char *incarnation)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        struct rig own = {.server = rig->server};
        struct nxl_err err = {0};
        struct agent *agent;

        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (nxl_loop_open(&own.loop, &err) != NXL_OK)
            _exit(1);
        agent = agent_new(&own, node, "a");
        agent_open(agent);
        agent_publish(agent, name, incarnation, 1, "");
        nxl_loop_run(own.loop);
        _exit(0);
    }
    return pid;
}

static void kill_agent(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* C-020: killed without a word; everything of it goes by itself, nothing of others does. */
static void what_a_killed_agent_published_lapses(void **state)
{
    struct rig *rig = *state;
    struct agent *two = agent_start(rig, "n2", "b");
    pid_t pid = spawn_agent(rig, "n1", "victim", "n1/boot/1");
    struct answer answer;

    agent_publish(two, "survivor", "n2/boot/1", 1, "");
    rig_until_record(rig, "n1", "n1/boot/1", 1);
    kill_agent(pid);
    rig_until_key(rig, KEY("node:n1"), 0);
    rig_until_key(rig, KEY("peers:n1"), 0);
    (void)agent_lookup(two, "victim", "", 0, &answer);
    rig_until(rig, answer_came, &answer);
    assert_int_equal(answer.code, NXL_NOT_FOUND);
    rig_until_key(rig, KEY("name:default/victim"), 0);
    assert_true(rig_has_record(rig, "n2", "n2/boot/1"));
    assert_int_equal(two->facts, 0); /* silence is not death */
    agent_close(two);
}

struct cycle_question {
    struct rig *rig;
    long long keys;
};

static int key_count_is(void *arg)
{
    const struct cycle_question *question = arg;

    return redis_server_ask(question->rig->server, "DBSIZE")->integer <= question->keys;
}

/* C-032 */
static void two_hundred_killed_agents_leave_no_keys(void **state)
{
    struct rig *rig = *state;
    struct agent *live = agent_start(rig, "live", "a");
    struct cycle_question question = {
        rig, 6}; /* node peers name of the live one; changes epoch, perhaps dead */

    agent_publish(live, "live", "live/boot/1", 1, "");
    rig_until_record(rig, "live", "live/boot/1", 1);
    for (int i = 0; i < 200; i++) {
        char node[32], name[32], incarnation[64];
        pid_t pid;

        (void)snprintf(node, sizeof(node), "node-%d", i);
        (void)snprintf(name, sizeof(name), "peer-%d", i);
        (void)snprintf(incarnation, sizeof(incarnation), "%s/boot/1", node);
        pid = spawn_agent(rig, node, name, incarnation);
        rig_until_record(rig, node, incarnation, 1);
        kill_agent(pid);
    }
    rig_until(rig, key_count_is, &question);
    assert_true(rig_has_record(rig, "live", "live/boot/1"));
    assert_in_range(redis_server_ask(rig->server, "XLEN " KEY("changes"))->integer, 201, 2000);
    agent_close(live);
}

/* ---- no store, bad settings ---- */

static void without_a_store_every_call_says_so(void **state)
{
    struct rig *rig = *state;
    struct agent *one;
    static struct nxl_record record;
    struct nxl_directory_status status;
    struct nxl_err err = {0};
    uint64_t ticket = 77;

    rig->url = "none";
    one = agent_new(rig, "n1", "a");
    agent_open(one);
    rig_record(&record, "n1", one->incarnation, "p", "n1/boot/1", 1);
    assert_int_equal(nxl_directory_publish(one->directory, &record, "", &err), NXL_NOT_SUPPORTED);
    assert_non_null(strstr(err.text, "store.url"));
    assert_int_equal(
        nxl_directory_lookup(one->directory, "default", "p", "", 0, NULL, NULL, &ticket, &err),
        NXL_NOT_SUPPORTED);
    assert_int_equal(ticket, 77);
    nxl_directory_withdraw(one->directory, "n1/boot/1");
    nxl_directory_fact(one->directory, "n1/boot/1", NXL_LIFE_DEAD, "test");
    nxl_directory_forget(one->directory, 1);
    nxl_directory_status(one->directory, &status);
    assert_int_equal(status.enabled, 0);
    assert_int_equal(status.up, 0);
    assert_string_equal(status.url, "none");
    agent_close(one);
}

static void settings_that_cannot_work_are_refused_at_open(void **state)
{
    static const struct {
        const char *key, *value, *says;
    } rows[] = {
        {"store.lease", "299ms", "three times"},
        {"store.url", "redis://x:0", "port"},
        {"store.url", "mysql://x", "begins with"},
        {"node", "a{b", "letters"},
        {"node", "", "1 to"},
    };
    struct rig *rig = *state;

    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        int is_node = strcmp(rows[i].key, "node") == 0;
        struct agent *one = agent_new(rig, is_node ? rows[i].value : "n1", "a");
        struct nxl_directory_ops none = {0};
        struct nxl_directory_options options = {.loop = rig->loop,
                                                .metrics = one->metrics,
                                                .settings = one->settings,
                                                .cluster = "test",
                                                .node = one->node,
                                                .agent = "n1/boot/a",
                                                .address = "127.0.0.1:1",
                                                .ops = &none};
        struct nxl_directory *directory = NULL;
        struct nxl_err err = {0};

        if (!is_node)
            assert_int_equal(
                nxl_settings_set(one->settings, rows[i].key, rows[i].value, "test", &err), NXL_OK);
        assert_int_equal(nxl_directory_open(&options, &directory, &err), NXL_CONFIG);
        assert_null(directory);
        assert_non_null(strstr(err.text, rows[i].says));
        agent_close(one);
    }
}

int main(void)
{
#define WITH_SERVER(test) cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        WITH_SERVER(a_published_peer_is_found_by_name_at_another_agent),
        WITH_SERVER(a_name_may_hold_what_keys_and_formats_find_special),
        WITH_SERVER(a_name_that_nobody_has_is_not_found_at_once_without_patience),
        WITH_SERVER(two_waiters_of_one_name_keep_their_own_deadlines),
        WITH_SERVER(the_stream_wakes_a_waiter_long_before_it_would_ask_again),
        WITH_SERVER(a_hundred_waiters_do_not_hold_up_the_one_that_can_be_answered),
        WITH_SERVER(labels_are_apart_and_withdrawn_together),
        WITH_SERVER(others_are_told_of_records_and_withdrawals_but_not_of_their_own),
        WITH_SERVER(a_name_moves_only_forward_to_the_newer_life),
        WITH_SERVER(an_index_entry_without_its_record_finds_nothing),
        WITH_SERVER(a_damaged_or_misplaced_record_is_refused),
        WITH_SERVER(closing_withdraws_everything),
        WITH_SERVER(every_key_but_streams_and_epoch_expires),
        WITH_SERVER(what_a_killed_agent_published_lapses),
        WITH_SERVER(two_hundred_killed_agents_leave_no_keys),
        cmocka_unit_test_setup_teardown(without_a_store_every_call_says_so, rig_setup_no_server,
                                        rig_teardown),
        cmocka_unit_test_setup_teardown(settings_that_cannot_work_are_refused_at_open,
                                        rig_setup_no_server, rig_teardown),
    };
    int skip = rig_skip_without_redis();

    return skip != 0 ? skip : cmocka_run_group_tests(tests, NULL, NULL);
}
