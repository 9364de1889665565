/* far.c - remote peers that we know and their regions, as their own agents describe them.
 * Loop thread. */
#include "xfer/engine.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/mem.h"
#include "cluster/stream.h"

struct xfer_debt *xfer_debt_open(struct xfer_agent *agent, uint64_t sequence)
{
    struct xfer_debt *debt = nxl_new0(sizeof(*debt));

    debt->xfer = agent->xfer;
    debt->sequence = sequence;
    debt->since_ns = nxl_now_ns();
    debt->remaining = 1;
    (void)nxl_copy_text(debt->agent, sizeof(debt->agent), agent->agent);
    return debt;
}

struct xfer_debt *xfer_debt_owe_operator(struct nxl_xfer *xfer)
{
    struct xfer_debt *debt = nxl_new0(sizeof(*debt));

    debt->xfer = xfer;
    debt->since_ns = nxl_now_ns();
    debt->remaining = 1;
    debt->to_operator = 1;
    return debt;
}

void xfer_debt_paid(struct xfer_debt *debt)
{
    struct nxl_message ack = {.type = NXL_MESSAGE_FACT_ACK};
    struct xfer_agent *agent;
    struct nxl_err err;

    if (debt == NULL || --debt->remaining > 0)
        return;
    if (debt->to_operator) {
        if (debt->xfer->stream != NULL)
            nxl_stream_fenced(debt->xfer->stream, debt->sequence, debt->purged);
        free(debt);
        return;
    }
    agent = xfer_agent_find(debt->xfer, debt->agent);
    ack.sequence = debt->sequence;
    ack.at_ns = nxl_now_ns() - debt->since_ns;
    if (agent != NULL)
        NXL_IGNORE(xfer_agent_say(agent, &ack,
                                  &err)); /* lost with the link: asked again after its return */
    free(debt);
}

static void far_free(struct nxl_xfer *xfer, struct xfer_far *far)
{
    struct nxl_catalog_peer *peer = far->peer;

    peer->owner = NULL;
    nxl_catalog_remove(xfer->catalog, peer);
    nxl_catalog_unref(xfer->catalog, peer);
    free(far->leaving);
    free(far);
    nxl_metric_move(xfer->metrics.peers_remote, -1);
}

enum nxl_code xfer_far_open(struct nxl_xfer *xfer, struct xfer_agent *agent, const char *ns,
                            const char *name, const char *incarnation, struct xfer_far **ret,
                            struct nxl_err *err)
{
    struct nxl_catalog_peer *peer;
    struct xfer_far *far;
    enum nxl_code code = nxl_catalog_add(xfer->catalog, ns, name, incarnation, 0, &peer, err);

    if (code != NXL_OK)
        return code;
    if (peer->local)
        return nxl_err_set(err, NXL_MISMATCH, 0, "incarnation %s lives on this agent", incarnation);
    if (peer->owner != NULL) {
        far = peer->owner;
        if (far->agent != agent)
            return nxl_err_set(err, NXL_MISMATCH, 0, "incarnation %s lives at agent %s, not at %s",
                               incarnation, peer->agent, agent->agent);
        *ret = far;
        return NXL_OK;
    }
    far = nxl_new0(sizeof(*far));
    far->peer = peer;
    far->agent = agent;
    nxl_catalog_ref(peer);
    peer->owner = far;
    peer->since_ns = nxl_now_ns();
    (void)nxl_copy_text(peer->agent, sizeof(peer->agent), agent->agent);
    if (agent->link != NULL) {
        (void)nxl_copy_text(peer->node, sizeof(peer->node), nxl_link_node(agent->link));
        (void)nxl_copy_text(peer->address, sizeof(peer->address), nxl_link_address(agent->link));
    }
    nxl_metric_move(xfer->metrics.peers_remote, 1);
    *ret = far;
    return NXL_OK;
}

