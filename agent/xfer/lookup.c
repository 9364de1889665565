/* lookup.c - loads, fetches and connects that wait: for a link, an answer, a region table, or for a
 * peer that is not there yet. Each ends exactly once; none blocks another. Loop thread. */
#include "xfer/lookup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "xfer/policy.h"

int xfer_lookups_want(struct nxl_xfer *xfer, const struct nxl_catalog_peer *peer)
{
    const struct xfer_lookup *lookup = xfer->lookups;

    while (lookup != NULL && strcmp(lookup->incarnation, peer->incarnation) != 0)
        lookup = lookup->next;
    return lookup != NULL;
}

/* It is out of the list. What it was about goes too, if nobody else wants it. */
void xfer_lookup_free(struct xfer_lookup *lookup)
{
    struct nxl_catalog_peer *peer = NULL;

    if (lookup->incarnation[0] != '\0')
        peer = nxl_catalog_by_incarnation(lookup->xfer->catalog, lookup->incarnation);
    if (peer != NULL)
        xfer_far_settle(lookup->xfer, peer);
    free(lookup->record);
    free(lookup);
}

void xfer_lookup_finish(struct xfer_lookup *lookup, enum nxl_code code,
                        struct nxl_catalog_peer *target, struct nxl_err *err)
{
    struct nxl_xfer_remote_info info;
    struct xfer_remote *remote = NULL;

    *lookup->link_at = lookup->next;
    if (lookup->next != NULL)
        lookup->next->link_at = lookup->link_at;
    if (lookup->ticket != 0)
        nxl_directory_forget(lookup->xfer->directory, lookup->ticket);
    if (code == NXL_OK) {
        remote = xfer_remote_make(lookup->peer, target, err);
        if (remote == NULL)
            code = err->code;
    }
    if (remote != NULL) {
        if (lookup->record != NULL && (lookup->record->flags & NXL_RECORD_FULL) == 0) {
            if (remote->fresh || remote->restricted)
                remote->restricted = 1;
            code = xfer_remote_allow(remote, lookup->record, err);
        } else {
            remote->restricted = 0; /* a full record lifts an earlier partial one */
        }
        if (code != NXL_OK && remote->fresh) { /* a load that fails loads nobody */
            xfer_remote_drop(remote);
        } else {
            remote->fresh = 0;
            xfer_remote_info(remote, &info);
        }
    }
    if (code != NXL_OK)
        xfer_count_error(lookup->xfer, code);
    lookup->fn(lookup->arg, code, code == NXL_OK ? &info : NULL, err);
    xfer_lookup_free(lookup);
}

void xfer_lookup_fail(struct xfer_lookup *lookup, enum nxl_code code, struct nxl_err *err)
{
    xfer_lookup_finish(lookup, code, NULL, err);
}

static struct xfer_lookup *lookup_new(struct xfer_peer *peer, uint64_t timeout_ns,
                                      nxl_xfer_reply_fn *fn, void *arg)
{
    struct nxl_xfer *xfer = peer->session->xfer;
    struct xfer_lookup *lookup = nxl_new0(sizeof(*lookup));
    uint64_t now = nxl_now_ns();

    lookup->xfer = xfer;
    lookup->peer = peer;
    lookup->fn = fn;
    lookup->arg = arg;
    lookup->deadline_ns = timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + timeout_ns;
    lookup->next = xfer->lookups;
    lookup->link_at = &xfer->lookups;
    if (lookup->next != NULL)
        lookup->next->link_at = &lookup->next;
    xfer->lookups = lookup;
    xfer_tick_needed(xfer);
    return lookup;
}

