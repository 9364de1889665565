/* dead.h - what the catalog remembers of the dead: prefixes, so that a late record of a dead
 * incarnation is refused. Only peer.c includes it. Loop thread. */
#ifndef NXL_CATALOG_DEAD_H
#define NXL_CATALOG_DEAD_H

#include <stdint.h>

#define NXL_DEAD_MAX 65536u

struct nxl_dead;

struct nxl_dead *nxl_dead_new(uint32_t max); /* prefixes kept; the oldest goes first */
void nxl_dead_free(struct nxl_dead *dead);
/* Nothing if a remembered prefix covers it already. */
void nxl_dead_add(struct nxl_dead *dead, const char *prefix);
int nxl_dead_covers(const struct nxl_dead *dead, const char *incarnation);

#endif
