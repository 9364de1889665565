/* world_group.c - a NixlPeer's object as it comes and goes, and whether it can be accepted. */
#include "model/world_internal.h"

static int by_key(const struct group *a, const struct group *b)
{
    return strcmp(a->key, b->key);
}

static struct group *group_make(struct nxl_world *world, const struct nxl_nixlpeer *peer)
{
    size_t size = strlen(peer->ns) + strlen(peer->name) + 2;
    struct group *group = room_new(sizeof(*group) + size);
    struct group **at;

    snprintf(group->key, size, "%s/%s", peer->ns, peer->name);
    group->space = world_space(world, peer->ns);
    group->refusal = "";
    HASH_ADD_KEYPTR_INORDER(hh, world->groups, group->key, size - 1, group, by_key);
    at = &group->space->groups;
    while (*at != NULL && strcmp((*at)->key, group->key) < 0)
        at = &(*at)->next;
    group->next = *at;
    *at = group;
    return group;
}

void group_note(struct nxl_world *world, struct group *group, enum nxl_world_note note,
                const char *fmt, ...)
{
    char text[512];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    world->ops.on_note(world->arg, group->key, note, text);
}

void group_changed(struct nxl_world *world, struct group *group)
{
    world->ops.on_group(world->arg, group->key);
}

void group_dead(struct nxl_world *world, struct group *group, const struct pod *pod,
                const char *reason, uint64_t now_ns)
{
    const char *old = group->dead_reason;

    /* What falls within a second is one invalidation: a scale-down, a lost node. */
    if (group->dead_ns == 0 || now_ns - group->dead_ns > SECOND_NS)
        group->dead_count = 0;
    group->dead_count++;
    group->dead_ns = now_ns == 0 ? 1 : now_ns;
    group->dead_reason = text_take(world->texts, reason);
    text_drop(world->texts, old);
    group_note(world, group, NXL_NOTE_INVALIDATED, "pod %s: %s", pod->name, reason);
    group_changed(world, group);
}

/* ---- accepted or not ------------------------------------------------------------------------- */

static int backend_known(const struct nxl_world *world, const char *name)
{
    for (uint32_t i = 0; i < world->backend_count; i++)
        if (strcmp(world->backends[i], name) == 0)
            return 1;
    return 0;
}

static const char *group_unknown_backend(const struct nxl_world *world, const struct group *group,
                                         char *field, size_t size)
{
    for (uint32_t i = 0; i < group->peer->spec.backend_count; i++)
        if (!backend_known(world, group->peer->spec.backends[i].name)) {
            snprintf(field, size, "spec.backends[%u].name: no backend is called \"%s\"%s", i,
                     group->peer->spec.backends[i].name,
                     group->peer->spec.backends[i].required
                         ? "; it is required, so nobody is let in"
                         : "; it is left out");
            return "UnknownBackend";
        }
    return NULL;
}

static const char *group_overlap(const struct group *group, char *field, size_t size)
{
    const struct seat *seat = group->barred_count > 0 ? group->barred[0] : NULL;
    const struct group *other = NULL;

    if (seat == NULL)
        return NULL;
    for (const struct seat *s = seat->pod->seats; s != NULL; s = s->next)
        if (s->group->peer->spec.role != group->peer->spec.role)
            other = s->group;
    snprintf(field, size,
             "spec.selector: pods such as %s are matched by %s too, whose role is another; they "
             "belong to neither",
             seat->pod->name, other != NULL ? other->key : "another group");
    return "SelectorOverlap";
}

void group_judge(struct nxl_world *world, struct group *group)
{
    static const struct {
        const char *refusal;
        enum nxl_world_note note;
    } notes[] = {{"UnknownBackend", NXL_NOTE_UNKNOWN_BACKEND},
                 {"PeerNotFound", NXL_NOTE_PEER_NOT_FOUND},
                 {"SelectorOverlap", NXL_NOTE_OVERLAP}};
    char field[sizeof(group->field)] = "";
    const char *refusal = NULL;

    if (!group->peer->deleting) {
        refusal = group_unknown_backend(world, group, field, sizeof(field));
        if (refusal == NULL && group->dangling[0] != '\0') {
            snprintf(field, sizeof(field), "%s", group->dangling);
            refusal = "PeerNotFound";
        }
        if (refusal == NULL)
            refusal = group_overlap(group, field, sizeof(field));
    }
    if (refusal == NULL)
        refusal = "";
    if (strcmp(refusal, group->refusal) == 0 && strcmp(field, group->field) == 0)
        return;
    group->refusal = refusal;
    memcpy(group->field, field, sizeof(field));
    for (unsigned i = 0; i < sizeof(notes) / sizeof(notes[0]); i++)
        if (strcmp(notes[i].refusal, refusal) == 0)
            group_note(world, group, notes[i].note, "%s", field);
    group_changed(world, group);
}

