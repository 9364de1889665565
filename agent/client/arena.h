/* arena.h - blocks of the session's arena: two-level segregated fit with boundary tags, O(1).
 * The tags lie in front of the blocks, in memory that only this process writes. Not locked. */
#ifndef NXL_CLIENT_ARENA_H
#define NXL_CLIENT_ARENA_H

#include <nxl/err.h>
#include <nxl/types.h>

#define NXL_ARENA_ROWS 40u
#define NXL_ARENA_COLUMNS 8u

struct nxl_arena {
    unsigned char *base;
    uint64_t size; /* bytes that blocks may use */
    uint64_t used; /* bytes of blocks in use, tags included */
    uint64_t rows; /* bit r: row r has a free block */
    uint8_t columns[NXL_ARENA_ROWS];
    uint64_t heads[NXL_ARENA_ROWS][NXL_ARENA_COLUMNS]; /* offset + 1 of the first; 0: none */
};

void nxl_arena_init(struct nxl_arena *arena, void *base, uint64_t size); /* borrows base */
/* *ret: offset of size bytes, a multiple of 16. NXL_LIMIT: no block that large is free. */
NXL_MUST_USE enum nxl_code nxl_arena_take(struct nxl_arena *arena, uint64_t size, uint64_t *ret);
void nxl_arena_give(struct nxl_arena *arena, uint64_t offset); /* from nxl_arena_take() */

#endif
