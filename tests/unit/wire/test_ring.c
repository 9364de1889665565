/* The shared ring: geometry, both directions, parking, and a side that writes nonsense. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "wire/ring.h"

struct pair { /* two views of one memory, as the two processes have */
    void *base;
    uint64_t size;
    struct nxl_ring agent, client;
};

static struct pair *pair_of(uint32_t slots, uint64_t arena, uint64_t notices)
{
    struct nxl_ring_geometry geometry = {slots, arena, notices};
    struct pair *pair = calloc(1, sizeof(*pair));
    struct nxl_err err;

    pair->size = nxl_ring_size(&geometry);
    assert_true(pair->size > 0);
    pair->base = aligned_alloc(4096, pair->size);
    memset(pair->base, 0, pair->size);
    nxl_ring_create(&pair->agent, pair->base, &geometry);
    assert_int_equal(nxl_ring_attach(&pair->client, pair->base, pair->size, &err), NXL_OK);
    return pair;
}

static int setup(void **state)
{
    *state = pair_of(8, 8192, 4096);
    return 0;
}

static int teardown(void **state)
{
    struct pair *pair = *state;

    free(pair->base);
    free(pair);
    return 0;
}

/* ---- geometry --------------------------------------------------------------------------- */

static void geometry_is_rounded_up_or_refused(void **state)
{
    static const struct {
        struct nxl_ring_geometry in;
        int good;
        uint64_t arena, notices;
    } rows[] = {
        {{1, 1, 0}, 1, 4096, 4096},        {{65536, 4096, 4096}, 1, 4096, 4096},
        {{16, 4097, 4097}, 1, 8192, 8192}, {{16, 32u << 20, 3000000}, 1, 32u << 20, 4u << 20},
        {{0, 4096, 4096}, 0, 0, 0},        {{65537, 4096, 4096}, 0, 0, 0},
        {{16, 0, 4096}, 0, 0, 0},          {{16, UINT64_MAX, 4096}, 0, 0, 0},
        {{16, 4096, UINT64_MAX}, 0, 0, 0},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct nxl_ring_geometry geometry = rows[i].in;
        uint64_t size = nxl_ring_size(&geometry);

        assert_int_equal(size > 0, rows[i].good);
        if (!rows[i].good)
            continue;
        assert_int_equal(geometry.arena_bytes, rows[i].arena);
        assert_int_equal(geometry.notice_bytes, rows[i].notices);
        assert_true(size > rows[i].arena + rows[i].notices);
    }
}

static void attach_names_the_field_that_is_wrong(void **state)
{
    struct pair *pair = *state;
    struct nxl_ring_header *header = pair->base;
    struct nxl_ring_header sound = *header;
    struct nxl_ring ring;
    struct nxl_err err;

#define REFUSED(field, value, word)                                                                \
    do {                                                                                           \
        header->field = value;                                                                     \
        assert_int_equal(nxl_ring_attach(&ring, pair->base, pair->size, &err), NXL_MISMATCH);      \
        assert_non_null(strstr(err.text, word));                                                   \
        memcpy(header, &sound, sizeof(sound));                                                     \
    } while (0)
    REFUSED(magic, 1, "magic");
    REFUSED(layout, NXL_RING_LAYOUT + 1, "layout");
    REFUSED(entry_count, 1000, "entry_count");
    REFUSED(entry_count, 0, "entry_count");
    REFUSED(slot_count, 0, "slot_count");
    REFUSED(slot_count, 70000, "slot_count");
    REFUSED(notice_bytes, 5000, "notice_bytes");
    REFUSED(notice_bytes, 1ull << 63, "notice_bytes");
    REFUSED(arena_bytes, 0, "arena_bytes");
    REFUSED(arena_bytes, UINT64_MAX & ~4095ull, "arena_bytes");
    REFUSED(entries_offset, 64, "entries_offset");
    REFUSED(slots_offset, 0, "slots_offset");
    REFUSED(notices_offset, 1, "notices_offset");
    REFUSED(arena_offset, 4096, "arena_offset");
    REFUSED(size, sound.size + 4096, "size");
#undef REFUSED
    assert_int_equal(nxl_ring_attach(&ring, pair->base, 100, &err), NXL_MISMATCH);
    assert_int_equal(nxl_ring_attach(&ring, pair->base, pair->size - 1, &err), NXL_MISMATCH);
    assert_int_equal(nxl_ring_attach(&ring, pair->base, pair->size, &err), NXL_OK);
}

