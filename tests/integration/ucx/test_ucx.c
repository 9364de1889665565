/* test_ucx.c - what two processes move through UCX, byte by byte: test_ucx <tls> <protocol>. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "integration/ucx/test_ucx.h"

#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

const char *ucx_settings[8];

void pair_open(struct pair *pair, uint64_t size)
{
    struct nxl_err err = {0};
    struct nxl_memory memory = {.kind = NXL_MEM_DRAM, .size = size, .fd = -1};

    memset(pair, 0, sizeof(*pair));
    pair->rig = ucx_rig_open(ucx_settings, &err);
    if (pair->rig == NULL)
        fail_msg("open: %s", err.text);
    pair->size = size;
    pair->base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(pair->base != MAP_FAILED);
    memory.base = pair->base;
    if (nxl_backend_ucx_ops.register_mem(pair->rig->backend, &memory, &pair->mem, &err) != NXL_OK)
        fail_msg("register: %s", err.text);
    pair_connect(pair);
}

void pair_connect(struct pair *pair)
{
    struct nxl_err err = {0};
    struct nxl_backend *backend = pair->rig->backend;

    assert_true(far_spawn(&pair->far, pair->size, ucx_settings));
    if (nxl_backend_ucx_ops.connect(backend,
                                    (struct nxl_view){pair->far.address, pair->far.address_size},
                                    &pair->conn, &err) != NXL_OK ||
        nxl_backend_ucx_ops.import_key(backend, pair->conn,
                                       (struct nxl_view){pair->far.key, pair->far.key_size},
                                       &pair->remote, &err) != NXL_OK)
        fail_msg("connect: %s", err.text);
}

void pair_close(struct pair *pair)
{
    struct nxl_err err = {0};

    nxl_backend_ucx_ops.forget(pair->rig->backend, pair->remote);
    nxl_backend_ucx_ops.disconnect(pair->rig->backend, pair->conn);
    if (nxl_backend_ucx_ops.deregister_mem(pair->rig->backend, pair->mem, &err) != NXL_OK)
        fail_msg("deregister: %s", err.text);
    ucx_rig_close(pair->rig);
    munmap(pair->base, pair->size);
    far_close(&pair->far);
}

struct ucx_rig_op *pair_op(struct pair *pair, int kind, uint64_t offset, uint64_t len)
{
    struct ucx_rig_op *op = ucx_rig_op_new(pair->rig, kind, pair->conn, pair->mem, pair->remote);

    op->single =
        (struct nxl_piece){.local_offset = offset, .remote_offset = offset, .len = len, .count = 1};
    return op;
}

void pair_submit(struct pair *pair, struct ucx_rig_op *op)
{
    struct nxl_err err = {0};

    if (ucx_rig_submit(pair->rig, op, &err) != NXL_OK)
        fail_msg("submit: %s", err.text);
}

static void pair_run(struct pair *pair, struct ucx_rig_op *op)
{
    pair_submit(pair, op);
    assert_true(ucx_rig_wait_quiet(pair->rig, op, 30000));
    if (op->outcome.code != NXL_OK)
        fail_msg("%s: %s", nxl_code_word(op->outcome.code), op->outcome.text);
    assert_int_equal(op->completes, 1);
    assert_int_equal(op->quiesces, 1);
    assert_int_equal(op->outcome.bytes, op->op.bytes);
}

static void noise_fill(unsigned char *to, uint64_t size, uint64_t seed)
{
    for (uint64_t i = 0; i < size; i++) {
        if (i % 8 == 0)
            seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
        to[i] = (unsigned char)(seed >> (8 * (i % 8)));
    }
}

static void every_size_arrives_and_nothing_beside_it(void **state)
{
    static const uint64_t sizes[] = {1,     3,      64,      255,     4096,    8191,
                                     65536, 262144, 1000003, 1 << 20, 8 << 20, 64 << 20};
    struct pair pair;

    (void)state;
    pair_open(&pair, (64 << 20) + 128);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        uint64_t len = sizes[i];

        noise_fill(pair.base, pair.size, i + 1);
        memset(pair.far.base, 0xee, pair.size);
        pair_run(&pair, pair_op(&pair, NXL_WRITE, 64, len));
        assert_memory_equal(pair.far.base + 64, pair.base + 64, len);
        assert_int_equal(pair.far.base[63], 0xee);
        assert_int_equal(pair.far.base[64 + len], 0xee);
        noise_fill(pair.far.base, len + 128, i + 77);
        memset(pair.base, 0xdd, len + 128);
        pair_run(&pair, pair_op(&pair, NXL_READ, 64, len));
        assert_memory_equal(pair.far.base + 64, pair.base + 64, len);
        assert_int_equal(pair.base[63], 0xdd);
        assert_int_equal(pair.base[64 + len], 0xdd);
    }
    pair_close(&pair);
}

static void the_path_is_named(void **state)
{
    struct pair pair;
    struct ucx_rig_op *op;
    int tcp = strcmp(ucx_settings[0], "tls=tcp") == 0;

    (void)state;
    pair_open(&pair, 65536);
    op = pair_op(&pair, NXL_WRITE, 0, 65536);
    pair_run(&pair, op);
    assert_int_equal(op->outcome.path, tcp ? NXL_PATH_TCP : NXL_PATH_SHARED);
    assert_non_null(op->outcome.device);
    if (tcp)
        assert_memory_equal(op->outcome.device, "tcp/", 4);
    else
        assert_non_null(strstr(op->outcome.device, "/memory"));
    pair_close(&pair);
}

#define PIECES 10000u

static void ten_thousand_scattered_pieces_arrive(void **state)
{
    struct pair pair;

    (void)state;
    pair_open(&pair, PIECES * 4096u);
    for (int kind = NXL_READ; kind <= NXL_WRITE; kind++) {
        struct ucx_rig_op *op = pair_op(&pair, kind, 0, 0);
        unsigned char *from = kind == NXL_WRITE ? pair.base : pair.far.base;
        unsigned char *to = kind == NXL_WRITE ? pair.far.base : pair.base;

        op->pieces = calloc(PIECES, sizeof(*op->pieces));
        op->op.piece_count = PIECES;
        for (uint32_t i = 0; i < PIECES; i++) {
            uint32_t other = (i * 7919u) % PIECES; /* 7919 is prime to 10000: a permutation */

            op->pieces[i] = (struct nxl_piece){.local_offset = 4096u * i,
                                               .remote_offset = 4096u * other,
                                               .len = 1 + i % 4096u,
                                               .count = 1};
        }
        noise_fill(from, pair.size, 5);
        memset(to, 0, pair.size);
        pair_run(&pair, op);
        for (uint32_t i = 0; i < PIECES; i++)
            assert_memory_equal(pair.base + op->pieces[i].local_offset,
                                pair.far.base + op->pieces[i].remote_offset, op->pieces[i].len);
    }
    pair_close(&pair);
}

