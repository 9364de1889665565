/* Cancel and deadlines: a cancel has one definite answer, whenever it comes (C-007). */
#include "rig.h"

#include <string.h>

static int setup(void **state)
{
    *state = bed_new("hand", "limits.cancel_timeout", "2s", NULL);
    return 0;
}

static void a_cancel_of_what_was_never_posted_is_nothing(void **state)
{
    struct bed *bed = *state;

    nxl_xfer_cancel(bed->from.session, 5, 1);
    assert_int_equal(bed->from.end_count, 0);
}

/* Held back by back-pressure, no byte has moved and none will. */
static void a_cancel_before_the_backend_has_it_ends_it_inside_the_call(void **state)
{
    struct bed *bed = *state;
    uint32_t post;

    bed->hand->submit_code = NXL_AGAIN;
    post = bed_write(bed, 0);
    nxl_xfer_cancel(bed->from.session, 0, post);
    assert_true(client_ended(&bed->from, post, NXL_CANCELED, 1));
    bed->hand->submit_code = NXL_OK;
    bed->hand->host->ready(bed->hand->host);
    rig_turn(&bed->rig);
    assert_int_equal(bed->hand->submits, 0); /* it never started */
    assert_int_equal(rig_metric(bed->engine, "nixlet_operations_waiting", ""), 0);
}

static void a_cancel_while_it_runs_ends_when_the_backend_answers(void **state)
{
    struct bed *bed = *state;
    uint32_t post = bed_write(bed, 0);

    nxl_xfer_cancel(bed->from.session, 0, post);
    assert_int_equal(bed->hand->cancels, 1);
    assert_null(client_end(&bed->from, post));
    hand_end(bed->hand, 0, NXL_CANCELED, 1);
    WAIT(&bed->rig, client_ended(&bed->from, post, NXL_CANCELED, 1));
    assert_int_equal(bed->to.base[4096], 0);
}

static void a_second_cancel_changes_nothing(void **state)
{
    struct bed *bed = *state;
    uint32_t post = bed_write(bed, 0);

    nxl_xfer_cancel(bed->from.session, 0, post);
    nxl_xfer_cancel(bed->from.session, 0, post);
    assert_int_equal(bed->hand->cancels, 1);
    hand_end(bed->hand, 0, NXL_CANCELED, 1);
    WAIT(&bed->rig, client_ended(&bed->from, post, NXL_CANCELED, 1));
    nxl_xfer_cancel(bed->from.session, 0, post);
    rig_turn(&bed->rig);
    assert_int_equal(client_end(&bed->from, post)->updates, 1);
}

/* All bytes had moved: it would be wrong to call them cancelled. */
static void a_cancel_that_comes_too_late_to_matter_is_done(void **state)
{
    struct bed *bed = *state;
    uint32_t post = bed_write(bed, 0);

    nxl_xfer_cancel(bed->from.session, 0, post);
    hand_end(bed->hand, 0, NXL_OK, 1);
    WAIT(&bed->rig, client_ended(&bed->from, post, NXL_OK, 1));
}

static void a_failure_after_a_cancel_is_cancelled(void **state)
{
    struct bed *bed = *state;
    uint32_t post = bed_write(bed, 0);

    nxl_xfer_cancel(bed->from.session, 0, post);
    hand_end(bed->hand, 0, NXL_IO, 1);
    WAIT(&bed->rig, client_ended(&bed->from, post, NXL_CANCELED, 1));
}

static void a_cancel_after_the_end_or_of_an_earlier_post_is_nothing(void **state)
{
    struct bed *bed = *state;
    uint32_t first = bed_write(bed, 0), second;

    hand_end(bed->hand, 0, NXL_OK, 1);
    WAIT(&bed->rig, client_ended(&bed->from, first, NXL_OK, 1));
    nxl_xfer_cancel(bed->from.session, 0, first);
    second = bed_write(bed, 0);
    nxl_xfer_cancel(bed->from.session, 0, first); /* late, for the slot's earlier transfer */
    assert_int_equal(bed->hand->cancels, 0);
    hand_end(bed->hand, 1, NXL_OK, 1);
    WAIT(&bed->rig, client_ended(&bed->from, second, NXL_OK, 1));
    assert_true(client_ended(&bed->from, first, NXL_OK, 1));
}

/* Bounded: after limits.cancel_timeout it ends in doubt, and says "quiet" when it is. */
static void a_cancel_that_the_backend_ignores_ends_in_doubt(void **state)
{
    struct bed *bed = *state;
    struct nxl_err err = {0};
    uint32_t post = bed_write(bed, 0);

    nxl_xfer_cancel(bed->from.session, 0, post);
    rig_skip(&bed->rig, 1 * NXL_SEC);
    rig_turn(&bed->rig);
    rig_turn(&bed->rig);
    assert_null(client_end(&bed->from, post));
    rig_skip(&bed->rig, 2 * NXL_SEC);
    WAIT(&bed->rig, client_ended(&bed->from, post, NXL_CANCELED, 0));
    assert_int_equal(nxl_xfer_explain(bed->from.session, 0, &err), NXL_OK);
    assert_non_null(strstr(err.text, "quiet"));
    hand_end(bed->hand, 0, NXL_OK, 1); /* the late outcome only makes it quiet */
    WAIT(&bed->rig, client_ended(&bed->from, post, NXL_CANCELED, 1));
}

