/* test_http.c - answers of HTTP servers, whole, cut and hostile; then a real server of our own. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "ctl/http.h"

#define OK "HTTP/1.1 200 OK\r\n"

struct row {
    const char *data;
    int closed;
    enum nxl_code code;
    int status;
    const char *body, *says;
};

static void check(const struct row *row, size_t index)
{
    size_t size = strlen(row->data);
    /* Exactly as long as it is, so that a sanitizer sees a look behind the end. */
    char *data = malloc(size > 0 ? size : 1);
    struct ctl_http_head head = {.status = -1};
    struct nxl_err err = {0};
    enum nxl_code code;

    memcpy(data, row->data, size);
    code = ctl_http_parse(data, size, row->closed, &head, &err);
    if (code != row->code)
        fail_msg("row %zu: code %d, not %d: %s", index, code, row->code, err.text);
    if (code == NXL_OK) {
        assert_int_equal(head.status, row->status);
        assert_int_equal(head.size, strlen(row->body));
        assert_memory_equal(data + head.body, row->body, head.size);
    } else {
        assert_int_equal(head.status, -1);
    }
    if (row->says != NULL && strstr(err.text, row->says) == NULL)
        fail_msg("row %zu: '%s' does not say '%s'", index, err.text, row->says);
    free(data);
}

