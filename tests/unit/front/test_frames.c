/* Every frame type reaches its door of the engine with its fields, and the answer carries what it
 * should. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "rig.h"
#include "base/clock.h"
#include "base/mem.h"

#include <string.h>

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

static int teardown(void **state)
{
    (void)state;
    raw_close(&raw);
    rig_close(&rig);
    return 0;
}

static const struct nxl_xfer_remote_info decode = {
    .remote = 9, .name = "decode", .incarnation = "pod/container/2"};

/* Sends raw.out, lets the engine answer its index-th asynchronous call, reads the answer. */
static enum nxl_code ask_later(uint32_t index, enum nxl_code code,
                               const struct nxl_xfer_remote_info *info)
{
    assert_int_equal(raw_send(&raw, NULL, 0), 0);
    while (rig.xfer->call_count <= index)
        rig_turns(&rig, 1);
    assert_int_equal(raw_recv(&raw), 0); /* not before the engine says so */
    fake_xfer_answer(rig.xfer, index, code, info);
    assert_int_equal(raw_wait(&raw), 1);
    assert_int_equal(raw.in->type, raw.out->type);
    assert_int_equal(raw.in->seq, raw.out->seq);
    return raw.in->code;
}

static void peers_are_opened_and_closed_by_valid_names(void **state)
{
    static const char *const bad[] = {"", "a b", "a/b", "\xc3\xa4"};

    (void)state;
    for (size_t i = 0; i < NXL_COUNT_OF(bad); i++) {
        strcpy(raw_frame(&raw, NXL_FRAME_PEER_OPEN)->name, bad[i]);
        assert_int_equal(raw_ask(&raw, NULL, 0), NXL_INVALID_PARAM);
    }
    strcpy(raw_frame(&raw, NXL_FRAME_PEER_OPEN)->name, "prefill-0");
    assert_int_equal(raw_ask(&raw, NULL, 0), NXL_OK);
    assert_string_equal(rig.xfer->last.name, "prefill-0");
    assert_int_equal(raw.in->peer, 1);
    assert_string_equal(raw.in->incarnation, "pod/container/1");
    raw_frame(&raw, NXL_FRAME_PEER_CLOSE)->peer = 1;
    assert_int_equal(raw_ask(&raw, NULL, 0), NXL_OK);
    assert_int_equal(rig.xfer->used.peer_close, 1);
    assert_int_equal(rig.xfer->last.peer, 1);
}

static void deregister_answers_once_for_all_regions(void **state)
{
    struct nxl_frame *out = raw_frame(&raw, NXL_FRAME_DEREGISTER);

    (void)state;
    out->peer = 4;
    out->count = 2;
    out->ids[0] = 100;
    out->ids[1] = 101;
    assert_int_equal(ask_later(0, NXL_OK, NULL), NXL_OK);
    assert_int_equal(rig.xfer->last.count, 2);
    assert_int_equal(rig.xfer->last.ids[1], 101);
    assert_int_equal(rig.xfer->last.timeout_ns, 8 * NXL_SEC);
    raw_frame(&raw, NXL_FRAME_DEREGISTER)->count = 1;
    raw.out->timeout_ms = 20;
    assert_int_equal(ask_later(1, NXL_BUSY, NULL), NXL_BUSY);
    assert_non_null(strstr(raw.in->text, "says the test"));
    assert_int_equal(rig.xfer->last.timeout_ns, 20 * NXL_MS);
}

