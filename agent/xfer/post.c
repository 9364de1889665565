/* post.c - from a checked ring entry to a planned, running request. Whatever is wrong with a post
 * becomes its one end. Loop thread. */
#include "xfer/request.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "xfer/policy.h"
#include "wire/ring.h"

/* After a backend lost a peer it is the last choice for this long. */
#define AVOID_NS (2 * NXL_SEC)

struct post_lists {
    struct nxl_catalog_list *local, *remote;
    struct nxl_catalog_list *made[2]; /* of the one-call form; freed after planning */
    struct nxl_catalog_peer *target;
};

int nxl_xfer_reusable(const struct nxl_xfer_session *session, uint32_t slot)
{
    struct xfer_request *request;

    HASH_FIND(hh, session->requests, &slot, sizeof(slot), request);
    return request != NULL && request->plan != NULL && request->plan_epoch == session->xfer->epoch;
}

static enum nxl_code target_check(const struct nxl_catalog_peer *target, struct nxl_err *err)
{
    if (target->life == NXL_LIFE_DEAD)
        return nxl_err_set(err, NXL_STALE, 0, "peer %s is dead; fetch or load its next life",
                           xfer_show(target));
    return NXL_OK;
}

static enum nxl_code prepared_list(struct nxl_xfer_session *session, struct xfer_peer *peer,
                                   uint32_t id, int remote, struct nxl_catalog_list **ret,
                                   struct nxl_err *err)
{
    struct xfer_list *list;
    enum nxl_code code;

    HASH_FIND(hh, session->lists, &id, sizeof(id), list);
    if (list == NULL || !list->sealed)
        return nxl_err_set(err, NXL_NOT_FOUND, 0, "%s list %u does not exist",
                           remote ? "remote" : "local", id);
    if (list->peer != peer)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "list %u belongs to another peer of this process", id);
    if ((list->remote != 0) != remote)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "list %u is a %s list, a %s one is needed here", id,
                           list->remote != 0 ? "remote" : "local", remote ? "remote" : "local");
    if (remote && xfer_remote_of(session, peer->id, list->remote, err) == NULL)
        return err->code;
    code = target_check(list->list->peer, err);
    if (code != NXL_OK)
        return code;
    if (!nxl_catalog_list_fresh(list->list)) {
        code = nxl_err_set(err, NXL_STALE, 0,
                           "list %u names a region of %s that is gone; prepare it again", id,
                           xfer_show(list->list->peer));
        return xfer_policy_explain(session->xfer, peer->peer, list->list->peer, list->list->kind,
                                   code, err);
    }
    *ret = list->list;
    return NXL_OK;
}

static enum nxl_code lists_from_runs(struct nxl_xfer_session *session, struct xfer_peer *peer,
                                     const struct nxl_xfer_post *post, struct post_lists *lists,
                                     struct nxl_err *err)
{
    struct xfer_remote *remote = xfer_remote_of(session, peer->id, post->remote, err);
    enum nxl_code code;

    if (remote == NULL)
        return err->code;
    code = target_check(remote->target, err);
    if (code != NXL_OK)
        return code;
    lists->local = lists->made[0] = nxl_catalog_list_new(peer->peer, NXL_MEM_DRAM);
    code = nxl_catalog_list_append(lists->local, post->local_runs, post->count, NULL, NULL, err);
    if (code != NXL_OK)
        return nxl_err_wrap(err, code, "local side");
    lists->remote = lists->made[1] = nxl_catalog_list_new(remote->target, NXL_MEM_DRAM);
    code = nxl_catalog_list_append(lists->remote, post->remote_runs, post->remote_count,
                                   remote->restricted ? xfer_remote_accepts : NULL, remote, err);
    code = xfer_policy_explain(session->xfer, peer->peer, remote->target, NXL_MEM_DRAM, code, err);
    if (code != NXL_OK)
        return nxl_err_wrap(err, code, "remote side");
    if (lists->local->size != lists->remote->size)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "%llu local descriptors for %llu remote ones",
                           (unsigned long long)lists->local->size,
                           (unsigned long long)lists->remote->size);
    lists->target = remote->target;
    return NXL_OK;
}

static enum nxl_code lists_resolve(struct nxl_xfer_session *session, struct xfer_peer *peer,
                                   const struct nxl_xfer_post *post, struct post_lists *lists,
                                   struct nxl_err *err)
{
    enum nxl_code code;