uint64_t xfer_far_query(struct xfer_far *far, const char *from_ns, const char *from)
{
    struct nxl_xfer *xfer = far->agent->xfer;
    struct nxl_message query = {.type = NXL_MESSAGE_QUERY,
                                .flags = 1,
                                .incarnation = far->peer->incarnation,
                                .from_ns = from_ns,
                                .from_incarnation = from};
    struct nxl_err err;

    query.request = ++xfer->next_query;
    if (xfer_agent_say(far->agent, &query, &err) != NXL_OK)
        return 0;
    return query.request;
}

static int far_requery(void *arg, struct nxl_catalog_peer *peer)
{
    struct xfer_far *far = peer->local ? NULL : peer->owner;

    if (far != NULL && far->agent == arg && far->from_ns[0] != '\0')
        (void)xfer_far_query(far, far->from_ns, far->from);
    return 0;
}

void xfer_far_requery(struct xfer_agent *agent)
{
    nxl_catalog_each(agent->xfer->catalog, far_requery, agent);
}

/* ---- regions ------------------------------------------------------------------------------ */

static void region_free(struct nxl_xfer *xfer, struct nxl_catalog_region *region)
{
    for (uint32_t i = 0; i < nxl_hosts_count(xfer->hosts); i++) {
        if (region->remotes[i] != NULL)
            nxl_instance_forget(nxl_hosts_at(xfer->hosts, i), region->remotes[i]);
        region->remotes[i] = NULL;
    }
    nxl_catalog_region_free(region);
}

/* Out of the table; what still uses it keeps it, and the debt, until it is quiet. */
static void region_leave(struct nxl_xfer *xfer, struct xfer_far *far,
                         struct nxl_catalog_region *region, struct xfer_debt *debt)
{
    nxl_region_table_remove(far->peer->regions, region);
    xfer->epoch++;
    region->leaving = 1;
    if (region->uses == 0) {
        region_free(xfer, region);
        return;
    }
    if (far->leaving_count == far->leaving_room) {
        far->leaving_room = far->leaving_room == 0 ? 16 : far->leaving_room * 2;
        far->leaving = nxl_resize(far->leaving, far->leaving_room, sizeof(*far->leaving));
    }
    if (debt != NULL)
        debt->remaining++;
    far->leaving[far->leaving_count++] = (struct xfer_leaving){.region = region, .debt = debt};
}

void xfer_far_region_quiet(struct nxl_xfer *xfer, struct nxl_catalog_region *region)
{
    struct xfer_far *far = region->owner->owner;

    for (uint32_t i = 0; i < far->leaving_count; i++) {
        struct xfer_debt *debt = far->leaving[i].debt;

        if (far->leaving[i].region != region)
            continue;
        far->leaving[i] = far->leaving[--far->leaving_count];
        region_free(xfer, region);
        xfer_debt_paid(debt);
        break;
    }
    if (far->peer->life == NXL_LIFE_DEAD && far->leaving_count == 0)
        far_free(xfer, far);
    else
        xfer_far_settle(xfer, far->peer);
}

static void region_add(struct xfer_far *far, const struct nxl_message_region *r)
{
    struct nxl_catalog_region *region = nxl_region_table_by_id(far->peer->regions, r->id);
    struct nxl_err err = {0};

    if (region != NULL) {
        region->mapping = (void *)far->round; /* still there */
        return;
    }
    region = nxl_catalog_region_new(far->peer, r->id, r->addr, r->len, r->kind, r->device);
    region->mapping = (void *)far->round;
    for (uint32_t i = 0; i < r->key_count; i++) {
        int32_t instance = r->keys[i].backend < NXL_BACKENDS_MAX
                               ? far->agent->backend_map[r->keys[i].backend]
                               : -1;
        void *copy;

        if (instance < 0 || region->keys[instance].data != NULL)
            continue;
        copy = nxl_new0(r->keys[i].key.size + 1);
        memcpy(copy, r->keys[i].key.data, r->keys[i].key.size);
        region->keys[instance] = (struct nxl_view){copy, r->keys[i].key.size};
    }
    if (nxl_region_table_add(far->peer->regions, region, &err) != NXL_OK) {
        nxl_warn("far", "event=\"region refused, ignoring it\" peer=%s region=%llu why=%s",
                 nxl_quote(xfer_show(far->peer)), (unsigned long long)r->id, nxl_quote(err.text));
        nxl_catalog_region_free(region);
    }
}

