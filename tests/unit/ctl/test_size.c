/* test_size.c - the arithmetic of KV caches against published shapes, number by number. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "ctl/size.h"

#define KIB 1024ull
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)
#define T4 4096ull
#define T32 32768ull
#define T128 131072ull

static struct ctl_size compute(const struct ctl_shape *shape, uint64_t tokens, uint64_t tp,
                               uint64_t block)
{
    struct ctl_workload w = {shape, tokens, tp, block, 1};
    struct ctl_size size;
    struct nxl_err err = {0};

    if (ctl_size_compute(&w, &size, &err) != NXL_OK)
        fail_msg("%s: %s", shape->name, err.text);
    return size;
}

static const struct ctl_shape *model(const char *name)
{
    const char *nearest = NULL;
    const struct ctl_shape *shape = ctl_model_find(name, &nearest);

    if (shape == NULL)
        fail_msg("no model %s", name);
    return shape;
}

static const struct ctl_layout *layout(const struct ctl_size *size, const char *name)
{
    for (unsigned i = 0; i < size->layout_count; i++) {
        if (strcmp(size->layouts[i].name, name) == 0)
            return &size->layouts[i];
    }
    fail_msg("no layout %s", name);
    return NULL;
}

/* Bytes per token and layer, per token, per request at 4k, 32k and 128k, per rank of 8 at 4k. */
static void every_known_model_has_the_bytes_that_its_shape_says(void **state)
{
    static const struct {
        const char *name;
        uint64_t layers, token_layer, token, at4k, at32k, at128k, rank8;
    } rows[] = {
        {"llama-3-8b", 32, 4096, 128 * KIB, 512 * MIB, 4 * GIB, 16 * GIB, 64 * MIB},
        {"llama-3.1-8b", 32, 4096, 128 * KIB, 512 * MIB, 4 * GIB, 16 * GIB, 64 * MIB},
        {"llama-3-70b", 80, 4096, 320 * KIB, 1280 * MIB, 10 * GIB, 40 * GIB, 160 * MIB},
        {"llama-3.1-70b", 80, 4096, 320 * KIB, 1280 * MIB, 10 * GIB, 40 * GIB, 160 * MIB},
        {"llama-3.1-405b", 126, 4096, 504 * KIB, 2016 * MIB, 16128 * MIB, 63 * GIB, 252 * MIB},
        {"qwen3-8b", 36, 4096, 144 * KIB, 576 * MIB, 4608 * MIB, 18 * GIB, 72 * MIB},
        {"qwen3-32b", 64, 4096, 256 * KIB, 1 * GIB, 8 * GIB, 32 * GIB, 128 * MIB},
        {"qwen3-30b-a3b", 48, 2048, 96 * KIB, 384 * MIB, 3 * GIB, 12 * GIB, 96 * MIB},
        {"qwen3-235b-a22b", 94, 2048, 188 * KIB, 752 * MIB, 6016 * MIB, 23 * GIB + 512 * MIB,
         188 * MIB},
        {"glm-4.5", 92, 4096, 368 * KIB, 1472 * MIB, 11 * GIB + 512 * MIB, 46 * GIB, 184 * MIB},
        {"gpt-oss-120b", 36, 2048, 72 * KIB, 288 * MIB, 2304 * MIB, 9 * GIB, 36 * MIB},
        {"deepseek-v3", 61, 1152, 70272, 281088 * KIB, 2196 * MIB, 8784 * MIB, 281088 * KIB},
        {"kimi-k2", 61, 1152, 70272, 281088 * KIB, 2196 * MIB, 8784 * MIB, 281088 * KIB},
        {"deepseek-v3-fp8", 61, 576, 35136, 140544 * KIB, 1098 * MIB, 4392 * MIB, 140544 * KIB},
        {"deepseek-v3.2", 61, 788, 48068, 48068 * T4, 48068 * T32, 48068 * T128, 48068 * T4},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct ctl_shape *shape = model(rows[i].name);
        struct ctl_size size = compute(shape, T4, 8, 16);

        assert_int_equal(shape->layers, rows[i].layers);
        assert_int_equal(size.token_layer, rows[i].token_layer);
        assert_int_equal(size.token, rows[i].token);
        assert_int_equal(size.layer, rows[i].token_layer * T4);
        assert_int_equal(size.request, rows[i].at4k);
        assert_int_equal(size.rank_request, rows[i].rank8);
        assert_int_equal(size.total, rows[i].rank8 * 8);
        assert_int_equal(compute(shape, T32, 1, 16).request, rows[i].at32k);
        assert_int_equal(compute(shape, T128, 1, 16).request, rows[i].at128k);
    }
}

