/* session.c - one client's state: its peers come and go here, and when the client is gone its
 * incarnations die here. Loop thread. */
#include "xfer/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "wire/frame.h"

const char *xfer_show(const struct nxl_catalog_peer *peer)
{
    static _Thread_local char ring[4][NXL_NAMESPACE_MAX + NXL_NAME_MAX + NXL_INCARNATION_MAX + 8];
    static _Thread_local unsigned next;
    char *to = ring[next++ % 4];

    snprintf(to, sizeof(ring[0]), "%s/%s (%s)", peer->ns, peer->name, peer->incarnation);
    return to;
}

struct xfer_peer *xfer_peer_find(struct nxl_xfer_session *session, uint32_t id, struct nxl_err *err)
{
    struct xfer_peer *peer;

    HASH_FIND(hh, session->peers, &id, sizeof(id), peer);
    if (peer == NULL)
        (void)nxl_err_set(err, NXL_NOT_FOUND, 0, "this session has no peer %u", id);
    return peer;
}

enum nxl_code nxl_xfer_session_open(struct nxl_xfer *xfer, const struct nxl_xfer_owner *owner,
                                    const struct nxl_xfer_front *front, void *front_arg,
                                    uint32_t *ret_number, struct nxl_xfer_session **ret,
                                    struct nxl_err *err)
{
    struct nxl_xfer_session *session;

    if (xfer->closing)
        return nxl_err_set(err, NXL_NOT_ALLOWED, 0, "the agent is leaving");
    if (HASH_COUNT(xfer->sessions) >= xfer->limits.sessions)
        return nxl_err_set(err, NXL_LIMIT, 0,
                           "%u clients are connected, limits.sessions allows no more",
                           xfer->limits.sessions);
    session = nxl_new0(sizeof(*session));
    session->xfer = xfer;
    session->number = ++xfer->next_session;
    session->front = front;
    session->front_arg = front_arg;
    session->pid = owner->pid;
    session->held_end = &session->held;
    (void)nxl_copy_text(session->ns, sizeof(session->ns), owner->ns);
    snprintf(session->prefix, sizeof(session->prefix), "%.63s/%.64s/%.20s-%u",
             owner->pod[0] != '\0' ? owner->pod : xfer->node,
             owner->container[0] != '\0' ? owner->container : xfer->boot, xfer->life,
             session->number);
    HASH_ADD(hh, xfer->sessions, number, sizeof(session->number), session);
    xfer_operators_tell_pods(xfer);
    *ret_number = session->number;
    *ret = session;
    return NXL_OK;
}

void xfer_session_settle(struct nxl_xfer_session *session)
{
    if (!session->closed || session->unfinished > 0 || session->requests != NULL)
        return;
    free(session);
}

void xfer_peer_settle(struct xfer_peer *peer)
{
    struct nxl_xfer_session *session = peer->session;
    struct nxl_xfer *xfer = session->xfer;

    if (!peer->closed || peer->users > 0 || peer->leaving_count > 0 ||
        nxl_region_table_count(peer->peer->regions) > 0)
        return;
    peer->peer->owner = NULL;
    nxl_catalog_remove(xfer->catalog, peer->peer);
    nxl_catalog_unref(xfer->catalog, peer->peer);
    free(peer->leaving);
    free(peer);
    session->unfinished--;
    xfer_session_settle(session);
}

enum nxl_code nxl_xfer_peer_open(struct nxl_xfer_session *session, const char *name,
                                 uint32_t *ret_id, char *ret_incarnation, size_t room,
                                 struct nxl_err *err)
{
    struct nxl_xfer *xfer = session->xfer;
    char incarnation[NXL_INCARNATION_MAX + 1];
    struct nxl_catalog_peer *known;
    struct xfer_peer *peer;
    enum nxl_code code;

