/* merge.c - walks two lists in step and joins what lies together on both sides. Called by plan.c;
 * pure. Costs per run where it can, else a few comparisons per pair, and no allocation per pair. */
#include "plan/merge.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/mem.h"
#include "catalog/list.h"
#include "catalog/peer.h"

struct cursor { /* one side of the walk */
    const char *name;
    const struct nxl_catalog_list *list;
    const uint32_t *index; /* NULL: descriptors in order */
    struct nxl_merge_side *side;
    uint32_t hint;
    const struct nxl_list_run *run; /* of the pair looked at */
    uint64_t at;                    /* its descriptor within the run */
};

struct walk {
    const struct nxl_plan_request *request;
    struct nxl_merge *merge;
    struct cursor local, remote;
    struct nxl_piece open; /* grows as long as neighbours come; count 0: none */
};

void nxl_merge_fini(struct nxl_merge *merge)
{
    free(merge->local.used);
    free(merge->local.map);
    free(merge->remote.used);
    free(merge->remote.map);
    free(merge->pieces);
    *merge = (struct nxl_merge){0};
}

struct nxl_piece *nxl_merge_slot(struct nxl_merge *merge)
{
    if (merge->count == merge->room) {
        merge->room = merge->room > 0 ? merge->room * 2 : 64;
        merge->pieces = nxl_resize(merge->pieces, merge->room, sizeof(*merge->pieces));
    }
    return &merge->pieces[merge->count++];
}

/* ---- joining ------------------------------------------------------------------------------- */

static int same_shape(const struct nxl_piece *a, const struct nxl_piece *b)
{
    return a->local == b->local && a->remote == b->remote && a->len == b->len &&
           a->local_offset < b->local_offset && a->remote_offset < b->remote_offset;
}

static int is_step(uint64_t distance, uint64_t stride, uint32_t count)
{
    uint64_t expected;

    return !__builtin_mul_overflow(stride, (uint64_t)count, &expected) && distance == expected;
}

/* Makes piece the next rows of the one before, or the third single row at equal distances on both
 * sides. Two alone stay apart: any two are a "stride", and it would say nothing. */
static int rows_join(struct nxl_merge *merge, const struct nxl_piece *piece)
{
    struct nxl_piece *last = merge->count > 0 ? &merge->pieces[merge->count - 1] : NULL;
    struct nxl_piece *before = merge->count > 1 ? last - 1 : NULL;
    uint64_t local, remote;

    if (last == NULL || !same_shape(last, piece) ||
        (uint64_t)last->count + piece->count > UINT32_MAX)
        return 0;
    local = piece->local_offset - last->local_offset;
    remote = piece->remote_offset - last->remote_offset;
    if (piece->count > 1 && last->count == 1) {
        if (local != piece->local_stride || remote != piece->remote_stride)
            return 0;
        last->local_stride = local;
        last->remote_stride = remote;
        last->count += piece->count;
        return 1;
    }
    if (last->count > 1) {
        if (!is_step(local, last->local_stride, last->count) ||
            !is_step(remote, last->remote_stride, last->count) ||
            (piece->count > 1 && (piece->local_stride != last->local_stride ||
                                  piece->remote_stride != last->remote_stride)))
            return 0;
        last->count += piece->count;
        return 1;
    }
    if (before == NULL || before->count > 1 || !same_shape(before, last) || local < piece->len ||
        remote < piece->len || last->local_offset - before->local_offset != local ||
        last->remote_offset - before->remote_offset != remote)
        return 0;
    before->local_stride = local;
    before->remote_stride = remote;
    before->count = 3;
    merge->count--;
    return 1;
}

static void open_close(struct walk *walk)
{
    if (walk->open.count > 0 && (walk->request->no_merge || !rows_join(walk->merge, &walk->open)))
        *nxl_merge_slot(walk->merge) = walk->open;
    walk->open.count = 0;
}

