/* The HTTP side, asked by hand through sockets, server and clients on one loop. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/mem.h"
#include "base/metric.h"
#include "base/option.h"
#include "status/status.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

struct rig {
    struct nxl_loop *loop;
    struct nxl_metrics *metrics;
    struct nxl_settings *settings;
    struct nxl_status *status;
    struct nxl_status_source sources[2];
    struct nxl_status_options options;
    char folder[64], path[96];
    int ready, written;
    size_t big; /* bytes of the /v1/big answer */
};

static void peers_write(void *arg, const char *path, struct nxl_bytes *to)
{
    struct rig *rig = arg;

    rig->written++;
    nxl_bytes_printf(to, "{\"path\":\"%s\"}", path);
}

static void big_write(void *arg, const char *path, struct nxl_bytes *to)
{
    struct rig *rig = arg;

    (void)path;
    memset(nxl_bytes_grow(to, rig->big), 'x', rig->big);
    to->size += rig->big;
}

static int rig_ready(void *arg, struct nxl_bytes *why)
{
    struct rig *rig = arg;

    if (rig->ready)
        return 1;
    nxl_bytes_printf(why, "no backend is open");
    return 0;
}

static void rig_set(struct rig *rig, const char *key, const char *value)
{
    struct nxl_err err = {0};

    assert_int_equal(nxl_settings_set(rig->settings, key, value, "test", &err), NXL_OK);
}

static void rig_prepare(struct rig *rig, const char *listen)
{
    struct nxl_err err = {0};

    nxl_log_limit = NXL_LOG_ERROR;
    memset(rig, 0, sizeof(*rig));
    strcpy(rig->folder, "/tmp/nxl-status-XXXXXX");
    assert_non_null(mkdtemp(rig->folder));
    (void)snprintf(rig->path, sizeof(rig->path), "%s/http.sock", rig->folder);
    assert_int_equal(nxl_loop_open(&rig->loop, &err), NXL_OK);
    rig->metrics = nxl_metrics_new();
    rig->settings = nxl_settings_new();
    nxl_status_declare(rig->settings);
    rig_set(rig, "http.socket", rig->path);
    rig_set(rig, "http.listen", listen);
    rig->sources[0] = (struct nxl_status_source){"/v1/peers", peers_write, rig};
    rig->sources[1] = (struct nxl_status_source){"/v1/big", big_write, rig};
    rig->options = (struct nxl_status_options){
        .loop = rig->loop,
        .metrics = rig->metrics,
        .settings = rig->settings,
        .sources = rig->sources,
        .source_count = 2,
        .ready = rig_ready,
        .ready_arg = rig,
    };
}