struct stale_scan {
    uintptr_t round;
    struct nxl_catalog_region *found[64];
    uint32_t count;
};

static int stale_collect(void *arg, struct nxl_catalog_region *region)
{
    struct stale_scan *scan = arg;

    if ((uintptr_t)region->mapping != scan->round)
        scan->found[scan->count++] = region;
    return scan->count == NXL_COUNT_OF(scan->found);
}

static struct xfer_far *far_of(struct xfer_agent *agent, const char *incarnation)
{
    struct nxl_catalog_peer *peer = nxl_catalog_by_incarnation(agent->xfer->catalog, incarnation);
    struct xfer_far *far = peer == NULL || peer->local ? NULL : peer->owner;

    return far != NULL && far->agent == agent ? far
                                              : NULL; /* nobody speaks for another agent's peer */
}

void xfer_far_regions(struct xfer_agent *agent, const struct nxl_message *message)
{
    struct xfer_far *far = far_of(agent, message->incarnation);

    if (far == NULL || far->peer->life == NXL_LIFE_DEAD)
        return;
    if (message->flags & 1)
        far->round++;
    for (uint32_t i = 0; i < message->region_count; i++)
        region_add(far, &message->regions[i]);
    if (message->more)
        return;
    far->peer->revision = message->revision;
    if (message->flags & 2) { /* the end of a full set */
        struct stale_scan scan;

        do {
            scan.round = far->round;
            scan.count = 0;
            nxl_region_table_each(far->peer->regions, stale_collect, &scan);
            for (uint32_t i = 0; i < scan.count; i++)
                region_leave(agent->xfer, far, scan.found[i], NULL);
        } while (scan.count > 0);
        far->synced = 1;
        xfer_lookups_synced(far);
    }
}

void xfer_far_region_gone(struct xfer_agent *agent, const struct nxl_message *message)
{
    struct xfer_debt *debt = xfer_debt_open(agent, message->revision);
    struct xfer_far *far = far_of(agent, message->incarnation);

    for (uint32_t i = 0; far != NULL && i < message->id_count; i++) {
        struct nxl_catalog_region *region =
            nxl_region_table_by_id(far->peer->regions, message->ids[i]);

        if (region != NULL) {
            region_leave(agent->xfer, far, region, debt);
            continue;
        }
        for (uint32_t k = 0; k < far->leaving_count; k++) { /* said again while it drains */
            if (far->leaving[k].region->id == message->ids[i] && far->leaving[k].debt == NULL) {
                far->leaving[k].debt = debt;
                debt->remaining++;
            }
        }
    }
    xfer_debt_paid(debt);
}

static int any_region(void *arg, struct nxl_catalog_region *region)
{
    *(struct nxl_catalog_region **)arg = region;
    return 1;
}

void xfer_far_dead(struct nxl_xfer *xfer, struct nxl_catalog_peer *peer)
{
    struct xfer_far *far = peer->owner;
    struct nxl_catalog_region *region;

    if (far == NULL)
        return;
    while (nxl_region_table_each(peer->regions, any_region, &region))
        region_leave(xfer, far, region, xfer->debt);
    for (uint32_t i = 0; xfer->debt != NULL && i < far->leaving_count; i++) {
        if (far->leaving[i].debt == NULL) {
            far->leaving[i].debt = xfer->debt;
            xfer->debt->remaining++;
        }
    }
    if (far->leaving_count == 0)
        far_free(xfer, far);
}

