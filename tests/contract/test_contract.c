/* test_contract.c - the promises of nxl/backend.h, over every backend, bare and inside fault:
 * test_contract <backend> bare|fault local|remote. Exits 77 if the backend is not available. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "contract/contract.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct rig_case with;

static uint64_t noise_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

void noise_fill(unsigned char *to, uint64_t size, uint64_t seed)
{
    uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;
    uint64_t at = 0;

    for (; at + 8 <= size; at += 8) {
        uint64_t word = noise_next(&state);
        memcpy(to + at, &word, 8);
    }
    for (; at < size; at++)
        to[at] = (unsigned char)noise_next(&state);
}

int noise_wrong(struct rig *rig, const struct rig_op *op, struct rig_region *near,
                struct rig_region *far)
{
    int wrong = 0;

    for (uint32_t i = 0; i < op->op.piece_count && rig->with.row->moves; i++) {
        const struct nxl_piece *piece = &op->pieces[i];
        for (uint32_t row = 0; row < piece->count; row++)
            wrong += memcmp(near->base + piece->local_offset + row * piece->local_stride,
                            far->base + piece->remote_offset + row * piece->remote_stride,
                            piece->len) != 0;
    }
    return wrong;
}

struct rig *rig_open_or_skip(const char *const *extra)
{
    struct rig *rig = rig_open(&with, extra);

    if (rig == NULL)
        skip();
    return rig;
}

/* Moves one contiguous piece and looks at every byte around it. */
static void move_once(struct rig *rig, enum nxl_op_kind kind, struct rig_region *near,
                      struct rig_region *far, uint64_t len, uint64_t near_at, uint64_t far_at)
{
    struct nxl_piece piece = {
        .local_offset = near_at, .remote_offset = far_at, .len = len, .count = 1};
    struct rig_region *to = kind == NXL_READ ? near : far;
    uint64_t at = kind == NXL_READ ? near_at : far_at;
    struct rig_op *op = rig_op_new(rig, kind, near, far, &piece, 1);
    unsigned char before = 0, after = 0;

    noise_fill(near->base + near_at, len, len + 1);
    noise_fill(far->base + far_at, len, len + 2);
    if (at > 0)
        before = to->base[at - 1];
    if (at + len < to->size)
        after = to->base[at + len];
    rig_submit(rig, op);
    rig_wait_quiet(rig, op);
    assert_int_equal(op->outcome.code, NXL_OK);
    assert_int_equal(op->outcome.bytes, len);
    assert_int_equal(noise_wrong(rig, op, near, far), 0);
    if (at > 0)
        assert_int_equal(to->base[at - 1], before);
    if (at + len < to->size)
        assert_int_equal(to->base[at + len], after);
}

static void capabilities_equal_the_wired_operations(void **state)
{
    struct rig *rig = rig_open_or_skip(NULL);
    const struct nxl_backend_ops *ops = rig->ends[0].ops;
    const struct nxl_backend_caps *caps = &rig->ends[0].caps;

    (void)state;
    assert_int_equal(caps->size, sizeof(*caps));
    assert_true(caps->flags & (NXL_CAP_LOCAL | NXL_CAP_REMOTE));
    assert_int_not_equal(caps->mem_kinds, 0);
    assert_in_range(caps->path, NXL_PATH_NONE, NXL_PATH_ONE_COPY);
    assert_in_range(caps->honesty, NXL_HONESTY_REAL, NXL_HONESTY_COMPILED);
    if (caps->flags & NXL_CAP_CANCEL)
        assert_true(NXL_BACKEND_HAS(ops, cancel));
    if (caps->flags & NXL_CAP_REMOTE)
        assert_true(NXL_BACKEND_HAS(ops, address) && NXL_BACKEND_HAS(ops, connect) &&
                    NXL_BACKEND_HAS(ops, disconnect) && NXL_BACKEND_HAS(ops, export_key) &&
                    NXL_BACKEND_HAS(ops, import_key));
    rig_close(rig);
}

