/* session_frames.c - one frame of a client: decoded, counted, led to its handler, answered.
 * Loop thread. What is refused is refused with a sentence; a frame that is not one ends the session
 * only if it cannot even be answered. */
#include "front/session.h"
#include "base/log.h"
#include "base/mem.h"

#include <string.h>

struct fds { /* of the frame being served; closed by the caller */
    const int *fds;
    uint32_t count;
};

static void frame_answer(struct front_session *session, const struct nxl_frame *in,
                         enum nxl_code code, const struct nxl_err *err)
{
    if (code != NXL_OK) {
        front_refuse(session, in->type, in->seq, code, err);
        return;
    }
    (void)front_reply(session, in->type, in->seq);
    front_reply_send(session);
}

/* ---- peers ------------------------------------------------------------------------------- */

static enum nxl_code name_check(const char *name, struct nxl_err *err)
{
    if (nxl_name_valid(name))
        return NXL_OK;
    return nxl_err_set(
        err, NXL_INVALID_PARAM, 0,
        "peer name %s must be 1 to %u bytes of printable ASCII without '/' and space",
        nxl_quote(name), NXL_NAME_MAX);
}

static void peer_open_take(struct front_session *session, const struct nxl_frame *in,
                           struct fds fds)
{
    char incarnation[NXL_INCARNATION_MAX + 1] = "";
    struct nxl_err err = {0};
    uint32_t id = 0;
    enum nxl_code code;

    (void)fds;
    code = name_check(in->name, &err);
    if (code == NXL_OK)
        code = nxl_xfer_peer_open(session->xfer, in->name, &id, incarnation, sizeof(incarnation),
                                  &err);
    if (code == NXL_OK) {
        struct nxl_frame *out = front_reply(session, in->type, in->seq);

        out->peer = id;
        memcpy(out->incarnation, incarnation, sizeof(incarnation));
        front_reply_send(session);
        return;
    }
    frame_answer(session, in, code, &err);
}

static void peer_close_take(struct front_session *session, const struct nxl_frame *in,
                            struct fds fds)
{
    struct nxl_err err = {0};

    (void)fds;
    frame_answer(session, in, nxl_xfer_peer_close(session->xfer, in->peer, &err), &err);
}

/* ---- memory ------------------------------------------------------------------------------ */

static void register_take(struct front_session *session, const struct nxl_frame *in, struct fds fds)
{
    struct nxl_xfer_region regions[NXL_FRAME_REGIONS_MAX];
    uint64_t ids[NXL_FRAME_REGIONS_MAX];
    struct nxl_err err = {0};
    struct nxl_frame *out;
    enum nxl_code code;

    for (uint32_t i = 0; i < in->count; i++) {
        const struct nxl_frame_region *from = &in->regions[i];

        if (from->fd_index >= fds.count) {
            code = nxl_err_set(&err, NXL_INVALID_PARAM, 0,
                               "region %u names descriptor %u, but %u came with the frame", i,
                               from->fd_index, fds.count);
            frame_answer(session, in, code, &err);
            return;
        }
        regions[i] = (struct nxl_xfer_region){
            .addr = from->addr,
            .len = from->len,
            .fd_offset = from->fd_offset,
            .kind = from->kind,
            .device = from->device,
            .fd_index = from->fd_index,
        };
    }
    code = nxl_xfer_register(session->xfer, in->peer, regions, in->count, fds.fds, fds.count, ids,
                             &err);
    if (code != NXL_OK) {
        frame_answer(session, in, code, &err);
        return;
    }
    out = front_reply(session, in->type, in->seq);
    out->count = in->count;
    memcpy(out->ids, ids, in->count * sizeof(ids[0]));
    front_reply_send(session);
}

/* ---- lists ------------------------------------------------------------------------------- */

static void list_take(struct front_session *session, const struct nxl_frame *in, struct fds fds)
{
    struct nxl_err err = {0};
    enum nxl_code code = NXL_OK;
    const struct nxl_run *runs;
    uint32_t list = 0;
    uint64_t size = 0;

    (void)fds;
    runs = front_runs_copy(session, in->arena_offset, in->count, &code, &err);
    if (runs)
        code = nxl_xfer_list(session->xfer, in->peer, in->remote, in->kind, in->list, runs,
                             in->count, (int)in->more, &list, &size, &err);
    if (code == NXL_OK) {
        struct nxl_frame *out = front_reply(session, in->type, in->seq);

        out->list = list;
        out->size = size;
        front_reply_send(session);
        return;
    }
    frame_answer(session, in, code, &err);
}

