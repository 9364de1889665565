/* memory.c - registers memory with the agent, all regions of a call or none. Work lock held. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/client.h"

/* ---- table ------------------------------------------------------------------------------ */

static size_t region_hash(const struct nxl_region *region, size_t size)
{
    uint64_t hash = (uint64_t)(uintptr_t)region->addr;

    hash = (hash ^ (hash >> 29)) * 0x9e3779b97f4a7c15ull;
    hash = (hash ^ region->len ^ ((uint64_t)region->device << 48)) * 0xbf58476d1ce4e5b9ull;
    return (size_t)(hash >> 32) & (size - 1);
}

/* Room for count more; lengthens the table so that chains stay short. */
static int table_room(struct nxl_peer *peer, size_t count)
{
    size_t size = peer->lookup_size ? peer->lookup_size : 64;
    struct nxl_memreg **lookup;

    while (size < peer->reg_count + count)
        size *= 2;
    if (size == peer->lookup_size)
        return 1;
    lookup = calloc(size, sizeof(struct nxl_memreg *));
    if (!lookup)
        return 0;
    free(peer->lookup);
    peer->lookup = lookup;
    peer->lookup_size = size;
    for (struct nxl_memreg *reg = peer->regs; reg; reg = reg->next) {
        size_t at = region_hash(&reg->region, size);

        reg->chain = lookup[at];
        lookup[at] = reg;
    }
    return 1;
}

static void table_add(struct nxl_peer *peer, struct nxl_memreg *reg)
{
    size_t at = region_hash(&reg->region, peer->lookup_size);

    reg->chain = peer->lookup[at];
    peer->lookup[at] = reg;
    reg->prev = NULL;
    reg->next = peer->regs;
    if (peer->regs)
        peer->regs->prev = reg;
    peer->regs = reg;
    peer->reg_count++;
}

static void reg_free(struct nxl_client *client, struct nxl_memreg *reg)
{
    nxl_backing_unref(&client->work.backings, reg->backing);
    free(reg);
}

static void table_remove(struct nxl_peer *peer, struct nxl_memreg *reg)
{
    struct nxl_memreg **at = &peer->lookup[region_hash(&reg->region, peer->lookup_size)];

    while (*at != reg)
        at = &(*at)->chain;
    *at = reg->chain;
    if (reg->prev)
        reg->prev->next = reg->next;
    else
        peer->regs = reg->next;
    if (reg->next)
        reg->next->prev = reg->prev;
    peer->reg_count--;
    reg_free(peer->client, reg);
}

void nxl_memory_clear(struct nxl_peer *peer)
{
    while (peer->regs)
        table_remove(peer, peer->regs);
}

/* ---- frames ----------------------------------------------------------------------------- */

/* Fills one REGISTER frame from regs[0..count): as many as regions and distinct files allow. */
static uint32_t frame_fill(struct nxl_frame *frame, struct nxl_memreg *const *regs, uint32_t count,
                           int *fds, uint32_t *ret_fd_count)
{
    const struct nxl_backing *files[NXL_FRAME_FDS_MAX];
    uint32_t file_count = 0, done;

    for (done = 0; done < count && done < NXL_FRAME_REGIONS_MAX; done++) {
        const struct nxl_memreg *reg = regs[done];
        uint32_t file = file_count;

        /* The last file first: neighbours mostly share it. */
        while (file > 0 && files[file - 1] != reg->backing)
            file--;
        if (file == 0) {
            if (file_count == NXL_FRAME_FDS_MAX)
                break;
            fds[file_count] = reg->backing->fd;
            files[file_count++] = reg->backing;
            file = file_count;
        }
        frame->regions[done] = (struct nxl_frame_region){
            .addr = (uint64_t)(uintptr_t)reg->region.addr,
            .len = reg->region.len,
            .fd_offset = reg->offset,
            .kind = reg->region.kind,
            .device = reg->region.device,
            .fd_index = file - 1,
        };
    }
    frame->count = done;
    *ret_fd_count = file_count;
    return done;
}

