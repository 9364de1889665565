/* Every post ends exactly once under each harm that the fault backend does, over a backend that
 * moves nothing and one that copies. The front of the rig fails when an end is told twice. */
#include "rig.h"

#include <stdio.h>
#include <string.h>

#define POSTS 24u

struct harm {
    const char *backend, *key, *value;
    enum nxl_code other; /* how those that are hit end; NXL_OK: as all */
    uint32_t hit;        /* how many of POSTS do */
};
/* Every third is hit, where it is not said otherwise. */
static const struct harm harms[] = {
    {"fault:null", "delay", "2ms", NXL_OK, 0},
    {"fault:null", "reorder", "5ms", NXL_OK, 0},
    {"fault:null", "fail_every", "3", NXL_BACKEND, POSTS / 3},
    {"fault:null", "again_every", "2", NXL_OK, 0},
    {"fault:null", "skip_every", "3", NXL_OK, 0},
    {"fault:null", "late_every", "3", NXL_OK, 0},
    {"fault:null", "flip_every", "3", NXL_OK, 0},
    {"fault:shm", "delay", "2ms", NXL_OK, 0},
    {"fault:shm", "reorder", "5ms", NXL_OK, 0},
    {"fault:shm", "fail_every", "3", NXL_BACKEND, POSTS / 3},
    {"fault:shm", "again_every", "1", NXL_OK, 0},
    {"fault:shm", "skip_every", "3", NXL_OK, 0},
    {"fault:shm", "late_every", "3", NXL_OK, 0},
    {"fault:shm", "flip_every", "3", NXL_OK, 0},
};

static uint32_t ended_with(const struct client *client, enum nxl_code code, int quiet)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < client->end_count; i++)
        count += client->ends[i].last.code == (int32_t)code && client->ends[i].last.quiet == quiet;
    return count;
}

static void posts_make(struct bed *bed, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        (void)client_prepare(&bed->from, i, i % 2 ? NXL_READ : NXL_WRITE, bed->remote, i * 4096,
                             i * 8192, 2048);
        (void)client_post(&bed->from);
    }
}

static void harm_run(const struct harm *harm, const char *more, const char *value)
{
    char key[64];
    struct bed *bed;

    (void)snprintf(key, sizeof(key), "backends.fault.%s", harm->key);
    bed = bed_new(harm->backend, key, harm->value, more, value, NULL);
    posts_make(bed, POSTS);
    WAIT(&bed->rig, ended_with(&bed->from, NXL_OK, 1) + ended_with(&bed->from, harm->other, 1) ==
                        POSTS + (harm->other == NXL_OK ? POSTS : 0));
    assert_int_equal(bed->from.end_count, POSTS);
    if (harm->other != NXL_OK)
        assert_int_equal(ended_with(&bed->from, harm->other, 1), harm->hit);
    assert_int_equal(rig_metric(bed->engine, "nixlet_transfers_running", ""), 0);
    assert_int_equal(rig_metric(bed->engine, "nixlet_transfers_unquiet", ""), 0);
    bed_free(bed);
}

/* C-110 */
static void every_post_ends_once_whatever_the_backend_does(void **state)
{
    for (size_t i = 0; i < NXL_COUNT_OF(harms); i++)
        harm_run(&harms[i], NULL, NULL);
}

static void a_failure_after_the_bytes_moved_is_a_failure_too(void **state)
{
    const struct harm harm = {"fault:shm", "fail_every", "3", NXL_BACKEND, POSTS / 3};

    harm_run(&harm, "backends.fault.fail_touched", "true");
}

/* Each code of the backend comes out as it is, but "cancelled", for which nobody asked. */
static void the_code_of_a_failure_is_the_backends(void **state)
{
    static const struct {
        const char *word;
        enum nxl_code code;
    } rows[] = {
        {"backend", NXL_BACKEND},
        {"io", NXL_IO},
        {"limit", NXL_LIMIT},
        {"timeout", NXL_TIMEOUT},
        {"remote_disconnect", NXL_REMOTE_DISCONNECT},
        {"memory_lost", NXL_MEMORY_LOST},
        {"unreachable", NXL_UNREACHABLE},
        {"canceled", NXL_BACKEND},
    };

    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        struct bed *bed = bed_new("fault:null", "backends.fault.fail_every", "1",
                                  "backends.fault.fail_code", rows[i].word, NULL);
        uint32_t post = bed_write(bed, 0);

        WAIT(&bed->rig, client_ended(&bed->from, post, rows[i].code, 1));
        bed_free(bed);
    }
}

