/* test_death.c - peers that are killed, stopped, replaced, and keys and addresses that are damaged.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "integration/ucx/test_ucx.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define LIMIT_MS 5000 /* with connect_timeout=2s: see main() */

static void quiet_after_death(struct pair *pair, struct ucx_rig_op *op)
{
    assert_true(ucx_rig_wait_end(pair->rig, op, LIMIT_MS));
    assert_true(ucx_rig_wait_quiet(pair->rig, op, LIMIT_MS));
    assert_int_equal(op->completes, 1);
    assert_int_equal(op->quiesces, 1);
}

/* Detection behind shared memory takes up to one keep-alive interval. */
static void a_killed_peer_ends_every_operation(void **state)
{
    (void)state;
    for (int round = 0; round < 4; round++) {
        struct ucx_rig_op *ops[8];
        struct pair pair;

        pair_open(&pair, 128 << 20);
        for (int i = 0; i < 8; i++) {
            ops[i] = pair_op(&pair, i % 2 ? NXL_WRITE : NXL_READ, 0, pair.size);
            pair_submit(&pair, ops[i]);
        }
        far_kill(&pair.far);
        for (int i = 0; i < 8; i++) {
            quiet_after_death(&pair, ops[i]);
            assert_int_equal(ops[i]->outcome.code, NXL_REMOTE_DISCONNECT);
        }
        assert_true(ucx_rig_wait_disconnect(pair.rig, 1, LIMIT_MS));
        assert_ptr_equal(pair.rig->disconnected, pair.conn);
        assert_true(pair.rig->why[0] != '\0');
        pair_close(&pair);
    }
}

static void an_idle_dead_peer_is_reported_once(void **state)
{
    struct ucx_rig_op *op;
    struct nxl_err err = {0};
    struct pair pair;
    enum nxl_code code;

    (void)state;
    pair_open(&pair, 1 << 20);
    op = pair_op(&pair, NXL_WRITE, 0, pair.size);
    pair_submit(&pair, op);
    assert_true(ucx_rig_wait_quiet(pair.rig, op, LIMIT_MS));
    assert_int_equal(op->outcome.code, NXL_OK);
    far_kill(&pair.far);
    assert_true(ucx_rig_wait_disconnect(pair.rig, 1, LIMIT_MS));
    op = pair_op(&pair, NXL_WRITE, 0, pair.size);
    code = ucx_rig_submit(pair.rig, op, &err);
    assert_int_equal(code, NXL_REMOTE_DISCONNECT);
    assert_int_equal(op->completes, 0);
    pair_close(&pair);
}

/* C-050: posts on an endpoint that has just failed, before and after its error callback. */
static void posts_while_the_peer_dies_all_end(void **state)
{
    (void)state;
    for (int round = 0; round < 5; round++) {
        struct ucx_rig_op *ops[200];
        enum nxl_code codes[200];
        struct nxl_err err = {0};
        struct pair pair;

        pair_open(&pair, 1 << 20);
        for (int i = 0; i < 200; i++) {
            ops[i] = pair_op(&pair, i % 3 ? NXL_WRITE : NXL_READ, 0, 1 + 5000u * (unsigned)i);
            codes[i] = ucx_rig_submit(pair.rig, ops[i], &err);
            if (i == 20 * round)
                far_kill(&pair.far);
            if (i == 150 && codes[i - 1] == NXL_OK)
                assert_true(ucx_rig_wait_end(pair.rig, ops[i - 1], LIMIT_MS));
        }
        for (int i = 0; i < 200; i++) {
            if (codes[i] == NXL_OK) {
                quiet_after_death(&pair, ops[i]);
                assert_true(ops[i]->outcome.code == NXL_OK ||
                            ops[i]->outcome.code == NXL_REMOTE_DISCONNECT);
            } else {
                assert_int_equal(codes[i], NXL_REMOTE_DISCONNECT);
            }
        }
        assert_true(ucx_rig_wait_disconnect(pair.rig, 1, LIMIT_MS));
        assert_int_equal(pair.rig->disconnects, 1);
        pair_close(&pair);
    }
}

/* C-006: a frozen peer. The deadline ends the operation; quiet follows, at the latest when the
 * connection is given up. A late answer changes nothing. */
static void a_deadline_ends_an_operation_to_a_stopped_peer(void **state)
{
    struct ucx_rig_op *ops[2];
    struct pair pair;
    uint64_t started;
    int status;

    (void)state;
    pair_open(&pair, 64 << 20);
    kill(pair.far.pid, SIGSTOP);
    assert_int_equal(waitpid(pair.far.pid, &status, WUNTRACED), pair.far.pid);
    started = ucx_rig_now_ns();
    for (int i = 0; i < 2; i++) {
        ops[i] = pair_op(&pair, i ? NXL_WRITE : NXL_READ, 0, pair.size);
        ops[i]->op.deadline_ns = started + 300000000;
        pair_submit(&pair, ops[i]);
    }
    for (int i = 0; i < 2; i++) {
        assert_true(ucx_rig_wait_end(pair.rig, ops[i], 2000));
        if (ops[i]->outcome.code == NXL_OK)
            continue; /* shared memory may not need the far process at all */
        assert_int_equal(ops[i]->outcome.code, NXL_TIMEOUT);
        assert_true(ucx_rig_now_ns() - started >= 300000000);
    }
    for (int i = 0; i < 2; i++)
        assert_true(ucx_rig_wait_quiet(pair.rig, ops[i], LIMIT_MS));
    memset(pair.base, 0x5a, pair.size); /* ours again */
    kill(pair.far.pid, SIGCONT);
    assert_int_equal(waitpid(pair.far.pid, &status, WCONTINUED), pair.far.pid);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ops[i]->completes, 1);
        assert_int_equal(ops[i]->quiesces, 1);
    }
    for (uint64_t i = 0; i < pair.size; i++)
        if (pair.base[i] != 0x5a)
            fail_msg("byte %llu was written after quiet", (unsigned long long)i);
    pair_close(&pair);
}

