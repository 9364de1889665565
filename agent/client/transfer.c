/* transfer.c - makes and releases transfers: everything that can be wrong with a list is said here,
 * and all that a post needs is put into the arena, so that a post is one ring entry. Any thread. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/client.h"

/* ---- options ---------------------------------------------------------------------------- */

static enum nxl_code backend_find(const struct nxl_session *session, const char *name, uint8_t *ret,
                                  struct nxl_err *err)
{
    const char *at = session->backends;
    size_t size = strlen(name);

    for (uint8_t index = 1; *at; index++) {
        size_t word = strcspn(at, " ");

        if (word == size && memcmp(at, name, size) == 0) {
            *ret = index;
            return NXL_OK;
        }
        at += word;
        at += strspn(at, " ");
    }
    return nxl_err_set(err, NXL_NOT_FOUND, 0, "the agent has no backend '%.32s', only: %s", name,
                       session->backends);
}

static enum nxl_code options_apply(const struct nxl_transfer_options *options,
                                   const struct nxl_session *session, struct nxl_ring_entry *entry,
                                   struct nxl_err *err)
{
    struct nxl_transfer_options own = {0};

    if (!options || options->size == 0)
        return NXL_OK;
    memcpy(&own, options, options->size < sizeof(own) ? options->size : sizeof(own));
    if (own.min_path > NXL_PATH_ONE_COPY)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "options.min_path %u is not a path class",
                           own.min_path);
    entry->min_path = (uint8_t)own.min_path;
    entry->timeout_ns = own.timeout_ns;
    if (own.no_merge)
        entry->flags |= NXL_RING_NO_MERGE;
    if (own.verify)
        entry->flags |= NXL_RING_VERIFY;
    if (own.backend && own.backend[0])
        return backend_find(session, own.backend, &entry->backend, err);
    return NXL_OK;
}

/* ---- the handle ------------------------------------------------------------------------- */

/* Links a new handle to what it refers to; takes over the session's ref. */
static void transfer_adopt(struct nxl_transfer *transfer)
{
    struct nxl_client *client = transfer->client;

    pthread_mutex_lock(&client->objects.lock);
    transfer->peer->refs++;
    if (transfer->local)
        transfer->local->refs++;
    if (transfer->remote_list)
        transfer->remote_list->refs++;
    if (transfer->remote)
        transfer->remote->refs++;
    transfer->next = client->objects.transfers;
    if (transfer->next)
        transfer->next->prev = transfer;
    client->objects.transfers = transfer;
    pthread_mutex_unlock(&client->objects.lock);
}

void nxl_transfer_drop(struct nxl_transfer *transfer)
{
    struct nxl_client *client = transfer->client;

    atomic_store(&transfer->generation, NXL_RELEASED);
    if (transfer->prev)
        transfer->prev->next = transfer->next;
    else
        client->objects.transfers = transfer->next;
    if (transfer->next)
        transfer->next->prev = transfer->prev;
    nxl_list_unref(transfer->local);
    nxl_list_unref(transfer->remote_list);
    nxl_remote_unref(transfer->remote);
    nxl_peer_unref(transfer->peer);
    nxl_session_unref(transfer->session);
    transfer->next = NULL;
    if (client->objects.graves_last)
        client->objects.graves_last->next = transfer;
    else
        client->objects.graves = transfer;
    client->objects.graves_last = transfer;
    client->objects.grave_count++;
}

/* Memory for a handle: an old grave, if there are many. */
static struct nxl_transfer *transfer_memory(struct nxl_client *client)
{
    struct nxl_transfer *transfer = NULL;

    pthread_mutex_lock(&client->objects.lock);
    if (client->objects.grave_count > NXL_GRAVES) {
        transfer = client->objects.graves;
        client->objects.graves = transfer->next;
        client->objects.grave_count--;
    }
    pthread_mutex_unlock(&client->objects.lock);
    if (!transfer)
        return calloc(1, sizeof(*transfer));
    memset(transfer, 0, sizeof(*transfer));
    return transfer;
}

/* Takes a slot and a block of size bytes; *ret_to where to write what the agent shall read. */
static enum nxl_code transfer_place(struct nxl_transfer *transfer, uint64_t size, void **ret_to,
                                    struct nxl_err *err)
{
    struct nxl_session *session = transfer->session;
    uint64_t offset = 0;
    enum nxl_code code;
    uint32_t slot = 0;

    pthread_mutex_lock(&session->submit.lock);
    code = nxl_submit_slot(session, &slot, err);
    if (code == NXL_OK && size > 0) {
        code = nxl_submit_block(session, size, &offset, err);
        if (code == NXL_OK)
            transfer->block = offset + 1;
        else
            session->submit.free_slots[session->submit.free_count++] = slot;
    }
    pthread_mutex_unlock(&session->submit.lock);
    if (code != NXL_OK)
        return code;
    transfer->slot = &session->ring.slots[slot];
    transfer->entry.kind = NXL_RING_POST;
    transfer->entry.slot = slot;
    transfer->entry.peer = transfer->peer->id;
    transfer->entry.arena_offset = offset;
    *ret_to = session->ring.arena + offset;
    return NXL_OK;
}

