/* region_tree.h - balanced tree over the regions of one peer, ordered by kind, device and address,
 * every node knowing how far its subtree reaches. Only region.c includes it. */
#ifndef NXL_CATALOG_REGION_TREE_H
#define NXL_CATALOG_REGION_TREE_H

#include <uthash.h>

#include "catalog/region.h"

struct nxl_region_node {
    struct nxl_catalog_region *region;
    uint64_t addr, end;
    uint64_t reach; /* greatest end below and here, whatever the kind and device */
    struct nxl_region_node *left, *right;
    uint32_t kind, device;
    int height;
    int overlapping; /* it overlapped another one when it came */
    uint64_t id;
    UT_hash_handle hh; /* by id */
};

/* Nodes looked at in one search for cover, once one is found and before: piles of overlapping
 * regions must not stall the loop. */
#define NXL_REGION_LOOKS 64
#define NXL_REGION_LOOKS_FILTERED 1024

struct nxl_region_query {
    uint64_t addr, end;
    uint32_t kind, device;
    nxl_region_accept_fn *accept; /* may be NULL */
    void *accept_arg;
};

struct nxl_region_node *nxl_region_tree_insert(struct nxl_region_node *root,
                                               struct nxl_region_node *node);
struct nxl_region_node *nxl_region_tree_remove(struct nxl_region_node *root,
                                               const struct nxl_region_node *node);
/* The smallest, then newest that covers the query whole, within the looks. */
struct nxl_region_node *nxl_region_tree_cover(struct nxl_region_node *root,
                                              const struct nxl_region_query *query);
/* The last one that starts at query->addr or below; where nothing overlaps only it can cover. */
struct nxl_region_node *nxl_region_tree_floor(struct nxl_region_node *root,
                                              const struct nxl_region_query *query);
struct nxl_region_node *nxl_region_tree_exact(struct nxl_region_node *root,
                                              const struct nxl_region_query *query);
int nxl_region_tree_overlaps(const struct nxl_region_node *root,
                             const struct nxl_region_query *query);
/* Of those that start at query->addr or below: the one that ends last. */
const struct nxl_region_node *nxl_region_tree_below(const struct nxl_region_node *root,
                                                    const struct nxl_region_query *query);
/* The first that starts above query->addr. */
const struct nxl_region_node *nxl_region_tree_above(const struct nxl_region_node *root,
                                                    const struct nxl_region_query *query);
int nxl_region_tree_each(struct nxl_region_node *root, nxl_region_each_fn *fn, void *arg);

#endif
