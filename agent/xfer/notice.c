/* notice.c - notices between clients of this agent and through links: after the data, once, or
 * reported lost to the sender. Loop thread. */
#include "xfer/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "xfer/policy.h"
#include "xfer/events.h"

#define HELD_BYTES_MAX (16u << 20) /* of one session, beside limits.held_notices */
#define LOST_LINES 20u             /* log lines a second */

struct xfer_notice { /* on its way to a far agent */
    uint64_t cookie;
    uint32_t session, peer;
    uint64_t transfer;
    char name[NXL_NAME_MAX + 1], incarnation[NXL_INCARNATION_MAX + 1];
    UT_hash_handle hh;
};

static void notice_lost(struct nxl_xfer *xfer, uint32_t session_number, uint32_t peer,
                        uint64_t transfer, const char *name, const char *incarnation,
                        enum nxl_code code, const char *why)
{
    struct nxl_xfer_session *session;
    struct nxl_xfer_event event = {.kind = XFER_EVENT_NOTICE_LOST,
                                   .peer = peer,
                                   .code = code,
                                   .transfer = transfer,
                                   .at_ns = nxl_now_ns(),
                                   .name = name,
                                   .incarnation = incarnation,
                                   .payload = {why, strlen(why)}};

    nxl_metric_add(xfer->metrics.notices_lost, 1);
    xfer_count_error(xfer, code);
    if (nxl_log_gate_open(&xfer->lost_gate, LOST_LINES)) /* a client can lose them at will */
        nxl_warn("notice", "event=lost target=%s incarnation=%s transfer=%llu code=%s why=%s",
                 nxl_quote(name), nxl_quote(incarnation), (unsigned long long)transfer,
                 nxl_code_word(code), nxl_quote(why));
    HASH_FIND(hh, xfer->sessions, &session_number, sizeof(session_number), session);
    if (session != NULL)
        (void)session->front->event(session->front_arg, &event, 1);
}

static enum nxl_code deliver(struct xfer_peer *to, const char *name, const char *incarnation,
                             uint64_t transfer, struct nxl_view payload)
{
    struct nxl_xfer_session *session = to->session;
    struct nxl_xfer_event event = {.kind = XFER_EVENT_NOTICE,
                                   .peer = to->id,
                                   .transfer = transfer,
                                   .at_ns = nxl_now_ns(),
                                   .name = name,
                                   .incarnation = incarnation,
                                   .payload = payload};
    enum nxl_code code = session->front->event(session->front_arg, &event, 0);

    if (code == NXL_OK)
        nxl_metric_add(session->xfer->metrics.notices_received, 1);
    return code;
}

static int hold(struct xfer_peer *to, const char *name, const char *incarnation, uint64_t transfer,
                struct nxl_view payload)
{
    struct nxl_xfer_session *session = to->session;
    struct xfer_held *held;

    if (session->held_count >= session->xfer->limits.held_notices ||
        session->held_bytes + payload.size > HELD_BYTES_MAX)
        return 0;
    held = nxl_new0(sizeof(*held) + payload.size);
    session->held_bytes += payload.size;
    held->peer = to->id;
    held->transfer = transfer;
    (void)nxl_copy_text(held->name, sizeof(held->name), name);
    (void)nxl_copy_text(held->incarnation, sizeof(held->incarnation), incarnation);
    held->size = payload.size;
    if (payload.size > 0)
        memcpy(held->payload, payload.data, payload.size);
    *session->held_end = held;
    session->held_end = &held->next;
    session->held_count++;
    return 1;
}

void xfer_held_flush(struct nxl_xfer_session *session)
{
    while (session->held != NULL) {
        struct xfer_held *held = session->held;
        struct nxl_err err;
        struct xfer_peer *to = xfer_peer_find(session, held->peer, &err);

        if (to != NULL && deliver(to, held->name, held->incarnation, held->transfer,
                                  (struct nxl_view){held->payload, held->size}) == NXL_AGAIN)
            return;
        session->held = held->next;
        if (session->held == NULL)
            session->held_end = &session->held;
        session->held_count--;
        session->held_bytes -= held->size;
        free(held);
    }
}

/* Delivers, or keeps it for a client that is slow. NXL_LIMIT: it does not read at all; nobody else
 * shall wait for it. */
static enum nxl_code deliver_or_hold(struct xfer_peer *to, const char *name,
                                     const char *incarnation, uint64_t transfer,
                                     struct nxl_view payload)
{
    enum nxl_code code = NXL_AGAIN; /* behind those that wait already */

    if (to->session->held == NULL)
        code = deliver(to, name, incarnation, transfer, payload);
    if (code != NXL_AGAIN)
        return code;
    return hold(to, name, incarnation, transfer, payload) ? NXL_OK : NXL_LIMIT;
}

static void send_here(struct nxl_xfer *xfer, struct xfer_peer *from,
                      struct nxl_catalog_peer *target, uint64_t transfer, struct nxl_view payload)
{
    enum nxl_code code = deliver_or_hold(target->owner, from->peer->name, from->peer->incarnation,
                                         transfer, payload);

    if (code != NXL_OK)
        notice_lost(xfer, from->session->number, from->id, transfer, target->name,
                    target->incarnation, code,
                    "the receiver does not read its notices and limits.held_notices is reached, or "
                    "its ring is too small for this one");
}