/* ---- come and gone ----------------------------------------------------------------------------
 */

static int labels_equal(const struct nxl_nixlpeer *a, const struct nxl_nixlpeer *b)
{
    const struct label_set set = {.items = (struct nxl_label *)(uintptr_t)a->labels,
                                  .count = a->label_count};

    return labels_same(&set, b->labels, b->label_count);
}

/* Pods of the namespace, again: this is the one place that costs all of them. */
static void match_space(struct nxl_world *world, struct space *space)
{
    struct pod *pod, *next;

    HASH_ITER(by_name, space->pods, pod, next)
    {
        pod_match(world, pod);
        pod_tell(world, pod);
    }
}

static void group_put(struct nxl_world *world, struct group *group, struct nxl_nixlpeer *peer,
                      uint64_t now_ns)
{
    struct nxl_nixlpeer *old = group->peer;
    int spec = old == NULL || old->generation != peer->generation;
    int deleting = old != NULL && !old->deleting && peer->deleting;
    int resolve = spec || deleting || !labels_equal(old, peer);

    group->peer = peer;
    nxl_nixlpeer_free(old);
    if (group->revision < peer->revision)
        group->revision = peer->revision;
    if (deleting && group->programmed)
        world->ops.on_policy_gone(world->arg, group->key);
    if (spec || deleting) {
        group->programmed = 0;
        match_space(world, group->space);
        group_judge(world, group);
    }
    if (world->synced && resolve)
        world_resolve(world);
    if (spec && world->synced)
        nxl_world_tick(world, now_ns > world->tick_ns ? now_ns : world->tick_ns);
    group_changed(world, group);
}

void nxl_world_put_nixlpeer(struct nxl_world *world, struct nxl_nixlpeer *peer, uint64_t now_ns)
{
    char key[NXL_NAMESPACE_MAX + NXL_NODE_MAX + 2];
    struct group *group;

    snprintf(key, sizeof(key), "%s/%s", peer->ns, peer->name);
    group = world_find_group(world, key);
    if (world_buried(world, peer->uid) ||
        (group != NULL && version_order(peer->version, group->peer->version) < 0)) {
        nxl_nixlpeer_free(peer);
        return;
    }
    if (group != NULL && strcmp(group->peer->uid, peer->uid) != 0) {
        nxl_world_drop_nixlpeer(world, peer->ns, peer->name, group->peer->uid, now_ns);
        group = NULL;
    }
    if (group == NULL)
        group = group_make(world, peer);
    group_put(world, group, peer, now_ns);
}

void nxl_world_drop_nixlpeer(struct nxl_world *world, const char *ns, const char *name,
                             const char *uid, uint64_t now_ns)
{
    char key[NXL_NAMESPACE_MAX + NXL_NODE_MAX + 2];
    struct group *group, **at;
    struct space *space;

    (void)now_ns;
    world_bury(world, uid);
    snprintf(key, sizeof(key), "%s/%s", ns, name);
    group = world_find_group(world, key);
    if (group == NULL || strcmp(group->peer->uid, uid) != 0)
        return;
    space = group->space;
    if (group->programmed)
        world->ops.on_policy_gone(world->arg, group->key);
    group->peer->deleting = 1;
    match_space(world, space);
    at = &space->groups;
    while (*at != group)
        at = &(*at)->next;
    *at = group->next;
    HASH_DEL(world->groups, group);
    if (world->synced)
        world_resolve(world); /* nobody's rules point at it afterwards */
    group_changed(world, group);
    nxl_nixlpeer_free(group->peer);
    text_drop(world->texts, group->dead_reason);
    free(group->members);
    free(group->barred);
    free(group->edges);
    free(group);
    world_spare_space(world, space);
}

void nxl_world_synced(struct nxl_world *world, uint64_t now_ns)
{
    (void)now_ns;
    if (world->synced)
        return;
    world->synced = 1;
    world_resolve(world);
}