static void whole_answers_are_read(void **state)
{
    static const struct row rows[] = {
        {OK "Content-Length: 2\r\n\r\n{}", 0, NXL_OK, 200, "{}", NULL},
        {OK "content-LENGTH:\t 2 \t\r\n\r\n{}", 0, NXL_OK, 200, "{}", NULL},
        {OK "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", 0, NXL_OK, 200, "{}", NULL},
        {OK "Content-Length: 0\r\n\r\n", 0, NXL_OK, 200, "", NULL},
        {OK "Content-Length: 0002\r\n\r\nab", 1, NXL_OK, 200, "ab", NULL},
        {OK "A: b\r\n\r\nuntil the end", 1, NXL_OK, 200, "until the end", NULL},
        {OK "\r\nno header at all", 1, NXL_OK, 200, "no header at all", NULL},
        {"HTTP/1.0 404 Not Found\r\n\r\n", 1, NXL_OK, 404, "", NULL},
        {"HTTP/1.0 503\r\nContent-Length: 1\r\n\r\nx", 0, NXL_OK, 503, "x", NULL},
        {"HTTP/1.0 599 \r\n\r\n\r\n\r\n", 1, NXL_OK, 599, "\r\n\r\n", NULL},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        check(&rows[i], i);
}

static void every_cut_answer_waits_or_is_refused(void **state)
{
    static const char whole[] = OK "Server: x\r\nContent-Length: 5\r\n\r\nhello";

    for (size_t size = 0; size < sizeof(whole) - 1; size++) {
        struct ctl_http_head head = {.status = -1};
        struct nxl_err err = {0};
        char *data = malloc(size > 0 ? size : 1);

        memcpy(data, whole, size);
        assert_int_equal(ctl_http_parse(data, size, 0, &head, &err), NXL_AGAIN);
        assert_int_equal(ctl_http_parse(data, size, 1, &head, &err), NXL_MISMATCH);
        assert_int_equal(head.status, -1);
        free(data);
    }
}

static void hostile_answers_are_refused_with_the_reason(void **state)
{
    static const struct row rows[] = {
        {"SSH-2.0-OpenSSH_9\r\n", 0, NXL_MISMATCH, 0, NULL, "does not begin with HTTP/1"},
        {"\x15\x03\x03", 0, NXL_MISMATCH, 0, NULL, "does not begin with HTTP/1"},
        {"HTTP/2 200 OK\r\n\r\n", 1, NXL_MISMATCH, 0, NULL, "first line"},
        {"HTTP/1.2 200 OK\r\n\r\n", 1, NXL_MISMATCH, 0, NULL, "first line"},
        {"HTTP/1.1  200 OK\r\n\r\n", 1, NXL_MISMATCH, 0, NULL, "first line"},
        {"HTTP/1.1 2x0 OK\r\n\r\n", 1, NXL_MISMATCH, 0, NULL, "number"},
        {"HTTP/1.1 2000 OK\r\n\r\n", 1, NXL_MISMATCH, 0, NULL, "first line"},
        {"HTTP/1.1 100 Continue\r\n\r\n", 1, NXL_MISMATCH, 0, NULL, "between 200"},
        {"HTTP/1.1 999 X\r\n\r\n", 1, NXL_MISMATCH, 0, NULL, "between 200"},
        {"HTTP/1.1 20\r\n\r\n", 1, NXL_MISMATCH, 0, NULL, "first line"},
        {OK "Content-Length: -1\r\n\r\n", 1, NXL_MISMATCH, 0, NULL, "no number"},
        {OK "Content-Length: 1e3\r\n\r\n", 1, NXL_MISMATCH, 0, NULL, "no number"},
        {OK "Content-Length: 0x10\r\n\r\n", 1, NXL_MISMATCH, 0, NULL, "no number"},
        {OK "Content-Length: +2\r\n\r\nab", 1, NXL_MISMATCH, 0, NULL, "no number"},
        {OK "Content-Length: 2, 2\r\n\r\nab", 1, NXL_MISMATCH, 0, NULL, "no number"},
        {OK "Content-Length:\r\n\r\n", 1, NXL_MISMATCH, 0, NULL, "empty"},
        {OK "Content-Length: 2\r\nContent-Length: 3\r\n\r\nab", 0, NXL_MISMATCH, 0, NULL,
         "two different"},
        {OK "Content-Length: 67108865\r\n\r\n", 0, NXL_LIMIT, 0, NULL, "67108864"},
        {OK "Content-Length: 99999999999999999999999\r\n\r\n", 0, NXL_LIMIT, 0, NULL, "announces"},
        {OK "Content-Length: 18446744073709551618\r\n\r\nab", 1, NXL_LIMIT, 0, NULL, "announces"},
        {OK "Content-Length: 2\r\n\r\nabc", 0, NXL_MISMATCH, 0, NULL, "longer than its"},
        {OK "Content-Length: 4\r\n\r\nabc", 1, NXL_MISMATCH, 0, NULL, "3 of the 4"},
        {OK "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 1, NXL_MISMATCH, 0, NULL, "chunks"},
        {OK "Content-Encoding: gzip\r\n\r\n", 1, NXL_MISMATCH, 0, NULL, "compressed"},
        {OK "Content-Length : 2\r\n\r\nab", 1, NXL_MISMATCH, 0, NULL, "before the colon"},
        {OK " Content-Length: 2\r\n\r\nab", 1, NXL_MISMATCH, 0, NULL, "no name"},
        {OK ": 2\r\n\r\nab", 1, NXL_MISMATCH, 0, NULL, "no name"},
        {OK "nothing\r\n\r\nab", 1, NXL_MISMATCH, 0, NULL, "no name"},
        {OK "A: b\nContent-Length: 2\r\n\r\nab", 1, NXL_MISMATCH, 0, NULL, "CR and LF"},
        {OK "A: b\rC: d\r\n\r\nab", 1, NXL_MISMATCH, 0, NULL, "CR stands within"},
        {"HTTP/1.1 200 OK\n\n{}", 1, NXL_MISMATCH, 0, NULL, "before the head was whole"},
        {"", 1, NXL_MISMATCH, 0, NULL, "without a byte"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        check(&rows[i], i);
}

static void a_head_without_end_is_given_up(void **state)
{
    struct ctl_http_head head;
    struct nxl_err err = {0};
    char *data = malloc(CTL_HTTP_HEAD_MAX + 64);

    memset(data, 'a', CTL_HTTP_HEAD_MAX + 64);
    memcpy(data, OK, strlen(OK));
    assert_int_equal(ctl_http_parse(data, CTL_HTTP_HEAD_MAX - 1, 0, &head, &err), NXL_AGAIN);
    assert_int_equal(ctl_http_parse(data, CTL_HTTP_HEAD_MAX, 0, &head, &err), NXL_LIMIT);
    memcpy(data + CTL_HTTP_HEAD_MAX + 60, "\r\n\r\n", 4); /* an end behind the limit is none */
    assert_int_equal(ctl_http_parse(data, CTL_HTTP_HEAD_MAX + 64, 1, &head, &err), NXL_LIMIT);
    free(data);
}

static void a_nul_in_the_head_is_refused(void **state)
{
    static const char data[] = OK "A: \0b\r\n\r\n";
    struct ctl_http_head head;
    struct nxl_err err = {0};

    assert_int_equal(ctl_http_parse(data, sizeof(data) - 1, 1, &head, &err), NXL_MISMATCH);
    assert_non_null(strstr(err.text, "NUL"));
}

/* ---- a server of our own -------------------------------------------------------------------- */

struct server {
    char dir[64], path[96];
    const char *answer;
    int fd, hold; /* hold: say nothing until the client is gone */
    char request[1024];
    pthread_t thread;
};

static void *serve(void *arg)
{
    struct server *s = arg;
    int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC);
    size_t used = 0;
    ssize_t got;

    while (used < sizeof(s->request) - 1 && strstr(s->request, "\r\n\r\n") == NULL &&
           (got = read(fd, s->request + used, sizeof(s->request) - 1 - used)) > 0)
        used += (size_t)got;
    if (s->hold)
        (void)!read(fd, &got, 1); /* 0 when the client gives up */
    else
        (void)!write(fd, s->answer, strlen(s->answer));
    close(fd);
    return NULL;
}

static void server_start(struct server *s, const char *answer, int hold)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};

    *s = (struct server){.answer = answer, .hold = hold};
    snprintf(s->dir, sizeof(s->dir), "/tmp/nxl-ctl.XXXXXX");
    assert_non_null(mkdtemp(s->dir));
    snprintf(s->path, sizeof(s->path), "%s/http.sock", s->dir);
    snprintf(un.sun_path, sizeof(un.sun_path), "%s", s->path);
    s->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s->fd, (struct sockaddr *)&un, sizeof(un)), 0);
    assert_int_equal(listen(s->fd, 1), 0);
    assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
}

