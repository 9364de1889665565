/* copy.c - cuts an operation in chunks and copies them. Any thread; no lock of its own. */
#include "shm.h"

#include <stdio.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define PREFETCH_LEN_MAX 16384u /* longer rows keep the hardware prefetcher busy by themselves */
#define PREFETCH_LINES 16u      /* of a row's head; the hardware goes on from there */
#define PREFETCH_BYTES 4096u    /* how far ahead: several short rows, one long one */
#define PREFETCH_ROWS 16u
#define STREAM_ROW_MIN 1024u /* shorter rows gain nothing from going past the caches */
#define LINE 64u

/* Source and destination of a piece; checked by piece_check() before. */
struct shm_ends {
    const unsigned char *from;
    unsigned char *to;
    uint64_t from_stride, to_stride;
};

static struct shm_ends piece_ends(const struct nxl_op *op, const struct nxl_piece *piece)
{
    unsigned char *local = op->locals[piece->local]->base + piece->local_offset;
    unsigned char *remote = op->peers[piece->remote]->base + piece->remote_offset;

    if (op->kind == NXL_READ)
        return (struct shm_ends){remote, local, piece->remote_stride, piece->local_stride};
    return (struct shm_ends){local, remote, piece->local_stride, piece->remote_stride};
}

static int rows_fit(const struct nxl_backend_mem *mem, uint64_t offset, uint64_t stride,
                    uint64_t len, uint32_t count)
{
    if (len > mem->size || offset > mem->size - len)
        return 0;
    return count <= 1 || stride <= (mem->size - len - offset) / (count - 1);
}

static int piece_check(struct shm_op *record, uint32_t index)
{
    const struct nxl_op *op = record->op;
    const struct nxl_piece *piece = &op->pieces[index];

    if (piece->local >= op->local_count || piece->remote >= op->remote_count || piece->count == 0)
        snprintf(record->text, sizeof(record->text), "piece %u names region %u of %u and %u of %u",
                 index, piece->local, op->local_count, piece->remote, op->remote_count);
    else if (!rows_fit(op->locals[piece->local], piece->local_offset, piece->local_stride,
                       piece->len, piece->count))
        snprintf(record->text, sizeof(record->text), "piece %u leaves its local region", index);
    else if (!rows_fit(op->peers[piece->remote], piece->remote_offset, piece->remote_stride,
                       piece->len, piece->count))
        snprintf(record->text, sizeof(record->text), "piece %u leaves its remote region", index);
    else
        return 0;
    record->code = NXL_INVALID_PARAM;
    return -1;
}

static int overlap(const unsigned char *a, const unsigned char *b, uint64_t len)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;

    return x < y ? y - x < len : x - y < len;
}

int shm_cursor_at_end(const struct shm_op *op)
{
    return op->cursor.piece >= op->op->piece_count;
}

/* A row whose ends overlap is never cut: its halves would read what the other one wrote. */
static int row_is_whole(const struct nxl_op *op, const struct nxl_piece *piece, uint32_t row)
{
    struct shm_ends ends = piece_ends(op, piece);

    return overlap(ends.from + row * ends.from_stride, ends.to + row * ends.to_stride, piece->len);
}

int shm_chunk_take(struct shm_op *record, uint64_t room)
{
    const struct nxl_op *op = record->op;
    struct shm_cursor at = record->cursor;
    uint32_t rows_left = SHM_CHUNK_ROWS;

    if (at.piece >= op->piece_count)
        return 0;
    while (at.piece < op->piece_count && room > 0 && rows_left > 0) {
        const struct nxl_piece *piece = &op->pieces[at.piece];
        uint64_t left_in_row;

        if (at.row == 0 && at.offset == 0 && piece_check(record, at.piece) != 0)
            return -1;
        left_in_row = piece->len - at.offset;
        if (left_in_row > room && !row_is_whole(op, piece, at.row)) {
            at.offset += room;
            break;
        }
        room -= left_in_row < room ? left_in_row : room;
        rows_left--;
        at.offset = 0;
        at.row++;
        if (at.row == piece->count)
            at = (struct shm_cursor){at.piece + 1, 0, 0};
    }
    record->cursor = at;
    return 1;
}

#if defined(__SSE2__)
/* Writes whole lines past the caches, as memcpy does for one large block; a scattered block list of
 * the same size deserves the same. Needs a fence before others may read. */
