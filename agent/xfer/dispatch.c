/* dispatch.c - feeds a request's pieces to its backend, holds them back on back-pressure, and takes
 * the outcomes in. Loop thread. */
#include "xfer/digest.h"
#include "xfer/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/mem.h"

static void waiting_push(struct nxl_xfer *xfer, uint32_t instance, struct xfer_part *part)
{
    part->state = XFER_PART_WAITING;
    part->next_waiting = NULL;
    if (xfer->waiting[instance].tail != NULL)
        xfer->waiting[instance].tail->next_waiting = part;
    else
        xfer->waiting[instance].head = part;
    xfer->waiting[instance].tail = part;
    nxl_metric_move(xfer->metrics.waiting, 1);
}

static struct xfer_part *waiting_pop(struct nxl_xfer *xfer, uint32_t instance)
{
    struct xfer_part *part = xfer->waiting[instance].head;

    if (part == NULL)
        return NULL;
    xfer->waiting[instance].head = part->next_waiting;
    if (xfer->waiting[instance].head == NULL)
        xfer->waiting[instance].tail = NULL;
    nxl_metric_move(xfer->metrics.waiting, -1);
    return part;
}

static void waiting_remove(struct nxl_xfer *xfer, uint32_t instance, struct xfer_part *part)
{
    struct xfer_part *before = NULL;

    for (struct xfer_part *at = xfer->waiting[instance].head; at != NULL;
         before = at, at = at->next_waiting) {
        if (at != part)
            continue;
        if (before == NULL)
            xfer->waiting[instance].head = at->next_waiting;
        else
            before->next_waiting = at->next_waiting;
        if (xfer->waiting[instance].tail == at)
            xfer->waiting[instance].tail = before;
        nxl_metric_move(xfer->metrics.waiting, -1);
        return;
    }
}

/* A part that was never submitted: nothing of it moves, nothing of it will. */
static void part_never_ran(struct xfer_part *part)
{
    part->state = XFER_PART_QUIET;
    part->request->parts_ended++;
    part->request->parts_quiet++;
}

void xfer_dispatch_unwait(struct xfer_request *request)
{
    for (uint32_t i = 0; i < request->part_count; i++) {
        struct xfer_part *part = &request->parts[i];

        if (part->state == XFER_PART_WAITING)
            waiting_remove(request->xfer, request->plan->instance, part);
        if (part->state == XFER_PART_WAITING || part->state == XFER_PART_NEW)
            part_never_ran(part);
    }
}

static void outcome_text(const struct xfer_request *request, const struct nxl_outcome *outcome,
                         char *to, size_t room)
{
    snprintf(to, room, "%s to peer %s through backend '%s': %s",
             request->op == NXL_WRITE ? "write" : "read", xfer_show(request->target),
             nxl_instance_name(nxl_hosts_at(request->xfer->hosts, request->plan->instance)),
             outcome->text[0] != '\0' ? outcome->text : nxl_code_text(outcome->code));
}

static void part_on_quiesced(void *arg, uint64_t op_id)
{
    struct xfer_part *part = arg;

    (void)op_id;
    NXL_ASSERT(part->state == XFER_PART_ENDED);
    part->state = XFER_PART_QUIET;
    part->request->parts_quiet++;
    xfer_request_settle(part->request);
}

static void part_on_outcome(void *arg, const struct nxl_outcome *outcome)
{
    struct xfer_part *part = arg;
    struct xfer_request *request = part->request;

    NXL_ASSERT(part->state == XFER_PART_SUBMITTED);
    part->state = outcome->quiesced ? XFER_PART_QUIET : XFER_PART_ENDED;
    request->parts_ended++;
    request->parts_quiet += outcome->quiesced != 0;
    if (request->state != XFER_RUNNING) { /* ended early: only quietness is still of interest */
        xfer_request_settle(request);
        return;
    }
    request->bytes += outcome->bytes;
    if (request->path == NXL_PATH_NONE || (uint32_t)outcome->path < request->path)
        request->path = (uint32_t)outcome->path; /* the slowest of the parts */
    if (outcome->device != NULL)
        (void)nxl_copy_text(request->device, sizeof(request->device), outcome->device);
    if (outcome->code != NXL_OK && !request->cancel_asked) {
        char text[400];

        outcome_text(request, outcome, text, sizeof(text));
        request->os = outcome->os;
        xfer_request_stop(
            request, outcome->code == NXL_CANCELED ? NXL_BACKEND : (enum nxl_code)outcome->code,
            text);
        return;
    }
    if (request->parts_ended < request->part_count)
        return;
    /* All parts ended: fine, or cancelled on request, unless the cancel came too late to matter. */
    if (request->cancel_asked && request->bytes < request->plan->bytes)
        xfer_request_end(request, NXL_CANCELED, 0, "cancelled by its client");
    else if (request->verify && !request->cancel_asked)
        xfer_digest_begin(request);
    else
        xfer_request_end(request, NXL_OK, 0, NULL);
}

