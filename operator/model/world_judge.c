/* world_judge.c - silence: lapsed heartbeats, many at once, and what may follow from them. */
#include "model/world_internal.h"

/* Pure in what the world holds: nothing here remembers an earlier judgement, so it is taken back as
 * soon as its grounds are gone. */
int node_lapsed(const struct nxl_world *world, const struct node *node, const struct group *group,
                uint64_t now_ns)
{
    uint64_t lease_ns = group->peer->spec.lease_s * SECOND_NS;

    if (!world->store_up || node->heard_ns == 0)
        return 0;
    if (world->doubt && now_ns - world->store_ns <= 2 * lease_ns)
        return 0;
    return now_ns > node->heard_ns && now_ns - node->heard_ns > lease_ns;
}

/* Many at once say more about us, the network or the store than about them. */
static int group_freeze(struct nxl_world *world, struct group *group, uint64_t now_ns)
{
    uint32_t tracked = 0, lapsed = 0;
    int frozen;

    for (const struct node *node = world->nodes; node != NULL; node = node->hh.next) {
        if (node->heard_ns == 0 && !node->silent && node->stay_count == 0)
            continue;
        tracked++;
        lapsed += node->silent || node_lapsed(world, node, group, now_ns);
    }
    frozen = lapsed >= NODES_SILENT_MIN &&
             (uint64_t)lapsed * 100 > (uint64_t)tracked * group->peer->spec.mass_percent;
    if (lapsed != group->lapsed || tracked != group->tracked)
        group->lapsed = lapsed, group->tracked = tracked;
    if (frozen == group->frozen)
        return 0;
    group->frozen = (uint8_t)frozen;
    if (frozen)
        group_note(world, group, NXL_NOTE_FROZEN,
                   "%u of %u nodes are silent, more than %u %%: nobody is judged for it", lapsed,
                   tracked, group->peer->spec.mass_percent);
    else
        group_note(world, group, NXL_NOTE_THAWED, "%u of %u nodes are silent", lapsed, tracked);
    group_changed(world, group);
    return 1;
}

/* A judgement may end only the sessions known now; the pod can come back under a new one. */
static void purge_sessions(struct nxl_world *world, struct node *node, struct group *group,
                           uint64_t now_ns)
{
    uint32_t count = 0;

    for (struct pod *pod = node->pods; pod != NULL; pod = pod->next) {
        struct seat *seat = pod_main_seat(pod);

        if (seat == NULL || seat->group != group)
            continue;
        while (pod->sessions != NULL) {
            char id[NXL_INCARNATION_MAX + 1];

            snprintf(id, sizeof(id), "%s", pod->sessions->id);
            pod_part_dies(world, pod, id, "heartbeat-purged", now_ns);
            count++;
        }
    }
    if (count > 0)
        group_note(world, group, NXL_NOTE_PURGED,
                   "node %s: no heartbeat for %u s, %u sessions ended", node->name,
                   group->peer->spec.purge_s, count);
}

static int may_purge(const struct nxl_world *world, const struct node *node,
                     const struct group *group, uint64_t now_ns)
{
    const struct nxl_nixlpeer *peer = group->peer;

    return peer->spec.lapse_purges && peer->spec.mode == NXL_MODE_ENFORCE && !group->frozen &&
           node_lapsed(world, node, group, now_ns) &&
           now_ns - node->heard_ns > peer->spec.purge_s * SECOND_NS;
}

/* Our own sleep is not theirs: what was heard last counts as heard when we woke. */
static void wake(struct nxl_world *world, uint64_t now_ns)
{
    for (struct node *node = world->nodes; node != NULL; node = node->hh.next)
        if (node->heard_ns != 0)
            node->heard_ns = now_ns;
    world->store_ns = now_ns;
}

void nxl_world_tick(struct nxl_world *world, uint64_t now_ns)
{
    int refresh = 0;

    if (world->tick_ns != 0 && now_ns > world->tick_ns && now_ns - world->tick_ns > SLEPT_NS)
        wake(world, now_ns);
    world->tick_ns = now_ns;
    for (struct group *group = world->groups; group != NULL; group = group->hh.next)
        refresh |= group_freeze(world, group, now_ns);
    for (struct node *node = world->nodes; node != NULL; node = node->hh.next) {
        int changed = refresh;

        for (uint32_t i = 0; i < node->stay_count; i++) {
            struct stay *stay = &node->stays[i];
            uint8_t lapsed = (uint8_t)node_lapsed(world, node, stay->group, now_ns);

            changed |= lapsed != stay->lapsed;
            stay->lapsed = lapsed;
            if (!may_purge(world, node, stay->group, now_ns)) {
                stay->purged = (uint8_t)(stay->purged && lapsed);
            } else if (!stay->purged) {
                stay->purged = 1;
                purge_sessions(world, node, stay->group, now_ns);
            }
        }
        for (struct pod *pod = node->pods; changed && pod != NULL; pod = pod->next)
            pod_tell(world, pod);
    }
    for (struct pod *pod = world->draining, *next; pod != NULL; pod = next) {
        const struct seat *seat = pod_main_seat(pod);

        next = pod->drain_next;
        if (pod->life == NXL_LIFE_DRAINING && seat != NULL &&
            seat->group->peer->spec.mode != NXL_MODE_OBSERVE &&
            now_ns - pod->drain_ns > seat->group->peer->spec.drain_s * SECOND_NS)
            pod_die(world, pod, "drain-timeout", now_ns);
    }
}