static void copy_streaming(unsigned char *to, const unsigned char *from, uint64_t len)
{
    uint64_t head = (uint64_t)(-(uintptr_t)to) & (LINE - 1);

    if (len < STREAM_ROW_MIN) {
        memcpy(to, from, len);
        return;
    }
    memcpy(to, from, head);
    to += head, from += head, len -= head;
    for (; len >= LINE; to += LINE, from += LINE, len -= LINE) {
        const __m128i *source = (const __m128i *)(const void *)from;
        __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
        __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
        __m128i *target = (__m128i *)(void *)to;

        _mm_stream_si128(target, a);
        _mm_stream_si128(target + 1, b);
        _mm_stream_si128(target + 2, c);
        _mm_stream_si128(target + 3, d);
    }
    memcpy(to, from, len);
}

static void streaming_fence(void)
{
    _mm_sfence();
}
#else
static void copy_streaming(unsigned char *to, const unsigned char *from, uint64_t len)
{
    memcpy(to, from, len);
}

static void streaming_fence(void)
{
}
#endif

static void copy_row(const struct shm_op *record, unsigned char *to, const unsigned char *from,
                     uint64_t len)
{
    if (len == 0)
        return;
    if (overlap(from, to, len))
        memmove(to, from, len);
    else if (record->streaming)
        copy_streaming(to, from, len);
    else
        memcpy(to, from, len);
}

static void cursor_next_row(const struct nxl_op *op, struct shm_cursor *at)
{
    at->offset = 0;
    at->row++;
    if (at->row == op->pieces[at->piece].count)
        *at = (struct shm_cursor){at->piece + 1, 0, 0};
}

static int cursor_before(struct shm_cursor at, struct shm_cursor to)
{
    return at.piece < to.piece || (at.piece == to.piece && at.row < to.row);
}

/* Touches the heads of the rows that come next while this one is copied: short rows at random
 * places are bound by the time of the first access, not by bytes. */
static void prefetch_row(const struct shm_op *record, struct shm_cursor at)
{
    const struct nxl_piece *piece = &record->op->pieces[at.piece];
    struct shm_ends ends = piece_ends(record->op, piece);
    const unsigned char *from = ends.from + at.row * ends.from_stride;
    const unsigned char *to = ends.to + at.row * ends.to_stride;
    int streamed = record->streaming && piece->len >= STREAM_ROW_MIN;

    if (piece->len > PREFETCH_LEN_MAX)
        return;
    for (uint32_t line = 0; line < PREFETCH_LINES && line * LINE < piece->len; line++)
        __builtin_prefetch(from + line * LINE, 0);
    /* Streaming stores want no line in a cache; one is touched for its page's translation. */
    for (uint32_t line = 0; line < (streamed ? 1 : PREFETCH_LINES) && line * LINE < piece->len;
         line++)
        __builtin_prefetch(to + line * LINE, 1);
}

uint64_t shm_chunk_copy(const struct shm_op *record, struct shm_cursor from, struct shm_cursor to)
{
    const struct nxl_op *op = record->op;
    struct shm_cursor at = from, ahead = from;
    uint64_t bytes = 0;
    uint32_t lead = 0; /* rows between at and ahead */

    while (cursor_before(at, to)) {
        const struct nxl_piece *piece = &op->pieces[at.piece];
        struct shm_ends ends = piece_ends(op, piece);
        uint64_t len = piece->len - at.offset;

        while (lead * len < PREFETCH_BYTES && lead < PREFETCH_ROWS && cursor_before(ahead, to)) {
            cursor_next_row(op, &ahead);
            lead++;
            if (cursor_before(ahead, to))
                prefetch_row(record, ahead);
        }
        copy_row(record, ends.to + at.row * ends.to_stride + at.offset,
                 ends.from + at.row * ends.from_stride + at.offset, len);
        bytes += len;
        cursor_next_row(op, &at);
        if (lead > 0)
            lead--;
    }
    if (to.offset > at.offset) { /* the part of a row that ends this chunk */
        const struct nxl_piece *piece = &op->pieces[at.piece];
        struct shm_ends ends = piece_ends(op, piece);
        uint64_t len = to.offset - at.offset;

        copy_row(record, ends.to + at.row * ends.to_stride + at.offset,
                 ends.from + at.row * ends.from_stride + at.offset, len);
        bytes += len;
    }
    if (record->streaming)
        streaming_fence();
    return bytes;
}
