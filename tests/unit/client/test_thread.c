/* Several threads on one client: nobody waits for nobody, and no wake-up is lost. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "rig.h"

#define FAILED(what) ((void *)(uintptr_t)(what)) /* a thread's result: what it failed to do */

/* ---- a scripted agent that ends what is posted ------------------------------------------ */

struct server {
    struct rig *rig;
    _Atomic int stop;
    unsigned posts, releases;
    pthread_t thread;
};

static void *serve(void *arg)
{
    struct server *server = arg;
    struct nxl_ring *ring = fake_agent_ring(server->rig->agent);

    while (!atomic_load(&server->stop)) {
        struct nxl_ring_entry entry;

        if (nxl_ring_take(ring, &entry) != NXL_OK) {
            sched_yield();
            continue;
        }
        if (entry.kind == NXL_RING_POST) {
            server->posts++;
            rig_end(server->rig, entry, NXL_RING_DONE | NXL_RING_QUIET, NXL_OK);
        } else if (entry.kind == NXL_RING_RELEASE) {
            server->releases++;
        }
    }
    return NULL;
}

static void server_start(struct server *server, struct rig *rig)
{
    memset(server, 0, sizeof(*server));
    server->rig = rig;
    pthread_create(&server->thread, NULL, serve, server);
}

static void server_stop(struct server *server)
{
    atomic_store(&server->stop, 1);
    pthread_join(server->thread, NULL);
}

/* ---- waiting ---------------------------------------------------------------------------- */

#define WAITERS 4
#define ROUNDS 3000

static void *post_and_wait(void *arg)
{
    struct rig *rig = arg;
    struct nxl_transfer *transfer = NULL;
    struct nxl_err err;

    if (nxl_transfer_make(rig->peer, NXL_WRITE, rig->local, NULL, rig->far, NULL, RIG_BLOCKS, NULL,
                          &transfer, &err) != NXL_OK)
        return FAILED("make");
    for (int i = 0; i < ROUNDS; i++) {
        if (nxl_transfer_post(transfer, &err) != NXL_OK)
            return FAILED("post");
        /* A lost wake-up shows as a timeout. */
        if (nxl_transfer_wait(transfer, 20000000000ull, &err) != NXL_OK)
            return FAILED("wait");
    }
    return nxl_transfer_release(transfer, &err) == NXL_OK ? NULL : FAILED("release");
}

static void threads_that_wait_at_once_are_all_woken(void **state)
{
    struct rig *rig = *state;
    struct server server;
    pthread_t threads[WAITERS];

    server_start(&server, rig);
    for (int i = 0; i < WAITERS; i++)
        pthread_create(&threads[i], NULL, post_and_wait, rig);
    for (int i = 0; i < WAITERS; i++) {
        void *failed = FAILED("join");

        pthread_join(threads[i], &failed);
        if (failed)
            fail_msg("a thread failed to %s", (char *)failed);
    }
    server_stop(&server);
    assert_int_equal(server.posts, WAITERS * ROUNDS);
}

struct waiter {
    struct nxl_transfer *transfer;
    enum nxl_code code;
    struct nxl_err err;
};

static void *wait_for_ever(void *arg)
{
    struct waiter *waiter = arg;

    waiter->code = nxl_transfer_wait(waiter->transfer, UINT64_MAX, &waiter->err);
    return NULL;
}

static void parked(struct rig *rig) /* until a thread sleeps */
{
    while (atomic_load(&fake_agent_ring(rig->agent)->header->client_parked) == 0)
        sched_yield();
}

/* The sleeping thread is woken by somebody else's end and must pass the turn on. */
static void one_sleeper_wakes_the_others(void **state)
{
    struct rig *rig = *state;
    struct waiter waiters[WAITERS];
    struct nxl_ring_entry entries[WAITERS];
    pthread_t threads[WAITERS];

    for (int i = 0; i < WAITERS; i++) {
        waiters[i] = (struct waiter){.transfer = rig_transfer(rig)};
        entries[i] = rig_post(rig, waiters[i].transfer);
        pthread_create(&threads[i], NULL, wait_for_ever, &waiters[i]);
    }
    for (int i = WAITERS - 1; i >= 0; i--) {
        parked(rig);
        rig_end(rig, entries[i], NXL_RING_FAILED | NXL_RING_QUIET, NXL_BACKEND);
        pthread_join(threads[i], NULL);
        assert_int_equal(waiters[i].code, NXL_BACKEND);
    }
}

