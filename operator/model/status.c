/* status.c - conditions as a few rows of decisions, worst reason first. */
#include "model/status.h"

#include <stdio.h>
#include <string.h>

static const char *const names[NXL_CONDITIONS] = {"Accepted", "Programmed", "Degraded", "Ready"};

const char *nxl_condition_name(enum nxl_condition_type type)
{
    return names[type];
}

static void say(struct nxl_condition *to, int is_true, const char *reason, const char *fmt, ...)
    NXL_PRINTF(4, 5);

static void say(struct nxl_condition *to, int is_true, const char *reason, const char *fmt, ...)
{
    va_list args;

    to->is_true = is_true;
    to->reason = reason;
    va_start(args, fmt);
    vsnprintf(to->message, sizeof(to->message), fmt, args);
    va_end(args);
}

static void accepted(const struct nxl_group_status_facts *facts, struct nxl_condition *to)
{
    if (facts->group.refusal[0] == '\0')
        say(to, 1, "Valid", "the spec is understood and its references resolve");
    else if (facts->group.barred > 0 && strcmp(facts->group.refusal, "SelectorOverlap") == 0)
        say(to, 0, facts->group.refusal, "%s (%u pods)", facts->group.field, facts->group.barred);
    else
        say(to, 0, facts->group.refusal, "%s", facts->group.field);
}

static void programmed(const struct nxl_group_status *status, struct nxl_condition *to)
{
    if (status->interested == 0 && status->total == 0)
        say(to, 1, "NoAgents", "no agent needs this group yet");
    else if (status->interested == 0)
        say(to, 0, "NoAgents", "no agent is connected on the nodes of %u members", status->total);
    else if (status->synced < status->interested)
        say(to, 0, "AgentsLagging", "%u of %u agents have acknowledged the newest state",
            status->synced, status->interested);
    else
        say(to, 1, "AllAgentsSynced", "%u of %u agents have acknowledged the newest state",
            status->synced, status->interested);
}

static void degraded(const struct nxl_group_status_facts *facts, struct nxl_condition *to)
{
    const struct nxl_world_group *group = &facts->group;

    if (group->frozen)
        say(to, 1, "MassLapseFrozen",
            "%u of %u nodes are silent: nobody is judged until it is less", group->lapsed,
            group->tracked);
    else if (group->store_down)
        say(to, 1, "RedisUnavailable", "the store does not answer: nobody is judged by heartbeats");
    else if (facts->missing_backend != NULL)
        say(to, 1, "BackendMissing",
            "an agent of a member has no backend \"%s\", which is required",
            facts->missing_backend);
    else if (group->suspect > 0)
        say(to, 1, "MembersSuspect", "%u of %u members are suspect", group->suspect, group->total);
    else
        say(to, 0, "AsExpected", "nothing needs a person");
}

static void ready(struct nxl_condition conditions[NXL_CONDITIONS], uint32_t total)
{
    struct nxl_condition *to = &conditions[NXL_CONDITION_READY];
    const struct nxl_condition *accepted = &conditions[NXL_CONDITION_ACCEPTED];
    const struct nxl_condition *programmed = &conditions[NXL_CONDITION_PROGRAMMED];

    if (!accepted->is_true)
        say(to, 0, accepted->reason, "%s", accepted->message);
    else if (total == 0)
        say(to, 1, "NoMembers", "the selector matches no pod");
    else if (!programmed->is_true)
        say(to, 0, programmed->reason, "%s", programmed->message);
    else
        say(to, 1, "AllAgentsSynced", "accepted, and %s", programmed->message);
}

static uint32_t to_ms(uint64_t ns)
{
    uint64_t ms = ns / 1000000u;

    return ms > INT32_MAX ? INT32_MAX : (uint32_t)ms;
}

void nxl_group_status_make(const struct nxl_group_status_facts *facts,
                           const struct nxl_group_status *before, struct nxl_group_status *ret)
{
    const struct nxl_world_group *group = &facts->group;
    struct nxl_group_status status = {
        .generation = group->peer->generation,
        .revision = group->revision,
        .total = group->total,
        .live = group->live,
        .draining = group->draining,
        .suspect = group->suspect,
        .pending = group->pending,
        .interested = facts->interested,
        .synced = facts->synced,
        .slices = group->slices,
    };

    if (group->dead_ns != 0) {
        uint64_t ago_ns = facts->now_ns > group->dead_ns ? facts->now_ns - group->dead_ns : 0;

        status.dead_ms = facts->now_ms - (int64_t)(ago_ns / 1000000u);
        status.dead_count = group->dead_count;
        status.slowest_ms = to_ms(facts->slowest_ns);
        snprintf(status.dead_reason, sizeof(status.dead_reason), "%s", group->dead_reason);
    } else if (before != NULL) { /* from before this process: it stays as it was */
        status.dead_ms = before->dead_ms;
        status.dead_count = before->dead_count;
        status.slowest_ms = before->slowest_ms;
        memcpy(status.dead_reason, before->dead_reason, sizeof(status.dead_reason));
    }
    accepted(facts, &status.conditions[NXL_CONDITION_ACCEPTED]);
    programmed(&status, &status.conditions[NXL_CONDITION_PROGRAMMED]);
    degraded(facts, &status.conditions[NXL_CONDITION_DEGRADED]);
    ready(status.conditions, status.total);
    for (int i = 0; i < NXL_CONDITIONS; i++) {
        struct nxl_condition *now = &status.conditions[i];
        const struct nxl_condition *then = before != NULL ? &before->conditions[i] : NULL;

        now->generation = status.generation;
        now->since_ms = then != NULL && then->reason != NULL && then->is_true == now->is_true
                            ? then->since_ms
                            : facts->now_ms;
    }
    *ret = status;
}

int nxl_group_status_urgent(const struct nxl_group_status *a, const struct nxl_group_status *b)
{
    if (a->generation != b->generation)
        return 1;
    for (int i = 0; i < NXL_CONDITIONS; i++) {
        const struct nxl_condition *x = &a->conditions[i], *y = &b->conditions[i];

        if (x->is_true != y->is_true || x->generation != y->generation || x->reason == NULL ||
            strcmp(x->reason, y->reason) != 0)
            return 1;
    }
    return 0;
}

/* The moment of an invalidation is recomputed from a duration each time: 50 ms are no difference.
 */
static int moments_differ(int64_t a, int64_t b)
{
    return a > b ? a - b > 50 : b - a > 50;
}

int nxl_group_status_differs(const struct nxl_group_status *a, const struct nxl_group_status *b)
{
    if (nxl_group_status_urgent(a, b) || a->revision != b->revision || a->total != b->total ||
        a->live != b->live || a->draining != b->draining || a->suspect != b->suspect ||
        a->pending != b->pending || a->interested != b->interested || a->synced != b->synced ||
        a->slices != b->slices || moments_differ(a->dead_ms, b->dead_ms) ||
        a->dead_count != b->dead_count || strcmp(a->dead_reason, b->dead_reason) != 0 ||
        a->slowest_ms != b->slowest_ms)
        return 1;
    for (int i = 0; i < NXL_CONDITIONS; i++)
        if (strcmp(a->conditions[i].message, b->conditions[i].message) != 0)
            return 1;
    return 0;
}
