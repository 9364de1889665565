/* message_decode.c - reads messages of other agents, whatever they hold. Pure; one decoder per
 * reader. */
#include "cluster/message.h"

#include "base/bytes.h"
#include "base/mem.h"
#include "cluster/message_fields.h"

#include <stdlib.h>
#include <string.h>

#define TEXTS_SIZE 4096u /* more than all texts of any one message together */

struct nxl_message_decoder {
    struct nxl_message_region *regions; /* grown on demand: most connections never carry any */
    uint64_t *ids;
    uint32_t region_room, id_room;
    size_t text_size;
    char texts[TEXTS_SIZE];
};

struct nxl_message_decoder *nxl_message_decoder_new(void)
{
    return nxl_new0(sizeof(struct nxl_message_decoder));
}

void nxl_message_decoder_free(struct nxl_message_decoder *decoder)
{
    if (decoder == NULL)
        return;
    free(decoder->regions);
    free(decoder->ids);
    free(decoder);
}

static enum nxl_code wrong(struct nxl_err *err, const struct nxl_message_field *field,
                           const char *what)
{
    return nxl_err_set(err, NXL_MISMATCH, 0, "%s %s", field->name, what);
}

static enum nxl_code read_text(struct nxl_message_decoder *decoder, struct nxl_reader *reader,
                               const struct nxl_message_field *field, const char **ret,
                               struct nxl_err *err)
{
    char *to = decoder->texts + decoder->text_size;
    size_t room = TEXTS_SIZE - decoder->text_size;

    if (room > field->max + 1u)
        room = field->max + 1u;
    nxl_reader_text(reader, to, room);
    if (reader->bad)
        return wrong(err, field, "is cut off, too long or holds a zero byte");
    decoder->text_size += strlen(to) + 1;
    *ret = to;
    return NXL_OK;
}

static enum nxl_code read_backends(struct nxl_reader *reader, const struct nxl_message_field *field,
                                   struct nxl_message *ret, struct nxl_err *err)
{
    uint32_t count = nxl_reader_u8(reader);

    if (count > field->max)
        return wrong(err, field, "is above the limit");
    for (uint32_t i = 0; i < count; i++) {
        struct nxl_message_backend *backend = &ret->backends[i];

        nxl_reader_text(reader, backend->name, sizeof(backend->name));
        backend->address = nxl_reader_view(reader);
        if (reader->bad || backend->address.size > NXL_MESSAGE_BACKEND_ADDRESS_MAX)
            return nxl_err_set(err, NXL_MISMATCH, 0, "backends[%u] is cut off or too long", i);
    }
    if (reader->bad)
        return wrong(err, field, "is cut off");
    ret->backend_count = count;
    return NXL_OK;
}

static enum nxl_code read_region(struct nxl_reader *reader, uint32_t index,
                                 struct nxl_message_region *to, struct nxl_err *err)
{
    to->id = nxl_reader_u64(reader);
    to->addr = nxl_reader_u64(reader);
    to->len = nxl_reader_u64(reader);
    to->kind = nxl_reader_u32(reader);
    to->device = nxl_reader_u32(reader);
    to->key_count = nxl_reader_u8(reader);
    if (reader->bad)
        return nxl_err_set(err, NXL_MISMATCH, 0, "regions[%u] is cut off", index);
    if (to->addr + to->len < to->addr)
        return nxl_err_set(err, NXL_MISMATCH, 0, "regions[%u] addr plus len overflows", index);
    if (to->kind >= NXL_MEM_KINDS)
        return nxl_err_set(err, NXL_MISMATCH, 0, "regions[%u] kind %u is not known", index,
                           to->kind);
    if (to->key_count > NXL_BACKENDS_MAX)
        return nxl_err_set(err, NXL_MISMATCH, 0, "regions[%u] key_count %u is above %u", index,
                           to->key_count, NXL_BACKENDS_MAX);
    for (uint32_t i = 0; i < to->key_count; i++) {
        to->keys[i].backend = nxl_reader_u8(reader);
        to->keys[i].key = nxl_reader_view(reader);
        if (reader->bad || to->keys[i].key.size > NXL_MESSAGE_KEY_MAX)
            return nxl_err_set(err, NXL_MISMATCH, 0, "regions[%u] keys[%u] is cut off or too long",
                               index, i);
        if (to->keys[i].backend >= NXL_BACKENDS_MAX)
            return nxl_err_set(err, NXL_MISMATCH, 0,
                               "regions[%u] keys[%u] backend %u does not exist", index, i,
                               to->keys[i].backend);
    }
    return NXL_OK;
}

static enum nxl_code read_regions(struct nxl_message_decoder *decoder, struct nxl_reader *reader,
                                  const struct nxl_message_field *field, struct nxl_message *ret,
                                  struct nxl_err *err)
{
    uint32_t count = nxl_reader_u32(reader);