/* Grows the open piece if piece touches it at the same end on both sides. */
static int open_grow(struct nxl_piece *open, const struct nxl_piece *piece)
{
    if (open->count != 1 || piece->count != 1 || open->local != piece->local ||
        open->remote != piece->remote)
        return 0;
    if (piece->local_offset == open->local_offset + open->len &&
        piece->remote_offset == open->remote_offset + open->len) {
        open->len += piece->len;
    } else if (piece->local_offset + piece->len == open->local_offset &&
               piece->remote_offset + piece->len == open->remote_offset) {
        open->local_offset = piece->local_offset;
        open->remote_offset = piece->remote_offset;
        open->len += piece->len;
    } else {
        return 0;
    }
    open->local_stride = open->remote_stride = open->len;
    return 1;
}

static void piece_add(struct walk *walk, struct nxl_piece *piece)
{
    if (walk->request->no_merge) {
        open_close(walk);
        walk->open = *piece;
        return;
    }
    if (piece->count > 1 && piece->local_stride == piece->len &&
        piece->remote_stride == piece->len) {
        piece->len *= piece->count; /* inside one region, so it cannot overflow */
        piece->local_stride = piece->remote_stride = piece->len;
        piece->count = 1;
    }
    if (open_grow(&walk->open, piece))
        return;
    open_close(walk);
    walk->open = *piece;
}

/* ---- walking ------------------------------------------------------------------------------- */

static uint64_t index_of(const struct cursor *cursor, uint64_t pair)
{
    return cursor->index != NULL ? cursor->index[pair] : pair;
}

static enum nxl_code cursor_seek(struct cursor *cursor, uint64_t pair, struct nxl_err *err)
{
    uint64_t index = index_of(cursor, pair);

    if (index >= cursor->list->size)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "pair %" PRIu64 ": %s index %" PRIu64 " is beyond its list of %" PRIu64
                           " descriptors",
                           pair, cursor->name, index, cursor->list->size);
    cursor->run = nxl_catalog_list_at(cursor->list, index, &cursor->hint);
    cursor->at = index - cursor->run->first;
    return NXL_OK;
}

static enum nxl_code region_use(struct cursor *cursor, uint64_t pair, uint32_t *ret_place,
                                struct nxl_err *err)
{
    uint32_t *place = &cursor->side->map[cursor->run->region_index];
    struct nxl_catalog_region *region = cursor->run->region;

    if (*place == 0) {
        if (region->lost)
            return nxl_err_set(err, NXL_MEMORY_LOST, 0,
                               "pair %" PRIu64 ": the memory behind %s region %" PRIu64
                               " [0x%" PRIx64 ", 0x%" PRIx64
                               ") of peer '%.80s' was taken away; register it again",
                               pair, cursor->name, region->id, region->addr,
                               region->addr + region->len, cursor->list->peer->name);
        cursor->side->used[cursor->side->used_count++] = region;
        *place = cursor->side->used_count;
    }
    *ret_place = *place - 1;
    return NXL_OK;
}

/* How many pairs from here on step through both runs side by side. */
static uint64_t pairs_together(const struct walk *walk, uint64_t pair)
{
    const struct cursor *local = &walk->local, *remote = &walk->remote;
    uint64_t most = walk->request->count - pair, together = 1;

    if (local->run->count - local->at < most)
        most = local->run->count - local->at;
    if (remote->run->count - remote->at < most)
        most = remote->run->count - remote->at;
    if (local->index == NULL && remote->index == NULL)
        return most;
    while (together < most &&
           index_of(local, pair + together) == index_of(local, pair) + together &&
           index_of(remote, pair + together) == index_of(remote, pair) + together)
        together++;
    return together;
}

static uint64_t offset_of(const struct cursor *cursor)
{
    return cursor->run->offset + cursor->at * cursor->run->stride;
}

static enum nxl_code pairs_add(struct walk *walk, uint64_t pair, uint64_t together,
                               struct nxl_err *err)
{
    const struct nxl_list_run *local = walk->local.run, *remote = walk->remote.run;
    struct nxl_piece piece = {.local_offset = offset_of(&walk->local),
                              .remote_offset = offset_of(&walk->remote),
                              .len = local->len,
                              .local_stride = together > 1 ? local->stride : local->len,
                              .remote_stride = together > 1 ? remote->stride : remote->len,
                              .count = (uint32_t)together};
    enum nxl_code code;

