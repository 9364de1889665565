/* test_message.c - every message between agents: round trips, limits, damage. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "cluster/message.h"

#include <stdlib.h>
#include <string.h>

struct rig {
    struct nxl_message_decoder *decoder;
    struct nxl_bytes bytes;
    struct nxl_message out;
    struct nxl_err err;
};

static int rig_open(void **state)
{
    struct rig *rig = nxl_new0(sizeof(*rig));

    rig->decoder = nxl_message_decoder_new();
    *state = rig;
    return 0;
}

static int rig_close(void **state)
{
    struct rig *rig = *state;

    nxl_message_decoder_free(rig->decoder);
    nxl_bytes_fini(&rig->bytes);
    free(rig);
    return 0;
}

static enum nxl_code rig_decode(struct rig *rig)
{
    return nxl_message_decode(rig->decoder,
                              (struct nxl_view){rig->bytes.data + 4, rig->bytes.size - 4},
                              &rig->out, &rig->err);
}

static void rig_turn(struct rig *rig, const struct nxl_message *message)
{
    uint32_t size;

    nxl_bytes_clear(&rig->bytes);
    assert_int_equal(nxl_message_encode(message, &rig->bytes, &rig->err), NXL_OK);
    memcpy(&size, rig->bytes.data, sizeof(size));
    assert_int_equal(size, rig->bytes.size - 4);
    assert_int_equal(rig_decode(rig), NXL_OK);
    assert_int_equal(rig->out.type, message->type);
}

static const struct nxl_message_region two_regions[] = {
    {.id = 1,
     .addr = 4096,
     .len = 8192,
     .kind = NXL_MEM_DRAM,
     .device = 0,
     .key_count = 2,
     .keys = {{0, {"key-a", 5}}, {7, {"", 0}}}},
    {.id = UINT64_MAX,
     .addr = UINT64_MAX,
     .len = 0,
     .kind = NXL_MEM_FILE,
     .device = 9,
     .key_count = 0},
};
static const uint64_t three_ids[] = {1, UINT64_MAX, 3};

/* One of each type, with every field that the type has. */
static const struct nxl_message one_of_each[] = {
    {.type = NXL_MESSAGE_HELLO,
     .version_min = 1,
     .version_max = 3,
     .flags = 1,
     .cluster = "kl",
     .node = "a",
     .agent = "a/b/c",
     .address = "h:1",
     .incarnation = "x/y/z",
     .sequence = 77,
     .backend_count = 2,
     .backends = {{"ucx", {"\0\1\2", 3}}, {"tcp", {"", 0}}}},
    {.type = NXL_MESSAGE_PING, .sequence = 1, .at_ns = UINT64_MAX},
    {.type = NXL_MESSAGE_PONG, .sequence = UINT64_MAX, .at_ns = 5},
    {.type = NXL_MESSAGE_BYE, .code = NXL_VERSION, .text = "why"},
    {.type = NXL_MESSAGE_NOTICE,
     .sequence = 9,
     .flags = 2,
     .transfer = 5,
     .ns = "n",
     .name = "m",
     .incarnation = "x/y/z",
     .from_ns = "fn",
     .from_name = "fm",
     .from_incarnation = "f/i/j",
     .payload = {"\0pay", 4}},
    {.type = NXL_MESSAGE_NOTICE_ACK, .sequence = 9, .flags = 1, .code = NXL_LIMIT, .text = "full"},
    {.type = NXL_MESSAGE_QUERY,
     .request = 4,
     .flags = 1,
     .ns = "n",
     .name = "m",
     .incarnation = "i",
     .from_ns = "f"},
    {.type = NXL_MESSAGE_ANSWER,
     .request = 4,
     .code = NXL_NOT_FOUND,
     .text = "none",
     .ns = "n",
     .name = "m",
     .incarnation = "i",
     .revision = 12},
    {.type = NXL_MESSAGE_REGIONS,
     .incarnation = "i",
     .revision = 12,
     .flags = 1,
     .more = 1,
     .region_count = 2,
     .regions = two_regions},
    {.type = NXL_MESSAGE_REGION_GONE,
     .incarnation = "i",
     .revision = 13,
     .id_count = 3,
     .ids = three_ids},
    {.type = NXL_MESSAGE_FACT,
     .incarnation = "i",
     .life = NXL_LIFE_DEAD,
     .text = "killed",
     .sequence = 3},
    {.type = NXL_MESSAGE_FACT_ACK, .sequence = 3, .at_ns = 1000},
    {.type = NXL_MESSAGE_UNSUBSCRIBE, .incarnation = "i"},
    {.type = NXL_MESSAGE_DIGEST,
     .request = 7,
     .flags = 1,
     .incarnation = "i",
     .from_ns = "f",
     .payload = {"\0rows", 5}},
    {.type = NXL_MESSAGE_DIGEST_ANSWER,
     .request = 7,
     .code = NXL_NOT_FOUND,
     .text = "none",
     .sequence = UINT64_MAX},
};

static void same_text(const char *out, const char *in)
{
    assert_non_null(out);
    assert_string_equal(out, in != NULL ? in : "");
}

