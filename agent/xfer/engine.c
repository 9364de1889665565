/* engine.c - builds the engine, wires it to hosts, links and directory, and keeps its clock tick.
 * Loop thread. */
#include "xfer/engine.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "xfer/options.h"

#define TICK_NS (5 * NXL_MS)
#define DELIVERIES 64
#define CLOSE_NS (10 * NXL_SEC)

static void engine_tick(void *arg)
{
    struct nxl_xfer *xfer = arg;
    uint64_t now;

    /* What already completed must not be failed by its deadline (C-012); one delivery is bounded.
     */
    for (int i = 0; i < DELIVERIES && nxl_hosts_deliver(xfer->hosts) > 0; i++)
        continue;
    now = nxl_now_ns();
    xfer_requests_tick(xfer, now);
    xfer_lookups_tick(xfer, now);
    xfer_fences_tick(xfer, now);
    if (xfer->timed == NULL && xfer->lookups == NULL && xfer->fences == NULL) {
        nxl_timer_stop(xfer->tick);
        xfer->ticking = 0;
    }
}

void xfer_tick_needed(struct nxl_xfer *xfer)
{
    if (xfer->ticking)
        return;
    xfer->ticking = 1;
    nxl_timer_start(xfer->tick, TICK_NS, TICK_NS);
}

void xfer_count_error(struct nxl_xfer *xfer, enum nxl_code code)
{
    char labels[64];

    if (code >= 0)
        return;
    snprintf(labels, sizeof(labels), "status=\"%s\"", nxl_code_word(code));
    nxl_metric_add(nxl_metric_open(xfer->registry, NXL_METRIC_COUNTER, "agent_errors_total",
                                   "Failures by status", labels),
                   1);
}

/* Every NIXL status is there from the start, so that a rate() over it exists before the first one.
 */
static void errors_open(struct nxl_xfer *xfer)
{
    for (int code = NXL_NO_TELEMETRY; code < 0; code++) {
        char labels[64];

        snprintf(labels, sizeof(labels), "status=\"%s\"", nxl_code_word(code));
        nxl_metric_open(xfer->registry, NXL_METRIC_COUNTER, "agent_errors_total",
                        "Failures by status", labels);
    }
}

static void boot_id_read(char *to, size_t room)
{
    char *text = NULL;
    size_t size;
    struct nxl_err err;

    snprintf(to, room, "noboot");
    if (nxl_read_file("/proc/sys/kernel/random/boot_id", 128, &text, &size, &err) != NXL_OK)
        return;
    text[strcspn(text, "\n")] = '\0';
    if (text[0] != '\0')
        (void)nxl_copy_text(to, room, text);
    free(text);
}

enum nxl_code nxl_xfer_open(const struct nxl_xfer_options *options, struct nxl_xfer **ret,
                            struct nxl_err *err)
{
    struct nxl_xfer *xfer = nxl_new0(sizeof(*xfer));

    (void)err;
    xfer->loop = options->loop;
    xfer->registry = options->metrics;
    (void)nxl_copy_text(xfer->cluster, sizeof(xfer->cluster), options->cluster);
    (void)nxl_copy_text(xfer->node, sizeof(xfer->node), options->node);
    (void)nxl_copy_text(xfer->agent, sizeof(xfer->agent), options->agent);
    boot_id_read(xfer->boot, sizeof(xfer->boot));
    snprintf(xfer->life, sizeof(xfer->life), "%016llx", (unsigned long long)nxl_random_u64());
    xfer_options_read(xfer, options->settings);
    xfer_metrics_open(xfer);
    errors_open(xfer);
    xfer->catalog = nxl_catalog_new(xfer_on_life, xfer);
    xfer->tick = nxl_timer_open(xfer->loop, engine_tick, xfer);
    *ret = xfer;
    return NXL_OK;
}

void nxl_xfer_attach(struct nxl_xfer *xfer, struct nxl_hosts *hosts, struct nxl_links *links,
                     struct nxl_directory *directory)
{
    xfer->hosts = hosts;
    xfer->links = links;
    xfer->directory = directory;
    for (struct xfer_agent *agent = xfer->agents; links == NULL && agent != NULL;
         agent = agent->next)
        agent->link = NULL;
}

void nxl_xfer_on_fenced(struct nxl_xfer *xfer, void (*fn)(void *arg), void *arg)
{
    xfer->fenced = fn;
    xfer->fenced_arg = arg;
}

static int remote_peer_remove(void *arg, struct nxl_catalog_peer *peer)
{
    if (peer->local || peer->owner == NULL)
        return 0;
    xfer_far_dead(arg, peer);
    return 1; /* the catalog changed: start again */
}

static int sums_over(void *arg)
{
    return ((const struct nxl_xfer *)arg)->summing == 0;
}

/* Sessions cancelled what ran; their last outcomes come through the hosts. A backend that never
 * answers must not hold the process: then memory is left to the exit. */
static int requests_drain(struct nxl_xfer *xfer)
{
    uint64_t deadline = nxl_now_ns() + CLOSE_NS;

    while ((xfer->all != NULL || xfer->summing > 0) && nxl_now_ns() < deadline) {
        if (xfer->summing > 0)
            (void)nxl_loop_run_until(xfer->loop, sums_over, xfer, NXL_MS);
        if (nxl_hosts_poll(xfer->hosts) == 0)
            sched_yield();
    }
    return xfer->all == NULL && xfer->summing == 0;
}

void nxl_xfer_close(struct nxl_xfer *xfer)
{
    if (xfer == NULL)
        return;
    NXL_ASSERT(xfer->sessions == NULL);
    xfer->closing = 1;
    nxl_timer_close(xfer->tick);
    if (!requests_drain(xfer)) {
        nxl_error("engine",
                  "event=\"backend did not finish its operations, leaving their memory\"");
        return;
    }
    xfer_fences_tick(xfer, UINT64_MAX);
    xfer_hints_free(xfer);
    xfer_notices_free(xfer);
    while (nxl_catalog_each(xfer->catalog, remote_peer_remove, xfer))
        continue;
    xfer_agents_free(xfer);
    nxl_catalog_free(xfer->catalog);
    free(xfer);
}