static void the_agents_death_ends_every_wait(void **state)
{
    struct rig *rig = *state;
    struct waiter waiters[WAITERS];
    pthread_t threads[WAITERS];

    for (int i = 0; i < WAITERS; i++) {
        waiters[i] = (struct waiter){.transfer = rig_transfer(rig)};
        rig_post(rig, waiters[i].transfer);
        pthread_create(&threads[i], NULL, wait_for_ever, &waiters[i]);
    }
    parked(rig);
    fake_agent_crash(rig->agent);
    for (int i = 0; i < WAITERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(waiters[i].code, NXL_REMOTE_DISCONNECT);
    }
}

static void *arm_all_the_time(void *arg)
{
    struct server *server = arg;

    while (!atomic_load(&server->stop))
        (void)nxl_client_arm(server->rig->client);
    return NULL;
}

/* The application's own poll loop drains the descriptor that a waiting thread sleeps on. */
static void arming_steals_no_wake_up_from_a_waiting_thread(void **state)
{
    struct rig *rig = *state;
    struct server server, arming = {.rig = rig};
    void *failed = FAILED("join");
    pthread_t thread;

    server_start(&server, rig);
    pthread_create(&arming.thread, NULL, arm_all_the_time, &arming);
    pthread_create(&thread, NULL, post_and_wait, rig);
    pthread_join(thread, &failed);
    server_stop(&arming);
    server_stop(&server);
    if (failed)
        fail_msg("the thread failed to %s", (char *)failed);
}

/* ---- one handle, several threads (C-010) ------------------------------------------------ */

struct shared {
    struct nxl_client *client;
    struct nxl_peer *peer;
    struct nxl_transfer *transfer;
    _Atomic int stop;
    unsigned posted, wrong;
};

static void *poll_it(void *arg)
{
    struct shared *shared = arg;

    while (!atomic_load(&shared->stop)) {
        enum nxl_code code = nxl_transfer_poll(shared->transfer);

        if (code != NXL_OK && code != NXL_IN_PROG && code != NXL_NOT_POSTED &&
            code != NXL_INVALID_PARAM)
            shared->wrong++;
    }
    return NULL;
}

static void *repost_it(void *arg)
{
    struct shared *shared = arg;
    struct nxl_err err;

    while (!atomic_load(&shared->stop)) {
        enum nxl_code code = nxl_transfer_post(shared->transfer, &err);

        if (code == NXL_OK)
            shared->posted++;
        else if (code != NXL_REPOST_ACTIVE && code != NXL_INVALID_PARAM)
            shared->wrong++;
    }
    return NULL;
}

static void one_handle_in_three_threads_is_serialised(void **state)
{
    struct rig *rig = *state;
    struct server server;
    unsigned posted = 0, released = 0, rounds = 200;

    server_start(&server, rig);
    for (unsigned i = 0; i < rounds; i++) {
        struct shared poller = {.transfer = rig_transfer(rig)},
                      poster = {.transfer = poller.transfer};
        pthread_t threads[2];
        struct nxl_err err;
        enum nxl_code code;

        pthread_create(&threads[0], NULL, poll_it, &poller);
        pthread_create(&threads[1], NULL, repost_it, &poster);
        do {
            code = nxl_transfer_release(poller.transfer, &err);
            assert_true(code == NXL_OK || code == NXL_BUSY);
            sched_yield();
        } while (code != NXL_OK);
        released++;
        atomic_store(&poller.stop, 1);
        atomic_store(&poster.stop, 1);
        pthread_join(threads[0], NULL);
        pthread_join(threads[1], NULL);
        assert_int_equal(poller.wrong, 0);
        assert_int_equal(poster.wrong, 0);
        posted += poster.posted;
    }
    assert_int_equal(released, rounds);
    /* Every post is followed by an end, every posted handle by one release. */
    while (nxl_client_check(rig->client, &rig->err) == NXL_OK &&
           atomic_load(&fake_agent_ring(rig->agent)->header->submit_tail) !=
               atomic_load(&fake_agent_ring(rig->agent)->header->submit_head))
        sched_yield();
    server_stop(&server);
    assert_int_equal(server.posts, posted);
    assert_true(server.releases <= rounds);
}

/* ---- calls ------------------------------------------------------------------------------ */

static void *fetch_it(void *arg)
{
    struct rig *rig = arg;
    struct nxl_remote *remote = NULL;
    struct nxl_err err;

    return nxl_fetch_metadata(rig->peer, "late", NULL, NULL, 20000, &remote, &err) == NXL_OK
               ? NULL
               : FAILED("fetch");
}

