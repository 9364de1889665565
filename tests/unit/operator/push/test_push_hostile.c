/* Strangers and bad tokens at the stream server; bad operators at the agent. Nothing of it may
 * change what others see. */
#include "support/stream_rig.h"

#include "stream/tls.h"

#include <cmocka.h>

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct nxl_loop *loop;
static struct stream_rig rig;
static struct stream_client good;
static struct nxl_err err;

#define WAIT(expr) STREAM_WAIT(loop, expr)

/* Every test has one honest agent that must not notice anything. */
static int setup(void **state)
{
    assert_int_equal(nxl_loop_open(&loop, &err), NXL_OK);
    stream_rig_open(&rig, loop, NULL, "stream.ping", "50ms", "stream.hello_timeout", "400ms",
                    "stream.handshakes_max", "8", "stream.facts_rate", "20", "stream.agents_max",
                    "6", RIG_END);
    (void)stream_rig_put(&rig, "p1", "ns/g", "n1", "11");
    stream_rig_policy(&rig, "ns/g", 1, NULL, 0);
    nxl_push_synced(rig.push);
    stream_client_open(&good, loop, &rig, "n1", NULL, NULL, NULL, 0, RIG_END);
    WAIT(nxl_stream_up(good.stream) == 1);
    return 0;
}

static int teardown(void **state)
{
    assert_int_equal(rig.downs - (rig.ups - 1), 0);
    assert_int_equal(nxl_stream_up(good.stream), 1);
    assert_int_equal(good.deaths, 0);
    stream_client_close(&good);
    stream_rig_close(&rig);
    nxl_loop_close(loop);
    return 0;
}

static int64_t ends(const char *cause)
{
    char label[64];

    (void)snprintf(label, sizeof(label), "cause=\"%s\"", cause);
    return stream_rig_metric(rig.metrics, "nixlet_stream_ends_total", label);
}

/* ---- a hand-made agent: TLS as it should be, frames as the test wants them ------------------ */

struct stranger {
    struct nxl_tls_context *context;
    struct nxl_tls *tls;
    int open, ended;
    struct nxl_bytes in;
};

static void on_open(void *arg)
{
    ((struct stranger *)arg)->open = 1;
}

static void on_data(void *arg, const void *data, size_t size)
{
    nxl_bytes_put(&((struct stranger *)arg)->in, data, size);
}

static void on_room(void *arg)
{
    (void)arg;
}

static void on_end(void *arg, const char *why)
{
    (void)why;
    ((struct stranger *)arg)->ended = 1;
}

static const struct nxl_tls_ops ops = {
    .on_open = on_open, .on_data = on_data, .on_room = on_room, .on_end = on_end};

static int dial(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    to.sin_port = htons((uint16_t)atoi(strrchr(nxl_push_address(rig.push), ':') + 1));
    (void)connect(fd, (void *)&to, sizeof(to));
    return fd;
}

static void stranger_open(struct stranger *s)
{
    const char *ca = nxl_authority_bundle(rig.authority);

    memset(s, 0, sizeof(*s));
    assert_int_equal(nxl_tls_client((struct nxl_view){ca, strlen(ca)}, &s->context, &err), NXL_OK);
    assert_int_equal(
        nxl_tls_connect(loop, s->context, dial(), "127.0.0.1", NULL, &ops, s, &s->tls, &err),
        NXL_OK);
    WAIT(s->open);
}

static void stranger_say(struct stranger *s, const void *text, size_t size)
{
    unsigned char head[4] = {(unsigned char)size, (unsigned char)(size >> 8),
                             (unsigned char)(size >> 16), (unsigned char)(size >> 24)};

    assert_int_equal(nxl_tls_write(s->tls, head, 4), 4);
    assert_int_equal(nxl_tls_write(s->tls, text, size), size);
}

static void stranger_close(struct stranger *s)
{
    nxl_tls_close(s->tls);
    nxl_tls_context_unref(s->context);
    nxl_bytes_fini(&s->in);
}

static const char good_hello[] = "{\"t\":\"HELLO\",\"version\":[1,1],\"node\":\"n2\",\"agent\":"
                                 "\"n2/agent/1\",\"cluster\":\"test\","
                                 "\"token\":\"node:n2\"}";

