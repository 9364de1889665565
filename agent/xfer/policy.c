/* policy.c - access.policy, or the operators' rules in its place; and what a change of them takes
 * away. Called by lookup, exchange, notice, digest and post. Loop thread. */
#include "xfer/policy.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "xfer/request.h"

#define ALL_KINDS ((1u << NXL_MEM_KINDS) - 1u)

enum nxl_code xfer_policy(struct nxl_xfer *xfer, struct xfer_end from, struct xfer_end to,
                          unsigned ops, unsigned kind, enum nxl_path_class path,
                          struct nxl_err *err)
{
    enum nxl_code code;

    if (xfer->members == NULL) {
        if (xfer_access_allowed(xfer, from.ns, to.ns))
            return NXL_OK;
        return nxl_err_set(err, NXL_NOT_ALLOWED, 0,
                           "access.policy lets nobody from namespace '%.63s' reach '%.63s'",
                           from.ns, to.ns);
    }
    code =
        nxl_members_allows(xfer->members, from.incarnation, to.incarnation, ops, kind, path, err);
    if (code == NXL_AGAIN) /* that is no error code for a client */
        return nxl_err_wrap(err, NXL_BUSY, "policy");
    return code;
}

int xfer_policy_is_on(const struct nxl_xfer *xfer, const char *incarnation, const char *node)
{
    struct nxl_member_view view;

    return xfer->members != NULL && nxl_members_find(xfer->members, incarnation, &view) &&
           node[0] != '\0' && strcmp(view.node, node) == 0;
}

enum nxl_code xfer_policy_asked(struct nxl_xfer *xfer, const struct xfer_agent *agent,
                                struct xfer_end from, struct xfer_end to, unsigned ops,
                                unsigned kind, struct nxl_err *err)
{
    enum nxl_code code = xfer_policy(xfer, from, to, ops, kind, NXL_PATH_NONE, err);

    if (code != NXL_OK || xfer->members == NULL ||
        xfer_policy_is_on(xfer, from.incarnation, agent->node_name))
        return code;
    return nxl_err_set(err, NXL_NOT_ALLOWED, 0, "pod %.36s is not on node '%.63s'",
                       from.incarnation, agent->node_name);
}

unsigned xfer_policy_kinds(struct nxl_xfer *xfer, struct xfer_end from, struct xfer_end to)
{
    unsigned kinds = 0;
    struct nxl_err err;

    if (xfer->members == NULL)
        return ALL_KINDS;
    for (unsigned kind = 0; kind < NXL_MEM_KINDS; kind++) {
        if (nxl_members_kind_allowed(xfer->members, from.incarnation, to.incarnation, kind, &err) ==
            NXL_OK)
            kinds |= 1u << kind;
    }
    return kinds;
}

int xfer_policy_same(const struct nxl_xfer *xfer, struct xfer_end one, struct xfer_end other)
{
    size_t size = nxl_stream_uid_size(one.incarnation);

    return strcmp(one.ns, other.ns) == 0 &&
           (xfer->members == NULL || (nxl_stream_uid_size(other.incarnation) == size &&
                                      memcmp(one.incarnation, other.incarnation, size) == 0));
}

enum nxl_code xfer_policy_explain(struct nxl_xfer *xfer, const struct nxl_catalog_peer *from,
                                  const struct nxl_catalog_peer *target, unsigned kind,
                                  enum nxl_code code, struct nxl_err *err)
{
    struct nxl_err why;
    enum nxl_code refused;

    if (xfer->members == NULL || (code != NXL_NOT_FOUND && code != NXL_STALE) || from == target)
        return code;
    refused =
        xfer_policy(xfer, xfer_end_of(from), xfer_end_of(target), 0, kind, NXL_PATH_NONE, &why);
    if (refused == NXL_OK)
        return code;
    *err = why;
    return refused;
}

/* ---- what a change takes away ------------------------------------------------------------- */