static void seventy_billion_is_sixteen_mebibytes_per_layer_and_never_half_a_megabyte(void **state)
{
    struct ctl_size size = compute(model("llama-3-70b"), T4, 1, 128);

    assert_int_equal(size.layer, 16 * MIB);
    assert_int_equal(size.request, 1342177280);
    /* Half a MiB is one block of 128 tokens. */
    assert_int_equal(layout(&size, "K and V packed")->part_bytes[0], 512 * KIB);
    assert_int_equal(layout(&size, "K and V packed")->part_bytes[0] * 80 * 32, size.request);
}

static void fewer_heads_than_ranks_are_replicated(void **state)
{
    struct ctl_size gqa = compute(model("qwen3-235b-a22b"), T4, 8, 16);
    struct ctl_size even = compute(model("llama-3-70b"), T4, 8, 16);
    struct ctl_size mla = compute(model("deepseek-v3"), T4, 8, 16);

    assert_int_equal(gqa.heads, 1);
    assert_int_equal(gqa.replicas, 2);
    assert_int_equal(even.heads, 1);
    assert_int_equal(even.replicas, 1);
    assert_int_equal(mla.heads, 0);
    assert_int_equal(mla.replicas, 8);
    assert_int_equal(mla.rank_request, mla.request);
}

static void a_descriptor_has_the_size_of_its_block(void **state)
{
    static const struct {
        const char *model;
        uint64_t tp, block;
        const char *layout;
        uint64_t first, second;
    } rows[] = {
        {"llama-3-70b", 1, 16, "K and V packed", 64 * KIB, 0},
        {"llama-3-70b", 1, 16, "K and V apart", 32 * KIB, 32 * KIB},
        {"llama-3-70b", 1, 64, "K and V packed", 256 * KIB, 0},
        {"llama-3-70b", 1, 64, "K and V apart", 128 * KIB, 128 * KIB},
        {"llama-3-70b", 1, 128, "K and V packed", 512 * KIB, 0},
        {"llama-3-70b", 1, 128, "K and V apart", 256 * KIB, 256 * KIB},
        {"llama-3-70b", 8, 16, "K and V packed", 8 * KIB, 0},
        {"llama-3-70b", 8, 16, "K and V apart", 4 * KIB, 4 * KIB},
        {"llama-3-70b", 8, 64, "K and V packed", 32 * KIB, 0},
        {"llama-3-70b", 8, 128, "K and V apart", 32 * KIB, 32 * KIB},
        {"qwen3-235b-a22b", 1, 16, "K and V packed", 32 * KIB, 0},
        {"qwen3-235b-a22b", 1, 64, "K and V packed", 128 * KIB, 0},
        {"qwen3-235b-a22b", 1, 128, "K and V packed", 256 * KIB, 0},
        {"deepseek-v3", 1, 16, "latent", 18 * KIB, 0},
        {"deepseek-v3", 8, 64, "latent", 72 * KIB, 0},
        {"deepseek-v3", 1, 128, "latent", 144 * KIB, 0},
        {"deepseek-v3.2", 1, 16, "latent and indexer", 10496, 2112},
        {"deepseek-v3.2", 1, 64, "latent and indexer", 41 * KIB, 8448},
        {"deepseek-v3.2", 1, 128, "latent and indexer", 82 * KIB, 16896},
        {"llama-3-70b", 8, 16, "slices per token (unequal tp)", 256, 256},
        {"llama-3-70b", 8, 128, "slices per token (unequal tp)", 256, 256},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct ctl_size size = compute(model(rows[i].model), T4, rows[i].tp, rows[i].block);
        const struct ctl_layout *l = layout(&size, rows[i].layout);

        assert_int_equal(l->part_bytes[0], rows[i].first);
        assert_int_equal(l->part_bytes[1], rows[i].second);
    }
}