static void send_far(struct nxl_xfer *xfer, struct xfer_peer *from, struct nxl_catalog_peer *target,
                     uint64_t transfer, struct nxl_view payload)
{
    struct xfer_far *far = target->owner;
    struct nxl_message message = {.type = NXL_MESSAGE_NOTICE,
                                  .incarnation = target->incarnation,
                                  .from_ns = from->peer->ns,
                                  .from_name = from->peer->name,
                                  .from_incarnation = from->peer->incarnation,
                                  .transfer = transfer,
                                  .payload = payload};
    struct xfer_notice *notice;
    struct nxl_err err = {0};
    enum nxl_code code;

    if (far == NULL || far->agent == NULL || far->agent->link == NULL) {
        notice_lost(xfer, from->session->number, from->id, transfer, target->name,
                    target->incarnation, NXL_REMOTE_DISCONNECT, "the peer's agent is gone");
        return;
    }
    notice = nxl_new0(sizeof(*notice));
    notice->cookie = ++xfer->next_cookie;
    notice->session = from->session->number;
    notice->peer = from->id;
    notice->transfer = transfer;
    (void)nxl_copy_text(notice->name, sizeof(notice->name), target->name);
    (void)nxl_copy_text(notice->incarnation, sizeof(notice->incarnation), target->incarnation);
    HASH_ADD(hh, xfer->notices, cookie, sizeof(notice->cookie), notice);
    code = nxl_link_notice(far->agent->link, &message, notice->cookie, &err);
    if (code != NXL_OK)
        xfer_on_notice_end(xfer, notice->cookie, code, err.text);
}

void xfer_notice_send(struct nxl_xfer *xfer, struct xfer_peer *from,
                      struct nxl_catalog_peer *target, uint64_t transfer, struct nxl_view payload)
{
    nxl_metric_add(xfer->metrics.notices_sent, 1);
    if (target->life == NXL_LIFE_DEAD || (target->local && target->owner == NULL))
        notice_lost(xfer, from->session->number, from->id, transfer, target->name,
                    target->incarnation, NXL_STALE, "the peer is dead");
    else if (target->local)
        send_here(xfer, from, target, transfer, payload);
    else
        send_far(xfer, from, target, transfer, payload);
}

void nxl_xfer_notify(struct nxl_xfer_session *session, uint32_t peer_id, uint32_t remote_id,
                     struct nxl_view payload)
{
    struct nxl_err err = {0};
    struct xfer_peer *peer = xfer_peer_find(session, peer_id, &err);
    struct xfer_remote *remote =
        peer == NULL ? NULL : xfer_remote_of(session, peer_id, remote_id, &err);

    if (remote == NULL)
        notice_lost(session->xfer, session->number, peer_id, 0, "", "", NXL_NOT_FOUND, err.text);
    else if (payload.size > NXL_NOTICE_MAX)
        notice_lost(session->xfer, session->number, peer_id, 0, remote->target->name,
                    remote->target->incarnation, NXL_LIMIT, "a notice holds at most 1 MiB");
    else
        xfer_notice_send(session->xfer, peer, remote->target, 0, payload);
}

/* The sender's name comes from its own agent: a link may speak only for peers that live there. */
static int sender_is_there(struct nxl_xfer *xfer, struct nxl_link *link,
                           const struct nxl_message *notice)
{
    struct nxl_catalog_peer *known =
        nxl_catalog_by_incarnation(xfer->catalog, notice->from_incarnation);

    if (known != NULL)
        return !known->local && strcmp(known->agent, nxl_link_agent(link)) == 0 &&
               strcmp(known->name, notice->from_name) == 0;
    return nxl_incarnation_valid(notice->from_incarnation) &&
           (nxl_incarnation_covers(nxl_link_node(link), notice->from_incarnation) ||
            xfer_policy_is_on(xfer, notice->from_incarnation, nxl_link_node(link)));
}

enum nxl_code xfer_on_notice(void *arg, struct nxl_link *link, const struct nxl_message *notice)
{
    struct nxl_xfer *xfer = arg;
    struct nxl_catalog_peer *target =
        nxl_catalog_by_incarnation(xfer->catalog, notice->incarnation);
    struct nxl_err err;

    if (target == NULL || !target->local || target->life == NXL_LIFE_DEAD || target->owner == NULL)
        return NXL_STALE;
    if (!sender_is_there(xfer, link, notice) ||
        xfer_policy(xfer, (struct xfer_end){notice->from_ns, notice->from_incarnation},
                    xfer_end_of(target), NXL_STREAM_NOTIFY, XFER_ANY_KIND, NXL_PATH_NONE,
                    &err) != NXL_OK)
        return NXL_NOT_ALLOWED;
    return deliver_or_hold(target->owner, notice->from_name, notice->from_incarnation,
                           notice->transfer, notice->payload);
}

void xfer_on_notice_end(void *arg, uint64_t cookie, enum nxl_code code, const char *why)
{
    struct nxl_xfer *xfer = arg;
    struct xfer_notice *notice;

    HASH_FIND(hh, xfer->notices, &cookie, sizeof(cookie), notice);
    if (notice == NULL)
        return;
    HASH_DEL(xfer->notices, notice);
    if (code != NXL_OK)
        notice_lost(xfer, notice->session, notice->peer, notice->transfer, notice->name,
                    notice->incarnation, code, why);
    free(notice);
}

void xfer_notices_free(struct nxl_xfer *xfer)
{
    struct xfer_notice *notice, *next;

    HASH_ITER(hh, xfer->notices, notice, next)
    {
        HASH_DEL(xfer->notices, notice);
        free(notice);
    }
}
