/* request.c - one transfer's life: it ends exactly once, and says apart from that when its buffers
 * are quiet. Every change of state passes through here. Loop thread. */
#include "xfer/digest.h"
#include "xfer/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/mem.h"
#include "wire/ring.h"

struct xfer_request *xfer_request_new(struct nxl_xfer_session *session, uint32_t slot)
{
    struct xfer_request *request = nxl_new0(sizeof(*request));
    struct nxl_xfer *xfer = session->xfer;

    request->xfer = xfer;
    request->session = session;
    request->slot = slot;
    request->state = XFER_IDLE;
    request->quiet = 1;
    HASH_ADD(hh, session->requests, slot, sizeof(request->slot), request);
    request->next_all = xfer->all;
    if (xfer->all != NULL)
        xfer->all->prev_all = request;
    xfer->all = request;
    return request;
}

static void timed_remove(struct xfer_request *request)
{
    struct nxl_xfer *xfer = request->xfer;

    if (!request->in_timed)
        return;
    request->in_timed = 0;
    if (request->prev_timed != NULL)
        request->prev_timed->next_timed = request->next_timed;
    else
        xfer->timed = request->next_timed;
    if (request->next_timed != NULL)
        request->next_timed->prev_timed = request->prev_timed;
    request->prev_timed = request->next_timed = NULL;
}

void xfer_request_timed(struct xfer_request *request)
{
    struct nxl_xfer *xfer = request->xfer;

    if (request->in_timed)
        return;
    request->in_timed = 1;
    request->next_timed = xfer->timed;
    if (xfer->timed != NULL)
        xfer->timed->prev_timed = request;
    xfer->timed = request;
    xfer_tick_needed(xfer);
}

void xfer_request_plan_free(struct xfer_request *request)
{
    struct nxl_catalog *catalog = request->xfer->catalog;

    NXL_ASSERT(!request->holds);
    nxl_plan_free(NXL_TAKE(request->plan));
    free(NXL_TAKE(request->mems));
    free(NXL_TAKE(request->peers));
    free(NXL_TAKE(request->remotes));
    free(NXL_TAKE(request->parts));
    request->part_count = 0;
    if (request->local != NULL)
        nxl_catalog_unref(catalog, NXL_TAKE(request->local));
    if (request->target != NULL)
        nxl_catalog_unref(catalog, NXL_TAKE(request->target));
}

static void request_free(struct xfer_request *request)
{
    struct nxl_xfer *xfer = request->xfer;

    NXL_ASSERT(request->quiet && request->state != XFER_RUNNING);
    timed_remove(request);
    xfer_request_plan_free(request);
    if (request->prev_all != NULL)
        request->prev_all->next_all = request->next_all;
    else
        xfer->all = request->next_all;
    if (request->next_all != NULL)
        request->next_all->prev_all = request->prev_all;
    free(request->notice);
    free(request->text);
    free(request);
}

static void slot_write(struct xfer_request *request)
{
    struct nxl_xfer_session *session = request->session;
    uint8_t state = NXL_RING_FAILED;
    struct nxl_xfer_slot update;

    if (session == NULL || request->released)
        return;
    if (request->code == NXL_OK)
        state = NXL_RING_DONE;
    else if (request->code == NXL_CANCELED)
        state = NXL_RING_CANCELLED;
    update = (struct nxl_xfer_slot){
        .generation = request->generation,
        .state = state,
        .quiet = (uint8_t)request->quiet,
        .backend = request->plan != NULL ? (uint8_t)(request->plan->instance + 1) : 0,
        .path = (uint8_t)request->path,
        .protocol = request->plan != NULL ? (uint8_t)request->plan->protocol : 0,
        .device = request->device[0] != '\0' ? request->device : NULL,
        .code = request->code,
        .bytes = request->bytes,
        .id = request->id,
        .started_ns = request->started_ns,
        .ended_ns = request->ended_ns,
        .descriptors = request->plan != NULL ? (uint32_t)request->plan->descriptors : 0,
        .pieces = request->plan != NULL ? request->plan->piece_count : 0,
    };
    session->front->slot(session->front_arg, request->slot, &update);
}

static int regions_lost(struct nxl_catalog_region *const *regions, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (xfer_region_lost(regions[i]))
            return 1;
    return 0;
}

static void report_keep(struct xfer_request *request)
{
    struct nxl_xfer *xfer = request->xfer;
    struct xfer_report *report = &xfer->reports[xfer->report_count++ % NXL_COUNT_OF(xfer->reports)];

    memset(report, 0, sizeof(*report));
    report->id = request->id;
    report->bytes = request->bytes;
    report->started_ns = request->started_ns;
    report->ended_ns = request->ended_ns;
    report->code = request->code;
    report->op = request->op;
    report->path = request->path;
    (void)nxl_copy_text(report->device, sizeof(report->device), request->device);
    if (request->plan != NULL) {
        report->descriptors = (uint32_t)request->plan->descriptors;
        report->pieces = request->plan->piece_count;
        report->protocol = request->plan->protocol;
        (void)nxl_copy_text(report->backend, sizeof(report->backend),
                            nxl_instance_name(nxl_hosts_at(xfer->hosts, request->plan->instance)));
    }
    if (request->local != NULL)
        (void)nxl_copy_text(report->local, sizeof(report->local), request->local->name);
    if (request->target != NULL)
        (void)nxl_copy_text(report->target, sizeof(report->target), request->target->name);
    if (request->text != NULL)
        (void)nxl_copy_text(report->text, sizeof(report->text), request->text);
}

