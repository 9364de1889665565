/* test_choice.c - which backend a plan takes, and why one is refused; the cost estimate. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "plan/cost.h"
#include "plan/policy.h"
#include "unit/plan/rig.h"

/* One pair of 1 MiB, and two backends: 0 "near" and 1 "far". */
static int choice_open(void **state)
{
    const struct nxl_run local = {0x100000, 1 << 20, 0, 1, 0},
                         remote = {0x900000, 1 << 20, 0, 1, 0};
    struct rig *rig;

    rig_open(state);
    rig = *state;
    (void)rig_region(&rig->local, 0x100000, 1 << 20);
    (void)rig_region(&rig->remote, 0x900000, 1 << 20);
    rig_runs(&rig->local, &local, 1);
    rig_runs(&rig->remote, &remote, 1);
    (void)rig_candidate(rig, "near");
    (void)rig_candidate(rig, "far");
    return 0;
}

static void cost_counts_operation_pieces_and_bytes(void **state)
{
    static const struct {
        uint64_t op_ns, piece_ns, kib_ns, pieces, bytes, expected;
    } rows[] = {
        {0, 0, 0, 1000, 1 << 20, 0},
        {500, 0, 0, 1, 8, 500},
        {500, 20, 0, 10, 8, 700},
        {500, 20, 100, 10, 4096, 1100},
        {0, 0, 100, 1, 1536, 150},
        {0, 0, 100, 1, 10, 0},
        {0, 0, 1000, 1, 10, 9},
        {0, UINT64_MAX, 0, 2, 0, UINT64_MAX},
        {0, 0, UINT64_MAX, 1, 4096, UINT64_MAX},
        {UINT64_MAX, 1, 0, 1, 0, UINT64_MAX},
    };

    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        struct nxl_backend_caps caps = {
            .op_ns = rows[i].op_ns, .piece_ns = rows[i].piece_ns, .kib_ns = rows[i].kib_ns};

        assert_true(nxl_cost_ns(&caps, rows[i].pieces, rows[i].bytes) == rows[i].expected);
    }
}

static void the_cheapest_wins_and_ties_go_to_the_better_path(void **state)
{
    static const struct {
        const char *what;
        uint64_t op_ns[2], kib_ns[2];
        int path[2], avoid[2];
        uint32_t instance;
    } rows[] = {
        {"cheaper by bytes", {1000, 5000}, {100, 50}, {NXL_PATH_TCP, NXL_PATH_TCP}, {0, 0}, 1},
        {"cheaper by operation",
         {1000, 900000},
         {100, 50},
         {NXL_PATH_TCP, NXL_PATH_RDMA},
         {0, 0},
         0},
        {"equal cost: better path",
         {1000, 1000},
         {50, 50},
         {NXL_PATH_TCP, NXL_PATH_RDMA},
         {0, 0},
         1},
        {"equal in all: lower index",
         {1000, 1000},
         {50, 50},
         {NXL_PATH_TCP, NXL_PATH_TCP},
         {0, 0},
         0},
        {"the cheaper one just failed",
         {1000, 1000},
         {50, 5000},
         {NXL_PATH_RDMA, NXL_PATH_TCP},
         {1, 0},
         1},
        {"both just failed", {1000, 1000}, {50, 5000}, {NXL_PATH_RDMA, NXL_PATH_TCP}, {1, 1}, 0},
    };
    struct rig *rig = *state;

    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        print_message("  %s\n", rows[i].what);
        for (int turn = 0; turn < 2; turn++) { /* the order of the candidates does not matter */
            for (uint32_t k = 0; k < 2; k++) {
                struct nxl_plan_candidate *candidate = &rig->candidates[turn ? 1 - k : k];

                candidate->instance = k;
                candidate->name = k == 0 ? "near" : "far";
                candidate->caps.op_ns = rows[i].op_ns[k];
                candidate->caps.kib_ns = rows[i].kib_ns[k];
                candidate->caps.path = rows[i].path[k];
                candidate->avoid = rows[i].avoid[k];
            }
            assert_int_equal(rig_plan(rig, 1), NXL_OK);
            assert_int_equal(rig->plan->instance, rows[i].instance);
            assert_int_equal(rig->plan->path, rows[i].path[rows[i].instance]);
            assert_int_equal(rig->plan->protocol, NXL_PROTOCOL_DIRECT);
            assert_int_equal(rig->plan->cost_ns, rows[i].op_ns[rows[i].instance] +
                                                     1024 * rows[i].kib_ns[rows[i].instance]);
        }
    }
}