/* C-003, C-004: the same range twice gives two registrations, and one outlives the other. */
static void a_range_may_be_registered_twice_and_let_go_of_twice(void **state)
{
    struct rig *rig = rig_open_or_skip(NULL);
    struct rig_region *near = rig_region_open(rig, 65536, 0);
    struct rig_region *far = rig_region_open(rig, 65536, 1);
    struct rig_end *end = &rig->ends[0];
    struct nxl_memory memory = {
        .kind = NXL_MEM_DRAM, .base = near->base, .size = near->size, .fd = near->fd};
    struct nxl_backend_mem *again;
    struct nxl_err err = {0};

    (void)state;
    assert_int_equal(end->ops->register_mem(end->backend, &memory, &again, &err), NXL_OK);
    assert_ptr_not_equal(again, near->mem);
    assert_int_equal(end->ops->deregister_mem(end->backend, again, &err), NXL_OK);
    move_once(rig, NXL_READ, near, far, 4096, 512, 1024);
    assert_int_equal(end->ops->register_mem(end->backend, &memory, &again, &err), NXL_OK);
    assert_int_equal(end->ops->deregister_mem(end->backend, again, &err), NXL_OK);
    move_once(rig, NXL_WRITE, near, far, 4096, 0, 65536 - 4096);
    rig_close(rig);
}

static void every_size_arrives_in_both_directions(void **state)
{
    static const uint64_t sizes[] = {1,     7,     64,     255,     4095,    4096,    8192,
                                     32768, 32769, 100003, 1 << 20, 3000001, 9 << 20, 64 << 20};
    struct rig *rig = rig_open_or_skip(NULL);
    uint64_t room = rig->with.row->size_max ? rig->with.row->size_max : 64 << 20;
    struct rig_region *near = rig_region_open(rig, room + 4096, 0);
    struct rig_region *far = rig_region_open(rig, room + 4096, 1);

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && sizes[i] <= room; i++) {
        move_once(rig, NXL_READ, near, far, sizes[i], i, 3 * i + 1);
        move_once(rig, NXL_WRITE, near, far, sizes[i], 4096, i);
    }
    rig_close(rig);
}

static void nothing_moves_for_a_piece_of_no_length(void **state)
{
    struct rig *rig = rig_open_or_skip(NULL);
    struct rig_region *near = rig_region_open(rig, 8192, 0);
    struct rig_region *far = rig_region_open(rig, 8192, 1);
    struct nxl_piece pieces[] = {{.local_offset = 100, .remote_offset = 8192, .len = 0, .count = 1},
                                 {.local_offset = 200, .remote_offset = 300, .len = 50, .count = 1},
                                 {.local_offset = 8192, .remote_offset = 0, .len = 0, .count = 1}};
    struct rig_op *empty = rig_op_new(rig, NXL_READ, near, far, pieces, 1);
    struct rig_op *mixed = rig_op_new(rig, NXL_WRITE, near, far, pieces, 3);

    (void)state;
    noise_fill(near->base, 8192, 1);
    memset(far->base, 0, 8192);
    rig_submit(rig, empty);
    rig_wait_quiet(rig, empty);
    assert_int_equal(empty->outcome.code, NXL_OK);
    assert_int_equal(empty->outcome.bytes, 0);
    assert_int_equal(far->base[0], 0);
    rig_submit(rig, mixed);
    rig_wait_quiet(rig, mixed);
    assert_int_equal(mixed->outcome.code, NXL_OK);
    assert_int_equal(noise_wrong(rig, mixed, near, far), 0);
    rig_close(rig);
}

static void strided_rows_arrive_and_the_gaps_stay(void **state)
{
    struct rig *rig = rig_open_or_skip(NULL);
    struct rig_region *near = rig_region_open(rig, 4 << 20, 0);
    struct rig_region *far = rig_region_open(rig, 4 << 20, 1);
    struct nxl_piece pieces[] = {{.local_offset = 0,
                                  .remote_offset = 64,
                                  .len = 256,
                                  .local_stride = 256,
                                  .remote_stride = 1024,
                                  .count = 1000},
                                 {.local_offset = 2 << 20,
                                  .remote_offset = 2 << 20,
                                  .len = 100,
                                  .local_stride = 300,
                                  .remote_stride = 100,
                                  .count = 5000}};

    (void)state;
    if (!(rig->ends[0].caps.flags & NXL_CAP_STRIDED)) {
        rig_close(rig);
        skip();
    }
    for (int kind = NXL_READ; kind <= NXL_WRITE; kind++) {
        struct rig_op *op = rig_op_new(rig, kind, near, far, pieces, 2);
        struct rig_region *to = kind == NXL_READ ? near : far;

        noise_fill(near->base, near->size, 5);
        noise_fill(far->base, far->size, 6);
        memset(kind == NXL_READ ? near->base + (2 << 20) : far->base, 0xee, 2 << 20);
        rig_submit(rig, op);
        rig_wait_quiet(rig, op);
        assert_int_equal(op->outcome.code, NXL_OK);
        assert_int_equal(noise_wrong(rig, op, near, far), 0);
        assert_int_equal(to->base[kind == NXL_READ ? (2 << 20) + 100 : 0], 0xee);
        assert_int_equal(to->base[kind == NXL_READ ? (2 << 20) + 299 : 63], 0xee);
        assert_int_equal(to->base[kind == NXL_READ ? (2 << 20) + 300 * 4999 + 100 : 64 + 256],
                         0xee);
    }
    rig_close(rig);
}