static void arena_addresses_stay_inside(void **state)
{
    struct pair *pair = *state;
    const struct nxl_ring *ring = &pair->agent;

    assert_ptr_equal(nxl_ring_arena(ring, 0, 8192), ring->arena);
    assert_ptr_equal(nxl_ring_arena(ring, 8192, 0), ring->arena + 8192);
    assert_non_null(nxl_ring_arena(ring, 8188, 4));
    assert_null(nxl_ring_arena(ring, 8189, 4));
    assert_null(nxl_ring_arena(ring, 8193, 0));
    assert_null(nxl_ring_arena(ring, UINT64_MAX, 2));
    assert_null(nxl_ring_arena(ring, 2, UINT64_MAX));
}

/* ---- submissions ------------------------------------------------------------------------ */

static void entries_come_out_in_order_over_many_wraps(void **state)
{
    struct pair *pair = *state;
    struct nxl_ring_entry entry = {.kind = NXL_RING_POST}, got;
    uint64_t in = 0, out = 0;

    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < 137; i++) {
            entry.timeout_ns = in++;
            assert_int_equal(nxl_ring_submit(&pair->client, &entry), NXL_OK);
        }
        for (int i = 0; i < 137; i++) {
            assert_int_equal(nxl_ring_take(&pair->agent, &got), NXL_OK);
            assert_int_equal(got.timeout_ns, out++);
        }
        assert_int_equal(nxl_ring_take(&pair->agent, &got), NXL_AGAIN);
    }
    assert_int_equal(in, 50 * 137);
}

static void a_full_ring_says_again_until_the_agent_comes_back(void **state)
{
    struct pair *pair = *state;
    struct nxl_ring_entry entry = {.kind = NXL_RING_CANCEL}, got;

    for (unsigned i = 0; i < NXL_RING_ENTRIES; i++)
        assert_int_equal(nxl_ring_submit(&pair->client, &entry), NXL_OK);
    assert_int_equal(nxl_ring_submit(&pair->client, &entry), NXL_AGAIN);
    assert_int_equal(nxl_ring_take(&pair->agent, &got), NXL_OK);
    /* The entry that was taken may still be read from: it counts only at the next take. */
    assert_int_equal(nxl_ring_submit(&pair->client, &entry), NXL_AGAIN);
    assert_int_equal(nxl_ring_take(&pair->agent, &got), NXL_OK);
    assert_int_equal(nxl_ring_submit(&pair->client, &entry), NXL_OK);
    assert_int_equal(nxl_ring_submit(&pair->client, &entry), NXL_AGAIN);
}

static void a_head_too_far_ahead_is_a_mismatch(void **state)
{
    struct pair *pair = *state;
    struct nxl_ring_entry got;
    static const uint64_t heads[] = {NXL_RING_ENTRIES + 1, UINT64_MAX, 1ull << 63};

    for (size_t i = 0; i < 3; i++) {
        atomic_store(&pair->agent.header->submit_head, heads[i]);
        assert_int_equal(nxl_ring_take(&pair->agent, &got), NXL_MISMATCH);
    }
    /* Behind the agent's position is too far ahead as well. */
    atomic_store(&pair->agent.header->submit_head, 1);
    assert_int_equal(nxl_ring_take(&pair->agent, &got), NXL_OK);
    atomic_store(&pair->agent.header->submit_head, 0);
    assert_int_equal(nxl_ring_take(&pair->agent, &got), NXL_MISMATCH);
}

static void a_client_that_moves_the_tail_hurts_only_itself(void **state)
{
    struct pair *pair = *state;
    struct nxl_ring_entry entry = {.kind = NXL_RING_POST, .slot = 3}, got;

    atomic_store(&pair->agent.header->submit_tail, 12345);
    assert_int_equal(nxl_ring_submit(&pair->client, &entry), NXL_AGAIN);
    assert_int_equal(nxl_ring_take(&pair->agent, &got), NXL_AGAIN); /* writes its own position */
    assert_int_equal(nxl_ring_submit(&pair->client, &entry), NXL_OK);
    assert_int_equal(nxl_ring_take(&pair->agent, &got), NXL_OK);
    assert_int_equal(got.slot, 3);
}

/* ---- parking ---------------------------------------------------------------------------- */