static void list_free_take(struct front_session *session, const struct nxl_frame *in,
                           struct fds fds)
{
    struct nxl_err err = {0};

    (void)fds;
    frame_answer(session, in, nxl_xfer_list_free(session->xfer, in->list, &err), &err);
}

static void check_take(struct front_session *session, const struct nxl_frame *in, struct fds fds)
{
    struct nxl_err err = {0};
    enum nxl_code code = NXL_OK;
    const struct nxl_run *runs = front_runs_copy(session, in->arena_offset, in->count, &code, &err);

    (void)fds;
    if (runs)
        code = nxl_xfer_check(session->xfer, in->peer, in->remote, in->kind, runs, in->count, &err);
    frame_answer(session, in, code, &err);
}

/* ---- metadata and remotes ---------------------------------------------------------------- */

static void metadata_take(struct front_session *session, const struct nxl_frame *in, struct fds fds)
{
    NXL_CLEANUP(nxl_bytes_fini) struct nxl_bytes blob = {0};
    struct nxl_err err = {0};
    struct nxl_frame *out;
    enum nxl_code code;

    (void)fds;
    code = nxl_xfer_metadata(session->xfer, in->peer, in->flags, in->ids, in->count, &blob, &err);
    if (code == NXL_OK && blob.size > NXL_FRAME_BLOB_MAX)
        code = nxl_err_set(&err, NXL_LIMIT, 0,
                           "metadata of %zu bytes is larger than %u: name fewer regions", blob.size,
                           NXL_FRAME_BLOB_MAX);
    if (code != NXL_OK) {
        frame_answer(session, in, code, &err);
        return;
    }
    out = front_reply(session, in->type, in->seq);
    out->blob_size = (uint32_t)blob.size;
    if (blob.size > 0)
        memcpy(out->blob, blob.data, blob.size);
    front_reply_send(session);
}

static void invalidate_take(struct front_session *session, const struct nxl_frame *in,
                            struct fds fds)
{
    struct nxl_err err = {0};

    (void)fds;
    frame_answer(session, in, nxl_xfer_invalidate(session->xfer, in->peer, in->remote, &err), &err);
}

static void find_take(struct front_session *session, const struct nxl_frame *in, struct fds fds)
{
    struct nxl_xfer_remote_info info = {0};
    struct nxl_err err = {0};
    enum nxl_code code;

    (void)fds;
    code = name_check(in->name, &err);
    if (code == NXL_OK)
        code = nxl_xfer_find(session->xfer, in->peer, in->name, &info, &err);
    if (code == NXL_OK) {
        front_remote_answer(session, in->type, in->seq, &info);
        return;
    }
    frame_answer(session, in, code, &err);
}

static void state_take(struct front_session *session, const struct nxl_frame *in, struct fds fds)
{
    struct nxl_xfer_remote_info info = {0};
    struct nxl_err err = {0};
    struct nxl_frame *out;
    enum nxl_code code;

    (void)fds;
    code = nxl_xfer_state(session->xfer, in->peer, in->remote, &info, &err);
    if (code != NXL_OK) {
        frame_answer(session, in, code, &err);
        return;
    }
    out = front_reply(session, in->type, in->seq);
    out->remote = info.remote;
    out->state.life = info.life;
    out->state.suspect = info.suspect;
    out->state.same_agent = info.same_agent;
    out->state.regions = info.regions;
    (void)nxl_copy_text(out->state.agent, sizeof(out->state.agent), info.agent ? info.agent : "");
    front_reply_send(session);
}

static void explain_take(struct front_session *session, const struct nxl_frame *in, struct fds fds)
{
    const struct front_refusal *refusal = front_refusal_find(session, in->slot, in->generation);
    struct nxl_err why = {0};
    struct nxl_frame *out;
    enum nxl_code code = NXL_OK;

    (void)fds;
    if (in->slot >= session->ring.slot_count)
        code = nxl_err_set(&why, NXL_INVALID_PARAM, 0, "slot %u: this session has %u", in->slot,
                           session->ring.slot_count);
    else if (refusal)
        (void)nxl_err_set(&why, refusal->code, 0, "%s", refusal->text);
    else
        code = nxl_xfer_explain(session->xfer, in->slot, &why);
    if (code != NXL_OK) {
        frame_answer(session, in, code, &why);
        return;
    }
    out = front_reply(session, in->type, in->seq);
    out->slot = in->slot;
    out->generation = in->generation;
    out->os = why.os;
    memcpy(out->text, why.text, sizeof(out->text));
    front_reply_send(session);
}

