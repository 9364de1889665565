/* test_hostile_limits.c - a client that wants more and more of everything. Each refusal names the
 * setting that says so, a metric counts it, and what was taken comes back when the client goes. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/hostile.h"

#define MIB (1u << 20)
#define MANY 100000u
#define HOME 0x700000000000u

static struct hostile scene;

static int small_open(void **state)
{
    hostile_open(&scene, 1);
    return 0;
}

static int default_open(void **state)
{
    hostile_open(&scene, 0);
    return 0;
}

static int scene_close(void **state)
{
    hostile_close(&scene);
    return 0;
}

/* ---- creates without a release ------------------------------------------------------------- */

/* Each makes one more, or gives the refusal's code with its sentence in raw->in. */
typedef int create_fn(struct raw *raw, uint32_t k);

static int create_peer(struct raw *raw, uint32_t k)
{
    snprintf(raw_frame(raw, NXL_FRAME_PEER_OPEN)->name, sizeof(raw->out->name), "many-%u", k);
    return raw_call(raw, NULL, 0);
}

static int create_list(struct raw *raw, uint32_t k)
{
    return raw_list(raw, 0, (struct nxl_run){.addr = HOME, .len = 64, .count = 1}, NULL);
}

/* Runs that do not merge, 4096 a list. */
static int create_runs(struct raw *raw, uint32_t k)
{
    struct nxl_run *runs = (struct nxl_run *)(void *)raw->ring.arena;

    for (uint32_t i = 0; i < 4096; i++)
        runs[i] =
            (struct nxl_run){.addr = HOME + (uint64_t)i * i % (MIB - 64), .len = 8, .count = 1};
    raw_frame(raw, NXL_FRAME_LIST)->count = 4096;
    return raw_call(raw, NULL, 0);
}

/* 1024 regions at once over one file. */
static int create_regions(struct raw *raw, uint32_t k)
{
    struct nxl_frame *out = raw_frame(raw, NXL_FRAME_REGISTER);
    int file = raw_memfd(4096, 1), code;

    out->count = NXL_FRAME_REGIONS_MAX;
    for (uint32_t i = 0; i < out->count; i++)
        out->regions[i] = (struct nxl_frame_region){
            .addr = HOME + (1ull + (uint64_t)k * out->count + i) * MIB, .len = 4096};
    code = raw_call(raw, &file, 1);
    close(file);
    return code;
}

static int create_files(struct raw *raw, uint32_t k)
{
    struct nxl_frame *out = raw_frame(raw, NXL_FRAME_REGISTER);
    int files[NXL_FRAME_FDS_MAX], code;

    out->count = NXL_FRAME_FDS_MAX;
    for (uint32_t i = 0; i < out->count; i++) {
        files[i] = raw_memfd(4096, 1);
        out->regions[i] = (struct nxl_frame_region){
            .addr = HOME + (1ull + (uint64_t)k * out->count + i) * MIB, .len = 4096, .fd_index = i};
    }
    code = raw_call(raw, files, out->count);
    for (uint32_t i = 0; i < NXL_FRAME_FDS_MAX; i++)
        close(files[i]);
    return code;
}

/* Not a byte of it exists. */
static int create_bytes(struct raw *raw, uint32_t k)
{
    int file = raw_memfd(1ull << 30, 1);
    int code = raw_register(raw, file, HOME + ((uint64_t)k << 30), 1ull << 30, NULL);

    close(file);
    return code;
}

/* Peers of one session that know each other. */
static int create_remote(struct raw *raw, uint32_t k)
{
    uint32_t first = raw->peer;
    int code;

    if (k < 16)
        return create_peer(raw, k);
    snprintf(raw_frame(raw, NXL_FRAME_FETCH)->name, sizeof(raw->out->name), "many-%u", k % 16);
    raw->out->peer = first + (k / 16) % 16;
    code = raw_call(raw, NULL, 0);
    return code;
}