static void a_parked_agent_is_rung_for_once(void **state)
{
    struct pair *pair = *state;
    struct nxl_ring_entry entry = {.kind = NXL_RING_POST}, got;

    assert_int_equal(nxl_ring_agent_parked(&pair->client), 0);
    assert_int_equal(nxl_ring_park(&pair->agent), NXL_OK);
    assert_int_equal(nxl_ring_submit(&pair->client, &entry), NXL_OK);
    assert_int_equal(nxl_ring_agent_parked(&pair->client), 1);
    assert_int_equal(nxl_ring_agent_parked(&pair->client), 0);
    assert_int_equal(nxl_ring_park(&pair->agent), NXL_AGAIN); /* something came */
    assert_int_equal(nxl_ring_agent_parked(&pair->client), 0);
    assert_int_equal(nxl_ring_take(&pair->agent, &got), NXL_OK);
    assert_int_equal(nxl_ring_park(&pair->agent), NXL_OK);
    nxl_ring_unpark(&pair->agent);
    assert_int_equal(nxl_ring_agent_parked(&pair->client), 0);
}

static void parking_gives_the_last_entry_back(void **state)
{
    struct pair *pair = *state;
    struct nxl_ring_entry entry = {.kind = NXL_RING_NOTIFY}, got;

    assert_int_equal(nxl_ring_submit(&pair->client, &entry), NXL_OK);
    assert_int_equal(nxl_ring_take(&pair->agent, &got), NXL_OK);
    assert_int_equal(atomic_load(&pair->client.header->submit_tail), 0);
    assert_int_equal(nxl_ring_park(&pair->agent), NXL_OK);
    assert_int_equal(atomic_load(&pair->client.header->submit_tail), 1);
}

static void a_parked_client_is_woken_once(void **state)
{
    struct pair *pair = *state;

    assert_int_equal(nxl_ring_client_parked(&pair->agent), 0);
    atomic_store(&pair->client.header->client_parked, 1);
    assert_int_equal(nxl_ring_client_parked(&pair->agent), 1);
    assert_int_equal(nxl_ring_client_parked(&pair->agent), 0);
}

/* ---- notices ---------------------------------------------------------------------------- */

static struct nxl_ring_event event_of(const void *payload, size_t size)
{
    return (struct nxl_ring_event){
        .kind = 1,
        .peer = 7,
        .code = -4,
        .transfer = 99,
        .at_ns = 1234,
        .name = {"prefill", 7},
        .incarnation = {"pod/c/1", 7},
        .payload = {payload, size},
    };
}

static void a_notice_arrives_as_it_was_sent(void **state)
{
    struct pair *pair = *state;
    struct nxl_ring_event event = event_of("hello", 5), got;

    assert_int_equal(nxl_ring_notice_pending(&pair->client), 0);
    assert_int_equal(nxl_ring_notice_peek(&pair->client, &got), NXL_AGAIN);
    assert_int_equal(nxl_ring_notice_put(&pair->agent, &event), NXL_OK);
    assert_int_equal(nxl_ring_notice_pending(&pair->client), 1);
    assert_int_equal(nxl_ring_notice_peek(&pair->client, &got), NXL_OK);
    assert_int_equal(got.kind, 1);
    assert_int_equal(got.peer, 7);
    assert_int_equal(got.code, -4);
    assert_int_equal(got.transfer, 99);
    assert_int_equal(got.at_ns, 1234);
    assert_int_equal(got.name.size, 7);
    assert_memory_equal(got.name.data, "prefill", 7);
    assert_memory_equal(got.incarnation.data, "pod/c/1", 7);
    assert_int_equal(got.payload.size, 5);
    assert_memory_equal(got.payload.data, "hello", 5);
    nxl_ring_notice_done(&pair->client);
    assert_int_equal(nxl_ring_notice_pending(&pair->client), 0);
    nxl_ring_notice_done(&pair->client); /* nothing to take: nothing happens */
    assert_int_equal(nxl_ring_notice_pending(&pair->client), 0);
}

static void notices_of_every_size_pass_the_end_of_the_ring(void **state)
{
    struct pair *pair = *state;
    unsigned char payload[2048];
    struct nxl_ring_event got;
    unsigned seed = 1;

    for (unsigned i = 0; i < 5000; i++) {
        size_t size = i < 2000 ? i % 1990 : (size_t)rand_r(&seed) % 1990;
        struct nxl_ring_event event = event_of(payload, size);

        memset(payload, (int)i, sizeof(payload));
        assert_int_equal(nxl_ring_notice_put(&pair->agent, &event), NXL_OK);
        assert_int_equal(nxl_ring_notice_peek(&pair->client, &got), NXL_OK);
        assert_int_equal(got.payload.size, size);
        assert_memory_equal(got.payload.data, payload, size);
        nxl_ring_notice_done(&pair->client);
        assert_int_equal(nxl_ring_notice_peek(&pair->client, &got), NXL_AGAIN);
    }
}

