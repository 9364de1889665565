/* test_completion.c - the crossing: outcomes, quiet, ready and news from any thread, once each. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/host/puppet.h"

#include "base/clock.h"
#include "base/loop.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define BROKEN "nixlet_backend_broken_promises_total"
#define PUPPET "backend=\"puppet\""

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

static void end(uint64_t id, int code, int quiet)
{
    struct nxl_outcome outcome = puppet_outcome(id, code, quiet);

    puppet.host->complete(puppet.host, &outcome);
}

static void an_outcome_comes_once_and_never_from_inside(void **state)
{
    struct nxl_op op;
    struct told told;

    (void)state;
    assert_int_equal(bed_submit(&bed, &op, &told), NXL_OK);
    assert_int_equal(nxl_instance_inflight(bed.instance), 1);
    end(op.id, NXL_OK, 1);
    assert_int_equal(told.outcomes, 0);
    bed_run_until(&bed, &told.outcomes, 1);
    assert_int_equal(told.outcome.code, NXL_OK);
    assert_int_equal(told.outcome.bytes, 7);
    assert_int_equal(told.outcome.op_id, op.id);
    assert_int_equal(told.quiets, 0);
    assert_int_equal(nxl_instance_inflight(bed.instance), 0);
    assert_int_equal(bed_metric(&bed, BROKEN, PUPPET), 0);
    assert_int_equal(bed_metric(&bed, "nixlet_backend_ops_total", PUPPET ",code=\"success\""), 1);
    puppet.ids[0] = 0;
}

/* C-008: the end and "the buffers are yours" are two facts. */
static void quiet_comes_after_an_outcome_that_was_not(void **state)
{
    struct nxl_op op;
    struct told told;

    (void)state;
    assert_int_equal(bed_submit(&bed, &op, &told), NXL_OK);
    end(op.id, NXL_TIMEOUT, 0);
    bed_run_until(&bed, &told.outcomes, 1);
    assert_int_equal(told.outcome.code, NXL_TIMEOUT);
    assert_int_equal(told.quiets, 0);
    assert_int_equal(nxl_instance_inflight(bed.instance), 1);
    puppet.host->quiesced(puppet.host, op.id);
    bed_run_until(&bed, &told.quiets, 1);
    assert_int_equal(told.quiet_id, op.id);
    assert_int_equal(nxl_instance_inflight(bed.instance), 0);
    assert_int_equal(bed_metric(&bed, BROKEN, PUPPET), 0);
    puppet.ids[0] = 0;
}

static void quiet_that_overtakes_its_outcome_is_kept_for_it(void **state)
{
    struct nxl_op op;
    struct told told;

    (void)state;
    assert_int_equal(bed_submit(&bed, &op, &told), NXL_OK);
    puppet.host->quiesced(puppet.host, op.id);
    nxl_hosts_poll(bed.hosts);
    assert_int_equal(told.quiets, 0);
    end(op.id, NXL_OK, 0);
    nxl_hosts_poll(bed.hosts);
    assert_int_equal(told.outcomes, 1);
    assert_int_equal(told.quiets, 1);
    assert_int_equal(nxl_instance_inflight(bed.instance), 0);
    puppet.ids[0] = 0;
}

static void an_end_from_inside_submit_is_delivered_later(void **state)
{
    struct nxl_op op;
    struct told told;

    (void)state;
    puppet.complete_inside = 1;
    assert_int_equal(bed_submit(&bed, &op, &told), NXL_OK);
    assert_int_equal(told.outcomes, 0);
    bed_run_until(&bed, &told.outcomes, 1);
    assert_int_equal(told.outcome.code, NXL_OK);
    assert_int_equal(nxl_instance_inflight(bed.instance), 0);
    puppet.ids[0] = 0;
}

