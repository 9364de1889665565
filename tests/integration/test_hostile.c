/* test_hostile.c - a client that sends nonsense: over its socket and into its ring. The agent stays
 * up, ends that session or refuses with a sentence, and other clients notice nothing. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/hostile.h"

#define ATTACK_NS 2000000000u
#define MIB (1u << 20)
#define HOME 0x700000000000u /* where the attacker says that its memory lies */

static struct hostile scene;

static int scene_open(void **state)
{
    hostile_open(&scene, 1);
    return 0;
}

static int scene_close(void **state)
{
    hostile_close(&scene);
    return 0;
}

/* ---- the ring ---------------------------------------------------------------------------- */

/* With memory, itself as a remote, and a list of each kind: nonsense gets further that way. */
static void armed_open(struct raw *raw)
{
    struct nxl_run run = {.addr = HOME, .len = 4096, .stride = 4096, .count = 256};
    uint32_t self;
    int file = raw_memfd(MIB, 1);

    raw_open(raw, &scene.cluster, 0, "armed");
    assert_int_equal(raw_register(raw, file, HOME, MIB, NULL), NXL_OK);
    close(file);
    self = raw_find(raw, "armed");
    assert_int_not_equal(self, 0);
    assert_int_equal(raw_list(raw, 0, run, NULL), NXL_OK);
    assert_int_equal(raw_list(raw, self, run, NULL), NXL_OK);
}

static void everything_is_random(struct raw *raw, uint64_t *seed)
{
    raw_random_fill(seed, raw->map, raw->ring.size);
    raw_ring_bell(raw);
}

static void entries_are_random(struct raw *raw, uint64_t *seed)
{
    raw_random_fill(seed, raw->ring.entries, raw->ring.entry_count * sizeof(*raw->ring.entries));
    raw_random_fill(seed, raw->ring.slots, raw->ring.slot_count * sizeof(*raw->ring.slots));
    raw_random_fill(seed, raw->ring.notices, raw->ring.notice_bytes);
    atomic_fetch_add(&raw->ring.header->submit_head, 1 + raw_random(seed) % 1024);
    raw_ring_bell(raw);
}

/* Right enough to be taken seriously: known kinds, slots, lists and remotes, small counts, and runs
 * that often lie inside the attacker's own memory. */
static void entries_are_nearly_right(struct raw *raw, uint64_t *seed)
{
    struct nxl_run *runs = (struct nxl_run *)(void *)raw->ring.arena;

    raw_random_fill(seed, raw->ring.arena, raw->ring.arena_bytes);
    for (uint32_t i = 0; i < 1024; i++)
        runs[i] = (struct nxl_run){.addr = HOME + raw_random(seed) % (MIB + 4096),
                                   .len = raw_random(seed) % 8192,
                                   .stride = raw_random(seed) % 16384,
                                   .count = (uint32_t)(raw_random(seed) % 5)};
    for (uint32_t i = 0; i < 1000; i++) {
        uint64_t r = raw_random(seed);
        struct nxl_ring_entry *entry =
            &raw->ring.entries[(atomic_load(&raw->ring.header->submit_tail) + i) & 1023];

        raw_random_fill(seed, entry, sizeof(*entry));
        entry->kind = (uint8_t)(1 + r % (r >> 60 == 0 ? 4 : 3));
        entry->slot = (uint32_t)(r >> 8) % 64;
        entry->peer = r >> 59 == 0 ? entry->peer : raw->peer;
        entry->local_list = (uint32_t)(r >> 16) % 3;
        entry->remote_list = (uint32_t)(r >> 18) % 4;
        entry->remote = (uint32_t)(r >> 20) % 4;
        entry->count = (uint32_t)(r >> 24) % 8;
        entry->remote_count = (uint32_t)(r >> 28) % 8;
        entry->arena_offset = (r >> 32) % 512 * sizeof(struct nxl_run);
        entry->notice_offset = (r >> 40) % raw->ring.arena_bytes;
        entry->notice_size = (uint32_t)(r >> 50) % 128;
        entry->backend = (uint8_t)(r >> 56 == 0 ? r : 0);
    }
    atomic_fetch_add(&raw->ring.header->submit_head, 1000);
    raw_ring_bell(raw);
}

