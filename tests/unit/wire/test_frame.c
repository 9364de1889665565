/* The frame codec: every type there and back, and every way to be wrong. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "wire/frame.h"

static struct nxl_frame in, out; /* large */
static unsigned char packet[NXL_FRAME_MAX];

/* A frame with something in every field of its type. */
static void fill(uint16_t type, int reply, int32_t code)
{
    memset(&in, 0, sizeof(in));
    in.type = type;
    in.reply = reply;
    in.code = reply ? code : 0;
    in.seq = type * 1000u + 7;
    in.os = 11;
    in.peer = 1;
    in.remote = 2;
    in.list = 3;
    in.kind = NXL_MEM_FILE;
    in.flags = 5;
    in.count = 6;
    in.more = 1;
    in.timeout_ms = 8;
    in.slot = 9;
    in.generation = 10;
    in.arena_offset = 0x123456789abcull;
    in.size = 0xcba987654321ull;
    strcpy(in.name, "prefill-0");
    strcpy(in.incarnation, "pod/container/1");
    strcpy(in.label, "full");
    strcpy(in.address, "[::1]:7741");
    if (reply)
        strcpy(in.text, "why: with \"quotes\"\nand a second line");
    in.hello.magic = NXL_FRAME_MAGIC;
    in.hello.version_min = 1;
    in.hello.version_max = 4;
    in.hello.version = 2;
    in.hello.slots = 4096;
    in.hello.session = 77;
    in.hello.arena_bytes = 1ull << 33;
    in.hello.notice_bytes = 1 << 22;
    in.hello.ring_bytes = 1ull << 34;
    strcpy(in.hello.node, "node-1");
    strcpy(in.hello.ns, "default");
    strcpy(in.hello.backends, "shm ucx");
    strcpy(in.hello.program, "vllm");
    in.state.life = NXL_LIFE_DRAINING;
    in.state.suspect = 1;
    in.state.same_agent = 1;
    in.state.regions = 12;
    strcpy(in.state.agent, "node-2");
    in.blob_size = 300;
    memset(in.blob, 0xab, in.blob_size);
    for (uint32_t i = 0; i < in.count; i++) {
        in.regions[i] = (struct nxl_frame_region){.addr = i * 4096ull, .len = 4096, .fd_index = i};
        in.ids[i] = UINT64_MAX - i;
    }
}

static size_t encode(void)
{
    struct nxl_err err;
    size_t size = 0;

    assert_int_equal(nxl_frame_encode(&in, packet, sizeof(packet), &size, &err), NXL_OK);
    assert_true(size > sizeof(struct nxl_frame_head) && size <= NXL_FRAME_MAX);
    return size;
}

/* Decodes from memory of exactly that size, so that a sanitizer sees the first byte too much. */
static enum nxl_code decode(const unsigned char *data, size_t size, struct nxl_err *err)
{
    unsigned char *exact = malloc(size ? size : 1);
    enum nxl_code code;

    memcpy(exact, data, size);
    memset(&out, 0x5a, sizeof(out)); /* nothing may depend on what was there */
    code = nxl_frame_decode((struct nxl_view){exact, size}, &out, err);
    free(exact);
    return code;
}

static void assert_scalars_equal(void)
{
    assert_int_equal(out.type, in.type);
    assert_int_equal(out.reply, in.reply);
    assert_int_equal(out.seq, in.seq);
    assert_int_equal(out.code, in.code);
    assert_int_equal(out.os, in.os);
    assert_int_equal(out.peer, in.peer);
    assert_int_equal(out.remote, in.remote);
    assert_int_equal(out.list, in.list);
    assert_int_equal(out.kind, in.kind);
    assert_int_equal(out.flags, in.flags);
    assert_int_equal(out.count, in.count);
    assert_int_equal(out.more, in.more);
    assert_int_equal(out.timeout_ms, in.timeout_ms);
    assert_int_equal(out.slot, in.slot);
    assert_int_equal(out.generation, in.generation);
    assert_int_equal(out.arena_offset, in.arena_offset);
    assert_int_equal(out.size, in.size);
    assert_string_equal(out.name, in.name);
    assert_string_equal(out.incarnation, in.incarnation);
    assert_string_equal(out.label, in.label);
    assert_string_equal(out.address, in.address);
    assert_string_equal(out.text, in.text);
}

