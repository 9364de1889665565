/* region.c - registered memory of one peer: a tree by place, a hash by id. Called by xfer, cluster
 * and plan on the loop thread. */
#include "catalog/region.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/mem.h"
#include "catalog/region_tree.h"

struct nxl_region_table {
    struct nxl_region_node *root;
    struct nxl_region_node *by_id;
    struct nxl_region_node *last; /* found last; right again as long as nothing overlaps */
    uint32_t overlapping;         /* while 0, no two regions of one kind and device overlap */
    uint64_t changes;
};

struct nxl_catalog_region *nxl_catalog_region_new(struct nxl_catalog_peer *owner, uint64_t id,
                                                  uint64_t addr, uint64_t len, uint32_t kind,
                                                  uint32_t device)
{
    struct nxl_catalog_region *region = nxl_new0(sizeof(*region));

    region->owner = owner;
    region->id = id;
    region->addr = addr;
    region->len = len;
    region->kind = kind;
    region->device = device;
    return region;
}

void nxl_catalog_region_free(struct nxl_catalog_region *region)
{
    if (region == NULL)
        return;
    NXL_ASSERT(region->node == NULL && region->uses == 0);
    for (uint32_t i = 0; i < NXL_BACKENDS_MAX; i++) {
        NXL_ASSERT(region->mems[i] == NULL && region->remotes[i] == NULL);
        free((void *)(uintptr_t)region->keys[i].data);
    }
    free(region);
}

struct nxl_region_table *nxl_region_table_new(void)
{
    return nxl_new0(sizeof(struct nxl_region_table));
}

void nxl_region_table_free(struct nxl_region_table *table)
{
    if (table == NULL)
        return;
    NXL_ASSERT(table->root == NULL);
    free(table);
}

static struct nxl_region_query query_of(uint64_t addr, uint64_t len, uint32_t kind, uint32_t device)
{
    return (struct nxl_region_query){
        .addr = addr, .end = addr + len, .kind = kind, .device = device};
}

enum nxl_code nxl_region_table_add(struct nxl_region_table *table,
                                   struct nxl_catalog_region *region, struct nxl_err *err)
{
    struct nxl_region_query query =
        query_of(region->addr, region->len, region->kind, region->device);
    struct nxl_region_node *node;

    if (region->len == 0)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "region at 0x%" PRIx64 " has length 0",
                           region->addr);
    if (region->len > UINT64_MAX - region->addr)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "region at 0x%" PRIx64 " with %" PRIu64
                           " bytes reaches beyond the address space",
                           region->addr, region->len);
    if (nxl_region_table_by_id(table, region->id) != NULL)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "region id %" PRIu64 " is taken", region->id);
    NXL_ASSERT(region->node == NULL);
    node = nxl_new0(sizeof(*node));
    node->region = region;
    node->id = region->id;
    node->addr = query.addr;
    node->end = query.end;
    node->kind = region->kind;
    node->device = region->device;
    node->overlapping = nxl_region_tree_overlaps(table->root, &query);
    table->overlapping += (uint32_t)node->overlapping;
    table->root = nxl_region_tree_insert(table->root, node);
    HASH_ADD(hh, table->by_id, id, sizeof(node->id), node);
    region->node = node;
    table->changes++;
    return NXL_OK;
}

void nxl_region_table_remove(struct nxl_region_table *table, struct nxl_catalog_region *region)
{
    struct nxl_region_node *node = region->node;

    NXL_ASSERT(node != NULL && nxl_region_table_by_id(table, region->id) == region);
    if (table->last == node)
        table->last = NULL;
    table->overlapping -= (uint32_t)node->overlapping;
    table->root = nxl_region_tree_remove(table->root, node);
    HASH_DEL(table->by_id, node);
    region->node = NULL;
    free(node);
    table->changes++;
}

struct nxl_catalog_region *nxl_region_table_by_id(const struct nxl_region_table *table, uint64_t id)
{
    struct nxl_region_node *node;

    HASH_FIND(hh, table->by_id, &id, sizeof(id), node);
    return node != NULL ? node->region : NULL;
}