static void strided_rows_arrive_and_the_gaps_stay(void **state)
{
    struct nxl_piece piece = {.local_offset = 100,
                              .remote_offset = 8,
                              .len = 256,
                              .local_stride = 1000,
                              .remote_stride = 300,
                              .count = 5000};
    struct pair pair;

    (void)state;
    pair_open(&pair, 8 << 20);
    for (int kind = NXL_READ; kind <= NXL_WRITE; kind++) {
        struct ucx_rig_op *op = pair_op(&pair, kind, 0, 0);

        op->single = piece;
        noise_fill(kind == NXL_WRITE ? pair.base : pair.far.base, pair.size, 6);
        memset(kind == NXL_WRITE ? pair.far.base : pair.base, 0xaa, pair.size);
        pair_run(&pair, op);
        for (uint32_t i = 0; i < piece.count; i++) {
            const unsigned char *near = pair.base + piece.local_offset + i * piece.local_stride;
            const unsigned char *far =
                pair.far.base + piece.remote_offset + i * piece.remote_stride;

            assert_memory_equal(near, far, piece.len);
            assert_int_equal(kind == NXL_WRITE ? far[piece.len] : near[piece.len], 0xaa);
        }
    }
    pair_close(&pair);
}

static void many_operations_share_a_connection(void **state)
{
    struct ucx_rig_op *ops[512], *large;
    struct pair pair;

    (void)state;
    pair_open(&pair, 64 << 20);
    noise_fill(pair.base, pair.size, 9);
    large = pair_op(&pair, NXL_WRITE, 4 << 20, 60 << 20);
    pair_submit(&pair, large);
    for (uint32_t i = 0; i < 512; i++) {
        ops[i] = pair_op(&pair, NXL_WRITE, i * 8192u, 8192);
        pair_submit(&pair, ops[i]);
    }
    for (uint32_t i = 0; i < 512; i++) {
        assert_true(ucx_rig_wait_quiet(pair.rig, ops[i], 30000));
        assert_int_equal(ops[i]->outcome.code, NXL_OK);
    }
    assert_true(ucx_rig_wait_quiet(pair.rig, large, 30000));
    assert_memory_equal(pair.base, pair.far.base, pair.size);
    pair_close(&pair);
}

