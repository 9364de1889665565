/* test_instance.c - calls are checked before they reach a backend, and its answers afterwards. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/host/puppet.h"

#include <stdlib.h>
#include <string.h>

static struct bed bed;

static int setup(void **state)
{
    (void)state;
    bed_open(&bed, puppet_statics, "puppet");
    assert_non_null(bed.instance);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    bed_close(&bed);
    return 0;
}

static void memory_of_a_kind_it_does_not_take_is_refused_by_the_host(void **state)
{
    struct nxl_memory memory = {.kind = NXL_MEM_VRAM};
    struct nxl_backend_mem *mem = NULL;
    struct nxl_err err = {0};

    (void)state;
    assert_int_equal(nxl_instance_register(bed.instance, &memory, &mem, &err), NXL_NOT_SUPPORTED);
    memory.kind = 77;
    assert_int_equal(nxl_instance_register(bed.instance, &memory, &mem, &err), NXL_NOT_SUPPORTED);
    memory.kind = -1;
    assert_int_equal(nxl_instance_register(bed.instance, &memory, &mem, &err), NXL_NOT_SUPPORTED);
    assert_null(puppet.memory);
    assert_null(mem);
    memory.kind = NXL_MEM_DRAM;
    assert_int_equal(nxl_instance_register(bed.instance, &memory, &mem, &err), NXL_OK);
    assert_non_null(mem);
}

/* C-001: what a backend says to a deregistration is what the caller hears. */
static void refusals_carry_the_name_of_the_backend(void **state)
{
    struct nxl_memory memory = {.kind = NXL_MEM_DRAM};
    struct nxl_backend_mem *mem = NULL;
    struct nxl_err err = {0};

    (void)state;
    puppet.register_code = NXL_LIMIT;
    assert_int_equal(nxl_instance_register(bed.instance, &memory, &mem, &err), NXL_LIMIT);
    assert_string_equal(err.text, "backend 'puppet': register: the puppet does not like it");
    assert_int_equal(nxl_instance_deregister(bed.instance, (struct nxl_backend_mem *)&puppet, &err),
                     NXL_LIMIT);
    assert_string_equal(err.text, "backend 'puppet': deregister: the puppet keeps it");
}

static void success_without_a_result_is_a_failure(void **state)
{
    struct nxl_memory memory = {.kind = NXL_MEM_DRAM};
    struct nxl_backend_mem *mem = NULL;
    struct nxl_err err = {0};

    (void)state;
    puppet.register_nothing = 1;
    assert_int_equal(nxl_instance_register(bed.instance, &memory, &mem, &err), NXL_BACKEND);
    assert_null(mem);
    puppet.connect_code = NXL_IN_PROG;
    assert_int_equal(nxl_instance_connect(bed.instance, (struct nxl_view){"x", 1},
                                          &(struct nxl_backend_conn *){NULL}, &err),
                     NXL_BACKEND);
}

static void views_from_other_agents_are_measured_first(void **state)
{
    static char long_key[NXL_BACKEND_KEY_MAX + 1];
    struct nxl_backend_conn *conn = NULL;
    struct nxl_backend_remote *remote = NULL;
    struct nxl_err err = {0};

    (void)state;
    assert_int_equal(nxl_instance_connect(bed.instance, (struct nxl_view){NULL, 0}, &conn, &err),
                     NXL_MISMATCH);
    assert_int_equal(nxl_instance_connect(bed.instance,
                                          (struct nxl_view){"x", NXL_BACKEND_ADDRESS_MAX + 1},
                                          &conn, &err),
                     NXL_MISMATCH);
    assert_null(conn);
    assert_int_equal(nxl_instance_import(bed.instance, NULL,
                                         (struct nxl_view){long_key, sizeof(long_key)}, &remote,
                                         &err),
                     NXL_MISMATCH);
    assert_int_equal(
        nxl_instance_import(bed.instance, NULL, (struct nxl_view){long_key, 0}, &remote, &err),
        NXL_MISMATCH);
    assert_null(remote);
    assert_int_equal(
        nxl_instance_import(bed.instance, NULL, (struct nxl_view){long_key, 3}, &remote, &err),
        NXL_OK);
}

static void operations_outside_the_capabilities_never_reach_it(void **state)
{
    struct nxl_piece pieces[5] = {{.len = 1, .count = 1}};
    struct nxl_backend_mem *mems[1] = {NULL};
    const struct nxl_op good = {.kind = NXL_READ,
                                .locals = mems,
                                .peers = mems,
                                .pieces = pieces,
                                .local_count = 1,
                                .remote_count = 1,
                                .piece_count = 1,
                                .bytes = 1};
    struct told told = {0};
    struct nxl_err err = {0};
    struct nxl_op bad[6];

    (void)state;
    for (int i = 0; i < 6; i++)
        bad[i] = good;
    bad[0].kind = 2;
    bad[1].piece_count = 5; /* it takes 4 */
    bad[2].piece_count = 0;
    bad[3].peers = NULL;
    bad[4].pieces = NULL;
    bad[5].conn = (struct nxl_backend_conn *)&puppet; /* and no remotes */
    for (int i = 0; i < 6; i++)
        assert_int_equal(
            nxl_instance_submit(bed.instance, &bad[i], told_outcome, told_quiet, &told, &err),
            NXL_INVALID_PARAM);
    assert_int_equal(puppet.submits, 0);
    assert_int_equal(nxl_instance_inflight(bed.instance), 0);
}

