/* writer_slice.c - NixlPeerSlices: who is a member, for people to look at, up to 100 a slice. Names
 * are made from group and index, so that writing twice makes no second object. */
#include "reconcile/writer_internal.h"

#include <xxhash.h>

static const char *seat_state(const struct nxl_world_seat *seat)
{
    if (seat->life == NXL_LIFE_DRAINING)
        return "Draining";
    if (seat->suspect)
        return "Suspect";
    return seat->pending ? "Pending" : "Live";
}

static json_t *members_json(const struct nxl_world_seat *seats, uint32_t count)
{
    json_t *members = json_array();

    for (uint32_t i = 0; i < count; i++) {
        json_t *member = json_pack("{s:s, s:s, s:s}", "uid", seats[i].uid, "pod", seats[i].pod,
                                   "state", seat_state(&seats[i]));

        if (seats[i].node[0] != '\0')
            json_object_set_new(member, "node", json_string(seats[i].node));
        if (seats[i].revision[0] != '\0')
            json_object_set_new(member, "revision", json_string(seats[i].revision));
        json_array_append_new(members, member);
    }
    return members;
}

static json_t *slice_json(const struct nxl_nixlpeer *peer, const char *name, uint32_t index,
                          const struct nxl_world_seat *seats, uint32_t count)
{
    json_t *owner = json_pack("[{s:s, s:s, s:s, s:s, s:b, s:b}]", "apiVersion", NXL_API_VERSION,
                              "kind", "NixlPeer", "name", peer->name, "uid", peer->uid,
                              "controller", 1, "blockOwnerDeletion", 0);

    return json_pack("{s:s, s:s, s:{s:s, s:s, s:{s:s}, s:o}, s:s, s:i, s:i, s:o}", "apiVersion",
                     NXL_API_VERSION, "kind", "NixlPeerSlice", "metadata", "namespace", peer->ns,
                     "name", name, "labels", "nixlet.dev/peer", peer->name, "ownerReferences",
                     owner, "peerName", peer->name, "index", (int)index, "count", (int)count,
                     "members", members_json(seats, count));
}

static void slice_delete(struct nxl_writer *writer, const char *key, struct object *object,
                         uint32_t index, const char *path)
{
    if (index >= object->slice_count) {
        writer_done(writer, key);
        return;
    }
    writer->counts.slices++;
    writer_send(writer, key, object->uid, CALL_SLICE_DELETE, 0,
                &(struct nxl_writer_call){.method = "DELETE", .path = path, .query = ""});
}

static void remember(struct object *object, uint32_t index, uint64_t hash)
{
    if (index >= object->slice_room) {
        uint32_t room = (index + 8) & ~7u;

        object->slice_hash = nxl_resize(object->slice_hash, room, sizeof(*object->slice_hash));
        memset(object->slice_hash + object->slice_room, 0,
               (room - object->slice_room) * sizeof(*object->slice_hash));
        object->slice_room = room;
    }
    object->slice_hash[index] = hash;
}

void work_slice(struct nxl_writer *writer, const char *key, const char *group, uint32_t index)
{
    struct nxl_world_seat seats[NXL_SLICE_MEMBERS];
    struct object *object = writer_object(writer, group);
    struct nxl_world_group state;
    char path[512], name[128], ns[NXL_NAMESPACE_MAX + 1], *text;
    const char *peer_name;
    uint32_t count;
    uint64_t hash;
    json_t *body;

    if (!nxl_world_group(writer->options.world, group, &state) || state.peer->deleting ||
        writer_split(group, ns, &peer_name) != 0) {
        writer_done(writer, key); /* slices go with their owner */
        return;
    }
    if (object->uid[0] == '\0')
        nxl_copy_text(object->uid, sizeof(object->uid), state.peer->uid);
    snprintf(name, sizeof(name), "%s-%u", peer_name, index);
    snprintf(path, sizeof(path), "/apis/nixlet.dev/v1alpha1/namespaces/%s/nixlpeerslices/%s", ns,
             name);
    count = nxl_world_slice(writer->options.world, group, index, seats);
    if (count == 0) {
        slice_delete(writer, key, object, index, path);
        return;
    }
    body = slice_json(state.peer, name, index, seats, count);
    text = json_dumps(body, JSON_COMPACT);
    hash = XXH64(text, strlen(text), 0) | 1; /* 0: not written */
    if (index < object->slice_room && object->slice_hash[index] == hash) {
        writer_done(writer, key);
    } else {
        writer->counts.slices++;
        writer_send(writer, key, object->uid, CALL_SLICE, hash,
                    &(struct nxl_writer_call){.method = "PATCH",
                                              .path = path,
                                              .query = MANAGER,
                                              .content_type = APPLY,
                                              .body = text});
    }
    free(text);
    json_decref(body);
}

/* What came meanwhile waits a second: a burst of changes is one write. */
void answer_slice(struct nxl_writer *writer, const struct call *call)
{
    char group[NXL_QUEUE_KEY_MAX + 1];
    struct object *object;
    uint32_t index = (uint32_t)strtoul(strrchr(call->key, ' '), NULL, 10);

    nxl_copy_text(group, sizeof(group), call->key + 2);
    group[strcspn(group, " ")] = '\0';
    object = writer_find(writer, group);
    if (object == NULL)
        return;
    if (call->kind == CALL_SLICE_DELETE) {
        if (index + 1 == object->slice_count)
            object->slice_count = index;
        remember(object, index, 0);
        return;
    }
    if (index >= object->slice_count)
        object->slice_count = index + 1;
    remember(object, index, call->hash);
}
