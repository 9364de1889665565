/* An agent that does not read: set back to a snapshot, then ended, and nobody else is slower. */
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
static long version = 100;

#define WAIT(expr) STREAM_WAIT(loop, expr)

struct reader { /* an agent by hand, which can stop reading */
    struct nxl_tls_context *context;
    struct nxl_tls *tls;
    int open, ended;
    struct nxl_bytes in;
    unsigned begins, ends, deltas, frames;
};

static void on_open(void *arg)
{
    static const char hello[] =
        "{\"t\":\"HELLO\",\"version\":[1,1],\"node\":\"n2\",\"agent\":\"n2/agent/1\","
        "\"cluster\":\"test\",\"token\":\"node:n2\"}";
    const unsigned char head[4] = {sizeof(hello) - 1, 0, 0, 0};
    struct reader *reader = arg;

    reader->open = 1;
    (void)nxl_tls_write(reader->tls, head, 4);
    (void)nxl_tls_write(reader->tls, hello, sizeof(hello) - 1);
}

static void on_data(void *arg, const void *data, size_t size)
{
    struct reader *reader = arg;
    struct nxl_view body;
    size_t used, total = 0;

    nxl_bytes_put(&reader->in, data, size);
    while (nxl_stream_split((struct nxl_view){reader->in.data + total, reader->in.size - total},
                            &body, &used) == 1) {
        reader->frames++;
        reader->begins += memmem(body.data, body.size, "\"part\":\"begin\"", 14) != NULL;
        reader->ends += memmem(body.data, body.size, "\"part\":\"end\"", 12) != NULL;
        reader->deltas += memmem(body.data, body.size, "\"DELTA\"", 7) != NULL;
        total += used;
    }
    nxl_bytes_drop(&reader->in, total);
}

static void on_room(void *arg)
{
    (void)arg;
}

static void on_end(void *arg, const char *why)
{
    (void)why;
    ((struct reader *)arg)->ended = 1;
}

static const struct nxl_tls_ops ops = {
    .on_open = on_open, .on_data = on_data, .on_room = on_room, .on_end = on_end};

static void reader_open(struct reader *reader)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const char *ca = nxl_authority_bundle(rig.authority);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), small = 4096;

    memset(reader, 0, sizeof(*reader));
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    to.sin_port = htons((uint16_t)atoi(strrchr(nxl_push_address(rig.push), ':') + 1));
    (void)connect(fd, (void *)&to, sizeof(to));
    assert_int_equal(nxl_tls_client((struct nxl_view){ca, strlen(ca)}, &reader->context, &err),
                     NXL_OK);
    assert_int_equal(nxl_tls_connect(loop, reader->context, fd, "127.0.0.1", NULL, &ops, reader,
                                     &reader->tls, &err),
                     NXL_OK);
    WAIT(reader->ends == 1);
}

static void reader_close(struct reader *reader)
{
    nxl_tls_close(reader->tls);
    nxl_tls_context_unref(reader->context);
    nxl_bytes_fini(&reader->in);
}

/* Changes of long records, as many as it takes until `expr`-like metrics move; one flush each. */
static void churn(unsigned changes)
{
    char uid[32], text[32], reason[400];

    memset(reason, 'r', sizeof(reason) - 1);
    reason[sizeof(reason) - 1] = '\0';
    for (unsigned i = 0; i < changes; i++) {
        struct nxl_stream_member member = {
            .id = uid, .group = "ns/g", .node = "n9", .version = text, .reason = reason};

        (void)snprintf(uid, sizeof(uid), "x%u", i % 500);
        (void)snprintf(text, sizeof(text), "%ld", ++version);
        (void)nxl_push_member(rig.push, &member);
        if (i % 50 == 49) {
            nxl_push_flush(rig.push);
            stream_turn(loop);
        }
    }
}

