/* test_hostile_memory.c - a client that reaches for what is not its own: addresses outside its
 * regions, handles of other sessions, memory that it takes away again. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support/hostile.h"
#include "xfer/xfer.h"

#define MIB (1u << 20)
#define HOME 0x700000000000u /* where a client says that its memory lies */
#define TOP (UINT64_MAX - 4095)

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

/* A session with one region of size bytes at HOME; *ret_self is itself as a remote. */
static void armed_open(struct raw *raw, const char *name, uint64_t size, uint32_t *ret_self)
{
    int file = raw_memfd(size, 1);

    raw_open(raw, &scene.cluster, 0, name);
    assert_int_equal(raw_register(raw, file, HOME, size, NULL), NXL_OK);
    close(file);
    *ret_self = raw_find(raw, name);
    assert_int_not_equal(*ret_self, 0);
}

static void moves(struct raw *raw, uint32_t slot, uint32_t generation, uint32_t self)
{
    struct nxl_run from = {.addr = HOME, .len = 4096, .count = 1};
    struct nxl_run to = {.addr = HOME + 8192, .len = 4096, .count = 1};
    int code = -1;

    assert_true(raw_post(raw, slot, generation, self, &from, &to, NXL_RING_WRITE));
    assert_int_equal(raw_slot_wait(raw, slot, generation, &code), NXL_RING_DONE);
    assert_int_equal(code, NXL_OK);
}

/* ---- addresses --------------------------------------------------------------------------- */

static void an_address_that_is_not_its_own_is_refused_on_either_side(void **state)
{
    static const struct {
        struct nxl_run run;
        const char *why;
    } rows[] = {
        {{.addr = HOME - 4096, .len = 4096, .count = 1}, "no registered region"},
        {{.addr = HOME - 1, .len = 4096, .count = 1}, "no registered region"},
        {{.addr = HOME + MIB - 4095, .len = 4096, .count = 1}, "no registered region"},
        {{.addr = HOME + MIB, .len = 1, .count = 1}, "no registered region"},
        {{.addr = HOME, .len = MIB + 1, .count = 1}, "no registered region"},
        {{.addr = HOME, .len = UINT64_MAX, .count = 1}, "beyond the address space"},
        {{.addr = HOME, .len = 4096, .stride = MIB, .count = 2}, "no registered region"},
        {{.addr = 0, .len = 4096, .count = 1}, "no registered region"},
        {{.addr = TOP, .len = 4096, .count = 1}, "beyond the address space"},
        {{.addr = TOP, .len = 4095, .count = 1}, "no registered region"},
        {{.addr = HOME, .len = 1, .stride = UINT64_MAX / 2, .count = 4},
         "beyond the address space"},
        {{.addr = HOME, .len = 1ull << 40, .stride = 1ull << 40, .count = UINT32_MAX},
         "beyond the address space"},
        {{.addr = HOME, .len = 4096, .stride = 1, .count = 2}, "would overlap"},
        {{.addr = HOME, .len = 4096, .count = 0}, "count 0"},
        {{.addr = HOME, .len = 4096, .count = 1, .device = 7}, "no registered region"},
    };
    struct nxl_run good = {.addr = HOME, .len = 4096, .count = 1};
    uint32_t generation = 0, self;
    struct raw raw;

    armed_open(&raw, "armed", MIB, &self);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (int far = 0; far < 2; far++) {
            int code = 0;

            assert_true(raw_post(&raw, 1, ++generation, self, far ? &good : &rows[i].run,
                                 far ? &rows[i].run : &good, i % 2 ? NXL_RING_WRITE : 0));
            if (raw_slot_wait(&raw, 1, generation, &code) != NXL_RING_FAILED)
                fail_msg("row %zu, %s side: it was carried out", i, far ? "far" : "near");
            hostile_says(raw_explain(&raw, 1, generation), rows[i].why);
            assert_int_not_equal(raw_list(&raw, far ? self : 0, rows[i].run, NULL), NXL_OK);
            hostile_says(raw.in->text, rows[i].why);
        }
    }
    moves(&raw, 2, 1, self);
    raw_close(&raw);
    hostile_unharmed(&scene);
}