/* layers x parts x blocks, at 4k, 32k and 128k tokens. */
static void a_request_has_the_descriptors_that_its_blocks_make(void **state)
{
    static const struct {
        const char *model, *layout;
        uint64_t block, at4k, at32k, at128k;
    } rows[] = {
        {"llama-3-8b", "K and V apart", 16, 16384, 131072, 524288},
        {"llama-3-8b", "K and V packed", 16, 8192, 65536, 262144},
        {"llama-3-8b", "K and V packed", 64, 2048, 16384, 65536},
        {"llama-3-8b", "K and V packed", 128, 1024, 8192, 32768},
        {"llama-3-70b", "K and V apart", 16, 40960, 327680, 1310720},
        {"llama-3-70b", "K and V packed", 16, 20480, 163840, 655360},
        {"llama-3-70b", "K and V packed", 64, 5120, 40960, 163840},
        {"llama-3-70b", "K and V packed", 128, 2560, 20480, 81920},
        {"qwen3-32b", "K and V packed", 16, 16384, 131072, 524288},
        {"qwen3-32b", "K and V packed", 128, 2048, 16384, 65536},
        {"qwen3-235b-a22b", "K and V packed", 16, 24064, 192512, 770048},
        {"qwen3-235b-a22b", "K and V packed", 64, 6016, 48128, 192512},
        {"llama-3.1-405b", "K and V packed", 16, 32256, 258048, 1032192},
        {"llama-3.1-405b", "K and V packed", 128, 4032, 32256, 129024},
        {"deepseek-v3", "latent", 16, 15616, 124928, 499712},
        {"deepseek-v3", "latent", 64, 3904, 31232, 124928},
        {"deepseek-v3", "latent", 128, 1952, 15616, 62464},
        {"deepseek-v3.2", "latent and indexer", 64, 7808, 62464, 249856},
        {"llama-3-70b", "all layers in one block", 16, 256, 2048, 8192},
        {"deepseek-v3", "all layers in one block", 64, 64, 512, 2048},
        {"llama-3-8b", "all layers in one block", 256, 16, 128, 512},
        {"llama-3-70b", "slices per token (unequal tp)", 16, 655360, 5242880, 20971520},
    };
    static const uint64_t tokens[] = {T4, T32, T128};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const uint64_t want[] = {rows[i].at4k, rows[i].at32k, rows[i].at128k};

        for (size_t k = 0; k < 3; k++) {
            struct ctl_size size = compute(model(rows[i].model), tokens[k], 8, rows[i].block);
            const struct ctl_layout *l = layout(&size, rows[i].layout);

            assert_int_equal(l->descriptors, want[k]);
            assert_int_equal(l->index_bytes, want[k] * 8);
        }
    }
}

static void a_part_of_a_block_counts_as_a_block(void **state)
{
    struct ctl_size one = compute(model("llama-3-8b"), 1, 1, 16);
    struct ctl_size more = compute(model("llama-3-8b"), 17, 1, 16);

    assert_int_equal(one.blocks, 1);
    assert_int_equal(more.blocks, 2);
    assert_int_equal(layout(&more, "K and V packed")->descriptors, 64);
    assert_int_equal(more.request, 17 * 128 * KIB);
}

static void requests_multiply_what_one_needs(void **state)
{
    struct ctl_workload w = {model("llama-3-70b"), T4, 8, 16, 32};
    struct ctl_size size;
    struct nxl_err err = {0};

    assert_int_equal(ctl_size_compute(&w, &size, &err), NXL_OK);
    assert_int_equal(size.rank_request, 160 * MIB);
    assert_int_equal(size.rank_all, 5 * GIB);
    assert_int_equal(size.total, 40 * GIB);
}

static void eight_bit_elements_halve_it(void **state)
{
    struct ctl_shape shape = *model("llama-3-70b");

    shape.element = ctl_element_size("fp8");
    assert_int_equal(compute(&shape, T4, 1, 16).request, 640 * MIB);
    assert_int_equal(ctl_element_size("BF16"), 2);
    assert_int_equal(ctl_element_size("fp32"), 4);
    assert_int_equal(ctl_element_size("fp9"), 0);
    assert_int_equal(ctl_element_size(""), 0);
}