static enum nxl_code part_submit(struct xfer_part *part, struct nxl_err *err)
{
    struct xfer_request *request = part->request;
    struct nxl_instance *instance = nxl_hosts_at(request->xfer->hosts, request->plan->instance);
    enum nxl_code code =
        nxl_instance_submit(instance, &part->op, part_on_outcome, part_on_quiesced, part, err);

    if (code == NXL_OK) {
        part->state = XFER_PART_SUBMITTED;
        request->parts_submitted++;
    }
    return code;
}

/* Imports what is missing; keys stay imported with the connection. */
static enum nxl_code remotes_import(struct xfer_request *request, struct nxl_backend_conn *conn,
                                    struct nxl_err *err)
{
    const struct nxl_plan *plan = request->plan;
    struct nxl_instance *instance = nxl_hosts_at(request->xfer->hosts, plan->instance);

    for (uint32_t i = 0; i < plan->remote_count; i++) {
        struct nxl_catalog_region *region = plan->remotes[i];

        if (region->remotes[plan->instance] == NULL) {
            enum nxl_code code = nxl_instance_import(instance, conn, region->keys[plan->instance],
                                                     &region->remotes[plan->instance], err);
            if (code != NXL_OK)
                return nxl_err_wrap(err, code, "key of region %llu of peer %s",
                                    (unsigned long long)region->id, xfer_show(request->target));
        }
        request->remotes[i] = region->remotes[plan->instance];
    }
    return NXL_OK;
}

static enum nxl_code sides_bind(struct xfer_request *request, struct nxl_backend_conn **ret_conn,
                                struct nxl_err *err)
{
    const struct nxl_plan *plan = request->plan;
    struct nxl_instance *instance = nxl_hosts_at(request->xfer->hosts, plan->instance);

    free(NXL_TAKE(request->mems));
    free(NXL_TAKE(request->peers));
    free(NXL_TAKE(request->remotes));
    request->mems = nxl_new0_array(plan->local_count, sizeof(*request->mems));
    for (uint32_t i = 0; i < plan->local_count; i++)
        request->mems[i] = plan->locals[i]->mems[plan->instance];
    *ret_conn = NULL;
    if (request->target->local) {
        request->peers = nxl_new0_array(plan->remote_count, sizeof(*request->peers));
        for (uint32_t i = 0; i < plan->remote_count; i++)
            request->peers[i] = plan->remotes[i]->mems[plan->instance];
        return NXL_OK;
    }
    request->remotes = nxl_new0_array(plan->remote_count, sizeof(*request->remotes));
    if (request->target->owner == NULL ||
        ((struct xfer_far *)request->target->owner)->agent == NULL)
        return nxl_err_set(err, NXL_REMOTE_DISCONNECT, 0, "the agent of peer %s is gone",
                           xfer_show(request->target));
    *ret_conn = xfer_agent_conn(((struct xfer_far *)request->target->owner)->agent, instance, err);
    if (*ret_conn == NULL)
        return err->code;
    return remotes_import(request, *ret_conn, err);
}

static void parts_make(struct xfer_request *request, struct nxl_backend_conn *conn)
{
    const struct nxl_plan *plan = request->plan;
    struct nxl_instance *instance = nxl_hosts_at(request->xfer->hosts, plan->instance);
    uint32_t most = nxl_instance_caps(instance)->pieces_max;

    if (most == 0 || most > plan->piece_count)
        most = plan->piece_count;
    request->part_count = (plan->piece_count + most - 1) / most;
    free(request->parts);
    request->parts = nxl_new0_array(request->part_count, sizeof(*request->parts));
    for (uint32_t i = 0; i < request->part_count; i++) {
        struct xfer_part *part = &request->parts[i];
        uint32_t first = i * most;
        uint32_t count = plan->piece_count - first < most ? plan->piece_count - first : most;

        part->request = request;
        part->op = (struct nxl_op){
            .kind = request->op,
            .conn = conn,
            .locals = request->mems,
            .remotes = request->remotes,
            .peers = request->peers,
            .pieces = plan->pieces + first,
            .local_count = plan->local_count,
            .remote_count = plan->remote_count,
            .piece_count = count,
            .deadline_ns = request->deadline_ns,
        };
        if (request->part_count == 1) {
            part->op.bytes = plan->bytes;
            continue;
        }
        for (uint32_t k = 0; k < count; k++)
            part->op.bytes += part->op.pieces[k].len * part->op.pieces[k].count;
    }
}