/* C-103: the number of pieces a backend would really get decides, rows and cuts included. */
static void many_pieces_make_a_backend_dear(void **state)
{
    struct rig *rig = *state;
    const struct nxl_run local = {0x100000, 1024, 2048, 500, 0},
                         remote = {0x900000, 1024, 1024, 500, 0};

    rig_side_list(&rig->local);
    rig_side_list(&rig->remote);
    rig_runs(&rig->local, &local, 1);
    rig_runs(&rig->remote, &remote, 1);
    rig->candidates[0].caps.flags = NXL_CAP_REMOTE; /* no strides: 500 pieces */
    rig->candidates[0].caps.piece_ns = 100;
    rig->candidates[1].caps.piece_ns = 100;
    rig->candidates[1].caps.op_ns = 20000;
    assert_int_equal(rig_plan(rig, 500), NXL_OK);
    assert_int_equal(rig->plan->instance, 1);
    assert_int_equal(rig->plan->cost_ns, 20100);
    rig->candidates[1].caps.op_ns = 60000;
    assert_int_equal(rig_plan(rig, 500), NXL_OK);
    assert_int_equal(rig->plan->instance, 0);
    assert_int_equal(rig->plan->piece_count, 500);
    assert_int_equal(rig->plan->cost_ns, 50000);
    rig->candidates[0].caps.piece_len_max = 256;
    assert_int_equal(rig_plan(rig, 500), NXL_OK);
    assert_int_equal(rig->plan->instance, 1);
}

static void a_backend_needs_every_used_region_on_both_sides(void **state)
{
    static const struct {
        const char *what;
        int local_mem, remote_mem, remote_key, within, reachable;
        uint32_t flags;
        const char *refusal; /* NULL: it fits */
    } rows[] = {
        {"another agent", 1, 0, 1, 0, 1, NXL_CAP_REMOTE, NULL},
        {"same agent", 1, 1, 0, 1, 0, NXL_CAP_LOCAL, NULL},
        {"no local registration", 0, 1, 1, 0, 1, NXL_CAP_REMOTE,
         "near: local region 1 [0x100000, 0x200000) is not registered with it"},
        {"no key", 1, 1, 0, 0, 1, NXL_CAP_REMOTE,
         "near: remote region 1 [0x900000, 0xa00000) has no key for it"},
        {"same agent, other client not registered", 1, 0, 1, 1, 1, NXL_CAP_LOCAL,
         "near: remote region 1 [0x900000, 0xa00000) is not registered with it"},
        {"far agent lacks it", 1, 0, 1, 0, 0, NXL_CAP_REMOTE,
         "near: the far agent does not have it"},
        {"local only", 1, 1, 1, 0, 1, NXL_CAP_LOCAL, "near: cannot reach another agent"},
        {"remote only", 1, 1, 1, 1, 1, NXL_CAP_REMOTE, "near: cannot move within one agent"},
    };
    struct rig *rig = *state;
    struct nxl_catalog_region *local = rig->local.regions[0], *remote = rig->remote.regions[0];

    rig->request.candidate_count = 1;
    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        struct nxl_view key = remote->keys[0];

        print_message("  %s\n", rows[i].what);
        local->mems[0] = rows[i].local_mem ? rig_mark() : NULL;
        remote->mems[0] = rows[i].remote_mem ? rig_mark() : NULL;
        if (!rows[i].remote_key)
            remote->keys[0] = (struct nxl_view){0};
        rig->candidates[0].local = rows[i].within;
        rig->candidates[0].reachable = rows[i].reachable;
        rig->candidates[0].caps.flags = rows[i].flags;
        assert_int_equal(rig_plan(rig, 1), rows[i].refusal == NULL ? NXL_OK : NXL_NOT_FOUND);
        if (rows[i].refusal == NULL)
            assert_int_equal(rig->plan->protocol,
                             rows[i].within ? NXL_PROTOCOL_LOCAL : NXL_PROTOCOL_DIRECT);
        else
            assert_non_null(strstr(rig->err.text, rows[i].refusal));
        remote->keys[0] = key;
    }
}

static void a_region_that_is_not_used_need_not_be_registered(void **state)
{
    struct rig *rig = *state;
    const struct nxl_run more = {0x400000, 1 << 20, 0, 1, 0}, far = {0xb00000, 1 << 20, 0, 1, 0};
    static const uint32_t both[] = {0, 1};

    memset(rig_region(&rig->local, 0x400000, 1 << 20)->mems, 0, sizeof(void *) * NXL_BACKENDS_MAX);
    (void)rig_region(&rig->remote, 0xb00000, 1 << 20);
    rig_runs(&rig->local, &more, 1);
    rig_runs(&rig->remote, &far, 1);
    rig->request.local_index = rig->request.remote_index = both;
    assert_int_equal(rig_plan(rig, 1), NXL_OK);
    assert_int_equal(rig->plan->local_count, 1);
    assert_int_equal(rig_plan(rig, 2), NXL_NOT_FOUND);
    assert_non_null(strstr(rig->err.text, "near: local region 2"));
    assert_non_null(strstr(rig->err.text, "far: local region 2"));
}