static void every_type_comes_back_as_it_went(void **state)
{
    struct nxl_err err;

    for (uint16_t type = 1; type < NXL_FRAME_TYPES; type++) {
        for (int reply = 0; reply < (type == NXL_FRAME_GOAWAY ? 1 : 2); reply++) {
            size_t size;

            fill(type, reply, 0);
            size = encode();
            assert_int_equal(decode(packet, size, &err), NXL_OK);
            assert_scalars_equal();
            if (type == NXL_FRAME_HELLO)
                assert_memory_equal(&out.hello.magic, &in.hello.magic, 24);
            if (type == NXL_FRAME_HELLO) {
                assert_int_equal(out.hello.arena_bytes, in.hello.arena_bytes);
                assert_int_equal(out.hello.ring_bytes, in.hello.ring_bytes);
                assert_string_equal(out.hello.node, in.hello.node);
                assert_string_equal(out.hello.ns, in.hello.ns);
                assert_string_equal(out.hello.backends, in.hello.backends);
                assert_string_equal(out.hello.program, in.hello.program);
            }
            if (type == NXL_FRAME_STATE && reply) {
                assert_int_equal(out.state.life, in.state.life);
                assert_int_equal(out.state.suspect, 1);
                assert_int_equal(out.state.same_agent, 1);
                assert_int_equal(out.state.regions, 12);
                assert_string_equal(out.state.agent, in.state.agent);
            }
            if ((type == NXL_FRAME_LOAD && !reply) || (type == NXL_FRAME_METADATA && reply)) {
                assert_int_equal(out.blob_size, 300);
                assert_memory_equal(out.blob, in.blob, 300);
            }
            if (type == NXL_FRAME_REGISTER && !reply)
                assert_memory_equal(out.regions, in.regions, 6 * sizeof(in.regions[0]));
            if ((type == NXL_FRAME_REGISTER && reply) || (type == NXL_FRAME_DEREGISTER && !reply) ||
                (type == NXL_FRAME_METADATA && !reply) || (type == NXL_FRAME_SEND && !reply))
                assert_memory_equal(out.ids, in.ids, 6 * sizeof(in.ids[0]));
        }
    }
}

static void a_refusal_carries_its_sentence_and_no_arrays(void **state)
{
    struct nxl_err err;

    for (uint16_t type = 1; type < NXL_FRAME_GOAWAY; type++) {
        size_t size;

        fill(type, 1, NXL_LIMIT);
        in.hello.magic = 0; /* a refusal may be built from anything */
        size = encode();
        assert_true(size < 400);
        assert_int_equal(decode(packet, size, &err), NXL_OK);
        assert_int_equal(out.code, NXL_LIMIT);
        assert_string_equal(out.text, in.text);
    }
}

static void the_largest_frames_fit(void **state)
{
    struct nxl_err err;

    fill(NXL_FRAME_REGISTER, 0, 0);
    in.count = NXL_FRAME_REGIONS_MAX;
    assert_int_equal(decode(packet, encode(), &err), NXL_OK);
    assert_int_equal(out.count, NXL_FRAME_REGIONS_MAX);
    fill(NXL_FRAME_LOAD, 0, 0);
    in.blob_size = NXL_FRAME_BLOB_MAX;
    memset(in.name, 'n', NXL_NAME_MAX);
    memset(in.incarnation, 'i', NXL_INCARNATION_MAX);
    memset(in.label, 'l', NXL_LABEL_MAX);
    memset(in.address, 'a', NXL_FRAME_ADDRESS_MAX);
    assert_int_equal(decode(packet, encode(), &err), NXL_OK);
    assert_int_equal(strlen(out.name), NXL_NAME_MAX);
    assert_int_equal(strlen(out.address), NXL_FRAME_ADDRESS_MAX);
    fill(NXL_FRAME_EXPLAIN, 1, 0);
    memset(in.text, 't', sizeof(in.text) - 1);
    assert_int_equal(decode(packet, encode(), &err), NXL_OK);
    assert_int_equal(strlen(out.text), NXL_ERR_TEXT_SIZE - 1);
}

