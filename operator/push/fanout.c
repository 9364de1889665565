/* fanout.c - from changes to frames to queues: each frame is made once and shared by every
 * connection that holds its group; snapshots are made of frames that are kept until the group
 * changes. Loop thread. */
#include "push/push_internal.h"

#include "base/loop.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define FLUSH_PAUSE_MAX_NS (50 * NXL_MS)

/* The end of this turn: what else changes goes along. After a fan-out that took long, as long again
 * is waited, so that a storm of changes becomes few frames, and acknowledgements have their turn.
 */
void push_flush_later(struct nxl_push *push)
{
    uint64_t pause =
        push->flush_took_ns < FLUSH_PAUSE_MAX_NS ? push->flush_took_ns : FLUSH_PAUSE_MAX_NS;
    uint64_t since = nxl_now_ns() - push->flushed_ns;

    if (push->flush_asked || push->closing)
        return;
    push->flush_asked = 1;
    nxl_timer_start(push->flush_later, since < pause ? pause - since : 0, 0);
}

/* ---- frames of changes --------------------------------------------------------------------- */

static void history_put(struct nxl_push *push, struct push_group *group)
{
    struct push_seq *entry = &push->history[push->seq % PUSH_HISTORY];

    *entry = (struct push_seq){.seq = push->seq, .at_ns = nxl_now_ns(), .group = group->index};
    group->seq = push->seq;
    group->changed_ns = entry->at_ns;
    group->slowest_ns = 0;
}

static void send_to_holders(struct nxl_push *push, struct push_group *group,
                            struct push_buffer *buffer)
{
    for (struct push_conn *conn = push->conns; conn != NULL; conn = conn->next) {
        if (conn->synced && push_held(conn, group->index))
            push_conn_queue(conn, buffer);
    }
    push_buffer_unref(buffer);
}

static void send_frame(struct nxl_push *push, struct push_group *group, struct nxl_bytes *frame,
                       size_t began, uint32_t records)
{
    nxl_stream_close_list(frame, began);
    history_put(push, group);
    send_to_holders(push, group, push_buffer_new(frame->data, frame->size, push->seq, records));
    nxl_bytes_fini(frame);
}

static void send_records(struct nxl_push *push, struct push_group *group,
                         const struct push_texts *texts)
{
    uint32_t i = 0, from = 0;

    while (i < texts->count) {
        struct nxl_bytes frame = {0};
        uint32_t records = 0;
        size_t began = nxl_stream_open_list(&frame, "DELTA", ++push->seq, push->rv, "peers");

        do {
            if (records > 0)
                nxl_bytes_put(&frame, ",", 1);
            nxl_bytes_put(&frame, texts->text.data + from, texts->ends[i] - from);
            from = texts->ends[i++];
            records++;
        } while (i < texts->count && records < PUSH_FRAME_RECORDS &&
                 frame.size + (texts->ends[i] - from) < PUSH_FRAME_ROOM);
        send_frame(push, group, &frame, began, records);
    }
}

/* By reason, in order: a scale-down is one list of ids. */
static void send_deaths(struct nxl_push *push, struct push_group *group)
{
    const struct push_batch *batch = &group->batch;
    uint32_t i = 0;

    while (i < batch->death_count) {
        const char *reason = batch->deaths[i].reason;
        const char *ids[PUSH_FRAME_DEAD];
        struct nxl_bytes frame = {0};
        size_t size = 0, began;
        uint32_t count = 0;

        while (i < batch->death_count && count < PUSH_FRAME_DEAD &&
               size + NXL_INCARNATION_MAX < PUSH_FRAME_ROOM - 4096 &&
               strcmp(batch->deaths[i].reason, reason) == 0) {
            ids[count] = batch->deaths[i++].id;
            size += strlen(ids[count++]) + 3;
        }
        began = nxl_stream_open_list(&frame, "DELTA", ++push->seq, push->rv, "dead");
        nxl_stream_dead_text(reason, ids, count, &frame);
        send_frame(push, group, &frame, began, count);
    }
}