static void the_backend_asked_for_is_taken_or_refused(void **state)
{
    struct rig *rig = *state;

    rig->candidates[0].caps.op_ns = 100;
    rig->candidates[1].caps.op_ns = 900;
    rig->request.only = 1;
    assert_int_equal(rig_plan(rig, 1), NXL_OK);
    assert_int_equal(rig->plan->instance, 1);
    rig->candidates[1].reachable = 0;
    assert_int_equal(rig_plan(rig, 1), NXL_NOT_FOUND);
    assert_non_null(
        strstr(rig->err.text, "near: not the one asked for; far: the far agent does not have it"));
    rig->request.candidate_count = 0;
    assert_int_equal(rig_plan(rig, 1), NXL_NOT_FOUND);
    assert_non_null(strstr(rig->err.text, "no backend is open"));
}

static void a_required_path_refuses_slower_ones(void **state)
{
    struct rig *rig = *state;

    rig->candidates[0].caps.path = NXL_PATH_TCP;
    rig->candidates[1].caps.path = NXL_PATH_RDMA;
    rig->candidates[1].caps.op_ns = 1000000; /* dear, but good enough */
    rig->request.min_path = NXL_PATH_TCP;
    assert_int_equal(rig_plan(rig, 1), NXL_OK);
    assert_int_equal(rig->plan->instance, 0);
    rig->request.min_path = NXL_PATH_RDMA;
    assert_int_equal(rig_plan(rig, 1), NXL_OK);
    assert_int_equal(rig->plan->instance, 1);
    rig->candidates[1].avoid = 1; /* better one that just failed than a slow one */
    assert_int_equal(rig_plan(rig, 1), NXL_OK);
    assert_int_equal(rig->plan->instance, 1);
    rig->request.min_path = NXL_PATH_SHARED;
    assert_int_equal(rig_plan(rig, 1), NXL_PATH_REFUSED);
    assert_string_equal(
        rig->err.text,
        "no backend takes path shared or better: near: takes path tcp; far: takes path rdma");
    rig->candidates[0].reachable =
        0; /* one cannot at all, one is too slow: still the policy refuses */
    assert_int_equal(rig_plan(rig, 1), NXL_PATH_REFUSED);
    rig->candidates[1].reachable = 0;
    assert_int_equal(rig_plan(rig, 1), NXL_NOT_FOUND);
}

static void reasons_that_do_not_fit_are_cut_not_lost(void **state)
{
    struct rig *rig = *state;

    while (rig->request.candidate_count < NXL_BACKENDS_MAX)
        (void)rig_candidate(rig, "a-longer-name");
    memset(rig->local.regions[0]->mems, 0, sizeof(rig->local.regions[0]->mems));
    assert_int_equal(rig_plan(rig, 1), NXL_NOT_FOUND);
    assert_non_null(strstr(rig->err.text, "near: local region 1"));
    assert_true(strlen(rig->err.text) > 300);
}

static void path_classes_have_words(void **state)
{
    assert_string_equal(nxl_policy_path_word(NXL_PATH_ONE_COPY), "one-copy");
    assert_string_equal(nxl_policy_path_word(NXL_PATH_NONE), "none");
    assert_string_equal(nxl_policy_path_word(-1), "unknown");
    assert_string_equal(nxl_policy_path_word(6), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cost_counts_operation_pieces_and_bytes),
        cmocka_unit_test_setup_teardown(the_cheapest_wins_and_ties_go_to_the_better_path,
                                        choice_open, rig_close),
        cmocka_unit_test_setup_teardown(many_pieces_make_a_backend_dear, choice_open, rig_close),
        cmocka_unit_test_setup_teardown(a_backend_needs_every_used_region_on_both_sides,
                                        choice_open, rig_close),
        cmocka_unit_test_setup_teardown(a_region_that_is_not_used_need_not_be_registered,
                                        choice_open, rig_close),
        cmocka_unit_test_setup_teardown(the_backend_asked_for_is_taken_or_refused, choice_open,
                                        rig_close),
        cmocka_unit_test_setup_teardown(a_required_path_refuses_slower_ones, choice_open,
                                        rig_close),
        cmocka_unit_test_setup_teardown(reasons_that_do_not_fit_are_cut_not_lost, choice_open,
                                        rig_close),
        cmocka_unit_test(path_classes_have_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
