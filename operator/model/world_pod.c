/* world_pod.c - a pod's object as it comes and goes: names, lives and containers. */
#include "model/world_internal.h"

static struct pod *find_named(const struct space *space, const char *name)
{
    struct pod *pod;

    HASH_FIND(by_name, space->pods, name, strlen(name), pod);
    return pod;
}

static struct pod *find_uid(const struct nxl_world *world, const char *uid, size_t size)
{
    struct pod *pod;

    HASH_FIND(by_uid, world->pods, uid, size, pod);
    return pod;
}

static struct pod *pod_make(struct nxl_world *world, struct space *space,
                            const struct nxl_pod *from)
{
    size_t name = strlen(from->name) + 1, uid = strlen(from->uid) + 1;
    struct pod *pod = room_new(sizeof(*pod) + name + uid);

    memcpy(pod->name, from->name, name);
    pod->uid = pod->name + name;
    memcpy(pod->uid, from->uid, uid);
    pod->space = space;
    HASH_ADD_KEYPTR(by_uid, world->pods, pod->uid, uid - 1, pod);
    HASH_ADD_KEYPTR(by_name, space->pods, pod->name, name - 1, pod);
    return pod;
}

void pod_forget_sessions(struct pod *pod, const char *prefix)
{
    size_t size = prefix == NULL ? 0 : strlen(prefix);

    for (struct session **at = &pod->sessions; *at != NULL;) {
        struct session *session = *at;
        char end = prefix == NULL ? '\0' : session->id[size];

        if (size > 0 && (strncmp(session->id, prefix, size) != 0 || (end != '\0' && end != '/'))) {
            at = &session->next;
            continue;
        }
        *at = session->next;
        pod->session_count--;
        free(session);
    }
}

void pod_free(struct nxl_world *world, struct pod *pod)
{
    pod_leave(world, pod);
    pod_move(world, pod, NULL);
    if (pod->drain_ns != 0) {
        if (pod->drain_prev != NULL)
            pod->drain_prev->drain_next = pod->drain_next;
        else
            world->draining = pod->drain_next;
        if (pod->drain_next != NULL)
            pod->drain_next->drain_prev = pod->drain_prev;
    }
    HASH_DELETE(by_uid, world->pods, pod);
    HASH_DELETE(by_name, pod->space->pods, pod);
    pod_forget_sessions(pod, NULL);
    labels_drop(world->texts, &pod->labels);
    for (uint32_t i = 0; i < pod->container_count; i++) {
        text_drop(world->texts, pod->containers[i].name);
        free(pod->containers[i].id);
    }
    free(pod->containers);
    text_drop(world->texts, pod->reason);
    free(pod);
}

static void pod_reason(struct nxl_world *world, struct pod *pod, const char *reason)
{
    const char *old = pod->reason;

    pod->reason = text_take(world->texts, reason);
    text_drop(world->texts, old);
}

/* Whoever may have heard of it is told; a pod that was in no group is nobody's business. */
void pod_die(struct nxl_world *world, struct pod *pod, const char *reason, uint64_t now_ns)
{
    struct seat *main_seat = pod_main_seat(pod);

    if (pod->life == NXL_LIFE_DEAD)
        return;
    pod->life = NXL_LIFE_DEAD;
    pod_reason(world, pod, reason);
    if (pod->told) {
        struct nxl_world_member member = {
            .id = pod->uid,
            .group = main_seat != NULL ? main_seat->group->key : "",
            .pod = pod->name,
            .node = pod->node != NULL ? pod->node->name : "",
            .reason = pod->reason,
            .version = pod->version,
            .revision = "",
            .topology = "",
            .life = NXL_LIFE_DEAD,
        };

        world->ops.on_member(world->arg, &member);
        pod->told = 0;
    }
    for (struct seat *seat = pod->seats; seat != NULL; seat = seat->next)
        if (!seat->barred)
            group_dead(world, seat->group, pod, pod->reason, now_ns);
    pod_leave(world, pod);
    pod_forget_sessions(pod, NULL);
}