static void random_bytes(void (*attack)(struct raw *raw, uint64_t *seed), uint64_t seed)
{
    uint64_t until = cluster_now() + ATTACK_NS;
    unsigned ended = 0, lived = 0;

    while (cluster_now() < until || ended + lived < 8) {
        struct raw raw;
        int code;

        armed_open(&raw);
        attack(&raw, &seed);
        raw_frame(&raw, NXL_FRAME_EXPLAIN);
        code = raw_call(&raw, NULL, 0);
        assert_int_not_equal(code, RAW_MUTE);
        if (code == RAW_GONE) {
            ended++;
            hostile_says(raw.goaway, "ring");
        } else {
            lived++;
        }
        raw_close(&raw);
    }
    print_message("    %u sessions ended, %u lived\n", ended, lived);
    hostile_unharmed(&scene);
}

static void random_bytes_all_over_the_ring_file_hurt_only_their_writer(void **state)
{
    random_bytes(everything_is_random, 1);
}

static void random_entries_slots_and_notices_hurt_only_their_writer(void **state)
{
    random_bytes(entries_are_random, 2);
}

static void entries_that_are_nearly_right_hurt_only_their_writer(void **state)
{
    random_bytes(entries_are_nearly_right, 3);
}

static void a_head_that_cannot_be_ends_only_that_session(void **state)
{
    static const int64_t steps[] = {1025, -1, -1024, INT64_MAX, INT64_MIN, 1 << 20};

    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        struct nxl_ring_entry release = {.kind = NXL_RING_RELEASE, .slot = 1};
        struct raw raw;

        armed_open(&raw);
        for (int k = 0; k < 5; k++) /* so that there is something to run back over */
            assert_true(raw_submit(&raw, &release));
        assert_true(raw_alive(&raw));
        atomic_fetch_add(&raw.ring.header->submit_head, (uint64_t)steps[i]);
        raw_ring_bell(&raw);
        assert_true(raw_ended(&raw, 5000));
        hostile_says(raw.goaway, "head");
        raw_close(&raw);
    }
    hostile_unharmed(&scene);
}

static void tails_that_cannot_be_cost_their_writer_its_notices_only(void **state)
{
    static const uint64_t tails[] = {1, 4096, 1ull << 40, UINT64_MAX, UINT64_MAX - 4095};
    struct nxl_run own = {.addr = HOME, .len = 64, .count = 1};
    struct nxl_run other = {.addr = HOME + 4096, .len = 64, .count = 1};

    for (size_t i = 0; i < sizeof(tails) / sizeof(tails[0]); i++) {
        struct nxl_ring_entry notify = {.kind = NXL_RING_NOTIFY, .notice_size = 100};
        struct raw raw;
        int code = -1;

        armed_open(&raw);
        notify.peer = raw.peer;
        notify.remote = raw_find(&raw, "armed");
        atomic_store(&raw.ring.header->notice_tail, tails[i]);
        atomic_store(&raw.ring.header->notice_head, tails[i] * 3);
        for (int k = 0; k < 8; k++)
            assert_true(raw_submit(&raw, &notify));
        atomic_store(&raw.ring.header->submit_tail, tails[i]);
        assert_true(raw_alive(&raw)); /* and the agent has written the right one again */
        /* Transfers go on as if nothing were. */
        assert_true(raw_post(&raw, 2, 1, notify.remote, &own, &other, NXL_RING_WRITE));
        assert_int_equal(raw_slot_wait(&raw, 2, 1, &code), NXL_RING_DONE);
        assert_int_equal(code, NXL_OK);
        assert_true(raw_alive(&raw));
        raw_close(&raw);
    }
    hostile_unharmed(&scene);
}

/* ---- the socket -------------------------------------------------------------------------- */

