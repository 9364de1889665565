/* list.h - a prepared descriptor list: runs resolved to regions, addressed by descriptor index.
 * Loop thread. Immutable once sealed; holds its peer, not its regions: users check `stale`. */
#ifndef NXL_CATALOG_LIST_H
#define NXL_CATALOG_LIST_H

#include "catalog/region.h"

struct nxl_list_run {
    struct nxl_catalog_region *region;
    uint64_t region_id;
    uint64_t offset; /* of piece 0 in the region */
    uint64_t len, stride;
    uint64_t first; /* descriptor index of piece 0 */
    uint32_t count;
    uint32_t region_index; /* of region in list->regions */
};

struct nxl_list_region { /* each region once, in order of first use */
    struct nxl_catalog_region *region;
    uint64_t id;
};

struct nxl_list_memo; /* list.c's: when the list was last found fresh */

struct nxl_catalog_list {
    struct nxl_catalog_peer *peer;
    uint32_t kind;
    struct nxl_list_run *runs;
    uint32_t run_count, run_room;
    uint64_t size;  /* descriptors */
    uint64_t bytes; /* sum */
    struct nxl_list_region *regions;
    uint32_t region_count, region_room;
    uint32_t *slots; /* hash of regions by id: index + 1, 0 free */
    uint32_t slot_count;
    double density; /* runs per descriptor: where to look first */
    struct nxl_list_memo *memo;
};

struct nxl_catalog_list *nxl_catalog_list_new(struct nxl_catalog_peer *peer,
                                              uint32_t kind); /* borrows peer */
void nxl_catalog_list_free(struct nxl_catalog_list *list);
/* Resolves and appends; neighbours with equal stride are joined; a run whose pieces lie in several
 * regions is split between pieces. NXL_NOT_FOUND: err names descriptor index, address, length, peer
 * and the nearest region; nothing is appended. NXL_INVALID_PARAM: count 0, overflow, stride < len
 * with count > 1. */
NXL_MUST_USE enum nxl_code nxl_catalog_list_append(struct nxl_catalog_list *list,
                                                   const struct nxl_run *runs, uint32_t count,
                                                   nxl_region_accept_fn *accept, void *accept_arg,
                                                   struct nxl_err *err);
/* The run that holds descriptor index; index < size. hint: run looked at last, for sequential use.
 */
const struct nxl_list_run *nxl_catalog_list_at(const struct nxl_catalog_list *list, uint64_t index,
                                               uint32_t *hint);
/* 1 if every region of the list is still the one it was resolved to (by id, in the peer's table).
 * As long as that table did not change this is one comparison; other regions may come and go. Stale
 * is for ever. */
int nxl_catalog_list_fresh(const struct nxl_catalog_list *list);

#endif
