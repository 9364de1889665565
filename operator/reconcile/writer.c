/* writer.c - keys to work, the limit of writes, calls and their answers. Keys are "s group",
 * "l group index" and "e group reason". */
#include "reconcile/writer_internal.h"

struct nxl_writer *nxl_writer_new(const struct nxl_writer_options *options)
{
    struct nxl_writer *writer = nxl_new0(sizeof(*writer));

    writer->options = *options;
    writer->api = *options->api;
    if (nxl_copy_text(writer->instance, sizeof(writer->instance), options->instance) != 0)
        nxl_debug("writer", "event=instance_cut instance=%s", nxl_quote(writer->instance));
    writer->tokens = BURST;
    writer->queue = nxl_queue_new(&(struct nxl_queue_options){.backoff_min_ns = 100 * NXL_MS,
                                                              .backoff_max_ns = 60 * NXL_SEC});
    return writer;
}

static void object_free(struct nxl_writer *writer, struct object *object)
{
    HASH_DEL(writer->objects, object);
    free(object->slice_hash);
    free(object);
}

void nxl_writer_free(struct nxl_writer *writer)
{
    struct object *object, *next;

    if (writer == NULL)
        return;
    for (struct call *call = writer->calls; call != NULL; call = call->next)
        call->writer = NULL; /* its answer frees it */
    HASH_ITER(hh, writer->objects, object, next)
    object_free(writer, object);
    events_free(writer);
    nxl_queue_free(writer->queue);
    free(writer);
}

struct object *writer_find(struct nxl_writer *writer, const char *group)
{
    struct object *object;

    HASH_FIND_STR(writer->objects, group, object);
    return object;
}

struct object *writer_object(struct nxl_writer *writer, const char *group)
{
    struct object *object = writer_find(writer, group);
    size_t size = strlen(group);

    if (object == NULL) {
        object = nxl_new0(sizeof(*object) + size + 1);
        memcpy(object->key, group, size + 1);
        HASH_ADD_KEYPTR(hh, writer->objects, object->key, size, object);
    }
    return object;
}

void writer_time(struct nxl_writer *writer)
{
    writer->api.clock(writer->options.arg, &writer->now_ns, &writer->now_ms);
}

int writer_split(const char *group, char ns[NXL_NAMESPACE_MAX + 1], const char **ret_name)
{
    const char *slash = strchr(group, '/');

    if (slash == NULL || slash - group > NXL_NAMESPACE_MAX)
        return -1;
    memcpy(ns, group, (size_t)(slash - group));
    ns[slash - group] = '\0';
    *ret_name = slash + 1;
    return 0;
}

static void want(struct nxl_writer *writer, const char *key)
{
    writer_time(writer);
    if (!nxl_queue_add(writer->queue, key, writer->now_ns) && nxl_log_gate_open(&writer->gate, 1))
        nxl_warn("writer", "event=queue_full key=%s", nxl_quote(key));
}

void nxl_writer_group(struct nxl_writer *writer, const char *group)
{
    char key[NXL_QUEUE_KEY_MAX + 1];

    snprintf(key, sizeof(key), "s %s", group);
    want(writer, key);
}

void nxl_writer_slice(struct nxl_writer *writer, const char *group, uint32_t index)
{
    char key[NXL_QUEUE_KEY_MAX + 1];

    if (!writer->options.slices)
        return;
    snprintf(key, sizeof(key), "l %s %u", group, index);
    want(writer, key);
}