static void rig_open(struct rig *rig, const char *listen)
{
    struct nxl_err err = {0};
    int code;

    rig_prepare(rig, listen);
    code = nxl_status_open(&rig->options, &rig->status, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(code, NXL_OK);
}

static void rig_close(struct rig *rig)
{
    nxl_status_close(rig->status);
    nxl_loop_close(rig->loop);
    nxl_settings_free(rig->settings);
    nxl_metrics_free(rig->metrics);
    assert_int_equal(rmdir(rig->folder), 0); /* the socket file is gone */
}

static int fd_count(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;

    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

/* ---- a client ------------------------------------------------------------------------------ */

static int dial_unix(const struct rig *rig)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    strcpy(addr.sun_path, rig->path);
    assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    return fd;
}

static uint16_t port_of(const struct rig *rig)
{
    return (uint16_t)strtoul(strrchr(nxl_status_address(rig->status), ':') + 1, NULL, 10);
}

static int dial_tcp(const struct rig *rig)
{
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_port = htons(port_of(rig)),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    return fd;
}

struct exchange {
    int fd;
    char *answer; /* whole, terminated */
    size_t size;
    int ended; /* the server closed */
};

/* Reads what is there; 1 when the server closed or a whole answer with Content-Length is in. */
static int exchange_done(void *arg)
{
    struct exchange *exchange = arg;
    char buf[16384];
    const char *body, *length;
    ssize_t got;

    while ((got = recv(exchange->fd, buf, sizeof(buf), MSG_DONTWAIT)) > 0) {
        exchange->answer = nxl_resize(exchange->answer, exchange->size + (size_t)got + 1, 1);
        memcpy(exchange->answer + exchange->size, buf, (size_t)got);
        exchange->size += (size_t)got;
        exchange->answer[exchange->size] = '\0';
    }
    if (got == 0 || errno != EAGAIN)
        exchange->ended = 1;
    if (exchange->ended || !exchange->answer)
        return exchange->ended;
    body = strstr(exchange->answer, "\r\n\r\n");
    length = strstr(exchange->answer, "Content-Length: ");
    return body && length &&
           exchange->size >= (size_t)(body + 4 - exchange->answer) + strtoul(length + 16, NULL, 10);
}

/* Sends text and returns the answer; given to free(). */
static char *ask_fd(struct rig *rig, int fd, const char *text)
{
    struct exchange exchange = {.fd = fd};

    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
    assert_true(nxl_loop_run_until(rig->loop, exchange_done, &exchange, 10 * NXL_SEC));
    return exchange.answer ? exchange.answer : nxl_strdup("");
}

static char *ask(struct rig *rig, int fd, const char *method, const char *path)
{
    NXL_CLEANUP(nxl_freep)
    char *text = nxl_format("%s %s HTTP/1.1\r\nHost: x\r\n\r\n", method, path);

    return ask_fd(rig, fd, text);
}

static void expect(struct rig *rig, int fd, const char *method, const char *path,
                   const char *status, const char *words[], size_t count)
{
    NXL_CLEANUP(nxl_freep) char *answer = ask(rig, fd, method, path);
    NXL_CLEANUP(nxl_freep) char *line = nxl_format("HTTP/1.1 %s ", status);

    assert_int_equal(strncmp(answer, line, strlen(line)), 0);
    for (size_t i = 0; i < count; i++)
        assert_non_null(strstr(answer, words[i]));
    close(fd);
}
#define EXPECT(rig, fd, method, path, status, ...)                                                 \
    do {                                                                                           \
        const char *words_[] = {__VA_ARGS__};                                                      \
        expect(rig, fd, method, path, status, words_, sizeof(words_) / sizeof(words_[0]));         \
    } while (0)

static int never(void *arg)
{
    (void)arg;
    return 0;
}

/* ---- tests --------------------------------------------------------------------------------- */

static void every_page_is_served_on_the_unix_socket_and_on_loopback(void **state)
{
    struct rig rig;

    (void)state;
    rig_open(&rig, "127.0.0.1:0");
    nxl_metric_add(
        nxl_metric_open(rig.metrics, NXL_METRIC_COUNTER, "nixlet_test_total", "A test", ""), 3);
    for (int tcp = 0; tcp < 2; tcp++) {
        int (*dial)(const struct rig *) = tcp ? dial_tcp : dial_unix;

        EXPECT(&rig, dial(&rig), "GET", "/metrics", "200",
               "Content-Type: text/plain; version=0.0.4", "\nnixlet_test_total 3\n");
        EXPECT(&rig, dial(&rig), "GET", "/healthz", "200", "ok\n");
        EXPECT(&rig, dial(&rig), "GET", "/v1/peers", "200", "Content-Type: application/json",
               "{\"path\":\"/v1/peers\"}", "Cache-Control: no-store");
        EXPECT(&rig, dial(&rig), "GET", "/v1/peers?pretty=1", "200", "{\"path\":\"/v1/peers\"}");
        EXPECT(&rig, dial(&rig), "GET", "/", "200", "/metrics\n", "/v1/peers\n", "/v1/big\n");
        EXPECT(&rig, dial(&rig), "GET", "/v1/peer", "404", "application/json", "\"not_found\"");
        EXPECT(&rig, dial(&rig), "GET", "/v1/peers/", "404", "\"not_found\"");
    }
    EXPECT(&rig, dial_unix(&rig), "GET", "/metrics", "200",
           "nixlet_http_requests_total{path=\"other\",status=\"404\"} 4",
           "nixlet_http_requests_total{path=\"/healthz\",status=\"200\"} 2");
    rig_close(&rig);
}

static void readiness_says_why_not(void **state)
{
    struct rig rig;

    (void)state;
    rig_open(&rig, "");
    EXPECT(&rig, dial_unix(&rig), "GET", "/readyz", "503", "no backend is open\n");
    EXPECT(&rig, dial_unix(&rig), "GET", "/healthz", "200", "ok\n");
    rig.ready = 1;
    EXPECT(&rig, dial_unix(&rig), "GET", "/readyz", "200", "ready\n");
    rig_close(&rig);
}

static void other_methods_are_refused_with_the_allowed_ones(void **state)
{
    static const char *const methods[] = {"POST", "PUT", "DELETE", "OPTIONS", "BREW"};
    struct rig rig;

    (void)state;
    rig_open(&rig, "");
    for (size_t i = 0; i < NXL_COUNT_OF(methods); i++)
        EXPECT(&rig, dial_unix(&rig), methods[i], "/v1/peers", "405", "Allow: GET, HEAD",
               "method_not_allowed");
    assert_int_equal(rig.written, 0);
    rig_close(&rig);
}

static void head_gives_the_length_and_no_body(void **state)
{
    struct rig rig;
    struct exchange exchange;
    const char *text = "HEAD /v1/peers HTTP/1.0\r\n\r\n";

    (void)state;
    rig_open(&rig, "");
    exchange = (struct exchange){.fd = dial_unix(&rig)};
    assert_int_equal(send(exchange.fd, text, strlen(text), 0), (ssize_t)strlen(text));
    while (!exchange.ended)
        assert_true(nxl_loop_run_until(rig.loop, exchange_done, &exchange, 10 * NXL_SEC));
    assert_non_null(strstr(exchange.answer, "Content-Length: 20\r\n"));
    assert_null(strstr(exchange.answer, "{\"path\""));
    free(exchange.answer);
    close(exchange.fd);
    rig_close(&rig);
}

static void one_connection_serves_many_requests(void **state)
{
    struct rig rig;
    int fd;

    (void)state;
    rig_open(&rig, "127.0.0.1:0");
    fd = dial_tcp(&rig);
    for (int i = 0; i < 50; i++) {
        NXL_CLEANUP(nxl_freep) char *answer = ask(&rig, fd, "GET", "/v1/peers");

        assert_non_null(strstr(answer, "{\"path\":\"/v1/peers\"}"));
    }
    assert_int_equal(rig.written, 50);
    close(fd);
    rig_close(&rig);
}

/* More than a socket buffer holds: the rest goes out as the client reads. */
static void a_large_answer_arrives_whole(void **state)
{
    struct rig rig;
    struct exchange exchange;
    const char *text = "GET /v1/big HTTP/1.1\r\nHost: x\r\n\r\n";

    (void)state;
    rig_open(&rig, "");
    rig.big = 5u << 20;
    exchange = (struct exchange){.fd = dial_unix(&rig)};
    assert_int_equal(send(exchange.fd, text, strlen(text), 0), (ssize_t)strlen(text));
    assert_true(nxl_loop_run_until(rig.loop, exchange_done, &exchange, 10 * NXL_SEC));
    assert_false(exchange.ended);
    assert_true(exchange.size > rig.big && exchange.size < rig.big + 1024);
    free(exchange.answer);
    close(exchange.fd);
    rig_close(&rig);
}

static void beyond_loopback_only_health_and_metrics_are_served(void **state)
{
    struct rig rig;

    (void)state;
    rig_open(&rig, "0.0.0.0:0");
    EXPECT(&rig, dial_tcp(&rig), "GET", "/metrics", "200", "version=0.0.4");
    EXPECT(&rig, dial_tcp(&rig), "GET", "/healthz", "200", "ok");
    EXPECT(&rig, dial_tcp(&rig), "GET", "/readyz", "503", "no backend is open");
    EXPECT(&rig, dial_tcp(&rig), "GET", "/v1/peers", "403", "not_allowed");
    EXPECT(&rig, dial_tcp(&rig), "GET", "/", "403", "not_allowed");
    EXPECT(&rig, dial_tcp(&rig), "GET", "/nothing", "404", "not_found");
    assert_int_equal(rig.written, 0);
    EXPECT(&rig, dial_unix(&rig), "GET", "/v1/peers", "200", "{\"path\"");
    rig_close(&rig);
}

static void a_request_that_is_too_large_is_refused_and_its_connection_closed(void **state)
{
    NXL_CLEANUP(nxl_freep) char *padding = nxl_new0(20001);
    NXL_CLEANUP(nxl_freep) char *header = NULL;
    NXL_CLEANUP(nxl_freep) char *body = NULL;
    struct rig rig;
    int before;

    (void)state;
    memset(padding, 'a', 20000);
    header = nxl_format("GET /healthz HTTP/1.1\r\nHost: x\r\nX-Big: %s\r\n\r\n", padding);
    body = nxl_format("POST /v1/peers HTTP/1.1\r\nHost: x\r\nContent-Length: 20000\r\n\r\n%s",
                      padding);
    rig_open(&rig, "");
    before = fd_count();
    for (int i = 0; i < 2; i++) {
        struct exchange exchange = {.fd = dial_unix(&rig)};
        const char *text = i ? body : header;

        assert_int_equal(send(exchange.fd, text, strlen(text), 0), (ssize_t)strlen(text));
        while (!exchange.ended)
            assert_true(nxl_loop_run_until(rig.loop, exchange_done, &exchange, 10 * NXL_SEC));
        if (exchange.answer)
            assert_non_null(strstr(exchange.answer, "HTTP/1.1 4"));
        free(exchange.answer);
        close(exchange.fd);
    }
    assert_int_equal(rig.written, 0);
    EXPECT(&rig, dial_unix(&rig), "GET", "/healthz", "200", "ok");
    while (fd_count() > before)
        (void)nxl_loop_run_until(rig.loop, never, NULL, NXL_MS);
    rig_close(&rig);
}

static void nonsense_ends_its_connection_and_no_other(void **state)
{
    static const char *const texts[] = {
        "\r\n\r\n\r\n",
        "GET\r\n\r\n",
        "GET /healthz HTTP/9.9\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        "GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        "GET /%2e%2e/%00 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    };
    struct rig rig;

    (void)state;
    rig_open(&rig, "");
    for (size_t i = 0; i < NXL_COUNT_OF(texts); i++) {
        struct exchange exchange = {.fd = dial_unix(&rig)};

        assert_int_equal(send(exchange.fd, texts[i], strlen(texts[i]), 0),
                         (ssize_t)strlen(texts[i]));
        (void)nxl_loop_run_until(rig.loop, exchange_done, &exchange, 50 * NXL_MS);
        assert_int_equal(shutdown(exchange.fd, SHUT_WR), 0); /* whoever still waits for more */
        while (!exchange.ended)
            assert_true(nxl_loop_run_until(rig.loop, exchange_done, &exchange, 10 * NXL_SEC));
        if (exchange.answer)
            assert_null(strstr(exchange.answer, "HTTP/1.1 200"));
        free(exchange.answer);
        close(exchange.fd);
    }
    EXPECT(&rig, dial_unix(&rig), "GET", "/healthz", "200", "ok");
    rig_close(&rig);
}

static void connections_over_the_limit_wait_until_one_ends(void **state)
{
    struct rig rig;
    struct exchange exchange;
    const char *health = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
    int fds[2];

    (void)state;
    rig_prepare(&rig, "");
    rig_set(&rig, "http.connections_max", "2");
    assert_int_equal(nxl_status_open(&rig.options, &rig.status, NULL), NXL_OK);
    for (int i = 0; i < 2; i++) {
        NXL_CLEANUP(nxl_freep) char *answer = NULL;

        fds[i] = dial_unix(&rig);
        answer = ask(&rig, fds[i], "GET", "/healthz");
        assert_non_null(strstr(answer, "ok\n"));
    }
    exchange = (struct exchange){.fd = dial_unix(&rig)};
    (void)send(exchange.fd, health, strlen(health), MSG_NOSIGNAL);
    (void)nxl_loop_run_until(rig.loop, exchange_done, &exchange, 100 * NXL_MS);
    assert_true(!exchange.answer || strstr(exchange.answer, "ok\n") == NULL);
    close(fds[0]);
    if (exchange.ended) { /* some versions accept and close at once */
        close(exchange.fd);
        free(exchange.answer);
        (void)nxl_loop_run_until(rig.loop, never, NULL, 50 * NXL_MS);
        exchange = (struct exchange){.fd = dial_unix(&rig)};
        (void)send(exchange.fd, health, strlen(health), MSG_NOSIGNAL);
    }
    assert_true(nxl_loop_run_until(rig.loop, exchange_done, &exchange, 10 * NXL_SEC));
    assert_non_null(strstr(exchange.answer, "ok\n"));
    free(exchange.answer);
    close(exchange.fd);
    close(fds[1]);
    rig_close(&rig);
}

static void a_taken_port_and_a_live_socket_are_refused_by_name(void **state)
{
    struct rig rig;
    struct nxl_status *second = NULL;
    struct nxl_err err = {0};

    (void)state;
    rig_open(&rig, "127.0.0.1:0");
    assert_int_equal(nxl_status_open(&rig.options, &second, &err), NXL_BUSY);
    assert_non_null(strstr(err.text, rig.path));
    EXPECT(&rig, dial_unix(&rig), "GET", "/healthz", "200", "ok"); /* the first one still serves */
    rig_set(&rig, "http.socket", "");
    rig_set(&rig, "http.listen", nxl_status_address(rig.status));
    assert_int_equal(nxl_status_open(&rig.options, &second, &err), NXL_BUSY);
    assert_non_null(strstr(err.text, nxl_status_address(rig.status)));
    assert_null(second);
    rig_close(&rig);
}

static void a_dead_socket_file_is_replaced_and_any_other_file_left(void **state)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    struct rig rig;
    struct nxl_err err = {0};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    FILE *file;

    (void)state;
    rig_prepare(&rig, "");
    strcpy(addr.sun_path, rig.path);
    assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    close(fd);
    assert_int_equal(nxl_status_open(&rig.options, &rig.status, &err), NXL_OK);
    EXPECT(&rig, dial_unix(&rig), "GET", "/healthz", "200", "ok");
    nxl_status_close(rig.status);
    rig.status = NULL;
    file = fopen(rig.path, "we");
    fclose(file);
    assert_int_equal(nxl_status_open(&rig.options, &rig.status, &err), NXL_CONFIG);
    assert_int_equal(unlink(rig.path), 0);
    rig_close(&rig);
}

static void wrong_addresses_are_refused_by_name(void **state)
{
    static const char *const rows[] = {
        "7742",         "127.0.0.1",     "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:65536",
        "127.0.0.1:-1", "no such host:1"};
    struct rig rig;

    (void)state;
    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        struct nxl_err err = {0};

        rig_prepare(&rig, rows[i]);
        assert_int_equal(nxl_status_open(&rig.options, &rig.status, &err), NXL_CONFIG);
        assert_non_null(strstr(err.text, rows[i]));
        rig_close(&rig);
    }
}