/* A handle that refers to nothing yet but holds a ref on the current session. */
static enum nxl_code transfer_new(struct nxl_peer *peer, enum nxl_op_kind op,
                                  const struct nxl_transfer_options *options,
                                  struct nxl_transfer **ret, struct nxl_err *err)
{
    struct nxl_transfer *transfer;
    enum nxl_code code;

    if (op != NXL_READ && op != NXL_WRITE)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "operation %d is neither READ nor WRITE",
                           (int)op);
    transfer = transfer_memory(peer->client);
    if (!transfer)
        return nxl_err_set(err, NXL_LIMIT, ENOMEM, "make a transfer");
    transfer->client = peer->client;
    transfer->peer = peer;
    transfer->session = nxl_client_pin(peer->client);
    if (op == NXL_WRITE)
        transfer->entry.flags |= NXL_RING_WRITE;
    code = options_apply(options, transfer->session, &transfer->entry, err);
    if (code != NXL_OK) {
        nxl_session_unref(transfer->session);
        free(transfer);
        return code;
    }
    *ret = transfer;
    return NXL_OK;
}

static void transfer_abandon(struct nxl_transfer *transfer)
{
    nxl_session_unref(transfer->session);
    free(transfer);
}

/* ---- from lists ------------------------------------------------------------------------- */

static enum nxl_code lists_check(const struct nxl_peer *peer, const struct nxl_list *local,
                                 const struct nxl_list *remote, struct nxl_err *err)
{
    if (!local || !remote)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "make transfer: the %s list is NULL",
                           local ? "remote" : "local");
    if (local->peer != peer || remote->peer != peer)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "make transfer: the %s list was prepared by another peer than '%s'",
                           local->peer != peer ? "local" : "remote", peer->name);
    if (local->remote)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "make transfer: the local list describes remote '%s'; prepare it with "
                           "remote NULL",
                           local->remote->name);
    if (!remote->remote)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "make transfer: the remote list describes this peer's own side; prepare "
                           "it with a remote (for loopback: nxl_remote_find() with the own name)");
    return NXL_OK;
}

static enum nxl_code indices_check(const struct nxl_list *list, const uint32_t *index,
                                   uint32_t count, const char *side, struct nxl_err *err)
{
    if (!index) {
        if (count > list->size)
            return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                               "make transfer: %u descriptors wanted, the %s list has %" PRIu64,
                               count, side, list->size);
        return NXL_OK;
    }
    for (uint32_t i = 0; i < count; i++)
        if (index[i] >= list->size)
            return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                               "make transfer: %s_index[%u] is %u, the %s list has %" PRIu64
                               " descriptors",
                               side, i, index[i], side, list->size);
    return NXL_OK;
}

static enum nxl_code lengths_check(const struct nxl_list *local, const uint32_t *local_index,
                                   const struct nxl_list *remote, const uint32_t *remote_index,
                                   uint32_t count, struct nxl_err *err)
{
    uint32_t local_hint = 0, remote_hint = 0;

    if (local->uniform_len && local->uniform_len == remote->uniform_len)
        return NXL_OK;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t l = local_index ? local_index[i] : i, r = remote_index ? remote_index[i] : i;
        uint64_t a = nxl_runs_len(local->parts, local->part_count, l, &local_hint);
        uint64_t b = nxl_runs_len(remote->parts, remote->part_count, r, &remote_hint);

        if (a != b)
            return nxl_err_set(err, NXL_MISMATCH, 0,
                               "make transfer: pair %u is unequal: local descriptor %u has %" PRIu64
                               " bytes, remote descriptor %u has %" PRIu64,
                               i, l, a, r, b);
    }
    return NXL_OK;
}

/* Lists of an earlier session: local ones are prepared again, remote ones are stale. */
static enum nxl_code lists_revive(struct nxl_client *client, struct nxl_list *local,
                                  struct nxl_list *remote, struct nxl_err *err)
{
    struct nxl_session *session = atomic_load(&client->session);
    enum nxl_code code;

    if (local->session == session && remote->session == session &&
        !atomic_load_explicit(&session->gone, memory_order_acquire))
        return NXL_OK;
    code = nxl_client_enter(client, &session, err);
    if (code != NXL_OK)
        return code;
    code = nxl_list_revive(remote, session, err);
    if (code == NXL_OK)
        code = nxl_list_revive(local, session, err);
    nxl_client_leave(client);
    return code;
}

