/* test_directory_facts.c - the `dead` stream: told, heard, signed; and everything that is not
 * believed. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "directory_rig.h"

#include "base/bytes.h"
#include "base/log.h"
#include "base/mem.h"
#include "cluster/directory_room.h"
#include "cluster/trust.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct expect {
    struct agent *agent;
    uint32_t facts;
    int refused;
};

static int facts_came(void *arg)
{
    const struct expect *expect = arg;

    return expect->agent->facts >= expect->facts;
}

static int refusals_came(void *arg)
{
    const struct expect *expect = arg;

    return agent_metric(expect->agent, "nixlet_store_facts_refused_total") >= expect->refused;
}

static void until_facts(struct agent *agent, uint32_t facts)
{
    struct expect expect = {.agent = agent, .facts = facts};

    rig_until(agent->rig, facts_came, &expect);
}

static void until_refused(struct agent *agent, int refused)
{
    struct expect expect = {.agent = agent, .refused = refused};

    rig_until(agent->rig, refusals_came, &expect);
}

/* Puts an entry into the stream behind the agents' backs. */
static void inject(struct rig *rig, struct nxl_view text, struct nxl_view signature)
{
    const char *words[] = {"XADD",    KEY("dead"), "*",           "text",
                           text.data, "signature", signature.data};
    uint64_t sizes[] = {4, strlen(KEY("dead")), 1, 4, text.size, 9, signature.size};

    assert_int_equal(redis_server_ask_argv(rig->server, 7, words, sizes)->type, REDIS_REPLY_STRING);
}

static void make_text(struct nxl_bytes *to, const char *cluster, const char *prefix,
                      enum nxl_life life)
{
    struct directory_fact_text fact = {.life = life, .reason = "exited", .witness = "n1/boot/a"};

    (void)nxl_copy_text(fact.cluster, sizeof(fact.cluster), cluster);
    (void)nxl_copy_text(fact.prefix, sizeof(fact.prefix), prefix);
    directory_fact_encode(&fact, to);
}

/* ---- the text ---- */

static void a_fact_survives_its_text(void **state)
{
    struct directory_fact_text fact;
    struct nxl_bytes text = {0};
    struct nxl_err err = {0};

    make_text(&text, "test", "n1/boot/1", NXL_LIFE_DEAD);
    assert_int_equal(directory_fact_decode((struct nxl_view){text.data, text.size}, &fact, &err),
                     NXL_OK);
    assert_string_equal(fact.cluster, "test");
    assert_string_equal(fact.prefix, "n1/boot/1");
    assert_string_equal(fact.reason, "exited");
    assert_string_equal(fact.witness, "n1/boot/a");
    assert_int_equal(fact.life, NXL_LIFE_DEAD);
    for (size_t cut = 0; cut < text.size; cut++)
        assert_int_equal(directory_fact_decode((struct nxl_view){text.data, cut}, &fact, &err),
                         NXL_MISMATCH);
    nxl_bytes_fini(&text);
}

static void malformed_texts_are_refused_by_the_name_of_the_line(void **state)
{
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"", "nixlet-fact"},
        {"nixlet-fact 2\ncluster c\nprefix n\nlife dead\nwitness w\nreason r\n", "version"},
        {"nixlet-fact 1\nprefix n\ncluster c\nlife dead\nwitness w\nreason r\n", "cluster"},
        {"nixlet-fact 1\ncluster c\nprefix \nlife dead\nwitness w\nreason r\n", "prefix"},
        {"nixlet-fact 1\ncluster c\nprefix a//b\nlife dead\nwitness w\nreason r\n", "prefix"},
        {"nixlet-fact 1\ncluster c\nprefix a/b/\nlife dead\nwitness w\nreason r\n", "prefix"},
        {"nixlet-fact 1\ncluster c\nprefix a/b c\nlife dead\nwitness w\nreason r\n", "prefix"},
        {"nixlet-fact 1\ncluster c\nprefix /\nlife dead\nwitness w\nreason r\n", "prefix"},
        {"nixlet-fact 1\ncluster c\nprefix n\nlife live\nwitness w\nreason r\n", "life"},
        {"nixlet-fact 1\ncluster c\nprefix n\nlife undead\nwitness w\nreason r\n", "life"},
        {"nixlet-fact 1\ncluster c\nprefix n\nlife dead\nwitness w\nreason a\tb\n", "control"},
        {"nixlet-fact 1\ncluster c\nprefix n\nlife dead\nwitness w\nreason r\nmore x\n", "follow"},
    };

    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        struct directory_fact_text fact;
        struct nxl_err err = {0};

        assert_int_equal(directory_fact_decode(
                             (struct nxl_view){rows[i].text, strlen(rows[i].text)}, &fact, &err),
                         NXL_MISMATCH);
        if (strstr(err.text, rows[i].says) == NULL)
            fail_msg("row %zu says: %s", i, err.text);
    }
}

/* ---- insecure ---- */