static void nothing_is_opened_when_all_is_off_and_nothing_leaks(void **state)
{
    struct rig rig;
    int before;

    (void)state;
    rig_open(&rig, "127.0.0.1:0");
    rig_close(&rig);
    before = fd_count();
    for (int i = 0; i < 5; i++) {
        rig_open(&rig, "127.0.0.1:0");
        assert_int_equal(strncmp(nxl_status_address(rig.status), "127.0.0.1:", 10), 0);
        assert_true(port_of(&rig) > 0);
        EXPECT(&rig, dial_tcp(&rig), "GET", "/healthz", "200", "ok");
        rig_close(&rig);
    }
    assert_int_equal(fd_count(), before);
    rig_prepare(&rig, "");
    rig_set(&rig, "http.socket", "");
    before = fd_count();
    assert_int_equal(nxl_status_open(&rig.options, &rig.status, NULL), NXL_OK);
    assert_string_equal(nxl_status_address(rig.status), "");
    assert_int_equal(fd_count(), before);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_page_is_served_on_the_unix_socket_and_on_loopback),
        cmocka_unit_test(readiness_says_why_not),
        cmocka_unit_test(other_methods_are_refused_with_the_allowed_ones),
        cmocka_unit_test(head_gives_the_length_and_no_body),
        cmocka_unit_test(one_connection_serves_many_requests),
        cmocka_unit_test(a_large_answer_arrives_whole),
        cmocka_unit_test(beyond_loopback_only_health_and_metrics_are_served),
        cmocka_unit_test(a_request_that_is_too_large_is_refused_and_its_connection_closed),
        cmocka_unit_test(nonsense_ends_its_connection_and_no_other),
        cmocka_unit_test(connections_over_the_limit_wait_until_one_ends),
        cmocka_unit_test(a_taken_port_and_a_live_socket_are_refused_by_name),
        cmocka_unit_test(a_dead_socket_file_is_replaced_and_any_other_file_left),
        cmocka_unit_test(wrong_addresses_are_refused_by_name),
        cmocka_unit_test(nothing_is_opened_when_all_is_off_and_nothing_leaks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
