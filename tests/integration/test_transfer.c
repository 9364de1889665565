/* test_transfer.c - bytes between processes: at one agent (shm), between two (UCX), to oneself. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/cluster.h"

#define MIB (1u << 20)

struct rig {
    struct cluster cluster;
    struct cluster_peer far;
    struct nxl_client *client;
    struct nxl_peer *peer;
    struct nxl_remote *remote;
    struct nxl_memreg *reg;
    unsigned char *memory;
    uint64_t size;
};

/* far_agent: where the other process is; we are at agent 0. */
static void rig_open(struct rig *r, int far_agent, int secure)
{
    struct nxl_region region;
    struct nxl_err err = {0};

    memset(r, 0, sizeof(*r));
    r->size = 64 * MIB;
    r->cluster.secure = secure;
    cluster_start(&r->cluster, far_agent + 1, 0);
    cluster_peer_start(&r->cluster, far_agent, "far", r->size, "fill", &r->far);
    r->client = cluster_client(&r->cluster, 0);
    assert_int_equal(nxl_peer_open(r->client, "near", &r->peer, &err), NXL_OK);
    assert_int_equal(nxl_alloc(r->size, 0, (void **)&r->memory, &err), NXL_OK);
    region = (struct nxl_region){.addr = r->memory, .len = r->size};
    assert_int_equal(nxl_register(r->peer, &region, 1, &r->reg, &err), NXL_OK);
    if (nxl_fetch_metadata(r->peer, "far", NULL, NULL, 10000, &r->remote, &err) != NXL_OK)
        fail_msg("fetch: %s", err.text);
}

static void rig_close(struct rig *r)
{
    nxl_client_close(r->client);
    cluster_peer_kill(&r->far, SIGKILL);
    cluster_stop(&r->cluster);
    nxl_free(r->memory);
}

static int same_agent_open(void **state)
{
    rig_open(*state = calloc(1, sizeof(struct rig)), 0, 0);
    return 0;
}

static int two_agents_open(void **state)
{
    rig_open(*state = calloc(1, sizeof(struct rig)), 1, 1);
    return 0;
}

static int rig_down(void **state)
{
    rig_close(*state);
    free(*state);
    return 0;
}

static uint64_t word_at(uint64_t offset)
{
    return offset / 8 * 0x9e3779b97f4a7c15u;
}

static void run(struct nxl_transfer *t)
{
    struct nxl_err err = {0};

    if (nxl_transfer_post(t, &err) != NXL_OK || nxl_transfer_wait(t, 30000000000u, &err) != NXL_OK)
        fail_msg("transfer: %s", err.text);
    assert_true(nxl_transfer_quiesced(t));
}

static struct nxl_transfer *create(struct rig *r, enum nxl_op_kind op, uint64_t here,
                                   uint64_t there, uint64_t len)
{
    struct nxl_run local = {.addr = (uint64_t)(uintptr_t)r->memory + here, .len = len, .count = 1};
    struct nxl_run remote = {.addr = r->far.addr + there, .len = len, .count = 1};
    struct nxl_transfer *t;
    struct nxl_err err = {0};

    if (nxl_transfer_create(r->peer, op, r->remote, NXL_MEM_DRAM, &local, 1, &remote, 1, NULL, &t,
                            &err) != NXL_OK)
        fail_msg("create: %s", err.text);
    return t;
}

static void release(struct nxl_transfer *t)
{
    struct nxl_err err = {0};

    assert_int_equal(nxl_transfer_release(t, &err), NXL_OK);
}

static void a_read_of_any_size_brings_the_right_bytes(void **state)
{
    static const uint64_t sizes[] = {1, 7, 8, 63, 4096, 4097, 65536, 1000003, 16 * MIB, 64 * MIB};
    struct rig *r = *state;

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        uint64_t there = sizes[i] == 64 * MIB ? 0 : 8192, len = sizes[i];
        struct nxl_transfer *t = create(r, NXL_READ, 0, there, len);
        struct nxl_transfer_report report = {.size = sizeof(report)};

        memset(r->memory, 0xee, len < 63 * MIB ? len + 8 : len);
        run(t);
        for (uint64_t k = 0; k + 8 <= len; k += 8)
            assert_true(*(uint64_t *)(void *)(r->memory + k) == word_at(there + k));
        if (len < 63 * MIB)
            assert_int_equal(r->memory[len], 0xee);
        assert_int_equal(nxl_transfer_report(t, &report), NXL_OK);
        assert_int_equal(report.bytes, len);
        assert_int_not_equal(report.path, NXL_PATH_NONE);
        release(t);
    }
}