static void a_fact_reaches_every_other_agent_and_not_its_teller(void **state)
{
    struct rig *rig = *state;
    struct agent *one = agent_start(rig, "n1", "a"), *two = agent_start(rig, "n2", "b"), *three;
    uint64_t start;

    rig_run_ms(rig,
               50); /* both read the stream by now, so that the time below is that of the stream */
    start = nxl_now_ns();
    nxl_directory_fact(one->directory, "n1/boot/1", NXL_LIFE_DEAD, "signal 9\n(killed)");
    until_facts(two, 1);
    assert_true(nxl_now_ns() - start < 100 * NXL_MS);
    assert_string_equal(two->fact[0].prefix, "n1/boot/1");
    assert_string_equal(two->fact[0].reason, "signal 9 (killed)");
    assert_string_equal(two->fact[0].witness, "n1/boot/a");
    assert_int_equal(two->fact[0].life, NXL_LIFE_DEAD);
    three = agent_start(rig, "n3", "c"); /* one that comes later hears it too */
    until_facts(three, 1);
    assert_string_equal(three->fact[0].prefix, "n1/boot/1");
    assert_int_equal(one->facts, 0);
    agent_close(one);
    agent_close(two);
    agent_close(three);
}

static void a_fact_told_while_the_store_is_away_waits_for_a_lease_and_no_longer(void **state)
{
    struct rig *rig = *state;
    struct agent *one = agent_start(rig, "n1", "a"), *two = agent_start(rig, "n2", "b");

    redis_server_kill(rig->server);
    rig_until(rig, agent_is_down, one);
    nxl_directory_fact(one->directory, "n1/boot/old", NXL_LIFE_DEAD, "exited");
    rig_run_ms(rig, RIG_LEASE_MS + 100);
    nxl_directory_fact(one->directory, "n1/boot/new", NXL_LIFE_DEAD, "exited");
    redis_server_start(rig->server);
    until_facts(two, 1);
    rig_run_ms(rig, 3 * RIG_HEARTBEAT_MS);
    assert_int_equal(two->facts, 1);
    assert_string_equal(two->fact[0].prefix, "n1/boot/new");
    agent_close(one);
    agent_close(two);
}

/* A reader that was cut off goes on where it was. */
static void facts_said_while_a_reader_was_cut_off_reach_it(void **state)
{
    struct rig *rig = *state;
    struct agent *one = agent_start(rig, "n1", "a"), *two = agent_start(rig, "n2", "b");

    rig_run_ms(rig, 50);
    for (int i = 0; i < 20; i++) {
        struct nxl_bytes text = {0};
        char prefix[64];

        (void)redis_server_ask(rig->server, "CLIENT KILL TYPE normal SKIPME yes");
        (void)snprintf(prefix, sizeof(prefix), "n9/boot/%d", i);
        make_text(&text, "test", prefix, NXL_LIFE_DRAINING);
        inject(rig, (struct nxl_view){text.data, text.size}, (struct nxl_view){"", 0});
        nxl_bytes_fini(&text);
    }
    until_facts(two, 20);
    rig_run_ms(rig, 100);
    assert_int_equal(two->facts, 20); /* each once */
    agent_close(one);
    agent_close(two);
}

static void nonsense_in_the_stream_is_refused_and_stops_nothing(void **state)
{
    struct rig *rig = *state;
    struct agent *two = agent_start(rig, "n2", "b");
    struct nxl_bytes text = {0}, foreign = {0};

    (void)redis_server_ask(rig->server, "XADD " KEY("dead") " * odd value");
    (void)redis_server_ask(rig->server, "XADD " KEY("dead") " * text nonsense");
    make_text(&foreign, "production", "n9/boot/1", NXL_LIFE_DEAD);
    inject(rig, (struct nxl_view){foreign.data, foreign.size}, (struct nxl_view){"", 0});
    make_text(&text, "test", "n9/boot/1", NXL_LIFE_DEAD);
    inject(rig, (struct nxl_view){text.data, text.size}, (struct nxl_view){"", 0});
    until_facts(two, 1);
    assert_string_equal(two->fact[0].prefix, "n9/boot/1");
    assert_int_equal(two->facts, 1);
    assert_int_equal(agent_metric(two, "nixlet_store_facts_refused_total"), 3);
    nxl_bytes_fini(&text);
    nxl_bytes_fini(&foreign);
    agent_close(two);
}

/* ---- signed ---- */

static struct nxl_trust *make_trust(struct rig *rig, const char *authority, const char *cluster,
                                    const char *node)
{
    char command[1024], cert[256], key[256], ca[256];
    struct nxl_trust *trust = NULL;
    struct nxl_err err = {0};

    (void)snprintf(command, sizeof(command), "'%s/certs.sh' '%s/%s' %s %s >/dev/null 2>&1",
                   NXL_DEPLOY, redis_server_folder(rig->server), authority, cluster, node);
    assert_int_equal(system(command), 0);
    (void)snprintf(cert, sizeof(cert), "%s/%s/%s.pem", redis_server_folder(rig->server), authority,
                   node);
    (void)snprintf(key, sizeof(key), "%s/%s/%s.key", redis_server_folder(rig->server), authority,
                   node);
    (void)snprintf(ca, sizeof(ca), "%s/%s/ca.pem", redis_server_folder(rig->server), authority);
    if (nxl_trust_open(cert, key, ca, cluster, node, &trust, &err) != NXL_OK)
        fail_msg("%s", err.text);
    return trust;
}