static void lists_take_their_runs_from_the_arena(void **state)
{
    struct nxl_run *arena = (struct nxl_run *)(void *)(raw.ring.arena + 64);
    struct nxl_frame *out = raw_frame(&raw, NXL_FRAME_LIST);

    (void)state;
    for (uint32_t i = 0; i < 3; i++)
        arena[i] = (struct nxl_run){
            .addr = 1000 * i, .len = 64, .stride = 128, .count = i + 1, .device = 2};
    out->peer = 1;
    out->remote = 6;
    out->kind = NXL_MEM_DRAM;
    out->count = 3;
    out->arena_offset = 64;
    out->more = 1;
    assert_int_equal(raw_ask(&raw, NULL, 0), NXL_OK);
    assert_int_equal(raw.in->list, 5);
    assert_int_equal(raw.in->size, 3);
    assert_int_equal(rig.xfer->last.remote, 6);
    assert_int_equal(rig.xfer->last.more, 1);
    assert_memory_equal(rig.xfer->last.runs, arena, 3 * sizeof(arena[0]));
    out = raw_frame(&raw, NXL_FRAME_LIST);
    out->list = 5;
    out->count = 0;
    assert_int_equal(raw_ask(&raw, NULL, 0), NXL_OK);
    assert_int_equal(rig.xfer->last.list, 5);
    assert_int_equal(rig.xfer->last.more, 0);
    raw_frame(&raw, NXL_FRAME_LIST_FREE)->list = 5;
    assert_int_equal(raw_ask(&raw, NULL, 0), NXL_OK);
    assert_int_equal(rig.xfer->used.list_free, 1);
}

static void runs_outside_the_arena_are_refused_with_their_place(void **state)
{
    static const struct {
        uint64_t offset;
        uint32_t count;
    } rows[] = {
        {65536, 1},      {65536 - 31, 1},          {0, 2049}, {UINT64_MAX, 1}, {UINT64_MAX - 31, 1},
        {0, UINT32_MAX}, {1ull << 63, UINT32_MAX},
    };

    (void)state;
    for (size_t i = 0; i < 2 * NXL_COUNT_OF(rows); i++) {
        struct nxl_frame *out = raw_frame(&raw, i % 2 ? NXL_FRAME_CHECK : NXL_FRAME_LIST);

        out->arena_offset = rows[i / 2].offset;
        out->count = rows[i / 2].count;
        assert_int_equal(raw_ask(&raw, NULL, 0), NXL_INVALID_PARAM);
        assert_non_null(strstr(raw.in->text, "arena of 65536 bytes"));
    }
    assert_int_equal(rig.xfer->used.list + rig.xfer->used.check, 0);
    raw_frame(&raw, NXL_FRAME_CHECK)->count = 2048; /* the whole arena is fine */
    assert_int_equal(raw_ask(&raw, NULL, 0), NXL_OK);
    assert_int_equal(rig.xfer->used.check, 1);
}

static void more_runs_than_one_copy_may_have_name_the_option(void **state)
{
    struct rig small;
    struct raw client;

    (void)state;
    rig_open(&small, "copy_max", "64Ki", NULL);
    raw_open(&client, &small);
    raw_welcome_sized(&client, 1, 1 << 20, 4096);
    raw_frame(&client, NXL_FRAME_LIST)->count = 2048;
    assert_int_equal(raw_ask(&client, NULL, 0), NXL_OK);
    raw_frame(&client, NXL_FRAME_LIST)->count = 2049;
    assert_int_equal(raw_ask(&client, NULL, 0), NXL_LIMIT);
    assert_non_null(strstr(client.in->text, "socket.copy_max"));
    raw_close(&client);
    rig_close(&small);
}

static void metadata_comes_back_as_a_blob_within_one_frame(void **state)
{
    struct nxl_frame *out = raw_frame(&raw, NXL_FRAME_METADATA);

    (void)state;
    out->peer = 2;
    out->flags = NXL_XFER_MD_REGIONS;
    out->count = 1;
    out->ids[0] = 77;
    rig.xfer->blob_size = NXL_FRAME_BLOB_MAX;
    assert_int_equal(raw_ask(&raw, NULL, 0), NXL_OK);
    assert_int_equal(raw.in->blob_size, NXL_FRAME_BLOB_MAX);
    assert_int_equal(raw.in->blob[NXL_FRAME_BLOB_MAX - 1], 'b');
    assert_int_equal(rig.xfer->last.flags, NXL_XFER_MD_REGIONS);
    assert_int_equal(rig.xfer->last.ids[0], 77);
    rig.xfer->blob_size = NXL_FRAME_BLOB_MAX + 1;
    raw_frame(&raw, NXL_FRAME_METADATA);
    assert_int_equal(raw_ask(&raw, NULL, 0), NXL_LIMIT);
}

