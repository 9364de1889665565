/* test_redis_tls.c - rediss:// against a real server: only the expected host under the expected
 * authority is spoken to. Needs hiredis 1.x with TLS; elsewhere it is skipped and says so. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "directory_rig.h"

#include "base/mem.h"
#include "cluster/redis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A self-signed certificate that is its own authority. */
static void make_certificate(struct rig *rig, const char *name, const char *subject_names)
{
    char command[1024];

    (void)snprintf(command, sizeof(command),
                   "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes "
                   "-days 2 -subj /CN=redis "
                   "-addext subjectAltName=%s -keyout '%s/%s.key' -out '%s/%s.pem' >/dev/null 2>&1",
                   subject_names, redis_server_folder(rig->server), name,
                   redis_server_folder(rig->server), name);
    assert_int_equal(system(command), 0);
}

static void start_tls(struct rig *rig, const char *subject_names)
{
    char cert[128], key[128];

    make_certificate(rig, "server", subject_names);
    make_certificate(rig, "other", subject_names);
    (void)snprintf(cert, sizeof(cert), "%s/server.pem", redis_server_folder(rig->server));
    (void)snprintf(key, sizeof(key), "%s/server.key", redis_server_folder(rig->server));
    redis_server_tls(rig->server, cert, key);
    redis_server_start(rig->server);
}

struct line {
    struct nxl_redis *redis;
    int ups, answers;
    char text[64];
};

static void on_up(void *arg)
{
    ((struct line *)arg)->ups++;
}

static void on_down(void *arg, const char *why)
{
    (void)arg;
    (void)why;
}

static const struct nxl_redis_ops ops = {on_up, on_down};

static void line_open(struct line *line, struct rig *rig, const char *host, const char *authority)
{
    static char ca[128];
    struct nxl_redis_options options = {.loop = rig->loop,
                                        .purpose = "test",
                                        .user = "",
                                        .password_file = "",
                                        .ca_file = ca,
                                        .command_timeout_ns = 500 * NXL_MS,
                                        .backoff_max_ns = 100 * NXL_MS,
                                        .ops = &ops,
                                        .arg = line};
    struct nxl_err err = {0};
    char url[64];

    memset(line, 0, sizeof(*line));
    (void)snprintf(ca, sizeof(ca), "%s/%s.pem", redis_server_folder(rig->server), authority);
    (void)snprintf(url, sizeof(url), "rediss://%s:%u", host, redis_server_port(rig->server));
    assert_int_equal(nxl_redis_url_parse(url, &options.url, &err), NXL_OK);
    assert_int_equal(nxl_redis_open(&options, &line->redis, &err), NXL_OK);
}

static int is_up(void *line)
{
    return ((struct line *)line)->ups > 0;
}

static int is_refused(void *line)
{
    return strstr(nxl_redis_why(((struct line *)line)->redis), "tls:") != NULL;
}

static int is_answered(void *line)
{
    return ((struct line *)line)->answers > 0;
}

static void on_answer(void *arg, enum nxl_code code, const struct redisReply *reply,
                      const struct nxl_err *err)
{
    struct line *line = arg;

    line->answers++;
    (void)nxl_copy_text(line->text, sizeof(line->text), code == NXL_OK ? reply->str : err->text);
}

static void the_expected_host_is_spoken_to(void **state)
{
    static const char *const hosts[] = {"127.0.0.1", "localhost"};
    struct rig *rig = *state;

    start_tls(rig, "IP:127.0.0.1,DNS:localhost");
    for (size_t i = 0; i < NXL_COUNT_OF(hosts); i++) {
        struct nxl_redis_words words = {0};
        struct line line;

        line_open(&line, rig, hosts[i], "server");
        rig_until(rig, is_up, &line);
        nxl_redis_word(&words, "PING");
        assert_int_equal(nxl_redis_send(line.redis, &words, 0, on_answer, &line), NXL_OK);
        rig_until(rig, is_answered, &line);
        assert_string_equal(line.text, "PONG");
        nxl_redis_close(line.redis);
    }
}

static void another_authority_or_host_is_refused(void **state)
{
    struct rig *rig = *state;
    struct line line;

    start_tls(rig, "DNS:localhost");
    line_open(&line, rig, "localhost", "other");
    rig_until(rig, is_refused, &line);
    nxl_redis_close(line.redis);
    line_open(&line, rig, "127.0.0.1", "server"); /* trusted, but made for another name */
    rig_until(rig, is_refused, &line);
    assert_non_null(strstr(nxl_redis_why(line.redis), "mismatch"));
    assert_int_equal(line.ups, 0);
    nxl_redis_close(line.redis);
    line_open(&line, rig, "localhost", "no-such-file");
    rig_until(rig, is_refused, &line);
    assert_non_null(strstr(nxl_redis_why(line.redis), "ca_file"));
    nxl_redis_close(line.redis);
}

static void a_directory_works_over_tls(void **state)
{
    struct rig *rig = *state;
    char url[64], ca[128];
    struct nxl_err err = {0};
    struct answer answer;
    struct agent *one;

    start_tls(rig, "IP:127.0.0.1");
    (void)snprintf(url, sizeof(url), "rediss://127.0.0.1:%u", redis_server_port(rig->server));
    (void)snprintf(ca, sizeof(ca), "%s/server.pem", redis_server_folder(rig->server));
    rig->url = url;
    one = agent_new(rig, "n1", "a");
    assert_int_equal(nxl_settings_set(one->settings, "store.ca_file", ca, "test", &err), NXL_OK);
    agent_open(one);
    rig_until(rig, agent_is_up, one);
    for (int i = 0; i < 200; i++) {
        char name[32], incarnation[64];

        (void)snprintf(name, sizeof(name), "p%d", i);
        (void)snprintf(incarnation, sizeof(incarnation), "n1/boot/%d", i);
        agent_publish(one, name, incarnation, 1, "");
    }
    (void)agent_lookup(one, "p199", "", 2000, &answer);
    rig_until(rig, answer_came, &answer);
    assert_int_equal(answer.code, NXL_OK);
    rig_until_record(rig, "n1", "n1/boot/199", 1);
    agent_close(one);
    assert_false(rig_exists(rig, KEY("node:n1")));
}

int main(void)
{
#define WITHOUT_SERVER(test)                                                                       \
    cmocka_unit_test_setup_teardown(test, rig_setup_no_server, rig_teardown)
    const struct CMUnitTest tests[] = {
        WITHOUT_SERVER(the_expected_host_is_spoken_to),
        WITHOUT_SERVER(another_authority_or_host_is_refused),
        WITHOUT_SERVER(a_directory_works_over_tls),
    };
    struct nxl_redis_url url;
    struct nxl_err err = {0};
    int skip = rig_skip_without_redis();

    if (skip == 0 && nxl_redis_url_parse("rediss://x", &url, &err) == NXL_NOT_SUPPORTED) {
        (void)printf("SKIP %zu: %s\n", NXL_COUNT_OF(tests), err.text);
        skip = 77;
    }
    return skip != 0 ? skip : cmocka_run_group_tests(tests, NULL, NULL);
}