static void ten_thousand_scattered_pieces_arrive(void **state)
{
    enum { COUNT = 10000, LEN = 1200 };
    struct rig *rig = rig_open_or_skip(NULL);
    struct rig_region *near = rig_region_open(rig, COUNT * LEN, 0);
    struct rig_region *far = rig_region_open(rig, COUNT * LEN, 1);
    struct nxl_piece *pieces = calloc(COUNT, sizeof(*pieces));
    uint64_t noise = 42;

    (void)state;
    for (uint32_t i = 0; i < COUNT; i++)
        pieces[i] = (struct nxl_piece){.local_offset = (uint64_t)i * LEN,
                                       .remote_offset = (uint64_t)i * LEN,
                                       .len = LEN,
                                       .count = 1};
    for (uint32_t i = COUNT - 1; i > 0; i--) {
        uint32_t j = (uint32_t)(noise_next(&noise) % (i + 1));
        uint64_t offset = pieces[i].remote_offset;

        pieces[i].remote_offset = pieces[j].remote_offset;
        pieces[j].remote_offset = offset;
    }
    for (int kind = NXL_READ; kind <= NXL_WRITE; kind++) {
        struct rig_op *op = rig_op_new(rig, kind, near, far, pieces, COUNT);

        noise_fill(near->base, near->size, 7);
        noise_fill(far->base, far->size, 8);
        rig_submit(rig, op);
        rig_wait_quiet(rig, op);
        assert_int_equal(op->outcome.code, NXL_OK);
        assert_int_equal(noise_wrong(rig, op, near, far), 0);
    }
    free(pieces);
    rig_close(rig);
}

/* memmove semantics where both ends lie in one region. */
static void overlapping_ends_move_as_if_through_a_copy(void **state)
{
    struct rig *rig = rig_open_or_skip(NULL);
    struct rig_region *region = rig_region_open(rig, 8 << 20, 0);
    struct nxl_piece piece = {.local_offset = 4096, .remote_offset = 0, .len = 6 << 20, .count = 1};
    unsigned char *copy;
    struct rig_op *op;

    (void)state;
    if (rig->with.remote || !rig->with.row->moves) {
        rig_close(rig);
        skip();
    }
    copy = malloc(piece.len);
    noise_fill(region->base, region->size, 9);
    for (int kind = NXL_READ; kind <= NXL_WRITE; kind++) {
        uint64_t from = kind == NXL_READ ? piece.remote_offset : piece.local_offset;
        uint64_t to = kind == NXL_READ ? piece.local_offset : piece.remote_offset;

        memcpy(copy, region->base + from, piece.len);
        op = rig_op_new(rig, kind, region, region, &piece, 1);
        rig_submit(rig, op);
        rig_wait_quiet(rig, op);
        assert_int_equal(op->outcome.code, NXL_OK);
        assert_memory_equal(copy, region->base + to, piece.len);
    }
    free(copy);
    rig_close(rig);
}