    if (!nxl_name_valid(name))
        return nxl_err_set(
            err, NXL_INVALID_PARAM, 0,
            "a peer name has 1 to %d printable ASCII characters without '/' and space",
            NXL_NAME_MAX);
    if (HASH_COUNT(session->peers) >= xfer->limits.peers)
        return nxl_err_set(err, NXL_LIMIT, 0,
                           "this session has %u peers, limits.peers allows no more",
                           xfer->limits.peers);
    known = nxl_catalog_current(xfer->catalog, session->ns, name);
    if (known != NULL && known->local)
        return nxl_err_set(err, NXL_NOT_ALLOWED, 0,
                           "peer %s lives on this agent; close it first or take another name",
                           xfer_show(known));
    peer = nxl_new0(sizeof(*peer));
    peer->id = ++session->next_peer;
    peer->session = session;
    snprintf(incarnation, sizeof(incarnation), "%s.%u", session->prefix, peer->id);
    code = nxl_catalog_add(xfer->catalog, session->ns, name, incarnation, 1, &peer->peer, err);
    if (code != NXL_OK) {
        free(peer);
        return code;
    }
    nxl_catalog_ref(peer->peer);
    peer->peer->owner = peer;
    peer->peer->since_ns = nxl_now_ns();
    (void)nxl_copy_text(peer->peer->agent, sizeof(peer->peer->agent), xfer->agent);
    (void)nxl_copy_text(peer->peer->node, sizeof(peer->peer->node), xfer->node);
    HASH_ADD(hh, session->peers, id, sizeof(peer->id), peer);
    session->unfinished++;
    nxl_metric_move(xfer->metrics.peers_local, 1);
    *ret_id = peer->id;
    (void)nxl_copy_text(ret_incarnation, room, incarnation);
    nxl_info("peer", "event=opened peer=%s session=%u pid=%d", nxl_quote(xfer_show(peer->peer)),
             session->number, session->pid);
    xfer_lookups_local(xfer);
    return NXL_OK;
}

static void peer_remotes_drop(struct xfer_peer *peer)
{
    struct xfer_remote *remote, *next;

    HASH_ITER(hh, peer->session->remotes, remote, next)
    {
        if (remote->peer == peer)
            xfer_remote_drop(remote);
    }
}

static void peer_lists_drop(struct xfer_peer *peer)
{
    struct xfer_list *list, *next;

    HASH_ITER(hh, peer->session->lists, list, next)
    {
        struct nxl_err err;

        if (list->peer == peer)
            NXL_IGNORE(nxl_xfer_list_free(peer->session, list->id, &err));
    }
}

/* The incarnation dies: fenced here first, then told. The order within is what makes the bound: no
 * new posts, running ones ended, loaders on this agent told, then the wire and the store. */
void xfer_peer_end(struct xfer_peer *peer, const char *reason)
{
    struct nxl_xfer_session *session = peer->session;
    struct nxl_xfer *xfer = session->xfer;
    struct xfer_fence *fence;

    HASH_DEL(session->peers, peer);
    peer->closed = 1;
    xfer_lookups_of_peer(peer);
    (void)nxl_catalog_set_life(xfer->catalog, peer->peer->incarnation, NXL_LIFE_DEAD, reason);
    peer_lists_drop(peer);
    peer_remotes_drop(peer);
    fence = xfer_regions_leave_all(peer);
    xfer_tell_dead(xfer, peer, reason, fence);
    xfer_operators_tell(xfer, peer->peer->incarnation, reason);
    if (xfer->directory != NULL) {
        nxl_directory_withdraw(xfer->directory, peer->peer->incarnation);
        nxl_directory_fact(xfer->directory, peer->peer->incarnation, NXL_LIFE_DEAD, reason);
    }
    nxl_metric_move(xfer->metrics.peers_local, -1);
    nxl_info("peer", "event=ended peer=%s reason=%s", nxl_quote(xfer_show(peer->peer)),
             nxl_quote(reason));
    xfer_fence_arm(fence);
}

enum nxl_code nxl_xfer_peer_close(struct nxl_xfer_session *session, uint32_t id,
                                  struct nxl_err *err)
{
    struct xfer_peer *peer = xfer_peer_find(session, id, err);

    if (peer == NULL)
        return NXL_NOT_FOUND;
    xfer_peer_end(peer, "closed by its client");
    return NXL_OK;
}

void nxl_xfer_session_close(struct nxl_xfer_session *session, const char *reason, uint64_t at_ns)
{
    struct nxl_xfer *xfer = session->xfer;
    struct xfer_peer *peer, *next;

    xfer_lookups_of_session(session);
    session->closed = 1;
    session->unfinished++; /* keeps it until the end of this call */
    HASH_DEL(xfer->sessions, session);
    xfer_session_requests_close(session);
    HASH_ITER(hh, session->peers, peer, next)
    {
        xfer_peer_end(peer, reason);
    }
    while (session->held != NULL) {
        struct xfer_held *held = session->held;

        session->held = held->next;
        free(held);
    }
    nxl_metric_observe(xfer->metrics.down_local_us, (nxl_now_ns() - at_ns) / NXL_US);
    xfer_operators_tell_pods(xfer);
    session->unfinished--;
    xfer_session_settle(session);
}

void nxl_xfer_session_room(struct nxl_xfer_session *session)
{
    xfer_held_flush(session);
    if (session->xfer->links != NULL)
        nxl_links_resume(session->xfer->links);
}
