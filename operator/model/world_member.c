/* world_member.c - which groups a pod is in, how it is counted there, and what agents are told. */
#include "model/world_internal.h"

/* ---- seats: dense arrays, so that slice k is members[k * 100 ...] --------------------------- */

static void slice_changed(struct nxl_world *world, const struct group *group, uint32_t index)
{
    world->ops.on_slice(world->arg, group->key, index / NXL_SLICE_MEMBERS);
}

static void seat_add(struct nxl_world *world, struct seat *seat)
{
    struct group *group = seat->group;
    struct seat ***array = seat->barred ? &group->barred : &group->members;
    uint32_t *count = seat->barred ? &group->barred_count : &group->member_count;
    uint32_t *room = seat->barred ? &group->barred_room : &group->member_room;

    if (*count == *room) {
        *room = *room == 0 ? 8 : *room * 2;
        *array = room_resize(*array, *room, sizeof(**array));
    }
    seat->index = (*count)++;
    (*array)[seat->index] = seat;
    if (!seat->barred)
        slice_changed(world, group, seat->index);
    else if (*count == 1)
        group_judge(world, group);
}

static void seat_remove(struct nxl_world *world, struct seat *seat)
{
    struct group *group = seat->group;
    struct seat **array = seat->barred ? group->barred : group->members;
    uint32_t *count = seat->barred ? &group->barred_count : &group->member_count;
    struct seat *last = array[--*count];

    array[seat->index] = last;
    last->index = seat->index;
    if (!seat->barred) {
        slice_changed(world, group, seat->index);
        if (*count / NXL_SLICE_MEMBERS != seat->index / NXL_SLICE_MEMBERS)
            slice_changed(world, group, *count);
    } else if (*count == 0) {
        group_judge(world, group);
    }
}

static void seat_count(struct nxl_world *world, struct seat *seat, uint8_t kind)
{
    if (seat->kind == kind)
        return;
    if (seat->kind != SEAT_NONE)
        seat->group->counts[seat->kind]--;
    if (kind != SEAT_NONE)
        seat->group->counts[kind]++;
    seat->kind = kind;
    if (!seat->barred && kind != SEAT_NONE)
        slice_changed(world, seat->group, seat->index);
    group_changed(world, seat->group);
}

/* ---- pods of a group on a node: who must know ------------------------------------------------ */

static void stay_move(struct nxl_world *world, struct node *node, struct group *group, int delta)
{
    uint32_t i = 0;

    if (node == NULL)
        return;
    while (i < node->stay_count && node->stays[i].group != group)
        i++;
    if (i == node->stay_count) {
        if (node->stay_count == node->stay_room) {
            node->stay_room = node->stay_room == 0 ? 2 : node->stay_room * 2;
            node->stays = room_resize(node->stays, node->stay_room, sizeof(*node->stays));
        }
        node->stays[node->stay_count++] = (struct stay){.group = group};
        node->stays[i].lapsed = (uint8_t)node_lapsed(world, node, group, world->tick_ns);
    }
    node->stays[i].count += (uint32_t)delta;
    if (node->stays[i].count == 0)
        node->stays[i] = node->stays[--node->stay_count];
    else if (node->stays[i].count != 1 || delta < 0)
        return;
    world->ops.on_interest(world->arg, node->name, NULL);
}

void pod_move(struct nxl_world *world, struct pod *pod, struct node *node)
{
    struct node *old = pod->node;

    if (old == node)
        return;
    for (const struct seat *seat = pod->seats; seat != NULL; seat = seat->next)
        if (!seat->barred)
            stay_move(world, old, seat->group, -1);
    if (old != NULL) {
        if (pod->prev != NULL)
            pod->prev->next = pod->next;
        else
            old->pods = pod->next;
        if (pod->next != NULL)
            pod->next->prev = pod->prev;
    }
    pod->node = node;
    pod->prev = pod->next = NULL;
    if (node != NULL) {
        pod->next = node->pods;
        if (node->pods != NULL)
            node->pods->prev = pod;
        node->pods = pod;
    }
    for (const struct seat *seat = pod->seats; seat != NULL; seat = seat->next)
        if (!seat->barred)
            stay_move(world, node, seat->group, 1);
    if (old != NULL)
        world_spare_node(world, old);
}

/* ---- membership ------------------------------------------------------------------------------ */

static void seat_enter(struct nxl_world *world, struct seat *seat)
{
    seat_add(world, seat);
    if (seat->barred)
        return;
    seat->group->revision++;
    stay_move(world, seat->pod->node, seat->group, 1);
    group_changed(world, seat->group);
}

static void seat_quit(struct nxl_world *world, struct seat *seat)
{
    seat_count(world, seat, SEAT_NONE);
    seat_remove(world, seat);
    if (seat->barred)
        return;
    seat->group->revision++;
    stay_move(world, seat->pod->node, seat->group, -1);
    group_changed(world, seat->group);
}

void pod_leave(struct nxl_world *world, struct pod *pod)
{
    while (pod->seats != NULL) {
        struct seat *seat = pod->seats;

        pod->seats = seat->next;
        seat_quit(world, seat);
        free(seat);
    }
}

static struct seat *seat_of(const struct pod *pod, const struct group *group)
{
    struct seat *seat = pod->seats;

    while (seat != NULL && seat->group != group)
        seat = seat->next;
    return seat;
}

static int group_wants(const struct nxl_world *world, const struct group *group,
                       const struct pod *pod)
{
    if (group->peer->deleting)
        return 0;
    if (group->peer->spec.mode == NXL_MODE_PAUSED && world->synced)
        return seat_of(pod, group) != NULL; /* frozen as it was */
    return nxl_selector_matches(group->peer->spec.selector, pod->labels.items, pod->labels.count);
}