static void an_end_of_a_refused_operation_is_dropped(void **state)
{
    struct nxl_op op;
    struct told told, next;

    (void)state;
    puppet.complete_inside = 1;
    puppet.submit_code = NXL_BACKEND;
    assert_int_equal(bed_submit(&bed, &op, &told), NXL_BACKEND);
    nxl_hosts_poll(bed.hosts);
    assert_int_equal(told.outcomes, 0);
    assert_int_equal(bed_metric(&bed, BROKEN, PUPPET), 1);
    assert_int_equal(nxl_instance_inflight(bed.instance), 0);
    puppet.complete_inside = 0;
    puppet.submit_code = NXL_OK;
    assert_int_equal(bed_submit(&bed, &op, &next), NXL_OK); /* the slot is fit for use again */
    end(op.id, NXL_OK, 1);
    nxl_hosts_poll(bed.hosts);
    assert_int_equal(next.outcomes, 1);
    assert_int_equal(told.outcomes, 0);
    puppet.ids[0] = 0;
}

/* Each wrong call is counted and dropped; what is right around it is not disturbed. */
static void wrong_calls_are_counted_and_dropped(void **state)
{
    struct nxl_op op;
    struct told told;

    (void)state;
    end(0, NXL_OK, 1);
    end(12345678901ull, NXL_OK, 1);
    puppet.host->quiesced(puppet.host, UINT64_MAX);
    assert_int_equal(bed_metric(&bed, BROKEN, PUPPET), 3);
    assert_int_equal(bed_submit(&bed, &op, &told), NXL_OK);
    end(op.id + (1u << 16), NXL_OK, 1); /* another life of the same slot */
    end(op.id, NXL_IO, 1);
    end(op.id, NXL_OK, 1);
    puppet.host->quiesced(puppet.host, op.id); /* the outcome has said it */
    nxl_hosts_poll(bed.hosts);
    end(op.id, NXL_OK, 1); /* long gone */
    puppet.host->quiesced(puppet.host, op.id);
    nxl_hosts_poll(bed.hosts);
    assert_int_equal(told.outcomes, 1);
    assert_int_equal(told.outcome.code, NXL_IO);
    assert_int_equal(told.quiets, 0);
    assert_int_equal(nxl_instance_inflight(bed.instance), 0);
    assert_in_range(bed_metric(&bed, BROKEN, PUPPET), 8, 9);
    puppet.ids[0] = 0;
}

static void a_code_that_is_no_end_becomes_a_failure(void **state)
{
    struct nxl_op op;
    struct told told;

    (void)state;
    assert_int_equal(bed_submit(&bed, &op, &told), NXL_OK);
    end(op.id, NXL_IN_PROG, 1);
    nxl_hosts_poll(bed.hosts);
    assert_int_equal(told.outcome.code, NXL_BACKEND);
    assert_int_equal(bed_metric(&bed, BROKEN, PUPPET), 1);
    puppet.ids[0] = 0;
}

static void a_shorter_outcome_of_an_older_backend_is_read_as_far_as_it_goes(void **state)
{
    struct nxl_outcome outcome;
    struct nxl_op op;
    struct told told;

    (void)state;
    assert_int_equal(bed_submit(&bed, &op, &told), NXL_OK);
    memset(&outcome, 0xee, sizeof(outcome));
    outcome.size = offsetof(struct nxl_outcome, device);
    outcome.op_id = op.id;
    outcome.code = NXL_OK;
    outcome.quiesced = 1;
    outcome.bytes = 7;
    puppet.host->complete(puppet.host, &outcome);
    nxl_hosts_poll(bed.hosts);
    assert_int_equal(told.outcomes, 1);
    assert_null(told.outcome.device);
    assert_int_equal(told.outcome.text[0], '\0');
    puppet.ids[0] = 0;
}

