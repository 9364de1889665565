/* world_ask.c - the world's answers: who needs what, how a group does, who sits in a slice. */
#include "model/world_internal.h"

static int node_needs(const struct node *node, const struct group *group)
{
    for (uint32_t i = 0; i < node->stay_count; i++)
        if (node->stays[i].group == group || group_lets_in(group, node->stays[i].group) ||
            group_lets_in(node->stays[i].group, group))
            return 1;
    return 0;
}

int nxl_world_interested(struct nxl_world *world, const char *name, const char *key)
{
    struct group *group = world_find_group(world, key);
    struct node *node;

    HASH_FIND_STR(world->nodes, name, node);
    return group != NULL && node != NULL && node_needs(node, group);
}

int nxl_world_knows(struct nxl_world *world, const char *uid)
{
    struct pod *pod;

    HASH_FIND(by_uid, world->pods, uid, strlen(uid), pod);
    return pod != NULL || world_buried(world, uid);
}

void nxl_world_would_match(struct nxl_world *world, const struct nxl_pod *pod,
                           void (*fn)(void *arg, const char *group), void *arg)
{
    struct space *space;

    HASH_FIND_STR(world->spaces, pod->ns, space);
    for (struct group *group = space != NULL ? space->groups : NULL; group != NULL;
         group = group->next)
        if (!group->peer->deleting &&
            nxl_selector_matches(group->peer->spec.selector, pod->labels, pod->label_count))
            fn(arg, group->key);
}

int nxl_world_group(struct nxl_world *world, const char *key, struct nxl_world_group *ret)
{
    const struct group *group = world_find_group(world, key);
    struct nxl_world_group answer;

    if (group == NULL)
        return 0;
    answer = (struct nxl_world_group){
        .peer = group->peer,
        .total = group->member_count,
        .live = group->counts[SEAT_LIVE],
        .draining = group->counts[SEAT_DRAINING],
        .suspect = group->counts[SEAT_SUSPECT],
        .pending = group->counts[SEAT_PENDING],
        .revision = group->revision,
        .slices = (group->member_count + NXL_SLICE_MEMBERS - 1) / NXL_SLICE_MEMBERS,
        .barred = group->barred_count,
        .refusal = group->refusal,
        .field = group->field,
        .frozen = group->frozen,
        .store_down = !world->store_up,
        .lapsed = group->lapsed,
        .tracked = group->tracked,
        .dead_ns = group->dead_ns,
        .dead_count = group->dead_count,
        .dead_reason = group->dead_reason != NULL ? group->dead_reason : "",
    };
    for (const struct node *node = world->nodes; node != NULL; node = node->hh.next)
        answer.nodes += (uint32_t)node_needs(node, group);
    *ret = answer;
    return 1;
}

void nxl_world_each_group(struct nxl_world *world, void (*fn)(void *arg, const char *group),
                          void *arg)
{
    struct group *group, *next;

    HASH_ITER(hh, world->groups, group, next)
    fn(arg, group->key);
}

uint32_t nxl_world_slice(struct nxl_world *world, const char *key, uint32_t index,
                         struct nxl_world_seat ret[NXL_SLICE_MEMBERS])
{
    const struct group *group = world_find_group(world, key);
    uint64_t first = (uint64_t)index * NXL_SLICE_MEMBERS;
    uint32_t count = 0;

    if (group == NULL)
        return 0;
    for (; first + count < group->member_count && count < NXL_SLICE_MEMBERS; count++) {
        const struct seat *seat = group->members[first + count];
        const struct pod *pod = seat->pod;

        ret[count] = (struct nxl_world_seat){
            .pod = pod->name,
            .uid = pod->uid,
            .node = pod->node != NULL ? pod->node->name : "",
            .revision = labels_value(&pod->labels, group->peer->spec.revision_key),
            .life = pod->life,
            .suspect = seat->kind == SEAT_SUSPECT,
            .pending = seat->kind == SEAT_PENDING,
        };
    }
    return count;
}