static enum nxl_code make_check(struct nxl_peer *peer, struct nxl_list *local,
                                const uint32_t *local_index, struct nxl_list *remote,
                                const uint32_t *remote_index, uint32_t count, struct nxl_err *err)
{
    enum nxl_code code = lists_check(peer, local, remote, err);

    if (code == NXL_OK && count == 0)
        code = nxl_err_set(err, NXL_INVALID_PARAM, 0, "make transfer: no descriptors (count is 0)");
    if (code == NXL_OK)
        code = indices_check(local, local_index, count, "local", err);
    if (code == NXL_OK)
        code = indices_check(remote, remote_index, count, "remote", err);
    if (code == NXL_OK)
        code = lengths_check(local, local_index, remote, remote_index, count, err);
    if (code == NXL_OK && atomic_load(&remote->remote->stale))
        code =
            nxl_err_set(err, NXL_STALE, 0,
                        "make transfer: remote '%s' (incarnation '%s') was invalidated or replaced",
                        remote->remote->name, remote->remote->incarnation);
    if (code == NXL_OK)
        code = lists_revive(peer->client, local, remote, err);
    return code;
}

enum nxl_code nxl_transfer_make(struct nxl_peer *peer, enum nxl_op_kind op, struct nxl_list *local,
                                const uint32_t *local_index, struct nxl_list *remote,
                                const uint32_t *remote_index, uint32_t count,
                                const struct nxl_transfer_options *options,
                                struct nxl_transfer **ret, struct nxl_err *err)
{
    uint64_t side = (uint64_t)count * sizeof(uint32_t);
    struct nxl_transfer *transfer;
    unsigned char *to;
    void *place;
    enum nxl_code code = nxl_peer_usable(peer, err);

    if (code == NXL_OK)
        code = make_check(peer, local, local_index, remote, remote_index, count, err);
    if (code == NXL_OK)
        code = transfer_new(peer, op, options, &transfer, err);
    if (code != NXL_OK)
        return code;
    code =
        transfer_place(transfer, (local_index ? side : 0) + (remote_index ? side : 0), &place, err);
    if (code != NXL_OK) {
        transfer_abandon(transfer);
        return nxl_err_wrap(err, code, "make transfer of %u descriptors", count);
    }
    to = place;
    if (local_index) {
        memcpy(to, local_index, side);
        to += side;
    } else {
        transfer->entry.flags |= NXL_RING_LOCAL_ALL;
    }
    if (remote_index)
        memcpy(to, remote_index, side);
    else
        transfer->entry.flags |= NXL_RING_REMOTE_ALL;
    transfer->entry.count = count;
    transfer->pairs = count;
    transfer->entry.local_list = local->id;
    transfer->entry.remote_list = remote->id;
    transfer->local = local;
    transfer->remote_list = remote;
    transfer->remote = remote->remote;
    transfer_adopt(transfer);
    *ret = transfer;
    return NXL_OK;
}

/* ---- from runs -------------------------------------------------------------------------- */

struct side {
    struct nxl_list_part *parts;
    uint32_t count;
    uint64_t size, uniform_len;
};

static enum nxl_code sides_check(const struct side *local, const struct side *remote,
                                 struct nxl_err *err)
{
    uint64_t pair;
    uint32_t hint = 0;

    if (local->size != remote->size)
        return nxl_err_set(err, NXL_MISMATCH, 0,
                           "create transfer: %" PRIu64 " local descriptors, %" PRIu64
                           " remote ones",
                           local->size, remote->size);
    pair = nxl_runs_differ(local->parts, local->count, remote->parts, remote->count);
    if (pair == UINT64_MAX)
        return NXL_OK;
    return nxl_err_set(err, NXL_MISMATCH, 0,
                       "create transfer: pair %" PRIu64
                       " is unequal: the local descriptor has %" PRIu64
                       " bytes, the remote one %" PRIu64,
                       pair, nxl_runs_len(local->parts, local->count, pair, &hint),
                       nxl_runs_len(remote->parts, remote->count, pair, &(uint32_t){0}));
}

static void runs_copy(struct nxl_run *to, const struct side *side)
{
    for (uint32_t i = 0; i < side->count; i++)
        to[i] = side->parts[i].run;
}

static enum nxl_code create_from(struct nxl_peer *peer, enum nxl_op_kind op,
                                 struct nxl_remote *remote, const struct side *local,
                                 const struct side *far, const struct nxl_transfer_options *options,
                                 struct nxl_transfer **ret, struct nxl_err *err)
{
    struct nxl_transfer *transfer;
    struct nxl_run *to;
    void *place;
    enum nxl_code code = transfer_new(peer, op, options, &transfer, err);