static void a_write_can_be_read_back(void **state)
{
    struct rig *r = *state;
    struct nxl_transfer *out, *back;

    for (uint32_t i = 0; i < 3 * MIB; i++)
        r->memory[i] = (unsigned char)(i * 31 + i / 251);
    out = create(r, NXL_WRITE, 0, 4 * MIB, 3 * MIB);
    run(out);
    back = create(r, NXL_READ, 8 * MIB, 4 * MIB, 3 * MIB);
    run(back);
    assert_memory_equal(r->memory, r->memory + 8 * MIB, 3 * MIB);
    run(out); /* again: C-005 (a) and NXL's repost */
    release(out);
    release(back);
}

static void scattered_blocks_land_where_they_belong(void **state)
{
    enum { BLOCK = 8192, COUNT = 2048 };
    struct rig *r = *state;
    struct nxl_run here = {
        .addr = (uint64_t)(uintptr_t)r->memory, .len = BLOCK, .stride = BLOCK, .count = 2 * COUNT};
    struct nxl_run there = {
        .addr = r->far.addr + 16 * MIB, .len = BLOCK, .stride = BLOCK, .count = 2 * COUNT};
    static uint32_t mine[COUNT], theirs[COUNT];
    struct nxl_list *local, *remote;
    struct nxl_transfer *t;
    struct nxl_transfer_report report = {.size = sizeof(report)};
    struct nxl_err err = {0};

    for (uint32_t i = 0; i < COUNT; i++) { /* odd multipliers modulo a power of two: permutations */
        mine[i] = (i * 1597u + 3) % (2 * COUNT);
        theirs[i] = (i * 2741u + 11) % (2 * COUNT);
    }
    assert_int_equal(nxl_list_prepare(r->peer, NULL, NXL_MEM_DRAM, &here, 1, &local, &err), NXL_OK);
    if (nxl_list_prepare(r->peer, r->remote, NXL_MEM_DRAM, &there, 1, &remote, &err) != NXL_OK)
        fail_msg("prepare: %s", err.text);
    assert_int_equal(nxl_list_size(remote), 2 * COUNT);
    assert_int_equal(
        nxl_transfer_make(r->peer, NXL_READ, local, mine, remote, theirs, COUNT, NULL, &t, &err),
        NXL_OK);
    memset(r->memory, 0, (size_t)BLOCK * 2 * COUNT);
    run(t);
    for (uint32_t i = 0; i < COUNT; i++) {
        uint64_t first = *(uint64_t *)(void *)(r->memory + (size_t)mine[i] * BLOCK);
        uint64_t last = *(uint64_t *)(void *)(r->memory + (size_t)mine[i] * BLOCK + BLOCK - 8);

        assert_true(first == word_at(16 * MIB + (uint64_t)theirs[i] * BLOCK));
        assert_true(last == word_at(16 * MIB + (uint64_t)theirs[i] * BLOCK + BLOCK - 8));
    }
    assert_int_equal(nxl_transfer_report(t, &report), NXL_OK);
    assert_int_equal(report.descriptors, COUNT);
    release(t);
    nxl_list_free(local);
    nxl_list_free(remote);
}

static void neighbours_merge_on_both_sides(void **state)
{
    struct rig *r = *state;
    struct nxl_run here = {
        .addr = (uint64_t)(uintptr_t)r->memory, .len = 4096, .stride = 4096, .count = 1024};
    struct nxl_run there = {.addr = r->far.addr, .len = 4096, .stride = 4096, .count = 1024};
    struct nxl_transfer_report report = {.size = sizeof(report)};
    struct nxl_transfer *t;
    struct nxl_err err = {0};

    /* C-103: also in the one-call form */
    assert_int_equal(nxl_transfer_create(r->peer, NXL_READ, r->remote, NXL_MEM_DRAM, &here, 1,
                                         &there, 1, NULL, &t, &err),
                     NXL_OK);
    run(t);
    assert_int_equal(nxl_transfer_report(t, &report), NXL_OK);
    assert_int_equal(report.descriptors, 1024);
    assert_int_equal(report.pieces, 1);
    release(t);
}

