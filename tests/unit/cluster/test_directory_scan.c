/* test_directory_scan.c - reconciling: what the streams lost is found within one period, and a
 * lapse judges nobody. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "directory_rig.h"

#include "base/bytes.h"
#include "base/mem.h"
#include "cluster/directory_room.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NODES 20u
#define PERIOD_MS ((DIRECTORY_SCAN_BEATS + 2) * RIG_HEARTBEAT_MS)

/* Writes a node and its record as its agent would, but without a word in `changes`. */
static void write_silently(struct rig *rig, unsigned index, uint64_t version, const char *field)
{
    static struct nxl_record record;
    struct nxl_bytes bytes = {0};
    struct nxl_err err = {0};
    char node[32], agent[64], incarnation[64], key[64];

    (void)snprintf(node, sizeof(node), "m%u", index);
    (void)snprintf(agent, sizeof(agent), "%s/boot/a", node);
    (void)snprintf(incarnation, sizeof(incarnation), "%s/boot/%s", node, field);
    (void)snprintf(key, sizeof(key), KEY("peers:%s"), node);
    rig_record(&record, node, agent, field, incarnation, version);
    assert_int_equal(nxl_record_encode(&record, &bytes, &err), NXL_OK);
    {
        const char *words[] = {"HSET", key, incarnation, (const char *)bytes.data};
        uint64_t sizes[] = {4, strlen(key), strlen(incarnation), bytes.size};

        (void)redis_server_ask_argv(rig->server, 4, words, sizes);
    }
    (void)redis_server_ask(rig->server, "HSET " KEY("node:%s") " agent %s version %llu", node,
                           agent, (unsigned long long)version);
    nxl_bytes_fini(&bytes);
}

struct expect {
    struct agent *agent;
    uint32_t records, withdrawn;
    int lapsed;
};

static int came(void *arg)
{
    const struct expect *expect = arg;

    return expect->agent->records >= expect->records &&
           expect->agent->withdrawn >= expect->withdrawn &&
           agent_metric(expect->agent, "nixlet_store_nodes_lapsed_total") >= expect->lapsed;
}

/* C-040: no entry in the stream, no expiry event; all twenty are found in one period. */
static void what_the_stream_never_said_is_found_within_one_period(void **state)
{
    struct rig *rig = *state;
    struct agent *one = agent_start(rig, "n1", "a");
    struct expect expect = {.agent = one, .records = NODES};
    uint64_t start;

    rig_run_ms(rig, RIG_HEARTBEAT_MS); /* the first walk is over */
    for (unsigned i = 0; i < NODES; i++)
        write_silently(rig, i, 1, "p");
    start = nxl_now_ns();
    rig_until(rig, came, &expect);
    assert_true(nxl_now_ns() - start < PERIOD_MS * NXL_MS);
    rig_run_ms(rig, PERIOD_MS);
    assert_int_equal(one->records, NODES); /* an unchanged node is not told again */

    /* A new version of one, a withdrawal at another. */
    write_silently(rig, 3, 2, "p");
    write_silently(rig, 4, 2, "q");
    (void)redis_server_ask(rig->server, "HDEL " KEY("peers:m4") " m4/boot/p");
    write_silently(rig, 5, 2, "q"); /* its other record is the same as before */
    expect.records = NODES + 3;
    expect.withdrawn = 1;
    rig_until(rig, came, &expect);
    rig_run_ms(rig, PERIOD_MS);
    assert_int_equal(one->records, NODES + 3);
    assert_int_equal(one->withdrawn, 1);
    agent_close(one);
}

static void nodes_that_lapse_are_counted_and_nobody_is_judged(void **state)
{
    struct rig *rig = *state;
    struct agent *one = agent_start(rig, "n1", "a");
    struct expect expect = {.agent = one, .records = NODES};

    for (unsigned i = 0; i < NODES; i++)
        write_silently(rig, i, 1, "p");
    rig_until(rig, came, &expect);
    /* Another agent took a node over and has published nothing: no word about who lived there. */
    (void)redis_server_ask(rig->server, "DEL " KEY("peers:m1"));
    (void)redis_server_ask(rig->server, "HSET " KEY("node:m1") " agent m1/boot/z version 9");
    rig_run_ms(rig, PERIOD_MS);
    assert_int_equal(one->withdrawn, 0);
    for (unsigned i = 0; i < NODES; i++)
        (void)redis_server_ask(rig->server, "DEL " KEY("node:m%u") " " KEY("peers:m%u"), i, i);
    expect.lapsed = (int)NODES;
    rig_until(rig, came, &expect);
    assert_int_equal(one->withdrawn, 0);
    assert_int_equal(one->facts, 0);
    write_silently(rig, 0, 1, "p"); /* back with the same version: told again */
    expect.records = NODES + 1;
    rig_until(rig, came, &expect);
    agent_close(one);
}

static void damaged_records_are_passed_over(void **state)
{
    struct rig *rig = *state;
    struct agent *one = agent_start(rig, "n1", "a");
    struct expect expect = {.agent = one, .records = 1};

    (void)redis_server_ask(rig->server, "HSET " KEY("node:m1") " agent m1/boot/a version 1");
    (void)redis_server_ask(rig->server, "HSET " KEY("peers:m1") " m1/boot/bad garbage");
    (void)redis_server_ask(rig->server,
                           "SET " KEY("node:m2") " not-a-hash"); /* ends that walk, not us */
    rig_run_ms(rig, PERIOD_MS);
    assert_int_equal(one->up, 1);
    (void)redis_server_ask(rig->server, "DEL " KEY("node:m2"));
    write_silently(rig, 1, 2, "p");
    rig_until(rig, came, &expect);
    assert_int_equal(one->records, 1);
    agent_close(one);
}

static void a_wipe_withdraws_nobody(void **state)
{
    struct rig *rig = *state;
    struct agent *one = agent_start(rig, "n1", "a"), *two = agent_start(rig, "n2", "b");
    struct expect expect = {.agent = one, .records = 1};

    agent_publish(two, "p", "n2/boot/1", 1, "");
    rig_until(rig, came, &expect);
    rig_run_ms(rig, PERIOD_MS);
    (void)redis_server_ask(rig->server, "FLUSHALL");
    rig_run_ms(rig, 2 * PERIOD_MS);
    assert_int_equal(one->withdrawn, 0);
    assert_int_equal(one->facts, 0);
    agent_close(one);
    agent_close(two);
}

int main(void)
{
#define WITH_SERVER(test) cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        WITH_SERVER(what_the_stream_never_said_is_found_within_one_period),
        WITH_SERVER(nodes_that_lapse_are_counted_and_nobody_is_judged),
        WITH_SERVER(damaged_records_are_passed_over),
        WITH_SERVER(a_wipe_withdraws_nobody),
    };
    int skip = rig_skip_without_redis();

    return skip != 0 ? skip : cmocka_run_group_tests(tests, NULL, NULL);
}