static enum nxl_code register_part(struct nxl_peer *peer, struct nxl_session *session,
                                   struct nxl_memreg **regs, uint32_t count, uint32_t *ret_done,
                                   struct nxl_err *err)
{
    struct nxl_call *call = nxl_call_new(session, NXL_FRAME_REGISTER);
    int fds[NXL_FRAME_FDS_MAX];
    uint32_t fd_count, done;
    enum nxl_code code;

    if (!call)
        return nxl_err_set(err, NXL_LIMIT, ENOMEM, "send regions to the agent");
    done = frame_fill(&call->frame, regs, count, fds, &fd_count);
    call->frame.peer = peer->id;
    code = nxl_call_run(session, call, fds, fd_count, nxl_client_timeout(peer->client), err);
    if (code == NXL_OK && call->frame.count != done)
        code = nxl_err_set(err, NXL_MISMATCH, 0, "the agent answered %u regions with %u ids", done,
                           call->frame.count);
    for (uint32_t i = 0; code == NXL_OK && i < done; i++)
        regs[i]->id = call->frame.ids[i];
    nxl_call_free(session, call);
    if (code == NXL_OK)
        *ret_done = done;
    return code;
}

/* Asks for ids in one frame; 1024 at most. */
static enum nxl_code deregister_ids(struct nxl_peer *peer, struct nxl_session *session,
                                    const uint64_t *ids, uint32_t count, struct nxl_err *err)
{
    struct nxl_call *call = nxl_call_new(session, NXL_FRAME_DEREGISTER);
    enum nxl_code code;

    if (!call)
        return nxl_err_set(err, NXL_LIMIT, ENOMEM, "send regions to the agent");
    call->frame.peer = peer->id;
    call->frame.count = count;
    memcpy(call->frame.ids, ids, count * sizeof(*ids));
    code = nxl_call_run(session, call, NULL, 0, nxl_client_timeout(peer->client), err);
    nxl_call_free(session, call);
    return code;
}

/* Takes back what earlier frames of a failed call registered. Nothing uses it yet, so that a
 * refusal can only mean that it is gone. */
static void register_undo(struct nxl_peer *peer, struct nxl_session *session,
                          struct nxl_memreg **regs, uint32_t count)
{
    for (uint32_t i = count; i > 0; i--)
        if (regs[i - 1]->id != 0)
            (void)deregister_ids(peer, session, &regs[i - 1]->id, 1, NULL);
}

static enum nxl_code register_all(struct nxl_peer *peer, struct nxl_session *session,
                                  struct nxl_memreg **regs, uint32_t count, struct nxl_err *err)
{
    uint32_t done = 0, part;

    while (done < count) {
        enum nxl_code code = register_part(peer, session, regs + done, count - done, &part, err);

        if (code != NXL_OK) {
            register_undo(peer, session, regs, done);
            return code;
        }
        done += part;
    }
    return NXL_OK;
}

/* ---- register --------------------------------------------------------------------------- */

static enum nxl_code region_check(const struct nxl_region *region, struct nxl_err *err)
{
    uint64_t addr = (uint64_t)(uintptr_t)region->addr;

    if (region->kind != NXL_MEM_DRAM)
        return nxl_err_set(err, NXL_NOT_SUPPORTED, 0,
                           "memory kind %u cannot be registered in this version, only DRAM (0)",
                           region->kind);
    if (!region->addr)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "its address is NULL");
    if (region->len == 0)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "its length is 0");
    if (addr + region->len < addr)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "its end overflows the address space");
    return NXL_OK;
}

/* Makes handles with their files; *made says how many exist, also on failure. */
static enum nxl_code regs_make(struct nxl_peer *peer, const struct nxl_region *regions,
                               uint32_t count, struct nxl_memreg **regs, uint32_t *made,
                               struct nxl_err *err)
{
    struct nxl_backing_scan *scan = nxl_backing_scan_new(&peer->client->work.backings);
    enum nxl_code code = NXL_OK;