/* The addresses of other processes and of the agent itself are numbers without a meaning here. */
static void the_agents_own_addresses_lead_nowhere(void **state)
{
    struct nxl_run good = {.addr = HOME, .len = 64, .count = 1};
    uint32_t generation = 0, self;
    char path[64], line[512];
    struct raw raw;
    FILE *maps;

    armed_open(&raw, "armed", MIB, &self);
    snprintf(path, sizeof(path), "/proc/%d/maps", (int)scene.agent);
    maps = fopen(path, "re");
    assert_non_null(maps);
    while (fgets(line, sizeof(line), maps) && generation < 400) {
        struct nxl_run run = {.addr = strtoull(line, NULL, 16), .len = 64, .count = 1};
        int code;

        for (int far = 0; far < 2; far++) {
            assert_true(
                raw_post(&raw, 1, ++generation, self, far ? &good : &run, far ? &run : &good, 0));
            assert_int_equal(raw_slot_wait(&raw, 1, generation, &code), NXL_RING_FAILED);
            assert_int_equal(code, NXL_NOT_FOUND);
        }
    }
    fclose(maps);
    assert_true(generation > 20);
    raw_close(&raw);
    hostile_unharmed(&scene);
}

/* Encoders of ours do not let this through, so the bytes are spoiled by hand. */
static void a_region_whose_end_overflows_is_refused(void **state)
{
    static const struct nxl_frame_region rows[] = {
        {.addr = TOP, .len = 4097},
        {.addr = UINT64_MAX, .len = UINT64_MAX},
        {.addr = HOME, .len = 4096, .fd_offset = TOP + 1},
        {.addr = HOME, .len = UINT64_MAX, .fd_offset = 1},
        {.addr = HOME, .len = 4096, .fd_offset = 4097},
        {.addr = HOME, .len = 8193},
        {.addr = HOME, .len = 1ull << 62},
        {.addr = HOME, .len = 0},
        {.addr = HOME, .len = 4096, .kind = NXL_MEM_KINDS},
        {.addr = HOME, .len = 4096, .kind = NXL_MEM_VRAM},
        {.addr = HOME, .len = 4096, .fd_index = 64},
        {.addr = HOME, .len = 4096, .fd_index = UINT32_MAX},
    };
    int file = raw_memfd(8192, 1);
    uint32_t self;
    struct raw raw;

    armed_open(&raw, "armed", MIB, &self);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct nxl_frame *out = raw_frame(&raw, NXL_FRAME_REGISTER);
        size_t size;

        out->count = 1;
        memset(&out->regions[0], 0, sizeof(out->regions[0]));
        size = raw_encode(&raw);
        memcpy(raw.packet + size - sizeof(rows[i]), &rows[i], sizeof(rows[i]));
        assert_int_equal(raw_send_bytes(&raw, raw.packet, size, &file, 1), 0);
        assert_int_equal(raw_recv(&raw, 10000), 1);
        assert_int_equal(raw.in->seq, raw.seq);
        if (raw.in->code >= 0)
            fail_msg("row %zu was registered", i);
    }
    moves(&raw, 2, 1, self);
    raw_close(&raw);
    close(file);
    hostile_unharmed(&scene);
}

/* ---- handles of somebody else ---------------------------------------------------------------- */

struct victim {
    struct raw raw;
    uint32_t self, others, peer, local, remote;
    uint64_t region;
};

/* Numbers that the attacker does not have by itself: it opened less. */
static void victim_open(struct victim *victim)
{
    struct nxl_run run = {.addr = HOME, .len = 4096, .stride = 4096, .count = 8};
    struct raw *raw = &victim->raw;
    int file = raw_memfd(MIB, 1);

    armed_open(raw, "victim", MIB, &victim->self);
    for (int i = 0; i < 5; i++)
        assert_int_equal(raw_list(raw, 0, run, &victim->local), NXL_OK);
    assert_int_equal(raw_list(raw, victim->self, run, &victim->remote), NXL_OK);
    assert_int_equal(raw_register(raw, file, HOME + 4 * MIB, MIB, &victim->region), NXL_OK);
    close(file);
    for (int i = 0; i < 3; i++) {
        char name[16];

        snprintf(name, sizeof(name), "v%d", i);
        memcpy(raw_frame(raw, NXL_FRAME_PEER_OPEN)->name, name, sizeof(name));
        assert_int_equal(raw_call(raw, NULL, 0), NXL_OK);
        victim->peer = raw->in->peer;
        victim->others = raw_find(raw, name);
        assert_int_not_equal(victim->others, 0);
    }
}

static void lists_post(struct raw *raw, uint32_t slot, uint32_t generation, uint32_t local,
                       uint32_t remote)
{
    struct nxl_ring_entry entry = {.kind = NXL_RING_POST,
                                   .flags = NXL_RING_LOCAL_ALL | NXL_RING_REMOTE_ALL,
                                   .slot = slot,
                                   .generation = generation,
                                   .peer = raw->peer,
                                   .local_list = local,
                                   .remote_list = remote,
                                   .count = 8};

    assert_true(raw_submit(raw, &entry));
}

