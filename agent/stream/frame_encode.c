/* frame_encode.c - a frame to its bytes; and frames put together from texts of records made before.
 * Pure; any thread. */
#include "stream/frame_internal.h"

#include "base/bytes.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

static const void *at(const struct nxl_stream_frame *frame, size_t offset)
{
    return (const unsigned char *)frame + offset;
}

static void set_int(json_t *to, const struct stream_field *field, uint64_t value)
{
    if (value != 0 || field->required)
        (void)json_object_set_new(to, field->key,
                                  json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value));
}

static json_t *members_json(const struct nxl_stream_frame *frame)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < frame->member_count; i++)
        (void)json_array_append_new(list, stream_member_json(&frame->members[i]));
    return list;
}

static json_t *policies_json(const struct nxl_stream_frame *frame)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < frame->policy_count; i++)
        (void)json_array_append_new(list, stream_policy_json(&frame->policies[i]));
    return list;
}

static json_t *pods_json(const struct nxl_stream_frame *frame)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < frame->pod_count; i++)
        (void)json_array_append_new(list, stream_new_text(frame->pods[i]));
    return list;
}

static void put_field(const struct nxl_stream_frame *frame, const struct stream_field *field,
                      json_t *to)
{
    const void *value = at(frame, field->offset);
    char hex[24];

    switch (field->form) {
    case STREAM_TEXT:
        if (field->required)
            (void)json_object_set_new(to, field->key, stream_new_text(*(const char *const *)value));
        else
            stream_set_text(to, field->key, *(const char *const *)value);
        break;
    case STREAM_U32:
        set_int(to, field, *(const uint32_t *)value);
        break;
    case STREAM_U64:
        set_int(to, field, *(const uint64_t *)value);
        break;
    case STREAM_I32:
        (void)json_object_set_new(to, field->key, json_integer(*(const int32_t *)value));
        break;
    case STREAM_HEX:
        (void)snprintf(hex, sizeof(hex), "%016llx", (unsigned long long)*(const uint64_t *)value);
        (void)json_object_set_new(to, field->key, json_string(hex));
        break;
    case STREAM_PART:
        (void)json_object_set_new(to, field->key, json_string(stream_part_words[frame->part]));
        break;
    case STREAM_RANGE:
        (void)json_object_set_new(
            to, field->key,
            json_pack("[I,I]", (json_int_t)frame->version_min, (json_int_t)frame->version_max));
        break;
    case STREAM_MEMBERS:
        if (frame->member_count > 0)
            (void)json_object_set_new(to, field->key, members_json(frame));
        break;
    case STREAM_POLICIES:
        if (frame->policy_count > 0)
            (void)json_object_set_new(to, field->key, policies_json(frame));
        break;
    case STREAM_PODS:
        if (frame->pod_count > 0)
            (void)json_object_set_new(to, field->key, pods_json(frame));
        break;
    default:
        break;
    }
}

static void write_length(struct nxl_bytes *to, size_t began)
{
    size_t size = to->size - began - NXL_STREAM_HEAD;

    for (unsigned i = 0; i < NXL_STREAM_HEAD; i++)
        to->data[began + i] = (unsigned char)(size >> (8 * i));
}

/* Pings, pongs and acknowledgements are most of what is said: all numbers, so no tree is built. */
static void encode_numbers(const struct nxl_stream_frame *frame, struct nxl_bytes *to)
{
    if (frame->type == NXL_STREAM_ACK)
        nxl_bytes_printf(to, "{\"t\":\"ACK\",\"seq\":%llu,\"purged\":%u,\"us\":%llu}",
                         (unsigned long long)frame->seq, frame->purged,
                         (unsigned long long)frame->us);
    else
        nxl_bytes_printf(to, "{\"t\":\"PONG\",\"at_ns\":%llu,\"digest\":\"%016llx\",\"seq\":%llu}",
                         (unsigned long long)frame->at_ns, (unsigned long long)frame->digest,
                         (unsigned long long)frame->seq);
}

enum nxl_code nxl_stream_encode(const struct nxl_stream_frame *frame, struct nxl_bytes *to,
                                struct nxl_err *err)
{
    const struct stream_shape *shape = stream_shape_of(frame->type);
    size_t began = to->size;
    json_t *json;

    if (frame->type == NXL_STREAM_ACK || frame->type == NXL_STREAM_PONG) {
        nxl_bytes_put_u32(to, 0);
        encode_numbers(frame, to);
        write_length(to, began);
        return NXL_OK;
    }
    if (shape == NULL || frame->part >= STREAM_PARTS)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "stream frame type %u is unknown",
                           frame->type);
    json = json_object();
    (void)json_object_set_new(json, "t", json_string(shape->name));
    for (unsigned i = 0; i < STREAM_FIELDS_MAX && shape->fields[i].key != NULL; i++)
        put_field(frame, &shape->fields[i], json);
    nxl_bytes_put_u32(to, 0);
    stream_put_json(json, to);
    json_decref(json);
    if (to->size - began - NXL_STREAM_HEAD > NXL_STREAM_FRAME_MAX) {
        size_t size = to->size - began;

        to->size = began;
        return nxl_err_set(err, NXL_LIMIT, 0, "stream frame %s has %zu bytes, at most %u may be",
                           shape->name, size, NXL_STREAM_FRAME_MAX);
    }
    write_length(to, began);
    return NXL_OK;
}

/* ---- from texts --------------------------------------------------------------------------- */

size_t nxl_stream_open_list(struct nxl_bytes *to, const char *kind, uint64_t seq, const char *rv,
                            const char *list)
{
    size_t began = to->size;

    nxl_bytes_put_u32(to, 0);
    nxl_bytes_printf(to, "{\"t\":\"%s\",\"seq\":%llu", kind, (unsigned long long)seq);
    if (strcmp(kind, "SNAPSHOT") == 0)
        nxl_bytes_printf(to, ",\"part\":\"peers\"");
    /* A resource version is opaque text: only what needs no escape is told. */
    if (rv != NULL && rv[0] != '\0' && strspn(rv, "0123456789") == strlen(rv))
        nxl_bytes_printf(to, ",\"rv\":\"%s\"", rv);
    nxl_bytes_printf(to, ",\"%s\":[", list);
    return began;
}

void nxl_stream_close_list(struct nxl_bytes *to, size_t began)
{
    nxl_bytes_put(to, "]}", 2);
    write_length(to, began);
}