    if (post->local_runs != NULL)
        return lists_from_runs(session, peer, post, lists, err);
    code = prepared_list(session, peer, post->local_list, 0, &lists->local, err);
    if (code == NXL_OK)
        code = prepared_list(session, peer, post->remote_list, 1, &lists->remote, err);
    if (code == NXL_OK)
        lists->target = lists->remote->peer;
    return code;
}

static uint32_t candidates_of(struct nxl_xfer *xfer, const struct nxl_catalog_peer *target,
                              struct nxl_plan_candidate *ret_candidates)
{
    uint32_t count = nxl_hosts_count(xfer->hosts);
    struct xfer_agent *agent =
        target->local || target->owner == NULL ? NULL : ((struct xfer_far *)target->owner)->agent;
    uint64_t now = nxl_now_ns();

    for (uint32_t i = 0; i < count; i++) {
        struct nxl_instance *instance = nxl_hosts_at(xfer->hosts, i);

        ret_candidates[i] = (struct nxl_plan_candidate){
            .instance = i,
            .name = nxl_instance_name(instance),
            .caps = *nxl_instance_caps(instance),
            .local = target->local,
            .reachable = agent != NULL && agent->addresses[i].data != NULL,
            .avoid =
                agent != NULL && agent->failed_ns[i] != 0 && now - agent->failed_ns[i] < AVOID_NS,
        };
    }
    return count;
}

/* Without an operator what was loaded may be used, as it was let in by name. */
static enum nxl_code plan_allowed(struct xfer_request *request, uint32_t kind, struct nxl_err *err)
{
    if (request->xfer->members == NULL)
        return NXL_OK;
    return xfer_policy(request->xfer, xfer_end_of(request->local), xfer_end_of(request->target),
                       request->op == NXL_WRITE ? NXL_STREAM_WRITE : NXL_STREAM_READ, kind,
                       request->plan->path, err);
}

static enum nxl_code plan_make(struct xfer_request *request, const struct nxl_xfer_post *post,
                               const struct post_lists *lists, struct nxl_err *err)
{
    struct nxl_xfer *xfer = request->xfer;
    struct nxl_plan_candidate candidates[NXL_BACKENDS_MAX];
    struct nxl_plan_request plan = {
        .op = (enum nxl_op_kind)post->op,
        .local = lists->local,
        .remote = lists->remote,
        .local_index = post->local_index,
        .remote_index = post->remote_index,
        .count = post->local_runs != NULL ? lists->local->size : post->count,
        .no_merge = post->no_merge,
        .min_path = (enum nxl_path_class)post->min_path,
        .only = post->backend == 0 ? -1 : (int)post->backend - 1,
        .candidates = candidates,
        .candidate_count = candidates_of(xfer, lists->target, candidates),
    };
    enum nxl_code code;

    if (plan.count > xfer->limits.descriptors)
        return nxl_err_set(err, NXL_LIMIT, 0, "%llu descriptors, limits.descriptors allows %llu",
                           (unsigned long long)plan.count,
                           (unsigned long long)xfer->limits.descriptors);
    code = nxl_plan_build(&plan, &request->plan, err);
    if (code != NXL_OK)
        return code;
    request->plan_epoch = xfer->epoch;
    request->local = request->peer->peer;
    request->target = lists->target;
    nxl_catalog_ref(request->local);
    nxl_catalog_ref(request->target);
    code = plan_allowed(request, lists->remote->kind, err);
    if (code != NXL_OK)
        xfer_request_plan_free(request);
    return code;
}

static enum nxl_code request_plan(struct xfer_request *request, const struct nxl_xfer_post *post,
                                  struct nxl_err *err)
{
    struct nxl_xfer_session *session = request->session;
    struct post_lists lists = {0};
    enum nxl_code code;

    request->peer = xfer_peer_find(session, post->peer, err);
    if (request->peer == NULL)
        return NXL_NOT_FOUND;
    if (post->reuse && request->plan != NULL && request->plan_epoch == request->xfer->epoch &&
        request->local == request->peer->peer)
        return target_check(request->target, err);
    xfer_request_plan_free(request);
    if (post->count == 0)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "a transfer needs at least one descriptor");
    code = lists_resolve(session, request->peer, post, &lists, err);
    if (code == NXL_OK)
        code = plan_make(request, post, &lists, err);
    nxl_catalog_list_free(lists.made[0]);
    nxl_catalog_list_free(lists.made[1]);
    return code;
}

