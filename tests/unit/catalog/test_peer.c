/* test_peer.c - incarnations: prefixes, lives, second lives, the remembered dead, walks. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "catalog/peer.h"
#include "catalog/region.h"

struct rig {
    struct nxl_catalog *catalog;
    uint32_t told;
    char last[NXL_INCARNATION_MAX + 1];
    enum nxl_life from, to;
    char reason[64];
    int remove_when_dead, add_when_dead;
    enum nxl_code add_code;
};

static void rig_on_life(void *arg, struct nxl_catalog_peer *peer, enum nxl_life from,
                        const char *reason)
{
    struct rig *rig = arg;

    rig->told++;
    rig->from = from;
    rig->to = peer->life;
    snprintf(rig->last, sizeof(rig->last), "%s", peer->incarnation);
    snprintf(rig->reason, sizeof(rig->reason), "%s", reason);
    if (peer->life == NXL_LIFE_DEAD && rig->add_when_dead) {
        struct nxl_catalog_peer *again;
        struct nxl_err err;

        rig->add_code =
            nxl_catalog_add(rig->catalog, peer->ns, peer->name, peer->incarnation, 0, &again, &err);
    }
    if (peer->life == NXL_LIFE_DEAD && rig->remove_when_dead)
        nxl_catalog_remove(rig->catalog, peer);
}

static int rig_open(void **state)
{
    struct rig *rig = nxl_new0(sizeof(*rig));

    rig->catalog = nxl_catalog_new(rig_on_life, rig);
    *state = rig;
    return 0;
}

static int rig_close(void **state)
{
    struct rig *rig = *state;

    nxl_catalog_free(rig->catalog);
    nxl_freep(state);
    return 0;
}

static struct nxl_catalog_peer *add(struct rig *rig, const char *name, const char *incarnation,
                                    int local)
{
    struct nxl_catalog_peer *peer = NULL;
    struct nxl_err err;

    assert_int_equal(
        nxl_catalog_add(rig->catalog, "default", name, incarnation, local, &peer, &err), NXL_OK);
    assert_non_null(peer);
    return peer;
}

static enum nxl_code try_add(struct rig *rig, const char *name, const char *incarnation, int local,
                             struct nxl_err *err)
{
    struct nxl_catalog_peer *peer = NULL;
    enum nxl_code code =
        nxl_catalog_add(rig->catalog, "default", name, incarnation, local, &peer, err);

    assert_true((code == NXL_OK) == (peer != NULL)); /* ret is written on success only */
    return code;
}

static void a_prefix_covers_whole_components(void **state)
{
    static const struct {
        const char *prefix, *incarnation;
        int covers;
    } rows[] = {
        {"a", "a/b/c", 1},      {"a/b", "a/b/c", 1},     {"a/b/c", "a/b/c", 1},
        {"a/b", "a/bc", 0},     {"a", "ab/c", 0},        {"a/b/c", "a/b", 0},
        {"", "a", 0},           {"a/", "a/b", 0},        {"b", "a/b", 0},
        {"a/b/c", "a/b/cd", 0}, {"a/b/c", "a/b/c.1", 0},
    };

    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        if (nxl_incarnation_covers(rows[i].prefix, rows[i].incarnation) != rows[i].covers)
            fail_msg("'%s' and '%s'", rows[i].prefix, rows[i].incarnation);
    }
}

static void incarnations_have_one_to_three_clean_components(void **state)
{
    static const char *const good[] = {"a", "a/b", "a/b/c", "0-9._Zz/x/1"};
    static const char *const bad[] = {"",     "/",   "a/",    "/a", "a//b", "a/b/c/d",
                                      "a/b/", "a b", "a/b\n", "ä",  "a:b"};
    char text[NXL_INCARNATION_MAX + 2];

    for (size_t i = 0; i < NXL_COUNT_OF(good); i++)
        assert_true(nxl_incarnation_valid(good[i]));
    for (size_t i = 0; i < NXL_COUNT_OF(bad); i++)
        assert_false(nxl_incarnation_valid(bad[i]));
    memset(text, 'a', sizeof(text));
    text[NXL_INCARNATION_MAX] = '\0';
    assert_true(nxl_incarnation_valid(text));
    text[NXL_INCARNATION_MAX] = 'a';
    text[NXL_INCARNATION_MAX + 1] = '\0';
    assert_false(nxl_incarnation_valid(text));
}