static void create_many(create_fn *create, const char *setting)
{
    double before = hostile_refused(&scene);
    int file = raw_memfd(MIB, 1), code = NXL_OK;
    uint32_t made = 0;
    struct raw raw;

    raw_open(&raw, &scene.cluster, 0, "grabber");
    assert_int_equal(raw_register(&raw, file, HOME, MIB, NULL), NXL_OK);
    close(file);
    while (made < MANY && (code = create(&raw, made)) == NXL_OK)
        made++;
    print_message("    refused after %u: %s\n", made, raw.in->text);
    assert_int_equal(code, NXL_LIMIT);
    hostile_says(raw.in->text, setting);
    for (int i = 0; i < 3; i++) /* it stays refused, and the session stays usable */
        assert_int_equal(create(&raw, made), NXL_LIMIT);
    assert_true(raw_alive(&raw));
    assert_true(hostile_refused(&scene) >= before + 4);
    raw_close(&raw);
    hostile_unharmed(&scene);
}

static void peers_without_end_are_refused_by_limits_peers(void **state)
{
    create_many(create_peer, "limits.peers");
}

static void lists_without_end_are_refused_by_limits_lists(void **state)
{
    create_many(create_list, "limits.lists");
}

static void runs_without_end_are_refused_by_limits_list_runs(void **state)
{
    create_many(create_runs, "limits.list_runs");
}

static void regions_without_end_are_refused_by_limits_regions(void **state)
{
    create_many(create_regions, "limits.regions");
}

static void files_without_end_are_refused_by_limits_files(void **state)
{
    create_many(create_files, "limits.files");
}

/* Each session keeps within its own limit; together they would leave the agent no room to map. */
static void files_of_many_sessions_are_refused_by_limits_files_total(void **state)
{
    struct raw raws[2];
    int code = NXL_OK;

    for (uint32_t k = 0; k < 2; k++) {
        raw_connect(&raws[k], &scene.cluster, 0);
        assert_int_equal(raw_hello(&raws[k], 64, MIB, 4096), NXL_OK);
        assert_int_equal(create_peer(&raws[k], k), NXL_OK);
        raws[k].peer = raws[k].in->peer;
        code = NXL_OK;
        for (uint32_t round = 0; round < 4 && code == NXL_OK; round++)
            code = create_files(&raws[k], round);
    }
    assert_int_equal(code, NXL_LIMIT);
    hostile_says(raws[1].in->text, "limits.files_total");
    raw_close(&raws[0]);
    raw_close(&raws[1]);
    hostile_unharmed(&scene);
}

static void bytes_without_end_are_refused_by_limits_registered(void **state)
{
    create_many(create_bytes, "limits.registered");
}

static void remotes_without_end_are_refused_by_limits_remotes(void **state)
{
    create_many(create_remote, "limits.remotes");
}

static void a_hundred_thousand_transfers_are_refused_by_the_clients_slots(void **state)
{
    struct nxl_client *client = cluster_client(&scene.cluster, 0);
    struct nxl_run run = {.addr = HOME, .len = 64, .count = 1};
    struct nxl_remote *self;
    struct nxl_transfer *transfer;
    struct nxl_peer *peer;
    struct nxl_err err = {0};
    enum nxl_code code = NXL_OK;
    uint32_t made = 0;

    assert_int_equal(nxl_peer_open(client, "grabber", &peer, &err), NXL_OK);
    assert_int_equal(nxl_remote_find(peer, "grabber", &self, &err), NXL_OK);
    while (made < MANY && code == NXL_OK) {
        code = nxl_transfer_create(peer, NXL_READ, self, NXL_MEM_DRAM, &run, 1, &run, 1, NULL,
                                   &transfer, &err);
        made += code == NXL_OK;
        if (code == NXL_OK)
            assert_int_equal(nxl_transfer_post(transfer, &err), NXL_OK);
    }
    assert_int_equal(code, NXL_LIMIT);
    assert_int_equal(made, 4096);
    hostile_says(err.text, "nxl_client_options.slots");
    nxl_client_close(client);
    hostile_unharmed(&scene);
}

/* ---- HELLO, posts -------------------------------------------------------------------------- */