/* Goodbye only when nothing here touches its memory any more: from then on its agent asks us no
 * more before it lets memory go. */
void xfer_far_settle(struct nxl_xfer *xfer, struct nxl_catalog_peer *peer)
{
    struct xfer_far *far = peer->local ? NULL : peer->owner;
    struct nxl_message bye = {.type = NXL_MESSAGE_UNSUBSCRIBE, .incarnation = peer->incarnation};
    struct nxl_catalog_region *region;
    struct nxl_err err;

    if (far == NULL || far->loaders > 0 || peer->life == NXL_LIFE_DEAD ||
        xfer_lookups_want(xfer, peer))
        return;
    while (nxl_region_table_each(peer->regions, any_region, &region))
        region_leave(xfer, far, region, NULL);
    far->synced = 0;
    far->from_ns[0] = '\0';
    if (far->leaving_count > 0)
        return;
    if (far->agent != NULL)
        NXL_IGNORE(xfer_agent_say(far->agent, &bye, &err)); /* saves it its breath */
    far_free(xfer, far);
}

void xfer_far_loader_gone(struct nxl_xfer *xfer, struct nxl_catalog_peer *peer)
{
    struct xfer_far *far = peer->owner;

    if (far == NULL)
        return;
    far->loaders--;
    xfer_far_settle(xfer, peer);
}

struct agent_scan {
    struct xfer_agent *agent;
    const char *why;
};

static int agent_peer_dead(void *arg, struct nxl_catalog_peer *peer)
{
    struct agent_scan *scan = arg;
    struct xfer_far *far = peer->local ? NULL : peer->owner;

    if (far != NULL && far->agent == scan->agent) {
        far->agent = NULL; /* what is left of it drains without */
    }
    if (far != NULL && far->agent == NULL && peer->life != NXL_LIFE_DEAD) {
        char incarnation[NXL_INCARNATION_MAX + 1];

        (void)nxl_copy_text(incarnation, sizeof(incarnation), peer->incarnation);
        (void)nxl_catalog_set_life(scan->agent->xfer->catalog, incarnation, NXL_LIFE_DEAD,
                                   scan->why);
        return 1; /* the catalog changed: start again */
    }
    return 0;
}

void xfer_far_agent_gone(struct xfer_agent *agent, const char *why)
{
    struct agent_scan scan = {agent, why};

    agent->xfer->epoch++;
    while (nxl_catalog_each(agent->xfer->catalog, agent_peer_dead, &scan))
        continue;
}

struct conn_scan {
    struct xfer_agent *agent;
    uint32_t instance;
};

static int conn_region_forget(void *arg, struct nxl_catalog_region *region)
{
    region->remotes[((struct conn_scan *)arg)->instance] = NULL;
    return 0;
}

static int conn_peer_forget(void *arg, struct nxl_catalog_peer *peer)
{
    struct conn_scan *scan = arg;
    struct xfer_far *far = peer->local ? NULL : peer->owner;

    if (far == NULL || far->agent != scan->agent)
        return 0;
    nxl_region_table_each(peer->regions, conn_region_forget, scan);
    for (uint32_t i = 0; i < far->leaving_count; i++)
        far->leaving[i].region->remotes[scan->instance] = NULL;
    return 0;
}

void xfer_far_forget_conn(struct xfer_agent *agent, uint32_t instance)
{
    struct conn_scan scan = {agent, instance};
    struct nxl_backend_conn *conn = agent->conns[instance];

    if (conn == NULL)
        return;
    agent->conns[instance] = NULL;
    xfer_dispatch_conn_gone(agent->xfer, instance, conn);
    nxl_catalog_each(agent->xfer->catalog, conn_peer_forget, &scan);
    nxl_instance_disconnect(nxl_hosts_at(agent->xfer->hosts, instance), conn);
}
