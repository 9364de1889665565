/* describe.c - the engine's state as JSON for people, and the bytes-by-path counters. Loop thread.
 */
#include "xfer/request.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#include "base/bytes.h"

#define ROWS_MAX 10000 /* of one answer; `truncated` says when there were more */

static const char *const path_names[] = {"none", "tcp", "staged", "rdma", "shared", "one-copy"};
static const char *const protocol_names[] = {"none", "direct", "staged", "local"};
static const char *const life_names[] = {"live", "draining", "dead"};
static const char *const honesty_names[] = {"real", "device", "protocol", "stub", "compiled"};

static const char *name_of(const char *const *names, size_t count, uint64_t index)
{
    return index < count ? names[index] : "?";
}
#define NAME_OF(names, index) name_of(names, sizeof(names) / sizeof((names)[0]), index)

static struct nxl_metric *path_metric(struct nxl_xfer *xfer, const struct xfer_request *request)
{
    const char *backend = nxl_instance_name(nxl_hosts_at(xfer->hosts, request->plan->instance));
    char labels[160], device[48];

    snprintf(labels, sizeof(labels), "backend=\"%s\",path=\"%s\",device=\"%s\",op=\"%s\"", backend,
             NAME_OF(path_names, request->path),
             nxl_metric_label(device, sizeof(device), request->device),
             request->op == NXL_WRITE ? "write" : "read");
    return nxl_metric_open(xfer->registry, NXL_METRIC_COUNTER, "nixlet_path_bytes_total",
                           "Bytes moved by backend, path class, device and direction", labels);
}

/* Every transfer passes here: its series is found by comparing, not by writing labels. */
void xfer_path_count(struct xfer_request *request)
{
    struct nxl_xfer *xfer = request->xfer;
    struct xfer_path *path = NULL;

    for (uint32_t i = 0; i < xfer->path_count && path == NULL; i++) {
        struct xfer_path *at = &xfer->paths[i];

        if (at->instance == request->plan->instance && at->path == request->path &&
            at->op == (uint32_t)request->op && strcmp(at->device, request->device) == 0)
            path = at;
    }
    if (path == NULL) { /* beyond the table the last row is used again and again */
        path = &xfer->paths[xfer->path_count < NXL_COUNT_OF(xfer->paths)
                                ? xfer->path_count++
                                : NXL_COUNT_OF(xfer->paths) - 1];
        *path = (struct xfer_path){.instance = request->plan->instance,
                                   .path = request->path,
                                   .op = (uint32_t)request->op,
                                   .metric = path_metric(xfer, request)};
        (void)nxl_copy_text(path->device, sizeof(path->device), request->device);
    }
    nxl_metric_add(path->metric, request->bytes);
}

static json_t *peer_json(const struct nxl_catalog_peer *peer)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:b, s:s, s:b, s:I}", "namespace", peer->ns, "name",
                     peer->name, "incarnation", peer->incarnation, "node", peer->node, "agent",
                     peer->agent, "local", peer->local, "life", NAME_OF(life_names, peer->life),
                     "suspect", peer->suspect, "regions",
                     (json_int_t)nxl_region_table_count(peer->regions));
}

static int peer_add(void *arg, struct nxl_catalog_peer *peer)
{
    json_array_append_new(arg, peer_json(peer));
    return json_array_size(arg) >= ROWS_MAX;
}

struct region_scan {
    json_t *rows;
    const struct nxl_xfer *xfer;
};

static int region_add(void *arg, struct nxl_catalog_region *region)
{
    struct region_scan *scan = arg;
    json_t *backends = json_array();
    char addr[24];

    for (uint32_t i = 0; i < nxl_hosts_count(scan->xfer->hosts); i++) {
        if (region->mems[i] != NULL || region->keys[i].data != NULL)
            json_array_append_new(
                backends, json_string(nxl_instance_name(nxl_hosts_at(scan->xfer->hosts, i))));
    }
    snprintf(addr, sizeof(addr), "0x%llx", (unsigned long long)region->addr);
    json_array_append_new(
        scan->rows,
        json_pack("{s:I, s:s, s:s, s:s, s:I, s:s, s:i, s:s, s:I, s:b, s:o}", "id",
                  (json_int_t)region->id, "peer", region->owner->name, "incarnation",
                  region->owner->incarnation, "address", addr, "length", (json_int_t)region->len,
                  "kind", "DRAM", "device", (int)region->device, "rung",
                  region->owner->local ? "shared-fd" : "remote", "users", (json_int_t)region->uses,
                  "lost", region->lost, "backends", backends));
    return json_array_size(scan->rows) >= ROWS_MAX;
}

static int peer_regions_add(void *arg, struct nxl_catalog_peer *peer)
{
    return nxl_region_table_each(peer->regions, region_add, arg);
}

