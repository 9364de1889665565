/* test_record.c - the directory record and metadata blob: round trips, limits, and every kind of
 * damage. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "cluster/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct rig {
    struct nxl_record in, out; /* large: not on the stack */
    struct nxl_bytes bytes;
    struct nxl_err err;
};

static int rig_open(void **state)
{
    struct rig *rig = nxl_new0(sizeof(*rig));
    struct nxl_record *in = &rig->in;

    in->flags = NXL_RECORD_ADDRESS;
    strcpy(in->ns, "serving");
    strcpy(in->name, "prefill 0/\xc3\xa4");
    strcpy(in->incarnation, "7d3c/4f0e/1");
    strcpy(in->cluster, "kl");
    strcpy(in->agent, "node-a/boot/77");
    strcpy(in->node, "node-a");
    strcpy(in->address, "[fd00::1]:7741");
    in->revision = 1ull << 40;
    in->region_count = 2;
    in->regions[0] = (struct nxl_record_region){1, 0x7f0000000000, 1 << 20, NXL_MEM_DRAM, 0};
    in->regions[1] = (struct nxl_record_region){2, UINT64_MAX - 4096, 4096, NXL_MEM_VRAM, 7};
    *state = rig;
    return 0;
}

static int rig_close(void **state)
{
    struct rig *rig = *state;

    nxl_bytes_fini(&rig->bytes);
    free(rig);
    return 0;
}

static void rig_encode(struct rig *rig)
{
    nxl_bytes_clear(&rig->bytes);
    assert_int_equal(nxl_record_encode(&rig->in, &rig->bytes, &rig->err), NXL_OK);
}

static enum nxl_code rig_decode(struct rig *rig)
{
    return nxl_record_decode((struct nxl_view){rig->bytes.data, rig->bytes.size}, &rig->out,
                             &rig->err);
}

/* After a change of the bytes: size and digest as a forger would set them. */
static void rig_seal(struct rig *rig)
{
    uint64_t digest;
    uint32_t size = (uint32_t)rig->bytes.size;

    memcpy(rig->bytes.data + 8, &size, sizeof(size));
    digest = XXH64(rig->bytes.data, rig->bytes.size - 8, 0);
    memcpy(rig->bytes.data + rig->bytes.size - 8, &digest, sizeof(digest));
}

static void what_is_encoded_comes_back(void **state)
{
    struct rig *rig = *state;

    rig_encode(rig);
    assert_int_equal(rig_decode(rig), NXL_OK);
    assert_int_equal(rig->out.flags, rig->in.flags);
    assert_string_equal(rig->out.ns, rig->in.ns);
    assert_string_equal(rig->out.name, rig->in.name);
    assert_string_equal(rig->out.incarnation, rig->in.incarnation);
    assert_string_equal(rig->out.cluster, rig->in.cluster);
    assert_string_equal(rig->out.agent, rig->in.agent);
    assert_string_equal(rig->out.node, rig->in.node);
    assert_string_equal(rig->out.address, rig->in.address);
    assert_int_equal(rig->out.revision, rig->in.revision);
    assert_int_equal(rig->out.region_count, 2);
    assert_memory_equal(rig->out.regions, rig->in.regions, 2 * sizeof(rig->in.regions[0]));
}

static void the_largest_record_fits_the_limit(void **state)
{
    struct rig *rig = *state;

    memset(rig->in.ns, 'n', NXL_NAMESPACE_MAX);
    memset(rig->in.name, 'm', NXL_NAME_MAX);
    memset(rig->in.incarnation, 'i', NXL_INCARNATION_MAX);
    memset(rig->in.cluster, 'c', NXL_NAMESPACE_MAX);
    memset(rig->in.agent, 'a', NXL_INCARNATION_MAX);
    memset(rig->in.node, 'o', NXL_NODE_MAX);
    memset(rig->in.address, 'h', 253);
    strcpy(rig->in.address + 253, ":65535");
    rig->in.region_count = NXL_RECORD_REGIONS_MAX;
    for (uint32_t i = 0; i < NXL_RECORD_REGIONS_MAX; i++)
        rig->in.regions[i] = (struct nxl_record_region){i, i, i, NXL_MEM_DRAM, i};
    rig_encode(rig);
    assert_true(rig->bytes.size <= NXL_RECORD_MAX);
    assert_int_equal(rig_decode(rig), NXL_OK);
    assert_int_equal(rig->out.regions[1023].id, 1023);
    assert_int_equal(strlen(rig->out.name), NXL_NAME_MAX);
}

/* C-029: a blob that was cut off is refused before anything of it is believed. */
static void every_truncation_is_refused(void **state)
{
    struct rig *rig = *state;
    size_t whole;

    rig_encode(rig);
    whole = rig->bytes.size;
    for (size_t size = 0; size < whole; size++) {
        rig->bytes.size = size;
        assert_int_equal(rig_decode(rig), NXL_MISMATCH);
        if (size < 20)
            continue;
        {
            /* Even with size and digest made to fit. */
            unsigned char saved[8];

            memcpy(saved, rig->bytes.data + size - 8, 8);
            rig_seal(rig);
            assert_int_equal(rig_decode(rig), NXL_MISMATCH);
            memcpy(rig->bytes.data + size - 8, saved, 8);
        }
    }
}

/* C-029: one flipped bit anywhere. */
static void every_flipped_bit_is_refused(void **state)
{
    struct rig *rig = *state;

    rig_encode(rig);
    for (size_t bit = 0; bit < rig->bytes.size * 8; bit++) {
        rig->bytes.data[bit / 8] ^= (unsigned char)(1u << (bit % 8));
        assert_int_equal(rig_decode(rig), NXL_MISMATCH);
        rig->bytes.data[bit / 8] ^= (unsigned char)(1u << (bit % 8));
    }
    assert_int_equal(rig_decode(rig), NXL_OK);
}

