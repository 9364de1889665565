/* describe.c - what the operator knows, as JSON for people: groups, counts, conditions. */
#include "reconcile/reconcile_internal.h"

struct describing {
    struct nxl_reconcile *reconcile;
    json_t *groups;
};

static json_t *conditions_json(const struct nxl_group_status *status)
{
    json_t *list = json_array();

    for (int i = 0; status != NULL && i < NXL_CONDITIONS; i++)
        if (status->conditions[i].reason != NULL)
            json_array_append_new(list, json_pack("{s:s, s:b, s:s, s:s}", "type",
                                                  nxl_condition_name((enum nxl_condition_type)i),
                                                  "true", status->conditions[i].is_true, "reason",
                                                  status->conditions[i].reason, "message",
                                                  status->conditions[i].message));
    return list;
}

static void describe_group(void *arg, const char *group)
{
    struct describing *describing = arg;
    struct nxl_world_group state;
    struct nxl_push_group agents = {0};

    if (!nxl_world_group(describing->reconcile->world, group, &state))
        return;
    if (describing->reconcile->push != NULL)
        NXL_IGNORE(nxl_push_group(describing->reconcile->push, group, &agents)); /* none: zeros */
    json_array_append_new(
        describing->groups,
        json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:I, s:b, s:o}", "group",
                  group, "role", nxl_role_name(state.peer->spec.role), "total", (int)state.total,
                  "live", (int)state.live, "draining", (int)state.draining, "suspect",
                  (int)state.suspect, "pending", (int)state.pending, "nodes", (int)state.nodes,
                  "interested", (int)agents.interested, "synced", (int)agents.synced, "revision",
                  (json_int_t)state.revision, "frozen", state.frozen, "conditions",
                  conditions_json(nxl_writer_status(describing->reconcile->writer, group))));
}

void nxl_reconcile_describe(struct nxl_reconcile *reconcile, struct nxl_bytes *to)
{
    struct describing describing = {.reconcile = reconcile, .groups = json_array()};
    json_t *json;
    char *text;

    nxl_world_each_group(reconcile->world, describe_group, &describing);
    json = json_pack("{s:b, s:o}", "synced", reconcile->synced, "groups", describing.groups);
    text = json_dumps(json, JSON_COMPACT);
    nxl_bytes_put(to, text, strlen(text));
    free(text);
    json_decref(json);
}