static int node_covers(const struct nxl_region_node *node, const struct nxl_region_query *query)
{
    return node != NULL && node->addr <= query->addr && node->end >= query->end &&
           node->kind == query->kind && node->device == query->device &&
           (query->accept == NULL || query->accept(query->accept_arg, node->region));
}

/* Only one region can cover a range if none overlap, and mostly it is the last one again. Of a zero
 * length two neighbours may be right, so that is always searched for. */
static struct nxl_region_node *table_cover(struct nxl_region_table *table,
                                           const struct nxl_region_query *query)
{
    struct nxl_region_node *node;

    if (table->overlapping > 0 || query->end == query->addr)
        return nxl_region_tree_cover(table->root, query);
    if (node_covers(table->last, query))
        return table->last;
    node = nxl_region_tree_floor(table->root, query);
    return node_covers(node, query) ? node : NULL;
}

struct nxl_catalog_region *nxl_region_table_find_if(struct nxl_region_table *table, uint64_t addr,
                                                    uint64_t len, uint32_t kind, uint32_t device,
                                                    nxl_region_accept_fn *accept, void *arg)
{
    struct nxl_region_query query = query_of(addr, len, kind, device);
    struct nxl_region_node *node;

    if (len > UINT64_MAX - addr)
        return NULL;
    query.accept = accept;
    query.accept_arg = arg;
    node = table_cover(table, &query);
    if (node == NULL)
        return NULL;
    table->last = node;
    return node->region;
}

struct nxl_catalog_region *nxl_region_table_find(struct nxl_region_table *table, uint64_t addr,
                                                 uint64_t len, uint32_t kind, uint32_t device)
{
    return nxl_region_table_find_if(table, addr, len, kind, device, NULL, NULL);
}

struct nxl_catalog_region *nxl_region_table_exact(struct nxl_region_table *table, uint64_t addr,
                                                  uint64_t len, uint32_t kind, uint32_t device)
{
    struct nxl_region_query query = query_of(addr, len, kind, device);
    struct nxl_region_node *node;

    if (len > UINT64_MAX - addr)
        return NULL;
    node = nxl_region_tree_exact(table->root, &query);
    return node != NULL ? node->region : NULL;
}

static void nearest_say(const struct nxl_region_node *node, uint64_t bytes, const char *how,
                        char *to, size_t room)
{
    snprintf(to, room,
             "nearest region %" PRIu64 " is [0x%" PRIx64 ", 0x%" PRIx64 "), %" PRIu64 " bytes %s",
             node->id, node->addr, node->end, bytes, how);
}

void nxl_region_table_nearest(struct nxl_region_table *table, uint64_t addr, uint64_t len,
                              uint32_t kind, uint32_t device, char *to, size_t room)
{
    uint64_t end = len > UINT64_MAX - addr ? UINT64_MAX : addr + len;
    struct nxl_region_query query = query_of(addr, 0, kind, device);
    const struct nxl_region_node *below = nxl_region_tree_below(table->root, &query);
    const struct nxl_region_node *above = nxl_region_tree_above(table->root, &query);

    if (below == NULL && above == NULL) {
        if (table->root == NULL)
            snprintf(to, room, "there is no region");
        else
            snprintf(to, room, "there is no region of memory kind %u, device %u, only %u of others",
                     kind, device, nxl_region_table_count(table));
        return;
    }
    if (below != NULL && below->end > addr) /* it starts inside: the end is what is wrong */
        nearest_say(below, end > below->end ? end - below->end : 0, "too short", to, room);
    else if (above == NULL || (below != NULL && addr - below->end <= above->addr - addr))
        nearest_say(below, addr - below->end, "further down", to, room);
    else
        nearest_say(above, above->addr - addr, "further up", to, room);
}

uint32_t nxl_region_table_count(const struct nxl_region_table *table)
{
    return HASH_COUNT(table->by_id);
}

uint64_t nxl_region_table_changes(const struct nxl_region_table *table)
{
    return table->changes;
}

int nxl_region_table_each(struct nxl_region_table *table, nxl_region_each_fn *fn, void *arg)
{
    return nxl_region_tree_each(table->root, fn, arg);
}