static void load_and_fetch_answer_with_the_remote_later(void **state)
{
    struct nxl_frame *out = raw_frame(&raw, NXL_FRAME_LOAD);

    (void)state;
    out->peer = 1;
    out->blob_size = 500;
    out->blob[0] = 'N';
    assert_int_equal(ask_later(0, NXL_OK, &decode), NXL_OK);
    assert_int_equal(raw.in->remote, 9);
    assert_string_equal(raw.in->name, "decode");
    assert_string_equal(raw.in->incarnation, "pod/container/2");
    assert_int_equal(rig.xfer->last.blob_size, 500);
    assert_int_equal(rig.xfer->last.blob_first, 'N');
    out = raw_frame(&raw, NXL_FRAME_FETCH);
    strcpy(out->name, "decode");
    strcpy(out->label, "half");
    strcpy(out->address, "10.0.0.1:7741");
    out->timeout_ms = 1500;
    assert_int_equal(ask_later(1, NXL_NOT_FOUND, NULL), NXL_NOT_FOUND);
    assert_string_equal(rig.xfer->last.name, "decode");
    assert_string_equal(rig.xfer->last.label, "half");
    assert_string_equal(rig.xfer->last.address, "10.0.0.1:7741");
    assert_int_equal(rig.xfer->last.timeout_ns, 1500 * NXL_MS);
    strcpy(raw_frame(&raw, NXL_FRAME_FETCH)->name, "no/body");
    assert_int_equal(raw_ask(&raw, NULL, 0), NXL_INVALID_PARAM);
    assert_int_equal(rig.xfer->used.fetch, 1);
}

/* One that waits does not keep the others waiting, and seq tells the answers apart. */
static void answers_come_in_any_order(void **state)
{
    uint32_t first;

    (void)state;
    strcpy(raw_frame(&raw, NXL_FRAME_FETCH)->name, "slow");
    first = raw.out->seq;
    assert_int_equal(raw_send(&raw, NULL, 0), 0);
    raw_frame(&raw, NXL_FRAME_WITHDRAW);
    assert_int_equal(raw_send(&raw, NULL, 0), 0);
    while (rig.xfer->call_count < 2)
        rig_turns(&rig, 1);
    fake_xfer_answer(rig.xfer, 1, NXL_OK, NULL);
    assert_int_equal(raw_wait(&raw), 1);
    assert_int_equal(raw.in->seq, raw.out->seq);
    raw_frame(&raw, NXL_FRAME_INVALIDATE);
    assert_int_equal(raw_ask(&raw, NULL, 0), NXL_OK);
    fake_xfer_answer(rig.xfer, 0, NXL_OK, &decode);
    assert_int_equal(raw_wait(&raw), 1);
    assert_int_equal(raw.in->seq, first);
}

static void calls_may_be_answered_from_inside(void **state)
{
    (void)state;
    rig.xfer->answer_now = 1;
    for (uint16_t i = 0; i < 5; i++) {
        static const uint16_t types[] = {NXL_FRAME_LOAD, NXL_FRAME_SEND, NXL_FRAME_WITHDRAW,
                                         NXL_FRAME_CONNECT, NXL_FRAME_DEREGISTER};

        raw_frame(&raw, types[i]);
        assert_int_equal(raw_ask(&raw, NULL, 0), NXL_OK);
    }
}