static void an_added_peer_is_found_by_name_and_incarnation(void **state)
{
    struct rig *rig = *state;
    struct nxl_catalog_peer *peer = add(rig, "decode", "p/c/1", 1);

    assert_ptr_equal(nxl_catalog_current(rig->catalog, "default", "decode"), peer);
    assert_ptr_equal(nxl_catalog_by_incarnation(rig->catalog, "p/c/1"), peer);
    assert_null(nxl_catalog_current(rig->catalog, "other", "decode"));
    assert_null(nxl_catalog_current(rig->catalog, "defaultdecode", ""));
    assert_null(nxl_catalog_by_incarnation(rig->catalog, "p/c"));
    assert_int_equal(peer->life, NXL_LIFE_LIVE);
    assert_int_equal(nxl_region_table_count(peer->regions), 0);
    assert_true(peer->since_ns > 0);
    assert_ptr_equal(add(rig, "decode", "p/c/1", 1), peer);
    assert_int_equal(nxl_catalog_count(rig->catalog, 1), 1);
    assert_int_equal(nxl_catalog_count(rig->catalog, 0), 0);
}

static void bad_additions_are_refused_and_change_nothing(void **state)
{
    struct rig *rig = *state;
    struct nxl_err err;
    char name[NXL_NAME_MAX + 2];

    (void)add(rig, "far", "p/c/1", 0);
    assert_int_equal(try_add(rig, "other", "p/c/1", 0, &err), NXL_NOT_ALLOWED);
    assert_non_null(strstr(err.text, "p/c/1 is peer default/far"));
    assert_int_equal(try_add(rig, "far", "p/c/1", 1, &err), NXL_NOT_ALLOWED);
    assert_int_equal(try_add(rig, "", "p/c/2", 0, &err), NXL_INVALID_PARAM);
    assert_int_equal(try_add(rig, "x", "p//2", 0, &err), NXL_INVALID_PARAM);
    memset(name, 'n', sizeof(name));
    name[NXL_NAME_MAX + 1] = '\0';
    assert_int_equal(try_add(rig, name, "p/c/2", 0, &err), NXL_INVALID_PARAM);
    assert_null(nxl_catalog_current(rig->catalog, "default", name));
    name[NXL_NAME_MAX] = '\0';
    assert_int_equal(try_add(rig, name, "p/c/2", 0, &err), NXL_OK);
    assert_non_null(nxl_catalog_current(rig->catalog, "default", name));
    assert_int_equal(nxl_catalog_count(rig->catalog, 0), 2);
}

static void the_second_life_of_a_name_is_current_at_once(void **state)
{
    struct rig *rig = *state;
    struct nxl_catalog_peer *first = add(rig, "prefill", "p/c1/1", 0), *second, *third;

    second = add(rig, "prefill", "p/c2/1", 0);
    assert_ptr_equal(nxl_catalog_current(rig->catalog, "default", "prefill"), second);
    assert_ptr_equal(nxl_catalog_by_incarnation(rig->catalog, "p/c1/1"),
                     first); /* the first is still itself */
    third = add(rig, "prefill", "p/c3/1", 0);
    assert_int_equal(nxl_catalog_set_life(rig->catalog, "p/c2", NXL_LIFE_DEAD, "killed"), 1);
    assert_ptr_equal(nxl_catalog_current(rig->catalog, "default", "prefill"), third);
    nxl_catalog_remove(rig->catalog, third);
    assert_ptr_equal(nxl_catalog_current(rig->catalog, "default", "prefill"), first);
    assert_int_equal(nxl_catalog_set_life(rig->catalog, "p/c1/1", NXL_LIFE_DEAD, "killed"), 1);
    assert_null(nxl_catalog_current(rig->catalog, "default", "prefill"));
    assert_ptr_equal(nxl_catalog_by_incarnation(rig->catalog, "p/c1/1"),
                     first); /* dead, but known */
}