static void start(const char *records, const char *age)
{
    assert_int_equal(nxl_loop_open(&loop, &err), NXL_OK);
    stream_rig_open(&rig, loop, NULL, "stream.ping", "50ms", "stream.silent_after", "60s",
                    "stream.queue_records", records, "stream.queue_age", age, RIG_END);
    stream_rig_policy(&rig, "ns/g", 1, NULL, 0);
    (void)stream_rig_put(&rig, "p1", "ns/g", "n1", "1");
    nxl_push_synced(rig.push);
    stream_client_open(&good, loop, &rig, "n1", NULL, NULL, NULL, 0, RIG_END);
    WAIT(nxl_stream_up(good.stream) == 1);
}

static void stop(void)
{
    stream_client_close(&good);
    stream_rig_close(&rig);
    nxl_loop_close(loop);
}

static void good_is_up_to_date(void)
{
    struct nxl_member_view view;
    uint64_t at = nxl_now_ns();

    (void)stream_rig_put(&rig, "last", "ns/g", "n1", "99999999");
    WAIT(nxl_members_find(good.members, "last", &view));
    assert_true(nxl_now_ns() - at < 2 * NXL_SEC);
}

static void an_agent_too_far_behind_is_set_back_to_a_snapshot(void **state)
{
    struct reader slow;

    start("300", "30s");
    reader_open(&slow);
    nxl_tls_pause(slow.tls, 1);
    while (stream_rig_metric(rig.metrics, "nixlet_stream_resets_total", "") == 0 &&
           version < 400000)
        churn(1000);
    assert_int_equal(stream_rig_metric(rig.metrics, "nixlet_stream_resets_total", ""), 1);
    good_is_up_to_date();
    nxl_tls_pause(slow.tls, 0);
    WAIT(slow.ends == 2); /* it reads again: one more whole table, and nothing of the rest */
    assert_int_equal(slow.begins, 2);
    assert_int_equal(slow.ended, 0);
    slow.deltas = 0;
    (void)stream_rig_dead(&rig, "p1", "deleted");
    WAIT(slow.deltas == 1); /* and then changes again */
    WAIT(good.deaths == 1);
    reader_close(&slow);
    stop();
}

static void an_agent_that_never_reads_is_ended(void **state)
{
    struct reader stuck;

    start("100000", "300ms");
    reader_open(&stuck);
    nxl_tls_pause(stuck.tls, 1);
    while (stream_rig_metric(rig.metrics, "nixlet_stream_waiting_frames", "") == 0 &&
           version < 400000)
        churn(1000);
    WAIT(stream_rig_metric(rig.metrics, "nixlet_stream_resets_total", "") == 1);
    WAIT(stream_rig_metric(rig.metrics, "nixlet_stream_ends_total", "cause=\"slow\"") == 1);
    assert_int_equal(nxl_push_agent_count(rig.push), 1);
    assert_int_equal(stream_rig_metric(rig.metrics, "nixlet_stream_waiting_frames", ""), 0);
    good_is_up_to_date();
    reader_close(&stuck);
    stop();
}

/* More changes in one turn than a queue may hold are no reason to end anybody. */
static void a_storm_in_one_turn_becomes_a_snapshot(void **state)
{
    char uid[32];

    start("300", "30s");
    for (int i = 0; i < 2000; i++) {
        (void)snprintf(uid, sizeof(uid), "y%d", i);
        (void)stream_rig_put(&rig, uid, "ns/g", "n9", "500");
    }
    WAIT(stream_rig_metric(good.metrics, "nixlet_operator_snapshots_total", "") == 2);
    good_is_up_to_date();
    assert_int_equal(nxl_stream_up(good.stream), 1);
    assert_int_equal(good.deaths, 0);
    stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_agent_too_far_behind_is_set_back_to_a_snapshot),
        cmocka_unit_test(an_agent_that_never_reads_is_ended),
        cmocka_unit_test(a_storm_in_one_turn_becomes_a_snapshot),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