static void a_hello_that_asks_for_too_much_is_told_the_setting(void **state)
{
    static const struct {
        uint32_t slots;
        uint64_t arena, notices;
        const char *setting;
    } rows[] = {
        {65537, MIB, 4096, "socket.slots_max"},   {UINT32_MAX, MIB, 4096, "socket.slots_max"},
        {64, 65 * MIB, 4096, "socket.arena_max"}, {64, UINT64_MAX, 4096, "socket.arena_max"},
        {64, MIB, 65 * MIB, "socket.notice_max"}, {64, MIB, UINT64_MAX, "socket.notice_max"},
    };
    double before = hostile_refused(&scene);
    struct raw raw;

    raw_connect(&raw, &scene.cluster, 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(raw_hello(&raw, rows[i].slots, rows[i].arena, rows[i].notices), NXL_LIMIT);
        hostile_says(raw.in->text, rows[i].setting);
    }
    assert_true(hostile_refused(&scene) >= before + 6);
    assert_int_equal(raw_hello(&raw, 64, MIB, 4096), NXL_OK); /* less is fine */
    raw_close(&raw);
    hostile_unharmed(&scene);
}

static double errors_of_limits(void)
{
    return hostile_metric(&scene, "agent_errors_total", "status=\"limit\"");
}

static void posts_that_are_too_large_are_told_the_setting(void **state)
{
    struct nxl_run tiny = {.addr = HOME, .len = 0, .stride = 0, .count = 100001};
    struct nxl_run large = {.addr = HOME, .len = 512ull * MIB, .count = 1};
    struct nxl_ring_entry copies = {.kind = NXL_RING_POST,
                                    .slot = 3,
                                    .generation = 1,
                                    .count = 8u << 20,
                                    .local_list = 1,
                                    .remote_list = 2};
    double before = errors_of_limits();
    double refused = hostile_metric(&scene, "nixlet_frame_refused_total", "code=\"invalid_param\"");
    int file = raw_memfd(512ull * MIB, 1), code = 0;
    uint32_t self;
    struct raw raw;

    raw_connect(&raw, &scene.cluster, 0);
    assert_int_equal(raw_hello(&raw, 64, 64 * MIB, 4096), NXL_OK);
    assert_int_equal(create_peer(&raw, 0), NXL_OK);
    copies.peer = raw.peer = raw.in->peer;
    assert_int_equal(raw_register(&raw, file, HOME, 512ull * MIB, NULL), NXL_OK);
    close(file);
    self = raw_find(&raw, "many-0");
    assert_true(raw_post(&raw, 1, 1, self, &tiny, &tiny, 0));
    assert_int_equal(raw_slot_wait(&raw, 1, 1, &code), NXL_RING_FAILED);
    assert_int_equal(code, NXL_LIMIT);
    hostile_says(raw_explain(&raw, 1, 1), "limits.descriptors");
    assert_true(raw_post(&raw, 2, 1, self, &large, &large, 0));
    assert_int_equal(raw_slot_wait(&raw, 2, 1, &code), NXL_RING_FAILED);
    assert_int_equal(code, NXL_LIMIT);
    hostile_says(raw_explain(&raw, 2, 1), "limits.transfer_bytes");
    assert_true(errors_of_limits() >= before + 2);
    assert_true(raw_submit(&raw, &copies)); /* its arrays fill the arena exactly */
    assert_int_equal(raw_slot_wait(&raw, 3, 1, &code), NXL_RING_FAILED);
    copies.count++;
    copies.generation++;
    assert_true(raw_submit(&raw, &copies));
    assert_int_equal(raw_slot_wait(&raw, 3, 2, &code), NXL_RING_FAILED);
    assert_int_equal(code, NXL_INVALID_PARAM);
    hostile_says(raw_explain(&raw, 3, 2), "leave the arena");
    /* Posts that the front refuses count like the frames that it refuses. */
    assert_true(hostile_metric(&scene, "nixlet_frame_refused_total", "code=\"invalid_param\"") ==
                refused + 1);
    raw_close(&raw);
    hostile_unharmed(&scene);
}

