/* session_ring.c - the submission ring of one client: every entry and what it points to is copied
 * out once, and the copy is checked. Loop thread. */
#include "front/session.h"
#include "base/clock.h"
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define COPY_KEPT (1u << 20) /* bytes that stay allocated between entries */

/* ---- refusals of our own ----------------------------------------------------------------- */

/* The post ends here, once, like any other; its sentence is kept for EXPLAIN. */
static void post_refuse(struct front_session *session, const struct nxl_ring_entry *entry,
                        enum nxl_code code, const char *fmt, ...) NXL_PRINTF(4, 5);

static void post_refuse(struct front_session *session, const struct nxl_ring_entry *entry,
                        enum nxl_code code, const char *fmt, ...)
{
    struct front_refusal *refusal = &session->refusals[session->next_refusal++ % FRONT_REFUSALS];
    struct nxl_xfer_slot update = {
        .generation = entry->generation, .state = NXL_RING_FAILED, .quiet = 1, .code = code};
    va_list args;

    refusal->slot = entry->slot;
    refusal->generation = entry->generation;
    refusal->code = code;
    va_start(args, fmt);
    (void)vsnprintf(refusal->text, sizeof(refusal->text), fmt, args);
    va_end(args);
    nxl_debug("front", "event=post-refused session=%u slot=%u generation=%u code=%s error=%s",
              session->number, entry->slot, entry->generation, nxl_code_word(code),
              nxl_quote(refusal->text));
    front_refusal_count(session, code);
    front_slot_write(session, entry->slot, &update);
}

const struct front_refusal *front_refusal_find(const struct front_session *session, uint32_t slot,
                                               uint32_t generation)
{
    for (uint32_t i = 0; i < FRONT_REFUSALS; i++) {
        const struct front_refusal *refusal = &session->refusals[i];

        if (refusal->code != NXL_OK && refusal->slot == slot && refusal->generation == generation)
            return refusal;
    }
    return NULL;
}

/* ---- copies ------------------------------------------------------------------------------ */

/* Room for everything one entry points to; the buffer does not move until the next entry. */
static unsigned char *copy_begin(struct nxl_front *front, uint64_t size)
{
    nxl_bytes_clear(&front->copy);
    return nxl_bytes_grow(&front->copy, size > 0 ? (size_t)size : 1);
}

void front_copy_trim(struct nxl_front *front)
{
    if (front->copy.room > COPY_KEPT)
        nxl_bytes_fini(&front->copy);
}

const struct nxl_run *front_runs_copy(struct front_session *session, uint64_t offset,
                                      uint32_t count, enum nxl_code *ret_code, struct nxl_err *err)
{
    uint64_t size = (uint64_t)count * sizeof(struct nxl_run);
    const void *from = nxl_ring_arena(&session->ring, offset, size);
    unsigned char *to;

    if (!from) {
        *ret_code =
            nxl_err_set(err, NXL_INVALID_PARAM, 0,
                        "%u runs at offset %llu do not lie inside the arena of %llu bytes", count,
                        (unsigned long long)offset, (unsigned long long)session->ring.arena_bytes);
        return NULL;
    }
    if (size > session->front->limits.copy_max) {
        *ret_code = nxl_err_set(err, NXL_LIMIT, 0,
                                "%u runs are %llu bytes, more than socket.copy_max, %llu: "
                                "send them in parts",
                                count, (unsigned long long)size,
                                (unsigned long long)session->front->limits.copy_max);
        return NULL;
    }
    to = copy_begin(session->front, size);
    memcpy(to, from, (size_t)size);
    return (const struct nxl_run *)(const void *)to;
}

/* ---- posts ------------------------------------------------------------------------------- */

/* Bytes of the arrays that an entry announces. Counts are 32 bits wide: no overflow. */
static uint64_t arrays_size(const struct nxl_ring_entry *entry)
{
    uint64_t size = 0;

    if (entry->flags & NXL_RING_RUNS)
        return ((uint64_t)entry->count + entry->remote_count) * sizeof(struct nxl_run);
    if (!(entry->flags & NXL_RING_LOCAL_ALL))
        size += (uint64_t)entry->count * sizeof(uint32_t);
    if (!(entry->flags & NXL_RING_REMOTE_ALL))
        size += (uint64_t)entry->count * sizeof(uint32_t);
    return size;
}

