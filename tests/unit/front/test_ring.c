/* The submission ring: what arrives is copied and checked, what is impossible hurts only its
 * sender, and nobody sleeps through a post. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "rig.h"
#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ARENA 65536u

static struct rig rig;
static struct raw raw;

static int setup(void **state)
{
    (void)state;
    rig_open(&rig, NULL);
    raw_open(&raw, &rig);
    raw_welcome(&raw);
    return 0;
}

/* The ring is emptied so slowly that a frame overtakes it unless somebody sees to it. */
static int setup_slow(void **state)
{
    (void)state;
    rig_open(&rig, "entries_per_turn", "1", NULL);
    raw_open(&raw, &rig);
    raw_welcome(&raw);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    raw_close(&raw);
    rig_close(&rig);
    return 0;
}

static int posts_are(void *arg)
{
    return rig.xfer->used.post == *(uint32_t *)arg;
}

static void wait_posts(uint32_t count)
{
    assert_true(rig_run(&rig, posts_are, &count));
}

static int ring_is_empty(void *arg)
{
    struct raw *client = arg;

    return atomic_load(&client->ring.header->submit_tail) ==
           atomic_load(&client->ring.header->submit_head);
}

static uint64_t word_of(uint32_t generation, uint64_t state)
{
    return (uint64_t)generation << 8 | state;
}

/* ---- posts --------------------------------------------------------------------------------- */

static int in_a_ring_mapping(const void *at)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    int found = 0;

    assert_non_null(maps);
    while (fgets(line, sizeof(line), maps)) {
        unsigned long from, to;

        if (strstr(line, "nixlet-ring") && sscanf(line, "%lx-%lx", &from, &to) == 2)
            found |= (uintptr_t)at >= from && (uintptr_t)at < to;
    }
    fclose(maps);
    return found;
}

static void a_post_by_index_arrives_with_every_field_and_copies(void **state)
{
    uint32_t *index = (uint32_t *)(void *)(raw.ring.arena + 128);
    struct nxl_ring_entry entry = {
        .kind = NXL_RING_POST,
        .flags = NXL_RING_WRITE | NXL_RING_NOTICE | NXL_RING_NO_MERGE,
        .min_path = NXL_PATH_RDMA,
        .backend = 2,
        .slot = 3,
        .generation = 7,
        .peer = 1,
        .local_list = 11,
        .remote_list = 12,
        .remote = 13,
        .count = 3,
        .notice_size = 5,
        .arena_offset = 128,
        .notice_offset = 1024,
        .timeout_ns = 99,
    };
    const struct nxl_xfer_post *post = &rig.xfer->posted.post;

    (void)state;
    for (uint32_t i = 0; i < 6; i++)
        index[i] = 10 + i;
    memcpy(raw.ring.arena + 1024, "hello", 5);
    raw_submit(&raw, &entry);
    wait_posts(1);
    assert_int_equal(post->op, NXL_WRITE);
    assert_int_equal(post->min_path, NXL_PATH_RDMA);
    assert_int_equal(post->backend, 2);
    assert_int_equal(post->no_merge, 1);
    assert_int_equal(post->reuse, 0);
    assert_int_equal(post->slot, 3);
    assert_int_equal(post->generation, 7);
    assert_int_equal(post->peer, 1);
    assert_int_equal(post->local_list, 11);
    assert_int_equal(post->remote_list, 12);
    assert_int_equal(post->remote, 13);
    assert_int_equal(post->count, 3);
    assert_int_equal(post->timeout_ns, 99);
    assert_int_equal(post->has_notice, 1);
    assert_int_equal(post->notice.size, 5);
    assert_string_equal(rig.xfer->posted.notice, "hello");
    assert_memory_equal(rig.xfer->posted.local_index, index, 12);
    assert_memory_equal(rig.xfer->posted.remote_index, index + 3, 12);
    assert_null(post->local_runs);
    /* What xfer looks at cannot change under it. */
    assert_true(in_a_ring_mapping(raw.ring.arena));
    assert_false(in_a_ring_mapping(post->local_index));
    assert_false(in_a_ring_mapping(post->notice.data));
    assert_int_equal(rig_metric(&rig, "nixlet_ring_entries_total", "kind=\"post\""), 1);
}