static void more_running_transfers_than_allowed_are_refused_by_limits_transfers(void **state)
{
    struct nxl_run from = {.addr = HOME, .len = 8 * MIB, .count = 1};
    struct nxl_run to = {.addr = HOME + 8 * MIB, .len = 8 * MIB, .count = 1};
    int file = raw_memfd(16 * MIB, 1), refused = 0, done = 0;
    uint32_t self;
    struct raw raw;

    raw_open(&raw, &scene.cluster, 0, "grabber");
    assert_int_equal(raw_register(&raw, file, HOME, 16 * MIB, NULL), NXL_OK);
    close(file);
    self = raw_find(&raw, "grabber");
    for (uint32_t slot = 0; slot < 64; slot++)
        assert_true(raw_post(&raw, slot, 1, self, &from, &to, NXL_RING_WRITE));
    for (uint32_t slot = 0; slot < 64; slot++) {
        int code = 0, how = raw_slot_wait(&raw, slot, 1, &code);

        done += how == NXL_RING_DONE;
        if (how != NXL_RING_FAILED)
            continue;
        assert_int_equal(code, NXL_LIMIT);
        hostile_says(raw_explain(&raw, slot, 1), "limits.transfers");
        refused++;
    }
    assert_int_equal(done + refused, 64);
    assert_true(done >= 8 && refused > 0);
    raw_close(&raw);
    hostile_unharmed(&scene);
}

/* ---- sessions, calls, answers, notices --------------------------------------------------------
 */

static void sessions_without_end_are_refused_by_limits_sessions(void **state)
{
    static struct raw raws[24];
    double before = hostile_refused(&scene);
    uint32_t open = 0;
    int code = NXL_OK;

    while (open < 24) {
        raw_connect(&raws[open], &scene.cluster, 0);
        code = raw_hello(&raws[open], 64, MIB, 4096);
        if (code != NXL_OK)
            break;
        open++;
    }
    assert_int_equal(code, NXL_LIMIT);
    hostile_says(raws[open].in->text, "limits.sessions");
    assert_int_equal(open, 22); /* two are the well-behaved ones' */
    assert_true(hostile_refused(&scene) > before);
    for (uint32_t i = 0; i <= open; i++)
        raw_close(&raws[i]);
    hostile_unharmed(&scene);
}

static void connections_without_end_are_refused_by_socket_clients_max(void **state)
{
    static struct raw raws[64];
    double before = hostile_metric(&scene, "nixlet_sessions_ended_total", "reason=\"failed\"");
    uint32_t open = 0;

    while (open < 64) {
        raw_connect(&raws[open], &scene.cluster, 0);
        if (raw_ended(&raws[open], open < 46 ? 0 : 2000))
            break;
        open++;
    }
    assert_int_equal(open, 46);
    hostile_says(raws[open].goaway, "socket.clients_max");
    for (int k = 0; k < 20; k++) { /* whoever asks politely is told as well */
        struct nxl_client_options options = {.size = sizeof(options),
                                             .socket_path = scene.cluster.agents[0].socket};
        struct nxl_client *client;
        struct nxl_err err = {0};

        assert_int_not_equal(nxl_client_open(&options, &client, &err), NXL_OK);
        hostile_says(err.text, "socket.clients_max");
    }
    assert_true(hostile_metric(&scene, "nixlet_sessions_ended_total", "reason=\"failed\"") >
                before);
    for (uint32_t i = 0; i <= open; i++)
        raw_close(&raws[i]);
    hostile_unharmed(&scene);
}

static void calls_that_wait_without_end_are_refused_by_socket_calls_max(void **state)
{
    double before = hostile_refused(&scene);
    uint32_t refused = 0;
    struct raw raw;

    raw_open(&raw, &scene.cluster, 0, "grabber");
    for (uint32_t k = 0; k < 200; k++) {
        snprintf(raw_frame(&raw, NXL_FRAME_FETCH)->name, sizeof(raw.out->name), "nobody-%u", k);
        raw.out->timeout_ms = UINT32_MAX;
        assert_int_equal(raw_send(&raw, NULL, 0), 0);
    }
    while (refused < 200 - 64 && raw_recv(&raw, 5000) > 0) {
        assert_int_equal(raw.in->code, NXL_LIMIT);
        hostile_says(raw.in->text, "socket.calls_max");
        refused++;
    }
    assert_int_equal(refused, 200 - 64);
    assert_true(hostile_refused(&scene) >= before + refused);
    raw_close(&raw); /* with 64 calls open */
    hostile_unharmed(&scene);
}