static void count_done(struct xfer_request *request)
{
    struct xfer_metrics *m = &request->xfer->metrics;
    uint64_t us = (request->ended_ns - request->started_ns) / NXL_US;
    int write = request->op == NXL_WRITE;

    nxl_metric_add(write ? m->bytes_tx : m->bytes_rx, request->bytes);
    nxl_metric_set(write ? m->last_tx : m->last_rx, (int64_t)request->bytes);
    nxl_metric_add(m->transfers[request->op], 1);
    nxl_metric_add(m->xfer_time_total, us);
    nxl_metric_set(m->xfer_time, (int64_t)us);
    nxl_metric_observe(m->xfer_time_hist, us);
    nxl_metric_add(m->descriptors, request->plan->descriptors);
    nxl_metric_add(m->pieces, request->plan->piece_count);
    xfer_path_count(request);
}

/* One structured line per failure: who, where, how far, how long (C-015, C-109). */
static void failure_log(const struct xfer_request *request)
{
    if (request->code == NXL_CANCELED || request->code == NXL_STALE) {
        nxl_debug("transfer", "event=ended id=%llu code=%s why=%s", (unsigned long long)request->id,
                  nxl_code_word(request->code), nxl_quote(request->text));
        return;
    }
    nxl_warn("transfer",
             "event=failed id=%llu op=%s local=%s target=%s backend=%s device=%s code=%s os=%d "
             "bytes=%llu elapsed_us=%llu quiet=%d why=%s",
             (unsigned long long)request->id, request->op == NXL_WRITE ? "write" : "read",
             request->local != NULL ? nxl_quote(xfer_show(request->local)) : "none",
             request->target != NULL ? nxl_quote(xfer_show(request->target)) : "none",
             request->plan != NULL
                 ? nxl_instance_name(nxl_hosts_at(request->xfer->hosts, request->plan->instance))
                 : "none",
             request->device[0] != '\0' ? request->device : "none", nxl_code_word(request->code),
             request->os, (unsigned long long)request->bytes,
             (unsigned long long)((request->ended_ns - request->started_ns) / NXL_US),
             request->quiet, nxl_quote(request->text != NULL ? request->text : ""));
}

static void running_count(struct xfer_request *request, int sign)
{
    struct nxl_xfer *xfer = request->xfer;
    uint64_t bytes = request->plan != NULL ? request->plan->bytes : 0;

    nxl_metric_move(xfer->metrics.inflight, sign);
    nxl_metric_move(xfer->metrics.inflight_bytes, sign * (int64_t)bytes);
    if (request->session != NULL) {
        request->session->running += (uint64_t)sign;
        request->session->running_bytes += (uint64_t)sign * bytes;
    }
}

void xfer_request_started(struct xfer_request *request)
{
    running_count(request, 1);
    request->holds = 1;
    for (uint32_t i = 0; i < request->plan->local_count; i++)
        xfer_region_used(request->plan->locals[i]);
    for (uint32_t i = 0; i < request->plan->remote_count; i++)
        xfer_region_used(request->plan->remotes[i]);
}

void xfer_request_end(struct xfer_request *request, enum nxl_code code, int32_t os,
                      const char *text)
{
    struct nxl_xfer *xfer = request->xfer;

    NXL_ASSERT(request->state == XFER_RUNNING);
    if (code == NXL_OK && request->plan != NULL &&
        (regions_lost(request->plan->locals, request->plan->local_count) ||
         (request->target->local &&
          regions_lost(request->plan->remotes, request->plan->remote_count)))) {
        code = NXL_MEMORY_LOST;
        text = "the file behind a region was truncated by its owner during the transfer";
    }
    request->state = XFER_ENDED;
    request->code = code;
    request->os = os;
    request->ended_ns = nxl_now_ns();
    free(NXL_TAKE(request->text));
    if (code != NXL_OK)
        request->text = nxl_strdup(text != NULL ? text : nxl_code_text(code));
    xfer_digest_over(request);
    request->quiet = request->parts_quiet == request->part_count && !request->reading;
    timed_remove(request);
    if (request->holds)
        running_count(request, -1);
    if (code == NXL_OK) {
        count_done(request);
        if (request->has_notice && request->peer != NULL)
            xfer_notice_send(xfer, request->peer, request->target, request->id,
                             (struct nxl_view){request->notice, request->notice_size});
    } else {
        xfer_count_error(xfer, code);
        failure_log(request);
    }
    report_keep(request);
    if (!request->quiet)
        nxl_metric_move(xfer->metrics.unquiet, 1);
    slot_write(request);
    if (request->quiet)
        xfer_request_settle(request);
}

