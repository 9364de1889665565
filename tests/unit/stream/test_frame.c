/* The codec of the operator stream: every frame there and back, and what is refused. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "stream/frame.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void there_and_back(const struct nxl_stream_frame *frame, struct nxl_stream_frame *ret)
{
    struct nxl_bytes bytes = {0};
    struct nxl_view body;
    struct nxl_err err = {0};
    size_t used;

    assert_int_equal(nxl_stream_encode(frame, &bytes, &err), NXL_OK);
    assert_int_equal(nxl_stream_split((struct nxl_view){bytes.data, bytes.size}, &body, &used), 1);
    assert_int_equal(used, bytes.size);
    if (nxl_stream_decode(body, ret, &err) != NXL_OK)
        fail_msg("%s", err.text);
    nxl_bytes_fini(&bytes);
    assert_int_equal(ret->type, frame->type);
}

static void a_hello_comes_back_as_it_went(void **state)
{
    const struct nxl_stream_frame hello = {.type = NXL_STREAM_HELLO,
                                           .version_min = 1,
                                           .version_max = 3,
                                           .node = "n1",
                                           .agent = "n1/agent/1",
                                           .cluster = "c",
                                           .token = "ey.\"x",
                                           .seq = 77,
                                           .epoch = "e",
                                           .csr = "-----BEGIN\n"};
    struct nxl_stream_frame got;

    there_and_back(&hello, &got);
    assert_int_equal(got.version_min, 1);
    assert_int_equal(got.version_max, 3);
    assert_string_equal(got.node, "n1");
    assert_string_equal(got.agent, "n1/agent/1");
    assert_string_equal(got.cluster, "c");
    assert_string_equal(got.token, "ey.\"x");
    assert_string_equal(got.csr, "-----BEGIN\n");
    assert_int_equal(got.seq, 77);
    assert_string_equal(got.rv, ""); /* texts that are not of the frame are empty, not NULL */
    nxl_stream_frame_fini(&got);
}

static void small_frames_come_back_as_they_went(void **state)
{
    const struct nxl_stream_frame frames[] = {
        {.type = NXL_STREAM_WELCOME,
         .version = 1,
         .operator_id = "o",
         .epoch = "e",
         .ping_ms = 9,
         .cert = "c",
         .bundle = "b"},
        {.type = NXL_STREAM_REFUSE, .code = -6, .text = "no"},
        {.type = NXL_STREAM_PING,
         .seq = 5,
         .rv = "12",
         .digest = 0xfedcba9876543210ull,
         .at_ns = 1ull << 62},
        {.type = NXL_STREAM_PONG, .at_ns = 3, .digest = 0, .seq = 4},
        {.type = NXL_STREAM_ACK, .seq = 8, .purged = 2, .us = 1234},
        {.type = NXL_STREAM_SUSPECT, .id = "p/c", .node = "n", .text = "silent"},
        {.type = NXL_STREAM_GOAWAY, .text = "bye", .after_ms = 250},
        {.type = NXL_STREAM_CERT, .csr = "x"},
        {.type = NXL_STREAM_SNAPSHOT, .part = NXL_STREAM_END, .seq = 6, .digest = 1, .rv = "7"},
    };

    for (size_t i = 0; i < NXL_COUNT_OF(frames); i++) {
        struct nxl_stream_frame got;

        there_and_back(&frames[i], &got);
        assert_int_equal(got.seq, frames[i].seq);
        assert_int_equal(got.code, frames[i].code);
        assert_true(got.digest == frames[i].digest);
        assert_true(got.at_ns == frames[i].at_ns);
        assert_int_equal(got.part, frames[i].part);
        assert_int_equal(got.purged, frames[i].purged);
        assert_int_equal(got.us, frames[i].us);
        assert_int_equal(got.after_ms, frames[i].after_ms);
        assert_string_equal(got.text, frames[i].text != NULL ? frames[i].text : "");
        assert_string_equal(got.id, frames[i].id != NULL ? frames[i].id : "");
        assert_string_equal(got.cert, frames[i].cert != NULL ? frames[i].cert : "");
        nxl_stream_frame_fini(&got);
    }
}