static void a_workload_without_meaning_is_refused_with_the_reason(void **state)
{
    static const struct ctl_shape gqa = {
        .name = "g", .layers = 2, .kv_heads = 8, .head_dim = 64, .element = 2};
    static const struct ctl_shape both = {
        .name = "b", .layers = 2, .kv_heads = 8, .head_dim = 64, .latent = 5, .element = 2};
    static const struct ctl_shape neither = {.name = "n", .layers = 2, .element = 2};
    static const struct ctl_shape headless = {
        .name = "h", .layers = 2, .kv_heads = 8, .element = 2};
    static const struct ctl_shape vast = {
        .name = "v", .layers = 65536, .kv_heads = 65536, .head_dim = 1 << 20, .element = 4};
    static const struct {
        struct ctl_workload w;
        enum nxl_code code;
        const char *says;
    } rows[] = {
        {{&gqa, 0, 1, 16, 1}, NXL_INVALID_PARAM, "at least 1"},
        {{&gqa, 1, 0, 16, 1}, NXL_INVALID_PARAM, "at least 1"},
        {{&gqa, 1, 1, 0, 1}, NXL_INVALID_PARAM, "at least 1"},
        {{&gqa, 1, 1, 16, 0}, NXL_INVALID_PARAM, "at least 1"},
        {{&gqa, 1, 3, 16, 1}, NXL_INVALID_PARAM, "3 ranks cannot share 8 KV heads"},
        {{&gqa, 1, 12, 16, 1}, NXL_INVALID_PARAM, "12 ranks"},
        {{&both, 1, 1, 16, 1}, NXL_INVALID_PARAM, "either heads"},
        {{&neither, 1, 1, 16, 1}, NXL_INVALID_PARAM, "either heads"},
        {{&headless, 1, 1, 16, 1}, NXL_INVALID_PARAM, "--head-dim"},
        {{&vast, 1ull << 40, 1, 16, 1}, NXL_LIMIT, "8 EiB"},
        {{&gqa, UINT64_MAX, 1, 16, 1}, NXL_LIMIT, "8 EiB"},
        {{&gqa, 1ull << 30, 8, 16, 1ull << 40}, NXL_LIMIT, "8 EiB"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct ctl_size size = {.token = 77};
        struct nxl_err err = {0};

        assert_int_equal(ctl_size_compute(&rows[i].w, &size, &err), rows[i].code);
        if (strstr(err.text, rows[i].says) == NULL)
            fail_msg("row %zu: '%s' does not say '%s'", i, err.text, rows[i].says);
        assert_int_equal(size.token, 77);
    }
}

static void a_mistyped_model_has_a_nearest_one(void **state)
{
    const char *nearest = NULL;

    assert_non_null(ctl_model_find("LLAMA-3-70B", &nearest));
    assert_null(ctl_model_find("qwen3-32", &nearest));
    assert_string_equal(nearest, "qwen3-32b");
    assert_null(ctl_model_find("zzz", &nearest));
    assert_null(nearest);
    assert_null(ctl_model_find("", &nearest));
    assert_null(
        ctl_model_find("llama-3-70b llama-3.3-70b", &nearest)); /* one alias, not the list */
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_known_model_has_the_bytes_that_its_shape_says),
        cmocka_unit_test(seventy_billion_is_sixteen_mebibytes_per_layer_and_never_half_a_megabyte),
        cmocka_unit_test(fewer_heads_than_ranks_are_replicated),
        cmocka_unit_test(a_descriptor_has_the_size_of_its_block),
        cmocka_unit_test(a_request_has_the_descriptors_that_its_blocks_make),
        cmocka_unit_test(a_part_of_a_block_counts_as_a_block),
        cmocka_unit_test(requests_multiply_what_one_needs),
        cmocka_unit_test(eight_bit_elements_halve_it),
        cmocka_unit_test(a_workload_without_meaning_is_refused_with_the_reason),
        cmocka_unit_test(a_mistyped_model_has_a_nearest_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