static size_t spoiled_frame(struct raw *raw, uint64_t *seed)
{
    struct nxl_frame *out = raw_frame(raw, (uint16_t)(1 + raw_random(seed) % NXL_FRAME_EXPLAIN));
    uint64_t how = raw_random(seed);
    size_t size;

    out->remote = (uint32_t)raw_random(seed) % 3;
    out->list = (uint32_t)raw_random(seed) % 3;
    out->count = (uint32_t)raw_random(seed) % 40;
    out->arena_offset = raw_random(seed) % MIB;
    out->blob_size = (uint32_t)raw_random(seed) % 2000;
    raw_random_fill(seed, out->blob, out->blob_size);
    out->hello.magic = NXL_FRAME_MAGIC;
    snprintf(out->name, sizeof(out->name), "armed");
    memset(out->regions, 0, sizeof(out->regions[0]) * 40);
    size = raw_encode(raw);
    for (uint64_t k = 0; how % 4 == 1 && k <= (how >> 8) % 16; k++)
        raw->packet[raw_random(seed) % size] = (unsigned char)raw_random(seed);
    if (how % 4 == 2)
        return 1 + (how >> 8) % size; /* cut off */
    if (how % 4 == 3) {
        size_t more = (how >> 8) % 4096;

        raw_random_fill(seed, raw->packet + size, more);
        size += more;
    }
    return size;
}

static void random_frames_are_refused_or_end_the_session(void **state)
{
    uint64_t until = cluster_now() + ATTACK_NS, seed = 4;
    unsigned frames = 0, ended = 0;

    while (cluster_now() < until || ended < 3) {
        struct raw raw;
        int over = 0;

        if (raw_random(&seed) % 4 == 0)
            raw_connect(&raw, &scene.cluster, 0); /* not even HELLO */
        else
            armed_open(&raw);
        for (int k = 0; k < 200 && !over; k++, frames++) {
            size_t size = spoiled_frame(&raw, &seed);

            if (raw_random(&seed) % 8 == 0) {
                size = 1 + raw_random(&seed) % NXL_FRAME_MAX;
                raw_random_fill(&seed, raw.packet, size);
            }
            over = raw_send_bytes(&raw, raw.packet, size, NULL, 0) != 0;
            while (!over && raw_recv(&raw, 0) > 0)
                ;
        }
        /* Either it still answers, or it was ended; it never just hangs. */
        raw_frame(&raw, NXL_FRAME_STATE);
        over = raw_call(&raw, NULL, 0);
        assert_int_not_equal(over, RAW_MUTE);
        ended += over == RAW_GONE;
        raw_close(&raw);
    }
    print_message("    %u frames, %u sessions ended\n", frames, ended);
    hostile_unharmed(&scene);
}