static void life_only_moves_right_and_is_said_once(void **state)
{
    struct rig *rig = *state;
    struct nxl_catalog_peer *peer = add(rig, "a", "p/c/1", 0);

    (void)add(rig, "b", "p/c/2", 0);
    (void)add(rig, "c", "pc/c/1", 0);
    assert_int_equal(nxl_catalog_set_life(rig->catalog, "p/c", NXL_LIFE_DRAINING, "pod goes"), 2);
    assert_int_equal(rig->told, 2);
    assert_int_equal(rig->from, NXL_LIFE_LIVE);
    assert_ptr_equal(nxl_catalog_current(rig->catalog, "default", "a"),
                     peer); /* draining still is */
    assert_int_equal(nxl_catalog_set_life(rig->catalog, "p", NXL_LIFE_DRAINING, "again"), 0);
    assert_int_equal(nxl_catalog_set_life(rig->catalog, "p/c/1", NXL_LIFE_DEAD, "killed"), 1);
    assert_string_equal(rig->last, "p/c/1");
    assert_string_equal(rig->reason, "killed");
    assert_int_equal(rig->from, NXL_LIFE_DRAINING);
    assert_int_equal(rig->to, NXL_LIFE_DEAD);
    assert_int_equal(nxl_catalog_set_life(rig->catalog, "p/c/1", NXL_LIFE_LIVE, "no"), 0);
    assert_int_equal(nxl_catalog_set_life(rig->catalog, "p/c/1", NXL_LIFE_DEAD, "no"), 0);
    assert_int_equal(nxl_catalog_set_life(rig->catalog, "p/c/1/x", NXL_LIFE_DEAD, "no"), 0);
    assert_int_equal(nxl_catalog_set_life(rig->catalog, "", NXL_LIFE_DEAD, "no"), 0);
    assert_int_equal(rig->told, 3);
    assert_int_equal(peer->life, NXL_LIFE_DEAD);
}

static void a_late_record_of_the_dead_is_refused(void **state)
{
    struct rig *rig = *state; /* C-041 */
    struct nxl_err err;

    assert_int_equal(nxl_catalog_set_life(rig->catalog, "p/c", NXL_LIFE_DEAD, "never seen alive"),
                     0);
    assert_int_equal(try_add(rig, "a", "p/c/1", 0, &err), NXL_STALE);
    assert_non_null(strstr(err.text, "p/c/1 of peer default/a is dead"));
    assert_int_equal(try_add(rig, "a", "p/c", 0, &err), NXL_STALE);
    assert_int_equal(try_add(rig, "a", "p/c2/1", 0, &err), NXL_OK);
    assert_true(nxl_catalog_is_dead(rig->catalog, "p/c/1"));
    assert_false(nxl_catalog_is_dead(rig->catalog, "p"));
    assert_false(nxl_catalog_is_dead(rig->catalog, "p/c2/1"));
    assert_int_equal(nxl_catalog_set_life(rig->catalog, "p", NXL_LIFE_DEAD, "pod gone"), 1);
    assert_int_equal(try_add(rig, "a", "p/c3/1", 0, &err), NXL_STALE);
}

static void bury(struct rig *rig, uint32_t number)
{
    char text[40];

    snprintf(text, sizeof(text), "pod%u/c/s", number);
    (void)nxl_catalog_set_life(rig->catalog, text, NXL_LIFE_DEAD, "test");
}

static void the_oldest_of_65536_dead_is_forgotten_first(void **state)
{
    struct rig *rig = *state;
    struct nxl_catalog_peer *kept = add(rig, "kept", "pod0/c/s", 0);

    for (uint32_t i = 0; i < 65536; i++)
        bury(rig, i);
    bury(rig, 70); /* said again: takes no room */
    assert_true(nxl_catalog_is_dead(rig->catalog, "pod1/c/s"));
    bury(rig, 65536);
    bury(rig, 65537);
    assert_false(nxl_catalog_is_dead(rig->catalog, "pod1/c/s"));
    assert_true(nxl_catalog_is_dead(rig->catalog, "pod2/c/s"));
    assert_true(nxl_catalog_is_dead(rig->catalog, "pod65537/c/s"));
    assert_true(nxl_catalog_is_dead(rig->catalog,
                                    "pod0/c/s")); /* its prefix is forgotten, the peer is not */
    assert_int_equal(kept->life, NXL_LIFE_DEAD);
}

