/* regions_leave.c - how registered memory goes: out of the table at once, confirmed by far agents
 * that know it, quiet here, then unpinned and unmapped. A region in between is "leaving". */
#include "xfer/registration.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/guard.h"
#include "base/log.h"
#include "base/mem.h"

enum { LEAVING_NO = 0, LEAVING_ASKED = 1, LEAVING_CONFIRMED = 2 };

void xfer_region_used(struct nxl_catalog_region *region)
{
    region->uses++;
}

void xfer_region_unused(struct nxl_xfer *xfer, struct nxl_catalog_region *region)
{
    NXL_ASSERT(region->uses > 0);
    if (--region->uses > 0 || region->leaving == LEAVING_NO)
        return;
    if (!region->owner->local)
        xfer_far_region_quiet(xfer, region);
    else if (region->leaving == LEAVING_CONFIRMED)
        xfer_region_finish(xfer, region);
}

static void leaving_add(struct xfer_peer *peer, struct nxl_catalog_region *region)
{
    if (peer->leaving_count == peer->leaving_room) {
        peer->leaving_room = peer->leaving_room == 0 ? 16 : peer->leaving_room * 2;
        peer->leaving =
            nxl_resize(peer->leaving, peer->leaving_room, sizeof(struct nxl_catalog_region *));
    }
    region->leaving_pos = peer->leaving_count;
    peer->leaving[peer->leaving_count++] = region;
}

static void leaving_remove(struct xfer_peer *peer, struct nxl_catalog_region *region)
{
    uint32_t pos = region->leaving_pos;

    NXL_ASSERT(pos < peer->leaving_count && peer->leaving[pos] == region);
    peer->leaving[pos] = peer->leaving[--peer->leaving_count];
    peer->leaving[pos]->leaving_pos = pos;
}

static void region_leave(struct xfer_peer *peer, struct nxl_catalog_region *region)
{
    struct nxl_xfer *xfer = peer->session->xfer;

    nxl_region_table_remove(peer->peer->regions, region);
    region->leaving = LEAVING_ASKED;
    leaving_add(peer, region);
    xfer->epoch++;
    nxl_metric_move(xfer->metrics.regions_leaving, 1);
}

void xfer_region_finish(struct nxl_xfer *xfer, struct nxl_catalog_region *region)
{
    struct xfer_peer *peer = region->owner->owner;
    struct nxl_xfer_session *session = peer->session;
    struct xfer_mapping *mapping = region->mapping;

    if (region->leaving != LEAVING_NO) {
        leaving_remove(peer, region);
        nxl_metric_move(xfer->metrics.regions_leaving, -1);
    }
    xfer_region_backends_close(xfer, region);
    session->region_count--;
    session->registered_bytes -= region->len;
    nxl_metric_move(xfer->metrics.regions, -1);
    nxl_metric_add(xfer->metrics.deregistered, region->len);
    nxl_metric_set(xfer->metrics.deregistered_last, (int64_t)region->len);
    nxl_catalog_region_free(region);
    xfer_mapping_unref(session, mapping);
    xfer_peer_settle(peer);
}

static void region_confirmed(struct nxl_xfer *xfer, struct nxl_catalog_region *region)
{
    region->leaving = LEAVING_CONFIRMED;
    if (region->uses == 0)
        xfer_region_finish(xfer, region);
}

static int region_leave_each(void *arg, struct nxl_catalog_region *region)
{
    struct nxl_catalog_region ***at = arg;

    *(*at)++ = region;
    return 0;
}

static void leave_all_fenced(void *arg, int complete)
{
    struct xfer_peer *peer = arg;
    struct nxl_xfer *xfer = peer->session->xfer;

    peer->fenced = 1;
    for (uint32_t i = peer->leaving_count; i-- > 0;) {
        struct nxl_catalog_region *region = peer->leaving[i];

        if (!complete)
            ((struct xfer_mapping *)region->mapping)->doubtful = 1;
        if (region->leaving == LEAVING_ASKED)
            region->leaving = LEAVING_CONFIRMED;
    }
    for (uint32_t i = peer->leaving_count; i-- > 0;) {
        if (i < peer->leaving_count && peer->leaving[i]->uses == 0)
            xfer_region_finish(xfer, peer->leaving[i]); /* the peer stays: see users below */
    }
    peer->users--;
    xfer_peer_settle(peer);
}

struct xfer_fence *xfer_regions_leave_all(struct xfer_peer *peer)
{
    struct nxl_xfer *xfer = peer->session->xfer;
    uint32_t count = nxl_region_table_count(peer->peer->regions);
    NXL_CLEANUP(nxl_freep)
    struct nxl_catalog_region **all =
        nxl_new0_array(count + 1, sizeof(struct nxl_catalog_region *));
    struct nxl_catalog_region **at = all;

    nxl_region_table_each(peer->peer->regions, region_leave_each, &at);
    for (uint32_t i = 0; i < count; i++)
        region_leave(peer, all[i]);
    peer->users++; /* until fenced */
    return xfer_fence_open(xfer, xfer->limits.fence_timeout_ns, leave_all_fenced, peer);
}