static void handles_are_tried(struct raw *raw, const struct victim *victim)
{
    struct nxl_ring_entry stop = {.kind = NXL_RING_CANCEL, .slot = 9, .generation = 1};
    const struct {
        uint16_t type;
        uint32_t peer, remote, list, count;
    } rows[] = {
        {NXL_FRAME_LIST_FREE, raw->peer, 0, victim->local, 0},
        {NXL_FRAME_LIST_FREE, raw->peer, 0, victim->remote, 0},
        {NXL_FRAME_DEREGISTER, raw->peer, 0, 0, 1},
        {NXL_FRAME_DEREGISTER, victim->peer, 0, 0, 1},
        {NXL_FRAME_METADATA, raw->peer, 0, 0, 1},
        {NXL_FRAME_METADATA, victim->peer, 0, 0, 0},
        {NXL_FRAME_SEND, victim->peer, 0, 0, 0},
        {NXL_FRAME_WITHDRAW, victim->peer, 0, 0, 0},
        {NXL_FRAME_PEER_CLOSE, victim->peer, 0, 0, 0},
        {NXL_FRAME_INVALIDATE, raw->peer, victim->others, 0, 0},
        {NXL_FRAME_CONNECT, raw->peer, victim->others, 0, 0},
        {NXL_FRAME_STATE, raw->peer, victim->others, 0, 0},
        {NXL_FRAME_LIST, victim->peer, 0, 0, 1},
        {NXL_FRAME_LIST, raw->peer, victim->others, 0, 1},
        {NXL_FRAME_CHECK, raw->peer, victim->others, 0, 1},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct nxl_frame *out = raw_frame(raw, rows[i].type);
        int code;

        out->peer = rows[i].peer;
        out->remote = rows[i].remote;
        out->list = rows[i].list;
        out->count = rows[i].count;
        out->flags = rows[i].count > 0 ? NXL_XFER_MD_REGIONS : 0;
        out->ids[0] = victim->region;
        code = raw_call(raw, NULL, 0);
        if (code != NXL_NOT_FOUND)
            fail_msg("row %zu, %s: code %d: %s", i, nxl_frame_type_name(rows[i].type), code,
                     raw->in->text);
    }
    assert_true(raw_submit(raw, &stop));
    stop.kind = NXL_RING_RELEASE;
    assert_true(raw_submit(raw, &stop));
}

static void handles_of_another_session_do_not_exist(void **state)
{
    struct victim *victim = calloc(1, sizeof(*victim));
    uint32_t self;
    struct raw raw;
    int code;

    assert_non_null(victim);
    victim_open(victim);
    armed_open(&raw, "armed", MIB, &self);
    handles_are_tried(&raw, victim);
    lists_post(&raw, 1, 1, victim->local, victim->remote);
    assert_int_equal(raw_slot_wait(&raw, 1, 1, &code), NXL_RING_FAILED);
    assert_int_equal(code, NXL_NOT_FOUND);
    hostile_says(raw_explain(&raw, 1, 1), "does not exist");
    /* All of it is still there for its owner. */
    lists_post(&victim->raw, 9, 1, victim->local, victim->remote);
    assert_int_equal(raw_slot_wait(&victim->raw, 9, 1, &code), NXL_RING_DONE);
    raw_frame(&victim->raw, NXL_FRAME_DEREGISTER)->count = 1;
    victim->raw.out->ids[0] = victim->region;
    assert_int_equal(raw_call(&victim->raw, NULL, 0), NXL_OK);
    raw_frame(&victim->raw, NXL_FRAME_PEER_CLOSE)->peer = victim->peer;
    assert_int_equal(raw_call(&victim->raw, NULL, 0), NXL_OK);
    raw_close(&raw);
    raw_close(&victim->raw);
    free(victim);
    hostile_unharmed(&scene);
}

static void the_name_of_a_living_peer_cannot_be_taken(void **state)
{
    uint32_t self;
    struct raw raw;

    armed_open(&raw, "armed", MIB, &self);
    snprintf(raw_frame(&raw, NXL_FRAME_PEER_OPEN)->name, sizeof(raw.out->name), "steady-to");
    assert_int_equal(raw_call(&raw, NULL, 0), NXL_NOT_ALLOWED);
    hostile_says(raw.in->text, "steady-to");
    raw_close(&raw);
    hostile_unharmed(&scene);
}

/* ---- memory that shrinks --------------------------------------------------------------------- */