static void post_point(struct nxl_xfer_post *post, const struct nxl_ring_entry *entry,
                       unsigned char *arrays)
{
    if (entry->flags & NXL_RING_RUNS) {
        post->local_runs = (const struct nxl_run *)(void *)arrays;
        post->remote_runs = post->local_runs + entry->count;
        return;
    }
    if (!(entry->flags & NXL_RING_LOCAL_ALL)) {
        post->local_index = (const uint32_t *)(void *)arrays;
        arrays += entry->count * sizeof(uint32_t);
    }
    if (!(entry->flags & NXL_RING_REMOTE_ALL))
        post->remote_index = (const uint32_t *)(void *)arrays;
}

/* 1: post points to copies. 0: the post was refused. */
static int post_copy(struct front_session *session, const struct nxl_ring_entry *entry,
                     struct nxl_xfer_post *post)
{
    const struct nxl_ring *ring = &session->ring;
    uint64_t size = post->reuse ? 0 : arrays_size(entry);
    uint64_t notice_size = post->has_notice ? entry->notice_size : 0;
    const void *arrays = nxl_ring_arena(ring, entry->arena_offset, size);
    const void *notice = nxl_ring_arena(ring, entry->notice_offset, notice_size);
    unsigned char *to;

    if (size > 0 && !arrays) {
        post_refuse(
            session, entry, NXL_INVALID_PARAM,
            "post: %llu bytes of indices or runs at offset %llu leave the arena of %llu bytes",
            (unsigned long long)size, (unsigned long long)entry->arena_offset,
            (unsigned long long)ring->arena_bytes);
        return 0;
    }
    if (notice_size > 0 && !notice) {
        post_refuse(session, entry, NXL_INVALID_PARAM,
                    "post: a notice of %llu bytes at offset %llu leaves the arena of %llu bytes",
                    (unsigned long long)notice_size, (unsigned long long)entry->notice_offset,
                    (unsigned long long)ring->arena_bytes);
        return 0;
    }
    if (notice_size > NXL_NOTICE_MAX || size > session->front->limits.copy_max) {
        post_refuse(session, entry, NXL_LIMIT,
                    "post: %llu bytes of indices or runs (socket.copy_max is %llu), notice of %llu "
                    "bytes (at most %u)",
                    (unsigned long long)size, (unsigned long long)session->front->limits.copy_max,
                    (unsigned long long)notice_size, NXL_NOTICE_MAX);
        return 0;
    }
    to = copy_begin(session->front, size + notice_size);
    if (size > 0) {
        memcpy(to, arrays, (size_t)size);
        post_point(post, entry, to);
    }
    if (notice_size > 0)
        memcpy(to + size, notice, (size_t)notice_size);
    post->notice = (struct nxl_view){to + size, (size_t)notice_size};
    return 1;
}

static void post_take(struct front_session *session, const struct nxl_ring_entry *entry)
{
    struct nxl_xfer_post post = {
        .slot = entry->slot,
        .generation = entry->generation,
        .peer = entry->peer,
        .op = entry->flags & NXL_RING_WRITE ? NXL_WRITE : NXL_READ,
        .min_path = entry->min_path,
        .backend = entry->backend,
        .no_merge = (entry->flags & NXL_RING_NO_MERGE) != 0,
        .verify = (entry->flags & NXL_RING_VERIFY) != 0,
        .has_notice = (entry->flags & NXL_RING_NOTICE) != 0,
        .local_list = entry->local_list,
        .remote_list = entry->remote_list,
        .remote = entry->remote,
        .count = entry->count,
        .remote_count = entry->remote_count,
        .timeout_ns = entry->timeout_ns,
    };

    post.reuse =
        (entry->flags & NXL_RING_REUSE) != 0 && nxl_xfer_reusable(session->xfer, entry->slot);
    if (entry->flags & NXL_RING_RUNS && !post.reuse &&
        (entry->count == 0 || entry->remote_count == 0)) {
        /* Without arrays xfer would take it for the other form. */
        post_refuse(session, entry, NXL_INVALID_PARAM,
                    "post: %u local and %u remote runs: both must be given", entry->count,
                    entry->remote_count);
        return;
    }
    if (post_copy(session, entry, &post))
        nxl_xfer_post(session->xfer, &post);
}

