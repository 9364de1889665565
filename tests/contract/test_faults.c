/* test_faults.c - what each option of the fault wrapper does, and that under every one of them each
 * operation still ends once and becomes quiet once. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "contract/contract.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>

enum { COUNT = 60, LEN = 5000 };

struct batch {
    struct rig *rig;
    struct rig_region *near, *far;
    struct rig_op *ops[COUNT];
};

static struct rig_case with_case;

/* COUNT operations of two rows each, every second one a write, on ranges of their own. */
static struct batch batch_run(const char *const *extra)
{
    struct batch batch = {.rig = rig_open_or_skip(extra)};

    batch.near = rig_region_open(batch.rig, COUNT * LEN, 0);
    batch.far = rig_region_open(batch.rig, COUNT * LEN, 1);
    noise_fill(batch.near->base, batch.near->size, 11);
    noise_fill(batch.far->base, batch.far->size, 12);
    for (uint32_t i = 0; i < COUNT; i++) {
        uint64_t at = (uint64_t)i * LEN;
        struct nxl_piece pieces[2] = {
            {.local_offset = at, .remote_offset = at, .len = 2000, .count = 1},
            {.local_offset = at + 2500, .remote_offset = at + 2500, .len = 2500, .count = 1}};

        batch.ops[i] =
            rig_op_new(batch.rig, i % 2 ? NXL_WRITE : NXL_READ, batch.near, batch.far, pieces, 2);
        rig_submit(batch.rig, batch.ops[i]);
    }
    return batch;
}

static int is_harmed(uint32_t index, uint32_t every)
{
    return (index + 1) % every == 0;
}

static void batch_wait(struct batch *batch)
{
    for (uint32_t i = 0; i < COUNT; i++)
        rig_wait_quiet(batch->rig, batch->ops[i]);
}

static void delay_and_reorder_change_only_the_time(void **state)
{
    const char *extra[] = {"fault.delay=1ms", "fault.reorder=5ms", "fault.seed=3", NULL};
    struct batch batch = batch_run(extra);

    (void)state;
    batch_wait(&batch);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_int_equal(batch.ops[i]->outcome.code, NXL_OK);
        assert_int_equal(noise_wrong(batch.rig, batch.ops[i], batch.near, batch.far), 0);
    }
    rig_close(batch.rig);
}

/* C-111: every status that can come back arrives as what it is, and fails that operation only. */
static void every_failing_status_arrives_as_itself(void **state)
{
    static const struct {
        const char *text;
        int code;
    } codes[] = {{"fault.fail_code=backend", NXL_BACKEND},
                 {"fault.fail_code=invalid_param", NXL_INVALID_PARAM},
                 {"fault.fail_code=not_found", NXL_NOT_FOUND},
                 {"fault.fail_code=mismatch", NXL_MISMATCH},
                 {"fault.fail_code=not_allowed", NXL_NOT_ALLOWED},
                 {"fault.fail_code=unknown", NXL_UNKNOWN},
                 {"fault.fail_code=not_supported", NXL_NOT_SUPPORTED},
                 {"fault.fail_code=remote_disconnect", NXL_REMOTE_DISCONNECT},
                 {"fault.fail_code=canceled", NXL_CANCELED},
                 {"fault.fail_code=limit", NXL_LIMIT},
                 {"fault.fail_code=timeout", NXL_TIMEOUT},
                 {"fault.fail_code=io", NXL_IO},
                 {"fault.fail_code=memory_lost", NXL_MEMORY_LOST},
                 {"fault.fail_code=unreachable", NXL_UNREACHABLE}};

    (void)state;
    for (size_t k = 0; k < sizeof(codes) / sizeof(codes[0]); k++) {
        const char *extra[] = {"fault.fail_every=3", codes[k].text,
                               k % 2 ? "fault.fail_touched=true" : "fault.delay=0s", NULL};
        struct batch batch = batch_run(extra);

        batch_wait(&batch);
        for (uint32_t i = 0; i < COUNT; i++) {
            const struct nxl_outcome *outcome = &batch.ops[i]->outcome;

            assert_int_equal(outcome->code, is_harmed(i, 3) ? codes[k].code : NXL_OK);
            assert_int_equal(outcome->untouched, is_harmed(i, 3) && k % 2 == 0);
            if (is_harmed(i, 3)) {
                assert_true(outcome->text[0] != '\0');
                assert_int_equal(noise_wrong(batch.rig, batch.ops[i], batch.near, batch.far),
                                 k % 2 == 0 && with_case.row->moves ? 2 : 0);
            }
        }
        rig_close(batch.rig);
    }
}

/* C-006, C-007: it looks as if it ran for ever; cancel gives it an end that does not claim
 * "untouched". */
static void a_dropped_end_comes_after_cancel(void **state)
{
    const char *extra[] = {"fault.drop_every=4", NULL};
    struct batch batch = batch_run(extra);

    (void)state;
    for (uint32_t i = 0; i < COUNT; i++)
        if (!is_harmed(i, 4))
            rig_wait_quiet(batch.rig, batch.ops[i]);
    for (uint32_t i = 0; i < COUNT; i++) {
        if (!is_harmed(i, 4))
            continue;
        assert_int_equal(rig_completes(batch.rig, batch.ops[i]), 0);
        rig_cancel(batch.rig, batch.ops[i]);
        rig_cancel(batch.rig, batch.ops[i]);
    }
    batch_wait(&batch);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_int_equal(batch.ops[i]->outcome.code, is_harmed(i, 4) ? NXL_CANCELED : NXL_OK);
        assert_int_equal(batch.ops[i]->outcome.untouched, 0);
    }
    rig_close(batch.rig);
}

