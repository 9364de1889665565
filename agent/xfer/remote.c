/* remote.c - the incarnations that our peers know: handles, partial views, metadata blobs.
 * Loop thread. */
#include "xfer/remote.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"

int xfer_access_allowed(const struct nxl_xfer *xfer, const char *from_ns, const char *to_ns)
{
    if (xfer->access == XFER_ACCESS_ALL)
        return 1;
    return xfer->access == XFER_ACCESS_NAMESPACE && strcmp(from_ns, to_ns) == 0;
}

struct xfer_remote *xfer_remote_of(struct nxl_xfer_session *session, uint32_t peer, uint32_t id,
                                   struct nxl_err *err)
{
    struct xfer_remote *remote;

    HASH_FIND(hh, session->remotes, &id, sizeof(id), remote);
    if (remote == NULL || remote->peer->id != peer) {
        (void)nxl_err_set(err, NXL_NOT_FOUND, 0,
                          "remote %u is not loaded by this peer, or was invalidated", id);
        return NULL;
    }
    return remote;
}

static struct xfer_remote *remote_by_target(struct xfer_peer *peer,
                                            const struct nxl_catalog_peer *target)
{
    struct xfer_remote *remote, *next;

    HASH_ITER(hh, peer->session->remotes, remote, next)
    {
        if (remote->peer == peer && remote->target == target)
            return remote;
    }
    return NULL;
}

struct xfer_remote *xfer_remote_make(struct xfer_peer *peer, struct nxl_catalog_peer *target,
                                     struct nxl_err *err)
{
    struct nxl_xfer_session *session = peer->session;
    struct xfer_remote *remote = remote_by_target(peer, target);

    if (remote != NULL)
        return remote;
    if (HASH_COUNT(session->remotes) >= session->xfer->limits.remotes) {
        (void)nxl_err_set(err, NXL_LIMIT, 0,
                          "this session has %u remotes, limits.remotes allows no more",
                          session->xfer->limits.remotes);
        return NULL;
    }
    remote = nxl_new0(sizeof(*remote));
    remote->id = ++session->next_remote;
    remote->peer = peer;
    remote->fresh = 1;
    remote->target = target;
    nxl_catalog_ref(target);
    if (!target->local && target->owner != NULL)
        ((struct xfer_far *)target->owner)->loaders++;
    HASH_ADD(hh, session->remotes, id, sizeof(remote->id), remote);
    return remote;
}

void xfer_remote_drop(struct xfer_remote *remote)
{
    struct nxl_xfer *xfer = remote->peer->session->xfer;

    HASH_DEL(remote->peer->session->remotes, remote);
    if (!remote->target->local)
        xfer_far_loader_gone(xfer, remote->target);
    nxl_catalog_unref(xfer->catalog, remote->target);
    free(remote->allowed);
    free(remote);
}

static int id_compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static int is_allowed(const struct xfer_remote *remote, uint64_t id)
{
    return remote->allowed_count > 0 &&
           bsearch(&id, remote->allowed, remote->allowed_count, sizeof(id), id_compare) != NULL;
}

int xfer_remote_accepts(void *arg, const struct nxl_catalog_region *region)
{
    return is_allowed(arg, region->id);
}

enum nxl_code xfer_remote_allow(struct xfer_remote *remote, const struct nxl_record *record,
                                struct nxl_err *err)
{
    uint32_t limit = remote->peer->session->xfer->limits.regions;
    uint32_t sorted = remote->allowed_count, count = sorted, kept = 0;

    if (record->region_count > limit - sorted)
        return nxl_err_set(err, NXL_LIMIT, 0,
                           "remote %u has %u regions by partial metadata, limits.regions allows %u",
                           remote->id, sorted, limit);
    if (count + record->region_count > remote->allowed_room) {
        remote->allowed_room = count + record->region_count;
        remote->allowed = nxl_resize(remote->allowed, remote->allowed_room, sizeof(uint64_t));
    }
    for (uint32_t i = 0; i < record->region_count; i++)
        remote->allowed[count++] = record->regions[i].id;
    if (count > sorted)
        qsort(remote->allowed, count, sizeof(uint64_t), id_compare);
    for (uint32_t i = 0; i < count; i++) {
        if (kept == 0 || remote->allowed[kept - 1] != remote->allowed[i])
            remote->allowed[kept++] = remote->allowed[i];
    }
    remote->allowed_count = kept;
    return NXL_OK;
}