    if (!scan)
        return nxl_err_set(err, NXL_LIMIT, ENOMEM, "register %u regions", count);
    for (uint32_t i = 0; i < count && code == NXL_OK; i++) {
        struct nxl_memreg *reg = calloc(1, sizeof(*reg));

        if (!reg) {
            code = nxl_err_set(err, NXL_LIMIT, ENOMEM, "register %u regions", count);
            break;
        }
        reg->peer = peer;
        reg->region = regions[i];
        code = region_check(&regions[i], err);
        if (code == NXL_OK)
            code = nxl_backing_find(scan, (uint64_t)(uintptr_t)regions[i].addr, regions[i].len,
                                    &reg->backing, &reg->offset, err);
        if (code == NXL_OK) {
            regs[(*made)++] = reg;
            continue;
        }
        free(reg);
        nxl_err_wrap(err, code, "register region %u (address %p, length %" PRIu64 ") of peer '%s'",
                     i, regions[i].addr, regions[i].len, peer->name);
    }
    nxl_backing_scan_free(scan);
    return code;
}

enum nxl_code nxl_register(struct nxl_peer *peer, const struct nxl_region *regions, uint32_t count,
                           struct nxl_memreg **ret, struct nxl_err *err)
{
    struct nxl_session *session;
    struct nxl_memreg **regs;
    enum nxl_code code = nxl_peer_usable(peer, err);
    uint32_t made = 0;

    if (code != NXL_OK || count == 0)
        return code;
    if (!regions || !ret)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "register: regions or ret is NULL");
    regs = calloc(count, sizeof(struct nxl_memreg *));
    if (!regs)
        return nxl_err_set(err, NXL_LIMIT, ENOMEM, "register %u regions", count);
    code = nxl_client_enter(peer->client, &session, err);
    if (code != NXL_OK) {
        free(regs);
        return nxl_err_wrap(err, code, "register %u regions of peer '%s'", count, peer->name);
    }
    code = regs_make(peer, regions, count, regs, &made, err);
    if (code == NXL_OK && !table_room(peer, count))
        code = nxl_err_set(err, NXL_LIMIT, ENOMEM, "register %u regions", count);
    if (code == NXL_OK) {
        code = register_all(peer, session, regs, count, err);
        if (code != NXL_OK)
            nxl_err_wrap(err, code, "register %u regions of peer '%s'", count, peer->name);
    }
    for (uint32_t i = 0; i < made; i++) {
        if (code == NXL_OK)
            table_add(peer, regs[i]);
        else
            reg_free(peer->client, regs[i]);
    }
    if (code == NXL_OK)
        memcpy(ret, regs, count * sizeof(struct nxl_memreg *));
    nxl_client_leave(peer->client);
    free(regs);
    return code;
}

void nxl_memory_revive(struct nxl_peer *peer, struct nxl_session *session)
{
    struct nxl_err err;

    for (struct nxl_memreg *reg = peer->regs; reg; reg = reg->next)
        reg->id = 0;
    for (struct nxl_memreg *reg = peer->regs; reg;) {
        struct nxl_memreg *part[NXL_FRAME_REGIONS_MAX];
        uint32_t count = 0, done = 0;

        while (reg && count < NXL_FRAME_REGIONS_MAX) {
            part[count++] = reg;
            reg = reg->next;
        }
        for (uint32_t at = 0; at < count; at += done) {
            done = 0;
            if (register_part(peer, session, part + at, count - at, &done, &err) == NXL_OK)
                continue;
            /* The agent refuses a frame as a whole: find those that it does not want. */
            done = 1;
            if (register_part(peer, session, part + at, 1, &done, &err) != NXL_OK) {
                struct nxl_ring_event event = {
                    .kind = NXL_EVENT_REGION_LOST,
                    .code = err.code,
                    .at_ns = nxl_client_now(),
                    .payload = {err.text, strlen(err.text)},
                };

                pthread_mutex_lock(&peer->client->event.lock);
                nxl_event_push(peer, &event);
                pthread_mutex_unlock(&peer->client->event.lock);
            }
        }
    }
}

/* ---- deregister ------------------------------------------------------------------------- */