static void arrays_that_are_left_out_are_not_read(void **state)
{
    static const struct {
        uint8_t flags;
        int local, remote;
    } rows[] = {
        {NXL_RING_LOCAL_ALL, 0, 1},
        {NXL_RING_REMOTE_ALL, 1, 0},
        {NXL_RING_LOCAL_ALL | NXL_RING_REMOTE_ALL, 0, 0},
    };

    (void)state;
    ((uint32_t *)(void *)raw.ring.arena)[0] = 42;
    for (uint32_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        struct nxl_ring_entry entry = {.kind = NXL_RING_POST, .flags = rows[i].flags, .count = 1};

        raw_submit(&raw, &entry);
        wait_posts(i + 1);
        assert_int_equal(rig.xfer->posted.post.local_index != NULL, rows[i].local);
        assert_int_equal(rig.xfer->posted.post.remote_index != NULL, rows[i].remote);
        assert_int_equal(rig.xfer->posted.local_index[0], rows[i].local ? 42 : 0);
        assert_int_equal(rig.xfer->posted.remote_index[0], rows[i].remote ? 42 : 0);
        assert_int_equal(rig.xfer->posted.post.op, NXL_READ);
    }
}

static void a_post_by_runs_brings_local_then_remote_runs(void **state)
{
    struct nxl_run *runs = (struct nxl_run *)(void *)raw.ring.arena;
    struct nxl_ring_entry entry = {
        .kind = NXL_RING_POST, .flags = NXL_RING_RUNS, .count = 2, .remote_count = 1, .remote = 4};

    (void)state;
    for (uint32_t i = 0; i < 3; i++)
        runs[i] = (struct nxl_run){.addr = i, .len = 8, .stride = 16, .count = 5};
    raw_submit(&raw, &entry);
    wait_posts(1);
    assert_memory_equal(rig.xfer->posted.local_runs, runs, 2 * sizeof(runs[0]));
    assert_memory_equal(rig.xfer->posted.remote_runs, runs + 2, sizeof(runs[0]));
    assert_null(rig.xfer->posted.post.local_index);
}

/* C-005: what was prepared is used again only while the engine says that it is still good. */
static void a_repost_reads_its_arrays_only_when_the_plan_is_gone(void **state)
{
    struct nxl_ring_entry entry = {
        .kind = NXL_RING_POST, .flags = NXL_RING_REUSE, .count = 2, .arena_offset = UINT64_MAX};

    (void)state;
    rig.xfer->reusable = 1;
    raw_submit(&raw, &entry); /* the place of the arrays is not even looked at */
    wait_posts(1);
    assert_int_equal(rig.xfer->posted.post.reuse, 1);
    assert_null(rig.xfer->posted.post.local_index);
    rig.xfer->reusable = 0;
    entry.arena_offset = 0;
    raw_submit(&raw, &entry);
    wait_posts(2);
    assert_int_equal(rig.xfer->posted.post.reuse, 0);
    assert_non_null(rig.xfer->posted.post.local_index);
}

struct bad_post {
    struct nxl_ring_entry entry;
    enum nxl_code code;
    const char *word;
};