    if (code != NXL_OK)
        return code;
    code = nxl_remote_usable(remote, peer, transfer->session, err);
    if (code == NXL_OK)
        code = transfer_place(transfer, ((uint64_t)local->count + far->count) * sizeof(*to), &place,
                              err);
    if (code != NXL_OK) {
        transfer_abandon(transfer);
        return nxl_err_wrap(err, code, "create transfer of %" PRIu64 " descriptors", local->size);
    }
    to = place;
    runs_copy(to, local);
    runs_copy(to + local->count, far);
    transfer->entry.flags |= NXL_RING_RUNS;
    transfer->entry.count = local->count;
    transfer->entry.remote_count = far->count;
    transfer->entry.remote = remote->id;
    transfer->pairs = local->size;
    transfer->remote = remote;
    transfer_adopt(transfer);
    *ret = transfer;
    return NXL_OK;
}

enum nxl_code nxl_transfer_create(struct nxl_peer *peer, enum nxl_op_kind op,
                                  struct nxl_remote *remote, uint32_t kind,
                                  const struct nxl_run *local, uint32_t local_count,
                                  const struct nxl_run *remote_runs, uint32_t remote_count,
                                  const struct nxl_transfer_options *options,
                                  struct nxl_transfer **ret, struct nxl_err *err)
{
    struct side near = {0}, far = {0};
    enum nxl_code code = nxl_peer_usable(peer, err);

    if (code != NXL_OK)
        return code;
    if (kind != NXL_MEM_DRAM)
        return nxl_err_set(err, NXL_NOT_SUPPORTED, 0,
                           "memory kind %u cannot be moved in this version, only DRAM (0)", kind);
    code = nxl_runs_compress(local, local_count, "local side", &near.parts, &near.count, &near.size,
                             &near.uniform_len, err);
    if (code == NXL_OK)
        code = nxl_runs_compress(remote_runs, remote_count, "remote side", &far.parts, &far.count,
                                 &far.size, &far.uniform_len, err);
    if (code == NXL_OK)
        code = sides_check(&near, &far, err);
    if (code == NXL_OK)
        code = create_from(peer, op, remote, &near, &far, options, ret, err);
    free(near.parts);
    free(far.parts);
    return code;
}

/* ---- release ---------------------------------------------------------------------------- */

/* Tells the agent, gives slot and blocks back, ends the handle. submit.lock held. */
static enum nxl_code release_parts(struct nxl_transfer *transfer, uint64_t generation,
                                   struct nxl_err *err)
{
    struct nxl_session *session = transfer->session;
    struct nxl_ring_entry entry = {.kind = NXL_RING_RELEASE,
                                   .slot = transfer->entry.slot,
                                   .generation = (uint32_t)generation,
                                   .peer = transfer->entry.peer};

    if (generation != 0 && !atomic_load(&session->gone)) { /* else the agent never heard of it */
        enum nxl_code code = nxl_submit_entry(session, &entry, err);

        if (code != NXL_OK && code != NXL_NO_AGENT)
            return code;
    }
    if (!atomic_load(&session->gone)) {
        if (transfer->block)
            nxl_submit_block_later(session, transfer->block - 1, transfer->position);
        if (transfer->notice_block)
            nxl_submit_block_later(session, transfer->notice_block - 1, transfer->position);
        session->submit.free_slots[session->submit.free_count++] = transfer->entry.slot;
    }
    atomic_store(&transfer->generation, NXL_RELEASED);
    return NXL_OK;
}

enum nxl_code nxl_transfer_release(struct nxl_transfer *transfer, struct nxl_err *err)
{
    struct nxl_client *client;
    struct nxl_session *session;
    enum nxl_code code;
    uint64_t generation;

    if (!transfer)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "release: transfer is NULL");
    client = transfer->client;
    session = transfer->session;
    if (nxl_client_forked(client, err))
        return NXL_NOT_ALLOWED;
    if (!nxl_transfer_quiet(transfer))
        nxl_session_glance(session); /* somebody may wait for this by releasing in a loop */
    pthread_mutex_lock(&session->submit.lock);
    generation = atomic_load(&transfer->generation);
    if (generation == NXL_RELEASED)
        code = nxl_err_set(err, NXL_INVALID_PARAM, 0, "release: the transfer was released already");
    else if (!nxl_transfer_quiet(transfer))
        code = nxl_err_set(
            err, NXL_BUSY, 0, "release: the transfer %s: cancel it and wait until it is quiet",
            nxl_transfer_state(transfer) == NXL_IN_PROG ? "is running" : "ended but is not quiet");
    else
        code = release_parts(transfer, generation, err);
    pthread_mutex_unlock(&session->submit.lock);
    if (code != NXL_OK)
        return code;
    pthread_mutex_lock(&client->objects.lock);
    nxl_transfer_drop(transfer);
    pthread_mutex_unlock(&client->objects.lock);
    return NXL_OK;
}