static void server_end(struct server *s)
{
    pthread_join(s->thread, NULL);
    close(s->fd);
    unlink(s->path);
    rmdir(s->dir);
}

static void json_comes_from_a_unix_socket(void **state)
{
    struct server s;
    struct nxl_err err = {0};
    json_t *root = NULL;

    server_start(&s, OK "Content-Length: 12\r\n\r\n{\"peers\":[]}", 0);
    if (ctl_http_json(s.path, "/v1/peers", &root, &err) != NXL_OK)
        fail_msg("%s", err.text);
    server_end(&s);
    assert_true(json_is_array(json_object_get(root, "peers")));
    assert_memory_equal(s.request, "GET /v1/peers HTTP/1.0\r\n", 24);
    json_decref(root);
}

static void what_is_no_object_is_refused(void **state)
{
    static const struct {
        const char *answer, *says;
        enum nxl_code code;
    } rows[] = {
        {OK "\r\n[]", "no JSON object", NXL_MISMATCH},
        {OK "\r\n", "no JSON object", NXL_MISMATCH},
        {OK "\r\n{\"a\":1,\"a\":2}", "no JSON object", NXL_MISMATCH},
        {OK "\r\n{\"a\":1} {", "no JSON object", NXL_MISMATCH},
        {"HTTP/1.1 404 Not Found\r\n\r\n{\"error\":\"not_found\",\"text\":\"no such page\"}",
         "404: no such page", NXL_NOT_FOUND},
        {"HTTP/1.1 503 X\r\n\r\nnot json", "answers 503", NXL_BUSY},
        {"HTTP/1.1 500 X\r\n\r\n", "answers 500", NXL_UNKNOWN},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct server s;
        struct nxl_err err = {0};
        json_t *root = NULL;

        server_start(&s, rows[i].answer, 0);
        assert_int_equal(ctl_http_json(s.path, "/v1/peers", &root, &err), rows[i].code);
        server_end(&s);
        assert_null(root);
        if (strstr(err.text, rows[i].says) == NULL)
            fail_msg("row %zu: %s", i, err.text);
    }
}

static void a_server_that_says_nothing_costs_the_deadline_only(void **state)
{
    struct server s;
    struct nxl_err err = {0};
    char *body = NULL;
    size_t size;
    int status;

    server_start(&s, "", 1);
    assert_int_equal(ctl_http_get(s.path, "/", 50000000, &status, &body, &size, &err), NXL_TIMEOUT);
    server_end(&s);
    assert_null(body);
}

static void where_nobody_listens_is_said(void **state)
{
    struct nxl_err err = {0};
    char *body = NULL;
    size_t size;
    int status;

    assert_int_equal(
        ctl_http_get("/nonexistent/http.sock", "/", 1000000000, &status, &body, &size, &err),
        NXL_NO_AGENT);
    assert_non_null(strstr(err.text, "/nonexistent/http.sock"));
    assert_int_equal(ctl_http_get("nowhere", "/", 1000000000, &status, &body, &size, &err),
                     NXL_INVALID_PARAM);
    assert_int_equal(ctl_http_get("h:123456", "/", 1000000000, &status, &body, &size, &err),
                     NXL_INVALID_PARAM);
    assert_int_equal(ctl_http_get("h:http", "/", 1000000000, &status, &body, &size, &err),
                     NXL_INVALID_PARAM);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_answers_are_read),
        cmocka_unit_test(every_cut_answer_waits_or_is_refused),
        cmocka_unit_test(hostile_answers_are_refused_with_the_reason),
        cmocka_unit_test(a_head_without_end_is_given_up),
        cmocka_unit_test(a_nul_in_the_head_is_refused),
        cmocka_unit_test(json_comes_from_a_unix_socket),
        cmocka_unit_test(what_is_no_object_is_refused),
        cmocka_unit_test(a_server_that_says_nothing_costs_the_deadline_only),
        cmocka_unit_test(where_nobody_listens_is_said),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
