/* test_queue.c - the work queue: its promises one by one, and a million random calls against a
 * simple model of it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include "reconcile/queue.h"

#include <stdio.h>
#include <string.h>

#define MS 1000000ull

static void a_key_added_often_is_worked_on_once(void **state)
{
    struct nxl_queue *queue = nxl_queue_new(NULL);

    for (int i = 0; i < 10000; i++)
        assert_int_equal(nxl_queue_add(queue, "a", 5), 1);
    assert_int_equal(nxl_queue_depth(queue), 1);
    assert_string_equal(nxl_queue_take(queue, 5), "a");
    assert_null(nxl_queue_take(queue, 5));
    nxl_queue_done(queue, "a", 6);
    assert_null(nxl_queue_take(queue, 1000));
    nxl_queue_free(queue);
}

static void a_key_in_work_comes_again_only_after_done(void **state)
{
    struct nxl_queue *queue = nxl_queue_new(NULL);

    nxl_queue_add(queue, "a", 1);
    assert_string_equal(nxl_queue_take(queue, 1), "a");
    nxl_queue_add(queue, "a", 2);
    nxl_queue_add(queue, "a", 3);
    assert_null(nxl_queue_take(queue, 10));
    assert_int_equal(nxl_queue_in_work(queue), 1);
    nxl_queue_done(queue, "a", 4);
    assert_string_equal(nxl_queue_take(queue, 10), "a");
    nxl_queue_done(queue, "a", 11);
    assert_int_equal(nxl_queue_next_ns(queue), UINT64_MAX);
    nxl_queue_free(queue);
}

static void failures_wait_twice_as_long_each_time_and_end_at_the_limit(void **state)
{
    struct nxl_queue *queue = nxl_queue_new(
        &(struct nxl_queue_options){.backoff_min_ns = 5 * MS, .backoff_max_ns = 50 * MS});
    static const uint64_t waits[] = {5, 10, 20, 40, 50, 50};
    uint64_t now = 0;

    nxl_queue_add(queue, "a", now);
    for (int i = 0; i < 6; i++) {
        assert_string_equal(nxl_queue_take(queue, now), "a");
        assert_int_equal(nxl_queue_retry(queue, "a", now, 0), now + waits[i] * MS);
        nxl_queue_add(queue, "a", now); /* does not shorten it */
        now += waits[i] * MS;
        assert_null(nxl_queue_take(queue, now - 1));
    }
    assert_int_equal(nxl_queue_failures(queue, "a"), 6);
    assert_string_equal(nxl_queue_take(queue, now), "a");
    nxl_queue_done(queue, "a", now);
    assert_int_equal(nxl_queue_failures(queue, "a"), 0);
    /* A server that says when: not before. */
    nxl_queue_add(queue, "a", now);
    assert_string_equal(nxl_queue_take(queue, now), "a");
    assert_int_equal(nxl_queue_retry(queue, "a", now, now + 999 * MS), now + 999 * MS);
    nxl_queue_free(queue);
}

static void later_comes_later_and_earlier_wins(void **state)
{
    struct nxl_queue *queue = nxl_queue_new(NULL);

    nxl_queue_add_at(queue, "a", 100);
    nxl_queue_add_at(queue, "b", 50);
    nxl_queue_add_at(queue, "a", 200); /* already earlier */
    assert_int_equal(nxl_queue_next_ns(queue), 50);
    nxl_queue_add_at(queue, "a", 20);
    assert_string_equal(nxl_queue_take(queue, 20), "a");
    assert_null(nxl_queue_take(queue, 49));
    assert_string_equal(nxl_queue_take(queue, 50), "b");
    nxl_queue_add_at(queue, "b", 900); /* wanted later, while in work */
    nxl_queue_done(queue, "b", 60);
    assert_int_equal(nxl_queue_next_ns(queue), 900);
    nxl_queue_forget(queue, "b");
    assert_int_equal(nxl_queue_next_ns(queue), UINT64_MAX);
    nxl_queue_free(queue);
}

static void it_has_limits(void **state)
{
    struct nxl_queue *queue = nxl_queue_new(&(struct nxl_queue_options){.keys_max = 2});
    char key[NXL_QUEUE_KEY_MAX + 2];

    memset(key, 'x', sizeof(key));
    key[NXL_QUEUE_KEY_MAX + 1] = '\0';
    assert_int_equal(nxl_queue_add(queue, key, 0), 0);
    assert_int_equal(nxl_queue_add(queue, "a", 0), 1);
    assert_int_equal(nxl_queue_add(queue, "b", 0), 1);
    assert_int_equal(nxl_queue_add(queue, "c", 0), 0);
    assert_int_equal(nxl_queue_add(queue, "a", 0), 1);
    nxl_queue_free(queue);
}

/* ---- the model: an array of keys, searched from end to end ------------------------------------
 */

#define KEYS 64

struct model_key {
    int waits, in_work, punished;
    unsigned failures;
    uint64_t due, again, order;
};

