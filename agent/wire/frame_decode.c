/* frame_decode.c - bytes from the other side of the socket to a checked struct nxl_frame.
 * Pure, any thread. Every size is checked against what is left before it is used. */
#include "wire/frame_layout.h"

#include <string.h>

struct reader {
    const unsigned char *data;
    size_t size, pos;
    const char *flaw; /* the first field that is wrong */
};

static int take(struct reader *reader, void *to, size_t size, const char *what)
{
    if (reader->flaw)
        return 0;
    if (size > reader->size - reader->pos) {
        reader->flaw = what;
        return 0;
    }
    if (size > 0)
        memcpy(to, reader->data + reader->pos, size);
    reader->pos += size;
    return 1;
}

static void take_text(struct reader *reader, char *to, size_t room, size_t size, int clean,
                      const char *what)
{
    if (reader->flaw)
        return;
    if (size >= room) {
        reader->flaw = what;
        return;
    }
    if (!take(reader, to, size, what))
        return;
    to[size] = '\0';
    if (clean ? !nxl_frame_text_clean(to, size) : memchr(to, '\0', size) != NULL)
        reader->flaw = what;
}

static void take_body(struct reader *reader, struct nxl_frame *frame)
{
    struct frame_body body;

    if (!take(reader, &body, sizeof(body), "body is cut off"))
        return;
    if (body.reserved[0] || body.reserved[1] || body.reserved[2])
        reader->flaw = "body.reserved is not 0";
    if (body.kind >= NXL_MEM_KINDS)
        reader->flaw = "kind is unknown";
    if (body.more > 1)
        reader->flaw = "more is neither 0 nor 1";
    frame->peer = body.peer;
    frame->remote = body.remote;
    frame->list = body.list;
    frame->kind = body.kind;
    frame->flags = body.flags;
    frame->count = body.count;
    frame->more = body.more;
    frame->timeout_ms = body.timeout_ms;
    frame->slot = body.slot;
    frame->generation = body.generation;
    frame->os = body.os;
    frame->blob_size = body.blob_size;
    frame->arena_offset = body.arena_offset;
    frame->size = body.size;
    take_text(reader, frame->name, sizeof(frame->name), body.name_size, 1, "name is wrong");
    take_text(reader, frame->incarnation, sizeof(frame->incarnation), body.incarnation_size, 1,
              "incarnation is wrong");
    take_text(reader, frame->label, sizeof(frame->label), body.label_size, 1, "label is wrong");
    take_text(reader, frame->address, sizeof(frame->address), body.address_size, 1,
              "address is wrong");
    take_text(reader, frame->text, sizeof(frame->text), body.text_size, 0, "text is wrong");
}

static void take_hello(struct reader *reader, struct nxl_frame *frame)
{
    struct frame_hello hello;

    if (!take(reader, &hello, sizeof(hello), "hello is cut off"))
        return;
    if (hello.magic != NXL_FRAME_MAGIC)
        reader->flaw = "hello.magic is wrong: the other side does not speak this protocol";
    if (hello.version_min > hello.version_max)
        reader->flaw = "hello.version_min is larger than hello.version_max";
    frame->hello.magic = hello.magic;
    frame->hello.version_min = hello.version_min;
    frame->hello.version_max = hello.version_max;
    frame->hello.version = hello.version;
    frame->hello.slots = hello.slots;
    frame->hello.session = hello.session;
    frame->hello.arena_bytes = hello.arena_bytes;
    frame->hello.notice_bytes = hello.notice_bytes;
    frame->hello.ring_bytes = hello.ring_bytes;
    take_text(reader, frame->hello.node, sizeof(frame->hello.node), hello.node_size, 1,
              "hello.node is wrong");
    take_text(reader, frame->hello.ns, sizeof(frame->hello.ns), hello.ns_size, 1,
              "hello.ns is wrong");
    take_text(reader, frame->hello.backends, sizeof(frame->hello.backends), hello.backends_size, 1,
              "hello.backends is wrong");
    take_text(reader, frame->hello.program, sizeof(frame->hello.program), hello.program_size, 1,
              "hello.program is wrong");
}