/* Deregisters regs[0..count), 1024 at most, none NULL; sets those that are gone to NULL. */
static enum nxl_code deregister_part(struct nxl_peer *peer, struct nxl_session *session,
                                     struct nxl_memreg ***regs, uint32_t count, struct nxl_err *err)
{
    enum nxl_code first = NXL_OK, code;
    uint64_t ids[NXL_FRAME_REGIONS_MAX];

    for (uint32_t i = 0; i < count; i++)
        ids[i] = (*regs[i])->id;
    code = count > 1 ? deregister_ids(peer, session, ids, count, NULL) : NXL_BUSY;
    for (uint32_t i = 0; i < count; i++) {
        struct nxl_memreg *reg = *regs[i];
        struct nxl_err why;

        if (code != NXL_OK) { /* one by one: NOT_FOUND then is one that went with the first try */
            enum nxl_code one = reg->id ? deregister_ids(peer, session, &reg->id, 1, &why) : NXL_OK;

            if (one != NXL_OK && one != NXL_NOT_FOUND) {
                if (first == NXL_OK) {
                    nxl_err_set(err, one, 0, "%s", why.text);
                    nxl_err_wrap(err, one,
                                 "deregister region (address %p, length %" PRIu64 ") of peer '%s'",
                                 reg->region.addr, reg->region.len, peer->name);
                    first = one;
                }
                if (one == NXL_NO_AGENT || one == NXL_TIMEOUT)
                    return first;
                continue;
            }
        }
        *regs[i] = NULL;
        table_remove(peer, reg);
    }
    return first;
}

enum nxl_code nxl_deregister(struct nxl_peer *peer, struct nxl_memreg **regs, uint32_t count,
                             struct nxl_err *err)
{
    struct nxl_session *session;
    struct nxl_memreg **part[NXL_FRAME_REGIONS_MAX];
    enum nxl_code first = NXL_OK, code = nxl_peer_usable(peer, err);
    uint32_t filled = 0;

    if (code != NXL_OK || count == 0)
        return code;
    if (!regs)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "deregister: regs is NULL");
    for (uint32_t i = 0; i < count; i++)
        if (regs[i] && regs[i]->peer != peer)
            return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                               "deregister: regs[%u] belongs to another peer than '%s'", i,
                               peer->name);
    code = nxl_client_enter(peer->client, &session, err);
    if (code != NXL_OK)
        return nxl_err_wrap(err, code, "deregister %u regions of peer '%s'", count, peer->name);
    for (uint32_t i = 0; i < count; i++) {
        if (regs[i])
            part[filled++] = &regs[i];
        if (filled == 0 || (filled < NXL_FRAME_REGIONS_MAX && i + 1 < count))
            continue;
        code = deregister_part(peer, session, part, filled, first == NXL_OK ? err : NULL);
        if (first == NXL_OK)
            first = code;
        filled = 0;
        if (code == NXL_NO_AGENT || code == NXL_TIMEOUT)
            break;
    }
    nxl_client_leave(peer->client);
    return first;
}

enum nxl_code nxl_deregister_range(struct nxl_peer *peer, const struct nxl_region *region,
                                   struct nxl_err *err)
{
    struct nxl_memreg *reg = NULL, **part = &reg;
    struct nxl_session *session;
    enum nxl_code code = nxl_peer_usable(peer, err);

    if (code != NXL_OK)
        return code;
    if (!region)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "deregister: region is NULL");
    code = nxl_client_enter(peer->client, &session, err);
    if (code != NXL_OK)
        return nxl_err_wrap(err, code, "deregister a range of peer '%s'", peer->name);
    if (peer->lookup_size)
        reg = peer->lookup[region_hash(region, peer->lookup_size)];
    while (reg && (reg->region.addr != region->addr || reg->region.len != region->len ||
                   reg->region.device != region->device))
        reg = reg->chain;
    if (reg)
        code = deregister_part(peer, session, &part, 1, err);
    else
        code = nxl_err_set(err, NXL_NOT_FOUND, 0,
                           "peer '%s' has no region with exactly address %p, length %" PRIu64
                           ", device %u",
                           peer->name, region->addr, region->len, region->device);
    nxl_client_leave(peer->client);
    return code;
}