/* What is cut off changes nothing and is never read past its end. */
static void a_frame_cut_off_at_any_byte_is_refused(void **state)
{
    struct nxl_err err;

    for (uint16_t type = 1; type < NXL_FRAME_TYPES; type++) {
        for (int reply = 0; reply < (type == NXL_FRAME_GOAWAY ? 1 : 2); reply++) {
            size_t size;

            fill(type, reply, 0);
            size = encode();
            for (size_t cut = 0; cut < size; cut++) {
                uint32_t claimed = (uint32_t)cut;

                assert_int_equal(decode(packet, cut, &err), NXL_MISMATCH);
                assert_true(err.text[0] != '\0');
                if (cut < sizeof(struct nxl_frame_head))
                    continue;
                /* And with a head that agrees with the shorter packet. */
                memcpy(packet + 12, &claimed, sizeof(claimed));
                assert_int_equal(decode(packet, cut, &err), NXL_MISMATCH);
                claimed = (uint32_t)size;
                memcpy(packet + 12, &claimed, sizeof(claimed));
            }
        }
    }
}

static void a_byte_too_much_is_refused(void **state)
{
    struct nxl_err err;
    size_t size;
    uint32_t claimed;

    fill(NXL_FRAME_STATE, 0, 0);
    size = encode();
    assert_int_equal(decode(packet, size + 1, &err), NXL_MISMATCH);
    assert_non_null(strstr(err.text, "head.size"));
    claimed = (uint32_t)size + 1;
    memcpy(packet + 12, &claimed, sizeof(claimed));
    assert_int_equal(decode(packet, size + 1, &err), NXL_MISMATCH);
    assert_non_null(strstr(err.text, "follow"));
}

/* Whatever one byte becomes, the decoder either refuses or gives a frame inside its bounds. */
static void no_flipped_byte_gives_a_frame_out_of_bounds(void **state)
{
    struct nxl_err err;
    unsigned accepted = 0;

    for (uint16_t type = 1; type < NXL_FRAME_TYPES; type++) {
        size_t size;

        fill(type, 0, 0);
        size = encode();
        for (size_t at = 0; at < size; at++) {
            unsigned char was = packet[at];

            for (unsigned flip = 1; flip < 256; flip = flip * 2 + 1) {
                packet[at] = was ^ (unsigned char)flip;
                if (decode(packet, size, &err) != NXL_OK)
                    continue;
                accepted++;
                assert_true(out.type > 0 && out.type < NXL_FRAME_TYPES);
                assert_true(strnlen(out.name, sizeof(out.name)) < sizeof(out.name));
                assert_true(strnlen(out.text, sizeof(out.text)) < sizeof(out.text));
                assert_true(out.blob_size <= NXL_FRAME_BLOB_MAX);
                assert_true(out.kind < NXL_MEM_KINDS);
                if (out.type == NXL_FRAME_REGISTER && !out.reply)
                    assert_true(out.count <= NXL_FRAME_REGIONS_MAX);
            }
            packet[at] = was;
        }
    }
    assert_true(accepted > 0);
}

struct wrong {
    uint16_t type;
    size_t at, size;
    uint64_t value;
    const char *word;
};

#define HEAD sizeof(struct nxl_frame_head)

