/* frame_decode.c - a frame's text to its fields, every one checked before it is used. Pure; any
 * thread; fuzzed. */
#include "stream/frame_internal.h"

#include "base/log.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static void *at(struct nxl_stream_frame *frame, size_t offset)
{
    return (unsigned char *)frame + offset;
}

static enum nxl_code hex_read(const json_t *json, const char *key, uint64_t *ret,
                              struct nxl_err *err)
{
    const char *text;
    enum nxl_code code = stream_get_text(json, key, 16, &text, err);

    if (code != NXL_OK)
        return code;
    if (text[0] == '\0')
        return NXL_OK;
    if (strspn(text, "0123456789abcdef") != strlen(text))
        return nxl_err_set(err, NXL_MISMATCH, 0, "field '%s' is no hexadecimal number", key);
    *ret = strtoull(text, NULL, 16);
    return NXL_OK;
}

static enum nxl_code part_read(const json_t *json, const char *key, uint8_t *ret,
                               struct nxl_err *err)
{
    const char *text;
    enum nxl_code code = stream_get_text(json, key, 16, &text, err);
    int index = code == NXL_OK ? stream_word(stream_part_words, STREAM_PARTS, text) : -1;

    if (code == NXL_OK && index < 0)
        return nxl_err_set(err, NXL_MISMATCH, 0, "field '%s' is not begin, peers or end", key);
    if (code == NXL_OK)
        *ret = (uint8_t)index;
    return code;
}

static enum nxl_code range_read(const json_t *json, const char *key, struct nxl_stream_frame *ret,
                                struct nxl_err *err)
{
    const json_t *list = json_object_get(json, key);
    json_int_t low = json_integer_value(json_array_get(list, 0));
    json_int_t high = json_integer_value(json_array_get(list, 1));

    if (json_array_size(list) < 2 || low < 0 || high < low || high > UINT16_MAX)
        return nxl_err_set(err, NXL_MISMATCH, 0, "field '%s' is no range [min, max]", key);
    ret->version_min = (uint32_t)low;
    ret->version_max = (uint32_t)high;
    return NXL_OK;
}

static enum nxl_code list_of(const json_t *json, const char *key, size_t max, const json_t **ret,
                             size_t *ret_count, struct nxl_err *err)
{
    const json_t *list = json_object_get(json, key);

    if (list != NULL && (!json_is_array(list) || json_array_size(list) > max))
        return nxl_err_set(err, NXL_MISMATCH, 0, "field '%s' is no list of at most %zu", key, max);
    *ret = list;
    *ret_count = json_array_size(list);
    return NXL_OK;
}

static size_t dead_total(const json_t *json)
{
    const json_t *list = json_object_get(json, "dead");
    size_t total = 0;

    for (size_t i = 0; i < json_array_size(list); i++)
        total += json_array_size(json_object_get(json_array_get(list, i), "i"));
    return total;
}

static enum nxl_code dead_read(const json_t *item, struct nxl_stream_frame *ret,
                               struct nxl_err *err)
{
    struct stream_room *room = ret->room;
    const json_t *ids = json_object_get(item, "i");
    const char *reason = "";
    enum nxl_code code = stream_get_text(item, "r", NXL_STREAM_TEXT_MAX, &reason, err);

    if (code != NXL_OK)
        return code;
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *id = json_array_get(ids, i);
        struct nxl_stream_member *member = &room->members[ret->member_count];

        if (!json_is_string(id) || json_string_length(id) > NXL_INCARNATION_MAX ||
            !stream_is_id(json_string_value(id)))
            return nxl_err_set(err, NXL_MISMATCH, 0, "i[%zu] is no pod, container or session", i);
        *member = (struct nxl_stream_member){.id = json_string_value(id),
                                             .group = "",
                                             .pod = "",
                                             .node = "",
                                             .reason = reason,
                                             .version = "",
                                             .revision = "",
                                             .topology = "",
                                             .life = NXL_LIFE_DEAD};
        ret->member_count++;
    }
    return NXL_OK;
}

/* Behind the members: what died after it changed is dead. */
static enum nxl_code deads_read(const json_t *json, const char *key, struct nxl_stream_frame *ret,
                                struct nxl_err *err)
{
    struct stream_room *room = ret->room;
    size_t total = dead_total(json), count;
    const json_t *list;
    enum nxl_code code = list_of(json, key, NXL_STREAM_RECORDS_MAX, &list, &count, err);