void pod_part_dies(struct nxl_world *world, struct pod *pod, const char *id, const char *reason,
                   uint64_t now_ns)
{
    struct seat *main_seat = pod_main_seat(pod);

    pod_forget_sessions(pod, id);
    if (!pod->told || main_seat == NULL)
        return;
    world->ops.on_member(world->arg, &(struct nxl_world_member){
                                         .id = id,
                                         .group = main_seat->group->key,
                                         .pod = pod->name,
                                         .node = pod->node != NULL ? pod->node->name : "",
                                         .reason = reason,
                                         .version = pod->version,
                                         .revision = "",
                                         .topology = "",
                                         .life = NXL_LIFE_DEAD,
                                     });
    group_dead(world, main_seat->group, pod, reason, now_ns);
}

static void container_dies(struct nxl_world *world, struct pod *pod, const char *container,
                           const char *reason, uint64_t now_ns)
{
    char id[NXL_UID_MAX + NXL_CONTAINER_ID_MAX + 2];

    snprintf(id, sizeof(id), "%s/%s", pod->uid, container);
    pod_part_dies(world, pod, id, reason, now_ns);
}

static struct container *find_container(struct pod *pod, const char *name)
{
    for (uint32_t i = 0; i < pod->container_count; i++)
        if (strcmp(pod->containers[i].name, name) == 0)
            return &pod->containers[i];
    return NULL;
}

/* A status may lag and then names no id: what was known stays. An id once replaced is dead. */
static void put_containers(struct nxl_world *world, struct pod *pod, const struct nxl_pod *from,
                           uint64_t now_ns)
{
    for (uint32_t i = 0; i < from->container_count; i++) {
        const struct nxl_container *now = &from->containers[i];
        struct container *held = find_container(pod, now->name);

        if (held == NULL) {
            pod->containers = room_resize(pod->containers, (size_t)pod->container_count + 1,
                                          sizeof(*pod->containers));
            held = &pod->containers[pod->container_count++];
            *held = (struct container){.name = text_take(world->texts, now->name),
                                       .id = room_text(now->id),
                                       .restarts = now->restarts};
        }
        if (now->id[0] == '\0')
            continue;
        if (strcmp(held->id, now->id) != 0) {
            char *old = held->id;

            held->id = room_text(now->id);
            if (old[0] != '\0' && !held->ended)
                container_dies(world, pod, old, "container-restarted", now_ns);
            free(old);
            held->ended = 0;
        }
        held->restarts = now->restarts;
        if (now->ended && !held->ended) {
            held->ended = 1;
            container_dies(world, pod, held->id, "container-ended", now_ns);
        }
    }
}

static void pod_drain(struct nxl_world *world, struct pod *pod, uint64_t now_ns)
{
    if (pod->drain_ns != 0)
        return;
    pod->life = NXL_LIFE_DRAINING;
    pod_reason(world, pod, "deleting");
    pod->drain_ns = now_ns == 0 ? 1 : now_ns;
    pod->drain_prev = NULL;
    pod->drain_next = world->draining;
    if (world->draining != NULL)
        world->draining->drain_prev = pod;
    world->draining = pod;
}

static int drain_purges(const struct pod *pod)
{
    const struct seat *seat = pod_main_seat(pod);

    return seat != NULL && seat->group->peer->spec.drain_purges &&
           seat->group->peer->spec.mode != NXL_MODE_OBSERVE;
}

static void pod_replaced(struct nxl_world *world, struct pod *pod, const char *reason,
                         uint64_t now_ns)
{
    pod_die(world, pod, reason, now_ns);
    world_bury(world, pod->uid);
    pod_free(world, pod);
}