static enum nxl_code limits_check(const struct xfer_request *request, struct nxl_err *err)
{
    const struct nxl_xfer_session *session = request->session;
    const struct xfer_limits *limits = &request->xfer->limits;

    if (session->running >= limits->transfers)
        return nxl_err_set(err, NXL_LIMIT, 0,
                           "%llu transfers of this session run, limits.transfers allows no more",
                           (unsigned long long)session->running);
    if (request->plan->bytes > limits->transfer_bytes - session->running_bytes)
        return nxl_err_set(
            err, NXL_LIMIT, 0,
            "%llu bytes beside %llu that run: more than limits.transfer_bytes allows",
            (unsigned long long)request->plan->bytes, (unsigned long long)session->running_bytes);
    return NXL_OK;
}

/* NXL's rule: the notice stays with the handle until a post brings another. The client sends it
 * with every post, so a post without one clears it. */
static enum nxl_code notice_take(struct xfer_request *request, const struct nxl_xfer_post *post,
                                 struct nxl_err *err)
{
    free(NXL_TAKE(request->notice));
    request->notice_size = 0;
    request->has_notice = post->has_notice;
    if (!post->has_notice || post->notice.size == 0)
        return NXL_OK;
    if (post->notice.size > NXL_NOTICE_MAX)
        return nxl_err_set(err, NXL_LIMIT, 0, "a notice of %zu bytes, %u are allowed",
                           post->notice.size, NXL_NOTICE_MAX);
    request->notice = nxl_new0(post->notice.size);
    memcpy(request->notice, post->notice.data, post->notice.size);
    request->notice_size = post->notice.size;
    return NXL_OK;
}

static void request_begin(struct xfer_request *request, const struct nxl_xfer_post *post)
{
    struct nxl_xfer *xfer = request->xfer;
    uint64_t timeout = post->timeout_ns != 0 ? post->timeout_ns : xfer->limits.transfer_timeout_ns;

    request->id = ++xfer->next_transfer;
    request->generation = post->generation;
    request->op = (enum nxl_op_kind)post->op;
    request->state = XFER_RUNNING;
    request->quiet = 1;
    request->verify = post->verify;
    request->cancel_asked = 0;
    request->cancel_deadline_ns = 0;
    request->bytes = 0;
    request->path = NXL_PATH_NONE;
    request->device[0] = '\0';
    request->parts_submitted = request->parts_ended = request->parts_quiet = 0;
    request->part_count = 0;
    request->started_ns = nxl_now_ns();
    request->ended_ns = 0;
    request->deadline_ns = timeout == 0 ? 0 : request->started_ns + timeout;
    if (request->deadline_ns != 0)
        xfer_request_timed(request);
}

static void post_time_count(struct xfer_request *request, uint64_t started_ns)
{
    struct xfer_metrics *m = &request->xfer->metrics;
    uint64_t us = (nxl_now_ns() - started_ns) / NXL_US;

    nxl_metric_add(m->post_time_total, us);
    nxl_metric_set(m->post_time, (int64_t)us);
    nxl_metric_observe(m->post_time_hist, us);
}

void nxl_xfer_post(struct nxl_xfer_session *session, const struct nxl_xfer_post *post)
{
    struct xfer_request *request;
    struct nxl_err err = {0};
    enum nxl_code code;
    uint64_t started;

    HASH_FIND(hh, session->requests, &post->slot, sizeof(post->slot), request);
    if (request == NULL)
        request = xfer_request_new(session, post->slot);
    if (request->state == XFER_RUNNING || !request->quiet) {
        struct nxl_xfer_slot update = {.generation = post->generation,
                                       .state = NXL_RING_FAILED,
                                       .quiet = 1,
                                       .code = NXL_REPOST_ACTIVE};

        session->front->slot(session->front_arg, post->slot, &update);
        xfer_count_error(session->xfer, NXL_REPOST_ACTIVE);
        return;
    }
    request_begin(request, post);
    started = request->started_ns;
    code = notice_take(request, post, &err);
    if (code == NXL_OK)
        code = request_plan(request, post, &err);
    if (code == NXL_OK)
        code = limits_check(request, &err);
    if (code == NXL_OK) {
        xfer_request_started(request);
        post_time_count(request, started);
        code = xfer_dispatch(request, &err); /* ends the request itself when it returns OK */
    }
    if (code != NXL_OK)
        xfer_request_end(request, code, err.os, err.text);
}
