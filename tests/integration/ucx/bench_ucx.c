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
    printf("{\"what\": \"%s\", \"bytes\": %llu, \"best_us\": %.1f, \"median_us\": %.1f, \"best_gbs\": %.2f, "
           "\"median_gbs\": %.2f, \"device\": \"%s\"}\n", what, (unsigned long long)len, (double)ns[0] / 1e3,
           (double)ns[count / 2] / 1e3, (double)len / (double)ns[0], (double)len / (double)ns[count / 2], device);
}

int main(int argc, char **argv)
{
    static const uint64_t sizes[] = {8, 4096, 65536, 1 << 20, 8 << 20, REGION};
    char tls[128], protocol[64];
    struct nxl_memory memory = {.kind = NXL_MEM_DRAM, .size = REGION, .fd = -1};
    struct nxl_backend_mem *mem;
    struct nxl_backend_conn *conn;
    struct nxl_backend_remote *remote;
    struct nxl_err err = {0};
    struct ucx_rig *rig;
    struct far far;
    uint64_t ns[256];

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
    rig = ucx_rig_open(settings, &err);
    memory.base = mmap(NULL, REGION, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (rig == NULL || memory.base == MAP_FAILED || !far_spawn(&far, REGION, settings) ||
        nxl_backend_ucx_ops.register_mem(rig->backend, &memory, &mem, &err) != NXL_OK ||
        nxl_backend_ucx_ops.connect(rig->backend, (struct nxl_view){far.address, far.address_size}, &conn, &err) !=
            NXL_OK ||
        nxl_backend_ucx_ops.import_key(rig->backend, conn, (struct nxl_view){far.key, far.key_size}, &remote, &err) !=
            NXL_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    memset(memory.base, 1, REGION);
    memset(far.base, 2, REGION);
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        unsigned count = sizes[s] >= 8 << 20 ? 15 : 100;

        for (int kind = NXL_READ; kind <= NXL_WRITE; kind++) {
            const char *device = "";

            for (unsigned i = 0; i < count; i++) {
                struct ucx_rig_op *op = ucx_rig_op_new(rig, kind, conn, mem, remote);
                uint64_t started = ucx_rig_now_ns();

                op->single = (struct nxl_piece){.len = sizes[s], .count = 1};
                if (ucx_rig_submit(rig, op, &err) != NXL_OK || !ucx_rig_wait_quiet(rig, op, 30000) ||
                    op->outcome.code != NXL_OK) {
                    fprintf(stderr, "failed: %s %s\n", err.text, op->outcome.text);
                    return 1;
                }
                ns[i] = ucx_rig_now_ns() - started;
                device = op->outcome.device;
            }
            report(kind == NXL_WRITE ? "write" : "read", sizes[s], ns, count, device);
        }
        for (unsigned i = 0; i < count; i++) {
            uint64_t started = ucx_rig_now_ns();

            memcpy(memory.base, far.base, sizes[s]);
            __asm__ volatile("" : : "r"(memory.base) : "memory");
            ns[i] = ucx_rig_now_ns() - started;
        }
        report("memcpy", sizes[s], ns, count, "memory");
    }
    ucx_rig_close(rig);
    far_close(&far);
    return 0;
}