static void remembered(void *arg, struct nxl_catalog_peer *peer)
{
    (void)peer;
    ++*(uint32_t *)arg;
}

static void suspicion_comes_and_goes_but_not_on_the_dead(void **state)
{
    struct rig *rig = *state;
    struct nxl_catalog_peer *a = add(rig, "a", "n/c/1", 0), *b = add(rig, "b", "n/c/2", 0);
    uint32_t told = 0;

    assert_int_equal(nxl_catalog_set_life(rig->catalog, "n/c/2", NXL_LIFE_DEAD, "gone"), 1);
    assert_int_equal(nxl_catalog_set_suspect(rig->catalog, "n", 1, remembered, &told), 1);
    assert_int_equal(nxl_catalog_set_suspect(rig->catalog, "n/c/1", 1, remembered, &told), 0);
    assert_true(a->suspect);
    assert_false(b->suspect);
    assert_int_equal(nxl_catalog_set_suspect(rig->catalog, "n/c/1", 0, remembered, &told), 1);
    assert_false(a->suspect);
    assert_int_equal(told, 2);
    assert_int_equal(rig->told, 1);
}

static void memory_stays_until_the_last_reference(void **state)
{
    struct rig *rig = *state;
    struct nxl_catalog_peer *peer = add(rig, "a", "p/c/1", 1);

    nxl_catalog_ref(peer);
    nxl_catalog_ref(peer);
    nxl_catalog_remove(rig->catalog, peer);
    nxl_catalog_remove(rig->catalog, peer); /* once is enough */
    assert_null(nxl_catalog_by_incarnation(rig->catalog, "p/c/1"));
    assert_null(nxl_catalog_current(rig->catalog, "default", "a"));
    assert_int_equal(nxl_catalog_count(rig->catalog, 1), 0);
    nxl_catalog_unref(rig->catalog, peer);
    assert_string_equal(peer->name, "a"); /* ASan would tell */
    nxl_catalog_unref(rig->catalog, peer);
    nxl_catalog_unref(rig->catalog, NULL);
}

static void a_life_callback_may_remove_and_cannot_revive(void **state)
{
    struct rig *rig = *state;

    for (int i = 0; i < 20; i++) {
        char incarnation[20];

        snprintf(incarnation, sizeof(incarnation), "p/c/%d", i);
        (void)add(rig, i % 2 ? "odd" : "even", incarnation, 0);
    }
    rig->remove_when_dead = rig->add_when_dead = 1;
    assert_int_equal(nxl_catalog_set_life(rig->catalog, "p/c/7", NXL_LIFE_DEAD, "one"), 1);
    assert_int_equal(rig->add_code, NXL_STALE);
    assert_int_equal(nxl_catalog_set_life(rig->catalog, "p", NXL_LIFE_DEAD, "all"), 19);
    assert_int_equal(nxl_catalog_count(rig->catalog, 0), 0);
    assert_null(nxl_catalog_current(rig->catalog, "default", "odd"));
}

struct visit {
    struct rig *rig;
    char seen[80];
    int what;
    struct nxl_catalog_peer *other;
};

static int visit_one(void *arg, struct nxl_catalog_peer *peer)
{
    struct visit *visit = arg;

    strcat(visit->seen, peer->name);
    if (visit->what == 1)
        nxl_catalog_remove(visit->rig->catalog, peer);
    if (visit->what == 2 && strcmp(peer->name, "b") == 0)
        nxl_catalog_remove(visit->rig->catalog, visit->other);
    if (visit->what == 3) {
        char name[24];

        snprintf(name, sizeof(name), "%.20sx", peer->name);
        (void)add(visit->rig, name, name, 0);
    }
    if (visit->what == 6 && strcmp(peer->name, "a") == 0) {
        nxl_catalog_remove(visit->rig->catalog, visit->other);
        nxl_catalog_unref(visit->rig->catalog, visit->other);
    }
    if (visit->what == 4 && visit->other != NULL) {
        nxl_catalog_unref(visit->rig->catalog, visit->other);
        visit->other = NULL;
    }
    return visit->what == 5 && strcmp(peer->name, "b") == 0 ? 42 : 0;
}

