/* fence.c - waiting for far agents to confirm that nothing of theirs touches our memory any more.
 * A fence counts confirmations; what was said is kept and said again after a reconnect, because a
 * message on a broken link is lost. Loop thread. */
#include "xfer/engine.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/mem.h"

struct xfer_fence {
    struct nxl_xfer *xfer;
    xfer_fence_fn *fn;
    void *arg;
    uint32_t waiting;
    int armed;
    uint64_t opened_ns, deadline_ns;
    struct xfer_fence *next, **link;
};

struct xfer_fence *xfer_fence_open(struct nxl_xfer *xfer, uint64_t timeout_ns, xfer_fence_fn *fn,
                                   void *arg)
{
    struct xfer_fence *fence = nxl_new0(sizeof(*fence));
    uint64_t now = nxl_now_ns();

    fence->xfer = xfer;
    fence->fn = fn;
    fence->arg = arg;
    fence->opened_ns = now;
    fence->deadline_ns = timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + timeout_ns;
    fence->next = xfer->fences;
    fence->link = &xfer->fences;
    if (fence->next != NULL)
        fence->next->link = &fence->next;
    xfer->fences = fence;
    xfer_tick_needed(xfer);
    return fence;
}

static void fence_unlink(struct xfer_fence *fence)
{
    *fence->link = fence->next;
    if (fence->next != NULL)
        fence->next->link = fence->link;
}

static void awaits_forget(struct xfer_fence *fence)
{
    for (struct xfer_agent *agent = fence->xfer->agents; agent != NULL; agent = agent->next) {
        for (struct xfer_await **at = &agent->awaits; *at != NULL;) {
            struct xfer_await *await = *at;

            if (await->fence != fence) {
                at = &await->next;
                continue;
            }
            *at = await->next;
            free(await->ids);
            free(await);
        }
    }
}

static void fence_finish(struct xfer_fence *fence, int complete)
{
    xfer_fence_fn *fn = fence->fn;
    void *arg = fence->arg;

    if (!complete)
        awaits_forget(fence);
    nxl_metric_observe(fence->xfer->metrics.fence_us, (nxl_now_ns() - fence->opened_ns) / NXL_US);
    fence_unlink(fence);
    free(fence);
    fn(arg, complete);
}

void xfer_fence_await(struct xfer_fence *fence, struct xfer_agent *agent, uint64_t sequence,
                      int is_fact, const char *incarnation, const uint64_t *ids, uint32_t id_count)
{
    struct xfer_await *await = nxl_new0(sizeof(*await));

    NXL_ASSERT(id_count <= NXL_MESSAGE_REGIONS_MAX);
    await->sequence = sequence;
    await->fence = fence;
    await->is_fact = is_fact;
    (void)nxl_copy_text(await->incarnation, sizeof(await->incarnation), incarnation);
    if (id_count > 0) {
        await->ids = nxl_new0_array(id_count, sizeof(*ids));
        memcpy(await->ids, ids, id_count * sizeof(*ids));
        await->id_count = id_count;
    }
    await->next = agent->awaits;
    agent->awaits = await;
    fence->waiting++;
}

void xfer_fence_arm(struct xfer_fence *fence)
{
    fence->armed = 1;
    if (fence->waiting == 0)
        fence_finish(fence, 1);
}

void xfer_fence_drop(struct xfer_fence *fence)
{
    awaits_forget(fence);
    fence_unlink(fence);
    free(fence);
}

static void await_done(struct xfer_await *await)
{
    struct xfer_fence *fence = await->fence;

    free(await->ids);
    free(await);
    if (--fence->waiting == 0 && fence->armed)
        fence_finish(fence, 1);
}

void xfer_fence_confirmed(struct xfer_agent *agent, uint64_t sequence)
{
    for (struct xfer_await **at = &agent->awaits; *at != NULL; at = &(*at)->next) {
        struct xfer_await *await = *at;

        if (await->sequence != sequence)
            continue;
        *at = await->next;
        await_done(await);
        return;
    }
}

void xfer_fence_agent_gone(struct xfer_agent *agent)
{
    while (agent->awaits != NULL) {
        struct xfer_await *await = agent->awaits;

        agent->awaits = await->next;
        await_done(await);
    }
}

void xfer_fence_resend(struct xfer_agent *agent)
{
    for (struct xfer_await *await = agent->awaits; await != NULL; await = await->next) {
        struct nxl_message message = {.sequence = await->sequence,
                                      .incarnation = await->incarnation};
        struct nxl_err err;

        if (await->is_fact) {
            message.type = NXL_MESSAGE_FACT;
            message.life = NXL_LIFE_DEAD;
            message.text = "said again after a reconnect";
        } else {
            message.type = NXL_MESSAGE_REGION_GONE;
            message.revision = await->sequence;
            message.ids = await->ids;
            message.id_count = await->id_count;
        }
        if (xfer_agent_say(agent, &message, &err) != NXL_OK)
            return; /* down again; the next reconnect says it again */
    }
}

void xfer_fences_tick(struct nxl_xfer *xfer, uint64_t now_ns)
{
    struct xfer_fence *fence = xfer->fences;

    while (fence != NULL) {
        struct xfer_fence *next = fence->next;

        if (fence->armed && now_ns >= fence->deadline_ns) {
            nxl_debug("fence", "event=\"far agents did not confirm in time\" waiting=%u",
                      fence->waiting);
            fence_finish(fence, 0);
            next = xfer->fences; /* fn may have changed the list: start over, the finished one is
                                    gone */
        }
        fence = next;
    }
}
