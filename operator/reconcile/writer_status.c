/* writer_status.c - a NixlPeer's status and its finalizer, each by server-side apply. */
#include "reconcile/writer_internal.h"

static json_t *condition_json(const struct nxl_condition *condition, enum nxl_condition_type type)
{
    char since[NXL_TIME_SIZE];

    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:s}", "type", nxl_condition_name(type), "status",
                     condition->is_true ? "True" : "False", "observedGeneration",
                     (json_int_t)condition->generation, "lastTransitionTime",
                     nxl_time_text(condition->since_ms, 0, since), "reason", condition->reason,
                     "message", condition->message);
}

static json_t *status_json(const struct nxl_group_status *status)
{
    char summary[32], time[NXL_TIME_SIZE];
    json_t *conditions = json_array();
    json_t *json;

    snprintf(summary, sizeof(summary), "%u/%u", status->synced, status->interested);
    for (int i = 0; i < NXL_CONDITIONS; i++)
        json_array_append_new(conditions,
                              condition_json(&status->conditions[i], (enum nxl_condition_type)i));
    json = json_pack("{s:I, s:I, s:{s:i, s:i, s:i, s:i, s:i}, s:{s:i, s:i, s:s}, s:i, s:o}",
                     "observedGeneration", (json_int_t)status->generation, "membershipRevision",
                     (json_int_t)status->revision, "members", "total", (int)status->total, "live",
                     (int)status->live, "draining", (int)status->draining, "suspect",
                     (int)status->suspect, "pending", (int)status->pending, "agents", "interested",
                     (int)status->interested, "synced", (int)status->synced, "summary", summary,
                     "slices", (int)status->slices, "conditions", conditions);
    if (status->dead_ms > 0)
        json_object_set_new(json, "lastInvalidation",
                            json_pack("{s:s, s:s, s:i, s:i}", "time",
                                      nxl_time_text(status->dead_ms, 0, time), "reason",
                                      status->dead_reason, "count", (int)status->dead_count,
                                      "slowestAgentMillis", (int)status->slowest_ms));
    return json;
}

/* The UID is part of what is applied: an object that was deleted meanwhile is not made again. */
static json_t *apply_json(const char *ns, const char *name, const char *uid)
{
    return json_pack("{s:s, s:s, s:{s:s, s:s, s:s}}", "apiVersion", NXL_API_VERSION, "kind",
                     "NixlPeer", "metadata", "namespace", ns, "name", name, "uid", uid);
}

static void apply(struct nxl_writer *writer, const char *key, const char *group,
                  const struct object *object, enum call_kind kind, json_t *body /* takes */)
{
    char path[512], ns[NXL_NAMESPACE_MAX + 1];
    const char *name = "";
    char *text = json_dumps(body, JSON_COMPACT);

    NXL_IGNORE(writer_split(group, ns, &name)); /* it was split to make body */
    snprintf(path, sizeof(path), "/apis/nixlet.dev/v1alpha1/namespaces/%s/nixlpeers/%s%s", ns, name,
             kind == CALL_STATUS ? "/status" : "");
    writer_send(writer, key, object->uid, kind, 0,
                &(struct nxl_writer_call){.method = "PATCH",
                                          .path = path,
                                          .query = MANAGER,
                                          .content_type = APPLY,
                                          .body = text});
    free(text);
    json_decref(body);
}

/* What we own of metadata is the finalizer; applying without it takes it off. */
static void work_finalizer(struct nxl_writer *writer, const char *key, const char *group,
                           struct object *object, int on)
{
    char ns[NXL_NAMESPACE_MAX + 1];
    const char *name;
    json_t *body;

    if (writer_split(group, ns, &name) != 0) {
        writer_done(writer, key);
        return;
    }
    body = apply_json(ns, name, object->uid);
    if (on)
        json_object_set_new(json_object_get(body, "metadata"), "finalizers",
                            json_pack("[s]", NXL_FINALIZER));
    writer->counts.finalizers++;
    apply(writer, key, group, object, CALL_FINALIZER, body);
}

static void work_deleting(struct nxl_writer *writer, const char *key, const char *group,
                          struct object *object, const struct nxl_nixlpeer *peer)
{
    uint64_t waited_ns;

