/* life.c - what a death, a suspicion or a new life means here: fence first, then tell. */
#include "xfer/engine.h"

#include <string.h>

#include "base/log.h"
#include "xfer/events.h"

void xfer_event_loaders(struct nxl_xfer *xfer, struct nxl_catalog_peer *peer, uint32_t kind,
                        int32_t code, struct nxl_view payload)
{
    struct nxl_xfer_session *session, *next_session;

    HASH_ITER(hh, xfer->sessions, session, next_session)
    {
        struct xfer_remote *remote, *next;

        HASH_ITER(hh, session->remotes, remote, next)
        {
            struct nxl_xfer_event event = {.kind = kind,
                                           .peer = remote->peer->id,
                                           .code = code,
                                           .at_ns = nxl_now_ns(),
                                           .name = peer->name,
                                           .incarnation = peer->incarnation,
                                           .payload = payload};

            if (remote->target == peer && remote->peer->peer != peer)
                (void)session->front->event(session->front_arg, &event, 1);
        }
    }
}

void xfer_on_life(void *arg, struct nxl_catalog_peer *peer, enum nxl_life from, const char *reason)
{
    struct nxl_xfer *xfer = arg;

    (void)from;
    if (peer->life != NXL_LIFE_DEAD)
        return;
    xfer->epoch++; /* no kept plan is used again */
    xfer_requests_of_peer_dead(xfer, peer, reason);
    xfer_event_loaders(xfer, peer, XFER_EVENT_PEER_DOWN, NXL_REMOTE_DISCONNECT,
                       (struct nxl_view){reason, strlen(reason)});
    if (!peer->local) {
        nxl_info("life", "event=dead peer=%s reason=%s", nxl_quote(xfer_show(peer)),
                 nxl_quote(reason));
        xfer_far_dead(xfer, peer);
    }
}

struct suspect_scan {
    struct nxl_xfer *xfer;
    const char *agent;
    int suspect;
};

static int peer_suspect(void *arg, struct nxl_catalog_peer *peer)
{
    struct suspect_scan *scan = arg;
    unsigned char flag = (unsigned char)scan->suspect;

    if (peer->local || peer->suspect == scan->suspect || peer->life == NXL_LIFE_DEAD ||
        strcmp(peer->agent, scan->agent) != 0)
        return 0;
    peer->suspect = scan->suspect;
    xfer_event_loaders(scan->xfer, peer, XFER_EVENT_PEER_SUSPECT, 0, (struct nxl_view){&flag, 1});
    return 0;
}

void xfer_suspect(struct nxl_xfer *xfer, const char *agent, int suspect)
{
    struct suspect_scan scan = {xfer, agent, suspect};

    nxl_info("life", "event=%s agent=%s", suspect ? "suspect" : "cleared", nxl_quote(agent));
    nxl_catalog_each(xfer->catalog, peer_suspect, &scan);
    if (suspect)
        xfer_operators_tell_suspect(xfer, agent);
}

/* ---- the store --------------------------------------------------------------------------------
 */

/* A linked node's agent has another life, maybe at another address: we go there. Its handshake, not
 * this record, then ends the earlier one. */
static void next_life_dial(struct nxl_xfer *xfer, const struct nxl_record *record)
{
    struct xfer_agent *agent = xfer->agents;
    struct nxl_link *link;
    struct nxl_err err;

    if (xfer->links == NULL || record->agent[0] == '\0' ||
        strcmp(record->agent, xfer->agent) == 0 ||
        nxl_links_find(xfer->links, record->agent) != NULL)
        return;
    while (agent != NULL && strcmp(agent->node_name, record->node) != 0)
        agent = agent->next;
    if (agent == NULL)
        return;
    if (nxl_links_get(xfer->links, record->address, record->agent, &link, &err) == NXL_OK)
        (void)xfer_agent_of(xfer, link);
    else
        nxl_debug("life", "event=\"next life not dialled\" agent=%s why=%s",
                  nxl_quote(record->agent), nxl_quote(err.text));
}

static void on_record(void *arg, const struct nxl_record *record, int withdrawn)
{
    struct nxl_xfer *xfer = arg;
    struct nxl_xfer_session *session, *next_session;

    if (withdrawn)
        return; /* a hint that a name is free; life is told by facts */
    next_life_dial(xfer, record);
    HASH_ITER(hh, xfer->sessions, session, next_session)
    {
        struct xfer_remote *remote, *next;

        HASH_ITER(hh, session->remotes, remote, next)
        {
            struct nxl_xfer_event event = {.kind = XFER_EVENT_PEER_NEW,
                                           .peer = remote->peer->id,
                                           .at_ns = nxl_now_ns(),
                                           .name = record->name,
                                           .incarnation = record->incarnation};

            if (strcmp(remote->target->name, record->name) == 0 &&
                strcmp(remote->target->ns, record->ns) == 0 &&
                strcmp(remote->target->incarnation, record->incarnation) != 0)
                (void)session->front->event(session->front_arg, &event, 1);
        }
    }
}

static void on_fact(void *arg, const char *prefix, enum nxl_life life, const char *reason,
                    const char *witness)
{
    struct nxl_xfer *xfer = arg;
    struct nxl_catalog_peer *peer = nxl_catalog_by_incarnation(xfer->catalog, prefix);

    if (peer != NULL && peer->local) /* about our own peers we know better */
        return;
    nxl_debug("life", "event=fact prefix=%s life=%d witness=%s", nxl_quote(prefix), (int)life,
              nxl_quote(witness));
    (void)nxl_catalog_set_life(xfer->catalog, prefix, life, reason);
}

static void on_state(void *arg, int up, const char *what)
{
    (void)arg;
    nxl_info("store", "event=%s what=%s", up ? "up" : "down", nxl_quote(what));
}

static void on_fenced(void *arg)
{
    struct nxl_xfer *xfer = arg;

    nxl_error("store",
              "event=fenced why=\"the lease lapsed while this process was stopped\" agent=%s",
              nxl_quote(xfer->agent));
    if (xfer->fenced != NULL)
        xfer->fenced(xfer->fenced_arg);
}

const struct nxl_directory_ops nxl_xfer_directory_ops = {
    .on_record = on_record, .on_fact = on_fact, .on_state = on_state, .on_fenced = on_fenced};