/* The agent checks before; a backend still never follows an offset out of a region. */
static void a_piece_outside_its_region_is_refused(void **state)
{
    static const struct nxl_piece pieces[] = {
        {.local_offset = 65536, .remote_offset = 0, .len = 1, .count = 1},
        {.local_offset = 0, .remote_offset = 65535, .len = 2, .count = 1},
        {.local_offset = UINT64_MAX - 10, .remote_offset = 0, .len = 100, .count = 1},
        {.local_offset = 0, .remote_offset = 0, .len = UINT64_MAX, .count = 1},
        {.local_offset = 0,
         .remote_offset = 0,
         .len = 16,
         .local_stride = UINT64_MAX / 2,
         .count = 4},
        {.local = 7, .local_offset = 0, .remote_offset = 0, .len = 16, .count = 1},
        {.remote = 7, .local_offset = 0, .remote_offset = 0, .len = 16, .count = 1},
    };
    struct rig *rig = rig_open_or_skip(NULL);
    struct rig_region *near = rig_region_open(rig, 65536, 0);
    struct rig_region *far = rig_region_open(rig, 65536, 1);
    struct nxl_err err = {0};

    (void)state;
    if (!rig->with.row->moves) {
        rig_close(rig);
        skip();
    }
    for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
        struct rig_op *op;

        if (pieces[i].count > 1 && !(rig->ends[0].caps.flags & NXL_CAP_STRIDED))
            continue;
        op = rig_op_new(rig, NXL_READ, near, far, &pieces[i], 1);
        memset(near->base, 0x11, near->size);
        memset(far->base, 0x22, far->size);
        if (rig_try(rig, op, &err) == NXL_OK) {
            rig_wait_quiet(rig, op);
            assert_int_equal(op->outcome.code, NXL_INVALID_PARAM);
            assert_true(op->outcome.untouched);
            assert_true(op->outcome.text[0] != '\0');
        } else {
            assert_int_equal(rig_completes(rig, op), 0);
        }
        for (size_t at = 0; at < near->size; at++)
            assert_int_equal(near->base[at], 0x11);
    }
    rig_close(rig);
}

static void many_operations_at_once_all_end(void **state)
{
    enum { COUNT = 500, LEN = 40000 };
    struct rig *rig = rig_open_or_skip(NULL);
    struct rig_region *near = rig_region_open(rig, COUNT * LEN, 0);
    struct rig_region *far = rig_region_open(rig, COUNT * LEN, 1);
    struct rig_op *ops[COUNT];

    (void)state;
    noise_fill(near->base, near->size, 1);
    noise_fill(far->base, far->size, 2);
    for (uint32_t i = 0; i < COUNT; i++) {
        struct nxl_piece piece = {.local_offset = (uint64_t)i * LEN,
                                  .remote_offset = (uint64_t)i * LEN,
                                  .len = i % 3 == 0 ? LEN : i,
                                  .count = 1};
        ops[i] = rig_op_new(rig, i % 2 ? NXL_READ : NXL_WRITE, near, far, &piece, 1);
        rig_submit(rig, ops[i]);
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        rig_wait_quiet(rig, ops[i]);
        assert_int_equal(ops[i]->outcome.code, NXL_OK);
        assert_int_equal(noise_wrong(rig, ops[i], near, far), 0);
    }
    rig_close(rig);
}

/* One client with a hundred thousand pieces, and another one with one. */
static void a_small_operation_overtakes_huge_ones(void **state)
{
    enum { COUNT = 100000, LEN = 320, HUGE = 4, SMALL = 100000 };
    struct rig *rig = rig_open_or_skip(NULL);
    struct rig_region *near = rig_region_open(rig, HUGE * COUNT * LEN + SMALL, 0);
    struct rig_region *far = rig_region_open(rig, COUNT * LEN + SMALL, 1);
    struct nxl_piece *pieces = calloc(COUNT, sizeof(*pieces));
    struct nxl_piece piece = {
        .local_offset = HUGE * COUNT * LEN, .remote_offset = COUNT * LEN, .len = SMALL, .count = 1};
    struct rig_op *huge[HUGE], *small;

    (void)state;
    if (!rig->with.row->fair) {
        free(pieces);
        rig_close(rig);
        skip();
    }
    for (uint32_t k = 0; k < HUGE; k++) {
        for (uint32_t i = 0; i < COUNT; i++)
            pieces[i] = (struct nxl_piece){.local_offset = (uint64_t)(k * COUNT + i) * LEN,
                                           .remote_offset = (uint64_t)(COUNT - 1 - i) * LEN,
                                           .len = LEN,
                                           .count = 1};
        huge[k] = rig_op_new(rig, NXL_READ, near, far, pieces, COUNT);
    }
    small = rig_op_new(rig, NXL_WRITE, near, far, &piece, 1);
    for (int i = 0; i < HUGE; i++)
        rig_submit(rig, huge[i]);
    rig_submit(rig, small);
    for (int i = 0; i < HUGE; i++)
        rig_wait_quiet(rig, huge[i]);
    rig_wait_quiet(rig, small);
    assert_true(small->order < huge[HUGE - 1]->order);
    free(pieces);
    rig_close(rig);
}

