/* bench_ucx.c - one line of JSON per size: bench_ucx <tls> <protocol> [setting=value...]. WRITE and
 * READ of one piece, best and median of several, beside memcpy of the same size in the same run. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "integration/ucx/ucx_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define REGION (64u << 20)

static const char *settings[16];

static int compare(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static void report(const char *what, uint64_t len, uint64_t *ns, unsigned count, const char *device)
{
    qsort(ns, count, sizeof(*ns), compare);
    printf("{\"what\": \"%s\", \"bytes\": %llu, \"best_us\": %.1f, \"median_us\": %.1f, "
           "\"best_gbs\": %.2f, "
           "\"median_gbs\": %.2f, \"device\": \"%s\"}\n",
           what, (unsigned long long)len, (double)ns[0] / 1e3, (double)ns[count / 2] / 1e3,
           (double)len / (double)ns[0], (double)len / (double)ns[count / 2], device);
}

struct bench {
    struct ucx_rig *rig;
    struct far far;
    void *base;
    struct nxl_backend_mem *mem;
    struct nxl_backend_conn *conn;
    struct nxl_backend_remote *remote;
};

static int bench_open(struct bench *bench, struct nxl_err *err)
{
    const struct nxl_backend_ops *ops = &nxl_backend_ucx_ops;
    struct nxl_memory memory = {.kind = NXL_MEM_DRAM, .size = REGION, .fd = -1};

    bench->rig = ucx_rig_open(settings, err);
    bench->base = mmap(NULL, REGION, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    memory.base = bench->base;
    if (bench->rig == NULL || bench->base == MAP_FAILED ||
        !far_spawn(&bench->far, REGION, settings) ||
        ops->register_mem(bench->rig->backend, &memory, &bench->mem, err) != NXL_OK ||
        ops->connect(bench->rig->backend,
                     (struct nxl_view){bench->far.address, bench->far.address_size}, &bench->conn,
                     err) != NXL_OK ||
        ops->import_key(bench->rig->backend, bench->conn,
                        (struct nxl_view){bench->far.key, bench->far.key_size}, &bench->remote,
                        err) != NXL_OK)
        return 0;
    memset(bench->base, 1, REGION);
    memset(bench->far.base, 2, REGION);
    return 1;
}

static int bench_moves(struct bench *bench, int kind, uint64_t len, unsigned count)
{
    struct nxl_err err = {0};
    const char *device = "";
    uint64_t ns[256];

    for (unsigned i = 0; i < count; i++) {
        struct ucx_rig_op *op =
            ucx_rig_op_new(bench->rig, kind, bench->conn, bench->mem, bench->remote);
        uint64_t started = ucx_rig_now_ns();

        op->single = (struct nxl_piece){.len = len, .count = 1};
        if (ucx_rig_submit(bench->rig, op, &err) != NXL_OK ||
            !ucx_rig_wait_quiet(bench->rig, op, 30000) || op->outcome.code != NXL_OK) {
            fprintf(stderr, "failed: %s %s\n", err.text, op->outcome.text);
            return 0;
        }
        ns[i] = ucx_rig_now_ns() - started;
        device = op->outcome.device;
    }
    report(kind == NXL_WRITE ? "write" : "read", len, ns, count, device);
    return 1;
}

static void bench_memcpy(struct bench *bench, uint64_t len, unsigned count)
{
    uint64_t ns[256];

    for (unsigned i = 0; i < count; i++) {
        uint64_t started = ucx_rig_now_ns();

        memcpy(bench->base, bench->far.base, len);
        __asm__ volatile("" : : "r"(bench->base) : "memory");
        ns[i] = ucx_rig_now_ns() - started;
    }
    report("memcpy", len, ns, count, "memory");
}

int main(int argc, char **argv)
{
    static const uint64_t sizes[] = {8, 4096, 65536, 1 << 20, 8 << 20, REGION};
    static char tls[128], protocol[64];
    struct bench bench = {0};
    struct nxl_err err = {0};

    if (argc > 1 && strcmp(argv[1], "far") == 0)
        return far_main(argc, argv);
    if (argc < 3 || argc > 12)
        return 2;
    snprintf(tls, sizeof(tls), "tls=%s", argv[1]);
    snprintf(protocol, sizeof(protocol), "protocol=%s", argv[2]);
    settings[0] = tls;
    settings[1] = protocol;
    for (int i = 3; i < argc; i++)
        settings[i - 1] = argv[i];
    if (!bench_open(&bench, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        unsigned count = sizes[s] >= 8 << 20 ? 15 : 100;

        if (!bench_moves(&bench, NXL_READ, sizes[s], count) ||
            !bench_moves(&bench, NXL_WRITE, sizes[s], count))
            return 1;
        bench_memcpy(&bench, sizes[s], count);
    }
    ucx_rig_close(bench.rig);
    far_close(&bench.far);
    return 0;
}