struct model {
    struct model_key keys[KEYS];
    uint64_t order;
};

static void model_wait(struct model *model, struct model_key *key, uint64_t due)
{
    key->waits = 1;
    key->due = due;
    key->order = model->order++;
}

static void model_add(struct model *model, unsigned k, uint64_t at)
{
    struct model_key *key = &model->keys[k];

    if (key->in_work)
        key->again = at < key->again ? at : key->again;
    else if (!key->waits || (!key->punished && at < key->due))
        model_wait(model, key, at);
}

static int model_take(struct model *model, uint64_t now)
{
    int best = -1;

    for (int k = 0; k < KEYS; k++) {
        const struct model_key *key = &model->keys[k], *b = best >= 0 ? &model->keys[best] : NULL;

        if (key->waits && key->due <= now &&
            (b == NULL || key->due < b->due || (key->due == b->due && key->order < b->order)))
            best = k;
    }
    if (best >= 0) {
        model->keys[best].waits = model->keys[best].punished = 0;
        model->keys[best].in_work = 1;
        model->keys[best].again = UINT64_MAX;
    }
    return best;
}

static void model_done(struct model *model, unsigned k)
{
    struct model_key *key = &model->keys[k];

    key->in_work = 0;
    key->failures = 0;
    if (key->again != UINT64_MAX)
        model_wait(model, key, key->again);
}

static uint64_t model_retry(struct model *model, unsigned k, uint64_t now)
{
    struct model_key *key = &model->keys[k];
    uint64_t wait = key->failures < 20 ? 5 * MS << key->failures : 1000 * MS;

    key->in_work = 0;
    key->failures++;
    key->punished = 1;
    model_wait(model, key, now + (wait > 1000 * MS ? 1000 * MS : wait));
    return key->due;
}

static uint64_t random_next(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

static void check_counts(const struct nxl_queue *queue, const struct model *model)
{
    uint32_t waits = 0, in_work = 0;
    uint64_t next = UINT64_MAX;

    for (int k = 0; k < KEYS; k++) {
        waits += (uint32_t)model->keys[k].waits;
        in_work += (uint32_t)model->keys[k].in_work;
        if (model->keys[k].waits && model->keys[k].due < next)
            next = model->keys[k].due;
    }
    assert_int_equal(nxl_queue_depth(queue), waits);
    assert_int_equal(nxl_queue_in_work(queue), in_work);
    assert_int_equal(nxl_queue_next_ns(queue), next);
}

static void a_million_random_calls_agree_with_the_model(void **state)
{
    struct nxl_queue *queue = nxl_queue_new(
        &(struct nxl_queue_options){.backoff_min_ns = 5 * MS, .backoff_max_ns = 1000 * MS});
    static struct model model;
    uint64_t seed = 88172645463325252ull, now = 0;
    unsigned taken = 0;

    for (unsigned i = 0; i < 1000000; i++) {
        uint64_t r = random_next(&seed);
        unsigned k = (unsigned)(r >> 8) % KEYS;
        char name[16];
        const char *got;

        snprintf(name, sizeof(name), "k%u", k);
        switch (r % 8) {
        case 0:
        case 1:
            assert_int_equal(nxl_queue_add(queue, name, now), 1);
            model_add(&model, k, now);
            break;
        case 2:
            assert_int_equal(nxl_queue_add_at(queue, name, now + (r >> 32) % (100 * MS)), 1);
            model_add(&model, k, now + (r >> 32) % (100 * MS));
            break;
        case 3:
        case 4: {
            int wanted = model_take(&model, now);

            got = nxl_queue_take(queue, now);
            assert_int_equal(got == NULL, wanted < 0);
            if (got != NULL) {
                snprintf(name, sizeof(name), "k%d", wanted);
                assert_string_equal(got, name);
                taken++;
            }
            break;
        }
        case 5:
            if (model.keys[k].in_work) {
                nxl_queue_done(queue, name, now);
                model_done(&model, k);
            }
            break;
        case 6:
            if (model.keys[k].in_work && (r >> 20) % 4 == 0) {
                uint64_t wanted = model_retry(&model, k, now);

                assert_int_equal(nxl_queue_retry(queue, name, now, 0), wanted);
            } else if (model.keys[k].in_work) {
                nxl_queue_done(queue, name, now);
                model_done(&model, k);
            }
            break;
        default:
            now += (r >> 16) % (3 * MS);
        }
        if (i % 1000 == 0)
            check_counts(queue, &model);
    }
    assert_true(taken > 100000);
    nxl_queue_free(queue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_added_often_is_worked_on_once),
        cmocka_unit_test(a_key_in_work_comes_again_only_after_done),
        cmocka_unit_test(failures_wait_twice_as_long_each_time_and_end_at_the_limit),
        cmocka_unit_test(later_comes_later_and_earlier_wins),
        cmocka_unit_test(it_has_limits),
        cmocka_unit_test(a_million_random_calls_agree_with_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
