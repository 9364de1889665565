/* split.c - cuts merged pieces to what a backend takes: its longest piece, and rows one by one if
 * it knows no strides. Called by plan.c; pure. */
#include "plan/merge.h"

#include <stdlib.h>

#include "base/assert.h"

static uint64_t cuts_of(uint64_t len, uint64_t len_max)
{
    return len_max == 0 ? 1 : len / len_max + (len % len_max != 0);
}

static int strided(const struct nxl_backend_caps *caps)
{
    return (caps->flags & NXL_CAP_STRIDED) != 0;
}

uint64_t nxl_split_count(const struct nxl_merge *merge, const struct nxl_backend_caps *caps)
{
    uint64_t total = 0;

    if (cuts_of(merge->longest, caps->piece_len_max) <= 1)
        return strided(caps) ? merge->count : merge->rows;
    for (uint32_t i = 0; i < merge->count; i++) {
        const struct nxl_piece *piece = &merge->pieces[i];
        uint64_t pieces = cuts_of(piece->len, caps->piece_len_max);

        /* A sum that is too great stays so: the planner refuses it long before. */
        if ((!strided(caps) && __builtin_mul_overflow(pieces, (uint64_t)piece->count, &pieces)) ||
            __builtin_add_overflow(total, pieces, &total))
            return UINT64_MAX;
    }
    return total;
}

/* Rows of a piece are cut alike, so that cut k of all rows is a strided piece again. */
static void piece_cut(struct nxl_merge *to, const struct nxl_piece *piece,
                      const struct nxl_backend_caps *caps)
{
    uint64_t len_max = caps->piece_len_max > 0 ? caps->piece_len_max : piece->len;
    uint32_t rows = strided(caps) ? 1 : piece->count;

    for (uint32_t row = 0; row < rows; row++) {
        for (uint64_t at = 0; at < piece->len; at += len_max) {
            struct nxl_piece cut = *piece;

            cut.local_offset += row * piece->local_stride + at;
            cut.remote_offset += row * piece->remote_stride + at;
            cut.len = piece->len - at < len_max ? piece->len - at : len_max;
            if (!strided(caps) || piece->count == 1) {
                cut.count = 1;
                cut.local_stride = cut.remote_stride = cut.len;
            }
            *nxl_merge_slot(to) = cut;
            if (piece->len - at <= len_max)
                break; /* at + len_max might overflow */
        }
    }
}

void nxl_split_pieces(struct nxl_merge *merge, const struct nxl_backend_caps *caps)
{
    uint64_t count = nxl_split_count(merge, caps);
    struct nxl_merge cut = {0};

    NXL_ASSERT(count <= UINT32_MAX / 2);
    if (count == merge->count)
        return;
    for (uint32_t i = 0; i < merge->count; i++)
        piece_cut(&cut, &merge->pieces[i], caps);
    NXL_ASSERT(cut.count == count);
    free(merge->pieces);
    merge->pieces = cut.pieces;
    merge->count = cut.count;
    merge->room = cut.room;
}