/* C-029: both versions are printed. */
static void a_newer_major_version_is_refused_with_both_versions(void **state)
{
    struct rig *rig = *state;

    rig_encode(rig);
    rig->bytes.data[4] = 9;
    rig_seal(rig);
    assert_int_equal(rig_decode(rig), NXL_MISMATCH);
    assert_non_null(strstr(rig->err.text, "9.0"));
    assert_non_null(strstr(rig->err.text, "1.0"));
}

/* C-029: a later minor version may append; ours may not. */
static void a_newer_minor_version_may_append_fields(void **state)
{
    struct rig *rig = *state;

    rig_encode(rig);
    nxl_bytes_put(&rig->bytes, "newfield", 8);
    rig_seal(rig);
    assert_int_equal(rig_decode(rig), NXL_MISMATCH);
    rig->bytes.data[6] = 1;
    rig_seal(rig);
    assert_int_equal(rig_decode(rig), NXL_OK);
    assert_int_equal(rig->out.region_count, 2);
}

static void wrong_fields_are_refused_by_name(void **state)
{
    static const struct {
        const char *word; /* must be in the error */
        size_t offset, size;
        const char *value;
    } rows[] = {
        {"namespace", offsetof(struct nxl_record, ns), 64, "a b"},
        {"name", offsetof(struct nxl_record, name), 256, ""},
        {"name", offsetof(struct nxl_record, name), 256, "a\nb"},
        {"incarnation", offsetof(struct nxl_record, incarnation), 160, ""},
        {"incarnation", offsetof(struct nxl_record, incarnation), 160, "a//b"},
        {"incarnation", offsetof(struct nxl_record, incarnation), 160, "a/b/"},
        {"incarnation", offsetof(struct nxl_record, incarnation), 160, "a/b c"},
        {"cluster", offsetof(struct nxl_record, cluster), 64, ""},
        {"agent", offsetof(struct nxl_record, agent), 160, ""},
        {"node", offsetof(struct nxl_record, node), 254, "x/y"},
        {"address", offsetof(struct nxl_record, address), 300, "nohost"},
        {"address", offsetof(struct nxl_record, address), 300, "h:0"},
        {"address", offsetof(struct nxl_record, address), 300, "h:65536"},
        {"address", offsetof(struct nxl_record, address), 300, "fd00::1:7741"},
    };

    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        struct rig *rig;
        void *fresh;

        (void)state;
        rig_open(&fresh);
        rig = fresh;
        memset((char *)&rig->in + rows[i].offset, 0, rows[i].size);
        strcpy((char *)&rig->in + rows[i].offset, rows[i].value);
        assert_int_equal(nxl_record_encode(&rig->in, &rig->bytes, &rig->err), NXL_INVALID_PARAM);
        assert_non_null(strstr(rig->err.text, rows[i].word));
        assert_int_equal(rig->bytes.size, 0);
        rig_close(&fresh);
    }
}

/* A forger's record has a right digest, so each field is looked at again when decoding. */
static void a_forged_region_is_refused(void **state)
{
    struct rig *rig = *state;
    uint64_t len = 8192;

    rig_encode(rig);
    memcpy(rig->bytes.data + rig->bytes.size - 8 - 29 + 16, &len, sizeof(len)); /* regions[1].len */
    rig_seal(rig);
    assert_int_equal(rig_decode(rig), NXL_MISMATCH);
    assert_non_null(strstr(rig->err.text, "regions[1]"));

    rig_encode(rig);
    rig->bytes.data[rig->bytes.size - 8 - 5] = 200; /* regions[1].kind */
    rig_seal(rig);
    assert_int_equal(rig_decode(rig), NXL_MISMATCH);
    assert_non_null(strstr(rig->err.text, "kind"));

    rig_encode(rig);
    memset(rig->bytes.data + rig->bytes.size - 8 - 2 * 29 - 4, 0xff, 4); /* region_count */
    rig_seal(rig);
    assert_int_equal(rig_decode(rig), NXL_MISMATCH);
    assert_non_null(strstr(rig->err.text, "region_count"));
}

static void full_and_regions_exclude_each_other(void **state)
{
    struct rig *rig = *state;

    rig->in.flags |= NXL_RECORD_FULL;
    assert_int_equal(nxl_record_encode(&rig->in, &rig->bytes, &rig->err), NXL_INVALID_PARAM);
    rig->in.region_count = 0;
    rig_encode(rig);
    assert_int_equal(rig_decode(rig), NXL_OK);
    rig->in.flags = 0; /* no place said: a blob that only names */
    rig->in.cluster[0] = rig->in.agent[0] = rig->in.node[0] = rig->in.address[0] = '\0';
    rig_encode(rig);
    assert_int_equal(rig_decode(rig), NXL_OK);
    rig->in.flags = 0x80;
    assert_int_equal(nxl_record_encode(&rig->in, &rig->bytes, &rig->err), NXL_INVALID_PARAM);
}

#define T(name) cmocka_unit_test_setup_teardown(name, rig_open, rig_close)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(what_is_encoded_comes_back),
        T(the_largest_record_fits_the_limit),
        T(every_truncation_is_refused),
        T(every_flipped_bit_is_refused),
        T(a_newer_major_version_is_refused_with_both_versions),
        T(a_newer_minor_version_may_append_fields),
        T(wrong_fields_are_refused_by_name),
        T(a_forged_region_is_refused),
        T(full_and_regions_exclude_each_other),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