enum nxl_code xfer_dispatch(struct xfer_request *request, struct nxl_err *err)
{
    struct nxl_xfer *xfer = request->xfer;
    uint32_t instance = request->plan->instance;
    struct nxl_backend_conn *conn;
    enum nxl_code code = sides_bind(request, &conn, err);

    if (code != NXL_OK)
        return code;
    parts_make(request, conn);
    for (uint32_t i = 0; i < request->part_count; i++) {
        struct xfer_part *part = &request->parts[i];

        code = xfer->waiting[instance].head != NULL ? NXL_AGAIN : part_submit(part, err);
        if (code == NXL_AGAIN) {
            waiting_push(xfer, instance, part);
        } else if (code != NXL_OK) {
            char text[NXL_ERR_TEXT_SIZE];

            (void)nxl_copy_text(text, sizeof(text), err->text);
            xfer_request_stop(request, code, text);
            return NXL_OK; /* ended here */
        }
    }
    return NXL_OK;
}

void xfer_on_ready(void *arg, struct nxl_instance *instance)
{
    struct nxl_xfer *xfer = arg;
    uint32_t index = nxl_instance_index(instance);
    struct xfer_part *part;

    while ((part = waiting_pop(xfer, index)) != NULL) {
        struct nxl_err err = {0};
        enum nxl_code code = part_submit(part, &err);

        if (code == NXL_AGAIN) { /* back to the front */
            part->state = XFER_PART_WAITING;
            part->next_waiting = xfer->waiting[index].head;
            xfer->waiting[index].head = part;
            if (xfer->waiting[index].tail == NULL)
                xfer->waiting[index].tail = part;
            nxl_metric_move(xfer->metrics.waiting, 1);
            return;
        }
        if (code != NXL_OK) {
            part_never_ran(part);
            xfer_request_stop(part->request, code, err.text);
        }
    }
}

void xfer_dispatch_conn_gone(struct nxl_xfer *xfer, uint32_t instance,
                             const struct nxl_backend_conn *conn)
{
    struct xfer_part *part = xfer->waiting[instance].head;

    while (part != NULL) {
        if (part->op.conn == conn) {
            xfer_request_stop(part->request, NXL_REMOTE_DISCONNECT,
                              "the connection to the peer's agent broke");
            part = xfer->waiting[instance].head; /* the stop took parts out of the queue */
        } else {
            part = part->next_waiting;
        }
    }
}

struct nxl_backend_conn *xfer_agent_conn(struct xfer_agent *agent, struct nxl_instance *instance,
                                         struct nxl_err *err)
{
    uint32_t index = nxl_instance_index(instance);

    if (agent->conns[index] != NULL)
        return agent->conns[index];
    if (agent->addresses[index].data == NULL) {
        (void)nxl_err_set(err, NXL_UNREACHABLE, 0, "agent %s has no backend '%s'", agent->agent,
                          nxl_instance_name(instance));
        return NULL;
    }
    if (nxl_instance_connect(instance, agent->addresses[index], &agent->conns[index], err) !=
        NXL_OK)
        return NULL;
    return agent->conns[index];
}

static void on_disconnected(void *arg, struct nxl_instance *instance, struct nxl_backend_conn *conn,
                            const char *why)
{
    struct nxl_xfer *xfer = arg;
    uint32_t index = nxl_instance_index(instance);

    for (struct xfer_agent *agent = xfer->agents; agent != NULL; agent = agent->next) {
        if (agent->conns[index] != conn)
            continue;
        nxl_warn("backend", "event=disconnected backend=%s agent=%s why=%s",
                 nxl_instance_name(instance), nxl_quote(agent->agent), nxl_quote(why));
        agent->failed_ns[index] = nxl_now_ns();
        xfer_far_forget_conn(agent, index);
        return;
    }
}

const struct nxl_hosts_ops nxl_xfer_hosts_ops = {.ready = xfer_on_ready,
                                                 .disconnected = on_disconnected};
