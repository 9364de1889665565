/* frame_encode.c - struct nxl_frame to bytes. Pure, any thread. */
#include "wire/frame_layout.h"

#include <string.h>

struct writer {
    unsigned char *data;
    size_t room, size;
    const char *flaw; /* the first field that cannot be encoded */
};

static void put(struct writer *writer, const void *data, size_t size)
{
    if (writer->flaw)
        return;
    if (size > writer->room - writer->size) {
        writer->flaw = "the buffer is too small";
        return;
    }
    if (size > 0)
        memcpy(writer->data + writer->size, data, size);
    writer->size += size;
}

/* Size of an identifying text in an array of room bytes; a flaw if unterminated or unclean. */
static uint16_t text_size(struct writer *writer, const char *text, size_t room, const char *flaw)
{
    size_t size = strnlen(text, room);

    if (size == room || !nxl_frame_text_clean(text, size)) {
        if (!writer->flaw)
            writer->flaw = flaw;
        return 0;
    }
    return (uint16_t)size;
}

#define TEXT_SIZE(writer, field, what)                                                             \
    text_size(writer, field, sizeof(field), what " is unterminated or holds a control character")

static void put_body(struct writer *writer, const struct nxl_frame *frame, unsigned parts)
{
    struct frame_body body = {
        .peer = frame->peer,
        .remote = frame->remote,
        .list = frame->list,
        .kind = frame->kind,
        .flags = frame->flags,
        .count = frame->count,
        .more = frame->more,
        .timeout_ms = frame->timeout_ms,
        .slot = frame->slot,
        .generation = frame->generation,
        .os = frame->os,
        .blob_size = parts & FRAME_BLOB ? frame->blob_size : 0,
        .arena_offset = frame->arena_offset,
        .size = frame->size,
    };

    body.name_size = TEXT_SIZE(writer, frame->name, "name");
    body.incarnation_size = TEXT_SIZE(writer, frame->incarnation, "incarnation");
    body.label_size = TEXT_SIZE(writer, frame->label, "label");
    body.address_size = TEXT_SIZE(writer, frame->address, "address");
    body.text_size = frame->reply || frame->type == NXL_FRAME_GOAWAY
                         ? (uint16_t)strnlen(frame->text, sizeof(frame->text) - 1)
                         : 0;
    put(writer, &body, sizeof(body));
    put(writer, frame->name, body.name_size);
    put(writer, frame->incarnation, body.incarnation_size);
    put(writer, frame->label, body.label_size);
    put(writer, frame->address, body.address_size);
    put(writer, frame->text, body.text_size);
}

static void put_hello(struct writer *writer, const struct nxl_frame *frame)
{
    struct frame_hello hello = {
        .magic = frame->hello.magic,
        .version_min = frame->hello.version_min,
        .version_max = frame->hello.version_max,
        .version = frame->hello.version,
        .slots = frame->hello.slots,
        .session = frame->hello.session,
        .arena_bytes = frame->hello.arena_bytes,
        .notice_bytes = frame->hello.notice_bytes,
        .ring_bytes = frame->hello.ring_bytes,
    };

    hello.node_size = TEXT_SIZE(writer, frame->hello.node, "hello.node");
    hello.ns_size = TEXT_SIZE(writer, frame->hello.ns, "hello.ns");
    hello.backends_size = TEXT_SIZE(writer, frame->hello.backends, "hello.backends");
    hello.program_size = TEXT_SIZE(writer, frame->hello.program, "hello.program");
    put(writer, &hello, sizeof(hello));
    put(writer, frame->hello.node, hello.node_size);
    put(writer, frame->hello.ns, hello.ns_size);
    put(writer, frame->hello.backends, hello.backends_size);
    put(writer, frame->hello.program, hello.program_size);
}

static void put_state(struct writer *writer, const struct nxl_frame *frame)
{
    struct frame_state state = {
        .life = frame->state.life,
        .suspect = frame->state.suspect,
        .same_agent = frame->state.same_agent,
        .regions = frame->state.regions,
    };

    state.agent_size = TEXT_SIZE(writer, frame->state.agent, "state.agent");
    put(writer, &state, sizeof(state));
    put(writer, frame->state.agent, state.agent_size);
}

static void put_parts(struct writer *writer, const struct nxl_frame *frame, unsigned parts)
{
    if (parts & (FRAME_REGIONS | FRAME_IDS) && frame->count > NXL_FRAME_REGIONS_MAX) {
        writer->flaw = "count is larger than one frame holds";
        return;
    }
    if (parts & FRAME_BLOB && frame->blob_size > NXL_FRAME_BLOB_MAX) {
        writer->flaw = "blob_size is larger than one frame holds";
        return;
    }
    if (parts & FRAME_HELLO)
        put_hello(writer, frame);
    if (parts & FRAME_STATE)
        put_state(writer, frame);
    if (parts & FRAME_BLOB)
        put(writer, frame->blob, frame->blob_size);
    if (parts & FRAME_REGIONS) {
        for (uint32_t i = 0; i < frame->count && !writer->flaw; i++)
            writer->flaw = nxl_frame_region_flaw(&frame->regions[i]);
        put(writer, frame->regions, frame->count * sizeof(frame->regions[0]));
    }
    if (parts & FRAME_IDS)
        put(writer, frame->ids, frame->count * sizeof(frame->ids[0]));
}

enum nxl_code nxl_frame_encode(const struct nxl_frame *frame, void *buf, size_t size,
                               size_t *ret_size, struct nxl_err *err)
{
    struct writer writer = {.data = buf, .room = size};
    struct nxl_frame_head head = {
        .type = (uint16_t)(frame->type | (frame->reply ? NXL_FRAME_REPLY : 0)),
        .seq = frame->seq,
        .code = frame->reply || frame->type == NXL_FRAME_GOAWAY ? frame->code : 0,
    };
    unsigned parts;

    if (frame->type == 0 || frame->type >= NXL_FRAME_TYPES)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "frame: type %u is unknown", frame->type);
    parts = nxl_frame_parts(frame->type, frame->reply, frame->code);
    put(&writer, &head, sizeof(head));
    put_body(&writer, frame, parts);
    put_parts(&writer, frame, parts);
    if (writer.flaw)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "frame %s: %s",
                           nxl_frame_type_name(frame->type), writer.flaw);
    head.size = (uint32_t)writer.size;
    memcpy(buf, &head, sizeof(head));
    *ret_size = writer.size;
    return NXL_OK;
}
