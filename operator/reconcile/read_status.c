/* read_status.c - the status that an operator wrote earlier: its transition times go on. */
#include "reconcile/read_field.h"

#include <stdio.h>
#include <string.h>

static void read_condition(const json_t *item, struct nxl_group_status *status)
{
    /* Reasons point at static texts: only those that we write are known. */
    static const char *const reasons[] = {
        "Valid",          "UnknownBackend", "PeerNotFound",   "SelectorOverlap", "AllAgentsSynced",
        "AgentsLagging",  "NoAgents",       "MembersSuspect", "MassLapseFrozen", "RedisUnavailable",
        "BackendMissing", "AsExpected",     "NoMembers"};
    const char *type = json_string_value(json_object_get(item, "type"));
    const char *is = json_string_value(json_object_get(item, "status"));
    const char *reason = json_string_value(json_object_get(item, "reason"));
    const char *since = json_string_value(json_object_get(item, "lastTransitionTime"));
    const char *message = json_string_value(json_object_get(item, "message"));

    if (type == NULL || is == NULL || reason == NULL || since == NULL || nxl_time_of(since) < 0)
        return;
    for (int i = 0; i < NXL_CONDITIONS; i++) {
        struct nxl_condition *to = &status->conditions[i];

        if (strcmp(type, nxl_condition_name((enum nxl_condition_type)i)) != 0)
            continue;
        to->is_true = strcmp(is, "True") == 0;
        to->since_ms = nxl_time_of(since);
        to->generation = json_integer_value(json_object_get(item, "observedGeneration"));
        to->reason = "unknown";
        for (size_t j = 0; j < sizeof(reasons) / sizeof(reasons[0]); j++)
            if (strcmp(reasons[j], reason) == 0)
                to->reason = reasons[j];
        if (message != NULL)
            snprintf(to->message, sizeof(to->message), "%s", message);
    }
}

static uint32_t number(const json_t *object, const char *key)
{
    json_int_t value = json_integer_value(json_object_get(object, key));

    return value < 0 || value > INT32_MAX ? 0 : (uint32_t)value;
}

void nxl_read_status(const json_t *object, struct nxl_group_status *ret)
{
    const json_t *self = json_object_get(object, "status");
    const json_t *members = json_object_get(self, "members");
    const json_t *agents = json_object_get(self, "agents");
    const json_t *dead = json_object_get(self, "lastInvalidation");
    const json_t *list = json_object_get(self, "conditions");
    const char *text;

    memset(ret, 0, sizeof(*ret));
    ret->generation = json_integer_value(json_object_get(self, "observedGeneration"));
    ret->revision = json_integer_value(json_object_get(self, "membershipRevision"));
    ret->total = number(members, "total");
    ret->live = number(members, "live");
    ret->draining = number(members, "draining");
    ret->suspect = number(members, "suspect");
    ret->pending = number(members, "pending");
    ret->interested = number(agents, "interested");
    ret->synced = number(agents, "synced");
    ret->slices = number(self, "slices");
    text = json_string_value(json_object_get(dead, "time"));
    if (text != NULL && nxl_time_of(text) > 0)
        ret->dead_ms = nxl_time_of(text);
    ret->dead_count = number(dead, "count");
    ret->slowest_ms = number(dead, "slowestAgentMillis");
    text = json_string_value(json_object_get(dead, "reason"));
    if (text != NULL)
        snprintf(ret->dead_reason, sizeof(ret->dead_reason), "%s", text);
    for (size_t i = 0; i < json_array_size(list) && i < 16; i++)
        read_condition(json_array_get(list, i), ret);
}
