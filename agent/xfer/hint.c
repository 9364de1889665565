/* hint.c - publishing a peer: in the store by name, or straight to one agent, which keeps it as a
 * hint for its own clients. Loop thread. */
#include "xfer/lookup.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"

struct xfer_hint {
    char key[NXL_NAMESPACE_MAX + NXL_NAME_MAX + 2];
    struct nxl_record record;
    UT_hash_handle hh;
};

static void hint_key(char *to, size_t room, const char *ns, const char *name)
{
    (void)nxl_copy_text(to, room, ns);
    if (strlen(to) + 1 + strlen(name) < room) {
        strcat(to, "/");
        strcat(to, name);
    }
}

const struct nxl_record *xfer_hint_find(struct nxl_xfer *xfer, const char *ns, const char *name)
{
    char key[NXL_NAMESPACE_MAX + NXL_NAME_MAX + 2];
    struct xfer_hint *hint;

    hint_key(key, sizeof(key), ns, name);
    HASH_FIND_STR(xfer->hints, key, hint);
    return hint == NULL || nxl_catalog_is_dead(xfer->catalog, hint->record.incarnation)
               ? NULL
               : &hint->record;
}

static void hint_drop(struct nxl_xfer *xfer, struct xfer_hint *hint)
{
    HASH_DEL(xfer->hints, hint);
    xfer->hint_count--;
    free(hint);
}

void xfer_hint_put(struct nxl_xfer *xfer, struct xfer_agent *agent,
                   const struct nxl_message *message)
{
    char key[NXL_NAMESPACE_MAX + NXL_NAME_MAX + 2];
    struct xfer_hint *hint;

    hint_key(key, sizeof(key), message->ns, message->name);
    HASH_FIND_STR(xfer->hints, key, hint);
    if (message->code != NXL_OK) { /* withdrawn; only by the agent that gave it */
        if (hint != NULL && strcmp(hint->record.agent, agent->agent) == 0)
            hint_drop(xfer, hint);
        return;
    }
    if (hint == NULL) {
        if (xfer->hint_count >= xfer->limits.hints) {
            nxl_warn("hint",
                     "event=\"record refused\" why=\"limits.hints is reached\" peer=%s agent=%s",
                     nxl_quote(key), nxl_quote(agent->agent));
            xfer_count_error(xfer, NXL_LIMIT);
            return;
        }
        hint = nxl_new0(sizeof(*hint));
        (void)nxl_copy_text(hint->key, sizeof(hint->key), key);
        HASH_ADD_STR(xfer->hints, key, hint);
        xfer->hint_count++;
    }
    memset(&hint->record, 0, offsetof(struct nxl_record, regions));
    hint->record.flags = NXL_RECORD_ADDRESS | NXL_RECORD_FULL;
    (void)nxl_copy_text(hint->record.ns, sizeof(hint->record.ns), message->ns);
    (void)nxl_copy_text(hint->record.name, sizeof(hint->record.name), message->name);
    (void)nxl_copy_text(hint->record.incarnation, sizeof(hint->record.incarnation),
                        message->incarnation);
    (void)nxl_copy_text(hint->record.cluster, sizeof(hint->record.cluster), xfer->cluster);
    (void)nxl_copy_text(hint->record.agent, sizeof(hint->record.agent), agent->agent);
    (void)nxl_copy_text(hint->record.node, sizeof(hint->record.node), agent->node_name);
    (void)nxl_copy_text(hint->record.address, sizeof(hint->record.address),
                        nxl_link_address(agent->link));
    hint->record.revision = message->revision;
    xfer_lookups_local(xfer);
}

void xfer_hints_of_agent_gone(struct nxl_xfer *xfer, const char *agent)
{
    struct xfer_hint *hint, *next;

    HASH_ITER(hh, xfer->hints, hint, next)
    {
        if (strcmp(hint->record.agent, agent) == 0)
            hint_drop(xfer, hint);
    }
}

void xfer_hints_free(struct nxl_xfer *xfer)
{
    struct xfer_hint *hint, *next;

    HASH_ITER(hh, xfer->hints, hint, next)
    {
        hint_drop(xfer, hint);
    }
}

/* ---- publishing ----------------------------------------------------------------------------- */

static enum nxl_code hint_send(struct nxl_xfer *xfer, struct xfer_peer *peer, const char *address,
                               enum nxl_code what, struct nxl_err *err)
{
    struct nxl_message answer = {.type = NXL_MESSAGE_ANSWER,
                                 .code = what,
                                 .ns = peer->peer->ns,
                                 .name = peer->peer->name,
                                 .incarnation = peer->peer->incarnation,
                                 .revision = peer->peer->revision};
    struct nxl_link *link;
    enum nxl_code code = nxl_links_get(xfer->links, address, "", &link, err);

    if (code != NXL_OK)
        return code;
    if (nxl_link_up(link))
        return nxl_link_send(link, &answer, err);
    return xfer_announce_later(xfer, peer, xfer_agent_of(xfer, link),
                               what); /* said when the link is up */
}

void nxl_xfer_send(struct nxl_xfer_session *session, uint32_t peer_id, const char *label,
                   const char *address, uint32_t flags, const uint64_t *ids, uint32_t count,
                   nxl_xfer_reply_fn *fn, void *arg)
{
    struct nxl_xfer *xfer = session->xfer;
    struct nxl_err err = {0};
    struct xfer_peer *peer = xfer_peer_find(session, peer_id, &err);
    NXL_CLEANUP(nxl_freep) struct nxl_record *record = nxl_new0(sizeof(*record));
    enum nxl_code code = peer == NULL ? NXL_NOT_FOUND : NXL_OK;

    if (code == NXL_OK && address[0] != '\0') {
        code = hint_send(xfer, peer, address, NXL_OK, &err);
    } else if (code == NXL_OK) {
        if (flags != 0 && label[0] == '\0')
            code = nxl_err_set(&err, NXL_INVALID_PARAM, 0,
                               "a partial record in the store needs a label");
        if (code == NXL_OK)
            code = xfer_record_make(peer, flags, ids, count, record, &err);
        if (code == NXL_OK)
            code = nxl_directory_publish(xfer->directory, record, label, &err);
        if (code == NXL_OK)
            peer->published = 1;
    }
    if (code != NXL_OK)
        xfer_count_error(xfer, code);
    fn(arg, code, NULL, &err);
}

void nxl_xfer_withdraw(struct nxl_xfer_session *session, uint32_t peer_id, const char *address,
                       nxl_xfer_reply_fn *fn, void *arg)
{
    struct nxl_xfer *xfer = session->xfer;
    struct nxl_err err = {0};
    struct xfer_peer *peer = xfer_peer_find(session, peer_id, &err);
    enum nxl_code code = peer == NULL ? NXL_NOT_FOUND : NXL_OK;

    if (code == NXL_OK && address[0] != '\0') {
        code = hint_send(xfer, peer, address, NXL_NOT_FOUND, &err);
    } else if (code == NXL_OK) {
        nxl_directory_withdraw(xfer->directory, peer->peer->incarnation);
        peer->published = 0;
    }
    fn(arg, code, NULL, &err);
}