/* C-022: the peer dies and comes back with a new address and key while the old connection is torn
 * down; each round works or says that the peer is gone. */
static void a_peer_that_comes_back_is_served(void **state)
{
    struct pair pair;

    (void)state;
    pair_open(&pair, 4 << 20);
    for (int round = 0; round < 20; round++) {
        struct ucx_rig_op *before = pair_op(&pair, NXL_WRITE, 0, pair.size);
        struct ucx_rig_op *during = pair_op(&pair, NXL_WRITE, 0, pair.size);
        struct nxl_err err = {0};
        enum nxl_code code;

        memset(pair.base, round + 1, pair.size);
        pair_submit(&pair, before);
        assert_true(ucx_rig_wait_quiet(pair.rig, before, LIMIT_MS));
        assert_int_equal(before->outcome.code, NXL_OK);
        assert_int_equal(pair.far.base[pair.size - 1], round + 1);
        code = ucx_rig_submit(pair.rig, during, &err);
        far_kill(&pair.far);
        /* Not waiting for the failure: the agent heard of the death by another channel. */
        nxl_backend_ucx_ops.disconnect(pair.rig->backend, pair.conn);
        far_close(&pair.far);
        pair_connect(&pair);
        if (code == NXL_OK)
            quiet_after_death(&pair, during);
    }
    pair_close(&pair);
}

static void damaged_keys_and_addresses_are_refused(void **state)
{
    struct nxl_backend_remote *remote = NULL;
    struct nxl_backend_conn *conn = NULL;
    unsigned char damaged[NXL_BACKEND_ADDRESS_MAX];
    struct pair pair;
    struct ucx_rig_op *op;

    (void)state;
    pair_open(&pair, 65536);
    for (size_t i = 0; i < pair.far.key_size; i++) {
        struct nxl_err err = {0};

        memcpy(damaged, pair.far.key, pair.far.key_size);
        damaged[i] ^= 0x10;
        assert_int_equal(nxl_backend_ucx_ops.import_key(
                             pair.rig->backend, pair.conn,
                             (struct nxl_view){damaged, pair.far.key_size}, &remote, &err),
                         NXL_MISMATCH);
        assert_true(err.text[0] != '\0');
        assert_int_equal(nxl_backend_ucx_ops.import_key(pair.rig->backend, pair.conn,
                                                        (struct nxl_view){pair.far.key, i}, &remote,
                                                        &err),
                         NXL_MISMATCH);
    }
    for (size_t i = 0; i < pair.far.address_size; i++) {
        struct nxl_err err = {0};

        memcpy(damaged, pair.far.address, pair.far.address_size);
        damaged[i] ^= 0x10;
        assert_int_equal(
            nxl_backend_ucx_ops.connect(
                pair.rig->backend, (struct nxl_view){damaged, pair.far.address_size}, &conn, &err),
            NXL_MISMATCH);
        assert_int_equal(nxl_backend_ucx_ops.connect(pair.rig->backend,
                                                     (struct nxl_view){pair.far.address, i}, &conn,
                                                     &err),
                         NXL_MISMATCH);
    }
    op = pair_op(&pair, NXL_WRITE, 0, 65536);
    pair_submit(&pair, op);
    assert_true(ucx_rig_wait_quiet(pair.rig, op, LIMIT_MS));
    assert_int_equal(op->outcome.code, NXL_OK);
    pair_close(&pair);
}

static void closing_with_work_ends_it(void **state)
{
    struct ucx_rig_op *ops[4];
    struct pair pair;

    (void)state;
    pair_open(&pair, 128 << 20);
    for (int i = 0; i < 4; i++) {
        ops[i] = pair_op(&pair, NXL_WRITE, 0, pair.size);
        pair_submit(&pair, ops[i]);
    }
    nxl_backend_ucx_ops.close(pair.rig->backend);
    pair.rig->backend = NULL;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(ops[i]->completes, 1);
        assert_int_equal(ops[i]->quiesces, 1);
    }
    ucx_rig_close(pair.rig);
    far_close(&pair.far);
}

int death_run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_peer_ends_every_operation),
        cmocka_unit_test(an_idle_dead_peer_is_reported_once),
        cmocka_unit_test(posts_while_the_peer_dies_all_end),
        cmocka_unit_test(a_deadline_ends_an_operation_to_a_stopped_peer),
        cmocka_unit_test(a_peer_that_comes_back_is_served),
        cmocka_unit_test(damaged_keys_and_addresses_are_refused),
        cmocka_unit_test(closing_with_work_ends_it),
    };

    return cmocka_run_group_tests_name("ucx: peers that die", tests, NULL, NULL);
}
