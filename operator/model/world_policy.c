/* world_policy.c - allow rules resolved to groups, and what agents are told of a policy. */
#include "model/world_internal.h"

static int rule_takes(const struct nxl_rule *rule, const struct group *group)
{
    const struct nxl_nixlpeer *peer = group->peer;

    if (peer->deleting)
        return 0;
    if (rule->peer_name != NULL)
        return strcmp(rule->peer_name, peer->name) == 0;
    if (rule->peers != NULL)
        return nxl_selector_matches(rule->peers, peer->labels, peer->label_count);
    return rule->role != NXL_ROLE_NONE && rule->role == peer->spec.role;
}

static int rule_reaches(const struct nxl_rule *rule, const struct group *owner,
                        const struct group *group)
{
    if (rule->spaces == NULL)
        return group->space == owner->space;
    return group->space->known && nxl_selector_matches(rule->spaces, group->space->labels.items,
                                                       group->space->labels.count);
}

static uint32_t resolve(struct nxl_world *world, struct group *group,
                        struct edge to[NXL_RULE_FROM_MAX], int *ret_cut)
{
    const struct nxl_nixlpeer *peer = group->peer;
    uint32_t count = 0;
    char dangling[sizeof(group->dangling)] = "";

    *ret_cut = 0;
    for (uint32_t i = 0; i < peer->spec.rule_count && !peer->deleting; i++) {
        const struct nxl_rule *rule = &peer->spec.rules[i];
        uint32_t found = 0;

        for (struct group *from = world->groups; from != NULL; from = from->hh.next) {
            struct edge edge = {.from = from, .ops = rule->ops, .memory = rule->memory};

            if (!rule_reaches(rule, group, from) || !rule_takes(rule, from))
                continue;
            found++;
            /* The schema refuses it too; a server with an older schema may not. */
            if (from->space != group->space)
                edge.ops &= (uint8_t)~NXL_MAY_WRITE;
            if (edge.ops == 0)
                continue;
            if (count == NXL_RULE_FROM_MAX)
                *ret_cut = 1;
            else
                to[count++] = edge;
        }
        if (found == 0 && rule->peer_name != NULL && dangling[0] == '\0')
            snprintf(dangling, sizeof(dangling),
                     "spec.allow[%u].from.peerName: there is no NixlPeer \"%s\" in %s", i,
                     rule->peer_name,
                     rule->spaces != NULL ? "the selected namespaces" : group->space->name);
    }
    memcpy(group->dangling, dangling, sizeof(dangling));
    return count;
}

static int same_edges(const struct group *group, const struct edge *edges, uint32_t count)
{
    if (group->edge_count != count)
        return 0;
    for (uint32_t i = 0; i < count; i++)
        if (group->edges[i].from != edges[i].from || group->edges[i].ops != edges[i].ops ||
            group->edges[i].memory != edges[i].memory)
            return 0;
    return 1;
}

void world_resolve(struct nxl_world *world)
{
    struct edge edges[NXL_RULE_FROM_MAX];
    int changed = 0;

    for (struct group *group = world->groups; group != NULL; group = group->hh.next) {
        int cut;
        uint32_t count = resolve(world, group, edges, &cut);

        if (cut && !group->cut)
            group_note(world, group, NXL_NOTE_RULES_CUT,
                       "spec.allow: it matches more than %u groups; the rest is not let in",
                       NXL_RULE_FROM_MAX);
        group->cut = (uint8_t)cut;
        if (!same_edges(group, edges, count)) {
            group->edges = room_resize(group->edges, count, sizeof(*edges));
            if (count > 0)
                memcpy(group->edges, edges, count * sizeof(*edges));
            group->edge_count = count;
            group->programmed = 0;
            changed = 1;
        }
        group_judge(world, group);
    }
    if (changed)
        world->ops.on_interest(world->arg, NULL, NULL);
    for (struct group *group = world->groups; group != NULL; group = group->hh.next)
        if (!group->programmed && !group->peer->deleting)
            group_tell_policy(world, group);
}

static int known(const struct nxl_world *world, const char *backend)
{
    for (uint32_t i = 0; i < world->backend_count; i++)
        if (strcmp(world->backends[i], backend) == 0)
            return 1;
    return 0;
}

void group_tell_policy(struct nxl_world *world, struct group *group)
{
    struct nxl_world_rule rules[NXL_RULE_FROM_MAX];
    struct nxl_world_policy policy = {.group = group->key, .peer = group->peer, .rules = rules};
    int closed = 0;

    for (uint32_t i = 0; i < group->peer->spec.backend_count; i++) {
        const struct nxl_backend_wish *wish = &group->peer->spec.backends[i];

        if (known(world, wish->name))
            policy.backends[policy.backend_count++] = *wish;
        else
            closed |= wish->required;
    }
    /* A requirement that nothing can meet: nobody is let in. */
    for (uint32_t i = 0; i < group->edge_count && !closed; i++)
        rules[policy.rule_count++] = (struct nxl_world_rule){.from = group->edges[i].from->key,
                                                             .ops = group->edges[i].ops,
                                                             .memory = group->edges[i].memory};
    group->programmed = 1;
    world->ops.on_policy(world->arg, &policy);
}

int group_lets_in(const struct group *group, const struct group *from)
{
    for (uint32_t i = 0; i < group->edge_count; i++)
        if (group->edges[i].from == from)
            return 1;
    return 0;
}