static void inject_signed(struct rig *rig, struct nxl_trust *signer, const char *cluster,
                          const char *prefix)
{
    struct nxl_bytes text = {0}, signature = {0};
    struct nxl_err err = {0};

    make_text(&text, cluster, prefix, NXL_LIFE_DEAD);
    assert_int_equal(
        nxl_trust_sign(signer, (struct nxl_view){text.data, text.size}, &signature, &err), NXL_OK);
    inject(rig, (struct nxl_view){text.data, text.size},
           (struct nxl_view){signature.data, signature.size});
    nxl_bytes_fini(&text);
    nxl_bytes_fini(&signature);
}

static void only_the_node_where_it_lives_is_believed(void **state)
{
    struct rig *rig = *state;
    struct nxl_trust *n1 = make_trust(rig, "ca", "test", "n1"),
                     *n2 = make_trust(rig, "ca", "test", "n2");
    struct nxl_trust *n3 = make_trust(rig, "ca", "test", "n3");
    struct nxl_trust *stranger = make_trust(rig, "other-ca", "test", "n1");
    struct nxl_trust *longer = make_trust(rig, "ca", "test", "n1.b");
    struct nxl_trust *abroad = make_trust(rig, "ca", "production", "n11");
    struct nxl_bytes text = {0}, signature = {0}, wrong = {0};
    struct nxl_err err = {0};
    struct agent *one, *two;

    rig->trust = n1;
    one = agent_start(rig, "n1", "a");
    rig->trust = n2;
    two = agent_start(rig, "n2", "b");

    make_text(&text, "test", "n1/boot/unsigned", NXL_LIFE_DEAD);
    inject(rig, (struct nxl_view){text.data, text.size}, (struct nxl_view){"", 0});
    until_refused(two, 1);
    inject_signed(rig, n3, "test", "n1/boot/not-its-node");
    until_refused(two, 2);
    inject_signed(rig, n1, "test", "n11/boot/prefix-of-a-name");
    until_refused(two, 3);
    inject_signed(rig, stranger, "test", "n1/boot/other-authority");
    until_refused(two, 4);
    inject_signed(rig, abroad, "test", "n11/boot/other-cluster");
    until_refused(two, 5);
    inject_signed(rig, n1, "production", "n1/boot/about-another-cluster");
    until_refused(two, 6);
    /* A good signature over other words. */
    assert_int_equal(nxl_trust_sign(n1, (struct nxl_view){text.data, text.size}, &signature, &err),
                     NXL_OK);
    make_text(&wrong, "test", "n1/boot/swapped", NXL_LIFE_DEAD);
    inject(rig, (struct nxl_view){wrong.data, wrong.size},
           (struct nxl_view){signature.data, signature.size});
    until_refused(two, 7);
    signature.data[signature.size / 2] ^= 1;
    inject(rig, (struct nxl_view){text.data, text.size},
           (struct nxl_view){signature.data, signature.size});
    until_refused(two, 8);
    inject_signed(rig, longer, "test", "n1/boot/by-a-longer-name");
    until_refused(two, 9);
    assert_int_equal(two->facts, 0);

    nxl_directory_fact(one->directory, "n1/boot/1", NXL_LIFE_DEAD, "exited");
    until_facts(two, 1);
    assert_string_equal(two->fact[0].prefix, "n1/boot/1");
    nxl_directory_fact(one->directory, "n1", NXL_LIFE_DRAINING,
                       "node drains"); /* all of a node, by that node */
    until_facts(two, 2);
    nxl_directory_fact(one->directory, "n2/boot/1", NXL_LIFE_DEAD, "a lie");
    until_refused(two, 10);
    assert_int_equal(two->facts, 2);

    agent_close(one);
    agent_close(two);
    nxl_bytes_fini(&text);
    nxl_bytes_fini(&wrong);
    nxl_bytes_fini(&signature);
    nxl_trust_close(n1);
    nxl_trust_close(n2);
    nxl_trust_close(n3);
    nxl_trust_close(stranger);
    nxl_trust_close(longer);
    nxl_trust_close(abroad);
}

int main(void)
{
#define WITH_SERVER(test) cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fact_survives_its_text),
        cmocka_unit_test(malformed_texts_are_refused_by_the_name_of_the_line),
        WITH_SERVER(a_fact_reaches_every_other_agent_and_not_its_teller),
        WITH_SERVER(a_fact_told_while_the_store_is_away_waits_for_a_lease_and_no_longer),
        WITH_SERVER(facts_said_while_a_reader_was_cut_off_reach_it),
        WITH_SERVER(nonsense_in_the_stream_is_refused_and_stops_nothing),
        WITH_SERVER(only_the_node_where_it_lives_is_believed),
    };
    int skip = rig_skip_without_redis();

    return skip != 0 ? skip : cmocka_run_group_tests(tests, NULL, NULL);
}