static void a_full_notice_ring_says_again_and_loses_nothing(void **state)
{
    struct pair *pair = *state;
    unsigned char payload[500];
    struct nxl_ring_event event = event_of(payload, sizeof(payload)), got;
    unsigned put = 0, taken = 0;

    for (int round = 0; round < 40; round++) {
        for (;;) {
            payload[0] = (unsigned char)put;
            if (nxl_ring_notice_put(&pair->agent, &event) != NXL_OK)
                break;
            put++;
        }
        assert_int_equal(nxl_ring_notice_put(&pair->agent, &event), NXL_AGAIN);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(nxl_ring_notice_peek(&pair->client, &got), NXL_OK);
            assert_int_equal(*(const unsigned char *)got.payload.data, (unsigned char)taken++);
            nxl_ring_notice_done(&pair->client);
        }
    }
    while (nxl_ring_notice_peek(&pair->client, &got) == NXL_OK) {
        assert_int_equal(*(const unsigned char *)got.payload.data, (unsigned char)taken++);
        nxl_ring_notice_done(&pair->client);
    }
    assert_int_equal(put, taken);
    assert_true(put > 100);
}

static void a_notice_larger_than_half_the_ring_can_never_fit(void **state)
{
    struct pair *pair = *state;
    unsigned char payload[4096] = {0};
    struct nxl_ring_event event = event_of(payload, 2048 - 40 - 14);

    assert_int_equal(nxl_ring_notice_put(&pair->agent, &event), NXL_OK);
    event.payload.size++;
    while (event.payload.size <= sizeof(payload)) {
        assert_int_equal(nxl_ring_notice_put(&pair->agent, &event), NXL_LIMIT);
        event.payload.size += 100;
    }
    event = event_of(payload, 0);
    event.name.size = 256;
    assert_int_equal(nxl_ring_notice_put(&pair->agent, &event), NXL_LIMIT);
    event = event_of(payload, 0);
    event.kind = 0;
    assert_int_equal(nxl_ring_notice_put(&pair->agent, &event), NXL_LIMIT);
}

static void a_client_with_a_wrong_tail_gets_no_more_notices(void **state)
{
    struct pair *pair = *state;
    struct nxl_ring_event event = event_of("x", 1);

    atomic_store(&pair->agent.header->notice_tail, 1ull << 40);
    assert_int_equal(nxl_ring_notice_put(&pair->agent, &event), NXL_AGAIN);
    assert_int_equal(pair->agent.notice_pos, 0);
}

/* Broken records are skipped as a whole and never read outside the ring (sanitizers watch). */
static void broken_records_are_skipped(void **state)
{
    static const struct nxl_ring_notice rows[] = {
        {.size = 0, .kind = 1},
        {.size = 4, .kind = 1},
        {.size = 41, .kind = 1},
        {.size = 4104, .kind = 1},
        {.size = 32, .kind = 1},
        {.size = 40, .kind = 1, .payload_size = 1},
        {.size = 48, .kind = 1, .name_size = 300},
        {.size = 48, .kind = 1, .incarnation_size = 160},
        {.size = 48, .kind = 1, .payload_size = UINT32_MAX, .name_size = 9},
        {.size = 48, .kind = 0}, /* padding that does not end at the ring's end */
    };
    struct pair *pair = *state;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct nxl_ring_event event = event_of("good", 4), got;

        memcpy(pair->client.notices + (pair->agent.notice_pos & 4095), &rows[i], sizeof(rows[i]));
        pair->agent.notice_pos += 48;
        atomic_store(&pair->agent.header->notice_head, pair->agent.notice_pos);
        assert_int_equal(nxl_ring_notice_peek(&pair->client, &got), NXL_AGAIN);
        assert_int_equal(nxl_ring_notice_put(&pair->agent, &event), NXL_OK);
        assert_int_equal(nxl_ring_notice_peek(&pair->client, &got), NXL_OK);
        assert_memory_equal(got.payload.data, "good", 4);
        nxl_ring_notice_done(&pair->client);
    }
}

/* ---- two threads ------------------------------------------------------------------------ */

