/* alter.c - makes the operation that the wrapped backend sees: the caller's, with our regions
 * replaced by its own, and perhaps with one row or byte taken out. Loop thread. */
#include "fault.h"

#include <stdlib.h>
#include <string.h>

/* Appends what is left of a piece when bytes [at, at + len) of one row are taken out. */
static uint32_t piece_cut(struct nxl_piece *to, const struct nxl_piece *piece, uint32_t row,
                          uint64_t at, uint64_t len)
{
    struct nxl_piece part = *piece;
    uint32_t count = 0;

    if (row > 0) {
        part.count = row;
        to[count++] = part;
    }
    part.local_offset = piece->local_offset + row * piece->local_stride;
    part.remote_offset = piece->remote_offset + row * piece->remote_stride;
    part.count = 1;
    part.len = at;
    if (at > 0)
        to[count++] = part;
    part.local_offset += at + len;
    part.remote_offset += at + len;
    part.len = piece->len - at - len;
    if (part.len > 0)
        to[count++] = part;
    if (row + 1 < piece->count) {
        part = *piece;
        part.local_offset += (row + 1) * piece->local_stride;
        part.remote_offset += (row + 1) * piece->remote_stride;
        part.count = piece->count - row - 1;
        to[count++] = part;
    }
    return count;
}

static struct nxl_piece row_of(const struct nxl_piece *piece, uint32_t row)
{
    struct nxl_piece part = *piece;

    part.local_offset += row * piece->local_stride;
    part.remote_offset += row * piece->remote_stride;
    part.count = 1;
    return part;
}

/* Replaces piece `index` of the record by its remains. */
static void piece_replace(struct fault_op *record, uint32_t index, uint32_t row, uint64_t at,
                          uint64_t len)
{
    struct nxl_piece parts[FAULT_PIECES_MORE];
    uint32_t count = piece_cut(parts, &record->pieces[index], row, at, len);
    uint32_t after = record->op.piece_count - index - 1;

    memmove(&record->pieces[index + count], &record->pieces[index + 1], after * sizeof(*parts));
    memcpy(&record->pieces[index], parts, count * sizeof(*parts));
    record->op.piece_count = index + count + after;
    record->op.bytes -= len;
}

static unsigned char *byte_at(const struct nxl_backend_mem *mem, uint64_t offset)
{
    return mem->base != NULL && offset < mem->size ? mem->base + offset : NULL;
}

/* The destination is ours to touch: the byte is turned afterwards. In a remote write it is not:
 * there a wrong byte of our own memory is sent in its place. */
static void flip_prepare(struct nxl_backend *backend, struct fault_op *record,
                         const struct nxl_op *op, uint32_t index, uint32_t row)
{
    struct nxl_piece part = row_of(&op->pieces[index], row);
    uint64_t at = fault_random(&backend->loop.random) % part.len;
    unsigned char *source;
    uint32_t slot;

    if (op->kind == NXL_READ) {
        record->flip = byte_at(op->locals[part.local], part.local_offset + at);
        return;
    }
    if (op->conn == NULL) {
        record->flip = byte_at(op->peers[part.remote], part.remote_offset + at);
        return;
    }
    source = byte_at(op->locals[part.local], part.local_offset + at);
    if (backend->loop.scratch_mem == NULL || source == NULL)
        return;
    slot = backend->loop.scratch_at++ % FAULT_SCRATCH_SIZE;
    backend->loop.scratch[slot] = (unsigned char)~*source;
    piece_replace(record, index, row, at, 1);
    record->locals[op->local_count] = backend->loop.scratch_mem;
    record->op.local_count = op->local_count + 1;
    record->pieces[record->op.piece_count++] = (struct nxl_piece){
        .local = op->local_count,
        .remote = part.remote,
        .local_offset = slot,
        .remote_offset = part.remote_offset + at,
        .len = 1,
        .count = 1,
    };
    record->op.bytes++;
}

/* At most one row is harmed. Pieces without bytes, or too many of them, are left alone. */
static void rows_alter(struct nxl_backend *backend, struct fault_op *record,
                       const struct nxl_op *op)
{
    uint32_t index, row;
    const struct nxl_piece *piece;

    if (!(record->faults & (FAULT_SKIP | FAULT_LATE | FAULT_FLIP)))
        return;
    if (op->piece_count == 0 || (backend->caps.pieces_max != 0 &&
                                 op->piece_count + FAULT_PIECES_MORE > backend->caps.pieces_max))
        return;
    index = (uint32_t)(fault_random(&backend->loop.random) % op->piece_count);
    piece = &op->pieces[index];
    if (piece->len == 0 || piece->count == 0 || piece->local >= op->local_count ||
        piece->remote >= op->remote_count)
        return;
    row = (uint32_t)(fault_random(&backend->loop.random) % piece->count);
    if (record->faults & FAULT_FLIP) {
        flip_prepare(backend, record, op, index, row);
        return;
    }
    if (record->faults & FAULT_LATE) {
        record->late_piece = row_of(piece, row);
        record->late_open = 1;
    }
    piece_replace(record, index, row, 0, piece->len);
}

struct fault_op *fault_op_new(struct nxl_backend *backend, const struct nxl_op *op, unsigned faults)
{
    struct fault_op *record = calloc(1, sizeof(*record));

    if (record == NULL)
        return NULL;
    record->id = op->id;
    record->bytes = op->bytes;
    record->faults = faults;
    record->op = *op;
    record->locals = calloc(op->local_count + 1, sizeof(struct nxl_backend_mem *));
    record->peers = calloc(op->remote_count + 1, sizeof(struct nxl_backend_mem *));
    record->remotes = calloc(op->remote_count + 1, sizeof(struct nxl_backend_remote *));
    record->pieces = calloc(op->piece_count + FAULT_PIECES_MORE, sizeof(*record->pieces));
    if (record->locals == NULL || record->peers == NULL || record->remotes == NULL ||
        record->pieces == NULL) {
        fault_op_free(record);
        return NULL;
    }
    for (uint32_t i = 0; i < op->local_count; i++)
        record->locals[i] = op->locals[i]->inner;
    for (uint32_t i = 0; i < op->remote_count && op->conn == NULL; i++)
        record->peers[i] = op->peers[i]->inner;
    for (uint32_t i = 0; i < op->remote_count && op->conn != NULL; i++)
        record->remotes[i] = op->remotes[i];
    memcpy(record->pieces, op->pieces, op->piece_count * sizeof(*record->pieces));
    record->op.locals = record->locals;
    record->op.peers = op->conn == NULL ? record->peers : NULL;
    record->op.remotes = op->conn != NULL ? record->remotes : NULL;
    record->op.pieces = record->pieces;
    rows_alter(backend, record, op);
    if (record->late_open) {
        record->late = record->op;
        record->late.id = record->id | FAULT_LATE_BIT;
        record->late.pieces = &record->late_piece;
        record->late.piece_count = 1;
        record->late.bytes = record->late_piece.len;
        record->late.deadline_ns = 0;
    }
    return record;
}

void fault_op_free(struct fault_op *record)
{
    if (record == NULL)
        return;
    free(record->locals);
    free(record->peers);
    free(record->remotes);
    free(record->pieces);
    free(record);
}