void xfer_request_settle(struct xfer_request *request)
{
    struct nxl_xfer *xfer = request->xfer;

    if (request->state == XFER_RUNNING || request->parts_quiet < request->part_count ||
        request->reading)
        return;
    if (!request->quiet) {
        request->quiet = 1;
        nxl_metric_move(xfer->metrics.unquiet, -1);
        slot_write(request);
    }
    if (request->holds) {
        request->holds = 0;
        for (uint32_t i = 0; i < request->plan->local_count; i++)
            xfer_region_unused(xfer, request->plan->locals[i]);
        for (uint32_t i = 0; i < request->plan->remote_count; i++)
            xfer_region_unused(xfer, request->plan->remotes[i]);
    }
    if (request->released)
        request_free(request);
}

void xfer_request_stop(struct xfer_request *request, enum nxl_code code, const char *why)
{
    int end_now = code != NXL_CANCELED;

    NXL_ASSERT(request->state == XFER_RUNNING);
    request->cancel_asked = 1;
    request->cancel_code = code;
    xfer_dispatch_unwait(request);
    if (request->parts_ended == request->part_count) {
        xfer_request_end(request, code, 0, why);
        return;
    }
    for (uint32_t i = 0; i < request->part_count; i++) {
        if (request->parts[i].state == XFER_PART_SUBMITTED)
            nxl_instance_cancel(nxl_hosts_at(request->xfer->hosts, request->plan->instance),
                                request->parts[i].op.id);
    }
    if (end_now) {
        xfer_request_end(request, code, 0, why);
        return;
    }
    request->cancel_deadline_ns = nxl_now_ns() + request->xfer->limits.cancel_timeout_ns;
    xfer_request_timed(request);
}

void nxl_xfer_cancel(struct nxl_xfer_session *session, uint32_t slot, uint32_t generation)
{
    struct xfer_request *request;

    HASH_FIND(hh, session->requests, &slot, sizeof(slot), request);
    if (request == NULL || request->generation != generation || request->state != XFER_RUNNING ||
        request->cancel_asked)
        return;
    xfer_request_stop(request, NXL_CANCELED, "cancelled by its client");
}

void nxl_xfer_release(struct nxl_xfer_session *session, uint32_t slot)
{
    struct xfer_request *request;

    HASH_FIND(hh, session->requests, &slot, sizeof(slot), request);
    if (request == NULL)
        return;
    HASH_DEL(session->requests, request);
    if (request->state == XFER_RUNNING) /* a client that does not keep to the rules */
        xfer_request_stop(request, NXL_REMOTE_DISCONNECT, "released while it ran");
    request->session = NULL;
    request->released = 1;
    if (request->quiet)
        request_free(request);
}

enum nxl_code nxl_xfer_explain(struct nxl_xfer_session *session, uint32_t slot, struct nxl_err *ret)
{
    struct xfer_request *request;

    HASH_FIND(hh, session->requests, &slot, sizeof(slot), request);
    if (request == NULL || request->text == NULL)
        return nxl_err_set(ret, NXL_NOT_FOUND, 0, "the last transfer of slot %u did not fail",
                           slot);
    ret->code = request->code;
    ret->os = request->os;
    (void)nxl_copy_text(ret->text, sizeof(ret->text), request->text);
    return NXL_OK;
}

void xfer_session_requests_close(struct nxl_xfer_session *session)
{
    struct xfer_request *request, *next;

    HASH_ITER(hh, session->requests, request, next)
    {
        nxl_xfer_release(session, request->slot);
    }
}

void xfer_requests_of_peer_dead(struct nxl_xfer *xfer, struct nxl_catalog_peer *peer,
                                const char *why)
{
    struct xfer_request *request = xfer->all;

    while (request != NULL) {
        struct xfer_request *next = request->next_all;

        if (request->peer != NULL && request->peer->peer == peer)
            request->peer = NULL;
        if (request->state == XFER_RUNNING && (request->target == peer || request->local == peer)) {
            char text[256];

            snprintf(text, sizeof(text), "peer %s is dead: %s", xfer_show(peer), why);
            xfer_request_stop(request, NXL_REMOTE_DISCONNECT, text);
        }
        request = next;
    }
}

void xfer_requests_tick(struct nxl_xfer *xfer, uint64_t now_ns)
{
    struct xfer_request *request = xfer->timed;

    while (request != NULL) {
        struct xfer_request *next = request->next_timed;

        if (request->deadline_ns != 0 && now_ns >= request->deadline_ns) {
            char text[160];

            snprintf(text, sizeof(text), "deadline passed after %llu ms with %llu bytes confirmed",
                     (unsigned long long)((now_ns - request->started_ns) / NXL_MS),
                     (unsigned long long)request->bytes);
            xfer_request_stop(request, NXL_TIMEOUT, text);
        } else if (request->cancel_deadline_ns != 0 && now_ns >= request->cancel_deadline_ns) {
            xfer_request_end(request, NXL_CANCELED, 0,
                             "cancelled; the backend has not answered yet, so bytes may still move "
                             "until it is quiet");
        }
        request = next;
    }
}