#define MANY 200000u

struct conversation {
    struct pair *pair;
    _Atomic uint32_t bell; /* stands for the doorbell eventfd */
    uint64_t sum;
};

static void *agent_side(void *arg)
{
    struct conversation *talk = arg;
    struct nxl_ring *ring = &talk->pair->agent;
    struct nxl_ring_entry entry;
    unsigned got = 0;

    while (got < MANY) {
        enum nxl_code code = nxl_ring_take(ring, &entry);

        if (code == NXL_OK) {
            assert_int_equal(entry.timeout_ns, got);
            talk->sum += entry.timeout_ns;
            got++;
            continue;
        }
        assert_int_equal(code, NXL_AGAIN);
        if (nxl_ring_park(ring) != NXL_OK)
            continue;
        while (atomic_load(&talk->bell) == 0) /* a lost wake-up would hang here for ever */
            sched_yield();
        atomic_store(&talk->bell, 0);
        nxl_ring_unpark(ring);
    }
    return NULL;
}

static void an_agent_that_parks_is_never_forgotten(void **state)
{
    struct pair *pair = *state;
    struct conversation talk = {.pair = pair};
    pthread_t thread;

    pthread_create(&thread, NULL, agent_side, &talk);
    for (unsigned i = 0; i < MANY;) {
        struct nxl_ring_entry entry = {.kind = NXL_RING_POST, .timeout_ns = i};

        if (nxl_ring_submit(&pair->client, &entry) != NXL_OK) {
            sched_yield();
            continue;
        }
        i++;
        if (nxl_ring_agent_parked(&pair->client))
            atomic_store(&talk.bell, 1);
    }
    pthread_join(thread, NULL);
    assert_int_equal(talk.sum, (uint64_t)MANY * (MANY - 1) / 2);
}

static void *client_side(void *arg)
{
    struct conversation *talk = arg;
    struct nxl_ring *ring = &talk->pair->client;
    struct nxl_ring_event event;
    uint32_t got = 0;

    while (got < MANY) {
        if (nxl_ring_notice_peek(ring, &event) == NXL_OK) {
            uint32_t value;

            memcpy(&value, event.payload.data, sizeof(value));
            assert_int_equal(value, got);
            nxl_ring_notice_done(ring);
            got++;
            continue;
        }
        atomic_store(&ring->header->client_parked, 1);
        if (nxl_ring_notice_pending(ring))
            continue;
        while (atomic_load(&talk->bell) == 0 && !nxl_ring_notice_pending(ring))
            sched_yield();
        atomic_store(&talk->bell, 0);
    }
    return NULL;
}

static void notices_cross_between_threads_in_order(void **state)
{
    struct pair *pair = *state;
    struct conversation talk = {.pair = pair};
    pthread_t thread;

    pthread_create(&thread, NULL, client_side, &talk);
    for (uint32_t i = 0; i < MANY;) {
        struct nxl_ring_event event = event_of(&i, sizeof(i));

        if (nxl_ring_notice_put(&pair->agent, &event) != NXL_OK) {
            sched_yield();
            continue;
        }
        i++;
        if (nxl_ring_client_parked(&pair->agent))
            atomic_store(&talk.bell, 1);
    }
    pthread_join(thread, NULL);
    assert_int_equal(pair->client.notice_pos, pair->agent.notice_pos);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(geometry_is_rounded_up_or_refused),
        TEST(attach_names_the_field_that_is_wrong),
        TEST(arena_addresses_stay_inside),
        TEST(entries_come_out_in_order_over_many_wraps),
        TEST(a_full_ring_says_again_until_the_agent_comes_back),
        TEST(a_head_too_far_ahead_is_a_mismatch),
        TEST(a_client_that_moves_the_tail_hurts_only_itself),
        TEST(a_parked_agent_is_rung_for_once),
        TEST(parking_gives_the_last_entry_back),
        TEST(a_parked_client_is_woken_once),
        TEST(a_notice_arrives_as_it_was_sent),
        TEST(notices_of_every_size_pass_the_end_of_the_ring),
        TEST(a_full_notice_ring_says_again_and_loses_nothing),
        TEST(a_notice_larger_than_half_the_ring_can_never_fit),
        TEST(a_client_with_a_wrong_tail_gets_no_more_notices),
        TEST(broken_records_are_skipped),
        TEST(an_agent_that_parks_is_never_forgotten),
        TEST(notices_cross_between_threads_in_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