/* The far agent's word is fetched for every namespace that asks, because its policy decides. */
void xfer_lookup_far(struct xfer_lookup *lookup, struct xfer_agent *agent, const char *ns,
                     const char *name, const char *incarnation)
{
    struct nxl_err err = {0};
    struct xfer_far *far;
    enum nxl_code code = xfer_far_open(lookup->xfer, agent, ns, name, incarnation, &far, &err);

    if (code != NXL_OK) {
        xfer_lookup_fail(lookup, code, &err);
        return;
    }
    if (far->synced && xfer_policy_same(lookup->xfer, (struct xfer_end){far->from_ns, far->from},
                                        xfer_end_of(lookup->peer->peer))) {
        xfer_lookup_finish(lookup, NXL_OK, far->peer, &err);
        return;
    }
    lookup->state = LOOKUP_ANSWER;
    lookup->agent = agent;
    (void)nxl_copy_text(lookup->incarnation, sizeof(lookup->incarnation), incarnation);
    lookup->request = xfer_far_query(far, lookup->peer->peer->ns, lookup->peer->peer->incarnation);
    if (lookup->request == 0)
        lookup->state = LOOKUP_LINK;
}

void xfer_lookup_ask(struct xfer_lookup *lookup)
{
    struct nxl_xfer *xfer = lookup->xfer;
    struct nxl_message query = {.type = NXL_MESSAGE_QUERY,
                                .ns = lookup->ns,
                                .name = lookup->name,
                                .from_ns = lookup->peer->peer->ns,
                                .from_incarnation = lookup->peer->peer->incarnation};
    struct nxl_err err;

    if (lookup->incarnation[0] != '\0') {
        struct nxl_catalog_peer *peer =
            nxl_catalog_by_incarnation(xfer->catalog, lookup->incarnation);

        if (peer != NULL && peer->owner != NULL && !peer->local)
            lookup->request = xfer_far_query(peer->owner, lookup->peer->peer->ns,
                                             lookup->peer->peer->incarnation);
    } else {
        lookup->request = query.request = ++xfer->next_query;
        if (xfer_agent_say(lookup->agent, &query, &err) != NXL_OK)
            lookup->request = 0;
    }
    lookup->asked_ns = nxl_now_ns();
    lookup->state = lookup->request != 0 ? LOOKUP_ANSWER : LOOKUP_LINK;
}

static enum nxl_code record_check(struct xfer_lookup *lookup, const struct nxl_record *record,
                                  struct nxl_err *err)
{
    struct nxl_xfer *xfer = lookup->xfer;
    enum nxl_code code;

    if (record->cluster[0] != '\0' && strcmp(record->cluster, xfer->cluster) != 0)
        return nxl_err_set(err, NXL_MISMATCH, 0,
                           "the record is of cluster '%s', this agent belongs to '%s'",
                           record->cluster, xfer->cluster);
    if (strcmp(record->incarnation, lookup->peer->peer->incarnation) == 0)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "the record is this peer's own; find its own name for loopback");
    code = xfer_policy(xfer, xfer_end_of(lookup->peer->peer),
                       (struct xfer_end){record->ns, record->incarnation}, 0, XFER_ANY_KIND,
                       NXL_PATH_NONE, err);
    if (code != NXL_OK)
        return nxl_err_wrap(err, code, "reach %s/%s", record->ns, record->name);
    if (nxl_catalog_is_dead(xfer->catalog, record->incarnation))
        return nxl_err_set(err, NXL_STALE, 0, "%s/%s (%s) is dead; ask for its next life",
                           record->ns, record->name, record->incarnation);
    return NXL_OK;
}

static void record_local(struct xfer_lookup *lookup, const struct nxl_record *record)
{
    struct nxl_catalog_peer *target =
        nxl_catalog_by_incarnation(lookup->xfer->catalog, record->incarnation);
    struct nxl_err err = {0};

    if (target == NULL || !target->local || target->life == NXL_LIFE_DEAD) {
        (void)nxl_err_set(&err, NXL_STALE, 0, "%s/%s (%s) does not live on this agent any more",
                          record->ns, record->name, record->incarnation);
        xfer_lookup_fail(lookup, NXL_STALE, &err);
        return;
    }
    xfer_lookup_finish(lookup, NXL_OK, target, &err);
}

/* A client may be up before its agent has heard of an operator. */
static void lookup_wait_for_policy(struct xfer_lookup *lookup)
{
    lookup->state = LOOKUP_POLICY;
    lookup->asked_ns = nxl_now_ns();
}

