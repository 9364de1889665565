/* selector.c - terms in one growing array; each owns one block with its key and values. */
#include "model/selector.h"

#include "model/room.h"

struct term {
    char *key; /* the block: key, then values, each with its NUL */
    const char **values;
    uint32_t count;
    uint8_t op;
};

struct nxl_selector {
    struct term *terms;
    uint32_t count;
};

struct nxl_selector *nxl_selector_new(void)
{
    return room_new(sizeof(struct nxl_selector));
}

void nxl_selector_free(struct nxl_selector *selector)
{
    if (selector == NULL)
        return;
    for (uint32_t i = 0; i < selector->count; i++) {
        free(selector->terms[i].key);
        free(selector->terms[i].values);
    }
    free(selector->terms);
    free(selector);
}

int nxl_selector_add(struct nxl_selector *selector, const char *key, enum nxl_selector_op op,
                     const char *const *values, uint32_t count)
{
    int wants_values = op == NXL_IN || op == NXL_NOT_IN;
    size_t size = strlen(key) + 1;
    struct term *term;
    char *at;

    if (selector->count == NXL_SELECTOR_TERMS_MAX || count > NXL_SELECTOR_VALUES_MAX ||
        key[0] == '\0' || wants_values != (count > 0))
        return -1;
    for (uint32_t i = 0; i < count; i++)
        size += strlen(values[i]) + 1;
    selector->terms =
        room_resize(selector->terms, (size_t)selector->count + 1, sizeof(*selector->terms));
    term = &selector->terms[selector->count++];
    *term = (struct term){.key = room_new(size), .count = count, .op = (uint8_t)op};
    if (count > 0)
        term->values = room_new(count * sizeof(*term->values));
    at = stpcpy(term->key, key) + 1;
    for (uint32_t i = 0; i < count; i++) {
        term->values[i] = at;
        at = stpcpy(at, values[i]) + 1;
    }
    return 0;
}

uint32_t nxl_selector_terms(const struct nxl_selector *selector)
{
    return selector->count;
}

static int term_holds(const struct term *term, const char *value)
{
    switch (term->op) {
    case NXL_EXISTS:
        return value != NULL;
    case NXL_NOT_EXISTS:
        return value == NULL;
    default:
        break;
    }
    if (value != NULL)
        for (uint32_t i = 0; i < term->count; i++)
            if (strcmp(term->values[i], value) == 0)
                return term->op == NXL_IN;
    return term->op == NXL_NOT_IN;
}

int nxl_selector_matches(const struct nxl_selector *selector, const struct nxl_label *labels,
                         uint32_t count)
{
    for (uint32_t i = 0; i < selector->count; i++) {
        const char *value = NULL;

        for (uint32_t j = 0; j < count && value == NULL; j++)
            if (strcmp(labels[j].key, selector->terms[i].key) == 0)
                value = labels[j].value;
        if (!term_holds(&selector->terms[i], value))
            return 0;
    }
    return 1;
}

int nxl_selector_op_of(const char *word)
{
    static const char *const words[] = {"In", "NotIn", "Exists", "DoesNotExist"};

    for (int op = NXL_IN; op <= NXL_NOT_EXISTS; op++)
        if (strcmp(words[op], word) == 0)
            return op;
    return -1;
}