static void nonsense_instead_of_a_hello_is_refused(void **state)
{
    static const char *const texts[] = {
        "x",
        "{}",
        "[]",
        "{\"t\":\"ACK\",\"seq\":1}",
        "{\"t\":\"HELLO\"}",
        "{\"t\":\"HELLO\",\"version\":[1,1],\"node\":\"a b\",\"agent\":\"x\",\"cluster\":\"test\"}",
        "{\"t\":\"HELLO\",\"version\":[1,1],\"node\":\"\",\"agent\":\"x\",\"cluster\":\"test\"}"};

    for (size_t i = 0; i < NXL_COUNT_OF(texts); i++) {
        struct stranger s;

        stranger_open(&s);
        stranger_say(&s, texts[i], strlen(texts[i]));
        WAIT(s.ended);
        assert_true(s.in.size > 4 && memmem(s.in.data, s.in.size, "REFUSE", 6) != NULL);
        stranger_close(&s);
    }
    assert_int_equal(ends("frame"), NXL_COUNT_OF(texts));
}

static void a_length_beyond_the_bound_ends_the_connection_at_once(void **state)
{
    static const unsigned char heads[][4] = {{0, 0, 0, 0}, {1, 0, 1, 0}, {255, 255, 255, 255}};

    for (size_t i = 0; i < NXL_COUNT_OF(heads); i++) {
        struct stranger s;

        stranger_open(&s);
        assert_int_equal(nxl_tls_write(s.tls, heads[i], 4), 4);
        WAIT(s.ended);
        stranger_close(&s);
    }
    assert_int_equal(ends("frame"), 3);
}

static void other_versions_and_clusters_are_refused_with_the_reason(void **state)
{
    static const char *const hellos[] = {
        "{\"t\":\"HELLO\",\"version\":[7,9],\"node\":\"n2\",\"agent\":\"a\",\"cluster\":\"test\"}",
        "{\"t\":\"HELLO\",\"version\":[1,1],\"node\":\"n2\",\"agent\":\"a\",\"cluster\":\"prod\"}"};
    static const char *const says[] = {"versions 7 to 9", "of cluster"};

    for (size_t i = 0; i < 2; i++) {
        struct stranger s;

        stranger_open(&s);
        stranger_say(&s, hellos[i], strlen(hellos[i]));
        WAIT(s.ended);
        assert_non_null(memmem(s.in.data, s.in.size, says[i], strlen(says[i])));
        stranger_close(&s);
    }
    assert_int_equal(ends("version"), 1);
    assert_int_equal(ends("identity"), 1);
}

static void silent_and_plaintext_strangers_are_shown_out(void **state)
{
    int mute = dial(), plain = dial();
    struct stranger half;

    stranger_open(&half); /* TLS, and then no hello */
    assert_int_equal(send(plain, "GET / HTTP/1.1\r\n\r\n", 18, 0), 18);
    WAIT(ends("timeout") == 2);
    WAIT(ends("connection") == 1);
    WAIT(half.ended);
    (void)close(mute);
    (void)close(plain);
    stranger_close(&half);
}

static void strangers_beyond_the_bound_wait_and_agents_still_get_in(void **state)
{
    int fds[32];
    struct stream_client late;

    for (int i = 0; i < 32; i++)
        fds[i] = dial();
    stream_client_open(&late, loop, &rig, "n2", NULL, NULL, NULL, 0, RIG_END);
    WAIT(nxl_stream_up(late.stream) == 1); /* behind the strangers, who are shown out in turn */
    assert_true(stream_rig_metric(rig.metrics, "nixlet_stream_accepted_total", "") >= 33);
    stream_client_close(&late);
    WAIT(rig.downs == 1);
    for (int i = 0; i < 32; i++)
        (void)close(fds[i]);
}

/* ---- tokens ------------------------------------------------------------------------------- */

