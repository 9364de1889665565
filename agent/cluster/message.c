/* message.c - encoder of the messages between agents (message_decode.c reads them). Pure; loop
 * thread. */
#include "cluster/message.h"

#include "base/bytes.h"
#include "cluster/message_fields.h"

#include <string.h>

static const void *member_at(const struct nxl_message *message,
                             const struct nxl_message_field *field)
{
    return (const char *)message + field->offset;
}

static enum nxl_code too_large(struct nxl_err *err, const struct nxl_message_field *field,
                               size_t size, size_t max)
{
    return nxl_err_set(err, NXL_LIMIT, 0, "%s has %zu, and at most %zu are allowed", field->name,
                       size, max);
}

static enum nxl_code put_text(struct nxl_bytes *to, const struct nxl_message *message,
                              const struct nxl_message_field *field, struct nxl_err *err)
{
    const char *const *member = member_at(message, field);
    const char *text = *member != NULL ? *member : "";
    size_t size = strlen(text);

    if (size > field->max)
        return too_large(err, field, size, field->max);
    nxl_bytes_put_text(to, text);
    return NXL_OK;
}

static enum nxl_code put_backends(struct nxl_bytes *to, const struct nxl_message *message,
                                  const struct nxl_message_field *field, struct nxl_err *err)
{
    if (message->backend_count > field->max)
        return too_large(err, field, message->backend_count, field->max);
    nxl_bytes_put_u8(to, (uint8_t)message->backend_count);
    for (uint32_t i = 0; i < message->backend_count; i++) {
        const struct nxl_message_backend *backend = &message->backends[i];

        if (backend->address.size > NXL_MESSAGE_BACKEND_ADDRESS_MAX)
            return nxl_err_set(err, NXL_LIMIT, 0,
                               "address of backend '%s' has %zu bytes, and at most %u are allowed",
                               backend->name, backend->address.size,
                               NXL_MESSAGE_BACKEND_ADDRESS_MAX);
        nxl_bytes_put_text(to, backend->name);
        nxl_bytes_put_view(to, backend->address);
    }
    return NXL_OK;
}

static enum nxl_code put_keys(struct nxl_bytes *to, const struct nxl_message_region *region,
                              struct nxl_err *err)
{
    if (region->key_count > NXL_BACKENDS_MAX)
        return nxl_err_set(err, NXL_LIMIT, 0, "region %llu has %u keys, and at most %u are allowed",
                           (unsigned long long)region->id, region->key_count, NXL_BACKENDS_MAX);
    nxl_bytes_put_u8(to, (uint8_t)region->key_count);
    for (uint32_t i = 0; i < region->key_count; i++) {
        if (region->keys[i].key.size > NXL_MESSAGE_KEY_MAX)
            return nxl_err_set(
                err, NXL_LIMIT, 0, "a key of region %llu has %zu bytes, and at most %u are allowed",
                (unsigned long long)region->id, region->keys[i].key.size, NXL_MESSAGE_KEY_MAX);
        nxl_bytes_put_u8(to, region->keys[i].backend);
        nxl_bytes_put_view(to, region->keys[i].key);
    }
    return NXL_OK;
}

static enum nxl_code put_regions(struct nxl_bytes *to, const struct nxl_message *message,
                                 const struct nxl_message_field *field, struct nxl_err *err)
{
    if (message->region_count > field->max)
        return too_large(err, field, message->region_count, field->max);
    nxl_bytes_put_u32(to, message->region_count);
    for (uint32_t i = 0; i < message->region_count; i++) {
        const struct nxl_message_region *region = &message->regions[i];
        enum nxl_code code;

        nxl_bytes_put_u64(to, region->id);
        nxl_bytes_put_u64(to, region->addr);
        nxl_bytes_put_u64(to, region->len);
        nxl_bytes_put_u32(to, region->kind);
        nxl_bytes_put_u32(to, region->device);
        code = put_keys(to, region, err);
        if (code != NXL_OK)
            return code;
    }
    return NXL_OK;
}

static enum nxl_code put_ids(struct nxl_bytes *to, const struct nxl_message *message,
                             const struct nxl_message_field *field, struct nxl_err *err)
{
    if (message->id_count > field->max)
        return too_large(err, field, message->id_count, field->max);
    nxl_bytes_put_u32(to, message->id_count);
    for (uint32_t i = 0; i < message->id_count; i++)
        nxl_bytes_put_u64(to, message->ids[i]);
    return NXL_OK;
}

static enum nxl_code put_field(struct nxl_bytes *to, const struct nxl_message *message,
                               const struct nxl_message_field *field, struct nxl_err *err)
{
    const void *member = member_at(message, field);
    const struct nxl_view *view = member;

    switch (field->form) {
    case NXL_FORM_U16:
        nxl_bytes_put_u16(to, *(const uint16_t *)member);
        return NXL_OK;
    case NXL_FORM_U32:
        nxl_bytes_put_u32(to, *(const uint32_t *)member);
        return NXL_OK;
    case NXL_FORM_U64:
        nxl_bytes_put_u64(to, *(const uint64_t *)member);
        return NXL_OK;
    case NXL_FORM_TEXT:
        return put_text(to, message, field, err);
    case NXL_FORM_VIEW:
        if (view->size > field->max)
            return too_large(err, field, view->size, field->max);
        nxl_bytes_put_view(to, *view);
        return NXL_OK;
    case NXL_FORM_BACKENDS:
        return put_backends(to, message, field, err);
    case NXL_FORM_REGIONS:
        return put_regions(to, message, field, err);
    case NXL_FORM_IDS:
        return put_ids(to, message, field, err);
    case NXL_FORM_NONE:
        break;
    }
    return NXL_OK;
}

static enum nxl_code put_body(struct nxl_bytes *to, const struct nxl_message *message,
                              const struct nxl_message_shape *shape, struct nxl_err *err)
{
    for (const struct nxl_message_field *field = shape->fields; field->form != NXL_FORM_NONE;
         field++) {
        enum nxl_code code = put_field(to, message, field, err);

        if (code != NXL_OK)
            return code;
    }
    return NXL_OK;
}

enum nxl_code nxl_message_encode(const struct nxl_message *message, struct nxl_bytes *to,
                                 struct nxl_err *err)
{
    const struct nxl_message_shape *shape = nxl_message_shape_of(message->type);
    size_t start = to->size;
    size_t size;
    enum nxl_code code;

    if (shape == NULL)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "encode message: type %u does not exist",
                           message->type);
    nxl_bytes_put_u32(to, 0); /* the size, known below */
    nxl_bytes_put_u16(to, message->type);
    code = put_body(to, message, shape, err);
    size = to->size - start - sizeof(uint32_t);
    if (code == NXL_OK && size > NXL_MESSAGE_FRAME_MAX)
        code = nxl_err_set(err, NXL_LIMIT, 0,
                           "the frame has %zu bytes, and at most %u are allowed: send it in parts",
                           size, NXL_MESSAGE_FRAME_MAX);
    if (code != NXL_OK) {
        to->size = start; /* nothing was appended */
        return nxl_err_wrap(err, code, "encode message %s", shape->name);
    }
    for (unsigned i = 0; i < sizeof(uint32_t); i++)
        to->data[start + i] = (unsigned char)(size >> (8 * i));
    return NXL_OK;
}