static void a_packet_of_any_wrong_size_ends_the_session_or_is_refused(void **state)
{
    static unsigned char bytes[NXL_FRAME_MAX + 4096];
    static const struct {
        size_t size;
        const char *why; /* NULL: the socket just closes */
    } rows[] = {
        {1, "head is cut off"},
        {15, "head is cut off"},
        {16, NULL},
        {NXL_FRAME_MAX + 1, "longer than 65536"},
        {sizeof(bytes), "longer than 65536"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct raw raw;

        armed_open(&raw);
        assert_int_equal(raw_send_bytes(&raw, bytes, rows[i].size, NULL, 0), 0);
        assert_true(raw_ended(&raw, 5000));
        if (rows[i].why)
            hostile_says(raw.goaway, rows[i].why);
        raw_close(&raw);
    }
    hostile_unharmed(&scene);
}

static void answers_and_goodbyes_are_for_the_agent_to_send(void **state)
{
    for (int reply = 0; reply < 2; reply++) {
        struct raw raw;

        armed_open(&raw);
        raw_frame(&raw, reply ? NXL_FRAME_STATE : NXL_FRAME_GOAWAY)->reply = reply;
        assert_int_equal(raw_send(&raw, NULL, 0), 0);
        assert_true(raw_ended(&raw, 5000));
        hostile_says(raw.goaway, "only an agent sends this");
        raw_close(&raw);
    }
    hostile_unharmed(&scene);
}

/* ---- descriptors that come with frames ----------------------------------------------------- */

static void descriptors_where_none_belong_are_refused(void **state)
{
    int fds[3] = {raw_memfd(4096, 1), raw_memfd(4096, 1), -1};
    struct raw raw;

    armed_open(&raw);
    fds[2] = raw.fd; /* its own end of the socket, in its own queue */
    for (uint16_t type = NXL_FRAME_PEER_OPEN; type < NXL_FRAME_GOAWAY; type++) {
        if (type == NXL_FRAME_REGISTER)
            continue;
        raw_frame(&raw, type);
        assert_int_equal(raw_call(&raw, fds, 3), NXL_INVALID_PARAM);
        hostile_says(raw.in->text, "3 descriptors");
    }
    raw_close(&raw);
    close(fds[0]);
    close(fds[1]);
    hostile_unharmed(&scene);
}

static void a_wrong_number_of_descriptors_is_refused(void **state)
{
    int fds[100];
    struct raw raw;

    for (int i = 0; i < 100; i++)
        fds[i] = raw_memfd(4096, 1);
    armed_open(&raw);
    raw_frame(&raw, NXL_FRAME_REGISTER)->count = 1;
    raw.out->regions[0] = (struct nxl_frame_region){.addr = HOME, .len = 4096};
    assert_int_equal(raw_call(&raw, NULL, 0), NXL_INVALID_PARAM);
    hostile_says(raw.in->text, "0 came with the frame");
    raw_frame(&raw, NXL_FRAME_REGISTER)->count = 1;
    raw.out->regions[0].fd_index = 5;
    assert_int_equal(raw_call(&raw, fds, 3), NXL_INVALID_PARAM);
    hostile_says(raw.in->text, "descriptor 5, but 3 came");
    /* More than needed are closed, not kept. */
    raw_frame(&raw, NXL_FRAME_REGISTER)->count = 1;
    raw.out->regions[0].fd_index = 0;
    assert_int_equal(raw_call(&raw, fds, 64), NXL_OK);
    raw_frame(&raw, NXL_FRAME_REGISTER);
    assert_int_equal(raw_send(&raw, fds, 100), 0);
    assert_true(raw_ended(&raw, 5000));
    hostile_says(raw.goaway, "more than 64");
    raw_close(&raw);
    for (int i = 0; i < 100; i++)
        close(fds[i]);
    hostile_unharmed(&scene);
}

static void what_is_not_a_memory_file_cannot_be_registered(void **state)
{
    int pair[2], memfd = raw_memfd(4096, 1), pipes[2];
    char path[64];
    struct raw raw;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", memfd);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_int_equal(pipe(pipes), 0);
    armed_open(&raw);
    {
        const struct {
            int fd;
            const char *why;
        } rows[] = {
            {pair[0], "not a memory file"},
            {pipes[1], "not a memory file"},
            {eventfd(0, 0), "not a memory file"},
            {open("/dev/zero", O_RDWR), "not a memory file"},
            {open("/", O_RDONLY), "not a memory file"},
            {open("/tmp", O_PATH), ""},
            {raw.fd, "not a memory file"},
            {open(path, O_RDONLY), "not open for reading and writing"},
            {open(path, O_WRONLY), "not open for reading and writing"},
            {open("/proc/self/mem", O_RDWR), ""},
        };

        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
            assert_true(rows[i].fd >= 0);
            assert_true(raw_register(&raw, rows[i].fd, HOME, 4096, NULL) < 0);
            hostile_says(raw.in->text, rows[i].why);
            if (rows[i].fd != raw.fd)
                close(rows[i].fd);
        }
    }
    assert_true(raw_alive(&raw));
    raw_close(&raw);
    close(pair[1]);
    close(pipes[0]);
    close(memfd);
    hostile_unharmed(&scene);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_bytes_all_over_the_ring_file_hurt_only_their_writer),
        cmocka_unit_test(random_entries_slots_and_notices_hurt_only_their_writer),
        cmocka_unit_test(entries_that_are_nearly_right_hurt_only_their_writer),
        cmocka_unit_test(a_head_that_cannot_be_ends_only_that_session),
        cmocka_unit_test(tails_that_cannot_be_cost_their_writer_its_notices_only),
        cmocka_unit_test(random_frames_are_refused_or_end_the_session),
        cmocka_unit_test(a_packet_of_any_wrong_size_ends_the_session_or_is_refused),
        cmocka_unit_test(answers_and_goodbyes_are_for_the_agent_to_send),
        cmocka_unit_test(descriptors_where_none_belong_are_refused),
        cmocka_unit_test(a_wrong_number_of_descriptors_is_refused),
        cmocka_unit_test(what_is_not_a_memory_file_cannot_be_registered),
    };

    return cmocka_run_group_tests_name("a client that sends nonsense", tests, scene_open,
                                       scene_close);
}