/* C-006 */
static void a_deadline_ends_it_although_the_backend_is_silent(void **state)
{
    struct bed *bed = *state;
    struct nxl_err err = {0};
    uint32_t post;

    client_prepare(&bed->from, 0, NXL_READ, bed->remote, 0, 0, 4096)->timeout_ns = 5 * NXL_SEC;
    post = client_post(&bed->from);
    assert_true(bed->hand->ops[0]->deadline_ns > 0); /* told to the backend, too */
    rig_skip(&bed->rig, 6 * NXL_SEC);
    WAIT(&bed->rig, client_ended(&bed->from, post, NXL_TIMEOUT, 0));
    assert_int_equal(nxl_xfer_explain(bed->from.session, 0, &err), NXL_OK);
    assert_non_null(strstr(err.text, "deadline"));
    assert_int_equal(bed->hand->cancels, 1);
    hand_end(bed->hand, 0, NXL_CANCELED, 1);
    WAIT(&bed->rig, client_ended(&bed->from, post, NXL_TIMEOUT, 1));
}

/* C-012: the outcome lies in the queue when the deadline is looked at. */
static int has_ended(void *arg)
{
    return ((struct client *)arg)->end_count > 0;
}

static void what_completed_before_its_deadline_is_not_failed_by_it(void **state)
{
    struct bed *bed = *state;
    uint64_t until;
    uint32_t post;

    client_prepare(&bed->from, 0, NXL_WRITE, bed->remote, 0, 0, 4096)->timeout_ns = 5 * NXL_SEC;
    post = client_post(&bed->from);
    hand_end(bed->hand, 0, NXL_OK, 1);
    rig_skip(&bed->rig, 600 * NXL_SEC); /* the loop was held up for long, so that the engine's */
    until = nxl_now_ns() + 20 * NXL_MS; /* tick is due before it hears of the outcome */
    while (nxl_now_ns() < until)
        continue;
    assert_true(nxl_loop_run_until(bed->rig.loop, has_ended, &bed->from, 10 * NXL_SEC));
    assert_true(client_ended(&bed->from, post, NXL_OK, 1));
}

static void a_deadline_of_an_earlier_post_does_not_reach_the_next(void **state)
{
    struct bed *bed = *state;
    uint32_t first, second;

    client_prepare(&bed->from, 0, NXL_WRITE, bed->remote, 0, 0, 4096)->timeout_ns = 5 * NXL_SEC;
    first = client_post(&bed->from);
    hand_end(bed->hand, 0, NXL_OK, 1);
    WAIT(&bed->rig, client_ended(&bed->from, first, NXL_OK, 1));
    second = bed_write(bed, 0); /* without one */
    rig_skip(&bed->rig, 3600 * NXL_SEC);
    for (int i = 0; i < 5; i++)
        rig_turn(&bed->rig);
    assert_null(client_end(&bed->from, second));
    hand_end(bed->hand, 1, NXL_OK, 1);
    WAIT(&bed->rig, client_ended(&bed->from, second, NXL_OK, 1));
}

static void a_cancel_and_a_deadline_make_one_end(void **state)
{
    struct bed *bed = *state;
    uint32_t post;

    client_prepare(&bed->from, 0, NXL_WRITE, bed->remote, 0, 0, 4096)->timeout_ns = 1 * NXL_SEC;
    post = client_post(&bed->from);
    nxl_xfer_cancel(bed->from.session, 0, post);
    rig_skip(&bed->rig, 60 * NXL_SEC); /* both are due in the same tick */
    WAIT(&bed->rig, client_end(&bed->from, post) != NULL);
    hand_end(bed->hand, 0, NXL_CANCELED, 1);
    WAIT(&bed->rig, client_end(&bed->from, post)->last.quiet);
    for (int i = 0; i < 5; i++)
        rig_turn(&bed->rig);
    assert_int_equal(client_end(&bed->from, post)->updates, 2);
    assert_int_equal(bed->from.end_count, 1);
}

static void the_agents_default_deadline_holds_where_a_post_names_none(void **state)
{
    struct bed *bed = bed_new("hand", "limits.transfer_timeout", "10s", NULL);
    uint32_t post = bed_write(bed, 0);

    rig_skip(&bed->rig, 11 * NXL_SEC);
    WAIT(&bed->rig, client_ended(&bed->from, post, NXL_TIMEOUT, 0));
    bed_free(bed);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, bed_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_cancel_of_what_was_never_posted_is_nothing),
        TEST(a_cancel_before_the_backend_has_it_ends_it_inside_the_call),
        TEST(a_cancel_while_it_runs_ends_when_the_backend_answers),
        TEST(a_second_cancel_changes_nothing),
        TEST(a_cancel_that_comes_too_late_to_matter_is_done),
        TEST(a_failure_after_a_cancel_is_cancelled),
        TEST(a_cancel_after_the_end_or_of_an_earlier_post_is_nothing),
        TEST(a_cancel_that_the_backend_ignores_ends_in_doubt),
        TEST(a_deadline_ends_it_although_the_backend_is_silent),
        TEST(what_completed_before_its_deadline_is_not_failed_by_it),
        TEST(a_deadline_of_an_earlier_post_does_not_reach_the_next),
        TEST(a_cancel_and_a_deadline_make_one_end),
        cmocka_unit_test(the_agents_default_deadline_holds_where_a_post_names_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