static void members_keep_every_field_and_their_hash(void **state)
{
    const struct nxl_stream_member members[] = {
        {.id = "u1/c1",
         .group = "ns/g",
         .pod = "p-0",
         .node = "n",
         .reason = "r",
         .version = "41",
         .revision = "v\"2",
         .topology = "z",
         .life = NXL_LIFE_DRAINING,
         .suspect = 1},
        {.id = "u2", .life = NXL_LIFE_DEAD, .reason = "deleted"},
        {.id = "u3", .group = "g", .forget = 1},
    };
    const struct nxl_stream_frame delta = {
        .type = NXL_STREAM_DELTA, .seq = 3, .rv = "9", .members = members, .member_count = 3};
    struct nxl_stream_frame got;

    there_and_back(&delta, &got);
    assert_int_equal(got.member_count, 3);
    assert_string_equal(got.members[0].id, "u1/c1");
    assert_string_equal(got.members[0].group, "ns/g");
    assert_string_equal(got.members[0].pod, "p-0");
    assert_string_equal(got.members[0].node, "n");
    assert_string_equal(got.members[0].version, "41");
    assert_string_equal(got.members[0].revision, "v\"2");
    assert_string_equal(got.members[0].topology, "z");
    assert_int_equal(got.members[0].life, NXL_LIFE_DRAINING);
    assert_int_equal(got.members[0].suspect, 1);
    assert_int_equal(got.members[1].life, NXL_LIFE_DEAD);
    assert_string_equal(got.members[1].reason, "deleted");
    assert_int_equal(got.members[2].forget, 1);
    for (unsigned i = 0; i < 3; i++)
        assert_true(nxl_stream_member_hash(&got.members[i]) == nxl_stream_member_hash(&members[i]));
    assert_true(nxl_stream_member_hash(&members[0]) != nxl_stream_member_hash(&members[1]));
    nxl_stream_frame_fini(&got);
}

static void lists_made_of_texts_are_frames(void **state)
{
    const struct nxl_stream_member one = {.id = "u1", .group = "g"},
                                   two = {.id = "u2", .group = "g"};
    const char *const dead[] = {"u3", "u4/c"};
    struct nxl_bytes bytes = {0};
    struct nxl_stream_frame got;
    struct nxl_view body;
    struct nxl_err err;
    size_t used, began = nxl_stream_open_list(&bytes, "DELTA", 5, "77", "peers");

    nxl_stream_member_text(&one, &bytes);
    nxl_bytes_put(&bytes, ",", 1);
    nxl_stream_member_text(&two, &bytes);
    nxl_stream_close_list(&bytes, began);
    began = nxl_stream_open_list(&bytes, "DELTA", 6, "not a number", "dead");
    nxl_stream_dead_text("deleted", dead, 2, &bytes);
    nxl_stream_close_list(&bytes, began);
    assert_int_equal(nxl_stream_split((struct nxl_view){bytes.data, bytes.size}, &body, &used), 1);
    assert_int_equal(nxl_stream_decode(body, &got, &err), NXL_OK);
    assert_int_equal(got.type, NXL_STREAM_DELTA);
    assert_string_equal(got.rv, "77");
    assert_int_equal(got.member_count, 2);
    assert_string_equal(got.members[1].id, "u2");
    nxl_stream_frame_fini(&got);
    assert_int_equal(
        nxl_stream_split((struct nxl_view){bytes.data + used, bytes.size - used}, &body, &used), 1);
    assert_int_equal(nxl_stream_decode(body, &got, &err), NXL_OK);
    assert_string_equal(got.rv, ""); /* what would need an escape is left out */
    assert_int_equal(got.member_count, 2);
    assert_string_equal(got.members[1].id, "u4/c");
    assert_int_equal(got.members[1].life, NXL_LIFE_DEAD);
    assert_string_equal(got.members[0].reason, "deleted");
    nxl_stream_frame_fini(&got);
    nxl_bytes_fini(&bytes);
}

