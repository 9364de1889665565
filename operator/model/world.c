/* world.c - the tables: finding, making and freeing what is in them, and the dead. */
#include "model/world_internal.h"

static const char *const built_in[] = {
    "UCX",    "TCP",   "SHM", "LIBFABRIC",  "CUDA",  "POSIX",   "BLK",      "GUSLI", "GDS",
    "GDS_MT", "HF3FS", "OBJ", "AZURE_BLOB", "AZURE", "INFINIA", "MOONCAKE", "UCCL",  "GPUNETIO",
};

struct nxl_world *nxl_world_new(const struct nxl_world_options *options)
{
    struct nxl_world *world = room_new(sizeof(*world));
    uint32_t count = sizeof(built_in) / sizeof(built_in[0]);

    world->ops = *options->ops;
    world->arg = options->arg;
    world->texts = texts_new();
    world->store_up = 1;
    world->backends = room_new((count + options->backend_count) * sizeof(*world->backends));
    for (uint32_t i = 0; i < count; i++)
        world->backends[world->backend_count++] = room_text(built_in[i]);
    for (uint32_t i = 0; i < options->backend_count; i++)
        world->backends[world->backend_count++] = room_text(options->backends[i]);
    return world;
}

static void free_groups(struct nxl_world *world)
{
    struct group *group, *next;

    HASH_ITER(hh, world->groups, group, next)
    {
        HASH_DEL(world->groups, group);
        nxl_nixlpeer_free(group->peer);
        text_drop(world->texts, group->dead_reason);
        free(group->members);
        free(group->barred);
        free(group->edges);
        free(group);
    }
}

static void free_places(struct nxl_world *world)
{
    struct node *node, *node_next;
    struct space *space, *space_next;

    HASH_ITER(hh, world->nodes, node, node_next)
    {
        HASH_DEL(world->nodes, node);
        labels_drop(world->texts, &node->labels);
        free(node->stays);
        free(node);
    }
    HASH_ITER(hh, world->spaces, space, space_next)
    {
        HASH_DEL(world->spaces, space);
        labels_drop(world->texts, &space->labels);
        free(space);
    }
}

void nxl_world_free(struct nxl_world *world)
{
    struct pod *pod, *pod_next;
    struct tomb *tomb, *tomb_next;

    if (world == NULL)
        return;
    HASH_ITER(by_uid, world->pods, pod, pod_next)
    {
        while (pod->seats != NULL) {
            struct seat *next = pod->seats->next;

            free(pod->seats);
            pod->seats = next;
        }
        pod_free(world, pod);
    }
    free_groups(world);
    free_places(world);
    HASH_ITER(hh, world->tombs, tomb, tomb_next)
    {
        HASH_DEL(world->tombs, tomb);
        free(tomb);
    }
    for (uint32_t i = 0; i < world->backend_count; i++)
        free(world->backends[i]);
    free(world->backends);
    texts_free(world->texts);
    free(world);
}

struct space *world_space(struct nxl_world *world, const char *name)
{
    struct space *space;
    size_t size = strlen(name);

    HASH_FIND(hh, world->spaces, name, size, space);
    if (space == NULL) {
        space = room_new(sizeof(*space) + size + 1);
        memcpy(space->name, name, size + 1);
        HASH_ADD_KEYPTR(hh, world->spaces, space->name, size, space);
    }
    return space;
}

void world_spare_space(struct nxl_world *world, struct space *space)
{
    if (space->known || space->pods != NULL || space->groups != NULL)
        return;
    HASH_DEL(world->spaces, space);
    labels_drop(world->texts, &space->labels);
    free(space);
}

struct node *world_node(struct nxl_world *world, const char *name)
{
    struct node *node;
    size_t size = strlen(name);

    HASH_FIND(hh, world->nodes, name, size, node);
    if (node == NULL) {
        node = room_new(sizeof(*node) + size + 1);
        memcpy(node->name, name, size + 1);
        HASH_ADD_KEYPTR(hh, world->nodes, node->name, size, node);
    }
    return node;
}

void world_spare_node(struct nxl_world *world, struct node *node)
{
    if (node->known || node->pods != NULL)
        return;
    HASH_DEL(world->nodes, node);
    labels_drop(world->texts, &node->labels);
    free(node->stays);
    free(node);
}

struct group *world_find_group(struct nxl_world *world, const char *key)
{
    struct group *group;

    HASH_FIND_STR(world->groups, key, group);
    return group;
}

/* 64 bits of the UID are kept: two of a cluster's UIDs that share them are not to be expected. */
int world_buried(struct nxl_world *world, const char *uid)
{
    uint64_t hash = room_hash(ROOM_HASH_BEGIN, uid);
    struct tomb *tomb;

    HASH_FIND(hh, world->tombs, &hash, sizeof(hash), tomb);
    return tomb != NULL;
}

void world_bury(struct nxl_world *world, const char *uid)
{
    struct tomb *tomb;

    if (uid[0] == '\0' || world_buried(world, uid))
        return;
    if (HASH_COUNT(world->tombs) >= TOMBS_MAX) { /* uthash iterates in the order of adding */
        tomb = world->tombs;
        HASH_DEL(world->tombs, tomb);
        free(tomb);
    }
    tomb = room_new(sizeof(*tomb));
    tomb->hash = room_hash(ROOM_HASH_BEGIN, uid);
    HASH_ADD(hh, world->tombs, hash, sizeof(tomb->hash), tomb);
}

int version_order(const char *a, const char *b)
{
    size_t a_size, b_size;

    a += strspn(a, "0");
    b += strspn(b, "0");
    a_size = strlen(a);
    b_size = strlen(b);
    if (a_size != b_size)
        return a_size < b_size ? -1 : 1;
    return strcmp(a, b);
}

void nxl_world_restored(struct nxl_world *world)
{
    for (struct pod *pod = world->pods; pod != NULL; pod = pod->by_uid.next)
        pod->version[0] = '\0';
    for (struct group *group = world->groups; group != NULL; group = group->hh.next)
        group->peer->version = "";
}

void nxl_world_size(const struct nxl_world *world, struct nxl_world_size *ret)
{
    struct nxl_world_size size = {
        .pods = HASH_CNT(by_uid, world->pods),
        .nodes = HASH_COUNT(world->nodes),
        .groups = HASH_COUNT(world->groups),
        .spaces = HASH_COUNT(world->spaces),
        .tombs = HASH_COUNT(world->tombs),
        .texts = texts_count(world->texts),
        .bytes = texts_bytes(world->texts),
    };
    struct pod *pod, *next;

    HASH_ITER(by_uid, world->pods, pod, next)
    {
        size.bytes += sizeof(*pod) + strlen(pod->name) + strlen(pod->uid) + 2;
        size.bytes += pod->labels.count * sizeof(*pod->labels.items);
        for (uint32_t i = 0; i < pod->container_count; i++)
            size.bytes += sizeof(*pod->containers) + strlen(pod->containers[i].id) + 1;
        for (const struct seat *seat = pod->seats; seat != NULL; seat = seat->next)
            size.bytes += sizeof(*seat) + sizeof(void *);
        for (const struct session *s = pod->sessions; s != NULL; s = s->next)
            size.bytes += sizeof(*s) + strlen(s->id) + 1;
    }
    size.bytes += size.tombs * sizeof(struct tomb);
    *ret = size;
}