void nxl_writer_seen(struct nxl_writer *writer, const char *group, const json_t *object)
{
    const json_t *meta = json_object_get(object, "metadata");
    const char *version = json_string_value(json_object_get(meta, "resourceVersion"));
    const char *uid = json_string_value(json_object_get(meta, "uid"));
    struct object *held = writer_object(writer, group);

    if (version == NULL || uid == NULL || strlen(version) >= sizeof(held->seen))
        return;
    if (strcmp(held->uid, uid) != 0) { /* another life of the name */
        nxl_copy_text(held->uid, sizeof(held->uid), uid);
        held->awaited[0] = held->seen[0] = '\0';
        held->has_sent = held->timed_out = 0;
        held->revoke_ns = held->wrote_ns = 0;
        held->slice_count = 0;
        if (held->slice_room > 0)
            memset(held->slice_hash, 0, held->slice_room * sizeof(*held->slice_hash));
    }
    nxl_copy_text(held->seen, sizeof(held->seen), version);
    if (!held->has_sent) { /* what an earlier leader wrote: times go on from there */
        nxl_read_status(object, &held->sent);
        held->has_sent = held->sent.conditions[NXL_CONDITION_READY].reason != NULL;
        if (held->slice_count < held->sent.slices)
            held->slice_count = held->sent.slices;
    }
    nxl_writer_group(writer, group);
}

static void lead_group(void *arg, const char *group)
{
    struct nxl_writer *writer = arg;
    struct object *object = writer_object(writer, group);
    struct nxl_world_group state;

    object->has_sent =
        0; /* the other leader may have written; the next look compares with nothing */
    if (object->slice_room > 0)
        memset(object->slice_hash, 0, object->slice_room * sizeof(*object->slice_hash));
    nxl_writer_group(writer, group);
    if (!nxl_world_group(writer->options.world, group, &state))
        return;
    for (uint32_t i = 0; i < state.slices || i < object->slice_count; i++)
        nxl_writer_slice(writer, group, i);
}

void nxl_writer_lead(struct nxl_writer *writer)
{
    nxl_world_each_group(writer->options.world, lead_group, writer);
}

/* ---- calls and answers ----------------------------------------------------------------------- */

void writer_done(struct nxl_writer *writer, const char *key)
{
    nxl_queue_done(writer->queue, key, writer->now_ns);
}

void writer_later(struct nxl_writer *writer, const char *key, uint64_t at_ns)
{
    char copy[NXL_QUEUE_KEY_MAX + 1];

    nxl_copy_text(copy, sizeof(copy), key);
    nxl_queue_add_at(writer->queue, copy, at_ns);
    nxl_queue_done(writer->queue, copy, writer->now_ns);
}

static void group_of(const char *key, char group[NXL_QUEUE_KEY_MAX + 1])
{
    nxl_copy_text(group, NXL_QUEUE_KEY_MAX + 1, key + 2);
    group[strcspn(group, " ")] = '\0';
}

/* An applied object carries its UID; when there is none with it, the server calls that a conflict.
 */
static int is_gone(const struct call *call, int status, const json_t *answer)
{
    const char *message = json_string_value(json_object_get(answer, "message"));

    if (call->kind == CALL_EVENT)
        return status == 404 || status == 409;
    return status == 404 ||
           (status == 409 && message != NULL && strstr(message, "uid mismatch") != NULL);
}

static int call_failed(struct nxl_writer *writer, const struct call *call, int status,
                       const json_t *answer, uint64_t after_ns, const struct nxl_err *err)
{
    const char *message = json_string_value(json_object_get(answer, "message"));

    if (status >= 200 && status < 300)
        return 0;
    if (is_gone(call, status, answer))
        return 0; /* meanwhile: nothing is left to write */
    writer->counts.failed++;
    if (nxl_log_gate_open(&writer->gate, 5))
        nxl_warn("writer", "event=write_failed key=%s status=%d error=%s", nxl_quote(call->key),
                 status,
                 nxl_quote(err != NULL       ? err->text
                           : message != NULL ? message
                                             : ""));
    if (call->kind == CALL_EVENT)
        event_failed(writer, call);
    nxl_queue_retry(writer->queue, call->key, writer->now_ns, writer->now_ns + after_ns);
    return 1;
}

