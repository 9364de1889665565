/* test_hosts.c - a linked-in table that is wrong in one point is refused for that point. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/host/puppet.h"

#include <string.h>

static struct nxl_backend_caps caps_given;

static void query_given(struct nxl_backend *backend, struct nxl_backend_caps *ret)
{
    uint32_t size = ret->size;

    (void)backend;
    *ret = caps_given;
    ret->size = size;
}

/* Opens one table; NULL if it was accepted, else the reason. */
static const char *reason_of(const struct nxl_backend_ops *ops)
{
    static char text[NXL_ERR_TEXT_SIZE];
    const struct nxl_backend_ops *statics[] = {ops, NULL};
    const char *reason = NULL, *name;
    struct bed bed;

    bed_open(&bed, statics, "puppet");
    name = nxl_hosts_refused(bed.hosts, 0, &reason);
    assert_int_equal(name != NULL, bed.instance == NULL);
    assert_int_equal(nxl_hosts_count(bed.hosts), name == NULL);
    if (name != NULL) {
        assert_string_equal(name, "puppet");
        assert_int_equal(bed_metric(&bed, "nixlet_backend_refused_total", "backend=\"puppet\""), 1);
        strcpy(text, reason);
    }
    bed_close(&bed);
    return name != NULL ? text : NULL;
}

static void assert_refused(const struct nxl_backend_ops *ops, const char *part)
{
    const char *reason = reason_of(ops);

    assert_non_null(reason);
    if (strstr(reason, part) == NULL)
        fail_msg("'%s' does not say '%s'", reason, part);
}

static void a_right_table_is_opened(void **state)
{
    struct nxl_backend_ops ops = puppet_ops;

    (void)state;
    assert_null(reason_of(&ops));
    ops.abi_minor = 99; /* fields were appended later: fine */
    ops.size = sizeof(ops) + 64;
    assert_null(reason_of(&ops));
}

static void a_wrong_table_is_refused_with_the_reason(void **state)
{
    struct nxl_backend_ops ops = puppet_ops;

    (void)state;
    ops.size = offsetof(struct nxl_backend_ops, submit);
    assert_refused(&ops, "table has");
    ops = puppet_ops;
    ops.abi_major++;
    assert_refused(&ops, "contract version");
    ops = puppet_ops;
    ops.open = NULL;
    assert_refused(&ops, "'open'");
    ops = puppet_ops;
    ops.close = NULL;
    assert_refused(&ops, "'close'");
    ops = puppet_ops;
    ops.query = NULL;
    assert_refused(&ops, "'query'");
    ops = puppet_ops;
    ops.register_mem = NULL;
    assert_refused(&ops, "'register_mem'");
    ops = puppet_ops;
    ops.deregister_mem = NULL;
    assert_refused(&ops, "'deregister_mem'");
    ops = puppet_ops;
    ops.submit = NULL;
    assert_refused(&ops, "'submit'");
}

static void capabilities_without_their_operations_are_refused(void **state)
{
    struct nxl_backend_ops ops = puppet_ops;

    (void)state;
    ops.query = query_given;
    caps_given = (struct nxl_backend_caps){.flags = NXL_CAP_LOCAL, .mem_kinds = 1};
    assert_null(reason_of(&ops));
    caps_given.flags = NXL_CAP_STRIDED;
    assert_refused(&ops, "neither");
    caps_given.flags = NXL_CAP_LOCAL;
    caps_given.mem_kinds = 0;
    assert_refused(&ops, "no kind of memory");
    caps_given.mem_kinds = 1u << NXL_MEM_KINDS;
    assert_refused(&ops, "no kind of memory");
    caps_given.mem_kinds = 1;
    caps_given.path = 99;
    assert_refused(&ops, "path class");
    caps_given.path = 0;
    caps_given.flags = NXL_CAP_LOCAL | NXL_CAP_CANCEL;
    ops.cancel = NULL;
    assert_refused(&ops, "'cancel'");
    ops = puppet_ops;
    ops.query = query_given;
    ops.size =
        offsetof(struct nxl_backend_ops, cancel); /* wired, but outside the table it declares */
    assert_refused(&ops, "'cancel'");
    caps_given.flags = NXL_CAP_REMOTE;
    assert_refused(&ops, "'address'");
    ops.size = sizeof(ops);
    ops.import_key = NULL;
    assert_refused(&ops, "'import_key'");
    ops.import_key = puppet_ops.import_key;
    ops.forget = NULL;
    assert_refused(&ops, "'forget'");
}

static void the_list_of_enabled_ones_is_read_strictly(void **state)
{
    struct bed bed;
    const char *reason;

    (void)state;
    bed_open(&bed, puppet_statics,
             "puppet, puppet,absent "
             ",../evil,puppet:shm,Puppet,a_name_that_is_far_too_long_for_this_table");
    assert_int_equal(nxl_hosts_count(bed.hosts), 1);
    assert_ptr_equal(nxl_hosts_at(bed.hosts, 0), bed.instance);
    assert_int_equal(nxl_instance_index(bed.instance), 0);
    assert_string_equal(nxl_instance_name(bed.instance), "puppet");
    assert_string_equal(nxl_hosts_refused(bed.hosts, 0, &reason), "puppet");
    assert_non_null(strstr(reason, "twice"));
    assert_string_equal(nxl_hosts_refused(bed.hosts, 1, &reason), "absent");
    assert_non_null(strstr(reason, "not linked in"));
    assert_string_equal(nxl_hosts_refused(bed.hosts, 2, &reason), "../evil");
    assert_non_null(strstr(reason, "no backend name"));
    assert_string_equal(nxl_hosts_refused(bed.hosts, 3, &reason), "puppet:shm");
    assert_non_null(strstr(reason, "wraps no other"));
    assert_string_equal(nxl_hosts_refused(bed.hosts, 4, &reason), "Puppet");
    assert_non_null(nxl_hosts_refused(bed.hosts, 5, &reason));
    assert_non_null(strstr(reason, "longer"));
    assert_null(nxl_hosts_refused(bed.hosts, 6, &reason));
    bed_close(&bed);
    bed_open(&bed, puppet_statics, "");
    assert_int_equal(nxl_hosts_count(bed.hosts), 0);
    assert_int_equal(nxl_hosts_poll(bed.hosts), 0);
    bed_close(&bed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_right_table_is_opened),
        cmocka_unit_test(a_wrong_table_is_refused_with_the_reason),
        cmocka_unit_test(capabilities_without_their_operations_are_refused),
        cmocka_unit_test(the_list_of_enabled_ones_is_read_strictly),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