static void send_withdraw_and_connect_pass_their_fields(void **state)
{
    struct nxl_frame *out = raw_frame(&raw, NXL_FRAME_SEND);

    (void)state;
    out->peer = 1;
    out->flags = NXL_XFER_MD_ADDRESS;
    out->count = 1;
    out->ids[0] = 5;
    strcpy(out->label, "l");
    strcpy(out->address, "a:1");
    assert_int_equal(ask_later(0, NXL_OK, NULL), NXL_OK);
    assert_string_equal(rig.xfer->last.label, "l");
    assert_string_equal(rig.xfer->last.address, "a:1");
    assert_int_equal(rig.xfer->last.flags, NXL_XFER_MD_ADDRESS);
    assert_int_equal(rig.xfer->last.ids[0], 5);
    strcpy(raw_frame(&raw, NXL_FRAME_WITHDRAW)->address, "b:2");
    assert_int_equal(ask_later(1, NXL_UNREACHABLE, NULL), NXL_UNREACHABLE);
    assert_string_equal(rig.xfer->last.address, "b:2");
    raw_frame(&raw, NXL_FRAME_CONNECT)->remote = 9;
    assert_int_equal(ask_later(2, NXL_OK, NULL), NXL_OK);
    assert_int_equal(rig.xfer->last.remote, 9);
    assert_int_equal(rig.xfer->last.timeout_ns, 8 * NXL_SEC);
}

static void find_state_and_invalidate_answer_at_once(void **state)
{
    (void)state;
    strcpy(raw_frame(&raw, NXL_FRAME_FIND)->name, "decode");
    assert_int_equal(raw_ask(&raw, NULL, 0), NXL_OK);
    assert_int_equal(raw.in->remote, 9);
    assert_string_equal(raw.in->incarnation, "pod/container/2");
    raw_frame(&raw, NXL_FRAME_STATE)->remote = 9;
    assert_int_equal(raw_ask(&raw, NULL, 0), NXL_OK);
    assert_int_equal(raw.in->state.life, NXL_LIFE_DRAINING);
    assert_int_equal(raw.in->state.suspect, 1);
    assert_int_equal(raw.in->state.same_agent, 1);
    assert_int_equal(raw.in->state.regions, 80);
    assert_string_equal(raw.in->state.agent, "node-b");
    raw_frame(&raw, NXL_FRAME_INVALIDATE)->remote = 9;
    assert_int_equal(raw_ask(&raw, NULL, 0), NXL_OK);
    assert_int_equal(rig.xfer->used.invalidate, 1);
    rig.xfer->refuse = NXL_STALE;
    strcpy(raw_frame(&raw, NXL_FRAME_FIND)->name, "decode");
    assert_int_equal(raw_ask(&raw, NULL, 0), NXL_STALE);
    assert_int_equal(raw.in->os, 7);
    assert_int_equal(rig_metric(&rig, "nixlet_frame_refused_total", "code=\"stale\""), 1);
    assert_int_equal(rig_metric(&rig, "nixlet_session_frames_total", "type=\"FIND\""), 2);
}

static void explain_brings_the_sentence_of_a_failed_slot(void **state)
{
    (void)state;
    raw_frame(&raw, NXL_FRAME_EXPLAIN)->slot = 15;
    assert_int_equal(raw_ask(&raw, NULL, 0), NXL_OK);
    assert_string_equal(raw.in->text, "slot 15: the far side went away: Input/output error");
    assert_int_equal(raw.in->os, 5);
    raw_frame(&raw, NXL_FRAME_EXPLAIN)->slot = 16;
    assert_int_equal(raw_ask(&raw, NULL, 0), NXL_INVALID_PARAM);
    assert_int_equal(rig.xfer->used.explain, 1);
    rig.xfer->refuse = NXL_NOT_FOUND;
    raw_frame(&raw, NXL_FRAME_EXPLAIN);
    assert_int_equal(raw_ask(&raw, NULL, 0), NXL_NOT_FOUND);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(peers_are_opened_and_closed_by_valid_names),
        CASE(deregister_answers_once_for_all_regions),
        CASE(lists_take_their_runs_from_the_arena),
        CASE(runs_outside_the_arena_are_refused_with_their_place),
        CASE(more_runs_than_one_copy_may_have_name_the_option),
        CASE(metadata_comes_back_as_a_blob_within_one_frame),
        CASE(load_and_fetch_answer_with_the_remote_later),
        CASE(answers_come_in_any_order),
        CASE(calls_may_be_answered_from_inside),
        CASE(send_withdraw_and_connect_pass_their_fields),
        CASE(find_state_and_invalidate_answer_at_once),
        CASE(explain_brings_the_sentence_of_a_failed_slot),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