void xfer_lookup_record(struct xfer_lookup *lookup, const struct nxl_record *record)
{
    struct nxl_xfer *xfer = lookup->xfer;
    struct nxl_err err = {0};
    struct nxl_link *link;
    enum nxl_code code = record_check(lookup, record, &err);
    struct nxl_catalog_peer *known = nxl_catalog_by_incarnation(xfer->catalog, record->incarnation);
    struct xfer_far *far = known != NULL && !known->local ? known->owner : NULL;

    if (code == NXL_OK && (record->flags & NXL_RECORD_ADDRESS) == 0 && known == NULL)
        code = nxl_err_set(
            &err, NXL_NOT_FOUND, 0,
            "the blob has regions but not where %s/%s is; load one with its address first",
            record->ns, record->name);
    if (code != NXL_OK && code != NXL_BUSY) {
        xfer_lookup_fail(lookup, code, &err);
        return;
    }
    if (lookup->record == NULL) {
        lookup->record = nxl_new0(sizeof(*record));
        memcpy(lookup->record, record, sizeof(*record));
    }
    if (code == NXL_BUSY) {
        lookup_wait_for_policy(lookup);
        return;
    }
    if ((known != NULL && known->local) || strcmp(record->agent, xfer->agent) == 0) {
        record_local(lookup, record);
        return;
    }
    if (far != NULL && far->agent != NULL && far->agent->link != NULL) {
        xfer_lookup_far(lookup, far->agent, record->ns, record->name, record->incarnation);
        return;
    }
    code = nxl_links_get(xfer->links, record->address, record->agent, &link, &err);
    if (code != NXL_OK) {
        xfer_lookup_fail(lookup, code, &err);
        return;
    }
    xfer_lookup_far(lookup, xfer_agent_of(xfer, link), record->ns, record->name,
                    record->incarnation);
}

void nxl_xfer_load(struct nxl_xfer_session *session, uint32_t peer_id, struct nxl_view blob,
                   uint64_t timeout_ns, nxl_xfer_reply_fn *fn, void *arg)
{
    struct nxl_err err = {0};
    struct xfer_peer *peer = xfer_peer_find(session, peer_id, &err);
    NXL_CLEANUP(nxl_freep) struct nxl_record *record = nxl_new0(sizeof(*record));
    enum nxl_code code = peer == NULL ? NXL_NOT_FOUND : nxl_record_decode(blob, record, &err);

    if (code != NXL_OK) {
        xfer_count_error(session->xfer, code);
        fn(arg, code, NULL, &err);
        return;
    }
    xfer_lookup_record(lookup_new(peer, timeout_ns, fn, arg), record);
}

/* ---- fetch -------------------------------------------------------------------------------- */

static void fetch_found(void *arg, enum nxl_code code, const struct nxl_record *record,
                        const struct nxl_err *err)
{
    struct xfer_lookup *lookup = arg;
    struct nxl_err copy = *err;

    lookup->ticket = 0;
    if (code == NXL_OK)
        xfer_lookup_record(lookup, record);
    else
        xfer_lookup_fail(lookup, code, &copy);
}

/* A peer of this agent, or one an agent told us of. Returns 1 when that settled it. */
int xfer_fetch_here(struct xfer_lookup *lookup)
{
    struct nxl_xfer *xfer = lookup->xfer;
    struct nxl_catalog_peer *target;
    const struct nxl_record *hint;
    struct nxl_err err = {0};

    if (lookup->label[0] != '\0')
        return 0;
    target = nxl_catalog_current(xfer->catalog, lookup->ns, lookup->name);
    if (target != NULL && target->local && target->life != NXL_LIFE_DEAD) {
        if (target != lookup->peer->peer) {
            enum nxl_code code =
                xfer_policy(xfer, xfer_end_of(lookup->peer->peer), xfer_end_of(target), 0,
                            XFER_ANY_KIND, NXL_PATH_NONE, &err);

            if (code == NXL_BUSY) {
                lookup_wait_for_policy(lookup);
                return 1;
            }
            if (code != NXL_OK) {
                xfer_lookup_fail(lookup, code, &err);
                return 1;
            }
        }
        xfer_lookup_finish(lookup, NXL_OK, target, &err);
        return 1;
    }
    hint = xfer_hint_find(xfer, lookup->ns, lookup->name);
    if (hint == NULL)
        return 0;
    xfer_lookup_record(lookup, hint);
    return 1;
}