void nxl_world_put_pod(struct nxl_world *world, const struct nxl_pod *from, uint64_t now_ns)
{
    struct space *space;
    struct node *node;
    struct pod *pod;
    char reason[64];

    if (world_buried(world, from->uid))
        return;
    space = world_space(world, from->ns);
    pod = find_named(space, from->name);
    if (pod != NULL && strcmp(pod->uid, from->uid) != 0) {
        if (version_order(from->version, pod->version) < 0)
            return; /* an older life of the name, from a stale server */
        pod_replaced(world, pod, "replaced", now_ns);
        pod = NULL;
    }
    if (pod != NULL && version_order(from->version, pod->version) < 0)
        return;
    if (pod == NULL)
        pod = pod_make(world, space, from);
    snprintf(pod->version, sizeof(pod->version), "%s", from->version);
    if (pod->life == NXL_LIFE_DEAD)
        return;
    pod->phase = from->phase;
    node = from->node[0] == '\0' ? pod->node : world_node(world, from->node);
    if (node != pod->node)
        pod_move(world, pod, node);
    if (!labels_same(&pod->labels, from->labels, from->label_count))
        labels_take(world->texts, &pod->labels, from->labels, from->label_count);
    pod_match(world, pod);
    put_containers(world, pod, from, now_ns);
    if (from->phase == NXL_PHASE_FAILED || from->phase == NXL_PHASE_SUCCEEDED) {
        snprintf(reason, sizeof(reason), "%s",
                 from->reason[0] != '\0'           ? from->reason
                 : from->phase == NXL_PHASE_FAILED ? "failed"
                                                   : "succeeded");
        pod_die(world, pod, reason, now_ns);
        return;
    }
    if (node != NULL && node->out_of_service) {
        pod_die(world, pod, "node-out-of-service", now_ns);
        return;
    }
    if (from->deleting)
        pod_drain(world, pod, now_ns);
    if (pod->drain_ns != 0 && drain_purges(pod)) {
        pod_die(world, pod, "deleting", now_ns);
        return;
    }
    pod_tell(world, pod);
}

void nxl_world_drop_pod(struct nxl_world *world, const char *ns, const char *name, const char *uid,
                        uint64_t now_ns)
{
    struct pod *pod = find_uid(world, uid, strlen(uid));
    struct space *space;

    (void)ns;
    (void)name;
    world_bury(world, uid);
    if (pod == NULL)
        return;
    space = pod->space;
    pod_die(world, pod, "deleted", now_ns);
    pod_free(world, pod);
    world_spare_space(world, space);
}

static void pod_session(struct pod *pod, const char *id)
{
    struct session *session;
    size_t size = strlen(id) + 1;

    for (session = pod->sessions; session != NULL; session = session->next)
        if (strcmp(session->id, id) == 0)
            return;
    if (pod->session_count == SESSIONS_MAX)
        return;
    session = room_new(sizeof(*session) + size);
    memcpy(session->id, id, size);
    session->next = pod->sessions;
    pod->sessions = session;
    pod->session_count++;
}

int nxl_world_local(struct nxl_world *world, const char *node, const char *id, int life,
                    const char *reason, uint64_t now_ns)
{
    size_t size = strcspn(id, "/");
    struct pod *pod = find_uid(world, id, size);

    if (pod == NULL || pod->node == NULL || strcmp(pod->node->name, node) != 0 ||
        strlen(id) > NXL_INCARNATION_MAX)
        return 0;
    if (pod->life == NXL_LIFE_DEAD)
        return 1;
    if (life == NXL_LIFE_LIVE && id[size] == '/') {
        pod_session(pod, id);
    } else if (life == NXL_LIFE_DEAD && id[size] == '/' && id[size + 1] != '\0') {
        struct container *held = NULL;
        const char *text = text_take(world->texts, reason);

        for (uint32_t i = 0; i < pod->container_count && held == NULL; i++)
            if (strcmp(pod->containers[i].id, id + size + 1) == 0)
                held = &pod->containers[i];
        if (held == NULL || !held->ended) { /* the status may have been faster */
            if (held != NULL)
                held->ended = 1;
            pod_part_dies(world, pod, id, text, now_ns);
            pod_tell(world, pod);
        }
        text_drop(world->texts, text);
    } else if (life == NXL_LIFE_DEAD) {
        pod_die(world, pod, reason, now_ns);
    }
    return 1;
}