/* C-007: cancel of a running one, twice; of one that has ended; of one that never was. */
static void cancel_ends_once_and_says_what_was_touched(void **state)
{
    enum { SIZE = 12 << 20 };
    struct rig *rig = rig_open_or_skip(NULL);
    struct rig_region *near = rig_region_open(rig, 8 * SIZE, 0);
    struct rig_region *far = rig_region_open(rig, SIZE, 1);
    struct rig_op *ops[8];

    (void)state;
    if (!(rig->ends[0].caps.flags & NXL_CAP_CANCEL)) {
        rig_close(rig);
        skip();
    }
    memset(near->base, 0x33, near->size);
    memset(far->base, 0x44, SIZE);
    for (uint32_t i = 0; i < 8; i++) {
        struct nxl_piece piece = {.local_offset = (uint64_t)i * SIZE, .len = SIZE, .count = 1};

        ops[i] = rig_op_new(rig, NXL_READ, near, far, &piece, 1);
        rig_submit(rig, ops[i]);
    }
    for (int i = 7; i >= 0; i--) {
        rig_cancel(rig, ops[i]);
        rig_cancel(rig, ops[i]);
    }
    for (int i = 0; i < 8; i++) {
        rig_wait_quiet(rig, ops[i]);
        assert_true(ops[i]->outcome.code == NXL_CANCELED || ops[i]->outcome.code == NXL_OK);
        if (ops[i]->outcome.code == NXL_CANCELED)
            assert_true(ops[i]->outcome.bytes < SIZE || with.wrapped || with.remote);
        rig_cancel(rig, ops[i]); /* it has ended: nothing comes of it */
    }
    rig->ends[0].ops->cancel(rig->ends[0].backend, 65000);
    rig_check(rig);
    rig_close(rig);
}

static void again_is_followed_by_ready(void **state)
{
    const char *extra[] = {with.row->again, NULL};
    struct rig *rig;
    struct rig_region *near, *far;
    int agains = 0;

    (void)state;
    if (with.row->again == NULL)
        skip();
    rig = rig_open_or_skip(extra);
    near = rig_region_open(rig, 200 * 200000, 0);
    far = rig_region_open(rig, 200000, 1);
    for (uint32_t i = 0; i < 200; i++) {
        struct nxl_piece piece = {.local_offset = i * 200000ull, .len = 200000, .count = 1};
        struct rig_op *op = rig_op_new(rig, NXL_READ, near, far, &piece, 1);
        struct nxl_err err = {0};
        enum nxl_code code;

        code = rig_try(rig, op, &err);
        if (code == NXL_AGAIN) {
            agains++;
            rig_submit(rig, op); /* waits for ready() and fails the test if it never comes */
        } else {
            assert_int_equal(code, NXL_OK);
        }
    }
    assert_true(agains > 0);
    assert_true(rig_readies(rig) > 0);
    rig_close(rig);
}

/* Whatever still runs is ended by close(), once each; rig_close() counts. */
static void close_ends_what_still_runs(void **state)
{
    enum { SIZE = 2 << 20, COUNT = 40 };
    struct rig *rig = rig_open_or_skip(NULL);
    struct rig_region *near = rig_region_open(rig, SIZE, 0);
    struct rig_region *far = rig_region_open(rig, COUNT * SIZE, 1);

    (void)state;
    for (uint32_t i = 0; i < COUNT; i++) {
        struct nxl_piece piece = {
            .remote_offset = (uint64_t)i * SIZE, .len = i % 2 ? SIZE : 100, .count = 1};
        struct nxl_err err = {0};

        if (rig_try(rig, rig_op_new(rig, NXL_WRITE, near, far, &piece, 1), &err) == NXL_AGAIN)
            break;
    }
    rig_close(rig);
}

