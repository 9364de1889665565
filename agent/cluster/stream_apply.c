/* stream_apply.c - what operators say, applied: welcome, whole tables, changes, pings,
 * certificates; and acknowledgements, each sent when nothing of the dead moves any more. Loop
 * thread. */
#include "cluster/stream_internal.h"

#include "base/loop.h"
#include "base/mem.h"
#include "cluster/trust.h"

#include <stdlib.h>
#include <string.h>

/* ---- acknowledgements --------------------------------------------------------------------- */

static struct stream_fence *fence_at(struct stream_end *end, uint32_t index)
{
    return &end->fences[(end->fence_first + index) % end->fence_room];
}

/* In order, and one for all that is done: what is acknowledged covers everything before it. */
static void acknowledge(struct stream_end *end)
{
    struct nxl_stream_frame ack = {.type = NXL_STREAM_ACK};

    while (end->fence_count > 0 && fence_at(end, 0)->done) {
        const struct stream_fence *fence = fence_at(end, 0);

        ack.seq = fence->seq;
        ack.purged += fence->purged;
        if (ack.us < fence->took_ns / NXL_US)
            ack.us = fence->took_ns / NXL_US;
        nxl_metric_observe(end->stream->metrics.apply_us, fence->took_ns / NXL_US);
        end->fence_first = (end->fence_first + 1) % end->fence_room;
        end->fence_count--;
    }
    if (ack.seq == 0)
        return;
    nxl_metric_add(end->stream->metrics.acked, 1);
    stream_say(end, &ack);
}

void stream_on_ack_later(void *arg)
{
    struct nxl_stream *stream = arg;

    stream->ack_asked = 0;
    for (uint32_t i = 0; i < NXL_MEMBERS_SOURCES; i++) {
        if (stream->ends[i] != NULL && stream->ends[i]->fence_count > 0)
            acknowledge(stream->ends[i]);
    }
}

static void fence_grow(struct stream_end *end)
{
    uint32_t room = end->fence_room == 0 ? 8 : end->fence_room * 2;
    struct stream_fence *fences = nxl_new0_array(room, sizeof(*fences));

    for (uint32_t i = 0; i < end->fence_count; i++)
        fences[i] = *fence_at(end, i);
    free(end->fences);
    end->fences = fences;
    end->fence_room = room;
    end->fence_first = 0;
}

/* A frame is applied: its acknowledgement is owed once the fence is through. */
static void owe(struct stream_end *end, uint64_t seq, uint64_t at_ns)
{
    struct nxl_stream *stream = end->stream;
    uint64_t ticket = ++stream->next_ticket;

    end->seq = seq;
    if (end->fence_count >= STREAM_FENCES_MAX) {
        stream_fail(end, 0, "%u changes wait to be fenced", end->fence_count);
        return;
    }
    if (end->fence_count == end->fence_room)
        fence_grow(end);
    *fence_at(end, end->fence_count++) =
        (struct stream_fence){.ticket = ticket, .seq = seq, .at_ns = at_ns};
    if (stream->ops->on_fence != NULL)
        stream->ops->on_fence(stream->arg, ticket);
    else
        nxl_stream_fenced(stream, ticket, 0);
}

void nxl_stream_fenced(struct nxl_stream *stream, uint64_t ticket, uint32_t purged)
{
    for (uint32_t k = 0; k < NXL_MEMBERS_SOURCES; k++) {
        struct stream_end *end = stream->ends[k];

        for (uint32_t i = 0; end != NULL && i < end->fence_count; i++) {
            struct stream_fence *fence = fence_at(end, i);

            if (fence->ticket != ticket)
                continue;
            fence->done = 1;
            fence->purged = purged;
            fence->took_ns = nxl_now_ns() - fence->at_ns;
            if (!stream->ack_asked)
                nxl_timer_start(stream->ack_later, 0, 0); /* fencing comes before telling */
            stream->ack_asked = 1;
            return;
        }
    }
}

/* ---- records ------------------------------------------------------------------------------ */

static void apply_members(struct stream_end *end, const struct nxl_stream_frame *frame)
{
    struct nxl_stream *stream = end->stream;

    for (uint32_t i = 0; i < frame->member_count; i++) {
        struct nxl_err err;
        enum nxl_code code =
            nxl_members_put(stream->members, end->source, &frame->members[i], &err);

        if (code == NXL_STALE)
            nxl_metric_add(stream->metrics.stale, 1); /* another operator was faster */
        else if (code != NXL_OK && nxl_log_gate_open(&stream->gate, 5))
            nxl_warn("stream", "event=\"record refused\" address=%s why=%s", end->text,
                     nxl_quote(err.text));
    }
}

static void apply_policies(struct stream_end *end, const struct nxl_stream_frame *frame)
{
    struct nxl_stream *stream = end->stream;

    for (uint32_t i = 0; i < frame->policy_count; i++) {
        struct nxl_err err;
        enum nxl_code code =
            nxl_members_put_policy(stream->members, end->source, &frame->policies[i], &err);

        if (code != NXL_OK && code != NXL_STALE && nxl_log_gate_open(&stream->gate, 5))
            nxl_warn("stream", "event=\"policy refused\" address=%s why=%s", end->text,
                     nxl_quote(err.text));
    }
}