/* Two groups of different roles want it: it is in neither, until people have decided. */
void pod_match(struct nxl_world *world, struct pod *pod)
{
    struct group *wanted[SEATS_MAX];
    uint32_t count = 0;
    uint8_t barred = 0;
    struct seat **end = &pod->seats;
    struct seat *old = pod->seats;

    if (pod->life == NXL_LIFE_DEAD)
        return;
    for (struct group *group = pod->space->groups; group != NULL && count < SEATS_MAX;
         group = group->next)
        if (group_wants(world, group, pod)) {
            barred |= count > 0 && group->peer->spec.role != wanted[0]->peer->spec.role;
            wanted[count++] = group;
        }
    for (struct seat **at = &pod->seats; *at != NULL;) {
        struct seat *seat = *at;
        int stays = 0;

        for (uint32_t i = 0; i < count; i++)
            stays |= seat->group == wanted[i] && seat->barred == barred;
        if (stays) {
            at = &seat->next;
            continue;
        }
        *at = seat->next;
        seat_quit(world, seat);
        free(seat);
    }
    old = pod->seats; /* what stayed is in key order; merge what is new */
    for (uint32_t i = 0; i < count; i++) {
        if (old != NULL && old->group == wanted[i]) {
            *end = old;
            end = &old->next;
            old = old->next;
            continue;
        }
        *end = room_new(sizeof(**end));
        **end = (struct seat){.next = old, .pod = pod, .group = wanted[i], .barred = barred};
        seat_enter(world, *end);
        end = &(*end)->next;
    }
}

struct seat *pod_main_seat(const struct pod *pod)
{
    return pod->seats != NULL && !pod->seats->barred ? pod->seats : NULL;
}

/* ---- what is told ------------------------------------------------------------------------------
 */

int pod_suspect(const struct nxl_world *world, const struct pod *pod, const struct group *group,
                const char **ret_reason)
{
    const struct node *node = pod->node;

    (void)world;
    if (node == NULL)
        return 0;
    if (node->known && node->ready != NXL_NODE_READY) {
        *ret_reason = node->ready == NXL_NODE_UNKNOWN ? "node-unknown" : "node-not-ready";
        return 1;
    }
    if (group->frozen)
        return 0;
    if (node->silent) {
        *ret_reason = "agent-silent";
        return 1;
    }
    for (uint32_t i = 0; i < node->stay_count; i++)
        if (node->stays[i].group == group && node->stays[i].lapsed) {
            *ret_reason = "heartbeat-lapsed";
            return 1;
        }
    return 0;
}

static void member_id(const struct pod *pod, const struct nxl_nixlpeer *peer, char *to, size_t size)
{
    const struct container *found = NULL;

    for (uint32_t i = 0; i < pod->container_count; i++)
        if (strcmp(pod->containers[i].name, peer->spec.container) == 0 ||
            (peer->spec.container[0] == '\0' && pod->container_count == 1))
            found = &pod->containers[i];
    if (found != NULL && found->id[0] != '\0' && !found->ended)
        snprintf(to, size, "%s/%s", pod->uid, found->id);
    else
        snprintf(to, size, "%s", pod->uid);
}

static uint64_t member_hash(const struct nxl_world_member *member)
{
    const char *texts[] = {member->id,     member->group,    member->node,
                           member->reason, member->revision, member->topology};
    uint64_t hash = ROOM_HASH_BEGIN ^ ((uint64_t)member->life << 8) ^ member->suspect;

    for (unsigned i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        hash = room_hash(hash, texts[i]);
    return hash;
}

static void count_seats(struct nxl_world *world, struct pod *pod)
{
    for (struct seat *seat = pod->seats; seat != NULL; seat = seat->next) {
        const char *reason;
        uint8_t kind = SEAT_LIVE;

        if (seat->barred)
            continue;
        if (pod->life == NXL_LIFE_DRAINING)
            kind = SEAT_DRAINING;
        else if (pod_suspect(world, pod, seat->group, &reason))
            kind = SEAT_SUSPECT;
        else if (pod->node == NULL || pod->phase == NXL_PHASE_PENDING)
            kind = SEAT_PENDING;
        seat_count(world, seat, kind);
    }
}

void pod_tell(struct nxl_world *world, struct pod *pod)
{
    struct seat *seat = pod_main_seat(pod);
    char id[NXL_UID_MAX + NXL_CONTAINER_ID_MAX + 2];
    struct nxl_world_member member = {.id = id, .reason = ""};
    uint64_t hash;

    if (pod->life == NXL_LIFE_DEAD)
        return;
    count_seats(world, pod);
    if (seat == NULL || pod->node == NULL) {
        if (pod->told)
            world->ops.on_forget(world->arg, pod->uid);
        pod->told = 0;
        return;
    }
    member_id(pod, seat->group->peer, id, sizeof(id));
    member.group = seat->group->key;
    member.pod = pod->name;
    member.node = pod->node->name;
    member.version = pod->version;
    member.revision = labels_value(&pod->labels, seat->group->peer->spec.revision_key);
    member.topology = labels_value(&pod->node->labels, seat->group->peer->spec.topology_key);
    member.life = pod->life;
    if (pod->life == NXL_LIFE_DRAINING)
        member.reason = pod->reason;
    member.suspect = (uint8_t)pod_suspect(world, pod, seat->group, &member.reason);
    hash = member_hash(&member);
    if (pod->told && hash == pod->told_hash)
        return;
    pod->told = 1;
    pod->told_hash = hash;
    world->ops.on_member(world->arg, &member);
}
