/* test_redis_url.c - store.url to its parts: what is taken, and with which words the rest is
 * refused. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "cluster/redis.h"

#include <stdio.h>
#include <string.h>

static void good_urls_are_taken_apart(void **state)
{
    static const struct {
        const char *text;
        enum nxl_redis_kind kind;
        const char *host;
        uint16_t port;
        uint32_t db;
    } rows[] = {
        {"none", NXL_REDIS_NONE, "", 0, 0},
        {"", NXL_REDIS_NONE, "", 0, 0},
        {"redis://store", NXL_REDIS_TCP, "store", 6379, 0},
        {"redis://store/", NXL_REDIS_TCP, "store", 6379, 0},
        {"redis://store:7000/3", NXL_REDIS_TCP, "store", 7000, 3},
        {"redis://10.0.0.7:1", NXL_REDIS_TCP, "10.0.0.7", 1, 0},
        {"redis://[::1]:65535/15", NXL_REDIS_TCP, "::1", 65535, 15},
        {"redis://[fd00::7]", NXL_REDIS_TCP, "fd00::7", 6379, 0},
        {"unix:///run/redis.sock", NXL_REDIS_UNIX, "/run/redis.sock", 0, 0},
        {"unix:///run/redis.sock?db=9", NXL_REDIS_UNIX, "/run/redis.sock", 0, 9},
    };

    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        struct nxl_redis_url url;
        struct nxl_err err = {0};

        print_message("[   row   ] %s\n", rows[i].text);
        assert_int_equal(nxl_redis_url_parse(rows[i].text, &url, &err), NXL_OK);
        assert_int_equal(url.kind, rows[i].kind);
        assert_string_equal(url.host, rows[i].host);
        assert_int_equal(url.port, rows[i].port);
        assert_int_equal(url.db, rows[i].db);
    }
}

static void bad_urls_are_refused_and_change_nothing(void **state)
{
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"http://store", "begins with redis://"},
        {"redis:/store", "begins with redis://"},
        {"redis://", "host is missing"},
        {"redis://:6379", "host is missing"},
        {"redis://store:", "port ''"},
        {"redis://store:0", "port '0'"},
        {"redis://store:65536", "port '65536'"},
        {"redis://store:99999999999999999999", "from 1 to 65535"},
        {"redis://store:6x", "port '6x' is not a number"},
        {"redis://store/-1", "database '-1'"},
        {"redis://store/1x", "database '1x'"},
        {"redis://store/65536", "database '65536'"},
        {"redis://::1:6379", "in brackets"},
        {"redis://[::1", "not closed"},
        {"redis://[::1]6379", "':' and a port"},
        {"unix://run/redis.sock", "absolute"},
        {"unix://", "absolute"},
        {"unix:///a?x=1", "?db="},
        {"unix:///a?db=", "database ''"},
    };

    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        struct nxl_redis_url url, before;
        struct nxl_err err = {0};

        memset(&url, 0x5a, sizeof(url));
        before = url;
        print_message("[   row   ] %s\n", rows[i].text);
        assert_int_equal(nxl_redis_url_parse(rows[i].text, &url, &err), NXL_CONFIG);
        assert_non_null(strstr(err.text, rows[i].says));
        assert_non_null(strstr(err.text, "store.url"));
        assert_memory_equal(&url, &before, sizeof(url));
    }
}

static void a_secret_in_the_url_is_refused_and_not_repeated(void **state)
{
    static const char *const rows[] = {
        "redis://:hunter2@store:6379", "redis://nixlet:hunter2@store",
        "redis+sentinel://u:hunter2@a:1,b:2/m", "http://u:hunter2@store"};

    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        struct nxl_redis_url url;
        struct nxl_err err = {0};

        assert_int_not_equal(nxl_redis_url_parse(rows[i], &url, &err), NXL_OK);
        assert_null(strstr(err.text, "hunter2"));
    }
}

static void what_this_hiredis_cannot_do_is_said_clearly(void **state)
{
    struct nxl_redis_url url;
    struct nxl_err err = {0};
    enum nxl_code code = nxl_redis_url_parse("rediss://store:6380", &url, &err);

    if (code != NXL_OK) { /* hiredis without TLS, as on Debian 12 */
        assert_int_equal(code, NXL_NOT_SUPPORTED);
        assert_non_null(strstr(err.text, "hiredis"));
        assert_non_null(strstr(err.text, "redis://"));
    } else {
        assert_int_equal(url.kind, NXL_REDIS_TLS);
    }
    assert_int_equal(nxl_redis_url_parse("redis+sentinel://a:26379/mymaster", &url, &err),
                     NXL_NOT_SUPPORTED);
    assert_non_null(strstr(err.text, "Sentinel"));
}

static void paths_longer_than_a_socket_address_are_refused(void **state)
{
    char text[256];
    struct nxl_redis_url url;
    struct nxl_err err = {0};

    (void)snprintf(text, sizeof(text), "unix:///%0106d", 0); /* 107 bytes of path: the most */
    assert_int_equal(nxl_redis_url_parse(text, &url, &err), NXL_OK);
    (void)snprintf(text, sizeof(text), "unix:///%0107d", 0);
    assert_int_equal(nxl_redis_url_parse(text, &url, &err), NXL_CONFIG);
    assert_non_null(strstr(err.text, "107"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_urls_are_taken_apart),
        cmocka_unit_test(bad_urls_are_refused_and_change_nothing),
        cmocka_unit_test(a_secret_in_the_url_is_refused_and_not_repeated),
        cmocka_unit_test(what_this_hiredis_cannot_do_is_said_clearly),
        cmocka_unit_test(paths_longer_than_a_socket_address_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