/* The backend never answers: the post has a deadline of its own (C-006). */
static void a_backend_that_never_answers_is_ended_by_the_deadline(void **state)
{
    struct bed *bed = bed_new("fault:shm", "backends.fault.drop_every", "1", NULL);
    uint32_t post;

    client_prepare(&bed->from, 0, NXL_WRITE, bed->remote, 0, 0, 4096)->timeout_ns = 60 * NXL_SEC;
    post = client_post(&bed->from);
    for (int i = 0; i < 5; i++)
        rig_turn(&bed->rig);
    assert_null(client_end(&bed->from, post));
    rig_skip(&bed->rig, 61 * NXL_SEC);
    WAIT(&bed->rig, client_ended(&bed->from, post, NXL_TIMEOUT, 1));
    bed_free(bed);
}

/* The backend says "cancelled, and all bytes had moved": so it is done, not cancelled. */
static void a_backend_that_never_answers_is_ended_by_a_cancel(void **state)
{
    struct bed *bed = bed_new("fault:null", "backends.fault.drop_every", "2", NULL);
    uint32_t kept;

    posts_make(bed, 1);
    kept = bed_write(bed, 9);
    WAIT(&bed->rig, ended_with(&bed->from, NXL_OK, 1) == 1);
    assert_null(client_end(&bed->from, kept));
    nxl_xfer_cancel(bed->from.session, 9, kept);
    WAIT(&bed->rig, client_ended(&bed->from, kept, NXL_OK, 1));
    bed_free(bed);
}

/* The end comes first, the last row is written after it, then it is quiet: only then are the
 * buffers the client's (C-007). */
static void a_row_that_is_written_late_is_there_when_it_is_quiet(void **state)
{
    struct bed *bed = bed_new("fault:shm", "backends.fault.late_every", "1",
                              "backends.fault.late_write", "30ms", NULL);
    uint32_t post;

    memset(bed->from.base, 9, 4096);
    post = bed_write(bed, 0);
    WAIT(&bed->rig, client_end(&bed->from, post) != NULL);
    assert_true(client_ended(&bed->from, post, NXL_OK, 0));
    assert_int_equal(bed->to.base[4096], 0);
    WAIT(&bed->rig, client_ended(&bed->from, post, NXL_OK, 1));
    assert_memory_equal(bed->to.base + 4096, bed->from.base, 4096);
    assert_int_equal(client_end(&bed->from, post)->updates, 2);
    bed_free(bed);
}

/* A wrong byte under "success" is found by the digest, which ends it as a failure (C-110). */
static void a_lie_about_bytes_is_found_by_the_digest(void **state)
{
    static const char *const lies[] = {"backends.fault.flip_every", "backends.fault.skip_every"};

    for (size_t i = 0; i < NXL_COUNT_OF(lies); i++) {
        struct bed *bed = bed_new("fault:shm", lies[i], "2", NULL);
        uint32_t right, wrong;

        memset(bed->from.base, 5, 4096);
        client_prepare(&bed->from, 0, NXL_WRITE, bed->remote, 0, 0, 4096)->verify = 1;
        right = client_post(&bed->from);
        WAIT(&bed->rig, client_ended(&bed->from, right, NXL_OK, 1));
        client_prepare(&bed->from, 0, NXL_WRITE, bed->remote, 0, 8192, 4096)->verify = 1;
        wrong = client_post(&bed->from);
        WAIT(&bed->rig, client_ended(&bed->from, wrong, NXL_DIGEST, 1));
        assert_int_equal(rig_metric(bed->engine, "nixlet_digest_mismatches_total", ""), 1);
        bed_free(bed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_post_ends_once_whatever_the_backend_does),
        cmocka_unit_test(a_failure_after_the_bytes_moved_is_a_failure_too),
        cmocka_unit_test(the_code_of_a_failure_is_the_backends),
        cmocka_unit_test(a_backend_that_never_answers_is_ended_by_the_deadline),
        cmocka_unit_test(a_backend_that_never_answers_is_ended_by_a_cancel),
        cmocka_unit_test(a_row_that_is_written_late_is_there_when_it_is_quiet),
        cmocka_unit_test(a_lie_about_bytes_is_found_by_the_digest),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