/* C-035: whoever waits for a peer that is not there yet holds nobody up. */
static void a_waiting_fetch_blocks_no_other_call(void **state)
{
    struct rig *rig = *state;
    struct nxl_region region = {.len = RIG_PAGE};
    struct nxl_memreg *reg;
    void *failed = FAILED("join");
    pthread_t thread;

    fake_agent_hold(rig->agent, NXL_FRAME_FETCH);
    pthread_create(&thread, NULL, fetch_it, rig);
    fake_agent_wait_held(rig->agent);
    assert_code(NXL_OK, rig, nxl_alloc(RIG_PAGE, 0, &region.addr, &rig->err));
    assert_code(NXL_OK, rig, nxl_register(rig->peer, &region, 1, &reg, &rig->err));
    assert_code(NXL_OK, rig, nxl_connect(rig->peer, rig->remote, &rig->err));
    assert_code(NXL_OK, rig, nxl_deregister(rig->peer, &reg, 1, &rig->err));
    fake_agent_answer(rig->agent);
    pthread_join(thread, &failed);
    if (failed)
        fail_msg("the thread failed to %s", (char *)failed);
    nxl_free(region.addr);
}

static void a_call_that_waits_ends_with_the_agent(void **state)
{
    struct rig *rig = *state;
    void *failed = NULL;
    pthread_t thread;

    fake_agent_hold(rig->agent, NXL_FRAME_FETCH);
    pthread_create(&thread, NULL, fetch_it, rig);
    fake_agent_wait_held(rig->agent);
    fake_agent_crash(rig->agent);
    pthread_join(thread, &failed);
    assert_string_equal(failed, "fetch");
}

#define CALLERS 4

static void *call_a_lot(void *arg)
{
    struct rig *rig = arg;
    struct nxl_err err;

    for (int i = 0; i < 500; i++) {
        struct nxl_run run = {.addr = 0x1000, .len = 64, .stride = 128, .count = 9};
        struct nxl_list *list = NULL;
        struct nxl_remote *remote = NULL;

        if (nxl_list_prepare(rig->peer, NULL, NXL_MEM_DRAM, &run, 1, &list, &err) != NXL_OK)
            return FAILED("prepare");
        if (nxl_remote_find(rig->peer, "far", &remote, &err) != NXL_OK || remote != rig->remote)
            return FAILED("find");
        nxl_list_free(list);
    }
    return NULL;
}

static void answers_reach_the_thread_that_asked(void **state)
{
    struct rig *rig = *state;
    pthread_t threads[CALLERS];

    for (int i = 0; i < CALLERS; i++)
        pthread_create(&threads[i], NULL, call_a_lot, rig);
    for (int i = 0; i < CALLERS; i++) {
        void *failed = FAILED("join");

        pthread_join(threads[i], &failed);
        if (failed)
            fail_msg("a thread failed to %s", (char *)failed);
    }
    assert_code(NXL_OK, rig, nxl_client_check(rig->client, &rig->err));
    /* Two lists of the rig live; every other one was given back. */
    assert_int_equal(fake_agent_count(rig->agent, NXL_FRAME_LIST) -
                         fake_agent_count(rig->agent, NXL_FRAME_LIST_FREE),
                     2);
}

/* C-011 in small: threads poll and look for notices while the agent comes and goes. */
static void *look_all_the_time(void *arg)
{
    struct shared *shared = arg;

    while (!atomic_load(&shared->stop)) {
        struct nxl_event event;

        (void)nxl_transfer_poll(shared->transfer);
        (void)nxl_client_pending(shared->client);
        (void)nxl_client_arm(shared->client);
        while (nxl_peer_next(shared->peer, &event) == NXL_OK)
            shared->posted++;
    }
    return NULL;
}

static void restarts_disturb_nobody_who_looks(void **state)
{
    struct rig *rig = *state;
    struct shared shared = {
        .client = rig->client, .peer = rig->peer, .transfer = rig_transfer(rig)};
    struct nxl_event event;
    pthread_t thread;

    pthread_create(&thread, NULL, look_all_the_time, &shared);
    for (int i = 0; i < 50; i++) {
        fake_agent_crash(rig->agent);
        fake_agent_restart(rig->agent);
        assert_code(NXL_OK, rig, nxl_client_check(rig->client, &rig->err));
    }
    atomic_store(&shared.stop, 1);
    pthread_join(thread, NULL);
    while (nxl_peer_next(rig->peer, &event) == NXL_OK)
        shared.posted++;
    assert_int_equal(shared.posted, 50); /* every end of the agent was told once */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(threads_that_wait_at_once_are_all_woken),
        TEST(one_sleeper_wakes_the_others),
        TEST(the_agents_death_ends_every_wait),
        TEST(arming_steals_no_wake_up_from_a_waiting_thread),
        TEST(one_handle_in_three_threads_is_serialised),
        TEST(a_waiting_fetch_blocks_no_other_call),
        TEST(a_call_that_waits_ends_with_the_agent),
        TEST(answers_reach_the_thread_that_asked),
        TEST(restarts_disturb_nobody_who_looks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
