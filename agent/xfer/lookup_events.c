/* lookup_events.c - what moves lookups on: links, answers, region tables, peers that appear, time.
 * Loop thread. */
#include "xfer/lookup.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/mem.h"

#define RETRY_NS (100 * NXL_MS) /* asking an agent again for a name it does not know yet */

void xfer_lookups_link_up(struct xfer_agent *agent)
{
    struct xfer_lookup *lookup = agent->xfer->lookups, *next;

    for (; lookup != NULL; lookup = next) {
        next = lookup->next;
        if (lookup->agent == agent && lookup->state != LOOKUP_STORE)
            xfer_lookup_ask(lookup);
    }
}

void xfer_lookups_move(struct xfer_agent *from, struct xfer_agent *to)
{
    for (struct xfer_lookup *lookup = from->xfer->lookups; lookup != NULL; lookup = lookup->next) {
        if (lookup->agent != from)
            continue;
        lookup->agent = to;
        lookup->state = LOOKUP_LINK;
    }
}

void xfer_lookups_link_gone(struct xfer_agent *agent, const char *why)
{
    struct xfer_lookup *lookup = agent->xfer->lookups, *next;

    for (; lookup != NULL; lookup = next) {
        struct nxl_err err = {0};

        next = lookup->next;
        if (lookup->agent != agent)
            continue;
        (void)nxl_err_set(&err, NXL_REMOTE_DISCONNECT, 0,
                          "agent %s went away while it was asked: %s", agent->agent, why);
        xfer_lookup_fail(lookup, NXL_REMOTE_DISCONNECT, &err);
        next = agent->xfer->lookups; /* the callback may have changed the list */
    }
}

void xfer_lookups_answer(struct xfer_agent *agent, const struct nxl_message *message)
{
    struct xfer_lookup *lookup = agent->xfer->lookups;
    struct nxl_err err = {0};

    while (lookup != NULL && (lookup->request != message->request || lookup->agent != agent ||
                              lookup->state != LOOKUP_ANSWER))
        lookup = lookup->next;
    if (lookup == NULL)
        return;
    if ((message->code == NXL_NOT_FOUND && lookup->incarnation[0] == '\0') ||
        message->code == NXL_BUSY) {  /* BUSY: no operator has told that agent its policy yet */
        lookup->state = LOOKUP_RETRY; /* asked again until the deadline */
        return;
    }
    if (message->code != NXL_OK) {
        enum nxl_code code = message->code < 0 ? (enum nxl_code)message->code : NXL_UNKNOWN;

        (void)nxl_err_set(&err, code, 0, "agent %s answers: %s", agent->node_name, message->text);
        xfer_lookup_fail(lookup, code, &err);
        return;
    }
    if (lookup->incarnation[0] == '\0') { /* by name: now we know which life */
        xfer_lookup_far(lookup, agent, message->ns, message->name, message->incarnation);
        return;
    }
    lookup->state = LOOKUP_SYNC;
    struct nxl_catalog_peer *peer =
        nxl_catalog_by_incarnation(agent->xfer->catalog, lookup->incarnation);
    struct xfer_far *far = peer != NULL && !peer->local ? peer->owner : NULL;

    if (far == NULL)
        return;
    (void)nxl_copy_text(far->from_ns, sizeof(far->from_ns), lookup->peer->peer->ns);
    (void)nxl_copy_text(far->from, sizeof(far->from), lookup->peer->peer->incarnation);
    if (far->synced)
        xfer_lookups_synced(far);
}

void xfer_lookups_synced(struct xfer_far *far)
{
    struct xfer_lookup *lookup = far->peer->owner == far ? far->agent->xfer->lookups : NULL;

    while (lookup != NULL) {
        struct nxl_err err = {0};

        if (lookup->state == LOOKUP_SYNC &&
            strcmp(lookup->incarnation, far->peer->incarnation) == 0) {
            struct nxl_xfer *xfer = lookup->xfer;

            xfer_lookup_finish(lookup, NXL_OK, far->peer, &err);
            lookup = xfer->lookups;
        } else {
            lookup = lookup->next;
        }
    }
}