static void a_post_that_leaves_the_arena_ends_once_with_its_sentence(void **state)
{
    static const struct bad_post rows[] = {
        {{.count = 1, .arena_offset = ARENA}, NXL_INVALID_PARAM, "8 bytes of indices"},
        {{.count = 2, .arena_offset = ARENA - 15}, NXL_INVALID_PARAM, "offset 65521"},
        {{.count = UINT32_MAX}, NXL_INVALID_PARAM, "34359738360 bytes"},
        {{.count = 1, .arena_offset = UINT64_MAX - 3}, NXL_INVALID_PARAM, "leave the arena"},
        {{.flags = NXL_RING_RUNS, .count = UINT32_MAX, .remote_count = UINT32_MAX},
         NXL_INVALID_PARAM,
         "leave the arena"},
        {{.flags = NXL_RING_RUNS, .count = 1, .remote_count = 2048},
         NXL_INVALID_PARAM,
         "65568 bytes"},
        {{.flags = NXL_RING_RUNS, .count = 1}, NXL_INVALID_PARAM, "both must be given"},
        {{.flags = NXL_RING_NOTICE, .notice_size = 1, .notice_offset = ARENA},
         NXL_INVALID_PARAM,
         "notice"},
        {{.flags = NXL_RING_NOTICE, .notice_size = UINT32_MAX, .notice_offset = UINT64_MAX},
         NXL_INVALID_PARAM,
         "notice of 4294967295"},
    };

    (void)state;
    for (uint32_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        struct nxl_ring_entry entry = rows[i].entry;

        entry.kind = NXL_RING_POST;
        entry.slot = 5;
        entry.generation = i + 1;
        raw_submit(&raw, &entry);
        assert_true(rig_run(&rig, ring_is_empty, &raw));
        assert_int_equal(raw_word(&raw, 5), word_of(i + 1, NXL_RING_FAILED | NXL_RING_QUIET));
        assert_int_equal(raw.ring.slots[5].code, rows[i].code);
        assert_int_equal(atomic_load(&raw.ring.header->ended), i + 1);
        raw_frame(&raw, NXL_FRAME_EXPLAIN)->slot = 5;
        raw.out->generation = i + 1;
        assert_int_equal(raw_ask(&raw, NULL, 0), NXL_OK);
        assert_non_null(strstr(raw.in->text, rows[i].word));
    }
    assert_int_equal(rig.xfer->used.post, 0);
    assert_int_equal(rig.xfer->used.explain, 0);
    assert_int_equal(nxl_front_sessions(rig.front), 1);
}

static void a_notice_larger_than_any_may_be_and_too_long_a_list_are_limits(void **state)
{
    struct rig other;
    struct raw client;
    struct nxl_ring_entry entry = {.kind = NXL_RING_POST,
                                   .flags = NXL_RING_NOTICE,
                                   .generation = 1,
                                   .notice_size = NXL_NOTICE_MAX + 1};

    (void)state;
    rig_open(&other, "copy_max", "64Ki", NULL);
    raw_open(&client, &other);
    raw_welcome_sized(&client, 4, 4u << 20, 4096);
    raw_submit(&client, &entry);
    assert_true(rig_run(&other, ring_is_empty, &client));
    assert_int_equal(client.ring.slots[0].code, NXL_LIMIT);
    entry = (struct nxl_ring_entry){.kind = NXL_RING_POST, .generation = 2, .count = 8193};
    raw_submit(&client, &entry);
    assert_true(rig_run(&other, ring_is_empty, &client));
    assert_int_equal(raw_word(&client, 0), word_of(2, NXL_RING_FAILED | NXL_RING_QUIET));
    assert_int_equal(client.ring.slots[0].code, NXL_LIMIT);
    entry.count = 8192;
    raw_submit(&client, &entry);
    assert_true(rig_run(&other, ring_is_empty, &client));
    assert_int_equal(other.xfer->used.post, 1);
    raw_close(&client);
    rig_close(&other);
}

static void cancel_release_and_notify_reach_the_engine(void **state)
{
    struct nxl_ring_entry entry = {.kind = NXL_RING_CANCEL, .slot = 4, .generation = 6};

    (void)state;
    raw_submit(&raw, &entry);
    assert_true(rig_run(&rig, ring_is_empty, &raw));
    assert_int_equal(rig.xfer->used.cancel, 1);
    assert_int_equal(rig.xfer->last.slot, 4);
    assert_int_equal(rig.xfer->last.generation, 6);
    entry = (struct nxl_ring_entry){.kind = NXL_RING_RELEASE, .slot = 15};
    raw_submit(&raw, &entry);
    assert_true(rig_run(&rig, ring_is_empty, &raw));
    assert_int_equal(rig.xfer->used.release, 1);
    assert_int_equal(rig.xfer->last.slot, 15);
    raw.ring.arena[ARENA - 1] = 'z';
    entry = (struct nxl_ring_entry){.kind = NXL_RING_NOTIFY,
                                    .peer = 2,
                                    .remote = 3,
                                    .notice_size = 1,
                                    .notice_offset = ARENA - 1};
    raw_submit(&raw, &entry);
    assert_true(rig_run(&rig, ring_is_empty, &raw));
    assert_int_equal(rig.xfer->used.notify, 1);
    assert_int_equal(rig.xfer->last.remote, 3);
    assert_int_equal(rig.xfer->last.blob_size, 1);
    assert_int_equal(rig.xfer->last.blob_first, 'z');
}