static void every_type_comes_back_with_its_fields(void **state)
{
    struct rig *rig = *state;

    assert_int_equal(NXL_COUNT_OF(one_of_each), NXL_MESSAGE_TYPES - 1);
    for (size_t i = 0; i < NXL_COUNT_OF(one_of_each); i++) {
        const struct nxl_message *in = &one_of_each[i];

        rig_turn(rig, in);
        assert_int_equal(rig->out.version_min, in->version_min);
        assert_int_equal(rig->out.version_max, in->version_max);
        assert_int_equal(rig->out.flags, in->flags);
        assert_int_equal(rig->out.more, in->more);
        assert_int_equal(rig->out.code, in->code);
        assert_int_equal(rig->out.life, in->life);
        assert_int_equal(rig->out.request, in->request);
        assert_int_equal(rig->out.sequence, in->sequence);
        assert_int_equal(rig->out.revision, in->revision);
        assert_int_equal(rig->out.transfer, in->transfer);
        assert_int_equal(rig->out.at_ns, in->at_ns);
        same_text(rig->out.cluster, in->cluster);
        same_text(rig->out.node, in->node);
        same_text(rig->out.agent, in->agent);
        same_text(rig->out.address, in->address);
        same_text(rig->out.ns, in->ns);
        same_text(rig->out.name, in->name);
        same_text(rig->out.incarnation, in->incarnation);
        same_text(rig->out.from_ns, in->from_ns);
        same_text(rig->out.from_name, in->from_name);
        same_text(rig->out.from_incarnation, in->from_incarnation);
        same_text(rig->out.text, in->text);
        assert_int_equal(rig->out.payload.size, in->payload.size);
        if (in->payload.size > 0)
            assert_memory_equal(rig->out.payload.data, in->payload.data, in->payload.size);
        assert_int_equal(rig->out.backend_count, in->backend_count);
        for (uint32_t k = 0; k < in->backend_count; k++) {
            assert_string_equal(rig->out.backends[k].name, in->backends[k].name);
            assert_int_equal(rig->out.backends[k].address.size, in->backends[k].address.size);
        }
        assert_int_equal(rig->out.region_count, in->region_count);
        assert_int_equal(rig->out.id_count, in->id_count);
    }
}

static void regions_and_ids_come_back(void **state)
{
    struct rig *rig = *state;

    rig_turn(rig, &one_of_each[NXL_MESSAGE_REGIONS - 1]);
    for (uint32_t i = 0; i < 2; i++) {
        const struct nxl_message_region *out = &rig->out.regions[i];

        assert_int_equal(out->id, two_regions[i].id);
        assert_int_equal(out->addr, two_regions[i].addr);
        assert_int_equal(out->len, two_regions[i].len);
        assert_int_equal(out->kind, two_regions[i].kind);
        assert_int_equal(out->device, two_regions[i].device);
        assert_int_equal(out->key_count, two_regions[i].key_count);
    }
    assert_int_equal(rig->out.regions[0].keys[0].key.size, 5);
    assert_memory_equal(rig->out.regions[0].keys[0].key.data, "key-a", 5);
    assert_int_equal(rig->out.regions[0].keys[1].backend, 7);
    rig_turn(rig, &one_of_each[NXL_MESSAGE_REGION_GONE - 1]);
    assert_memory_equal(rig->out.ids, three_ids, sizeof(three_ids));
}

static void every_truncation_of_every_type_is_refused_by_name(void **state)
{
    struct rig *rig = *state;

    for (size_t i = 0; i < NXL_COUNT_OF(one_of_each); i++) {
        size_t whole;

        nxl_bytes_clear(&rig->bytes);
        assert_int_equal(nxl_message_encode(&one_of_each[i], &rig->bytes, &rig->err), NXL_OK);
        whole = rig->bytes.size;
        for (size_t size = 4; size < whole; size++) {
            unsigned char *exact =
                malloc(size - 4 > 0 ? size - 4 : 1); /* so that a sanitizer sees an overrun */
            enum nxl_code code;

            memcpy(exact, rig->bytes.data + 4, size - 4);
            code = nxl_message_decode(rig->decoder, (struct nxl_view){exact, size - 4}, &rig->out,
                                      &rig->err);
            free(exact);
            assert_int_equal(code, NXL_MISMATCH);
            assert_non_null(strstr(rig->err.text, "message"));
        }
    }
}

/* C-029: a later minor version appends a field. */
static void what_a_later_version_appends_is_skipped(void **state)
{
    struct rig *rig = *state;

    for (size_t i = 0; i < NXL_COUNT_OF(one_of_each); i++) {
        nxl_bytes_clear(&rig->bytes);
        assert_int_equal(nxl_message_encode(&one_of_each[i], &rig->bytes, &rig->err), NXL_OK);
        nxl_bytes_put(&rig->bytes, "appended", 8);
        assert_int_equal(rig_decode(rig), NXL_OK);
    }
}