static void put_policy(struct nxl_bytes *to, const struct push_group *group)
{
    const struct nxl_stream_policy gone = {.group = group->name, .gone = 1};
    struct nxl_err err;

    if (group->policy != NULL)
        nxl_bytes_put(to, group->policy, group->policy_size);
    else
        NXL_IGNORE(nxl_stream_policy_text(&gone, to, &err)); /* short: it always fits */
}

static struct push_buffer *policy_frame(struct nxl_push *push, const struct push_group *group)
{
    struct push_buffer *buffer;
    struct nxl_bytes frame = {0};
    size_t began = nxl_stream_open_list(&frame, "POLICY", ++push->seq, push->rv, "policies");

    put_policy(&frame, group);
    nxl_stream_close_list(&frame, began);
    buffer = push_buffer_new(frame.data, frame.size, push->seq, 1);
    nxl_bytes_fini(&frame);
    return buffer;
}

static void flush_group(struct nxl_push *push, struct push_group *group)
{
    struct push_batch *batch = &group->batch;
    struct push_buffer *policy;

    if (batch->policy) {
        policy = policy_frame(push, group);
        history_put(push, group);
        send_to_holders(push, group, policy);
    }
    send_records(push, group, &batch->members);
    send_deaths(push, group);
    push_batch_clear(batch);
}

/* What leaves a group goes out before what enters one: it may be the same pod. */
void nxl_push_flush(struct nxl_push *push)
{
    struct push_group *dirty = push->dirty, *group;
    uint64_t at = nxl_now_ns();

    push->flush_asked = 0;
    push->dirty = NULL;
    for (group = dirty; group != NULL; group = group->next_dirty)
        send_records(push, group, &group->batch.forgets);
    for (group = dirty; group != NULL; group = group->next_dirty)
        flush_group(push, group);
    if (push->interest_dirty && push->synced) {
        push->interest_dirty = 0;
        for (struct push_conn *conn = push->conns; conn != NULL; conn = conn->next)
            push_interest_apply(conn);
    }
    while (dirty != NULL) {
        group = dirty;
        dirty = group->next_dirty;
        group->dirty = 0;
        push_group_settle(push, group);
    }
    push_conn_pump_ready(push);
    push->flushed_ns = nxl_now_ns();
    push->flush_took_ns = push->flushed_ns - at;
}

/* ---- snapshots ---------------------------------------------------------------------------- */

void push_chunks_drop(struct push_group *group)
{
    for (uint32_t i = 0; i < group->chunk_count; i++)
        push_buffer_unref(group->chunks[i]);
    free(group->chunks);
    group->chunks = NULL;
    group->chunk_count = 0;
    group->chunks_made = 0;
}

static void chunk_add(struct push_group *group, struct nxl_bytes *frame, size_t began,
                      uint32_t records)
{
    nxl_stream_close_list(frame, began);
    group->chunks = nxl_resize(group->chunks, group->chunk_count + 1, sizeof(struct push_buffer *));
    group->chunks[group->chunk_count++] = push_buffer_new(frame->data, frame->size, 0, records);
    nxl_bytes_clear(frame);
}

static void chunks_make(struct push_group *group)
{
    const struct push_record *record = group->records;
    struct nxl_bytes frame = {0};
    size_t began;

    if (group->chunks_made)
        return;
    group->chunks_made = 1;
    if (group->policy != NULL) {
        began = nxl_stream_open_list(&frame, "SNAPSHOT", 0, "", "policies");
        put_policy(&frame, group);
        chunk_add(group, &frame, began, 1);
    }
    while (record != NULL) {
        uint32_t records = 0;

        began = nxl_stream_open_list(&frame, "SNAPSHOT", 0, "", "peers");
        do {
            if (records > 0)
                nxl_bytes_put(&frame, ",", 1);
            nxl_bytes_put(&frame, record->text, record->text_size);
            records++;
            record = record->next;
        } while (record != NULL && records < NXL_STREAM_RECORDS_MAX &&
                 frame.size + record->text_size < PUSH_FRAME_ROOM);
        chunk_add(group, &frame, began, records);
    }
    nxl_bytes_fini(&frame);
}