static void news_reach_only_the_connection_that_is_alive(void **state)
{
    static char here[] = "here";
    struct nxl_view address = {here, 4};
    struct nxl_backend_conn *conn;
    struct nxl_err err = {0};

    (void)state;
    puppet.host->disconnected(puppet.host, (struct nxl_backend_conn *)here, "never connected");
    nxl_hosts_poll(bed.hosts);
    assert_int_equal(bed.disconnecteds, 0);
    assert_int_equal(nxl_instance_connect(bed.instance, address, &conn, &err), NXL_OK);
    puppet.host->disconnected(puppet.host, conn, "reset by peer");
    bed_run_until(&bed, &bed.disconnecteds, 1);
    assert_string_equal(bed.why, "reset by peer");
    puppet.host->disconnected(puppet.host, conn, "said of the first life");
    nxl_instance_disconnect(bed.instance, conn);
    assert_int_equal(nxl_instance_connect(bed.instance, address, &conn, &err),
                     NXL_OK); /* the same address */
    nxl_hosts_poll(bed.hosts);
    assert_int_equal(bed.disconnecteds, 1);
    nxl_instance_disconnect(bed.instance, conn);
}

static void ready_is_merged_and_delivered(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++)
        puppet.host->ready(puppet.host);
    bed_run_until(&bed, &bed.readies, 1);
    assert_int_equal(bed.readies, 1);
    puppet.host->ready(puppet.host);
    bed_run_until(&bed, &bed.readies, 2);
}

static void parking_sees_what_has_come(void **state)
{
    struct nxl_op op;
    struct told told;

    (void)state;
    assert_int_equal(bed_submit(&bed, &op, &told), NXL_OK);
    nxl_hosts_poll(bed.hosts);
    assert_int_equal(nxl_hosts_park(bed.hosts), 0);
    nxl_hosts_poll(bed.hosts);
    end(op.id, NXL_OK, 1);
    assert_int_equal(nxl_hosts_park(bed.hosts), 1);
    nxl_hosts_poll(bed.hosts);
    assert_int_equal(told.outcomes, 1);
    puppet.progress_answer = 3;
    assert_int_equal(nxl_hosts_park(bed.hosts), 1);
    assert_int_equal(nxl_hosts_park(bed.hosts), 0);
    puppet.ids[0] = 0;
}

/* A caller that polls and never parks: the guard finds out, and the loop is woken again. */
static void a_poll_without_a_park_loses_nothing(void **state)
{
    struct nxl_op op;
    struct told told;

    (void)state;
    assert_int_equal(bed_submit(&bed, &op, &told), NXL_OK);
    nxl_hosts_poll(bed.hosts);
    end(op.id, NXL_OK, 1);
    bed_run_until(&bed, &told.outcomes, 1);
    puppet.ids[0] = 0;
}

static void submits_progress_the_backend_of_a_sleeping_loop(void **state)
{
    static struct told told; /* its end comes with the teardown */
    struct nxl_op op;
    uint32_t before = puppet.progresses;

    (void)state;
    assert_int_equal(bed_submit(&bed, &op, &told), NXL_OK);
    bed_run_until(&bed, &puppet.progresses, before + 1);
}

static void close_ends_what_the_backend_left_open(void **state)
{
    struct nxl_op ops[3];
    struct told told[3];

    (void)state;
    for (int i = 0; i < 3; i++)
        assert_int_equal(bed_submit(&bed, &ops[i], &told[i]), NXL_OK);
    end(ops[1].id, NXL_OK, 0);
    puppet.close_keeps = 1;
    nxl_hosts_close(bed.hosts);
    assert_int_equal(told[0].outcome.code, NXL_BACKEND);
    assert_int_equal(told[0].outcome.quiesced, 1);
    assert_int_equal(told[0].outcomes, 1);
    assert_int_equal(told[1].outcomes, 1);
    assert_int_equal(told[1].outcome.code, NXL_OK);
    assert_int_equal(told[1].quiets, 1);
    assert_int_equal(told[2].outcomes, 1);
    bed.hosts = NULL;
}