static void unknown_types_are_refused(void **state)
{
    static const uint16_t types[] = {0, NXL_MESSAGE_TYPES, 0xffff};
    struct rig *rig = *state;

    for (size_t i = 0; i < NXL_COUNT_OF(types); i++) {
        const struct nxl_message message = {.type = types[i]};

        nxl_bytes_clear(&rig->bytes);
        assert_int_equal(nxl_message_encode(&message, &rig->bytes, &rig->err), NXL_INVALID_PARAM);
        nxl_bytes_put_u32(&rig->bytes, 2);
        nxl_bytes_put_u16(&rig->bytes, types[i]);
        assert_int_equal(rig_decode(rig), NXL_MISMATCH);
        assert_non_null(strstr(rig->err.text, "type"));
    }
}

static void a_message_above_a_limit_is_not_encoded(void **state)
{
    static char large[NXL_NOTICE_MAX + 1];
    static struct nxl_message_region regions[NXL_MESSAGE_REGIONS_MAX];
    struct rig *rig = *state;
    struct nxl_message notice = {.type = NXL_MESSAGE_NOTICE, .payload = {large, NXL_NOTICE_MAX}};
    struct nxl_message set = {.type = NXL_MESSAGE_REGIONS, .regions = regions};
    char name[NXL_NAME_MAX + 2];

    rig_turn(rig, &notice);
    assert_int_equal(rig->out.payload.size, NXL_NOTICE_MAX);
    notice.payload.size++;
    nxl_bytes_clear(&rig->bytes);
    nxl_bytes_put(&rig->bytes, "kept", 4);
    assert_int_equal(nxl_message_encode(&notice, &rig->bytes, &rig->err), NXL_LIMIT);
    assert_non_null(strstr(rig->err.text, "payload"));
    assert_int_equal(rig->bytes.size, 4); /* nothing was appended */

    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    notice.payload.size = 0;
    notice.name = name;
    assert_int_equal(nxl_message_encode(&notice, &rig->bytes, &rig->err), NXL_LIMIT);
    assert_non_null(strstr(rig->err.text, "name"));

    /* Each part is within its limit; together they are above the frame's. */
    for (uint32_t i = 0; i < NXL_MESSAGE_REGIONS_MAX; i++) {
        regions[i].key_count = NXL_BACKENDS_MAX;
        for (uint32_t k = 0; k < NXL_BACKENDS_MAX; k++)
            regions[i].keys[k].key = (struct nxl_view){large, 4096};
    }
    set.region_count = NXL_MESSAGE_REGIONS_MAX;
    assert_int_equal(nxl_message_encode(&set, &rig->bytes, &rig->err), NXL_LIMIT);
    assert_non_null(strstr(rig->err.text, "frame"));
    set.region_count++;
    assert_int_equal(nxl_message_encode(&set, &rig->bytes, &rig->err), NXL_LIMIT);
}

static void wrong_values_are_refused(void **state)
{
    static const struct {
        const char *word;
        struct nxl_message_region region;
    } rows[] = {
        {"overflows", {.addr = UINT64_MAX, .len = 2}},
        {"kind", {.kind = NXL_MEM_KINDS}},
        {"backend", {.key_count = 1, .keys = {{NXL_BACKENDS_MAX, {"", 0}}}}},
    };
    struct rig *rig = *state;
    struct nxl_message fact = one_of_each[NXL_MESSAGE_FACT - 1];

    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        const struct nxl_message message = {
            .type = NXL_MESSAGE_REGIONS, .region_count = 1, .regions = &rows[i].region};

        nxl_bytes_clear(&rig->bytes);
        assert_int_equal(nxl_message_encode(&message, &rig->bytes, &rig->err), NXL_OK);
        assert_int_equal(rig_decode(rig), NXL_MISMATCH);
        assert_non_null(strstr(rig->err.text, rows[i].word));
    }
    fact.life = 3;
    nxl_bytes_clear(&rig->bytes);
    assert_int_equal(nxl_message_encode(&fact, &rig->bytes, &rig->err), NXL_OK);
    assert_int_equal(rig_decode(rig), NXL_MISMATCH);
    assert_non_null(strstr(rig->err.text, "life"));
}

/* A count of 4 billion must not make anybody reserve memory for it. */
static void a_count_without_bytes_behind_it_is_refused(void **state)
{
    struct rig *rig = *state;

    nxl_bytes_clear(&rig->bytes);
    assert_int_equal(nxl_message_encode(&(struct nxl_message){.type = NXL_MESSAGE_REGION_GONE},
                                        &rig->bytes, &rig->err),
                     NXL_OK);
    memset(rig->bytes.data + rig->bytes.size - 4, 0xff, 4);
    assert_int_equal(rig_decode(rig), NXL_MISMATCH);
    assert_non_null(strstr(rig->err.text, "id_count"));
}

#define T(name) cmocka_unit_test_setup_teardown(name, rig_open, rig_close)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(every_type_comes_back_with_its_fields),
        T(regions_and_ids_come_back),
        T(every_truncation_of_every_type_is_refused_by_name),
        T(what_a_later_version_appends_is_skipped),
        T(unknown_types_are_refused),
        T(a_message_above_a_limit_is_not_encoded),
        T(wrong_values_are_refused),
        T(a_count_without_bytes_behind_it_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
