/* list.c - prepared descriptor lists of a session, ours and those over a remote peer's memory. */
#include "xfer/engine.h"

#include <stdlib.h>

#include "base/mem.h"
#include "xfer/policy.h"

static struct xfer_list *list_find(struct nxl_xfer_session *session, uint32_t id)
{
    struct xfer_list *list;

    HASH_FIND(hh, session->lists, &id, sizeof(id), list);
    return list;
}

static void list_drop(struct nxl_xfer_session *session, struct xfer_list *list)
{
    struct nxl_catalog_peer *peer = list->list->peer;

    HASH_DEL(session->lists, list);
    session->list_runs -= list->list->run_count;
    nxl_catalog_list_free(list->list);
    nxl_catalog_unref(session->xfer->catalog, peer);
    free(list);
}

static enum nxl_code list_new(struct nxl_xfer_session *session, struct xfer_peer *peer,
                              uint32_t remote_id, uint32_t kind, struct xfer_list **ret,
                              struct nxl_err *err)
{
    struct nxl_catalog_peer *target = peer->peer;
    struct xfer_list *list;

    if (HASH_COUNT(session->lists) >= session->xfer->limits.lists)
        return nxl_err_set(err, NXL_LIMIT, 0,
                           "this session has %u lists, limits.lists allows no more",
                           session->xfer->limits.lists);
    if (remote_id != 0) {
        struct xfer_remote *remote = xfer_remote_of(session, peer->id, remote_id, err);

        if (remote == NULL)
            return err->code;
        target = remote->target;
    }
    list = nxl_new0(sizeof(*list));
    list->id = ++session->next_list;
    list->peer = peer;
    list->remote = remote_id;
    list->list = nxl_catalog_list_new(target, kind);
    nxl_catalog_ref(target);
    HASH_ADD(hh, session->lists, id, sizeof(list->id), list);
    *ret = list;
    return NXL_OK;
}

static enum nxl_code list_append(struct nxl_xfer_session *session, struct xfer_list *list,
                                 const struct nxl_run *runs, uint32_t count, struct nxl_err *err)
{
    struct xfer_remote *remote = NULL;
    uint32_t before = list->list->run_count;
    enum nxl_code code;

    if (list->remote != 0) {
        remote = xfer_remote_of(session, list->peer->id, list->remote, err);
        if (remote == NULL)
            return err->code;
    }
    code = nxl_catalog_list_append(
        list->list, runs, count, remote != NULL && remote->restricted ? xfer_remote_accepts : NULL,
        remote, err);
    if (remote != NULL)
        code = xfer_policy_explain(session->xfer, list->peer->peer, remote->target,
                                   list->list->kind, code, err);
    session->list_runs += list->list->run_count - before;
    if (code == NXL_OK && session->list_runs > session->xfer->limits.list_descriptors)
        code =
            nxl_err_set(err, NXL_LIMIT, 0,
                        "the lists of this session have %llu runs, limits.list_runs allows no more",
                        (unsigned long long)session->list_runs);
    if (code == NXL_OK && list->list->size > UINT32_MAX)
        code = nxl_err_set(err, NXL_LIMIT, 0, "a list holds at most %u descriptors", UINT32_MAX);
    return code;
}

enum nxl_code nxl_xfer_list(struct nxl_xfer_session *session, uint32_t peer_id, uint32_t remote,
                            uint32_t kind, uint32_t id, const struct nxl_run *runs, uint32_t count,
                            int more, uint32_t *ret_list, uint64_t *ret_size, struct nxl_err *err)
{
    struct xfer_peer *peer = xfer_peer_find(session, peer_id, err);
    struct xfer_list *list = NULL;
    enum nxl_code code;

    if (peer == NULL)
        return NXL_NOT_FOUND;
    if (id == 0) {
        code = list_new(session, peer, remote, kind, &list, err);
        if (code != NXL_OK)
            return code;
    } else {
        list = list_find(session, id);
        if (list == NULL || list->sealed || list->peer != peer)
            return nxl_err_set(err, NXL_NOT_FOUND, 0, "there is no unfinished list %u of this peer",
                               id);
    }
    code = list_append(session, list, runs, count, err);
    if (code != NXL_OK) {
        list_drop(session, list);
        return code;
    }
    list->sealed = !more;
    *ret_list = list->id;
    *ret_size = list->list->size;
    return NXL_OK;
}

enum nxl_code nxl_xfer_list_free(struct nxl_xfer_session *session, uint32_t id, struct nxl_err *err)
{
    struct xfer_list *list = list_find(session, id);

    if (list == NULL)
        return nxl_err_set(err, NXL_NOT_FOUND, 0, "this session has no list %u", id);
    list_drop(session, list);
    return NXL_OK;
}
