/* size_models.c - shapes of published models, and names of element types. */
#include "ctl/size.h"

#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/option.h"

#define BF16 2
#define FP8 1

static const struct ctl_shape models[] = {
    {"llama-3.1-8b", "llama-3-8b", NULL, 32, 8, 128, 0, BF16, {0}},
    {"llama-3.1-70b", "llama-3-70b llama-3.3-70b", NULL, 80, 8, 128, 0, BF16, {0}},
    {"llama-3.1-405b", NULL, NULL, 126, 8, 128, 0, BF16, {0}},
    {"qwen3-8b", NULL, NULL, 36, 8, 128, 0, BF16, {0}},
    {"qwen3-32b", NULL, NULL, 64, 8, 128, 0, BF16, {0}},
    {"qwen3-30b-a3b", NULL, NULL, 48, 4, 128, 0, BF16, {0}},
    {"qwen3-235b-a22b", NULL, NULL, 94, 4, 128, 0, BF16, {0}},
    {"glm-4.5", NULL, NULL, 92, 8, 128, 0, BF16, {0}},
    {"gpt-oss-120b",
     NULL,
     "upper bound: half of the layers keep a window of 128 tokens only, so long requests need "
     "about "
     "half",
     36,
     8,
     64,
     0,
     BF16,
     {0}},
    {"deepseek-v3",
     "deepseek-r1 kimi-k2",
     "MLA: every rank holds the same latent",
     61,
     0,
     0,
     576,
     BF16,
     {0}},
    {"deepseek-v3-fp8",
     "deepseek-r1-fp8",
     "MLA: every rank holds the same latent",
     61,
     0,
     0,
     576,
     FP8,
     {0}},
    {"deepseek-v3.2",
     NULL,
     "sparse MLA: 656 bytes of latent and 132 of indexer per token and layer, the same on every "
     "rank",
     61,
     0,
     0,
     0,
     FP8,
     {656, 132}},
};

const struct ctl_shape *ctl_model_at(size_t index)
{
    return index < NXL_COUNT_OF(models) ? &models[index] : NULL;
}

static int alias_is(const char *aliases, const char *name)
{
    size_t size = strlen(name);

    while (aliases != NULL && *aliases != '\0') {
        size_t word = strcspn(aliases, " ");

        if (word == size && strncasecmp(aliases, name, size) == 0)
            return 1;
        aliases += word + (aliases[word] == ' ');
    }
    return 0;
}

const struct ctl_shape *ctl_model_find(const char *name, const char **ret_nearest)
{
    const char *names[NXL_COUNT_OF(models)];

    for (size_t i = 0; i < NXL_COUNT_OF(models); i++) {
        if (strcasecmp(models[i].name, name) == 0 || alias_is(models[i].aliases, name))
            return &models[i];
        names[i] = models[i].name;
    }
    *ret_nearest = nxl_nearest(name, names, NXL_COUNT_OF(models));
    return NULL;
}

uint64_t ctl_element_size(const char *word)
{
    static const struct {
        const char *word;
        uint64_t size;
    } types[] = {{"bf16", 2}, {"fp16", 2}, {"f16", 2}, {"fp8", 1},    {"f8", 1},
                 {"int8", 1}, {"fp32", 4}, {"f32", 4}, {"float32", 4}};

    for (size_t i = 0; i < NXL_COUNT_OF(types); i++) {
        if (strcasecmp(types[i].word, word) == 0)
            return types[i].size;
    }
    return 0;
}