static void take_state(struct reader *reader, struct nxl_frame *frame)
{
    struct frame_state state;

    if (!take(reader, &state, sizeof(state), "state is cut off"))
        return;
    if (state.reserved != 0)
        reader->flaw = "state.reserved is not 0";
    if (state.life > NXL_LIFE_DEAD)
        reader->flaw = "state.life is unknown";
    frame->state.life = state.life;
    frame->state.suspect = state.suspect;
    frame->state.same_agent = state.same_agent;
    frame->state.regions = state.regions;
    take_text(reader, frame->state.agent, sizeof(frame->state.agent), state.agent_size, 1,
              "state.agent is wrong");
}

static void take_regions(struct reader *reader, struct nxl_frame *frame)
{
    if (!take(reader, frame->regions, frame->count * sizeof(frame->regions[0]),
              "regions are cut off"))
        return;
    for (uint32_t i = 0; i < frame->count && !reader->flaw; i++)
        reader->flaw = nxl_frame_region_flaw(&frame->regions[i]);
}

static void take_parts(struct reader *reader, struct nxl_frame *frame, unsigned parts)
{
    if (reader->flaw)
        return;
    if (parts & (FRAME_REGIONS | FRAME_IDS) && frame->count > NXL_FRAME_REGIONS_MAX) {
        reader->flaw = "count is larger than one frame holds";
        return;
    }
    if (frame->blob_size > (parts & FRAME_BLOB ? NXL_FRAME_BLOB_MAX : 0)) {
        reader->flaw = "blob_size is out of bounds";
        return;
    }
    if (parts & FRAME_HELLO)
        take_hello(reader, frame);
    if (parts & FRAME_STATE)
        take_state(reader, frame);
    if (parts & FRAME_BLOB)
        take(reader, frame->blob, frame->blob_size, "blob is cut off");
    if (parts & FRAME_REGIONS)
        take_regions(reader, frame);
    if (parts & FRAME_IDS)
        take(reader, frame->ids, frame->count * sizeof(frame->ids[0]), "ids are cut off");
}

static void take_head(struct reader *reader, struct nxl_frame *frame)
{
    struct nxl_frame_head head;

    if (!take(reader, &head, sizeof(head), "head is cut off"))
        return;
    frame->reply = (head.type & NXL_FRAME_REPLY) != 0;
    frame->type = (uint16_t)(head.type & ~NXL_FRAME_REPLY);
    frame->seq = head.seq;
    frame->code = head.code;
    if (frame->type == 0 || frame->type >= NXL_FRAME_TYPES)
        reader->flaw = "type is unknown";
    else if (head.reserved != 0)
        reader->flaw = "head.reserved is not 0";
    else if (head.size != reader->size)
        reader->flaw = "head.size is not the size of the packet";
    else if (frame->type == NXL_FRAME_GOAWAY && frame->reply)
        reader->flaw = "type says that this answers a GOAWAY, which has no answer";
    else if (!frame->reply && frame->type != NXL_FRAME_GOAWAY && head.code != 0)
        reader->flaw = "code of a request is not 0";
}

enum nxl_code nxl_frame_decode(struct nxl_view packet, struct nxl_frame *frame, struct nxl_err *err)
{
    struct reader reader = {.data = packet.data, .size = packet.size};

    /* The arrays stay as they are: only what the frame announces is valid in them. */
    memset(frame, 0, offsetof(struct nxl_frame, blob));
    if (packet.size > NXL_FRAME_MAX)
        return nxl_err_set(err, NXL_MISMATCH, 0, "frame of %zu bytes is larger than %u",
                           packet.size, NXL_FRAME_MAX);
    take_head(&reader, frame);
    if (!reader.flaw)
        take_body(&reader, frame);
    if (!reader.flaw)
        take_parts(&reader, frame, nxl_frame_parts(frame->type, frame->reply, frame->code));
    if (!reader.flaw && reader.pos != reader.size)
        reader.flaw = "bytes follow after its end";
    if (reader.flaw)
        return nxl_err_set(err, NXL_MISMATCH, 0, "frame %s: %s", nxl_frame_type_name(frame->type),
                           reader.flaw);
    return NXL_OK;
}