/* As many entries as the ring holds. The doorbell is not rung. */
static void ring_fill(uint8_t kind)
{
    struct nxl_ring_entry entry = {.kind = kind, .peer = 2, .remote = 3};

    for (uint32_t i = 0; i < NXL_RING_ENTRIES; i++)
        assert_int_equal(nxl_ring_submit(&raw.ring, &entry), NXL_OK);
}

static void a_frame_comes_after_everything_that_was_submitted_before_it(void **state)
{
    (void)state;
    ring_fill(NXL_RING_NOTIFY);
    raw_frame(&raw, NXL_FRAME_INVALIDATE)->remote = 3;
    assert_int_equal(raw_ask(&raw, NULL, 0), NXL_OK);
    assert_int_equal(rig.xfer->used.invalidate, 1);
    assert_int_equal(rig.xfer->used.notify, NXL_RING_ENTRIES);
}

static int session_closed(void *arg)
{
    return ((struct rig *)arg)->xfer->closed == 1;
}

static void notices_of_a_client_that_is_gone_still_go_out(void **state)
{
    (void)state;
    ring_fill(NXL_RING_NOTIFY);
    close(raw.fd);
    raw.fd = -1;
    assert_true(rig_run(&rig, session_closed, &rig));
    assert_int_equal(rig.xfer->used.notify, NXL_RING_ENTRIES);
}

/* ---- hostile ------------------------------------------------------------------------------- */

static void an_impossible_entry_ends_its_session_and_no_other(void **state)
{
    static const struct {
        struct nxl_ring_entry entry;
        const char *word;
    } rows[] = {
        {{.kind = 0}, "unknown kind 0"},
        {{.kind = 5}, "unknown kind 5"},
        {{.kind = NXL_RING_POST, .slot = 16}, "slot 16 of 16"},
        {{.kind = NXL_RING_CANCEL, .slot = UINT32_MAX}, "slot 4294967295"},
        {{.kind = NXL_RING_RELEASE, .slot = 65536}, "slot 65536"},
        {{.kind = NXL_RING_NOTIFY, .notice_size = 2, .notice_offset = ARENA - 1},
         "a notice of 2 bytes"},
        {{.kind = NXL_RING_NOTIFY, .notice_size = UINT32_MAX, .notice_offset = UINT64_MAX - 1},
         "a notice"},
    };

    (void)state;
    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        struct raw bad;

        raw_open(&bad, &rig);
        raw_welcome(&bad);
        raw_submit(&bad, &rows[i].entry);
        assert_true(rig_run(&rig, raw_ended, &bad));
        assert_int_equal(bad.in->type, NXL_FRAME_GOAWAY);
        assert_non_null(strstr(bad.in->text, rows[i].word));
        raw_close(&bad);
    }
    assert_int_equal(nxl_front_sessions(rig.front), 1);
    strcpy(raw_frame(&raw, NXL_FRAME_PEER_OPEN)->name, "a");
    assert_int_equal(raw_ask(&raw, NULL, 0), NXL_OK);
}

static void a_head_that_jumps_ends_its_session(void **state)
{
    static const uint64_t heads[] = {NXL_RING_ENTRIES + 1, UINT64_MAX, 1ull << 63};
    static const uint64_t one = 1;

    (void)state;
    for (size_t i = 0; i < NXL_COUNT_OF(heads); i++) {
        struct raw bad;

        raw_open(&bad, &rig);
        raw_welcome(&bad);
        atomic_store(&bad.ring.header->submit_head, heads[i]);
        assert_int_equal(write(bad.doorbell, &one, sizeof(one)), sizeof(one));
        assert_true(rig_run(&rig, raw_ended, &bad));
        assert_non_null(strstr(bad.in->text, "head is further ahead"));
        raw_close(&bad);
    }
    assert_int_equal(rig.xfer->used.post, 0);
}

static uint64_t random_state = 88172645463325252ull;