static void a_memfd_that_could_shrink_is_refused_at_the_door(void **state)
{
    int unsealed = raw_memfd(MIB, 0), unsealable = memfd_create("raw", MFD_CLOEXEC), growable;
    uint32_t self;
    struct raw raw;

    growable = raw_memfd(MIB, 0);
    assert_int_equal(fcntl(growable, F_ADD_SEALS, F_SEAL_GROW), 0);
    assert_int_equal(ftruncate(unsealable, MIB), 0);
    armed_open(&raw, "armed", MIB, &self);
    assert_int_equal(raw_register(&raw, unsealed, HOME, MIB, NULL), NXL_NOT_ALLOWED);
    hostile_says(raw.in->text, "F_SEAL_SHRINK");
    assert_int_equal(raw_register(&raw, unsealable, HOME, MIB, NULL), NXL_NOT_ALLOWED);
    assert_int_equal(raw_register(&raw, growable, HOME, MIB, NULL), NXL_NOT_ALLOWED);
    /* Sealed, it is taken; and the seal holds. */
    assert_int_equal(fcntl(unsealed, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    assert_int_equal(raw_register(&raw, unsealed, HOME + 2 * MIB, MIB, NULL), NXL_OK);
    assert_int_equal(ftruncate(unsealed, 4096), -1);
    assert_int_equal(errno, EPERM);
    raw_close(&raw);
    close(unsealed);
    close(unsealable);
    close(growable);
    hostile_unharmed(&scene);
}

static void the_ring_file_cannot_be_resized_or_unsealed_by_the_client(void **state)
{
    uint32_t self;
    struct raw raw;

    armed_open(&raw, "armed", MIB, &self);
    assert_int_equal(ftruncate(raw.file, 0), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(raw.file, (off_t)raw.ring.size * 2), -1);
    assert_int_equal(fcntl(raw.file, F_ADD_SEALS, F_SEAL_WRITE), -1);
    /* A hole it can punch: zeroes are as good as any other bytes that it could write. */
    assert_int_equal(
        fallocate(raw.file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)raw.ring.size),
        0);
    raw_ring_bell(&raw);
    (void)raw_ended(&raw, 200);
    raw_close(&raw);
    hostile_unharmed(&scene);
}

static int file_open(uint64_t size)
{
    const char *tmp = getenv("TMPDIR");
    int fd = open(tmp ? tmp : "/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    if (fd < 0 || ftruncate(fd, (off_t)size) != 0)
        fail_msg("cannot make a file in %s: %s", tmp ? tmp : "/tmp", strerror(errno));
    return fd;
}

/* A plain file cannot promise to keep its size: the agent survives that it does not. Sizes that the
 * loop thread copies itself, and those that its workers copy; read and write. */
static void a_file_cut_off_under_a_transfer_costs_its_owner_only(void **state)
{
    static const uint64_t sizes[] = {4096, 1 * MIB, 16 * MIB};

    for (unsigned round = 0; round < 12; round++) {
        uint64_t len = sizes[round % 3];
        int file = file_open(16 * MIB + 4096), code = 0;
        struct nxl_run own = {.addr = HOME, .len = len, .count = 1};
        struct nxl_run cut = {.addr = HOME + 32 * MIB, .len = len, .count = 1};
        uint32_t self, state_word;
        struct raw raw;

        armed_open(&raw, "armed", 16 * MIB, &self);
        assert_int_equal(raw_register(&raw, file, HOME + 32 * MIB, 16 * MIB, NULL), NXL_OK);
        if (round < 6) { /* before, or as near to the middle as it gets */
            assert_int_equal(ftruncate(file, 0), 0);
            assert_true(raw_post(&raw, 1, 1, self, &own, &cut, round % 2 ? NXL_RING_WRITE : 0));
        } else {
            assert_true(raw_post(&raw, 1, 1, self, &own, &cut, round % 2 ? NXL_RING_WRITE : 0));
            assert_int_equal(ftruncate(file, 0), 0);
        }
        state_word = (uint32_t)raw_slot_wait(&raw, 1, 1, &code);
        if (round < 6) {
            assert_int_equal(state_word, NXL_RING_FAILED);
            assert_int_equal(code, NXL_MEMORY_LOST);
        } else if (state_word != NXL_RING_DONE) {
            assert_int_equal(code, NXL_MEMORY_LOST);
        }
        moves(&raw, 2, 1, self); /* its other memory is as good as before */
        raw_close(&raw);
        close(file);
    }
    hostile_unharmed(&scene);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_address_that_is_not_its_own_is_refused_on_either_side),
        cmocka_unit_test(the_agents_own_addresses_lead_nowhere),
        cmocka_unit_test(a_region_whose_end_overflows_is_refused),
        cmocka_unit_test(handles_of_another_session_do_not_exist),
        cmocka_unit_test(the_name_of_a_living_peer_cannot_be_taken),
        cmocka_unit_test(a_memfd_that_could_shrink_is_refused_at_the_door),
        cmocka_unit_test(the_ring_file_cannot_be_resized_or_unsealed_by_the_client),
        cmocka_unit_test(a_file_cut_off_under_a_transfer_costs_its_owner_only),
    };

    return cmocka_run_group_tests_name("a client that reaches for what is not its own", tests,
                                       scene_open, scene_close);
}
