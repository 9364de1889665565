/* text.c - a hash of counted texts: 5,000 pods of ten deployments have a few hundred of them. */
#include "model/text.h"

#include "model/room.h"

#include <uthash.h>

struct text {
    UT_hash_handle hh;
    uint32_t uses;
    char text[];
};

struct texts {
    struct text *all;
    uint64_t bytes;
};

struct texts *texts_new(void)
{
    return room_new(sizeof(struct texts));
}

void texts_free(struct texts *texts)
{
    struct text *text, *next;

    HASH_ITER(hh, texts->all, text, next)
    {
        HASH_DEL(texts->all, text);
        free(text);
    }
    free(texts);
}

const char *text_take(struct texts *texts, const char *text)
{
    size_t size = strlen(text);
    struct text *found;

    HASH_FIND(hh, texts->all, text, size, found);
    if (found == NULL) {
        found = room_new(sizeof(*found) + size + 1);
        memcpy(found->text, text, size + 1);
        HASH_ADD_KEYPTR(hh, texts->all, found->text, size, found);
        texts->bytes += sizeof(*found) + size + 1;
    }
    found->uses++;
    return found->text;
}

void text_drop(struct texts *texts, const char *taken)
{
    struct text *text;

    if (taken == NULL)
        return;
    text = (struct text *)(void *)((char *)(uintptr_t)taken - offsetof(struct text, text));
    if (--text->uses > 0)
        return;
    HASH_DEL(texts->all, text);
    texts->bytes -= sizeof(*text) + strlen(text->text) + 1;
    free(text);
}

uint32_t texts_count(const struct texts *texts)
{
    return HASH_COUNT(texts->all);
}

uint64_t texts_bytes(const struct texts *texts)
{
    return texts->bytes;
}

void labels_take(struct texts *texts, struct label_set *to, const struct nxl_label *labels,
                 uint32_t count)
{
    struct label_set old = *to;

    to->items = count == 0 ? NULL : room_new(count * sizeof(*to->items));
    to->count = count;
    for (uint32_t i = 0; i < count; i++) {
        to->items[i].key = text_take(texts, labels[i].key);
        to->items[i].value = text_take(texts, labels[i].value);
    }
    labels_drop(texts, &old);
}

void labels_drop(struct texts *texts, struct label_set *set)
{
    for (uint32_t i = 0; i < set->count; i++) {
        text_drop(texts, set->items[i].key);
        text_drop(texts, set->items[i].value);
    }
    free(set->items);
    *set = (struct label_set){0};
}

int labels_same(const struct label_set *set, const struct nxl_label *labels, uint32_t count)
{
    if (set->count != count)
        return 0;
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(set->items[i].key, labels[i].key) != 0 ||
            strcmp(set->items[i].value, labels[i].value) != 0)
            return 0;
    return 1;
}

const char *labels_value(const struct label_set *set, const char *key)
{
    for (uint32_t i = 0; i < set->count; i++)
        if (strcmp(set->items[i].key, key) == 0)
            return set->items[i].value;
    return "";
}