static void wrong_fields_are_named(void **state)
{
    static const struct wrong rows[] = {
        {NXL_FRAME_STATE, 0, 2, 0, "type"},
        {NXL_FRAME_STATE, 0, 2, NXL_FRAME_TYPES, "type"},
        {NXL_FRAME_STATE, 0, 2, NXL_FRAME_GOAWAY | NXL_FRAME_REPLY, "GOAWAY"},
        {NXL_FRAME_STATE, 2, 2, 1, "reserved"},
        {NXL_FRAME_STATE, 8, 4, 5, "code"},
        {NXL_FRAME_STATE, 12, 4, 17, "size"},
        {NXL_FRAME_STATE, HEAD + 12, 4, NXL_MEM_KINDS, "kind"},
        {NXL_FRAME_STATE, HEAD + 24, 4, 2, "more"},
        {NXL_FRAME_STATE, HEAD + 44, 4, 1, "blob_size"},
        {NXL_FRAME_STATE, HEAD + 64, 2, 256, "name"},
        {NXL_FRAME_STATE, HEAD + 66, 2, 160, "incarnation"},
        {NXL_FRAME_STATE, HEAD + 68, 2, 64, "label"},
        {NXL_FRAME_STATE, HEAD + 70, 2, 301, "address"},
        {NXL_FRAME_STATE, HEAD + 72, 2, 504, "text"},
        {NXL_FRAME_STATE, HEAD + 74, 2, 1, "reserved"},
        {NXL_FRAME_REGISTER, HEAD + 20, 4, NXL_FRAME_REGIONS_MAX + 1, "count"},
        {NXL_FRAME_DEREGISTER, HEAD + 20, 4, UINT32_MAX, "count"},
        {NXL_FRAME_LOAD, HEAD + 44, 4, NXL_FRAME_BLOB_MAX + 1, "blob_size"},
    };
    struct nxl_err err;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        size_t size;

        fill(rows[i].type, 0, 0);
        in.blob_size = rows[i].type == NXL_FRAME_LOAD ? in.blob_size : 0;
        size = encode();
        memcpy(packet + rows[i].at, &rows[i].value, rows[i].size);
        assert_int_equal(decode(packet, size, &err), NXL_MISMATCH);
        assert_non_null(strstr(err.text, rows[i].word));
    }
}

static void wrong_hellos_and_regions_are_named(void **state)
{
    struct nxl_err err;
    size_t size;

    fill(NXL_FRAME_HELLO, 0, 0);
    in.hello.magic = 1;
    assert_int_equal(decode(packet, encode(), &err), NXL_MISMATCH);
    assert_non_null(strstr(err.text, "hello.magic"));
    fill(NXL_FRAME_HELLO, 0, 0);
    in.hello.version_min = 9;
    assert_int_equal(decode(packet, encode(), &err), NXL_MISMATCH);
    assert_non_null(strstr(err.text, "version_min"));
    fill(NXL_FRAME_STATE, 1, 0);
    in.state.life = 3;
    assert_int_equal(decode(packet, encode(), &err), NXL_MISMATCH);
    assert_non_null(strstr(err.text, "state.life"));
    /* The encoder refuses a region that the decoder would: it never leaves this side. */
    fill(NXL_FRAME_REGISTER, 0, 0);
    in.regions[5].addr = UINT64_MAX - 4000;
    assert_int_equal(nxl_frame_encode(&in, packet, sizeof(packet), &size, &err), NXL_INVALID_PARAM);
    assert_non_null(strstr(err.text, "overflows"));
    fill(NXL_FRAME_REGISTER, 0, 0);
    size = encode();
    memset(packet + size - 6 * sizeof(in.regions[0]), 0xff, 8);
    assert_int_equal(decode(packet, size, &err), NXL_MISMATCH);
    assert_non_null(strstr(err.text, "overflows"));
    fill(NXL_FRAME_REGISTER, 0, 0);
    in.regions[0].fd_index = NXL_FRAME_FDS_MAX;
    assert_int_equal(nxl_frame_encode(&in, packet, sizeof(packet), &size, &err), NXL_INVALID_PARAM);
    assert_non_null(strstr(err.text, "fd_index"));
}

static void texts_with_a_nul_or_a_control_character_are_refused(void **state)
{
    struct nxl_err err;
    size_t size;

    fill(NXL_FRAME_FIND, 0, 0);
    size = encode();
    packet[HEAD + 80 + 3] = '\0';
    assert_int_equal(decode(packet, size, &err), NXL_MISMATCH);
    packet[HEAD + 80 + 3] = '\n';
    assert_int_equal(decode(packet, size, &err), NXL_MISMATCH);
    assert_non_null(strstr(err.text, "name"));
    strcpy(in.name, "a\nb");
    assert_int_equal(nxl_frame_encode(&in, packet, sizeof(packet), &size, &err), NXL_INVALID_PARAM);
    memset(in.name, 'x', sizeof(in.name)); /* unterminated */
    assert_int_equal(nxl_frame_encode(&in, packet, sizeof(packet), &size, &err), NXL_INVALID_PARAM);
    assert_non_null(strstr(err.text, "name"));
}