static json_t *running_json(const struct xfer_request *request)
{
    const char *backend =
        nxl_instance_name(nxl_hosts_at(request->xfer->hosts, request->plan->instance));

    return json_pack(
        "{s:I, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:b}", "id",
        (json_int_t)request->id, "state", request->state == XFER_RUNNING ? "running" : "unquiet",
        "op", request->op == NXL_WRITE ? "write" : "read", "local", request->local->name, "target",
        request->target->name, "backend", backend, "protocol",
        NAME_OF(protocol_names, request->plan->protocol), "bytes", (json_int_t)request->plan->bytes,
        "descriptors", (json_int_t)request->plan->descriptors, "pieces",
        (json_int_t)request->plan->piece_count, "age_us",
        (json_int_t)((nxl_now_ns() - request->started_ns) / NXL_US), "quiet", request->quiet);
}

static json_t *report_json(const struct xfer_report *r)
{
    uint64_t ns = r->ended_ns - r->started_ns;

    return json_pack(
        "{s:I, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:f, s:s}", "id",
        (json_int_t)r->id, "state", "ended", "code", nxl_code_word(r->code), "op",
        r->op == NXL_WRITE ? "write" : "read", "local", r->local, "target", r->target, "backend",
        r->backend, "protocol", NAME_OF(protocol_names, r->protocol), "path",
        NAME_OF(path_names, r->path), "device", r->device, "bytes", (json_int_t)r->bytes,
        "descriptors", (json_int_t)r->descriptors, "pieces", (json_int_t)r->pieces, "duration_us",
        (json_int_t)(ns / NXL_US), "gb_per_s", ns == 0 ? 0.0 : (double)r->bytes / (double)ns, "why",
        r->text);
}

static json_t *transfers_json(struct nxl_xfer *xfer)
{
    const uint64_t room = sizeof(xfer->reports) / sizeof(xfer->reports[0]);
    uint64_t kept = xfer->report_count < room ? xfer->report_count : room;
    json_t *rows = json_array();

    for (struct xfer_request *r = xfer->all; r != NULL && json_array_size(rows) < ROWS_MAX;
         r = r->next_all) {
        if (r->plan != NULL && r->local != NULL && (r->state == XFER_RUNNING || !r->quiet))
            json_array_append_new(rows, running_json(r));
    }
    for (uint64_t i = 0; i < kept; i++) /* newest first */
        json_array_append_new(rows,
                              report_json(&xfer->reports[(xfer->report_count - 1 - i) % room]));
    return rows;
}

static json_t *backends_json(struct nxl_xfer *xfer)
{
    json_t *rows = json_array();
    const char *reason, *name;

    for (uint32_t i = 0; i < nxl_hosts_count(xfer->hosts); i++) {
        struct nxl_instance *instance = nxl_hosts_at(xfer->hosts, i);
        const struct nxl_backend_caps *caps = nxl_instance_caps(instance);

        json_array_append_new(rows, json_pack("{s:s, s:s, s:s, s:b, s:b, s:s, s:s, s:I}", "name",
                                              nxl_instance_name(instance), "state", "ready",
                                              "about", nxl_instance_ops(instance)->about, "local",
                                              (caps->flags & NXL_CAP_LOCAL) != 0, "remote",
                                              (caps->flags & NXL_CAP_REMOTE) != 0, "best_path",
                                              NAME_OF(path_names, (uint64_t)caps->path), "honesty",
                                              NAME_OF(honesty_names, caps->honesty), "running",
                                              (json_int_t)nxl_instance_inflight(instance)));
    }
    for (uint32_t i = 0; (name = nxl_hosts_refused(xfer->hosts, i, &reason)) != NULL; i++)
        json_array_append_new(
            rows, json_pack("{s:s, s:s, s:s}", "name", name, "state", "refused", "why", reason));
    return rows;
}

void nxl_xfer_describe(struct nxl_xfer *xfer, const char *what, struct nxl_bytes *to)
{
    json_t *rows = NULL, *root;
    char *text;

    if (strcmp(what, "transfers") == 0) {
        rows = transfers_json(xfer);
    } else if (strcmp(what, "backends") == 0) {
        rows = backends_json(xfer);
    } else if (strcmp(what, "regions") == 0) {
        struct region_scan scan = {json_array(), xfer};

        rows = scan.rows;
        nxl_catalog_each(xfer->catalog, peer_regions_add, &scan);
    } else {
        rows = json_array();
        nxl_catalog_each(xfer->catalog, peer_add, rows);
    }
    root = json_pack("{s:s, s:s, s:b, s:o}", "agent", xfer->agent, "node", xfer->node, "truncated",
                     json_array_size(rows) >= ROWS_MAX, what, rows);
    text = json_dumps(root, JSON_COMPACT);
    nxl_bytes_put(to, text, strlen(text));
    free(text);
    json_decref(root);
}
