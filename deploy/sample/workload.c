/* workload.c - the sample's shared half: open, fill, digest, build transfers, wait. */
#include "workload.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

uint64_t sample_now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void sample_say(const char *role, const char *fmt, ...)
{
    va_list args;

    printf("%-8s ", role);
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
}

void sample_check(enum nxl_code code, const struct nxl_err *err, const char *what)
{
    if (code == NXL_OK)
        return;
    fprintf(stderr, "%s: %s: %s\n", what, nxl_code_name(code), err->text);
    exit(1);
}

static uint64_t mix(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* The request's blocks: a random choice of the pool in random order. */
static void blocks_choose(struct sample *s, uint64_t seed)
{
    uint32_t pool[SAMPLE_POOL];

    for (uint32_t i = 0; i < SAMPLE_POOL; i++)
        pool[i] = i;
    for (uint32_t i = 0; i < SAMPLE_BLOCKS; i++) {
        uint32_t k = i + (uint32_t)(mix(&seed) % (SAMPLE_POOL - i));
        uint32_t swap = pool[i];

        pool[i] = pool[k];
        pool[k] = swap;
        s->blocks[i] = pool[i];
    }
}

void sample_open(struct sample *s, const char *socket_path, const char *role, uint64_t seed)
{
    struct nxl_client_options options = {
        .size = sizeof(options), .socket_path = socket_path, .reconnect = 1};
    struct nxl_region regions[SAMPLE_LAYERS];
    size_t region_size = (size_t)SAMPLE_POOL * SAMPLE_BLOCK;
    struct nxl_err err = {0};
    void *memory;

    sample_check(nxl_client_open(&options, &s->client, &err), &err, "connect to the agent");
    sample_check(nxl_peer_open(s->client, role, &s->peer, &err), &err, "open the peer");
    sample_check(nxl_alloc(region_size * SAMPLE_LAYERS, NXL_ALLOC_POPULATE, &memory, &err), &err,
                 "allocate the cache");
    s->cache = memory;
    for (uint32_t i = 0; i < SAMPLE_LAYERS; i++)
        regions[i] = (struct nxl_region){
            .addr = s->cache + i * region_size, .len = region_size, .kind = NXL_MEM_DRAM};
    sample_check(nxl_register(s->peer, regions, SAMPLE_LAYERS, s->regs, &err), &err,
                 "register the cache");
    blocks_choose(s, seed);
    sample_check(nxl_send_metadata(s->peer, NULL, NULL, NULL, 0, 0, &err), &err,
                 "publish in the store");
}

void sample_close(struct sample *s)
{
    nxl_client_close(s->client);
    nxl_free(s->cache);
}

void sample_fill(struct sample *s, uint64_t seed)
{
    uint64_t *words = (uint64_t *)(void *)s->cache;
    size_t count = (size_t)SAMPLE_LAYERS * SAMPLE_POOL * SAMPLE_BLOCK / sizeof(*words);

    for (size_t i = 0; i < count; i++)
        words[i] = (i + seed) * 0x9e3779b97f4a7c15u ^ seed;
}

uint64_t sample_digest(const struct sample *s)
{
    XXH64_state_t *state = XXH64_createState();
    uint64_t digest;

    if (state == NULL)
        abort();
    XXH64_reset(state, 0);
    for (uint32_t layer = 0; layer < SAMPLE_LAYERS; layer++) {
        for (uint32_t i = 0; i < SAMPLE_BLOCKS; i++)
            XXH64_update(state,
                         s->cache + ((size_t)layer * SAMPLE_POOL + s->blocks[i]) * SAMPLE_BLOCK,
                         SAMPLE_BLOCK);
    }
    digest = XXH64_digest(state);
    XXH64_freeState(state);
    return digest;
}

void sample_table(const struct sample *s, enum sample_kind kind, struct sample_table *ret)
{
    memset(ret, 0, sizeof(*ret));
    ret->kind = kind;
    ret->pid = (uint32_t)getpid();
    ret->stamp = sample_now();
    for (uint32_t i = 0; i < SAMPLE_LAYERS; i++)
        ret->base[i] = (uint64_t)(uintptr_t)s->cache + (uint64_t)i * SAMPLE_POOL * SAMPLE_BLOCK;
    memcpy(ret->blocks, s->blocks, sizeof(ret->blocks));
}

static struct nxl_list *layers_list(struct sample *s, struct nxl_remote *remote,
                                    const uint64_t *base)
{
    struct nxl_run runs[SAMPLE_LAYERS];
    struct nxl_list *list;
    struct nxl_err err = {0};

    for (uint32_t i = 0; i < SAMPLE_LAYERS; i++)
        runs[i] = (struct nxl_run){
            .addr = base[i], .len = SAMPLE_BLOCK, .stride = SAMPLE_BLOCK, .count = SAMPLE_POOL};
    sample_check(nxl_list_prepare(s->peer, remote, NXL_MEM_DRAM, runs, SAMPLE_LAYERS, &list, &err),
                 &err, "prepare a list");
    return list;
}

struct nxl_transfer *sample_transfer(struct sample *s, enum nxl_op_kind op,
                                     struct nxl_remote *remote, const struct sample_table *theirs,
                                     const struct nxl_transfer_options *options)
{
    static uint32_t here[SAMPLE_DESCRIPTORS], there[SAMPLE_DESCRIPTORS];
    struct sample_table mine;
    struct nxl_list *local, *far;
    struct nxl_transfer *transfer;
    struct nxl_err err = {0};

    sample_table(s, SAMPLE_TABLE, &mine);
    local = layers_list(s, NULL, mine.base);
    far = layers_list(s, remote, theirs->base);
    for (uint32_t layer = 0; layer < SAMPLE_LAYERS; layer++) {
        for (uint32_t i = 0; i < SAMPLE_BLOCKS; i++) {
            here[layer * SAMPLE_BLOCKS + i] = layer * SAMPLE_POOL + s->blocks[i];
            there[layer * SAMPLE_BLOCKS + i] = layer * SAMPLE_POOL + theirs->blocks[i];
        }
    }
    sample_check(nxl_transfer_make(s->peer, op, local, here, far, there, SAMPLE_DESCRIPTORS,
                                   options, &transfer, &err),
                 &err, "make the transfer");
    return transfer;
}

int sample_event(struct sample *s, uint32_t kind, uint64_t timeout_ns, struct nxl_event *ret,
                 struct sample_table *ret_table)
{
    uint64_t deadline = sample_now() + timeout_ns;

    for (;;) {
        struct pollfd fd = {.fd = nxl_client_fd(s->client), .events = POLLIN};
        uint64_t now;

        while (nxl_peer_next(s->peer, ret) == NXL_OK) {
            if (kind != 0 && ret->kind != kind)
                continue;
            if (ret_table != NULL && ret->kind == NXL_EVENT_NOTICE &&
                ret->size == sizeof(*ret_table))
                memcpy(ret_table, ret->payload, ret->size);
            return 1;
        }
        now = sample_now();
        if (now >= deadline)
            return 0;
        if (nxl_client_arm(s->client) == NXL_OK)
            (void)poll(&fd, 1, (int)((deadline - now) / 1000000u) + 1);
    }
}