static void the_encoder_knows_its_limits(void **state)
{
    struct nxl_err err;
    size_t size = 77;

    fill(NXL_FRAME_REGISTER, 0, 0);
    in.count = NXL_FRAME_REGIONS_MAX + 1;
    assert_int_equal(nxl_frame_encode(&in, packet, sizeof(packet), &size, &err), NXL_INVALID_PARAM);
    fill(NXL_FRAME_LOAD, 0, 0);
    in.blob_size = NXL_FRAME_BLOB_MAX + 1;
    assert_int_equal(nxl_frame_encode(&in, packet, sizeof(packet), &size, &err), NXL_INVALID_PARAM);
    fill(NXL_FRAME_TYPES, 0, 0);
    assert_int_equal(nxl_frame_encode(&in, packet, sizeof(packet), &size, &err), NXL_INVALID_PARAM);
    fill(NXL_FRAME_FIND, 0, 0);
    for (size_t room = 0; room < 100; room++)
        assert_int_equal(nxl_frame_encode(&in, packet, room, &size, &err), NXL_INVALID_PARAM);
    assert_int_equal(size, 77); /* written on success only */
}

static void names_and_namespaces_follow_their_rules(void **state)
{
    char longest[NXL_NAME_MAX + 2];

    memset(longest, 'x', sizeof(longest));
    longest[NXL_NAME_MAX] = '\0';
    assert_true(nxl_name_valid(longest));
    longest[NXL_NAME_MAX] = 'x';
    longest[NXL_NAME_MAX + 1] = '\0';
    assert_false(nxl_name_valid(longest));
    assert_true(nxl_name_valid("a"));
    assert_true(nxl_name_valid("worker-0.gpu:1~"));
    assert_false(nxl_name_valid(""));
    assert_false(nxl_name_valid("a/b"));
    assert_false(nxl_name_valid("a b"));
    assert_false(nxl_name_valid("a\n"));
    assert_false(nxl_name_valid("\xc3\xa9"));
    assert_true(nxl_namespace_valid("a"));
    assert_true(nxl_namespace_valid("team-1"));
    assert_false(nxl_namespace_valid(""));
    assert_false(nxl_namespace_valid("-a"));
    assert_false(nxl_namespace_valid("a-"));
    assert_false(nxl_namespace_valid("A"));
    assert_false(nxl_namespace_valid("a.b"));
    assert_true(
        nxl_namespace_valid("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"));
    assert_false(
        nxl_namespace_valid("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"));
}

static void types_have_names(void **state)
{
    for (uint16_t type = 1; type < NXL_FRAME_TYPES; type++) {
        assert_string_not_equal(nxl_frame_type_name(type), "unknown");
        assert_ptr_equal(nxl_frame_type_name(type),
                         nxl_frame_type_name((uint16_t)(type | NXL_FRAME_REPLY)));
    }
    assert_string_equal(nxl_frame_type_name(0), "unknown");
    assert_string_equal(nxl_frame_type_name(NXL_FRAME_TYPES), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_comes_back_as_it_went),
        cmocka_unit_test(a_refusal_carries_its_sentence_and_no_arrays),
        cmocka_unit_test(the_largest_frames_fit),
        cmocka_unit_test(a_frame_cut_off_at_any_byte_is_refused),
        cmocka_unit_test(a_byte_too_much_is_refused),
        cmocka_unit_test(no_flipped_byte_gives_a_frame_out_of_bounds),
        cmocka_unit_test(wrong_fields_are_named),
        cmocka_unit_test(wrong_hellos_and_regions_are_named),
        cmocka_unit_test(texts_with_a_nul_or_a_control_character_are_refused),
        cmocka_unit_test(the_encoder_knows_its_limits),
        cmocka_unit_test(names_and_namespaces_follow_their_rules),
        cmocka_unit_test(types_have_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