    if (reader->bad)
        return wrong(err, field, "is cut off");
    if (count > field->max)
        return wrong(err, field, "is above the limit");
    if (count > decoder->region_room) {
        decoder->regions = nxl_resize(decoder->regions, count, sizeof(*decoder->regions));
        decoder->region_room = count;
    }
    for (uint32_t i = 0; i < count; i++) {
        enum nxl_code code = read_region(reader, i, &decoder->regions[i], err);

        if (code != NXL_OK)
            return code;
    }
    ret->regions = decoder->regions;
    ret->region_count = count;
    return NXL_OK;
}

static enum nxl_code read_ids(struct nxl_message_decoder *decoder, struct nxl_reader *reader,
                              const struct nxl_message_field *field, struct nxl_message *ret,
                              struct nxl_err *err)
{
    uint32_t count = nxl_reader_u32(reader);

    if (reader->bad || (size_t)count * sizeof(uint64_t) > nxl_reader_left(reader))
        return wrong(err, field, "is cut off");
    if (count > field->max)
        return wrong(err, field, "is above the limit");
    if (count > decoder->id_room) {
        decoder->ids = nxl_resize(decoder->ids, count, sizeof(*decoder->ids));
        decoder->id_room = count;
    }
    for (uint32_t i = 0; i < count; i++)
        decoder->ids[i] = nxl_reader_u64(reader);
    ret->ids = decoder->ids;
    ret->id_count = count;
    return NXL_OK;
}

static enum nxl_code read_field(struct nxl_message_decoder *decoder, struct nxl_reader *reader,
                                const struct nxl_message_field *field, struct nxl_message *ret,
                                struct nxl_err *err)
{
    void *member = (char *)ret + field->offset;
    struct nxl_view *view = member;

    switch (field->form) {
    case NXL_FORM_U16:
        *(uint16_t *)member = nxl_reader_u16(reader);
        break;
    case NXL_FORM_U32:
        *(uint32_t *)member = nxl_reader_u32(reader);
        break;
    case NXL_FORM_U64:
        *(uint64_t *)member = nxl_reader_u64(reader);
        break;
    case NXL_FORM_TEXT:
        return read_text(decoder, reader, field, member, err);
    case NXL_FORM_VIEW:
        *view = nxl_reader_view(reader);
        if (!reader->bad && view->size > field->max)
            return wrong(err, field, "is too long");
        break;
    case NXL_FORM_BACKENDS:
        return read_backends(reader, field, ret, err);
    case NXL_FORM_REGIONS:
        return read_regions(decoder, reader, field, ret, err);
    case NXL_FORM_IDS:
        return read_ids(decoder, reader, field, ret, err);
    case NXL_FORM_NONE:
        break;
    }
    return reader->bad ? wrong(err, field, "is cut off") : NXL_OK;
}

static void empty(struct nxl_message *message)
{
    *message = (struct nxl_message){
        .cluster = "",
        .node = "",
        .agent = "",
        .address = "",
        .ns = "",
        .name = "",
        .incarnation = "",
        .from_ns = "",
        .from_name = "",
        .from_incarnation = "",
        .text = "",
        .payload = {"", 0},
    };
}

static enum nxl_code read_body(struct nxl_message_decoder *decoder, struct nxl_reader *reader,
                               const struct nxl_message_shape *shape, struct nxl_message *ret,
                               struct nxl_err *err)
{
    for (const struct nxl_message_field *field = shape->fields; field->form != NXL_FORM_NONE;
         field++) {
        enum nxl_code code = read_field(decoder, reader, field, ret, err);

        if (code != NXL_OK)
            return nxl_err_wrap(err, code, "message %s", shape->name);
    }
    if (ret->life > NXL_LIFE_DEAD)
        return nxl_err_set(err, NXL_MISMATCH, 0, "message %s: life %u is not known", shape->name,
                           ret->life);
    return NXL_OK;
}

enum nxl_code nxl_message_decode(struct nxl_message_decoder *decoder, struct nxl_view body,
                                 struct nxl_message *ret, struct nxl_err *err)
{
    struct nxl_reader reader = nxl_reader_of(body.data, body.size);
    const struct nxl_message_shape *shape;
    struct nxl_message message;
    enum nxl_code code;
    uint16_t type = nxl_reader_u16(&reader);

    if (reader.bad)
        return nxl_err_set(err, NXL_MISMATCH, 0, "message: type is cut off");
    shape = nxl_message_shape_of(type);
    if (shape == NULL)
        return nxl_err_set(err, NXL_MISMATCH, 0, "message: type %u does not exist", type);
    empty(&message);
    message.type = type;
    decoder->text_size = 0;
    code = read_body(decoder, &reader, shape, &message, err);
    if (code != NXL_OK)
        return code;
    *ret = message;
    return NXL_OK;
}