static struct nxl_stream_rule some_rules[] = {
    {.from = "ns/prefill", .ops = NXL_STREAM_READ | NXL_STREAM_NOTIFY, .memory = 1 << NXL_MEM_VRAM},
    {.from = "ns/other", .ops = NXL_STREAM_WRITE},
};
static const struct nxl_stream_policy a_policy = {
    .group = "ns/decode",
    .generation = 4,
    .role = "Decode",
    .mode = NXL_STREAM_OBSERVE,
    .memory = 1 << NXL_MEM_DRAM | 1 << NXL_MEM_VRAM,
    .memory_max = {0, 1ull << 40},
    .backends = {{.name = "UCX", .required = 1}, {.name = "POSIX"}},
    .backend_count = 2,
    .paths = NXL_STREAM_PATH_RDMA | NXL_STREAM_PATH_STORAGE,
    .rules = some_rules,
    .rule_count = 2,
    .heartbeat_s = 1,
    .lease_s = 4,
    .purge_s = 60,
    .loss_after_s = 30,
    .drain_s = 20,
    .lapse_purges = 1,
    .loss_quarantines = 1,
    .drain_purges = 1,
    .revision = NXL_STREAM_STRICT,
    .topology = NXL_STREAM_PREFER,
    .inflight_max = 5,
    .registered_max = 6};

static void a_policy_keeps_every_field_and_the_hash_of_its_text(void **state)
{
    const struct nxl_stream_frame frame = {
        .type = NXL_STREAM_POLICY, .seq = 1, .policies = &a_policy, .policy_count = 1};
    const struct nxl_stream_policy *got;
    struct nxl_stream_frame back;
    struct nxl_bytes text = {0};
    struct nxl_err err;

    there_and_back(&frame, &back);
    assert_int_equal(back.policy_count, 1);
    got = &back.policies[0];
    assert_string_equal(got->group, "ns/decode");
    assert_int_equal(got->generation, 4);
    assert_int_equal(got->mode, NXL_STREAM_OBSERVE);
    assert_int_equal(got->memory, a_policy.memory);
    assert_true(got->memory_max[NXL_MEM_VRAM] == 1ull << 40);
    assert_int_equal(got->backend_count, 2);
    assert_string_equal(got->backends[0].name, "UCX");
    assert_int_equal(got->backends[0].required, 1);
    assert_int_equal(got->backends[1].required, 0);
    assert_int_equal(got->paths, a_policy.paths);
    assert_int_equal(got->rule_count, 2);
    assert_string_equal(got->rules[0].from, "ns/prefill");
    assert_int_equal(got->rules[0].ops, some_rules[0].ops);
    assert_int_equal(got->rules[0].memory, some_rules[0].memory);
    assert_int_equal(got->rules[1].memory, 0);
    assert_int_equal(got->drain_s, 20);
    assert_int_equal(got->purge_s, 60);
    assert_int_equal(got->lapse_purges + got->loss_quarantines + got->drain_purges, 3);
    assert_int_equal(got->revision, NXL_STREAM_STRICT);
    assert_int_equal(got->topology, NXL_STREAM_PREFER);
    assert_int_equal(got->inflight_max, 5);
    assert_int_equal(got->registered_max, 6);
    assert_int_equal(nxl_stream_policy_text(&a_policy, &text, &err), NXL_OK);
    assert_true(got->hash == nxl_stream_policy_hash((struct nxl_view){text.data, text.size}));
    nxl_bytes_fini(&text);
    nxl_stream_frame_fini(&back);
}