/* A client that drains may finish what runs; one without a rule may not. */
static void stop_the_forbidden(struct nxl_xfer *xfer)
{
    struct xfer_request *request = xfer->all, *next;

    for (; request != NULL; request = next) {
        unsigned op = request->op == NXL_WRITE ? NXL_STREAM_WRITE : NXL_STREAM_READ;
        struct nxl_err err;

        next = request->next_all;
        if (request->state != XFER_RUNNING || request->target == NULL || request->local == NULL ||
            request->plan == NULL || request->plan->remote_count == 0)
            continue;
        if (nxl_members_may_finish(xfer->members, request->local->incarnation,
                                   request->target->incarnation, op,
                                   request->plan->remotes[0]->kind, &err) != NXL_OK)
            xfer_request_stop(request, NXL_NOT_ALLOWED, err.text);
    }
}

struct lost_scan {
    unsigned kinds; /* not allowed any more */
    uint64_t *ids;
    uint32_t count;
};

static int lost_collect(void *arg, struct nxl_catalog_region *region)
{
    struct lost_scan *scan = arg;

    if (scan->kinds & (1u << region->kind))
        scan->ids[scan->count++] = region->id;
    return 0;
}

static void on_revoked(void *arg, int complete)
{
    (void)arg;
    if (!complete)
        nxl_warn("policy", "event=\"a far agent did not confirm that it let go of memory\"");
}

static void subscriber_review(struct xfer_peer *peer, struct xfer_agent *agent, unsigned *kinds)
{
    struct nxl_xfer *xfer = peer->session->xfer;
    unsigned allowed =
        nxl_members_node_kinds(xfer->members, agent->node_name, peer->peer->incarnation);
    uint32_t count = nxl_region_table_count(peer->peer->regions);
    NXL_CLEANUP(nxl_freep) uint64_t *ids = nxl_new0_array(count + 1, sizeof(*ids));
    struct lost_scan scan = {.kinds = *kinds & ~allowed, .ids = ids};
    struct xfer_fence *fence;

    *kinds &= allowed; /* more comes only by asking */
    nxl_region_table_each(peer->peer->regions, lost_collect, &scan);
    if (scan.count == 0)
        return;
    nxl_info("policy", "event=revoked peer=%s agent=%s regions=%u",
             nxl_quote(xfer_show(peer->peer)), nxl_quote(agent->agent), scan.count);
    fence = xfer_fence_open(xfer, xfer->limits.fence_timeout_ns, on_revoked, NULL);
    xfer_tell_agent_regions_gone(peer, agent, ids, scan.count, fence);
    xfer_fence_arm(fence);
}

static void peer_review(struct xfer_peer *peer)
{
    struct xfer_subscriber *s = peer->subscribers, *next;

    for (; s != NULL; s = next) {
        next = s->next;
        subscriber_review(peer, s->agent, &s->kinds);
        if (s->kinds == 0)
            xfer_unsubscribe(peer, s->agent);
    }
}

/* Far regions that a rule took away are asked for again when another gives them back. */
static int far_review(void *arg, struct nxl_catalog_peer *peer)
{
    struct nxl_xfer *xfer = arg;
    struct xfer_far *far = peer->local ? NULL : peer->owner;
    struct nxl_err err;

    if (far == NULL || far->agent == NULL || far->from[0] == '\0' || peer->life == NXL_LIFE_DEAD)
        return 0;
    if (nxl_members_may_finish(xfer->members, far->from, peer->incarnation, 0, XFER_ANY_KIND,
                               &err) != NXL_OK)
        far->denied = 1;
    else if (far->denied) /* an answer clears that: maybe its agent has not heard of the rule yet */
        (void)xfer_far_query(far, far->from_ns, far->from);
    return 0;
}

void xfer_policy_review(struct nxl_xfer *xfer)
{
    if (xfer->members != NULL && nxl_members_spoken(xfer->members))
        nxl_catalog_each(xfer->catalog, far_review, xfer);
}

void xfer_policy_changed(struct nxl_xfer *xfer)
{
    struct nxl_xfer_session *session, *next_session;

    if (xfer->members == NULL || !nxl_members_spoken(xfer->members))
        return;
    xfer->epoch++; /* kept plans are checked anew */
    stop_the_forbidden(xfer);
    xfer_policy_review(xfer);
    HASH_ITER(hh, xfer->sessions, session, next_session)
    {
        struct xfer_peer *peer, *next;

        HASH_ITER(hh, session->peers, peer, next)
        {
            peer_review(peer);
        }
    }
}
