/* local_move.c - bytes between two clients of one agent against memcpy over the same pages: both
 * are clients of this process, so it can copy what the agent copies. Measured in turns. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/local.h"

#define BLOCK (8 * KIB)
#define BLOCKS 20480u
#define ROOM (3 * 160ull * MIB) /* blocks are spread over three times their size */
#define SPREAD 3u

struct rig {
    struct near a, b;
    struct nxl_remote *remote;
};

/* The same place is not used twice running, so that caches help neither side. */
static void contiguous(struct rig *r, const char *name, uint64_t size, int rounds, double goal)
{
    uint64_t places = ROOM / size < 64 ? ROOM / size : 64;
    struct nxl_transfer *transfers[64];
    double *own = calloc((size_t)rounds, sizeof(*own)), *bar = calloc((size_t)rounds, sizeof(*bar));

    for (uint64_t i = 0; i < places; i++) {
        transfers[i] = near_create(&r->a, NXL_READ, r->remote, i * size,
                                   (uint64_t)(uintptr_t)r->b.memory + i * size, size);
        local_wait((near_run(transfers[i]), transfers[i]));
    }
    for (int k = 0; k < rounds; k++) {
        uint64_t place = (uint64_t)k % places, other = (place + places / 2) % places,
                 start = cluster_now();

        memcpy(r->a.memory + other * size, r->b.memory + other * size, size);
        bar[k] = (double)(cluster_now() - start);
        start = cluster_now();
        if (near_run(transfers[place]) != NXL_OK)
            local_fail("a transfer of %s failed", name);
        own[k] = (double)(cluster_now() - start);
    }
    local_speed_row(name, own, bar, rounds, (double)size, "memcpy by this process, same pages",
                    goal);
    for (uint64_t i = 0; i < places; i++)
        near_release(transfers[i]);
    free(own);
    free(bar);
}

static void orders(uint32_t *here, uint32_t *there, int scattered)
{
    for (uint32_t i = 0; i < BLOCKS; i++)
        here[i] = there[i] = i;
    srand(7);
    for (uint32_t i = BLOCKS - 1; scattered && i > 0; i--) {
        uint32_t k = (uint32_t)rand() % (i + 1), m = (uint32_t)rand() % (i + 1), swap = here[i];

        here[i] = here[k];
        here[k] = swap;
        swap = there[i];
        there[i] = there[m];
        there[m] = swap;
    }
}

static struct nxl_transfer *blocks_make(struct rig *r, const uint32_t *here, const uint32_t *there,
                                        uint64_t stride)
{
    struct nxl_run run = {
        .addr = (uint64_t)(uintptr_t)r->a.memory, .len = BLOCK, .stride = stride, .count = BLOCKS};
    struct nxl_list *local, *remote;
    struct nxl_transfer *transfer;
    struct nxl_err err = {0};

    local_must(nxl_list_prepare(r->a.peer, NULL, NXL_MEM_DRAM, &run, 1, &local, &err), &err,
               "list");
    run.addr = (uint64_t)(uintptr_t)r->b.memory;
    local_must(nxl_list_prepare(r->a.peer, r->remote, NXL_MEM_DRAM, &run, 1, &remote, &err), &err,
               "list");
    local_must(nxl_transfer_make(r->a.peer, NXL_READ, local, here, remote, there, BLOCKS, NULL,
                                 &transfer, &err),
               &err, "make");
    nxl_list_free(local);
    nxl_list_free(remote);
    return transfer;
}

static void blocks(struct rig *r, int scattered)
{
    enum { ROUNDS = 15 };
    static uint32_t here[BLOCKS], there[BLOCKS];
    uint64_t stride = scattered ? SPREAD * BLOCK : BLOCK;
    double own[ROUNDS], plain[ROUNDS], same[ROUNDS], again[ROUNDS];
    struct nxl_transfer_report report = {.size = sizeof(report)};
    struct nxl_transfer *transfer;

    orders(here, there, scattered);
    transfer = blocks_make(r, here, there, stride);
    local_wait((near_run(transfer), transfer));
    for (int k = 0; k < ROUNDS; k++) {
        uint64_t start = cluster_now();

        memcpy(r->a.memory, r->b.memory, (size_t)BLOCK * BLOCKS);
        plain[k] = (double)(cluster_now() - start);
        start = cluster_now();
        for (uint32_t i = 0; i < BLOCKS; i++)
            memcpy(r->a.memory + here[i] * stride, r->b.memory + there[i] * stride, BLOCK);
        same[k] = (double)(cluster_now() - start);
        start = cluster_now();
        if (near_run(transfer) != NXL_OK)
            local_fail("a transfer of blocks failed");
        own[k] = again[k] = (double)(cluster_now() - start);
    }
    (void)nxl_transfer_report(transfer, &report);
    if (scattered && report.pieces < BLOCKS * 9 / 10)
        local_fail("scattered blocks became %u pieces", report.pieces);
    local_speed_row(scattered ? "blocks_20480_scattered" : "blocks_20480_merged", own, plain,
                    ROUNDS, (double)BLOCK * BLOCKS, "one memcpy of as many bytes",
                    scattered ? 0.8 : 0.9);
    local_speed_row(scattered ? "blocks_20480_scattered_same" : "blocks_20480_merged_same", again,
                    same, ROUNDS, (double)BLOCK * BLOCKS, "memcpy block by block in the same order",
                    0);
    near_release(transfer);
}

void local_move(struct cluster *c)
{
    struct rig r;

    near_open(c, 0, "a", ROOM, &r.a);
    near_open(c, 0, "b", ROOM, &r.b);
    memset(r.a.memory, 1, ROOM);
    memset(r.b.memory, 2, ROOM);
    r.remote = near_load(&r.a, &r.b);
    contiguous(&r, "same_agent_1MiB", MIB, 600, 0.9);
    contiguous(&r, "same_agent_64MiB", 64 * MIB, 40, 0.9);
    blocks(&r, 1);
    blocks(&r, 0);
    near_close(&r.a);
    near_close(&r.b);
}