/* ---- deregistration on request -------------------------------------------------------------- */

struct exit_job {
    struct xfer_peer *peer;
    uint64_t *ids;
    uint8_t *done;
    uint32_t count;
    enum nxl_code code;
    struct nxl_err err;
    nxl_xfer_deregistered_fn *fn;
    void *arg;
};

static void job_code(struct exit_job *job, enum nxl_code code, const char *why, uint64_t id)
{
    if (job->code == NXL_OK)
        job->code = nxl_err_set(&job->err, code, 0, "region %llu %s", (unsigned long long)id, why);
}

static struct nxl_catalog_region *leaving_find(struct xfer_peer *peer, uint64_t id)
{
    for (uint32_t i = 0; i < peer->leaving_count; i++)
        if (peer->leaving[i]->id == id)
            return peer->leaving[i];
    return NULL;
}

static void job_finish(void *arg, int complete)
{
    struct exit_job *job = arg;
    struct xfer_peer *peer = job->peer;
    struct nxl_xfer *xfer = peer->session->xfer;

    for (uint32_t i = 0; i < job->count; i++) {
        struct nxl_catalog_region *region =
            job->done[i] == 2 ? leaving_find(peer, job->ids[i]) : NULL;

        if (job->done[i] != 2)
            continue;
        job->done[i] = 0;
        if (region == NULL) {
            job->done[i] = 1; /* gone meanwhile with its peer */
        } else if (complete || region->leaving == LEAVING_CONFIRMED) {
            region_confirmed(xfer, region);
            job->done[i] = 1;
        } else {
            job_code(
                job, NXL_BUSY,
                "is out of use here, but a far agent that knows it has not confirmed; ask again",
                job->ids[i]);
        }
    }
    if (!peer->session->closed) /* also when the peer was closed meanwhile: the caller waits */
        job->fn(job->arg, job->done, job->count, job->code, &job->err);
    peer->users--;
    xfer_peer_settle(peer);
    free(job->ids);
    free(job->done);
    free(job);
}

/* Decides what may leave; returns how many far agents have to be told of. */
static uint32_t job_begin(struct exit_job *job, uint64_t *ret_leaving)
{
    struct xfer_peer *peer = job->peer;
    uint32_t leaving = 0;

    for (uint32_t i = 0; i < job->count; i++) {
        struct nxl_catalog_region *region =
            nxl_region_table_by_id(peer->peer->regions, job->ids[i]);

        if (region != NULL && region->uses > 0) {
            job_code(job, NXL_BUSY,
                     "is used by a transfer that is not quiet; wait for it or cancel it",
                     job->ids[i]);
            continue;
        }
        if (region != NULL)
            region_leave(peer, region);
        else
            region = leaving_find(peer, job->ids[i]);
        if (region == NULL) {
            job_code(job, NXL_NOT_FOUND, "is not registered by this peer", job->ids[i]);
            continue;
        }
        job->done[i] = 2;
        ret_leaving[leaving++] = job->ids[i];
    }
    return leaving;
}

void nxl_xfer_deregister(struct nxl_xfer_session *session, uint32_t peer_id, const uint64_t *ids,
                         uint32_t count, uint64_t timeout_ns, nxl_xfer_deregistered_fn *fn,
                         void *arg)
{
    struct nxl_err err = {0};
    struct xfer_peer *peer = xfer_peer_find(session, peer_id, &err);
    NXL_CLEANUP(nxl_freep) uint64_t *leaving = nxl_new0_array(count + 1, sizeof(*leaving));
    struct exit_job *job;
    struct xfer_fence *fence;
    uint32_t told;

    if (peer == NULL) {
        NXL_CLEANUP(nxl_freep) uint8_t *none = nxl_new0_array(count + 1, 1);

        fn(arg, none, count, NXL_NOT_FOUND, &err);
        return;
    }
    job = nxl_new0(sizeof(*job));
    job->peer = peer;
    job->fn = fn;
    job->arg = arg;
    job->count = count;
    job->ids = nxl_new0_array(count + 1, sizeof(*ids));
    job->done = nxl_new0_array(count + 1, 1);
    if (count > 0) /* ids may be NULL then */
        memcpy(job->ids, ids, count * sizeof(*ids));
    peer->users++;
    told = job_begin(job, leaving);
    fence = xfer_fence_open(session->xfer, timeout_ns, job_finish, job);
    if (told > 0) {
        peer->peer->revision = ++session->xfer->next_sequence;
        xfer_tell_regions_gone(peer, leaving, told, fence);
    }
    xfer_fence_arm(fence);
}

int xfer_region_lost(struct nxl_catalog_region *region)
{
    const struct xfer_mapping *mapping = region->mapping;

    if (region->lost || mapping == NULL || !nxl_guard_lost(mapping->guard))
        return region->lost;
    region->lost = 1;
    return 1;
}
