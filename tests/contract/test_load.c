/* test_load.c - plug-ins through agent/host: a wrong one is refused with its reason and hurts
 * nobody, a right one works, and "fault:shm" is fault around shm with the settings of both. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "backends/backends.h"
#include "base/clock.h"
#include "base/loop.h"
#include "base/option.h"
#include "host/host.h"

#include <stdio.h>
#include <string.h>

static struct nxl_hosts *hosts_make(struct nxl_loop *loop,
                                    const struct nxl_backend_ops *const *statics, const char *dir,
                                    const char *enabled, const struct nxl_settings *settings)
{
    const struct nxl_hosts_options options = {.loop = loop,
                                              .settings = settings,
                                              .statics = statics,
                                              .enabled = enabled,
                                              .plugin_dir = dir};
    struct nxl_hosts *hosts = NULL;
    struct nxl_err err = {0};

    assert_int_equal(nxl_hosts_open(&options, &hosts, &err), NXL_OK);
    return hosts;
}

static struct nxl_loop *loop_make(void)
{
    struct nxl_loop *loop = NULL;
    struct nxl_err err = {0};

    assert_int_equal(nxl_loop_open(&loop, &err), NXL_OK);
    return loop;
}

static void every_wrong_plugin_is_refused_for_what_is_wrong(void **state)
{
    static const struct {
        const char *name, *part;
    } wrong[] = {{"other_abi", "contract version 2"},
                 {"small_size", "table has 16 bytes"},
                 {"no_submit", "'submit'"},
                 {"misnamed", "calls itself 'tiny'"},
                 {"no_entry", "nxl_backend_entry"},
                 {"no_table", "returned nothing"},
                 {"false_caps", "'address'"},
                 {"refusing", "libtiny.so.1 is not installed"},
                 {"unresolved", "a_library_that_is_not_installed"},
                 {"missing", "does not exist"}};
    struct nxl_loop *loop = loop_make();

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char enabled[64];
        const char *reason = NULL;
        struct nxl_hosts *hosts;

        snprintf(enabled, sizeof(enabled), "%s,tiny", wrong[i].name);
        hosts = hosts_make(loop, NULL, TINY_DIR, enabled, NULL);
        assert_string_equal(nxl_hosts_refused(hosts, 0, &reason), wrong[i].name);
        if (strstr(reason, wrong[i].part) == NULL)
            fail_msg("%s: '%s' does not say '%s'", wrong[i].name, reason, wrong[i].part);
        assert_null(nxl_hosts_refused(hosts, 1, &reason));
        assert_int_equal(nxl_hosts_count(hosts), 1); /* the right one beside it is open */
        assert_non_null(nxl_hosts_find(hosts, "tiny"));
        nxl_hosts_close(hosts);
    }
    nxl_loop_close(loop);
}

static void options_of_a_plugin_are_declared_from_its_table(void **state)
{
    struct nxl_settings *settings = nxl_settings_new();
    struct nxl_loop *loop = loop_make();
    struct nxl_err err = {0};
    struct nxl_hosts *hosts;
    const char *reason;

    (void)state;
    nxl_hosts_declare(settings, nxl_backends_static(), TINY_DIR);
    assert_int_equal(nxl_settings_number(settings, "backends.tiny.level"), 3);
    assert_int_equal(nxl_settings_set(settings, "backends.tiny.level", "10", "test", &err),
                     NXL_CONFIG);
    assert_int_equal(nxl_settings_set(settings, "backends.other_abi.level", "1", "test", &err),
                     NXL_CONFIG);
    assert_int_equal(nxl_settings_set(settings, "backends.tiny.level", "4", "test", &err), NXL_OK);
    hosts = hosts_make(loop, NULL, TINY_DIR, "tiny", settings); /* it insists on 3 */
    assert_int_equal(nxl_hosts_count(hosts), 0);
    assert_string_equal(nxl_hosts_refused(hosts, 0, &reason), "tiny");
    assert_non_null(strstr(reason, "'config'")); /* it gives none itself */
    nxl_hosts_close(hosts);
    nxl_loop_close(loop);
    nxl_settings_free(settings);
}

struct count {
    uint32_t ok, failed;
    int wrong_code;
};

static void count_outcome(void *arg, const struct nxl_outcome *outcome)
{
    struct count *count = arg;

    if (outcome->code == NXL_OK)
        count->ok++;
    else if (outcome->code == NXL_TIMEOUT)
        count->failed++;
    else
        count->wrong_code = outcome->code;
}

static int count_full(void *arg)
{
    const struct count *count = arg;

    return count->ok + count->failed == 30 || count->wrong_code != 0;
}