static void fetch_begin(struct xfer_lookup *lookup, const char *address)
{
    struct nxl_xfer *xfer = lookup->xfer;
    struct nxl_err err = {0};
    struct nxl_link *link;
    enum nxl_code code;

    if (address[0] != '\0') {
        code = nxl_links_get(xfer->links, address, "", &link, &err);
        if (code != NXL_OK) {
            xfer_lookup_fail(lookup, code, &err);
            return;
        }
        lookup->state = LOOKUP_LINK;
        lookup->agent = xfer_agent_of(xfer, link);
        (void)nxl_copy_text(lookup->address, sizeof(lookup->address), address);
        if (nxl_link_up(link))
            xfer_lookup_ask(lookup);
        return;
    }
    if (xfer_fetch_here(lookup))
        return;
    lookup->state = LOOKUP_STORE;
    code = nxl_directory_lookup(xfer->directory, lookup->ns, lookup->name, lookup->label,
                                lookup->deadline_ns, fetch_found, lookup, &lookup->ticket, &err);
    if (code != NXL_OK && lookup->label[0] != '\0')
        xfer_lookup_fail(lookup, code, &err); /* labels live in the store alone */
}

void nxl_xfer_fetch(struct nxl_xfer_session *session, uint32_t peer_id, const char *full_name,
                    const char *label, const char *address, uint64_t timeout_ns,
                    nxl_xfer_reply_fn *fn, void *arg)
{
    struct nxl_err err = {0};
    struct xfer_peer *peer = xfer_peer_find(session, peer_id, &err);
    struct xfer_lookup *lookup;
    const char *name;

    if (peer == NULL) {
        fn(arg, NXL_NOT_FOUND, NULL, &err);
        return;
    }
    lookup = lookup_new(peer, timeout_ns, fn, arg);
    xfer_name_split(peer, full_name, lookup->ns, sizeof(lookup->ns), &name);
    (void)nxl_copy_text(lookup->name, sizeof(lookup->name), name);
    (void)nxl_copy_text(lookup->label, sizeof(lookup->label), label);
    fetch_begin(lookup, address);
}

void nxl_xfer_connect(struct nxl_xfer_session *session, uint32_t peer_id, uint32_t remote_id,
                      uint64_t timeout_ns, nxl_xfer_reply_fn *fn, void *arg)
{
    struct nxl_err err = {0};
    struct xfer_remote *remote = xfer_remote_of(session, peer_id, remote_id, &err);
    enum nxl_code code = remote == NULL ? NXL_NOT_FOUND : NXL_OK;
    uint32_t connected = 0;

    (void)timeout_ns; /* connect() of a backend never blocks; wiring up goes on behind */
    if (code == NXL_OK && remote->target->life == NXL_LIFE_DEAD)
        code = nxl_err_set(&err, NXL_STALE, 0, "peer %s is dead", xfer_show(remote->target));
    if (code == NXL_OK && !remote->target->local) {
        struct xfer_far *far = remote->target->owner;

        for (uint32_t i = 0;
             far != NULL && far->agent != NULL && i < nxl_hosts_count(session->xfer->hosts); i++) {
            if (far->agent->addresses[i].data != NULL)
                connected += xfer_agent_conn(far->agent, nxl_hosts_at(session->xfer->hosts, i),
                                             &err) != NULL;
        }
        if (connected == 0)
            code =
                nxl_err_set(&err, NXL_UNREACHABLE, 0,
                            "agent %s offers no backend that this agent has", remote->target->node);
    }
    fn(arg, code, NULL, &err);
}