    if (local->len != remote->len)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "pair %" PRIu64 ": local is %" PRIu64 " bytes at 0x%" PRIx64
                           ", remote %" PRIu64 " bytes at 0x%" PRIx64 "; the lengths must be equal",
                           pair, local->len, local->region->addr + piece.local_offset, remote->len,
                           remote->region->addr + piece.remote_offset);
    if (piece.len == 0)
        return NXL_OK; /* nothing to move */
    code = region_use(&walk->local, pair, &piece.local, err);
    if (code == NXL_OK)
        code = region_use(&walk->remote, pair, &piece.remote, err);
    if (code != NXL_OK)
        return code;
    /* together pieces fit into a region without overlap, so the product is sound; the sum may not
     * be. */
    if (__builtin_add_overflow(walk->merge->bytes, piece.len * together, &walk->merge->bytes))
        return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "pair %" PRIu64 ": the sum of all lengths overflows", pair);
    piece_add(walk, &piece);
    return NXL_OK;
}

/* A transfer without a byte still ends, and may carry a notice: it gets one piece of length 0, so
 * that nobody behind the planner meets an operation without pieces. */
static enum nxl_code nothing_add(struct walk *walk, struct nxl_err *err)
{
    struct nxl_piece piece = {.count = 1};
    enum nxl_code code = cursor_seek(&walk->local, 0, err);

    if (code == NXL_OK)
        code = cursor_seek(&walk->remote, 0, err);
    if (code == NXL_OK)
        code = region_use(&walk->local, 0, &piece.local, err);
    if (code == NXL_OK)
        code = region_use(&walk->remote, 0, &piece.remote, err);
    if (code != NXL_OK)
        return code;
    piece.local_offset = offset_of(&walk->local);
    piece.remote_offset = offset_of(&walk->remote);
    *nxl_merge_slot(walk->merge) = piece;
    return NXL_OK;
}

static struct cursor cursor_of(const char *name, const struct nxl_catalog_list *list,
                               const uint32_t *index, struct nxl_merge_side *side)
{
    side->map = nxl_new0_array((size_t)list->region_count + 1, sizeof(*side->map));
    side->used =
        nxl_new0_array((size_t)list->region_count + 1, sizeof(struct nxl_catalog_region *));
    return (struct cursor){.name = name, .list = list, .index = index, .side = side};
}

static void sums(struct nxl_merge *merge)
{
    for (uint32_t i = 0; i < merge->count; i++) {
        merge->rows += merge->pieces[i].count;
        if (merge->pieces[i].len > merge->longest)
            merge->longest = merge->pieces[i].len;
    }
}

enum nxl_code nxl_merge_pairs(const struct nxl_plan_request *request, struct nxl_merge *merge,
                              struct nxl_err *err)
{
    struct walk walk = {.request = request, .merge = merge};
    uint64_t together;

    walk.local = cursor_of("local", request->local, request->local_index, &merge->local);
    walk.remote = cursor_of("remote", request->remote, request->remote_index, &merge->remote);
    for (uint64_t pair = 0; pair < request->count; pair += together) {
        enum nxl_code code = cursor_seek(&walk.local, pair, err);

        if (code == NXL_OK)
            code = cursor_seek(&walk.remote, pair, err);
        if (code != NXL_OK)
            return code;
        together = pairs_together(&walk, pair);
        code = pairs_add(&walk, pair, together, err);
        if (code != NXL_OK)
            return code;
        if (merge->count > NXL_PLAN_PIECES_MAX)
            return nxl_err_set(err, NXL_LIMIT, 0,
                               "pair %" PRIu64
                               ": more than %u pieces after merging; transfer less at once",
                               pair, NXL_PLAN_PIECES_MAX);
    }
    open_close(&walk);
    if (merge->bytes == 0) {
        enum nxl_code code = nothing_add(&walk, err);

        if (code != NXL_OK)
            return code;
    }
    sums(merge);
    return NXL_OK;
}