/* C-013: a failure inside the post is an answer, and the operation never existed. */
static void a_refused_submit_has_no_outcome(void **state)
{
    struct nxl_op op;
    struct told told;

    (void)state;
    puppet.submit_code = NXL_AGAIN;
    assert_int_equal(bed_submit(&bed, &op, &told), NXL_AGAIN);
    puppet.submit_code = NXL_UNREACHABLE;
    assert_int_equal(bed_submit(&bed, &op, &told), NXL_UNREACHABLE);
    puppet.submit_code = NXL_IN_PROG; /* not a promise either */
    assert_int_equal(bed_submit(&bed, &op, &told), NXL_BACKEND);
    nxl_hosts_poll(bed.hosts);
    assert_int_equal(told.outcomes, 0);
    assert_int_equal(nxl_instance_inflight(bed.instance), 0);
}

/* C-007 */
static void cancel_reaches_only_what_runs(void **state)
{
    struct nxl_outcome outcome;
    struct nxl_op op;
    struct told told;

    (void)state;
    nxl_instance_cancel(bed.instance, 0);
    nxl_instance_cancel(bed.instance, UINT64_MAX);
    assert_int_equal(puppet.cancels, 0);
    assert_int_equal(bed_submit(&bed, &op, &told), NXL_OK);
    nxl_instance_cancel(bed.instance, op.id);
    nxl_instance_cancel(bed.instance, op.id);
    assert_int_equal(puppet.cancels, 2);
    outcome = puppet_outcome(op.id, NXL_CANCELED, 1);
    puppet.host->complete(puppet.host, &outcome);
    nxl_hosts_poll(bed.hosts);
    nxl_instance_cancel(bed.instance, op.id);
    assert_int_equal(puppet.cancels, 2);
    assert_int_equal(told.outcome.code, NXL_CANCELED);
    puppet.ids[0] = 0;
}

static void ids_are_never_used_again(void **state)
{
    struct nxl_op op;
    struct told told;
    uint64_t last = 0;

    (void)state;
    for (int i = 0; i < 1000; i++) {
        struct nxl_outcome outcome;

        puppet.submits = 0;
        assert_int_equal(bed_submit(&bed, &op, &told), NXL_OK);
        assert_true(op.id > last);
        last = op.id;
        outcome = puppet_outcome(op.id, NXL_OK, 1);
        puppet.host->complete(puppet.host, &outcome);
        nxl_hosts_poll(bed.hosts);
    }
    puppet.ids[0] = 0;
}

/* Everything has a limit; at it the caller holds back, and hears when there is room. */
static void too_many_in_flight_are_held_back(void **state)
{
    struct told *told = calloc(65536, sizeof(*told));
    struct nxl_outcome outcome;
    struct told late;
    struct nxl_op op;

    (void)state;
    for (uint32_t i = 0; i < 65536; i++)
        assert_int_equal(bed_submit(&bed, &op, &told[i]), NXL_OK);
    assert_int_equal(bed_submit(&bed, &op, &late), NXL_AGAIN);
    assert_int_equal(puppet.submits, 65536);
    outcome = puppet_outcome(puppet.ids[9], NXL_OK, 1);
    puppet.ids[9] = 0;
    puppet.host->complete(puppet.host, &outcome);
    bed_run_until(&bed, &bed.readies, 1);
    assert_int_equal(bed_submit(&bed, &op, &late), NXL_OK);
    nxl_hosts_close(bed.hosts);
    bed.hosts = NULL;
    for (uint32_t i = 0; i < 65536; i++)
        assert_int_equal(told[i].outcomes, 1);
    assert_int_equal(late.outcomes, 1);
    free(told);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(memory_of_a_kind_it_does_not_take_is_refused_by_the_host,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(refusals_carry_the_name_of_the_backend, setup, teardown),
        cmocka_unit_test_setup_teardown(success_without_a_result_is_a_failure, setup, teardown),
        cmocka_unit_test_setup_teardown(views_from_other_agents_are_measured_first, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(operations_outside_the_capabilities_never_reach_it, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_refused_submit_has_no_outcome, setup, teardown),
        cmocka_unit_test_setup_teardown(cancel_reaches_only_what_runs, setup, teardown),
        cmocka_unit_test_setup_teardown(ids_are_never_used_again, setup, teardown),
        cmocka_unit_test_setup_teardown(too_many_in_flight_are_held_back, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
