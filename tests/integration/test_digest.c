/* test_digest.c - C-110: a transfer that asks for it is checked by digest on both sides before it
 * ends. A backend that skips, flips or delays bytes and reports success is found out. Bare, every
 * row moves right; the other rigs lie. Two observers: a client of the owner's agent and of another
 * one. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/near.h"
#include "support/proxy.h"

#define MIB (1u << 20)
#define SIZE (64u * MIB)
#define ROWS 20000u /* more than are compared at once */
#define WAIT_NS 30000000000u

struct rig {
    struct cluster cluster;
    struct near owner, near[2]; /* at agent 0; at agent 0 and 1 */
    struct nxl_remote *remote[2];
    struct proxy proxies[2];
    int proxied;
};

static int rig_make(void **state, const char *fault, int proxied)
{
    struct rig *r = *state = calloc(1, sizeof(struct rig));

    r->cluster.secure = 1;
    r->cluster.backends = fault != NULL ? "fault:shm,fault:ucx" : NULL;
    r->cluster.extra[0] = fault;
    if (fault != NULL)
        r->cluster.extra[1] = "--backends.fault.late_write=3s"; /* longer than any sum takes */
    r->proxied = proxied;
    if (proxied)
        proxy_agents_start(&r->cluster, r->proxies, 0);
    else
        cluster_start(&r->cluster, 2, 0);
    near_open(&r->cluster, 0, "owner", SIZE, &r->owner);
    for (uint32_t i = 0; i < SIZE / 8; i++)
        ((uint64_t *)(void *)r->owner.memory)[i] = near_word(i * 8u);
    for (int i = 0; i < 2; i++) {
        near_open(&r->cluster, i, i == 0 ? "near0" : "near1", SIZE, &r->near[i]);
        r->remote[i] = near_load(&r->near[i], &r->owner);
    }
    return 0;
}

static int open_bare(void **state)
{
    return rig_make(state, NULL, 0);
}

static int open_proxied(void **state)
{
    return rig_make(state, NULL, 1);
}

static int open_flip(void **state)
{
    return rig_make(state, "--backends.fault.flip_every=1", 0);
}

static int open_skip(void **state)
{
    return rig_make(state, "--backends.fault.skip_every=1", 0);
}

static int open_late(void **state)
{
    return rig_make(state, "--backends.fault.late_every=1", 0);
}

static int rig_down(void **state)
{
    struct rig *r = *state;

    near_close(&r->near[0]);
    near_close(&r->near[1]);
    near_close(&r->owner);
    cluster_stop(&r->cluster);
    for (int i = 0; r->proxied && i < 2; i++)
        proxy_stop(&r->proxies[i]);
    free(r);
    return 0;
}

/* ROWS rows of 1 KiB, every third KiB of both sides. */
static struct nxl_transfer *scattered(struct rig *r, int i, enum nxl_op_kind op, uint32_t verify)
{
    struct nxl_transfer_options options = {
        .size = sizeof(options), .no_merge = 1, .verify = verify};
    struct nxl_run here = {
        .addr = (uint64_t)(uintptr_t)r->near[i].memory, .len = 1024, .stride = 3072, .count = ROWS};
    struct nxl_run there = {.addr = (uint64_t)(uintptr_t)r->owner.memory + 1024,
                            .len = 1024,
                            .stride = 3072,
                            .count = ROWS};
    struct nxl_transfer *transfer;
    struct nxl_run *locals = calloc(ROWS, sizeof(*locals)),
                   *remotes = calloc(ROWS, sizeof(*remotes));
    struct nxl_err err = {0};

    for (uint32_t k = 0; k < ROWS; k++) { /* one by one and backwards on one side: nothing merges */
        locals[k] = (struct nxl_run){
            .addr = here.addr + (uint64_t)k * 3072, .len = 1024, .stride = 1024, .count = 1};
        remotes[k] = (struct nxl_run){.addr = there.addr + (uint64_t)(ROWS - 1 - k) * 3072,
                                      .len = 1024,
                                      .stride = 1024,
                                      .count = 1};
    }
    if (nxl_transfer_create(r->near[i].peer, op, r->remote[i], NXL_MEM_DRAM, locals, ROWS, remotes,
                            ROWS, &options, &transfer, &err) != NXL_OK)
        fail_msg("create: %s", err.text);
    free(locals);
    free(remotes);
    return transfer;
}

static void expect_checked(struct rig *r, int i)
{
    static const char *const metric = "nixlet_digest_bytes_total";
    double before = cluster_metric(&r->cluster, i, metric);

    for (int op = 0; op < 2; op++) {
        struct nxl_transfer *transfer = scattered(r, i, op == 0 ? NXL_READ : NXL_WRITE, 1);

        for (int again = 0; again < 2; again++)
            assert_int_equal(near_run(transfer), NXL_OK);
        near_release(transfer);
    }
    assert_true(cluster_metric(&r->cluster, i, metric) == before + 4.0 * ROWS * 1024);
}

static void bytes_that_arrive_right_are_checked_and_counted(void **state)
{
    struct rig *r = *state;

    for (int i = 0; i < 2; i++) {
        expect_checked(r, i);
        assert_true(*(uint64_t *)(void *)r->near[i].memory == near_word(1024 + (ROWS - 1) * 3072u));
        assert_true(cluster_metric(&r->cluster, i, "nixlet_digest_mismatches_total") == 0);
    }
}