static void a_walk_is_in_order_and_stands_changes(void **state)
{
    struct rig *rig = *state;
    struct visit visit = {.rig = rig};
    struct nxl_catalog_peer *c, *gone;

    (void)add(rig, "a", "1", 0);
    (void)add(rig, "b", "2", 1);
    c = add(rig, "c", "3", 0);
    (void)add(rig, "d", "4", 0);
    visit.what = 5;
    assert_int_equal(nxl_catalog_each(rig->catalog, visit_one, &visit), 42);
    assert_string_equal(visit.seen, "ab");

    visit = (struct visit){.rig = rig, .what = 2, .other = c}; /* the next one goes */
    assert_int_equal(nxl_catalog_each(rig->catalog, visit_one, &visit), 0);
    assert_string_equal(visit.seen, "abd");

    gone =
        add(rig, "g", "5", 0); /* removed before, let go during the walk: no leak, no double free */
    nxl_catalog_ref(gone);
    nxl_catalog_remove(rig->catalog, gone);
    visit = (struct visit){.rig = rig, .what = 4, .other = gone};
    assert_int_equal(nxl_catalog_each(rig->catalog, visit_one, &visit), 0);
    assert_string_equal(visit.seen, "abd");

    gone =
        nxl_catalog_by_incarnation(rig->catalog, "2"); /* the next one, with its last reference */
    nxl_catalog_ref(gone);
    visit = (struct visit){.rig = rig, .what = 6, .other = gone};
    assert_int_equal(nxl_catalog_each(rig->catalog, visit_one, &visit), 0);
    assert_string_equal(visit.seen, "ad");
    (void)add(rig, "b", "6", 0);

    visit = (struct visit){.rig = rig, .what = 3}; /* what is added is not visited */
    assert_int_equal(nxl_catalog_each(rig->catalog, visit_one, &visit), 0);
    assert_string_equal(visit.seen, "adb");
    assert_int_equal(nxl_catalog_count(rig->catalog, 0), 6);

    visit = (struct visit){.rig = rig, .what = 1};
    assert_int_equal(nxl_catalog_each(rig->catalog, visit_one, &visit), 0);
    assert_string_equal(visit.seen, "adbaxdxbx");
    assert_int_equal(nxl_catalog_count(rig->catalog, 0) + nxl_catalog_count(rig->catalog, 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prefix_covers_whole_components),
        cmocka_unit_test(incarnations_have_one_to_three_clean_components),
        cmocka_unit_test_setup_teardown(an_added_peer_is_found_by_name_and_incarnation, rig_open,
                                        rig_close),
        cmocka_unit_test_setup_teardown(bad_additions_are_refused_and_change_nothing, rig_open,
                                        rig_close),
        cmocka_unit_test_setup_teardown(the_second_life_of_a_name_is_current_at_once, rig_open,
                                        rig_close),
        cmocka_unit_test_setup_teardown(life_only_moves_right_and_is_said_once, rig_open,
                                        rig_close),
        cmocka_unit_test_setup_teardown(a_late_record_of_the_dead_is_refused, rig_open, rig_close),
        cmocka_unit_test_setup_teardown(the_oldest_of_65536_dead_is_forgotten_first, rig_open,
                                        rig_close),
        cmocka_unit_test_setup_teardown(suspicion_comes_and_goes_but_not_on_the_dead, rig_open,
                                        rig_close),
        cmocka_unit_test_setup_teardown(memory_stays_until_the_last_reference, rig_open, rig_close),
        cmocka_unit_test_setup_teardown(a_life_callback_may_remove_and_cannot_revive, rig_open,
                                        rig_close),
        cmocka_unit_test_setup_teardown(a_walk_is_in_order_and_stands_changes, rig_open, rig_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