/* What a later version adds must never be read as "all". */
static void unknown_words_of_a_policy_never_allow_more(void **state)
{
    static const char text[] =
        "{\"t\":\"POLICY\",\"seq\":1,\"policies\":[{\"g\":\"a/b\",\"paths\":[\"Warp\"],"
        "\"allow\":[{\"from\":\"a/c\",\"ops\":[\"Teleport\"],\"memory\":[\"HBM9\"]}]}]}";
    struct nxl_stream_frame got;
    struct nxl_err err;

    assert_int_equal(nxl_stream_decode((struct nxl_view){text, sizeof(text) - 1}, &got, &err),
                     NXL_OK);
    assert_true(got.policies[0].paths != 0);
    assert_int_equal(got.policies[0].paths & 0x7f, 0);
    assert_int_equal(got.policies[0].rules[0].ops, 0);
    assert_true(got.policies[0].rules[0].memory != 0);
    assert_int_equal(got.policies[0].rules[0].memory & ((1 << NXL_MEM_KINDS) - 1), 0);
    nxl_stream_frame_fini(&got);
}

static void unknown_frames_and_fields_are_skipped(void **state)
{
    static const char *const texts[] = {"{\"t\":\"DANCE\",\"x\":[1]}", "{}",
                                        "{\"t\":\"ACK\",\"seq\":1,\"later\":{\"a\":1}}"};
    static const uint8_t types[] = {NXL_STREAM_NONE, NXL_STREAM_NONE, NXL_STREAM_ACK};

    for (size_t i = 0; i < NXL_COUNT_OF(texts); i++) {
        struct nxl_stream_frame got;
        struct nxl_err err;

        assert_int_equal(
            nxl_stream_decode((struct nxl_view){texts[i], strlen(texts[i])}, &got, &err), NXL_OK);
        assert_int_equal(got.type, types[i]);
        nxl_stream_frame_fini(&got);
    }
}