    if (!peer->finalizer) {
        writer_done(writer, key);
        return;
    }
    if (object->revoke_ns == 0)
        object->revoke_ns = writer->now_ns;
    waited_ns = writer->now_ns - object->revoke_ns;
    if (waited_ns < writer->options.revoke_timeout_ns &&
        (waited_ns < REVOKE_POLL_NS || !writer->api.revoked(writer->options.arg, group))) {
        writer_later(writer, key, writer->now_ns + REVOKE_POLL_NS);
        return;
    }
    if (waited_ns >= writer->options.revoke_timeout_ns && !object->timed_out) {
        object->timed_out = 1;
        nxl_writer_note(writer, group, "RevokeTimedOut", NXL_EVENT_WARNING,
                        "agents did not confirm in time that the group is revoked; they learn it "
                        "when they are back");
    }
    work_finalizer(writer, key, group, object, 0);
}

static void make_status(struct nxl_writer *writer, const char *group, struct object *object,
                        const struct nxl_world_group *state, struct nxl_group_status *ret)
{
    struct nxl_writer_agents agents = {0};

    writer->api.agents(writer->options.arg, group, &agents);
    nxl_group_status_make(
        &(struct nxl_group_status_facts){.group = *state,
                                         .interested = agents.interested,
                                         .synced = agents.synced,
                                         .slowest_ns = agents.slowest_ns,
                                         .now_ns = writer->now_ns,
                                         .now_ms = writer->now_ms},
        object->sent.conditions[NXL_CONDITION_READY].reason != NULL ? &object->sent : NULL, ret);
}

/* Our own last write is not in the cache yet: acting on what is there would act twice. */
static int unseen(struct nxl_writer *writer, struct object *object, const char *version)
{
    if (object->awaited[0] == '\0')
        return 0;
    if (strlen(version) > strlen(object->awaited) ||
        (strlen(version) == strlen(object->awaited) && strcmp(version, object->awaited) >= 0) ||
        writer->now_ns - object->awaited_ns > UNSEEN_NS) {
        object->awaited[0] = '\0';
        return 0;
    }
    return 1;
}

void work_status(struct nxl_writer *writer, const char *key, const char *group)
{
    struct object *object = writer_object(writer, group);
    struct nxl_world_group state;
    struct nxl_group_status status;
    char ns[NXL_NAMESPACE_MAX + 1];
    const char *name;
    uint64_t wait_ns;
    json_t *body;

    if (!nxl_world_group(writer->options.world, group, &state) ||
        writer_split(group, ns, &name) != 0) {
        HASH_DEL(writer->objects, object);
        free(object->slice_hash);
        free(object);
        writer_done(writer, key);
        return;
    }
    if (object->uid[0] == '\0')
        nxl_copy_text(object->uid, sizeof(object->uid), state.peer->uid);
    if (unseen(writer, object, state.peer->version)) {
        writer_later(writer, key, writer->now_ns + NXL_SEC);
        return;
    }
    if (state.peer->deleting) {
        work_deleting(writer, key, group, object, state.peer);
        return;
    }
    if (!state.peer->finalizer) {
        work_finalizer(writer, key, group, object, 1);
        return;
    }
    make_status(writer, group, object, &state, &status);
    if (object->has_sent && !nxl_group_status_differs(&object->sent, &status)) {
        writer_done(writer, key);
        return;
    }
    wait_ns = object->has_sent && nxl_group_status_urgent(&object->sent, &status)
                  ? URGENT_NS
                  : writer->options.status_interval_ns;
    if (object->wrote_ns != 0 && writer->now_ns - object->wrote_ns < wait_ns) {
        writer_later(writer, key, object->wrote_ns + wait_ns);
        return;
    }
    object->on_way = status;
    object->wrote_ns = writer->now_ns;
    body = apply_json(ns, name, object->uid);
    json_object_set_new(body, "status", status_json(&status));
    writer->counts.status++;
    apply(writer, key, group, object, CALL_STATUS, body);
}

void answer_status(struct nxl_writer *writer, struct object *object, const json_t *answer,
                   enum call_kind kind)
{
    const char *version =
        json_string_value(json_object_get(json_object_get(answer, "metadata"), "resourceVersion"));

    if (kind == CALL_STATUS) {
        object->sent = object->on_way;
        object->has_sent = 1;
    }
    if (version != NULL && nxl_copy_text(object->awaited, sizeof(object->awaited), version) == 0)
        object->awaited_ns = writer->now_ns;
    else
        object->awaited[0] = '\0';
}
