/* world_node.c - nodes and namespaces: what their objects say about the pods in them. */
#include "model/world_internal.h"

static void tell_all(struct nxl_world *world, struct node *node)
{
    for (struct pod *pod = node->pods; pod != NULL; pod = pod->next)
        pod_tell(world, pod);
}

static void all_die(struct nxl_world *world, struct node *node, const char *reason, uint64_t now_ns)
{
    for (struct pod *pod = node->pods; pod != NULL; pod = pod->next)
        pod_die(world, pod, reason, now_ns);
}

void nxl_world_put_node(struct nxl_world *world, const struct nxl_node *from, uint64_t now_ns)
{
    struct node *node = world_node(world, from->name);
    int changed = !labels_same(&node->labels, from->labels, from->label_count);

    /* Another object of the same name: the machine behind the old one is given up. */
    if (node->known && strcmp(node->uid, from->uid) != 0)
        all_die(world, node, "node-replaced", now_ns);
    changed |= !node->known || node->ready != from->ready;
    node->known = 1;
    node->ready = from->ready;
    node->out_of_service = from->out_of_service;
    snprintf(node->uid, sizeof(node->uid), "%s", from->uid);
    if (changed)
        labels_take(world->texts, &node->labels, from->labels, from->label_count);
    if (node->out_of_service)
        all_die(world, node, "node-out-of-service", now_ns);
    else if (changed)
        tell_all(world, node);
}

void nxl_world_drop_node(struct nxl_world *world, const char *name, const char *uid,
                         uint64_t now_ns)
{
    struct node *node;

    HASH_FIND_STR(world->nodes, name, node);
    if (node == NULL || !node->known || strcmp(node->uid, uid) != 0)
        return;
    all_die(world, node, "node-deleted", now_ns);
    node->known = node->ready = node->out_of_service = 0;
    node->heard_ns = 0;
    labels_drop(world->texts, &node->labels);
    world_spare_node(world, node);
}

void nxl_world_put_namespace(struct nxl_world *world, const struct nxl_namespace *from,
                             uint64_t now_ns)
{
    struct space *space = world_space(world, from->name);

    (void)now_ns;
    if (space->known && labels_same(&space->labels, from->labels, from->label_count))
        return;
    space->known = 1;
    labels_take(world->texts, &space->labels, from->labels, from->label_count);
    if (world->synced)
        world_resolve(world);
}

void nxl_world_drop_namespace(struct nxl_world *world, const char *name, uint64_t now_ns)
{
    struct space *space;

    (void)now_ns;
    HASH_FIND_STR(world->spaces, name, space);
    if (space == NULL || !space->known)
        return;
    space->known = 0;
    labels_drop(world->texts, &space->labels);
    world_spare_space(world, space);
    if (world->synced)
        world_resolve(world);
}

void nxl_world_silent(struct nxl_world *world, const char *name, int silent, uint64_t now_ns)
{
    struct node *node;

    (void)now_ns;
    HASH_FIND_STR(world->nodes, name, node);
    if (node == NULL || node->silent == (silent != 0))
        return;
    node->silent = silent != 0;
    nxl_world_tick(world, now_ns);
    tell_all(world, node);
}

void nxl_world_heartbeat(struct nxl_world *world, const char *name, uint64_t now_ns)
{
    struct node *node;

    HASH_FIND_STR(world->nodes, name, node);
    if (node == NULL) /* a name in the store that the API server does not know */
        return;
    node->heard_ns = now_ns == 0 ? 1 : now_ns;
    for (uint32_t i = 0; i < node->stay_count; i++)
        if (node->stays[i].lapsed) {
            nxl_world_tick(world, now_ns);
            return;
        }
}

void nxl_world_store(struct nxl_world *world, int up, int fresh, uint64_t now_ns)
{
    if (world->store_up == (up != 0) && !fresh)
        return;
    if (up)
        world->store_ns = now_ns;
    if (up && (fresh || !world->store_up))
        world->doubt = 1;
    world->store_up = up != 0;
    for (struct group *group = world->groups; group != NULL; group = group->hh.next) {
        if (!up)
            group_note(world, group, NXL_NOTE_STORE_LOST,
                       "the store does not answer: nobody is judged by heartbeats");
        group_changed(world, group);
    }
    nxl_world_tick(world, now_ns);
}