static void a_damaged_key_is_a_mismatch(void **state)
{
    struct rig *rig = rig_open_or_skip(NULL);
    struct rig_region *far;
    unsigned char key[NXL_BACKEND_KEY_MAX];
    size_t size = sizeof(key);
    struct nxl_backend_remote *remote = NULL;
    struct nxl_err err = {0};

    (void)state;
    if (!rig->with.remote) {
        rig_close(rig);
        skip();
    }
    far = rig_region_open(rig, 65536, 1);
    assert_int_equal(rig->ends[1].ops->export_key(rig->ends[1].backend, far->mem, key, &size, &err),
                     NXL_OK);
    for (size_t cut = 0; cut < size; cut += 1 + size / 7) {
        assert_int_equal(rig->ends[0].ops->import_key(rig->ends[0].backend, rig->conn,
                                                      (struct nxl_view){key, cut}, &remote, &err),
                         NXL_MISMATCH);
        assert_null(remote);
    }
    for (size_t at = 0; at < size; at++)
        key[at] = (unsigned char)(key[at] ^ 0x5a);
    assert_int_equal(rig->ends[0].ops->import_key(rig->ends[0].backend, rig->conn,
                                                  (struct nxl_view){key, size}, &remote, &err),
                     NXL_MISMATCH);
    assert_null(remote);
    rig_close(rig);
}

static void disconnect_ends_what_runs_on_the_connection(void **state)
{
    enum { SIZE = 16 << 20 };
    struct rig *rig = rig_open_or_skip(NULL);
    struct rig_region *near, *far;
    struct rig_op *ops[6];

    (void)state;
    if (!rig->with.remote) {
        rig_close(rig);
        skip();
    }
    near = rig_region_open(rig, SIZE, 0);
    far = rig_region_open(rig, 6 * SIZE, 1);
    for (uint32_t i = 0; i < 6; i++) {
        struct nxl_piece piece = {.remote_offset = (uint64_t)i * SIZE, .len = SIZE, .count = 1};

        ops[i] = rig_op_new(rig, NXL_WRITE, near, far, &piece, 1);
        rig_submit(rig, ops[i]);
    }
    rig->ends[0].ops->disconnect(rig->ends[0].backend, rig->conn);
    rig->conn = NULL;
    far->remote = NULL;
    for (int i = 0; i < 6; i++) {
        rig_wait_quiet(rig, ops[i]);
        assert_true(ops[i]->outcome.code == NXL_OK ||
                    ops[i]->outcome.code == NXL_REMOTE_DISCONNECT);
    }
    rig_close(rig);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(capabilities_equal_the_wired_operations),
        cmocka_unit_test(a_range_may_be_registered_twice_and_let_go_of_twice),
        cmocka_unit_test(every_size_arrives_in_both_directions),
        cmocka_unit_test(nothing_moves_for_a_piece_of_no_length),
        cmocka_unit_test(strided_rows_arrive_and_the_gaps_stay),
        cmocka_unit_test(ten_thousand_scattered_pieces_arrive),
        cmocka_unit_test(overlapping_ends_move_as_if_through_a_copy),
        cmocka_unit_test(a_piece_outside_its_region_is_refused),
        cmocka_unit_test(many_operations_at_once_all_end),
        cmocka_unit_test(a_small_operation_overtakes_huge_ones),
        cmocka_unit_test(cancel_ends_once_and_says_what_was_touched),
        cmocka_unit_test(again_is_followed_by_ready),
        cmocka_unit_test(close_ends_what_still_runs),
        cmocka_unit_test(a_damaged_key_is_a_mismatch),
        cmocka_unit_test(disconnect_ends_what_runs_on_the_connection),
    };
    struct rig *rig;
    int failed;

    if (argc != 4 || (with.row = rig_row_find(argv[1])) == NULL) {
        fprintf(stderr, "usage: %s <backend> bare|fault local|remote\n", argv[0]);
        return 2;
    }
    with.wrapped = strcmp(argv[2], "fault") == 0;
    with.remote = strcmp(argv[3], "remote") == 0;
    rig = rig_open(&with, NULL);
    if (rig == NULL)
        return 77;
    rig_close(rig);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return with.wrapped ? failed + contract_run_faults(&with) : failed;
}
