/* writer_event.c - events.k8s.io/v1: one object for a reason and a group, its repetitions a series,
 * written at most ten times a minute for one NixlPeer. */
#include "reconcile/writer_internal.h"

#include <xxhash.h>

static void event_free(struct nxl_writer *writer, struct event *event)
{
    HASH_DEL(writer->events, event);
    free(event->group);
    free(event->note);
    free(event->reason);
    free(event);
}

void events_free(struct nxl_writer *writer)
{
    struct event *event, *next;

    HASH_ITER(hh, writer->events, event, next)
    event_free(writer, event);
}

/* The oldest go first: what has not happened for ten minutes, then whatever is first. */
static void make_room(struct nxl_writer *writer)
{
    struct event *event, *next;

    HASH_ITER(hh, writer->events, event, next)
    if (writer->now_ns - event->last_ns > EVENT_IDLE_NS && event->count == event->written)
        event_free(writer, event);
    if (HASH_COUNT(writer->events) >= EVENTS_MAX)
        event_free(writer, writer->events);
}

void nxl_writer_note(struct nxl_writer *writer, const char *group, const char *reason,
                     unsigned flags, const char *text)
{
    char key[NXL_QUEUE_KEY_MAX + 1];
    struct event *event;
    unsigned hash = 0;
    size_t size;

    writer_time(writer);
    if (!(flags & NXL_EVENT_MERGE))
        hash = (unsigned)XXH64(text, strlen(text), 0);
    if (snprintf(key, sizeof(key), "e %s %s %x", group, reason, hash) >= (int)sizeof(key) ||
        !writer->api.may_write(writer->options.arg))
        return; /* the leader says it: all replicas see the same */
    HASH_FIND_STR(writer->events, key, event);
    if (event != NULL && writer->now_ns - event->last_ns > EVENT_IDLE_NS &&
        event->count == event->written) {
        event_free(writer, event);
        event = NULL;
    }
    if (event == NULL) {
        if (HASH_COUNT(writer->events) >= EVENTS_MAX)
            make_room(writer);
        size = strlen(key);
        event = nxl_new0(sizeof(*event) + size + 1);
        memcpy(event->key, key, size + 1);
        event->group = nxl_strdup(group);
        event->reason = nxl_strdup(reason);
        event->note = nxl_strdup(text); /* the server keeps the first */
        event->first_ns = writer->now_ns;
        event->first_ms = writer->now_ms;
        HASH_ADD_KEYPTR(hh, writer->events, event->key, size, event);
    } else {
        writer->counts.notes_merged++;
    }
    event->warning = (flags & NXL_EVENT_WARNING) != 0;
    event->count++;
    event->last_ns = writer->now_ns;
    event->last_ms = writer->now_ms;
    nxl_queue_add(writer->queue, key, writer->now_ns);
}

static json_t *event_json(struct nxl_writer *writer, const struct event *event, const char *ns,
                          const char *peer, const char *uid)
{
    char time[NXL_TIME_SIZE];

    return json_pack("{s:s, s:s, s:{s:s, s:s}, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:{s:s, s:s, "
                     "s:s, s:s, s:s}}",
                     "apiVersion", "events.k8s.io/v1", "kind", "Event", "metadata", "namespace", ns,
                     "name", event->name, "eventTime", nxl_time_text(event->first_ms, 1, time),
                     "type", event->warning ? "Warning" : "Normal", "reason", event->reason,
                     "action", "Reconcile", "note", event->note, "reportingController",
                     "nixlet.dev/operator", "reportingInstance", writer->instance, "regarding",
                     "apiVersion", NXL_API_VERSION, "kind", "NixlPeer", "namespace", ns, "name",
                     peer, "uid", uid);
}

static json_t *series_json(const struct event *event)
{
    char time[NXL_TIME_SIZE];

    return json_pack("{s:{s:i, s:s}}", "series", "count", (int)event->count, "lastObservedTime",
                     nxl_time_text(event->last_ms, 1, time));
}

static void event_send(struct nxl_writer *writer, struct event *event, const char *ns,
                       const char *peer, const char *uid)
{
    char path[512];
    uint32_t written = event->written;
    int fresh = written == 0;
    json_t *body;
    char *text;

    if (fresh)
        snprintf(event->name, sizeof(event->name), "%.60s.%016llx", peer,
                 (unsigned long long)event->first_ms * 1000003u ^ event->first_ns);
    snprintf(path, sizeof(path), "/apis/events.k8s.io/v1/namespaces/%s/events%s%s", ns,
             fresh ? "" : "/", fresh ? "" : event->name);
    body = fresh ? event_json(writer, event, ns, peer, uid) : series_json(event);
    if (fresh && event->count > 1) { /* many came before the first write */
        json_t *series = series_json(event);

        json_object_update(body, series);
        json_decref(series);
    }
    text = json_dumps(body, JSON_COMPACT);
    writer->counts.events++;
    event->written = event->count;
    writer_send(writer, event->key, uid, CALL_EVENT, written,
                &(struct nxl_writer_call){.method = fresh ? "POST" : "PATCH",
                                          .path = path,
                                          .query = fresh ? "" : "fieldManager=nixlet-operator",
                                          .content_type = fresh ? "application/json"
                                                                : "application/merge-patch+json",
                                          .body = text});
    free(text);
    json_decref(body);
}

void work_event(struct nxl_writer *writer, const char *key)
{
    char ns[NXL_NAMESPACE_MAX + 1];
    const char *peer;
    struct event *event;
    struct object *object;

    HASH_FIND_STR(writer->events, key, event);
    if (event == NULL || event->count == event->written ||
        writer_split(event->group, ns, &peer) != 0) {
        writer_done(writer, key);
        return;
    }
    object = writer_find(writer, event->group);
    if (object == NULL || object->uid[0] == '\0') { /* whose event it would be is gone */
        event->written = event->count;
        writer_done(writer, key);
        return;
    }
    if (object->event_ns != 0 && writer->now_ns - object->event_ns < EVENT_EVERY_NS) {
        writer_later(writer, key, object->event_ns + EVENT_EVERY_NS);
        return;
    }
    object->event_ns = writer->now_ns;
    event_send(writer, event, ns, peer, object->uid);
}

/* What the server did not take is to be written again. */
void event_failed(struct nxl_writer *writer, const struct call *call)
{
    struct event *event;

    HASH_FIND_STR(writer->events, call->key, event);
    if (event != NULL)
        event->written = (uint32_t)call->hash;
}

/* 404: the server has forgotten the event (they live an hour); the next time makes a new one. */
void answer_event(struct nxl_writer *writer, const struct call *call, int status)
{
    struct event *event;

    HASH_FIND_STR(writer->events, call->key, event);
    if (event != NULL && status == 404)
        event_free(writer, event);
}
