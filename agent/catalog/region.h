/* region.h - registered memory of one peer, ours or a remote one: geometry, generation, users.
 * Loop thread. Look-up is right under overlap, nesting, adjacency and zero length. */
#ifndef NXL_CATALOG_REGION_H
#define NXL_CATALOG_REGION_H

#include <nxl/backend.h>
#include <nxl/err.h>

struct nxl_catalog_peer;
struct nxl_region_node;
struct nxl_region_table; /* the regions of one peer */

struct nxl_catalog_region {
    uint64_t id; /* chosen by the owning agent, never reused there */
    uint64_t addr, len;
    uint32_t kind, device;
    struct nxl_catalog_peer *owner;
    uint32_t uses; /* transfers that may still touch it */
    int leaving;   /* out of the table; freed by its last user */
    int lost;      /* the memory behind it was taken away */
    /* Local regions: the agent's mapping of it. Remote: NULL. */
    unsigned char *base;
    void *mapping; /* xfer/registration's */
    /* By instance index. Local: registered or NULL. Remote: imported so far or NULL. */
    struct nxl_backend_mem *mems[NXL_BACKENDS_MAX];
    struct nxl_backend_remote *remotes[NXL_BACKENDS_MAX];
    /* Remote: the keys as they came, owned; data NULL where that backend has none. */
    struct nxl_view keys[NXL_BACKENDS_MAX];
    struct nxl_region_node *node; /* region.c's; NULL: in no table */
    uint32_t leaving_pos;         /* xfer/regions_leave.c's */
};

/* Zeroed, with id, geometry and owner set. Given to nxl_catalog_region_free(), which frees keys but
 * asserts that no backend still holds it. */
struct nxl_catalog_region *nxl_catalog_region_new(struct nxl_catalog_peer *owner, uint64_t id,
                                                  uint64_t addr, uint64_t len, uint32_t kind,
                                                  uint32_t device);
void nxl_catalog_region_free(struct nxl_catalog_region *region);

struct nxl_region_table *nxl_region_table_new(void);
void nxl_region_table_free(struct nxl_region_table *table); /* must be empty */
/* Borrows region until remove. The same range may come again: entries are told apart by id.
 * NXL_INVALID_PARAM: zero length, addr + len overflows, or the id is taken. */
NXL_MUST_USE enum nxl_code nxl_region_table_add(struct nxl_region_table *table,
                                                struct nxl_catalog_region *region,
                                                struct nxl_err *err);
void nxl_region_table_remove(struct nxl_region_table *table, struct nxl_catalog_region *region);
struct nxl_catalog_region *nxl_region_table_by_id(const struct nxl_region_table *table,
                                                  uint64_t id);
/* The region that covers [addr, addr + len) whole; of several the smallest, then the newest id.
 * len 0: one that contains addr or ends at it. Overflow covers nothing. O(log n); where dozens
 * overlap in steps, one of the covering ones, always the same, maybe not the smallest
 * (region_tree.h). */
struct nxl_catalog_region *nxl_region_table_find(struct nxl_region_table *table, uint64_t addr,
                                                 uint64_t len, uint32_t kind, uint32_t device);
/* The same, among regions that accept(arg, region) lets through (partial metadata). accept may be
 * NULL. */
typedef int nxl_region_accept_fn(void *arg, const struct nxl_catalog_region *region);
struct nxl_catalog_region *nxl_region_table_find_if(struct nxl_region_table *table, uint64_t addr,
                                                    uint64_t len, uint32_t kind, uint32_t device,
                                                    nxl_region_accept_fn *accept, void *arg);
/* Exact match of range, kind and device, newest id first; NULL if none. */
struct nxl_catalog_region *nxl_region_table_exact(struct nxl_region_table *table, uint64_t addr,
                                                  uint64_t len, uint32_t kind, uint32_t device);
/* Sentence for an error: "nearest region 7 is [0x..., 0x...), 4096 bytes further up"; "there is no
 * region". */
void nxl_region_table_nearest(struct nxl_region_table *table, uint64_t addr, uint64_t len,
                              uint32_t kind, uint32_t device, char *to, size_t room);
uint32_t nxl_region_table_count(const struct nxl_region_table *table);
/* Moves with every add and remove: while it stands still, what was resolved before is still right.
 */
uint64_t nxl_region_table_changes(const struct nxl_region_table *table);
/* In order of kind, device, address; stops when fn returns non-zero and returns that. fn must not
 * change the table. */
typedef int nxl_region_each_fn(void *arg, struct nxl_catalog_region *region);
int nxl_region_table_each(struct nxl_region_table *table, nxl_region_each_fn *fn, void *arg);

#endif
