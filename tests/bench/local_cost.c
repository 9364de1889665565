/* local_cost.c - what the client's calls cost where they are made: post, make, poll, events. */
#include <stdio.h>
#include <stdlib.h>

#include "bench/local.h"

#define BLOCK (8 * KIB)
#define BLOCKS 20480u
#define ROUNDS 400
#define READS 2000000

struct rig {
    struct near a, b;
    struct nxl_remote *remote;
};

static double nanoseconds(uint64_t since, double calls)
{
    return (double)(cluster_now() - since) / calls;
}

static void cost_row(const char *name, double ns, double goal_ns)
{
    local_row(&(struct local_row){.name = name,
                                  .unit = "ns",
                                  .value = ns,
                                  .kind = goal_ns > 0 ? GOAL_VALUE_AT_MOST : GOAL_NONE,
                                  .goal = goal_ns});
}

static double post_cost(struct nxl_transfer *transfer, int rounds)
{
    double *costs = calloc((size_t)rounds, sizeof(*costs)), median;

    for (int i = 0; i < rounds; i++) {
        struct nxl_err err = {0};
        uint64_t start = cluster_now();
        enum nxl_code code = nxl_transfer_post(transfer, &err);

        costs[i] = nanoseconds(start, 1);
        local_must(code, &err, "post");
        local_wait(transfer);
    }
    median = local_percentile(costs, rounds, 50);
    free(costs);
    return median;
}

static void one_descriptor(struct rig *r)
{
    struct nxl_transfer *transfer =
        near_create(&r->a, NXL_READ, r->remote, 0, (uint64_t)(uintptr_t)r->b.memory, BLOCK);
    uint64_t start;
    struct nxl_event event;

    local_wait((near_run(transfer), transfer));
    cost_row("post_1", post_cost(transfer, 10 * ROUNDS), 1000);
    start = cluster_now();
    for (int i = 0; i < READS; i++)
        if (nxl_transfer_poll(transfer) != NXL_OK)
            local_fail("a finished transfer changed its mind");
    cost_row("check", nanoseconds(start, READS), 50);
    start = cluster_now();
    for (int i = 0; i < READS; i++)
        if (nxl_peer_next(r->a.peer, &event) == NXL_OK)
            local_fail("an event came that nobody sent");
    cost_row("notices_empty", nanoseconds(start, READS), 50);
    near_release(transfer);
}

static void shuffled(uint32_t *index, uint32_t count, unsigned seed)
{
    for (uint32_t i = 0; i < count; i++)
        index[i] = i;
    srand(seed);
    for (uint32_t i = count - 1; i > 0; i--) {
        uint32_t k = (uint32_t)rand() % (i + 1), swap = index[i];

        index[i] = index[k];
        index[k] = swap;
    }
}

static struct nxl_list *blocks(struct near *owner, struct nxl_remote *remote, const void *memory)
{
    struct nxl_run run = {
        .addr = (uint64_t)(uintptr_t)memory, .len = BLOCK, .stride = BLOCK, .count = BLOCKS};
    struct nxl_list *list;
    struct nxl_err err = {0};

    local_must(nxl_list_prepare(owner->peer, remote, NXL_MEM_DRAM, &run, 1, &list, &err), &err,
               "prepare a list");
    return list;
}

static void many_descriptors(struct rig *r)
{
    static uint32_t here[BLOCKS], there[BLOCKS];
    struct nxl_list *local = blocks(&r->a, NULL, r->a.memory);
    struct nxl_list *remote = blocks(&r->a, r->remote, r->b.memory);
    double makes[30], posts[30];
    struct nxl_err err = {0};

    for (int i = 0; i < 30;
         i++) { /* every request has other blocks, so each is made and posted once */
        struct nxl_transfer *transfer;
        uint64_t start;

        shuffled(here, BLOCKS, (unsigned)(2 * i));
        shuffled(there, BLOCKS, (unsigned)(2 * i + 1));
        start = cluster_now();
        local_must(nxl_transfer_make(r->a.peer, NXL_READ, local, here, remote, there, BLOCKS, NULL,
                                     &transfer, &err),
                   &err, "make");
        makes[i] = nanoseconds(start, 1);
        start = cluster_now();
        local_must(nxl_transfer_post(transfer, &err), &err, "post");
        posts[i] = nanoseconds(start, 1);
        local_wait(transfer);
        near_release(transfer);
    }
    cost_row("make_20480_by_index", local_percentile(makes, 30, 50), 0);
    cost_row("post_20480_by_index", local_percentile(posts, 30, 50), 50000);
    for (int i = 0; i < 30; i++)
        makes[i] += posts[i]; /* sorted both: an upper bound of the sum's median */
    cost_row("make_and_post_20480_by_index", local_percentile(makes, 30, 50), 0);
    nxl_list_free(local);
    nxl_list_free(remote);
}

void local_cost(struct cluster *c)
{
    struct rig r;

    near_open(c, 0, "a", (uint64_t)BLOCK * BLOCKS, &r.a);
    near_open(c, 0, "b", (uint64_t)BLOCK * BLOCKS, &r.b);
    r.remote = near_load(&r.a, &r.b);
    one_descriptor(&r);
    many_descriptors(&r);
    near_close(&r.a);
    near_close(&r.b);
}