void xfer_lookups_local(struct nxl_xfer *xfer)
{
    struct xfer_lookup *lookup = xfer->lookups;

    while (lookup != NULL) {
        if (lookup->state == LOOKUP_STORE && xfer_fetch_here(lookup))
            lookup = xfer->lookups;
        else
            lookup = lookup->next;
    }
}

void xfer_lookups_of_session(struct nxl_xfer_session *session)
{
    struct xfer_lookup *lookup = session->xfer->lookups, *next;

    for (; lookup != NULL; lookup = next) {
        next = lookup->next;
        if (lookup->peer->session != session)
            continue;
        *lookup->link_at = next;
        if (next != NULL)
            next->link_at = lookup->link_at;
        if (lookup->ticket != 0)
            nxl_directory_forget(session->xfer->directory, lookup->ticket);
        xfer_lookup_free(lookup);
    }
}

void xfer_lookups_of_peer(struct xfer_peer *peer)
{
    struct xfer_lookup *lookup = peer->session->xfer->lookups;

    while (lookup != NULL) {
        struct nxl_err err = {0};
        struct nxl_xfer *xfer = lookup->xfer;

        if (lookup->peer != peer) {
            lookup = lookup->next;
            continue;
        }
        (void)nxl_err_set(&err, NXL_CANCELED, 0, "the asking peer was closed");
        xfer_lookup_fail(lookup, NXL_CANCELED, &err);
        lookup = xfer->lookups;
    }
}

static void lookup_expire(struct xfer_lookup *lookup)
{
    struct nxl_err err = {0};
    const char *who = lookup->name[0] != '\0' ? lookup->name : lookup->incarnation;

    if (lookup->state == LOOKUP_POLICY) {
        (void)nxl_err_set(&err, NXL_BUSY, 0,
                          "no operator has told this agent its policy within the time given");
        xfer_lookup_fail(lookup, NXL_BUSY, &err);
    } else if (lookup->state == LOOKUP_LINK) {
        (void)nxl_err_set(
            &err, NXL_UNREACHABLE, 0, "no connection to agent %s at %s within the time given",
            lookup->agent->agent[0] != '\0' ? lookup->agent->agent : "?",
            lookup->agent->link != NULL ? nxl_link_address(lookup->agent->link) : "?");
        xfer_lookup_fail(lookup, NXL_UNREACHABLE, &err);
    } else if (lookup->state == LOOKUP_STORE || lookup->state == LOOKUP_RETRY) {
        (void)nxl_err_set(&err, NXL_NOT_FOUND, 0,
                          "peer '%s/%s' did not appear within the time given", lookup->ns, who);
        xfer_lookup_fail(lookup, NXL_NOT_FOUND, &err);
    } else {
        (void)nxl_err_set(&err, NXL_TIMEOUT, 0,
                          "agent %s did not answer about '%s' within the time given",
                          lookup->agent->agent, who);
        xfer_lookup_fail(lookup, NXL_TIMEOUT, &err);
    }
}

void xfer_lookups_tick(struct nxl_xfer *xfer, uint64_t now_ns)
{
    struct xfer_lookup *lookup = xfer->lookups;

    while (lookup != NULL) {
        /* The store keeps its own deadline and knows better what went wrong. */
        if (now_ns >= lookup->deadline_ns &&
            (lookup->ticket == 0 || now_ns >= lookup->deadline_ns + NXL_SEC)) {
            lookup_expire(lookup);
            lookup = xfer->lookups;
            continue;
        }
        if (lookup->state == LOOKUP_POLICY && now_ns >= lookup->asked_ns + RETRY_NS) {
            if (lookup->record != NULL)
                xfer_lookup_record(lookup, lookup->record);
            else
                (void)xfer_fetch_here(lookup);
            lookup = xfer->lookups; /* it may have ended */
            continue;
        }
        if (lookup->state == LOOKUP_RETRY && now_ns - lookup->asked_ns >= RETRY_NS)
            xfer_lookup_ask(lookup);
        lookup = lookup->next;
    }
}