static void wrong_frames_are_refused_by_the_name_of_the_field(void **state)
{
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"", "no JSON"},
        {"[1]", "no JSON object"},
        {"{\"t\":\"ACK\",\"t\":\"ACK\"}", "no JSON"},
        {"{\"t\":\"ACK\"", "no JSON"},
        {"{\"t\":\"ACK\"}", "'seq' is missing"},
        {"{\"t\":\"ACK\",\"seq\":-1}", "'seq'"},
        {"{\"t\":\"ACK\",\"seq\":\"1\"}", "'seq'"},
        {"{\"t\":\"ACK\",\"seq\":1.5}", "'seq'"},
        {"{\"t\":\"ACK\",\"seq\":99999999999999999999}", "no JSON"},
        {"{\"t\":\"ACK\",\"seq\":1,\"purged\":4294967296}", "'purged'"},
        {"{\"t\":\"PING\",\"seq\":1,\"at_ns\":1,\"digest\":\"xyz\"}", "'digest'"},
        {"{\"t\":\"SNAPSHOT\",\"part\":\"middle\"}", "'part'"},
        {"{\"t\":\"HELLO\",\"version\":[2,1],\"node\":\"n\",\"agent\":\"a\",\"cluster\":\"c\"}",
         "'version'"},
        {"{\"t\":\"HELLO\",\"version\":1,\"node\":\"n\",\"agent\":\"a\",\"cluster\":\"c\"}",
         "'version'"},
        {"{\"t\":\"HELLO\",\"version\":[1,1],\"node\":7,\"agent\":\"a\",\"cluster\":\"c\"}",
         "'node'"},
        {"{\"t\":\"DELTA\",\"seq\":1,\"peers\":{}}", "'peers'"},
        {"{\"t\":\"DELTA\",\"seq\":1,\"peers\":[7]}", "peers[0]"},
        {"{\"t\":\"DELTA\",\"seq\":1,\"peers\":[{\"i\":\"a\",\"s\":\"live\"}]}", "'g' is missing"},
        {"{\"t\":\"DELTA\",\"seq\":1,\"peers\":[{\"i\":\"a\",\"g\":\"g\",\"s\":\"undead\"}]}",
         "'s'"},
        {"{\"t\":\"DELTA\",\"seq\":1,\"peers\":[{\"i\":\"../x\",\"g\":\"g\",\"s\":\"live\"}]}",
         NULL},
        {"{\"t\":\"DELTA\",\"seq\":1,\"peers\":[{\"i\":\"/a\",\"g\":\"g\",\"s\":\"live\"}]}",
         "'i'"},
        {"{\"t\":\"DELTA\",\"seq\":1,\"peers\":[{\"i\":\"a//b\",\"g\":\"g\",\"s\":\"live\"}]}",
         "'i'"},
        {"{\"t\":\"DELTA\",\"seq\":1,\"peers\":[{\"i\":\"a/\",\"g\":\"g\",\"s\":\"live\"}]}",
         "'i'"},
        {"{\"t\":\"DELTA\",\"seq\":1,\"peers\":[{\"i\":\"a b\",\"g\":\"g\",\"s\":\"live\"}]}",
         "'i'"},
        {"{\"t\":\"DELTA\",\"seq\":1,\"peers\":[{\"i\":\"a\\u0000b\",\"g\":\"g\",\"s\":\"live\"}]}",
         "no JSON"},
        {"{\"t\":\"DELTA\",\"seq\":1,\"dead\":[{\"i\":[\"a\",7]}]}", "i[1]"},
        {"{\"t\":\"DELTA\",\"seq\":1,\"dead\":[{\"i\":[\"a b\"]}]}", "i[0]"},
        {"{\"t\":\"DELTA\",\"seq\":1,\"peers\":[{\"i\":\"a\",\"g\":\"a\\\"b\",\"s\":\"live\"}]}",
         "no name"},
        {"{\"t\":\"POLICY\",\"seq\":1,\"policies\":[{\"g\":\"a\\nb\"}]}", "'g' is no name"},
        {"{\"t\":\"POLICY\",\"seq\":1,\"policies\":[{\"gen\":1}]}", "'g' is missing"},
        {"{\"t\":\"POLICY\",\"seq\":1,\"policies\":[{\"g\":\"a\",\"mode\":\"Sometimes\"}]}",
         "'mode'"},
        {"{\"t\":\"POLICY\",\"seq\":1,\"policies\":[{\"g\":\"a\",\"allow\":[7]}]}", "'allow'"},
        {"{\"t\":\"POLICY\",\"seq\":1,\"policies\":[{\"g\":\"a\",\"memory\":[{}]}]}", "'memory'"},
        {"{\"t\":\"POLICY\",\"seq\":1,\"policies\":[{\"g\":\"a\",\"drain\":{\"timeout\":-4}}]}",
         "'timeout'"},
        {"{\"t\":\"LOCAL\",\"pods\":[\"a\",null]}", "pods[1]"},
    };

    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        struct nxl_stream_frame got;
        struct nxl_err err = {0};
        enum nxl_code code =
            nxl_stream_decode((struct nxl_view){rows[i].text, strlen(rows[i].text)}, &got, &err);

        if (rows[i].says == NULL) { /* dots are letters of an id; it is no path anywhere */
            assert_int_equal(code, NXL_OK);
            nxl_stream_frame_fini(&got);
            continue;
        }
        assert_int_equal(code, NXL_MISMATCH);
        if (strstr(err.text, rows[i].says) == NULL)
            fail_msg("'%s' does not say \"%s\": %s", rows[i].text, rows[i].says, err.text);
    }
}