enum { THREADS = 4, OPS = 5000 };

struct sender {
    pthread_t thread;
    uint32_t first;
    uint64_t ids[OPS];
};

static void *sender_main(void *arg)
{
    struct sender *sender = arg;

    for (uint32_t i = 0; i < OPS; i++) {
        end(sender->ids[i], NXL_OK, i % 3 != 0);
        if (i % 3 == 0)
            puppet.host->quiesced(puppet.host, sender->ids[i]);
        if (i % 100 == 0)
            puppet.host->ready(puppet.host);
    }
    return NULL;
}

static void count_outcome(void *arg, const struct nxl_outcome *outcome)
{
    (void)outcome;
    ++*(uint32_t *)arg;
}

static void count_quiet(void *arg, uint64_t op_id)
{
    (void)op_id;
    ++*(uint32_t *)arg;
}

/* The loop sleeps in between, so every wake-up that is missed would end this test at its deadline.
 */
static void outcomes_of_many_threads_all_arrive_once(void **state)
{
    static struct sender senders[THREADS];
    static const struct nxl_piece piece = {.len = 7, .count = 1};
    static struct nxl_backend_mem *mems[1];
    uint32_t arrived = 0;

    (void)state;
    for (int t = 0; t < THREADS; t++)
        for (uint32_t i = 0; i < OPS; i++) {
            struct nxl_op op = {.kind = NXL_READ,
                                .locals = mems,
                                .peers = mems,
                                .pieces = &piece,
                                .local_count = 1,
                                .remote_count = 1,
                                .piece_count = 1,
                                .bytes = 7};
            struct nxl_err err = {0};

            assert_int_equal(
                nxl_instance_submit(bed.instance, &op, count_outcome, count_quiet, &arrived, &err),
                NXL_OK);
            senders[t].ids[i] = op.id;
        }
    for (int t = 0; t < THREADS; t++)
        assert_int_equal(pthread_create(&senders[t].thread, NULL, sender_main, &senders[t]), 0);
    bed_run_until(&bed, &arrived, THREADS * (OPS + (OPS + 2) / 3));
    for (int t = 0; t < THREADS; t++)
        pthread_join(senders[t].thread, NULL);
    nxl_hosts_poll(bed.hosts);
    assert_int_equal(arrived, THREADS * (OPS + (OPS + 2) / 3));
    assert_int_equal(nxl_instance_inflight(bed.instance), 0);
    assert_int_equal(bed_metric(&bed, BROKEN, PUPPET), 0);
    memset(puppet.ids, 0, sizeof(puppet.ids));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_outcome_comes_once_and_never_from_inside, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(quiet_comes_after_an_outcome_that_was_not, setup, teardown),
        cmocka_unit_test_setup_teardown(quiet_that_overtakes_its_outcome_is_kept_for_it, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(an_end_from_inside_submit_is_delivered_later, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(an_end_of_a_refused_operation_is_dropped, setup, teardown),
        cmocka_unit_test_setup_teardown(wrong_calls_are_counted_and_dropped, setup, teardown),
        cmocka_unit_test_setup_teardown(a_code_that_is_no_end_becomes_a_failure, setup, teardown),
        cmocka_unit_test_setup_teardown(
            a_shorter_outcome_of_an_older_backend_is_read_as_far_as_it_goes, setup, teardown),
        cmocka_unit_test_setup_teardown(news_reach_only_the_connection_that_is_alive, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(ready_is_merged_and_delivered, setup, teardown),
        cmocka_unit_test_setup_teardown(parking_sees_what_has_come, setup, teardown),
        cmocka_unit_test_setup_teardown(a_poll_without_a_park_loses_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(submits_progress_the_backend_of_a_sleeping_loop, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(close_ends_what_the_backend_left_open, setup, teardown),
        cmocka_unit_test_setup_teardown(outcomes_of_many_threads_all_arrive_once, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