void xfer_remote_info(const struct xfer_remote *remote, struct nxl_xfer_remote_info *ret)
{
    const struct nxl_catalog_peer *target = remote->target;

    *ret = (struct nxl_xfer_remote_info){
        .remote = remote->id,
        .name = target->name,
        .incarnation = target->incarnation,
        .life = target->life,
        .suspect = (uint32_t)target->suspect,
        .same_agent = (uint32_t)target->local,
        .regions =
            remote->restricted ? remote->allowed_count : nxl_region_table_count(target->regions),
        .agent = target->node,
    };
}

static enum nxl_code record_regions(struct xfer_peer *peer, const uint64_t *ids, uint32_t count,
                                    struct nxl_record *record, struct nxl_err *err)
{
    if (count > NXL_RECORD_REGIONS_MAX)
        return nxl_err_set(err, NXL_LIMIT, 0, "a partial record names at most %u regions, not %u",
                           NXL_RECORD_REGIONS_MAX, count);
    for (uint32_t i = 0; i < count; i++) {
        struct nxl_catalog_region *region = nxl_region_table_by_id(peer->peer->regions, ids[i]);

        if (region == NULL)
            return nxl_err_set(err, NXL_NOT_FOUND, 0,
                               "region %u of the call (id %llu) is not registered by this peer", i,
                               (unsigned long long)ids[i]);
        record->regions[i] = (struct nxl_record_region){.id = region->id,
                                                        .addr = region->addr,
                                                        .len = region->len,
                                                        .kind = region->kind,
                                                        .device = region->device};
    }
    record->region_count = count;
    return NXL_OK;
}

/* Address-only and full blobs are the same few hundred bytes, whatever is registered. */
enum nxl_code xfer_record_make(struct xfer_peer *peer, uint32_t flags, const uint64_t *ids,
                               uint32_t count, struct nxl_record *ret, struct nxl_err *err)
{
    struct nxl_xfer *xfer = peer->session->xfer;

    memset(ret, 0, offsetof(struct nxl_record, regions));
    if (flags == 0)
        ret->flags = NXL_RECORD_ADDRESS | NXL_RECORD_FULL;
    else if (flags & NXL_XFER_MD_ADDRESS)
        ret->flags = NXL_RECORD_ADDRESS;
    (void)nxl_copy_text(ret->ns, sizeof(ret->ns), peer->peer->ns);
    (void)nxl_copy_text(ret->name, sizeof(ret->name), peer->peer->name);
    (void)nxl_copy_text(ret->incarnation, sizeof(ret->incarnation), peer->peer->incarnation);
    (void)nxl_copy_text(ret->cluster, sizeof(ret->cluster), xfer->cluster);
    (void)nxl_copy_text(ret->agent, sizeof(ret->agent), xfer->agent);
    (void)nxl_copy_text(ret->node, sizeof(ret->node), xfer->node);
    if (xfer->links != NULL)
        (void)nxl_copy_text(ret->address, sizeof(ret->address), nxl_links_address(xfer->links));
    ret->revision = peer->peer->revision;
    if (flags & NXL_XFER_MD_REGIONS)
        return record_regions(peer, ids, count, ret, err);
    return NXL_OK;
}

enum nxl_code nxl_xfer_metadata(struct nxl_xfer_session *session, uint32_t peer_id, uint32_t flags,
                                const uint64_t *ids, uint32_t count, struct nxl_bytes *to,
                                struct nxl_err *err)
{
    struct xfer_peer *peer = xfer_peer_find(session, peer_id, err);
    NXL_CLEANUP(nxl_freep) struct nxl_record *record = nxl_new0(sizeof(*record));
    enum nxl_code code;

    if (peer == NULL)
        return NXL_NOT_FOUND;
    code = xfer_record_make(peer, flags, ids, count, record, err);
    return code == NXL_OK ? nxl_record_encode(record, to, err) : code;
}