    if (code != NXL_OK || total == 0)
        return code;
    if (total > NXL_STREAM_DEAD_MAX)
        return nxl_err_set(err, NXL_MISMATCH, 0, "field '%s' has %zu ids, at most %u are allowed",
                           key, total, NXL_STREAM_DEAD_MAX);
    if (room->members == NULL)
        room->members = nxl_new0_array(total, sizeof(*room->members));
    ret->members = room->members;
    for (size_t i = 0; i < count; i++) {
        code = dead_read(json_array_get(list, i), ret, err);
        if (code != NXL_OK)
            return nxl_err_wrap(err, code, "%s[%zu]", key, i);
    }
    return NXL_OK;
}

static enum nxl_code members_read(const json_t *json, const char *key, struct nxl_stream_frame *ret,
                                  struct nxl_err *err)
{
    struct stream_room *room = ret->room;
    const json_t *list;
    size_t count;
    enum nxl_code code = list_of(json, key, NXL_STREAM_RECORDS_MAX, &list, &count, err);

    if (code != NXL_OK || count == 0)
        return code;
    room->members = nxl_new0_array(count + dead_total(json), sizeof(*room->members));
    for (size_t i = 0; i < count; i++) {
        code = stream_member_read(json_array_get(list, i), ret->type == NXL_STREAM_LOCAL,
                                  &room->members[i], err);
        if (code != NXL_OK)
            return nxl_err_wrap(err, code, "%s[%zu]", key, i);
    }
    ret->members = room->members;
    ret->member_count = (uint32_t)count;
    return NXL_OK;
}

static enum nxl_code policies_read(const json_t *json, const char *key,
                                   struct nxl_stream_frame *ret, struct nxl_err *err)
{
    struct stream_room *room = ret->room;
    const json_t *list;
    size_t count, rules = 0;
    uint32_t used = 0;
    enum nxl_code code = list_of(json, key, NXL_STREAM_POLICIES_MAX, &list, &count, err);

    if (code != NXL_OK || count == 0)
        return code;
    for (size_t i = 0; i < count; i++)
        rules += json_array_size(json_object_get(json_array_get(list, i), "allow"));
    room->policies = nxl_new0_array(count, sizeof(*room->policies));
    room->rules = nxl_new0_array(rules + 1, sizeof(*room->rules));
    for (size_t i = 0; i < count; i++) {
        code = stream_policy_read(json_array_get(list, i), &room->policies[i], room->rules, &used,
                                  err);
        if (code != NXL_OK)
            return nxl_err_wrap(err, code, "%s[%zu]", key, i);
    }
    ret->policies = room->policies;
    ret->policy_count = (uint32_t)count;
    return NXL_OK;
}

static enum nxl_code pods_read(const json_t *json, const char *key, struct nxl_stream_frame *ret,
                               struct nxl_err *err)
{
    struct stream_room *room = ret->room;
    const json_t *list;
    size_t count;
    enum nxl_code code = list_of(json, key, NXL_STREAM_RECORDS_MAX, &list, &count, err);

    if (code != NXL_OK || count == 0)
        return code;
    room->pods = nxl_new0_array(count, sizeof(*room->pods));
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(list, i);

        room->pods[i] = json_string_value(item);
        if (room->pods[i] == NULL || json_string_length(item) > NXL_LABEL_MAX)
            return nxl_err_set(err, NXL_MISMATCH, 0, "%s[%zu] is no pod UID", key, i);
    }
    ret->pods = room->pods;
    ret->pod_count = (uint32_t)count;
    return NXL_OK;
}

static enum nxl_code int_read(const json_t *json, const struct stream_field *field,
                              struct nxl_stream_frame *ret, struct nxl_err *err)
{
    uint64_t value = 0;
    enum nxl_code code;

    if (field->form == STREAM_I32) {
        json_int_t number = json_integer_value(json_object_get(json, field->key));

        if (number < INT32_MIN || number > INT32_MAX)
            return nxl_err_set(err, NXL_MISMATCH, 0, "field '%s' is no code", field->key);
        *(int32_t *)at(ret, field->offset) = (int32_t)number;
        return NXL_OK;
    }
    code = stream_get_number(json, field->key, field->form == STREAM_U32 ? UINT32_MAX : INT64_MAX,
                             &value, err);
    if (code == NXL_OK && field->form == STREAM_U32)
        *(uint32_t *)at(ret, field->offset) = (uint32_t)value;
    else if (code == NXL_OK)
        *(uint64_t *)at(ret, field->offset) = value;
    return code;
}