/* ---- the table --------------------------------------------------------------------------- */

typedef void frame_take_fn(struct front_session *session, const struct nxl_frame *in,
                           struct fds fds);

#define LATER(name)                                                                                \
    static void name##_later(struct front_session *session, const struct nxl_frame *in,            \
                             struct fds fds)                                                       \
    {                                                                                              \
        (void)fds;                                                                                 \
        front_##name##_take(session, in);                                                          \
    }
LATER(hello)
LATER(deregister)
LATER(load)
LATER(send)
LATER(fetch)
LATER(withdraw)
LATER(connect)
#undef LATER

static frame_take_fn *const takers[NXL_FRAME_TYPES] = {
    [NXL_FRAME_HELLO] = hello_later,
    [NXL_FRAME_PEER_OPEN] = peer_open_take,
    [NXL_FRAME_PEER_CLOSE] = peer_close_take,
    [NXL_FRAME_REGISTER] = register_take,
    [NXL_FRAME_DEREGISTER] = deregister_later,
    [NXL_FRAME_LIST] = list_take,
    [NXL_FRAME_LIST_FREE] = list_free_take,
    [NXL_FRAME_METADATA] = metadata_take,
    [NXL_FRAME_LOAD] = load_later,
    [NXL_FRAME_SEND] = send_later,
    [NXL_FRAME_FETCH] = fetch_later,
    [NXL_FRAME_WITHDRAW] = withdraw_later,
    [NXL_FRAME_INVALIDATE] = invalidate_take,
    [NXL_FRAME_FIND] = find_take,
    [NXL_FRAME_CHECK] = check_take,
    [NXL_FRAME_CONNECT] = connect_later,
    [NXL_FRAME_STATE] = state_take,
    [NXL_FRAME_EXPLAIN] = explain_take,
};

/* A packet that is no sound frame is answered if its head can be: the next one may be sound. */
static void frame_malformed(struct front_session *session, struct nxl_view packet,
                            const struct nxl_err *err)
{
    struct nxl_frame_head head = {0};

    if (packet.size >= sizeof(head))
        memcpy(&head, packet.data, sizeof(head));
    if (packet.size < sizeof(head) || head.type == 0 || head.type >= NXL_FRAME_GOAWAY ||
        head.size != packet.size) {
        front_session_doom(session, FRONT_END_VIOLATED, NXL_MISMATCH, "%s", err->text);
        return;
    }
    front_refuse(session, head.type, head.seq, NXL_MISMATCH, err);
}

void front_frame_take(struct front_session *session, struct nxl_view packet, const int *fds,
                      uint32_t fd_count)
{
    struct nxl_front *front = session->front;
    const struct nxl_frame *in = front->in;
    struct nxl_err err = {0};
    enum nxl_code code = NXL_OK;

    if (nxl_frame_decode(packet, front->in, &err) != NXL_OK) {
        frame_malformed(session, packet, &err);
        return;
    }
    if (in->reply || in->type == NXL_FRAME_GOAWAY) {
        front_session_doom(session, FRONT_END_VIOLATED, NXL_MISMATCH,
                           "frame %s: only an agent sends this", nxl_frame_type_name(in->type));
        return;
    }
    nxl_metric_add(front->metrics.frames[in->type], 1);
    front_session_witness(session);
    if (!session->xfer && in->type != NXL_FRAME_HELLO)
        code = nxl_err_set(&err, NXL_NOT_ALLOWED, 0, "frame %s: HELLO must come first",
                           nxl_frame_type_name(in->type));
    else if (session->xfer && in->type == NXL_FRAME_HELLO)
        code = nxl_err_set(&err, NXL_NOT_ALLOWED, 0, "frame HELLO: session %u has begun already",
                           session->number);
    else if (fd_count > 0 && in->type != NXL_FRAME_REGISTER)
        code = nxl_err_set(&err, NXL_INVALID_PARAM, 0,
                           "frame %s: %u descriptors came with it, it takes none",
                           nxl_frame_type_name(in->type), fd_count);
    if (code != NXL_OK) {
        front_refuse(session, in->type, in->seq, code, &err);
        return;
    }
    takers[in->type](session, in, (struct fds){fds, fd_count});
}