static uint64_t random_u64(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* Random entries with plausible kinds, then random bytes over the whole file. */
static void scribble(struct raw *bad)
{
    static const uint64_t one = 1;
    unsigned char *at = bad->map;

    for (int i = 0; i < 50; i++) {
        struct nxl_ring_entry entry;
        uint64_t words[sizeof(entry) / 8];

        for (size_t k = 0; k < NXL_COUNT_OF(words); k++)
            words[k] = random_u64();
        memcpy(&entry, words, sizeof(entry));
        entry.kind = (uint8_t)(1 + random_u64() % 4);
        entry.slot %= 20;
        entry.count %= 9000;
        if (random_u64() % 2)
            entry.arena_offset %= ARENA;
        if (nxl_ring_submit(&bad->ring, &entry) != NXL_OK)
            break;
    }
    rig_turns(&rig, 1);
    for (int i = 0; i < 2000; i++)
        at[random_u64() % bad->ring.size] = (unsigned char)random_u64();
    for (size_t i = 0; i < sizeof(struct nxl_ring_header); i++)
        at[i] = (unsigned char)random_u64();
    (void)!write(bad->doorbell, &one, sizeof(one));
}

static void scribbling_over_the_whole_ring_hurts_only_the_scribbler(void **state)
{
    struct nxl_xfer_event event = {.kind = 1, .name = "n", .incarnation = "i"};

    (void)state;
    for (int round = 0; round < 100; round++) {
        struct nxl_ring_entry entry = {.kind = NXL_RING_POST,
                                       .flags = NXL_RING_LOCAL_ALL | NXL_RING_REMOTE_ALL,
                                       .generation = 1};
        struct nxl_xfer_slot slot = {.state = NXL_RING_DONE, .quiet = 1, .device = "memory"};
        uint32_t before = rig.xfer->used.post;
        struct nxl_xfer_session *session;
        struct raw bad;

        raw_open(&bad, &rig);
        raw_welcome(&bad);
        session = rig.xfer->sessions;
        scribble(&bad);
        rig_turns(&rig, 2);
        if (!session->closed) { /* the engine goes on talking to it */
            session->front->slot(session->front_arg, 3, &slot);
            for (int i = 0; i < 50; i++)
                (void)session->front->event(session->front_arg, &event, 1);
        }
        before = rig.xfer->used.post;
        raw_submit(&raw, &entry);
        assert_true(rig_run(&rig, ring_is_empty, &raw));
        assert_true(rig.xfer->used.post > before);
        raw_close(&bad);
    }
}

/* Both hold the same eventfd: a client that makes it blocking and fills it must not stop the agent.
 */
static void a_wake_up_that_would_block_does_not_stop_the_agent(void **state)
{
    static const uint64_t full = UINT64_MAX - 1;
    struct nxl_xfer_slot slot = {.generation = 1, .state = NXL_RING_DONE, .quiet = 1};
    struct nxl_xfer_session *session = rig.xfer->sessions;

    (void)state;
    assert_int_equal(fcntl(raw.wake, F_SETFL, 0), 0);
    assert_int_equal(fcntl(raw.doorbell, F_SETFL, 0), 0);
    assert_int_equal(write(raw.wake, &full, sizeof(full)), sizeof(full));
    alarm(20); /* the failure is a hang */
    for (int i = 0; i < 300; i++) {
        atomic_store(&raw.ring.header->client_parked, 1);
        session->front->slot(session->front_arg, 0, &slot);
        assert_int_equal(atomic_load(&raw.ring.header->client_parked), 0);
    }
    alarm(0);
    assert_int_equal(raw_word(&raw, 0), word_of(1, NXL_RING_DONE | NXL_RING_QUIET));
}

static int turns_by_hand(void *arg)
{
    (void)arg;
    return 0;
}

/* ---- turns --------------------------------------------------------------------------------- */

static void one_busy_client_does_not_starve_another(void **state)
{
    struct nxl_ring_entry entry = {.kind = NXL_RING_RELEASE, .slot = 1};
    struct rig fair;
    struct raw busy, quick;

    (void)state;
    rig_open(&fair, "entries_per_turn", "4", NULL);
    raw_open(&busy, &fair);
    raw_welcome(&busy);
    raw_open(&quick, &fair);
    raw_welcome(&quick);
    (void)nxl_front_park(fair.front);
    for (int i = 0; i < 100; i++)
        assert_int_equal(nxl_ring_submit(&busy.ring, &entry), NXL_OK);
    entry.slot = 2;
    assert_int_equal(nxl_ring_submit(&quick.ring, &entry), NXL_OK);
    assert_int_equal(nxl_front_poll(fair.front), 0); /* parked: only a doorbell changes that */
    assert_int_equal(nxl_ring_agent_parked(&busy.ring), 1);
    assert_int_equal(nxl_ring_agent_parked(&busy.ring), 0);
    assert_int_equal(nxl_ring_agent_parked(&quick.ring), 1);
    assert_int_equal(write(busy.doorbell, &(uint64_t){1}, 8), 8);
    assert_int_equal(write(quick.doorbell, &(uint64_t){1}, 8), 8);
    nxl_poller_close(fair.poller); /* turns by hand from here on */
    fair.poller = nxl_poller_open(fair.loop, turns_by_hand, turns_by_hand, NULL, 0);
    while (rig_metric(&fair, "nixlet_doorbells_total", "") < 2)
        rig_turns(&fair, 1);
    assert_int_equal(nxl_front_poll(fair.front), 5);
    assert_int_equal(fair.xfer->used.release, 5);
    assert_int_equal(nxl_front_poll(fair.front), 4);
    assert_int_equal(nxl_front_park(fair.front), 1); /* the busy one has more */
    for (int i = 0; i < 23; i++)
        assert_int_equal(nxl_front_poll(fair.front), 4);
    assert_int_equal(nxl_front_poll(fair.front), 0);
    assert_int_equal(nxl_front_park(fair.front), 0);
    raw_close(&busy);
    raw_close(&quick);
    rig_close(&fair);
}

/* Every look at it costs a millisecond: entries seem to take that long each. */
static uint64_t slow_clock(void *arg)
{
    return *(uint64_t *)arg += NXL_MS;
}

static void entries_that_take_long_do_not_hold_up_another_client(void **state)
{
    struct nxl_ring_entry entry = {.kind = NXL_RING_RELEASE, .slot = 1};
    uint64_t now_ns = nxl_now_ns();
    struct raw quick;

    (void)state;
    raw_open(&quick, &rig);
    raw_welcome(&quick);
    nxl_poller_close(rig.poller); /* turns by hand from here on */
    rig.poller = nxl_poller_open(rig.loop, turns_by_hand, turns_by_hand, NULL, 0);
    for (int i = 0; i < 200; i++)
        assert_int_equal(nxl_ring_submit(&raw.ring, &entry), NXL_OK);
    assert_int_equal(nxl_ring_submit(&quick.ring, &entry), NXL_OK);
    assert_int_equal(write(raw.doorbell, &(uint64_t){1}, 8), 8);
    assert_int_equal(write(quick.doorbell, &(uint64_t){1}, 8), 8);
    rig_turns(&rig, 4);
    nxl_clock_replace(slow_clock, &now_ns);
    assert_in_range(nxl_front_poll(rig.front), 2, 8);
    assert_in_range(nxl_front_poll(rig.front), 1, 8);
    nxl_clock_replace(NULL, NULL);
    assert_true(ring_is_empty(&quick));
    assert_false(ring_is_empty(&raw));
    raw_close(&quick);
}

static void a_frame_waits_over_many_turns_for_what_was_submitted_before_it(void **state)
{
    uint64_t now_ns = nxl_now_ns();

    (void)state;
    ring_fill(NXL_RING_NOTIFY);
    nxl_clock_replace(slow_clock, &now_ns);
    raw_frame(&raw, NXL_FRAME_INVALIDATE)->remote = 3;
    assert_int_equal(raw_ask(&raw, NULL, 0), NXL_OK);
    nxl_clock_replace(NULL, NULL);
    assert_int_equal(rig.xfer->used.notify, NXL_RING_ENTRIES);
}

static void a_head_that_goes_back_does_not_hold_a_frame_up(void **state)
{
    uint64_t now_ns = nxl_now_ns();

    (void)state;
    ring_fill(NXL_RING_NOTIFY);
    nxl_clock_replace(slow_clock, &now_ns);
    raw_frame(&raw, NXL_FRAME_INVALIDATE)->remote = 3;
    assert_int_equal(raw_send(&raw, NULL, 0), 0);
    rig_turns(&rig, 4);
    atomic_store(&raw.ring.header->submit_head, atomic_load(&raw.ring.header->submit_tail));
    assert_true(rig_run(&rig, raw_ended, &raw) || rig.xfer->used.invalidate == 1);
    nxl_clock_replace(NULL, NULL);
}

static void slots_are_written_whole_and_ends_are_counted(void **state)
{
    struct nxl_xfer_session *session = rig.xfer->sessions;
    struct nxl_xfer_slot update = {
        .generation = 9,
        .state = NXL_RING_RUNNING,
        .backend = 1,
        .path = NXL_PATH_ONE_COPY,
        .protocol = NXL_PROTOCOL_LOCAL,
        .device = "memory",
        .bytes = 77,
        .id = 5,
        .started_ns = 6,
        .ended_ns = 7,
        .descriptors = 8,
        .pieces = 2,
    };
    const struct nxl_ring_slot *slot = &raw.ring.slots[2];
    char device[40];

    (void)state;
    session->front->slot(session->front_arg, 2, &update);
    assert_int_equal(raw_word(&raw, 2), word_of(9, NXL_RING_RUNNING));
    assert_int_equal(atomic_load(&raw.ring.header->ended), 0);
    update.state = NXL_RING_CANCELLED;
    update.code = NXL_CANCELED;
    session->front->slot(session->front_arg, 2, &update);
    assert_int_equal(raw_word(&raw, 2), word_of(9, NXL_RING_CANCELLED));
    assert_int_equal(atomic_load(&raw.ring.header->ended), 1);
    update.quiet = 1;
    session->front->slot(session->front_arg, 2, &update);
    assert_int_equal(raw_word(&raw, 2), word_of(9, NXL_RING_CANCELLED | NXL_RING_QUIET));
    assert_int_equal(atomic_load(&raw.ring.header->ended), 2);
    assert_int_equal(slot->code, NXL_CANCELED);
    assert_int_equal(slot->backend, 1);
    assert_int_equal(slot->path, NXL_PATH_ONE_COPY);
    assert_int_equal(slot->protocol, NXL_PROTOCOL_LOCAL);
    assert_int_equal(slot->bytes, 77);
    assert_int_equal(slot->id, 5);
    assert_int_equal(slot->started_ns, 6);
    assert_int_equal(slot->ended_ns, 7);
    assert_int_equal(slot->descriptors, 8);
    assert_int_equal(slot->pieces, 2);
    assert_int_equal(slot->device, 1);
    assert_string_equal(raw.ring.header->devices[1], "memory");
    for (int i = 0; i < 3; i++) {
        (void)snprintf(device, sizeof(device), "a-device-with-a-very-long-name-%02d", i);
        update.device = device;
        session->front->slot(session->front_arg, 2, &update);
        assert_int_equal(slot->device, 2); /* cut to 31 bytes they are all the same */
    }
    for (int i = 0; i < 40; i++) {
        (void)snprintf(device, sizeof(device), "eth%d", i);
        update.device = device;
        session->front->slot(session->front_arg, 2, &update);
        assert_true(slot->device < NXL_RING_DEVICES);
    }
    assert_int_equal(slot->device, 0); /* no room: unknown, not wrong */
    update.device = "memory";
    session->front->slot(session->front_arg, 2, &update);
    assert_int_equal(slot->device, 1);
    update.device = NULL;
    session->front->slot(session->front_arg, 2, &update);
    assert_int_equal(slot->device, 0);
}

/* ---- two threads --------------------------------------------------------------------------- */

#define ROUNDS 3000u

struct sleeper {
    struct raw *client;
    atomic_int finished;
    const char *failure;
};

/* Sleeps on the wake-up until the slot's word is the wanted one. */
static int sleep_for(struct raw *client, uint64_t wanted)
{
    struct nxl_ring_header *header = client->ring.header;
    struct pollfd poll_fd = {.fd = client->wake, .events = POLLIN};
    uint64_t drained;

    while (raw_word(client, 0) != wanted) {
        uint64_t ended = atomic_load(&header->ended);

        if (raw_word(client, 0) == wanted)
            break;
        atomic_store(&header->client_parked, 1);
        if (atomic_load(&header->ended) != ended)
            continue;
        if (poll(&poll_fd, 1, 10000) != 1)
            return 0;
        (void)!read(client->wake, &drained, sizeof(drained));
    }
    return 1;
}

static void *sleeper_run(void *arg)
{
    struct sleeper *sleeper = arg;
    struct raw *client = sleeper->client;
    struct nxl_ring_entry entry = {
        .kind = NXL_RING_POST, .flags = NXL_RING_LOCAL_ALL | NXL_RING_REMOTE_ALL, .count = 1};

    for (uint32_t round = 1; round <= ROUNDS && !sleeper->failure; round++) {
        static const uint64_t one = 1;

        entry.generation = round;
        if (round % 16 == 0) /* wait for the other side to be asleep for sure */
            while (atomic_load(&client->ring.header->agent_parked) == 0)
                sched_yield();
        if (nxl_ring_submit(&client->ring, &entry) != NXL_OK)
            sleeper->failure = "the ring is full with one entry under way";
        if (nxl_ring_agent_parked(&client->ring))
            (void)!write(client->doorbell, &one, sizeof(one));
        if (!sleep_for(client, (uint64_t)round << 8 | NXL_RING_DONE | NXL_RING_QUIET))
            sleeper->failure = "slept through the end of a post";
    }
    atomic_store(&sleeper->finished, 1);
    return NULL;
}

static int sleeper_finished(void *arg)
{
    return atomic_load(&((struct sleeper *)arg)->finished);
}

/* Both sides sleep whenever they can, and no end and no post is ever missed. C-012. */
static void two_sides_that_park_all_the_time_never_miss_each_other(void **state)
{
    struct sleeper sleeper = {.client = &raw};
    pthread_t thread;

    (void)state;
    rig.xfer->finish_posts = 1;
    assert_int_equal(pthread_create(&thread, NULL, sleeper_run, &sleeper), 0);
    assert_true(nxl_loop_run_until(rig.loop, sleeper_finished, &sleeper, 60 * NXL_SEC));
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_null(sleeper.failure);
    assert_int_equal(rig.xfer->used.post, ROUNDS);
    assert_int_equal(atomic_load(&raw.ring.header->ended), ROUNDS);
    assert_true(rig_metric(&rig, "nixlet_doorbells_total", "") >= ROUNDS / 16);
    assert_true(rig_metric(&rig, "nixlet_wakeups_total", "") > 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_post_by_index_arrives_with_every_field_and_copies),
        CASE(arrays_that_are_left_out_are_not_read),
        CASE(a_post_by_runs_brings_local_then_remote_runs),
        CASE(a_repost_reads_its_arrays_only_when_the_plan_is_gone),
        CASE(a_post_that_leaves_the_arena_ends_once_with_its_sentence),
        CASE(a_notice_larger_than_any_may_be_and_too_long_a_list_are_limits),
        CASE(cancel_release_and_notify_reach_the_engine),
        cmocka_unit_test_setup_teardown(a_frame_comes_after_everything_that_was_submitted_before_it,
                                        setup_slow, teardown),
        cmocka_unit_test_setup_teardown(notices_of_a_client_that_is_gone_still_go_out, setup_slow,
                                        teardown),
        CASE(an_impossible_entry_ends_its_session_and_no_other),
        CASE(a_head_that_jumps_ends_its_session),
        CASE(scribbling_over_the_whole_ring_hurts_only_the_scribbler),
        CASE(a_wake_up_that_would_block_does_not_stop_the_agent),
        CASE(one_busy_client_does_not_starve_another),
        CASE(entries_that_take_long_do_not_hold_up_another_client),
        CASE(a_frame_waits_over_many_turns_for_what_was_submitted_before_it),
        CASE(a_head_that_goes_back_does_not_hold_a_frame_up),
        CASE(slots_are_written_whole_and_ends_are_counted),
        CASE(two_sides_that_park_all_the_time_never_miss_each_other),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