static void expect_found_out(struct rig *r)
{
    for (int i = 0; i < 2; i++) {
        for (int op = 0; op < 2; op++) {
            struct nxl_transfer *transfer = scattered(r, i, op == 0 ? NXL_READ : NXL_WRITE, 1);
            struct nxl_err err = {0};

            memset(r->near[i].memory, 'a' + 2 * i + op, SIZE);
            if (near_run(transfer) != NXL_DIGEST)
                fail_msg("near%d, %s: %s", i, op == 0 ? "read" : "write",
                         nxl_code_name(nxl_transfer_poll(transfer)));
            assert_int_equal(nxl_transfer_explain(transfer, &err), NXL_OK);
            assert_non_null(strstr(err.text, "owner"));
            assert_non_null(strstr(err.text, "differ within pieces"));
            near_release(transfer);
        }
        assert_true(cluster_metric(&r->cluster, i, "nixlet_digest_mismatches_total") == 2);
    }
}

static void a_flipped_byte_is_found_out(void **state)
{
    expect_found_out(*state);
}

static void a_row_that_was_left_out_is_found_out(void **state)
{
    expect_found_out(*state);
}

static void a_row_that_comes_late_is_found_out(void **state)
{
    expect_found_out(*state);
}

static void without_the_check_wrong_bytes_pass_as_success(void **state)
{
    struct rig *r = *state; /* else the tests beside would show nothing */
    struct nxl_transfer *transfer = scattered(r, 1, NXL_READ, 0);

    assert_int_equal(near_run(transfer), NXL_OK);
    near_release(transfer);
}

static void the_target_dies_while_its_bytes_are_compared(void **state)
{
    struct rig *r = *state;
    struct cluster_peer victim;
    struct nxl_remote *remote;
    struct nxl_transfer_options options = {.size = sizeof(options), .verify = 1};
    struct nxl_transfer *transfer;
    struct nxl_run here = {.addr = (uint64_t)(uintptr_t)r->near[1].memory,
                           .len = SIZE,
                           .stride = SIZE,
                           .count = 1},
                   there;
    struct nxl_err err = {0};

    cluster_peer_start(&r->cluster, 0, "victim", SIZE, "fill", &victim);
    remote = near_fetch(&r->near[1], "victim");
    there = (struct nxl_run){.addr = victim.addr, .len = SIZE, .stride = SIZE, .count = 1};
    assert_int_equal(nxl_transfer_create(r->near[1].peer, NXL_READ, remote, NXL_MEM_DRAM, &here, 1,
                                         &there, 1, &options, &transfer, &err),
                     NXL_OK);
    assert_int_equal(near_run(transfer), NXL_OK); /* wired up */
    proxy_refuse(&r->proxies[0]);
    proxy_refuse(&r->proxies[1]); /* data passes, the question for the digest waits */
    assert_int_equal(nxl_transfer_post(transfer, &err), NXL_OK);
    assert_int_equal(nxl_transfer_wait(transfer, 500000000u, &err), NXL_TIMEOUT);
    cluster_peer_kill(&victim, SIGKILL);
    assert_int_equal(nxl_transfer_wait(transfer, WAIT_NS, &err),
                     NXL_REMOTE_DISCONNECT); /* told through the store */
    assert_int_equal(nxl_transfer_wait_quiesced(transfer, WAIT_NS, &err), NXL_OK);
    near_release(transfer);
}

static void a_line_that_is_cut_delays_the_answer_and_loses_nothing(void **state)
{
    struct rig *r = *state;
    struct nxl_transfer *transfer = scattered(r, 1, NXL_READ, 1);
    uint16_t targets[2] = {r->proxies[0].target, r->proxies[1].target};
    struct nxl_err err = {0};

    assert_int_equal(near_run(transfer), NXL_OK);
    proxy_refuse(&r->proxies[0]);
    proxy_refuse(&r->proxies[1]);
    assert_int_equal(nxl_transfer_post(transfer, &err), NXL_OK);
    assert_int_equal(nxl_transfer_wait(transfer, 500000000u, &err), NXL_TIMEOUT);
    r->proxies[0].target = targets[0]; /* atomic */
    r->proxies[1].target = targets[1];
    assert_int_equal(nxl_transfer_wait(transfer, WAIT_NS, &err), NXL_OK);
    near_release(transfer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(bytes_that_arrive_right_are_checked_and_counted, open_bare,
                                        rig_down),
        cmocka_unit_test_setup_teardown(a_flipped_byte_is_found_out, open_flip, rig_down),
        cmocka_unit_test_setup_teardown(a_row_that_was_left_out_is_found_out, open_skip, rig_down),
        cmocka_unit_test_setup_teardown(a_row_that_comes_late_is_found_out, open_late, rig_down),
        cmocka_unit_test_setup_teardown(without_the_check_wrong_bytes_pass_as_success, open_flip,
                                        rig_down),
        cmocka_unit_test_setup_teardown(the_target_dies_while_its_bytes_are_compared, open_proxied,
                                        rig_down),
        cmocka_unit_test_setup_teardown(a_line_that_is_cut_delays_the_answer_and_loses_nothing,
                                        open_proxied, rig_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