static void a_descriptor_outside_the_regions_is_refused_with_its_address(void **state)
{
    struct rig *r = *state;
    struct nxl_transfer *t = create(r, NXL_READ, 0, r->size - 4096, 8192);
    struct nxl_err err = {0};
    char address[32];

    assert_int_equal(nxl_transfer_post(t, &err), NXL_OK);
    assert_int_equal(nxl_transfer_wait(t, 10000000000u, &err), NXL_NOT_FOUND);
    assert_int_equal(nxl_transfer_explain(t, &err), NXL_OK);
    snprintf(address, sizeof(address), "%llx", (unsigned long long)(r->far.addr + r->size - 4096));
    if (strstr(err.text, address) == NULL)
        fail_msg("'%s' does not name %s", err.text, address);
    release(t);
}

static void a_transfer_to_oneself_works_without_metadata(void **state)
{
    struct rig *r = *state; /* C-017 */
    struct nxl_remote *self;
    struct nxl_run from = {.addr = (uint64_t)(uintptr_t)r->memory, .len = 4096, .count = 1};
    struct nxl_run to = {.addr = (uint64_t)(uintptr_t)r->memory + MIB, .len = 4096, .count = 1};
    struct nxl_transfer *t;
    struct nxl_event event;
    struct nxl_err err = {0};

    memset(r->memory, 0x5a, 4096);
    memset(r->memory + MIB, 0, 4096);
    assert_int_equal(nxl_remote_find(r->peer, "near", &self, &err), NXL_OK);
    assert_int_equal(nxl_transfer_create(r->peer, NXL_WRITE, self, NXL_MEM_DRAM, &from, 1, &to, 1,
                                         NULL, &t, &err),
                     NXL_OK);
    assert_int_equal(nxl_transfer_notice(t, "mine", 4, 1, &err), NXL_OK);
    run(t);
    assert_memory_equal(r->memory, r->memory + MIB, 4096);
    assert_true(cluster_event(r->client, r->peer, NXL_EVENT_NOTICE, 5000000000u, &event));
    assert_int_equal(event.size, 4);
    assert_memory_equal(event.payload, "mine", 4);
    assert_string_equal(event.name, "near");
    release(t);
}

static void a_region_in_use_is_not_deregistered_and_a_free_one_is(void **state)
{
    struct rig *r = *state;
    struct nxl_region region = {.addr = r->memory + 32 * MIB, .len = MIB};
    struct nxl_memreg *extra[2];
    struct nxl_err err = {0};

    /* C-003: the same range twice; the first deregister leaves the second */
    assert_int_equal(nxl_register(r->peer, &region, 1, &extra[0], &err), NXL_OK);
    assert_int_equal(nxl_register(r->peer, &region, 1, &extra[1], &err), NXL_OK);
    assert_int_equal(nxl_deregister(r->peer, extra, 1, &err), NXL_OK);
    assert_null(extra[0]);
    assert_int_equal(nxl_deregister_range(r->peer, &region, &err), NXL_OK);
    assert_int_equal(nxl_deregister_range(r->peer, &region, &err), NXL_NOT_FOUND);
    assert_int_equal(nxl_deregister(r->peer, NULL, 0, &err), NXL_OK);
}

#define TESTS(open)                                                                                \
    cmocka_unit_test_setup_teardown(a_read_of_any_size_brings_the_right_bytes, open, rig_down),    \
        cmocka_unit_test_setup_teardown(a_write_can_be_read_back, open, rig_down),                 \
        cmocka_unit_test_setup_teardown(scattered_blocks_land_where_they_belong, open, rig_down),  \
        cmocka_unit_test_setup_teardown(neighbours_merge_on_both_sides, open, rig_down),           \
        cmocka_unit_test_setup_teardown(                                                           \
            a_descriptor_outside_the_regions_is_refused_with_its_address, open, rig_down),         \
        cmocka_unit_test_setup_teardown(a_transfer_to_oneself_works_without_metadata, open,        \
                                        rig_down),                                                 \
        cmocka_unit_test_setup_teardown(a_region_in_use_is_not_deregistered_and_a_free_one_is,     \
                                        open, rig_down)

int main(void)
{
    static const struct CMUnitTest same_agent[] = {TESTS(same_agent_open)};
    static const struct CMUnitTest two_agents[] = {TESTS(two_agents_open)};

    return cmocka_run_group_tests_name("two processes at one agent", same_agent, NULL, NULL) +
           cmocka_run_group_tests_name("two processes at two agents over TLS", two_agents, NULL,
                                       NULL);
}