static void too_much_is_refused_before_it_is_used(void **state)
{
    NXL_CLEANUP(nxl_freep) char *text = nxl_new0(NXL_STREAM_FRAME_MAX + 64);
    NXL_CLEANUP(nxl_freep)
    struct nxl_stream_rule *rules = nxl_new0_array(NXL_STREAM_RULES_MAX + 1, sizeof(*rules));
    struct nxl_stream_policy policy = {
        .group = "g", .rules = rules, .rule_count = NXL_STREAM_RULES_MAX + 1};
    struct nxl_stream_frame frame = {.type = NXL_STREAM_GOAWAY}, got;
    struct nxl_bytes bytes = {0};
    struct nxl_err err;
    size_t at;

    memset(text, 'x', NXL_STREAM_FRAME_MAX + 1);
    frame.text = text;
    assert_int_equal(nxl_stream_encode(&frame, &bytes, &err), NXL_LIMIT);
    assert_int_equal(bytes.size, 0);
    assert_int_equal(
        nxl_stream_decode((struct nxl_view){text, NXL_STREAM_FRAME_MAX + 1}, &got, &err),
        NXL_MISMATCH);
    assert_int_equal(nxl_stream_policy_text(&policy, &bytes, &err), NXL_LIMIT);
    at = (size_t)sprintf(text, "{\"t\":\"DELTA\",\"seq\":1,\"peers\":[0");
    for (unsigned i = 0; i < NXL_STREAM_RECORDS_MAX; i++)
        at += (size_t)sprintf(text + at, ",0");
    at += (size_t)sprintf(text + at, "]}");
    assert_int_equal(nxl_stream_decode((struct nxl_view){text, at}, &got, &err), NXL_MISMATCH);
    assert_non_null(strstr(err.text, "at most 512"));
    at = (size_t)sprintf(text, "{\"t\":\"DELTA\",\"seq\":1,\"dead\":[{\"i\":[\"a\"");
    for (unsigned i = 0; i < NXL_STREAM_DEAD_MAX; i++)
        at += (size_t)sprintf(text + at, ",\"a\"");
    at += (size_t)sprintf(text + at, "]}]}");
    assert_int_equal(nxl_stream_decode((struct nxl_view){text, at}, &got, &err), NXL_MISMATCH);
    assert_non_null(strstr(err.text, "at most 2048"));
    nxl_bytes_fini(&bytes);
}

static void a_frame_is_split_off_at_its_length_and_nowhere_else(void **state)
{
    unsigned char data[16] = {5, 0, 0, 0, 'a', 'b', 'c', 'd', 'e', 9, 9};
    struct nxl_view body;
    size_t used;

    for (size_t size = 0; size < 9; size++)
        assert_int_equal(nxl_stream_split((struct nxl_view){data, size}, &body, &used), 0);
    assert_int_equal(nxl_stream_split((struct nxl_view){data, 11}, &body, &used), 1);
    assert_int_equal(used, 9);
    assert_memory_equal(body.data, "abcde", 5);
    memset(data, 0, 4);
    assert_int_equal(nxl_stream_split((struct nxl_view){data, 11}, &body, &used), -1);
    data[3] = 1; /* 16 MiB */
    assert_int_equal(nxl_stream_split((struct nxl_view){data, 11}, &body, &used), -1);
}

static void versions_compare_as_numbers(void **state)
{
    assert_true(nxl_stream_version_order("9", "10") < 0);
    assert_true(nxl_stream_version_order("10", "9") > 0);
    assert_true(nxl_stream_version_order("10", "10") == 0);
    assert_true(nxl_stream_version_order("", "1") < 0);
    assert_true(nxl_stream_version_order("007", "7") == 0);
    assert_true(nxl_stream_version_order("99999999999999999999999", "100000000000000000000000") <
                0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hello_comes_back_as_it_went),
        cmocka_unit_test(small_frames_come_back_as_they_went),
        cmocka_unit_test(members_keep_every_field_and_their_hash),
        cmocka_unit_test(lists_made_of_texts_are_frames),
        cmocka_unit_test(a_policy_keeps_every_field_and_the_hash_of_its_text),
        cmocka_unit_test(unknown_words_of_a_policy_never_allow_more),
        cmocka_unit_test(unknown_frames_and_fields_are_skipped),
        cmocka_unit_test(wrong_frames_are_refused_by_the_name_of_the_field),
        cmocka_unit_test(too_much_is_refused_before_it_is_used),
        cmocka_unit_test(a_frame_is_split_off_at_its_length_and_nowhere_else),
        cmocka_unit_test(versions_compare_as_numbers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