static void on_snapshot(struct stream_end *end, const struct nxl_stream_frame *frame)
{
    struct nxl_stream *stream = end->stream;
    uint64_t at = nxl_now_ns();

    switch (frame->part) {
    case NXL_STREAM_BEGIN:
        if (end->rv[0] != '\0' && nxl_stream_version_order(frame->rv, end->rv) < 0) {
            nxl_metric_add(stream->metrics.regressed, 1);
            nxl_warn("stream",
                     "event=ResourceVersionRegressed address=%s from=%s to=%s next=\"the whole "
                     "table is taken anew, the dead stay dead\"",
                     end->text, nxl_quote(end->rv), nxl_quote(frame->rv));
        }
        (void)nxl_copy_text(end->rv, sizeof(end->rv), frame->rv);
        nxl_members_begin(stream->members, end->source, frame->rv);
        break;
    case NXL_STREAM_PEERS:
        apply_policies(end, frame);
        apply_members(end, frame);
        break;
    default:
        nxl_members_end(stream->members, end->source);
        nxl_metric_add(stream->metrics.snapshots, 1);
        end->synced = 1;
        stream_count_up(stream);
        owe(end, frame->seq, at);
        break;
    }
}

static void on_change(struct stream_end *end, const struct nxl_stream_frame *frame)
{
    uint64_t at = nxl_now_ns();

    if (frame->rv[0] != '\0')
        (void)nxl_copy_text(end->rv, sizeof(end->rv), frame->rv);
    apply_policies(end, frame);
    apply_members(end, frame);
    owe(end, frame->seq, at);
}

/* ---- the rest ----------------------------------------------------------------------------- */

static void on_certificate(struct stream_end *end, const struct nxl_stream_frame *frame)
{
    struct nxl_stream *stream = end->stream;
    struct nxl_err err;

    if (stream->trust == NULL || frame->cert[0] == '\0')
        return;
    if (nxl_trust_take(stream->trust, (struct nxl_view){frame->cert, strlen(frame->cert)},
                       (struct nxl_view){frame->bundle, strlen(frame->bundle)}, &err) == NXL_OK)
        nxl_info("stream", "event=\"certificate taken\" left_s=%lld",
                 (long long)nxl_trust_left_s(stream->trust));
    else
        nxl_warn("stream", "event=\"certificate refused\" address=%s why=%s", end->text,
                 nxl_quote(err.text));
}

void stream_say_pods(struct stream_end *end)
{
    const struct nxl_stream *stream = end->stream;
    struct nxl_stream_frame frame = {.type = NXL_STREAM_LOCAL,
                                     .pods = (const char *const *)stream->pods,
                                     .pod_count = stream->pod_count};

    if (stream->pod_count > 0)
        stream_say(end, &frame);
}

static void on_welcome(struct stream_end *end, const struct nxl_stream_frame *frame)
{
    struct nxl_stream *stream = end->stream;

    if (frame->version < NXL_STREAM_VERSION_MIN || frame->version > NXL_STREAM_VERSION_MAX) {
        stream_fail(end, 1, "the operator answers with version %u", frame->version);
        return;
    }
    end->state = END_LIVE;
    end->failures = 0;
    end->refused_ns = 0;
    end->why[0] = '\0';
    end->up_ns = nxl_now_ns();
    end->ping_ms = frame->ping_ms < 60000 ? frame->ping_ms : 60000;
    if (strcmp(end->epoch, frame->epoch) != 0)
        end->seq = 0;
    (void)nxl_copy_text(end->epoch, sizeof(end->epoch), frame->epoch);
    (void)nxl_copy_text(end->operator_id, sizeof(end->operator_id), frame->operator_id);
    nxl_info("stream", "event=\"operator here\" address=%s operator=%s resumed=%d", end->text,
             nxl_quote(end->operator_id), nxl_tls_resumed(end->tls));
    nxl_timer_start(end->timer, stream->silent_ns, 0);
    on_certificate(end, frame);
    stream_count_up(stream);
    stream_say_pods(end);
}

static void on_ping(struct stream_end *end, const struct nxl_stream_frame *frame)
{
    struct nxl_stream_frame pong = {
        .type = NXL_STREAM_PONG, .at_ns = frame->at_ns, .seq = end->seq};

    end->stream->heard_ns = end->heard_ns;
    pong.digest = nxl_members_digest(end->stream->members, end->source);
    stream_say(end, &pong);
}

static void on_live_frame(struct stream_end *end, const struct nxl_stream_frame *frame)
{
    switch (frame->type) {
    case NXL_STREAM_SNAPSHOT:
        on_snapshot(end, frame);
        break;
    case NXL_STREAM_DELTA:
    case NXL_STREAM_POLICY:
        on_change(end, frame);
        break;
    case NXL_STREAM_PING:
        on_ping(end, frame);
        break;
    case NXL_STREAM_CERT:
        on_certificate(end, frame);
        break;
    case NXL_STREAM_GOAWAY:
        stream_fail(end, 0, "it says goodbye: %s", frame->text);
        break;
    default:
        break; /* a later version's */
    }
}

void stream_on_frame(struct stream_end *end, const struct nxl_stream_frame *frame)
{
    if (frame->type == NXL_STREAM_REFUSE)
        stream_fail(end, 1, "refused: %s", frame->text);
    else if (end->state == END_LIVE)
        on_live_frame(end, frame);
    else if (frame->type == NXL_STREAM_WELCOME)
        on_welcome(end, frame);
    else
        stream_fail(end, 1, "its first frame is no WELCOME");
}