static void again_is_followed_by_ready(void **state)
{
    struct ucx_rig_op *ops[64];
    struct nxl_err err = {0};
    struct pair pair;
    int again = 0;

    (void)state;
    ucx_settings[3] = "depth=2";
    pair_open(&pair, 4 << 20);
    for (uint32_t i = 0; i < 64; i++) {
        enum nxl_code code;
        int readies;

        ops[i] = pair_op(&pair, NXL_WRITE, 0, 4 << 20);
        pthread_mutex_lock(&pair.rig->lock);
        readies = pair.rig->readies;
        pthread_mutex_unlock(&pair.rig->lock);
        while ((code = ucx_rig_submit(pair.rig, ops[i], &err)) == NXL_AGAIN) {
            again++;
            pthread_mutex_lock(&pair.rig->lock);
            while (pair.rig->readies == readies)
                pthread_cond_wait(&pair.rig->moved, &pair.rig->lock);
            readies = pair.rig->readies;
            pthread_mutex_unlock(&pair.rig->lock);
        }
        assert_int_equal(code, NXL_OK);
    }
    for (uint32_t i = 0; i < 64; i++)
        assert_true(ucx_rig_wait_quiet(pair.rig, ops[i], 30000));
    assert_true(again > 0);
    pair_close(&pair);
    ucx_settings[3] = NULL;
}

static void cancel_leads_to_quiet_and_the_connection_lives(void **state)
{
    struct ucx_rig_op *op;
    struct pair pair;

    (void)state;
    pair_open(&pair, 256 << 20);
    op = pair_op(&pair, NXL_WRITE, 0, pair.size);
    pair_submit(&pair, op);
    nxl_backend_ucx_ops.cancel(pair.rig->backend, op->op.id);
    nxl_backend_ucx_ops.cancel(pair.rig->backend, op->op.id);
    nxl_backend_ucx_ops.cancel(pair.rig->backend, 999999);
    assert_true(ucx_rig_wait_quiet(pair.rig, op, 5000));
    assert_int_equal(op->completes, 1);
    assert_int_equal(op->outcome.code, NXL_CANCELED);
    assert_true(op->outcome.bytes < pair.size);
    pair_run(&pair, pair_op(&pair, NXL_WRITE, 0, 1 << 20));
    assert_int_equal(pair.rig->disconnects, 0);
    pair_close(&pair);
}

static void an_idle_backend_uses_no_processor(void **state)
{
    struct timespec wait = {.tv_nsec = 500000000};
    struct rusage before, after;
    struct pair pair;
    long used_us;

    (void)state;
    pair_open(&pair, 1 << 20);
    pair_run(&pair, pair_op(&pair, NXL_WRITE, 0, 1 << 20));
    getrusage(RUSAGE_SELF, &before);
    nanosleep(&wait, NULL);
    getrusage(RUSAGE_SELF, &after);
    used_us = (after.ru_utime.tv_sec - before.ru_utime.tv_sec + after.ru_stime.tv_sec -
               before.ru_stime.tv_sec) *
                  1000000l +
              after.ru_utime.tv_usec - before.ru_utime.tv_usec + after.ru_stime.tv_usec -
              before.ru_stime.tv_usec;
    assert_in_range(used_us, 0, 5000); /* 1 % of a core */
    pair_close(&pair);
}

int main(int argc, char **argv)
{
    static char tls[128], protocol[64];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size_arrives_and_nothing_beside_it),
        cmocka_unit_test(the_path_is_named),
        cmocka_unit_test(ten_thousand_scattered_pieces_arrive),
        cmocka_unit_test(strided_rows_arrive_and_the_gaps_stay),
        cmocka_unit_test(many_operations_share_a_connection),
        cmocka_unit_test(again_is_followed_by_ready),
        cmocka_unit_test(cancel_leads_to_quiet_and_the_connection_lives),
        cmocka_unit_test(an_idle_backend_uses_no_processor),
    };
    int failed;

    if (argc > 1 && strcmp(argv[1], "far") == 0)
        return far_main(argc, argv);
    if (argc > 1 && strncmp(argv[1], "environment-", 12) == 0)
        return environment_main(argv[1] + 12, argc > 2 ? argv[2] : NULL);
    if (argc < 3) {
        fprintf(stderr, "usage: test_ucx <tls> <protocol> [test name with *]\n");
        return 2;
    }
    if (argc > 3)
        cmocka_set_test_filter(argv[3]);
    snprintf(tls, sizeof(tls), "tls=%s", argv[1]);
    snprintf(protocol, sizeof(protocol), "protocol=%s", argv[2]);
    ucx_settings[0] = tls;
    ucx_settings[1] = protocol;
    ucx_settings[2] = "connect_timeout=2s";
    failed = cmocka_run_group_tests_name("ucx: what moves", tests, NULL, NULL);
    failed += death_run();
    failed += environment_run();
    return failed;
}