static void answered(void *arg, int status, const json_t *answer, uint64_t after_ns,
                     const struct nxl_err *err)
{
    struct call *call = arg;
    struct nxl_writer *writer = call->writer;
    char group[NXL_QUEUE_KEY_MAX + 1];
    struct object *object;

    if (writer == NULL) {
        free(call);
        return;
    }
    if (call->prev != NULL)
        call->prev->next = call->next;
    else
        writer->calls = call->next;
    if (call->next != NULL)
        call->next->prev = call->prev;
    writer->call_count--;
    writer_time(writer);
    if (!call_failed(writer, call, status, answer, after_ns, err)) {
        group_of(call->key, group);
        object = writer_find(writer, group);
        if (object != NULL && strcmp(object->uid, call->uid) != 0)
            object = NULL; /* the answer is about another life */
        if (call->kind == CALL_EVENT)
            answer_event(writer, call, status);
        else if (object != NULL && (call->kind == CALL_SLICE || call->kind == CALL_SLICE_DELETE))
            answer_slice(writer, call);
        else if (object != NULL && status < 300)
            answer_status(writer, object, answer, (enum call_kind)call->kind);
        writer_done(writer, call->key);
    }
    free(call);
}

void writer_send(struct nxl_writer *writer, const char *key, const char *uid, enum call_kind kind,
                 uint64_t hash, const struct nxl_writer_call *request)
{
    struct call *call = nxl_new0(sizeof(*call));

    call->writer = writer;
    call->kind = (uint8_t)kind;
    call->hash = hash;
    nxl_copy_text(call->key, sizeof(call->key), key);
    nxl_copy_text(call->uid, sizeof(call->uid), uid);
    call->next = writer->calls;
    if (writer->calls != NULL)
        writer->calls->prev = call;
    writer->calls = call;
    writer->call_count++;
    writer->tokens -= 1;
    writer->api.call(writer->options.arg, request, answered, call);
}

/* ---- work --------------------------------------------------------------------------------------
 */

static void fill_tokens(struct nxl_writer *writer)
{
    if (writer->tokens_ns != 0 && writer->now_ns > writer->tokens_ns)
        writer->tokens += (double)(writer->now_ns - writer->tokens_ns) / (double)NXL_SEC *
                          writer->options.writes_rate;
    if (writer->tokens > BURST)
        writer->tokens = BURST;
    writer->tokens_ns = writer->now_ns;
}

static void work(struct nxl_writer *writer, const char *key)
{
    char group[NXL_QUEUE_KEY_MAX + 1];
    const char *index;

    if (!writer->api.may_write(writer->options.arg)) {
        writer->counts.skipped_not_leader++;
        writer_done(writer, key); /* nxl_writer_lead() brings it back */
        return;
    }
    group_of(key, group);
    switch (key[0]) {
    case 's':
        work_status(writer, key, group);
        break;
    case 'l':
        index = strrchr(key, ' ');
        work_slice(writer, key, group, (uint32_t)strtoul(index, NULL, 10));
        break;
    default:
        work_event(writer, key);
    }
}

void nxl_writer_run(struct nxl_writer *writer)
{
    writer_time(writer);
    fill_tokens(writer);
    while (writer->call_count < CALLS_MAX && writer->tokens >= 1) {
        const char *key = nxl_queue_take(writer->queue, writer->now_ns);

        if (key == NULL)
            break;
        work(writer, key);
    }
}

uint64_t nxl_writer_next_ns(const struct nxl_writer *writer)
{
    uint64_t next_ns = nxl_queue_next_ns(writer->queue);
    uint64_t token_ns = writer->tokens_ns;

    if (next_ns == UINT64_MAX || writer->call_count >= CALLS_MAX)
        return UINT64_MAX; /* an answer runs it again */
    if (writer->tokens < 1)
        token_ns += (uint64_t)((1 - writer->tokens) / writer->options.writes_rate * NXL_SEC);
    return next_ns > token_ns ? next_ns : token_ns;
}

void nxl_writer_counts(const struct nxl_writer *writer, struct nxl_writer_counts *ret)
{
    *ret = writer->counts;
}

uint32_t nxl_writer_depth(const struct nxl_writer *writer)
{
    return nxl_queue_depth(writer->queue);
}

const struct nxl_group_status *nxl_writer_status(struct nxl_writer *writer, const char *group)
{
    struct object *object = writer_find(writer, group);

    return object != NULL && object->has_sent ? &object->sent : NULL;
}