static void a_dropped_end_comes_at_close(void **state)
{
    const char *extra[] = {"fault.drop_every=1", NULL};
    struct batch batch = batch_run(extra);

    (void)state;
    rig_close(batch.rig); /* counts the ends */
}

/* C-110 a */
static void a_skipped_row_is_reported_as_success(void **state)
{
    const char *extra[] = {"fault.skip_every=5", NULL};
    struct batch batch = batch_run(extra);

    (void)state;
    batch_wait(&batch);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_int_equal(batch.ops[i]->outcome.code, NXL_OK);
        assert_int_equal(noise_wrong(batch.rig, batch.ops[i], batch.near, batch.far),
                         is_harmed(i, 5) && with_case.row->moves);
    }
    rig_close(batch.rig);
}

/* C-110 c: one byte of the whole operation differs, and it is in the destination. */
static void a_flipped_byte_is_reported_as_success(void **state)
{
    const char *extra[] = {"fault.flip_every=5", "fault.seed=10", NULL};
    struct batch batch = batch_run(extra);

    (void)state;
    batch_wait(&batch);
    for (uint32_t i = 0; i < COUNT && with_case.row->moves; i++) {
        uint64_t at = (uint64_t)i * LEN;
        int differ = 0;

        assert_int_equal(batch.ops[i]->outcome.code, NXL_OK);
        for (uint64_t k = 0; k < LEN; k++)
            if (k < 2000 || k >= 2500)
                differ += batch.near->base[at + k] != batch.far->base[at + k];
        assert_int_equal(differ, is_harmed(i, 5));
    }
    rig_close(batch.rig);
}

/* C-008, C-110 b: the end comes first, the last row and "quiet" after it. */
static void a_late_row_arrives_before_quiet(void **state)
{
    const char *extra[] = {"fault.late_every=6", "fault.late_write=20ms", NULL};
    uint64_t begin = nxl_now_ns();
    struct batch batch = batch_run(extra);

    (void)state;
    for (uint32_t i = 0; i < COUNT; i++) {
        rig_wait_end(batch.rig, batch.ops[i]);
        assert_int_equal(batch.ops[i]->outcome.code, NXL_OK);
        assert_int_equal(batch.ops[i]->outcome.quiesced, !is_harmed(i, 6));
    }
    batch_wait(&batch);
    assert_true(nxl_now_ns() - begin >= 20 * NXL_MS);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(noise_wrong(batch.rig, batch.ops[i], batch.near, batch.far), 0);
    rig_close(batch.rig);
}

static void late_rows_that_wait_are_given_up_at_close(void **state)
{
    const char *extra[] = {"fault.late_every=1", "fault.late_write=50s", NULL};
    struct batch batch = batch_run(extra);

    (void)state;
    for (uint32_t i = 0; i < COUNT; i++)
        rig_wait_end(batch.rig, batch.ops[i]);
    rig_close(batch.rig);
}

static void what_never_becomes_quiet_does_at_close(void **state)
{
    const char *extra[] = {"fault.never_quiesce_every=2", "fault.delay=100us", NULL};
    struct batch batch = batch_run(extra);

    (void)state;
    for (uint32_t i = 0; i < COUNT; i++) {
        rig_wait_end(batch.rig, batch.ops[i]);
        assert_int_equal(batch.ops[i]->outcome.quiesced, !is_harmed(i, 2));
    }
    rig_close(batch.rig);
}

static void again_comes_from_the_wrapper_too(void **state)
{
    const char *extra[] = {"fault.again_every=3", "fault.delay=100us", NULL};
    struct batch batch = batch_run(extra);

    (void)state;
    batch_wait(&batch);
    assert_true(rig_readies(batch.rig) >= COUNT / 3);
    rig_close(batch.rig);
}

/* Nothing of it at all is waited for: close() alone ends everything, once. */
static void all_faults_at_once_end_at_close(void **state)
{
    const char *extra[] = {
        "fault.delay=2ms",    "fault.reorder=3ms",           "fault.again_every=7",
        "fault.fail_every=5", "fault.drop_every=3",          "fault.skip_every=4",
        "fault.flip_every=2", "fault.late_every=3",          "fault.late_write=1ms",
        "fault.seed=77",      "fault.never_quiesce_every=2", NULL};
    struct batch batch = batch_run(extra);

    (void)state;
    rig_close(batch.rig);
}

int contract_run_faults(const struct rig_case *with)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(delay_and_reorder_change_only_the_time),
        cmocka_unit_test(every_failing_status_arrives_as_itself),
        cmocka_unit_test(a_dropped_end_comes_after_cancel),
        cmocka_unit_test(a_dropped_end_comes_at_close),
        cmocka_unit_test(a_skipped_row_is_reported_as_success),
        cmocka_unit_test(a_flipped_byte_is_reported_as_success),
        cmocka_unit_test(a_late_row_arrives_before_quiet),
        cmocka_unit_test(late_rows_that_wait_are_given_up_at_close),
        cmocka_unit_test(what_never_becomes_quiet_does_at_close),
        cmocka_unit_test(again_comes_from_the_wrapper_too),
        cmocka_unit_test(all_faults_at_once_end_at_close),
    };

    with_case = *with;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
