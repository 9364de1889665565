/* test_status.c - conditions by table, transition times, what is worth a write. */
#include "world_rig.h"

#include <string.h>

struct row {
    const char *what, *refusal;
    uint32_t total, suspect, interested, synced;
    int frozen, store_down;
    const char *missing, *accepted, *programmed, *degraded, *ready;
};

/* Each as status and reason: "+Valid" is True. */
static const struct row rows[] = {
    {"all well", "", 2, 0, 3, 3, 0, 0, NULL, "+Valid", "+AllAgentsSynced", "-AsExpected",
     "+AllAgentsSynced"},
    {"one agent behind", "", 2, 0, 3, 2, 0, 0, NULL, "+Valid", "-AgentsLagging", "-AsExpected",
     "-AgentsLagging"},
    {"nobody connected", "", 2, 0, 0, 0, 0, 0, NULL, "+Valid", "-NoAgents", "-AsExpected",
     "-NoAgents"},
    {"empty", "", 0, 0, 0, 0, 0, 0, NULL, "+Valid", "+NoAgents", "-AsExpected", "+NoMembers"},
    {"empty, an agent behind", "", 0, 0, 1, 0, 0, 0, NULL, "+Valid", "-AgentsLagging",
     "-AsExpected", "+NoMembers"},
    {"refused", "UnknownBackend", 2, 0, 3, 3, 0, 0, NULL, "-UnknownBackend", "+AllAgentsSynced",
     "-AsExpected", "-UnknownBackend"},
    {"refused and empty", "PeerNotFound", 0, 0, 0, 0, 0, 0, NULL, "-PeerNotFound", "+NoAgents",
     "-AsExpected", "-PeerNotFound"},
    {"suspects", "", 2, 1, 3, 3, 0, 0, NULL, "+Valid", "+AllAgentsSynced", "+MembersSuspect",
     "+AllAgentsSynced"},
    {"no backend", "", 2, 1, 3, 3, 0, 0, "UCX", "+Valid", "+AllAgentsSynced", "+BackendMissing",
     "+AllAgentsSynced"},
    {"no store", "", 2, 1, 3, 3, 0, 1, NULL, "+Valid", "+AllAgentsSynced", "+RedisUnavailable",
     "+AllAgentsSynced"},
    {"frozen", "", 2, 1, 3, 3, 1, 1, NULL, "+Valid", "+AllAgentsSynced", "+MassLapseFrozen",
     "+AllAgentsSynced"},
};

static struct nxl_group_status_facts facts_of(const struct row *row, struct nxl_nixlpeer *peer)
{
    struct nxl_group_status_facts facts = {
        .group = {.peer = peer,
                  .total = row->total,
                  .suspect = row->suspect,
                  .live = row->total - row->suspect,
                  .refusal = row->refusal,
                  .field = row->refusal[0] != '\0' ? "spec.x: it is wrong" : "",
                  .frozen = row->frozen,
                  .store_down = row->store_down,
                  .dead_reason = ""},
        .interested = row->interested,
        .synced = row->synced,
        .missing_backend = row->missing,
        .now_ns = 100 * SEC,
        .now_ms = 1000000,
    };

    return facts;
}

static void is_condition(const struct row *row, const struct nxl_condition *condition,
                         const char *wanted)
{
    if (condition->is_true != (wanted[0] == '+') || strcmp(condition->reason, wanted + 1) != 0)
        fail_msg("%s: wanted %s, got %c%s", row->what, wanted, condition->is_true ? '+' : '-',
                 condition->reason);
    assert_true(condition->message[0] != '\0');
}

static void every_state_has_its_conditions(void **state)
{
    struct nxl_nixlpeer *peer = nxl_nixlpeer_new();

    peer->generation = 7;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct nxl_group_status_facts facts = facts_of(&rows[i], peer);
        struct nxl_group_status status;

        nxl_group_status_make(&facts, NULL, &status);
        is_condition(&rows[i], &status.conditions[NXL_CONDITION_ACCEPTED], rows[i].accepted);
        is_condition(&rows[i], &status.conditions[NXL_CONDITION_PROGRAMMED], rows[i].programmed);
        is_condition(&rows[i], &status.conditions[NXL_CONDITION_DEGRADED], rows[i].degraded);
        is_condition(&rows[i], &status.conditions[NXL_CONDITION_READY], rows[i].ready);
        for (int c = 0; c < NXL_CONDITIONS; c++)
            assert_int_equal(status.conditions[c].generation, 7);
    }
    nxl_nixlpeer_free(peer);
}

static void a_transition_time_moves_only_with_the_status(void **state)
{
    struct nxl_nixlpeer *peer = nxl_nixlpeer_new();
    struct nxl_group_status_facts facts = facts_of(&rows[1], peer);
    struct nxl_group_status first, second, third;

    nxl_group_status_make(&facts, NULL, &first);
    facts.now_ms += 5000;
    facts.synced = 1; /* still behind, another message */
    nxl_group_status_make(&facts, &first, &second);
    assert_int_equal(second.conditions[NXL_CONDITION_PROGRAMMED].since_ms, 1000000);
    assert_int_equal(nxl_group_status_urgent(&first, &second), 0);
    assert_int_equal(nxl_group_status_differs(&first, &second), 1);
    facts.synced = 3;
    facts.now_ms += 5000;
    nxl_group_status_make(&facts, &second, &third);
    assert_int_equal(third.conditions[NXL_CONDITION_PROGRAMMED].since_ms, 1010000);
    assert_int_equal(third.conditions[NXL_CONDITION_ACCEPTED].since_ms, 1000000);
    assert_int_equal(nxl_group_status_urgent(&second, &third), 1);
    nxl_nixlpeer_free(peer);
}

static void the_last_invalidation_is_a_moment_and_no_reason_to_write(void **state)
{
    struct nxl_nixlpeer *peer = nxl_nixlpeer_new();
    struct nxl_group_status_facts facts = facts_of(&rows[0], peer);
    struct nxl_group_status first, second;

    facts.group.dead_ns = 90 * SEC;
    facts.group.dead_count = 3;
    facts.group.dead_reason = "deleted";
    facts.slowest_ns = 12 * 1000000ull;
    nxl_group_status_make(&facts, NULL, &first);
    assert_int_equal(first.dead_ms, 1000000 - 10000);
    assert_int_equal(first.slowest_ms, 12);
    facts.now_ns += 7 * SEC; /* the same, looked at later, with a little noise */
    facts.now_ms += 7003;
    nxl_group_status_make(&facts, &first, &second);
    assert_int_equal(nxl_group_status_differs(&first, &second), 0);
    /* Another operator has not seen it: it keeps what was written. */
    facts.group.dead_ns = 0;
    nxl_group_status_make(&facts, &first, &second);
    assert_int_equal(second.dead_ms, first.dead_ms);
    assert_string_equal(second.dead_reason, "deleted");
    nxl_nixlpeer_free(peer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_state_has_its_conditions),
        cmocka_unit_test(a_transition_time_moves_only_with_the_status),
        cmocka_unit_test(the_last_invalidation_is_a_moment_and_no_reason_to_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