static void queue_chunks(struct push_conn *conn, struct push_group *group)
{
    chunks_make(group);
    for (uint32_t i = 0; i < group->chunk_count; i++)
        push_conn_queue(conn, group->chunks[i]);
}

uint64_t push_digest(const struct push_conn *conn)
{
    const struct nxl_push *push = conn->push;
    uint64_t digest = 0;

    for (uint32_t word = 0; word < conn->held_words; word++) {
        for (uint64_t bits = conn->held[word]; bits != 0; bits &= bits - 1) {
            uint32_t index = word * 64 + (uint32_t)__builtin_ctzll(bits);
            const struct push_group *group =
                index < push->group_room ? push->group_by_index[index] : NULL;

            if (group != NULL)
                digest ^= group->digest ^ group->policy_hash;
        }
    }
    return digest;
}

void push_snapshot(struct push_conn *conn)
{
    struct nxl_push *push = conn->push;
    struct nxl_stream_frame frame = {
        .type = NXL_STREAM_SNAPSHOT, .part = NXL_STREAM_BEGIN, .rv = push->rv};
    struct push_group *group, *next;

    if (push->dirty != NULL)
        nxl_push_flush(push); /* the table and what was said must be of one moment */
    if (conn->dead)
        return;
    conn->synced = 1;
    conn->needs_snapshot = 0;
    conn->snapshot_ns = nxl_now_ns();
    frame.seq = ++push->seq;
    conn->floor_seq = frame.seq;
    nxl_metric_add(push->metrics.snapshots, 1);
    HASH_ITER(hh, push->groups, group, next)
    {
        push_hold(conn, group->index, push_wants(push, group, conn->node));
    }
    frame.digest = push_digest(conn);
    push_conn_say(conn, &frame);
    HASH_ITER(hh, push->groups, group, next)
    {
        if (push_held(conn, group->index))
            queue_chunks(conn, group);
    }
    frame.part = NXL_STREAM_END;
    push_conn_say(conn, &frame);
}

/* ---- interest ----------------------------------------------------------------------------- */

static void send_lost(struct push_conn *conn, const struct push_group *group)
{
    const struct push_record *record = group->records;
    const struct nxl_stream_policy gone = {.group = group->name, .gone = 1};
    struct nxl_stream_frame policy = {
        .type = NXL_STREAM_POLICY, .seq = ++conn->push->seq, .policies = &gone, .policy_count = 1};

    push_conn_say(conn, &policy);
    while (record != NULL) {
        struct nxl_stream_member items[PUSH_FRAME_RECORDS] = {0};
        struct nxl_stream_frame delta = {.type = NXL_STREAM_DELTA, .members = items};

        for (; record != NULL && delta.member_count < PUSH_FRAME_RECORDS; record = record->next)
            items[delta.member_count++] =
                (struct nxl_stream_member){.id = record->uid, .forget = 1};
        delta.seq = ++conn->push->seq;
        push_conn_say(conn, &delta);
    }
}

void push_interest_apply(struct push_conn *conn)
{
    struct nxl_push *push = conn->push;
    struct push_group *group, *next;
    int gained = 0;

    if (!conn->synced || conn->needs_snapshot || conn->dead)
        return; /* a snapshot asks by itself */
    HASH_ITER(hh, push->groups, group, next)
    {
        int wants = push_wants(push, group, conn->node);

        if (wants == push_held(conn, group->index))
            continue;
        push_hold(conn, group->index, wants);
        if (wants) {
            queue_chunks(conn, group);
            gained = 1;
        } else {
            send_lost(conn, group);
        }
    }
    if (gained) { /* something to acknowledge behind it */
        struct nxl_stream_frame delta = {.type = NXL_STREAM_DELTA, .seq = ++push->seq};

        conn->floor_seq = delta.seq;
        push_conn_say(conn, &delta);
    }
}