static void refused_token(const char *node, const char *token, const char *cause)
{
    struct stream_client client;
    int64_t before = ends("identity");

    stream_client_open(&client, loop, &rig, node, token, NULL, NULL, 0, RIG_END);
    WAIT(ends("identity") > before);
    WAIT(stream_rig_metric(client.metrics, "nixlet_operator_refusals_total", "") >= 1);
    assert_int_equal(nxl_stream_up(client.stream), 0);
    assert_int_equal(nxl_members_spoken(client.members), 0);
    stream_client_close(&client);
    (void)cause;
}

static void tokens_that_prove_nothing_are_refused(void **state)
{
    refused_token("n2", "forged", "");
    refused_token("n2", "", "");
    refused_token("n2", "unbound", "");
    refused_token("n2", "node:n3", ""); /* a good one, of another node */
}

static void a_checked_token_is_not_asked_about_again_so_soon(void **state)
{
    struct stream_client client;
    unsigned checks = rig.checks;

    for (int i = 0; i < 3; i++) {
        stream_client_open(&client, loop, &rig, "n2", NULL, NULL, NULL, 0, RIG_END);
        WAIT(nxl_stream_up(client.stream) == 1);
        stream_client_close(&client);
        WAIT(rig.downs == (unsigned)i + 1);
    }
    assert_int_equal(rig.checks, checks + 1);
}

static void while_the_api_server_is_away_nothing_is_remembered_of_a_token(void **state)
{
    struct stream_client client;

    rig.fail_tokens = 1;
    stream_client_open(&client, loop, &rig, "n2", NULL, NULL, NULL, 0, RIG_END);
    WAIT(stream_rig_metric(client.metrics, "nixlet_operator_refusals_total", "") >= 1);
    rig.fail_tokens = 0;
    WAIT(nxl_stream_up(client.stream) == 1);
    stream_client_close(&client);
    WAIT(rig.downs == 1);
}

static void an_answer_about_a_token_may_come_late_or_never(void **state)
{
    struct stream_client client;
    struct stranger s;

    rig.hold_tokens = 1;
    stranger_open(&s);
    stranger_say(&s, good_hello, sizeof(good_hello) - 1);
    WAIT(rig.held_count == 1);
    stranger_close(&s); /* gone before the answer */
    stream_run(loop, 20 * NXL_MS);
    stream_rig_answer(&rig);
    assert_int_equal(rig.ups, 1);
    stranger_open(&s);
    stranger_say(
        &s,
        "{\"t\":\"HELLO\",\"version\":[1,1],\"node\":\"n4\",\"agent\":\"n4/agent/1\","
        "\"cluster\":\"test\",\"token\":\"node:n4\"}",
        strlen("{\"t\":\"HELLO\",\"version\":[1,1],\"node\":\"n4\",\"agent\":\"n4/agent/1\","
               "\"cluster\":\"test\",\"token\":\"node:n4\"}"));
    WAIT(rig.held_count == 1);
    WAIT(s.ended); /* the bound for hello and token together */
    stranger_close(&s);
    stream_rig_answer(&rig);
    stream_client_open(&client, loop, &rig, "n3", NULL, NULL, NULL, 0, RIG_END);
    WAIT(rig.held_count == 1);
    stream_rig_answer(&rig);
    WAIT(nxl_stream_up(client.stream) == 1);
    stream_client_close(&client);
    WAIT(rig.downs == 1);
}

/* ---- agents that misbehave once they are in -------------------------------------------------- */

static void facts_beyond_the_rate_are_dropped_and_counted(void **state)
{
    for (int i = 0; i < 50; i++)
        nxl_stream_tell(good.stream, "p1/c", NXL_LIFE_DEAD, "again and again");
    WAIT(stream_rig_metric(rig.metrics, "nixlet_stream_facts_refused_total", "") >= 30);
    assert_in_range(rig.locals, 1, 20);
}

static void what_only_an_operator_says_is_not_taken_from_an_agent(void **state)
{
    static const char *const texts[] = {
        "{\"t\":\"DELTA\",\"seq\":1,\"dead\":[{\"i\":[\"p1\"]}]}",
        "{\"t\":\"PING\",\"seq\":1,\"at_ns\":1,\"digest\":\"0\"}",
        "{\"t\":\"HELLO\",\"version\":[1,1],\"node\":\"n2\",\"agent\":\"x\",\"cluster\":\"test\"}"};

    for (size_t i = 0; i < NXL_COUNT_OF(texts); i++) {
        struct stranger s;

        stranger_open(&s);
        stranger_say(&s, good_hello, sizeof(good_hello) - 1);
        WAIT(s.in.size > 0);
        stranger_say(&s, texts[i], strlen(texts[i]));
        WAIT(s.ended);
        stranger_close(&s);
        WAIT(rig.downs == i + 1);
    }
}