/* Nobody is at these addresses, and each call that dials one of them gives up. */
static void dialling_hundreds_of_addresses_leaves_no_descriptor_behind(void **state)
{
    struct raw raw;

    raw_open(&raw, &scene.cluster, 0, "grabber");
    for (uint32_t round = 0; round < 6; round++) {
        for (uint32_t k = 0; k < 60; k++) {
            struct nxl_frame *out = raw_frame(&raw, NXL_FRAME_FETCH);

            snprintf(out->name, sizeof(out->name), "nobody");
            snprintf(out->address, sizeof(out->address), "127.0.0.1:%u", 1 + round * 60 + k);
            out->timeout_ms = 300;
            assert_int_equal(raw_send(&raw, NULL, 0), 0);
        }
        for (uint32_t k = 0; k < 60; k++) {
            assert_int_equal(raw_recv(&raw, 10000), 1);
            assert_true(raw.in->code < 0);
        }
    }
    raw_close(&raw);
    hostile_unharmed(&scene);
}

/* Who does not read answers is not heard; once it reads, every answer is there. */
static void frames_whose_answers_nobody_reads_wait_in_the_senders_own_socket(void **state)
{
    uint32_t sent = 0, read = 0, stuck = 0;
    struct raw raw;
    size_t size;

    raw_open(&raw, &scene.cluster, 0, "grabber");
    while (stuck < 20 && sent < MANY) {
        raw_frame(&raw, NXL_FRAME_EXPLAIN);
        size = raw_encode(&raw);
        if (send(raw.fd, raw.packet, size, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) {
            sent++;
            stuck = 0;
            continue;
        }
        assert_int_equal(errno, EAGAIN);
        stuck++;
        hostile_unnoticed(&scene, 1);
    }
    assert_true(sent < MANY);
    print_message("    %u frames sent before it stuck\n", sent);
    while (read < sent && raw_recv(&raw, 5000) > 0)
        read++;
    assert_int_equal(read, sent);
    assert_true(raw_alive(&raw));
    raw_close(&raw);
    hostile_unharmed(&scene);
}

static void notices_that_nobody_reads_end_in_a_limit_that_is_named(void **state)
{
    double lost = hostile_metric(&scene, "nixlet_notices_lost_total", "");
    struct nxl_ring_entry notify = {.kind = NXL_RING_NOTIFY, .notice_size = 1000};
    uint32_t sent = 0;
    struct raw raw;

    raw_open(&raw, &scene.cluster, 0, "grabber");
    notify.peer = raw.peer;
    notify.remote = raw_find(&raw, "grabber");
    while (sent < 20000 && raw_recv(&raw, 0) == 0 && raw_submit(&raw, &notify))
        sent++;
    assert_true(raw_ended(&raw, 10000));
    hostile_says(raw.goaway, "socket.notice_queue_max");
    assert_true(hostile_metric(&scene, "nixlet_notices_lost_total", "") > lost);
    assert_true(hostile_metric(&scene, "nixlet_sessions_ended_total", "reason=\"slow\"") > 0);
    raw_close(&raw);
    hostile_unharmed(&scene);
}

/* ---- with the agent's own limits ------------------------------------------------------------- */

static void one_who_hoards_files_and_dies_holds_nobody_up(void **state)
{
    create_many(create_files, "limits.files");
}

static void one_who_hoards_regions_and_dies_holds_nobody_up(void **state)
{
    create_many(create_regions, "limits.regions");
}

/* limits.descriptors; with sanitizers one of these alone would take seconds. */
#define LONGEST (STEADY_SLOW > 1 ? 1u << 17 : 1u << 20)

/* The longest posts that there can be, a ring full of them, and a frame behind it. */
static void a_ring_full_of_the_longest_posts_holds_nobody_up(void **state)
{
    struct nxl_run run = {.addr = HOME, .len = 4, .stride = 4, .count = 1u << 18};
    struct nxl_ring_entry post = {.kind = NXL_RING_POST, .count = LONGEST, .slot = 1};
    uint64_t seed = 5;
    int file = raw_memfd(MIB, 1), code;
    uint32_t self, *index;
    struct raw raw;

    raw_connect(&raw, &scene.cluster, 0);
    assert_int_equal(raw_hello(&raw, 1024, 64 * MIB, 4096), NXL_OK);
    assert_int_equal(create_peer(&raw, 0), NXL_OK);
    post.peer = raw.peer = raw.in->peer;
    assert_int_equal(raw_register(&raw, file, HOME, MIB, NULL), NXL_OK);
    close(file);
    self = raw_find(&raw, "many-0");
    assert_int_equal(raw_list(&raw, 0, run, &post.local_list), NXL_OK);
    assert_int_equal(raw_list(&raw, self, run, &post.remote_list), NXL_OK);
    index = (uint32_t *)(void *)raw.ring.arena;
    for (uint32_t i = 0; i < 2 * LONGEST; i++)
        index[i] = (uint32_t)raw_random(&seed) % run.count;
    index[LONGEST - 1] = UINT32_MAX; /* found wrong only at its very end */
    for (uint32_t k = 0; k < 40; k++) {
        post.slot = k;
        post.generation = 1;
        assert_true(raw_submit(&raw, &post));
    }
    raw_frame(&raw, NXL_FRAME_EXPLAIN);
    assert_int_equal(raw_send(&raw, NULL, 0), 0);
    hostile_unnoticed(&scene, 20);
    assert_int_equal(raw_slot_wait(&raw, 0, 1, &code), NXL_RING_FAILED);
    hostile_says(raw_explain(&raw, 0, 1), "index");
    raw_close(&raw);
    hostile_unharmed(&scene);
}

int main(void)
{
    static const struct CMUnitTest small[] = {
        cmocka_unit_test(peers_without_end_are_refused_by_limits_peers),
        cmocka_unit_test(runs_without_end_are_refused_by_limits_list_runs),
        cmocka_unit_test(regions_without_end_are_refused_by_limits_regions),
        cmocka_unit_test(files_without_end_are_refused_by_limits_files),
        cmocka_unit_test(files_of_many_sessions_are_refused_by_limits_files_total),
        cmocka_unit_test(bytes_without_end_are_refused_by_limits_registered),
        cmocka_unit_test(remotes_without_end_are_refused_by_limits_remotes),
        cmocka_unit_test(a_hundred_thousand_transfers_are_refused_by_the_clients_slots),
        cmocka_unit_test(a_hello_that_asks_for_too_much_is_told_the_setting),
        cmocka_unit_test(posts_that_are_too_large_are_told_the_setting),
        cmocka_unit_test(more_running_transfers_than_allowed_are_refused_by_limits_transfers),
        cmocka_unit_test(sessions_without_end_are_refused_by_limits_sessions),
        cmocka_unit_test(connections_without_end_are_refused_by_socket_clients_max),
        cmocka_unit_test(calls_that_wait_without_end_are_refused_by_socket_calls_max),
        cmocka_unit_test(dialling_hundreds_of_addresses_leaves_no_descriptor_behind),
        cmocka_unit_test(frames_whose_answers_nobody_reads_wait_in_the_senders_own_socket),
        cmocka_unit_test(notices_that_nobody_reads_end_in_a_limit_that_is_named),
    };
    static const struct CMUnitTest usual[] = {
        cmocka_unit_test(lists_without_end_are_refused_by_limits_lists),
        cmocka_unit_test(one_who_hoards_files_and_dies_holds_nobody_up),
        cmocka_unit_test(one_who_hoards_regions_and_dies_holds_nobody_up),
        cmocka_unit_test(a_ring_full_of_the_longest_posts_holds_nobody_up),
    };

    return cmocka_run_group_tests_name("a client that wants more and more", small, small_open,
                                       scene_close) +
           cmocka_run_group_tests_name("the same with the agent's own limits", usual, default_open,
                                       scene_close);
}