static enum nxl_code field_read(const json_t *json, const struct stream_field *field,
                                struct nxl_stream_frame *ret, struct nxl_err *err)
{
    if (field->required && json_object_get(json, field->key) == NULL)
        return nxl_err_set(err, NXL_MISMATCH, 0, "field '%s' is missing", field->key);
    switch (field->form) {
    case STREAM_TEXT:
        return stream_get_text(json, field->key, field->max, (const char **)at(ret, field->offset),
                               err);
    case STREAM_HEX:
        return hex_read(json, field->key, at(ret, field->offset), err);
    case STREAM_PART:
        return part_read(json, field->key, at(ret, field->offset), err);
    case STREAM_RANGE:
        return range_read(json, field->key, ret, err);
    case STREAM_MEMBERS:
        return members_read(json, field->key, ret, err);
    case STREAM_DEAD:
        return deads_read(json, field->key, ret, err);
    case STREAM_POLICIES:
        return policies_read(json, field->key, ret, err);
    case STREAM_PODS:
        return pods_read(json, field->key, ret, err);
    default:
        return int_read(json, field, ret, err);
    }
}

static unsigned type_of(const json_t *json)
{
    const char *name = json_string_value(json_object_get(json, "t"));

    for (unsigned type = 1; name != NULL && type < NXL_STREAM_TYPES; type++) {
        if (strcmp(stream_shape_of(type)->name, name) == 0)
            return type;
    }
    return 0;
}

static void texts_to_empty(struct nxl_stream_frame *frame)
{
    frame->node = frame->agent = frame->cluster = frame->token = frame->epoch = frame->csr = "";
    frame->operator_id = frame->cert = frame->bundle = frame->rv = frame->text = frame->id = "";
}

static enum nxl_code fields_read(struct nxl_stream_frame *frame, struct nxl_err *err)
{
    const struct stream_shape *shape;

    if (!json_is_object(frame->json))
        return nxl_err_set(err, NXL_MISMATCH, 0, "stream frame is no JSON object");
    frame->type = (uint8_t)type_of(frame->json);
    shape = stream_shape_of(frame->type);
    if (shape == NULL)
        return NXL_OK; /* a later version's: skipped, with type NONE */
    for (unsigned i = 0; i < STREAM_FIELDS_MAX && shape->fields[i].key != NULL; i++) {
        enum nxl_code code = field_read(frame->json, &shape->fields[i], frame, err);

        if (code != NXL_OK)
            return nxl_err_wrap(err, code, "stream frame %s", shape->name);
    }
    return NXL_OK;
}

enum nxl_code nxl_stream_decode(struct nxl_view body, struct nxl_stream_frame *ret,
                                struct nxl_err *err)
{
    json_error_t fault;
    enum nxl_code code;

    memset(ret, 0, sizeof(*ret));
    texts_to_empty(ret);
    if (body.size > NXL_STREAM_FRAME_MAX)
        return nxl_err_set(err, NXL_MISMATCH, 0, "stream frame has %zu bytes, at most %u may be",
                           body.size, NXL_STREAM_FRAME_MAX);
    ret->json = json_loadb(body.data, body.size, JSON_REJECT_DUPLICATES, &fault);
    if (ret->json == NULL)
        return nxl_err_set(err, NXL_MISMATCH, 0, "stream frame is no JSON: byte %d: %s",
                           fault.position, nxl_quote(fault.text));
    ret->room = nxl_new0(sizeof(struct stream_room));
    code = fields_read(ret, err);
    if (code != NXL_OK)
        nxl_stream_frame_fini(ret);
    return code;
}

void nxl_stream_frame_fini(struct nxl_stream_frame *frame)
{
    struct stream_room *room = frame->room;

    if (room != NULL) {
        free(room->members);
        free(room->policies);
        free(room->rules);
        free(room->pods);
        free(room);
    }
    json_decref(frame->json);
    frame->room = NULL;
    frame->json = NULL;
    frame->members = NULL;
    frame->policies = NULL;
    frame->pods = NULL;
    frame->member_count = frame->policy_count = frame->pod_count = 0;
}