/* Thirty copies through the host and its loop: sizes for the loop thread and for the workers. */
static void copies_run(struct nxl_loop *loop, struct nxl_hosts *hosts, const char *name,
                       uint32_t fails)
{
    static unsigned char from[30 * 200000], to[30 * 200000];
    struct nxl_instance *instance = nxl_hosts_find(hosts, name);
    struct nxl_memory memory = {.kind = NXL_MEM_DRAM, .base = from, .size = sizeof(from), .fd = -1};
    struct nxl_piece pieces[30];
    struct nxl_op ops[30];
    struct nxl_backend_mem *mems[2];
    struct nxl_err err = {0};
    struct count count = {0};
    const char *reason;

    if (instance == NULL)
        fail_msg("'%s': %s", name,
                 nxl_hosts_refused(hosts, 0, &reason) != NULL ? reason : "not open");
    assert_int_equal(nxl_instance_register(instance, &memory, &mems[0], &err), NXL_OK);
    memory.base = to;
    assert_int_equal(nxl_instance_register(instance, &memory, &mems[1], &err), NXL_OK);
    memset(to, 0, sizeof(to));
    memset(from, 0x77, sizeof(from));
    for (uint32_t i = 0; i < 30; i++) {
        pieces[i] = (struct nxl_piece){.local_offset = 200000ull * i,
                                       .remote_offset = 200000ull * i,
                                       .len = i % 2 ? 4096 : 200000,
                                       .count = 1};
        ops[i] = (struct nxl_op){.kind = NXL_WRITE,
                                 .locals = &mems[0],
                                 .peers = &mems[1],
                                 .pieces = &pieces[i],
                                 .local_count = 1,
                                 .remote_count = 1,
                                 .piece_count = 1,
                                 .bytes = pieces[i].len};
        assert_int_equal(nxl_instance_submit(instance, &ops[i], count_outcome, NULL, &count, &err),
                         NXL_OK);
    }
    assert_true(nxl_loop_run_until(loop, count_full, &count, 20 * NXL_SEC));
    assert_int_equal(count.wrong_code, 0);
    assert_int_equal(count.failed, fails);
    assert_int_equal(count.ok, 30 - fails);
    assert_int_equal(nxl_instance_inflight(instance), 0);
    assert_int_equal(to[200000 * 28 + 4095], 0x77);
    assert_int_equal(nxl_instance_deregister(instance, mems[0], &err), NXL_OK);
    assert_int_equal(nxl_instance_deregister(instance, mems[1], &err), NXL_OK);
}

static void a_wrapped_backend_gets_the_settings_of_both(void **state)
{
    static const struct nxl_backend_ops *const none[] = {NULL};
    const struct nxl_backend_ops *const *places[] = {nxl_backends_static(),
                                                     none}; /* linked in, then loaded */

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct nxl_settings *settings = nxl_settings_new();
        struct nxl_loop *loop = loop_make();
        struct nxl_err err = {0};
        struct nxl_hosts *hosts;

        nxl_hosts_declare(settings, places[i], BACKEND_DIR);
        assert_int_equal(nxl_settings_set(settings, "backends.fault.fail_every", "3", "test", &err),
                         NXL_OK);
        assert_int_equal(
            nxl_settings_set(settings, "backends.fault.fail_code", "timeout", "test", &err),
            NXL_OK);
        assert_int_equal(nxl_settings_set(settings, "backends.fault.delay", "1ms", "test", &err),
                         NXL_OK);
        assert_int_equal(nxl_settings_set(settings, "backends.shm.threads", "2", "test", &err),
                         NXL_OK);
        hosts = hosts_make(loop, places[i], BACKEND_DIR, "shm,fault:shm", settings);
        assert_int_equal(nxl_hosts_count(hosts), 2);
        assert_int_equal(nxl_instance_caps(nxl_hosts_at(hosts, 0))->honesty, NXL_HONESTY_REAL);
        assert_int_equal(nxl_instance_caps(nxl_hosts_at(hosts, 1))->path, NXL_PATH_ONE_COPY);
        copies_run(loop, hosts, "shm", 0);
        copies_run(loop, hosts, "fault:shm", 10);
        nxl_hosts_close(hosts);
        nxl_loop_close(loop);
        nxl_settings_free(settings);
    }
}

static void a_wrapper_without_a_backend_says_what_to_do(void **state)
{
    struct nxl_loop *loop = loop_make();
    struct nxl_hosts *hosts =
        hosts_make(loop, nxl_backends_static(), NULL, "fault,fault:absent,fault:fault", NULL);
    const char *reason;

    (void)state;
    assert_int_equal(nxl_hosts_count(hosts), 0);
    assert_string_equal(nxl_hosts_refused(hosts, 0, &reason), "fault");
    assert_non_null(strstr(reason, "fault:shm"));
    assert_string_equal(nxl_hosts_refused(hosts, 1, &reason), "fault:absent");
    assert_non_null(strstr(reason, "'absent'"));
    assert_string_equal(nxl_hosts_refused(hosts, 2, &reason), "fault:fault");
    assert_non_null(strstr(reason, "itself"));
    nxl_hosts_close(hosts);
    nxl_loop_close(loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_wrong_plugin_is_refused_for_what_is_wrong),
        cmocka_unit_test(options_of_a_plugin_are_declared_from_its_table),
        cmocka_unit_test(a_wrapped_backend_gets_the_settings_of_both),
        cmocka_unit_test(a_wrapper_without_a_backend_says_what_to_do),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