enum nxl_code nxl_xfer_invalidate(struct nxl_xfer_session *session, uint32_t peer_id, uint32_t id,
                                  struct nxl_err *err)
{
    struct xfer_remote *remote = xfer_remote_of(session, peer_id, id, err);
    struct xfer_request *request, *next;

    if (remote == NULL)
        return NXL_NOT_FOUND;
    HASH_ITER(hh, session->requests, request, next)
    {
        if (request->state == XFER_RUNNING && request->peer == remote->peer &&
            request->target == remote->target)
            xfer_request_stop(request, NXL_REMOTE_DISCONNECT, "the remote peer was invalidated");
    }
    session->xfer->epoch++; /* kept plans may name it */
    xfer_remote_drop(remote);
    return NXL_OK;
}

/* "name" in the own namespace, or "namespace/name". */
void xfer_name_split(const struct xfer_peer *peer, const char *name, char *ret_ns, size_t room,
                     const char **ret_name)
{
    const char *slash = strchr(name, '/');

    if (slash == NULL || (size_t)(slash - name) >= room) {
        (void)nxl_copy_text(ret_ns, room, peer->peer->ns);
        *ret_name = name;
        return;
    }
    memcpy(ret_ns, name, (size_t)(slash - name));
    ret_ns[slash - name] = '\0';
    *ret_name = slash + 1;
}

enum nxl_code nxl_xfer_find(struct nxl_xfer_session *session, uint32_t peer_id,
                            const char *full_name, struct nxl_xfer_remote_info *ret,
                            struct nxl_err *err)
{
    struct xfer_peer *peer = xfer_peer_find(session, peer_id, err);
    struct xfer_remote *remote, *next, *best = NULL;
    char ns[NXL_NAMESPACE_MAX + 1];
    const char *name;

    if (peer == NULL)
        return NXL_NOT_FOUND;
    xfer_name_split(peer, full_name, ns, sizeof(ns), &name);
    if (strcmp(name, peer->peer->name) == 0 && strcmp(ns, peer->peer->ns) == 0) {
        best = xfer_remote_make(peer, peer->peer, err);
        if (best == NULL)
            return err->code;
    }
    HASH_ITER(hh, session->remotes, remote, next)
    {
        if (remote->peer == peer && remote->target->life != NXL_LIFE_DEAD &&
            strcmp(remote->target->name, name) == 0 && strcmp(remote->target->ns, ns) == 0 &&
            (best == NULL || remote->id > best->id))
            best = remote;
    }
    if (best == NULL)
        return nxl_err_set(err, NXL_NOT_FOUND, 0, "peer '%s' is not loaded, or is dead", full_name);
    xfer_remote_info(best, ret);
    return NXL_OK;
}

enum nxl_code nxl_xfer_state(struct nxl_xfer_session *session, uint32_t peer_id, uint32_t id,
                             struct nxl_xfer_remote_info *ret, struct nxl_err *err)
{
    struct xfer_remote *remote = xfer_remote_of(session, peer_id, id, err);

    if (remote == NULL)
        return NXL_NOT_FOUND;
    xfer_remote_info(remote, ret);
    return NXL_OK;
}

enum nxl_code nxl_xfer_check(struct nxl_xfer_session *session, uint32_t peer_id, uint32_t id,
                             uint32_t kind, const struct nxl_run *runs, uint32_t count,
                             struct nxl_err *err)
{
    struct xfer_remote *remote = xfer_remote_of(session, peer_id, id, err);
    struct nxl_catalog_list *list;
    enum nxl_code code;

    if (remote == NULL)
        return NXL_NOT_FOUND;
    if (remote->target->life == NXL_LIFE_DEAD)
        return nxl_err_set(err, NXL_STALE, 0, "peer %s is dead", xfer_show(remote->target));
    list = nxl_catalog_list_new(remote->target, kind);
    code = count == 0 ? NXL_OK
                      : nxl_catalog_list_append(list, runs, count,
                                                remote->restricted ? xfer_remote_accepts : NULL,
                                                remote, err);
    nxl_catalog_list_free(list);
    return code;
}
