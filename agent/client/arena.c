/* arena.c - two-level segregated fit over the arena area of the ring. Called with the ring lock. */
#include "client/arena.h"

#include <string.h>

#define GRAIN 16u     /* sizes, offsets and tags */
#define BLOCK_MIN 32u /* tag and links */
#define FREE 1u
#define LAST 2u

struct tag {
    uint64_t size;   /* of the block with its tag; FREE and LAST in the low bits */
    uint64_t before; /* size of the block in front; 0: the first */
};
struct links { /* behind the tag of a free block: offsets + 1 */
    uint64_t next, prev;
};

static struct tag *tag_at(struct nxl_arena *arena, uint64_t at)
{
    return (struct tag *)(void *)(arena->base + at);
}

static struct links *links_at(struct nxl_arena *arena, uint64_t at)
{
    return (struct links *)(void *)(arena->base + at + sizeof(struct tag));
}

static uint64_t tag_size(const struct tag *tag)
{
    return tag->size & ~(uint64_t)(GRAIN - 1);
}

/* Row: power of two; column: eighth of it. Blocks of a class are at least its lower bound. */
static void class_of(uint64_t size, unsigned *row, unsigned *column)
{
    unsigned high = 63u - (unsigned)__builtin_clzll(size);

    *row = high - 5 < NXL_ARENA_ROWS ? high - 5 : NXL_ARENA_ROWS - 1;
    *column = (unsigned)(size >> (high - 3)) & 7u;
}

static void block_insert(struct nxl_arena *arena, uint64_t at)
{
    struct links *links = links_at(arena, at);
    unsigned row, column;

    class_of(tag_size(tag_at(arena, at)), &row, &column);
    links->prev = 0;
    links->next = arena->heads[row][column];
    if (links->next)
        links_at(arena, links->next - 1)->prev = at + 1;
    arena->heads[row][column] = at + 1;
    arena->columns[row] |= (uint8_t)(1u << column);
    arena->rows |= 1ull << row;
    tag_at(arena, at)->size |= FREE;
}

static void block_remove(struct nxl_arena *arena, uint64_t at)
{
    struct links *links = links_at(arena, at);
    unsigned row, column;

    class_of(tag_size(tag_at(arena, at)), &row, &column);
    if (links->next)
        links_at(arena, links->next - 1)->prev = links->prev;
    if (links->prev)
        links_at(arena, links->prev - 1)->next = links->next;
    else
        arena->heads[row][column] = links->next;
    if (!arena->heads[row][column]) {
        arena->columns[row] &= (uint8_t) ~(1u << column);
        if (!arena->columns[row])
            arena->rows &= ~(1ull << row);
    }
    tag_at(arena, at)->size &= ~(uint64_t)FREE;
}

void nxl_arena_init(struct nxl_arena *arena, void *base, uint64_t size)
{
    memset(arena, 0, sizeof(*arena));
    arena->base = base;
    arena->size = size & ~(uint64_t)(GRAIN - 1);
    if (arena->size < BLOCK_MIN)
        return;
    *tag_at(arena, 0) = (struct tag){.size = arena->size | LAST};
    block_insert(arena, 0);
}

/* The first free block of a class whose every block is large enough; 0 with *ret unset: none. */
static int block_find(const struct nxl_arena *arena, uint64_t size, uint64_t *ret)
{
    unsigned row, column;
    uint64_t rows;
    unsigned columns;

    /* Rounded up to the next class, so that no list has to be searched. */
    size += (1ull << (63u - (unsigned)__builtin_clzll(size) - 3)) - 1;
    class_of(size, &row, &column);
    columns = arena->columns[row] & (0xffu << column);
    if (!columns) {
        rows = row + 1 < 64 ? arena->rows & (~0ull << (row + 1)) : 0;
        if (!rows)
            return 0;
        row = (unsigned)__builtin_ctzll(rows);
        columns = arena->columns[row];
    }
    column = (unsigned)__builtin_ctz(columns);
    *ret = arena->heads[row][column] - 1;
    return 1;
}

/* The class search skips blocks of the request's own class: worth a look when all else failed. */
static int block_find_exact(struct nxl_arena *arena, uint64_t size, uint64_t *ret)
{
    unsigned row, column;
    uint64_t at;

    class_of(size, &row, &column);
    at = arena->heads[row][column];
    for (int tries = 0; at && tries < 16; tries++) {
        if (tag_size(tag_at(arena, at - 1)) >= size) {
            *ret = at - 1;
            return 1;
        }
        at = links_at(arena, at - 1)->next;
    }
    return 0;
}

enum nxl_code nxl_arena_take(struct nxl_arena *arena, uint64_t size, uint64_t *ret)
{
    struct tag *tag;
    uint64_t at, whole, rest;

    if (size > arena->size)
        return NXL_LIMIT;
    size = (size + sizeof(*tag) + GRAIN - 1) & ~(uint64_t)(GRAIN - 1);
    if (size < BLOCK_MIN)
        size = BLOCK_MIN;
    if (!block_find(arena, size, &at) && !block_find_exact(arena, size, &at))
        return NXL_LIMIT;
    block_remove(arena, at);
    tag = tag_at(arena, at);
    whole = tag_size(tag);
    rest = whole - size;
    if (rest >= BLOCK_MIN) {
        struct tag *next = tag_at(arena, at + size);

        *next = (struct tag){.size = rest | (tag->size & LAST), .before = size};
        if (!(next->size & LAST))
            tag_at(arena, at + whole)->before = rest;
        tag->size = size;
        block_insert(arena, at + size);
    }
    arena->used += tag_size(tag);
    *ret = at + sizeof(*tag);
    return NXL_OK;
}

void nxl_arena_give(struct nxl_arena *arena, uint64_t offset)
{
    uint64_t at = offset - sizeof(struct tag);
    struct tag *tag = tag_at(arena, at);

    arena->used -= tag_size(tag);
    if (!(tag->size & LAST)) {
        uint64_t next = at + tag_size(tag);

        if (tag_at(arena, next)->size & FREE) {
            block_remove(arena, next);
            tag->size = (tag_size(tag) + tag_size(tag_at(arena, next))) |
                        (tag_at(arena, next)->size & LAST);
        }
    }
    if (tag->before && tag_at(arena, at - tag->before)->size & FREE) {
        uint64_t front = at - tag->before;

        block_remove(arena, front);
        tag_at(arena, front)->size =
            (tag_size(tag_at(arena, front)) + tag_size(tag)) | (tag->size & LAST);
        at = front;
        tag = tag_at(arena, at);
    }
    if (!(tag->size & LAST))
        tag_at(arena, at + tag_size(tag))->before = tag_size(tag);
    block_insert(arena, at);
}