/* An acknowledgement of what was never told, or a digest for another ping, moves nothing. */
static void invented_acknowledgements_and_digests_move_nothing(void **state)
{
    static const char ack[] = "{\"t\":\"ACK\",\"seq\":4000000000,\"purged\":9,\"us\":1}";
    static const char pong[] = "{\"t\":\"PONG\",\"at_ns\":1,\"digest\":\"00000000000000aa\"}";
    int64_t snapshots;
    struct stranger s;
    unsigned acks;

    stranger_open(&s);
    stranger_say(&s, good_hello, sizeof(good_hello) - 1);
    WAIT(s.in.size > 0);
    acks = rig.acks;
    snapshots = stream_rig_metric(rig.metrics, "nixlet_stream_snapshots_total", "");
    stranger_say(&s, ack, sizeof(ack) - 1);
    stranger_say(&s, pong, sizeof(pong) - 1);
    stream_run(loop, 100 * NXL_MS);
    assert_int_equal(rig.acks, acks);
    assert_int_equal(stream_rig_metric(rig.metrics, "nixlet_stream_snapshots_total", ""),
                     snapshots);
    stranger_close(&s);
    WAIT(rig.downs == 1);
}

static void agents_beyond_the_bounds_are_refused(void **state)
{
    struct stream_client clients[6];
    char node[16];

    for (int i = 0; i < 6; i++) { /* agents_max is 6, and one is there */
        (void)snprintf(node, sizeof(node), "m%d", i < 3 ? 0 : i); /* three of one node are fine */
        stream_client_open(&clients[i], loop, &rig, node, NULL, NULL, NULL, 0, RIG_END);
    }
    WAIT(ends("limit") >= 1);
    assert_int_equal(nxl_push_agent_count(rig.push), 6);
    for (int i = 0; i < 6; i++)
        stream_client_close(&clients[i]);
    WAIT(nxl_push_agent_count(rig.push) == 1);
}

static void a_server_of_another_authority_is_not_believed(void **state)
{
    struct stream_rig forged;
    struct stream_client client;

    stream_rig_open(&forged, loop, NULL, RIG_END);
    (void)stream_rig_put(&forged, "p1", "ns/g", "n1", "99");
    nxl_push_synced(forged.push);
    stream_client_open(&client, loop, &rig, "n2", NULL, nxl_push_address(forged.push), NULL, 0,
                       RIG_END); /* with the honest one's ca_file */
    WAIT(stream_rig_metric(client.metrics, "nixlet_operator_failures_total", "") >= 2);
    assert_int_equal(nxl_members_spoken(client.members), 0);
    assert_int_equal(forged.ups, 0);
    assert_int_equal(forged.checks, 0); /* it never saw the token */
    stream_client_close(&client);
    stream_rig_close(&forged);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(nonsense_instead_of_a_hello_is_refused),
        TEST(a_length_beyond_the_bound_ends_the_connection_at_once),
        TEST(other_versions_and_clusters_are_refused_with_the_reason),
        TEST(silent_and_plaintext_strangers_are_shown_out),
        TEST(strangers_beyond_the_bound_wait_and_agents_still_get_in),
        TEST(tokens_that_prove_nothing_are_refused),
        TEST(a_checked_token_is_not_asked_about_again_so_soon),
        TEST(while_the_api_server_is_away_nothing_is_remembered_of_a_token),
        TEST(an_answer_about_a_token_may_come_late_or_never),
        TEST(facts_beyond_the_rate_are_dropped_and_counted),
        TEST(what_only_an_operator_says_is_not_taken_from_an_agent),
        TEST(invented_acknowledgements_and_digests_move_nothing),
        TEST(agents_beyond_the_bounds_are_refused),
        TEST(a_server_of_another_authority_is_not_believed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