/* ---- entries ----------------------------------------------------------------------------- */

static void notify_take(struct front_session *session, const struct nxl_ring_entry *entry)
{
    const void *from = nxl_ring_arena(&session->ring, entry->notice_offset, entry->notice_size);
    unsigned char *to;

    if (!from || entry->notice_size > NXL_NOTICE_MAX) {
        front_session_doom(
            session, FRONT_END_VIOLATED, NXL_INVALID_PARAM,
            "ring: a notice of %u bytes (at most %u) at offset %llu of an arena of %llu bytes",
            entry->notice_size, NXL_NOTICE_MAX, (unsigned long long)entry->notice_offset,
            (unsigned long long)session->ring.arena_bytes);
        return;
    }
    to = copy_begin(session->front, entry->notice_size);
    memcpy(to, from, entry->notice_size);
    nxl_xfer_notify(session->xfer, entry->peer, entry->remote,
                    (struct nxl_view){to, entry->notice_size});
}

static void entry_take(struct front_session *session, const struct nxl_ring_entry *entry)
{
    if (entry->kind < NXL_RING_POST || entry->kind > NXL_RING_NOTIFY) {
        front_session_doom(session, FRONT_END_VIOLATED, NXL_MISMATCH,
                           "ring: entry of unknown kind %u", entry->kind);
        return;
    }
    nxl_metric_add(session->front->metrics.entries[entry->kind], 1);
    if (entry->kind == NXL_RING_NOTIFY) {
        notify_take(session, entry);
        return;
    }
    if (entry->slot >= session->ring.slot_count) { /* nowhere to report it */
        front_session_doom(session, FRONT_END_VIOLATED, NXL_INVALID_PARAM,
                           "ring: entry names slot %u of %u", entry->slot,
                           session->ring.slot_count);
        return;
    }
    if (entry->kind == NXL_RING_POST)
        post_take(session, entry);
    else if (entry->kind == NXL_RING_CANCEL)
        nxl_xfer_cancel(session->xfer, entry->slot, entry->generation);
    else
        nxl_xfer_release(session->xfer, entry->slot);
}

/* One entry can be a lot of work: beside their number, the time that they take is bounded. */
static uint32_t entries_take(struct front_session *session, uint32_t most, int notices_only,
                             uint64_t until_ns)
{
    struct nxl_ring_entry entry;
    uint32_t taken = 0;

    while (taken < most && !session->doomed && (taken == 0 || nxl_now_ns() < until_ns)) {
        enum nxl_code code = nxl_ring_take(&session->ring, &entry);

        if (code == NXL_AGAIN)
            break;
        if (code != NXL_OK) {
            front_session_doom(session, FRONT_END_VIOLATED, code,
                               "ring: its head is further ahead than the ring is long");
            break;
        }
        taken++;
        if (!notices_only || entry.kind == NXL_RING_NOTIFY)
            entry_take(session, &entry);
    }
    return taken;
}

uint32_t front_ring_serve(struct front_session *session)
{
    return entries_take(session, session->front->limits.entries_per_turn, 0,
                        nxl_now_ns() + FRONT_TURN_NS);
}

int front_ring_catch_up(struct front_session *session, uint64_t until_ns)
{
    struct nxl_ring *ring = &session->ring;
    uint64_t head = atomic_load_explicit(&ring->header->submit_head, memory_order_acquire);
    int64_t left;

    if (!session->catching) {
        session->catching = 1;
        session->catch_up_to = head;
        if (head - ring->submit_pos > ring->entry_count)
            (void)entries_take(session, 1, 0, until_ns); /* says what is wrong with it */
    }
    left = (int64_t)(session->catch_up_to - ring->submit_pos);
    if (left > 0)
        (void)entries_take(session, (uint32_t)left, 0, until_ns);
    /* Also done if there is nothing to take: a head that went back must not hold the frame up. */
    session->catching = !session->doomed &&
                        (int64_t)(session->catch_up_to - ring->submit_pos) > 0 &&
                        head != ring->submit_pos;
    return !session->catching;
}

void front_ring_last_words(struct front_session *session)
{
    if (session->xfer)
        (void)entries_take(session, session->ring.entry_count, 1, UINT64_MAX);
}
