/* option_nearest.c - "did you mean": the nearest word by edit distance. Pure. */
#include "base/option_inner.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define WORD_MAX 128u

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* Insertions, deletions, replacements and swaps of neighbours; both words at most WORD_MAX long. */
static unsigned distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
    unsigned rows[3][WORD_MAX + 1];
    unsigned *before = rows[0], *last = rows[1], *now = rows[2];

    for (size_t j = 0; j <= b_length; j++)
        last[j] = (unsigned)j;
    for (size_t i = 1; i <= a_length; i++) {
        unsigned *spare = before;

        now[0] = (unsigned)i;
        for (size_t j = 1; j <= b_length; j++) {
            unsigned cost = a[i - 1] != b[j - 1];

            now[j] = least(least(last[j], now[j - 1]) + 1, last[j - 1] + cost);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = least(now[j], before[j - 2] + 1);
        }
        before = last;
        last = now;
        now = spare;
    }
    return last[b_length];
}

const char *nxl_nearest(const char *word, const char *const *candidates, size_t count)
{
    size_t length = strnlen(word, WORD_MAX + 1);
    /* A third of the word may be wrong: more is another word. */
    unsigned best = (unsigned)(length < 3 ? 1 : length / 3) + 1;
    const char *nearest = NULL;

    if (length == 0 || length > WORD_MAX)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        size_t other = strnlen(candidates[i], WORD_MAX + 1);
        unsigned steps;

        if (other > WORD_MAX)
            continue;
        steps = distance(word, length, candidates[i], other);
        if (steps < best && steps < length) {
            best = steps;
            nearest = candidates[i];
        }
    }
    return nearest;
}

static const char *last_part(const char *key)
{
    const char *dot = strrchr(key, '.');

    return dot ? dot + 1 : key;
}

/* Somebody may remember the right name and the wrong section. */
const char *nxl_option_nearest(const struct nxl_settings *settings, const char *key)
{
    NXL_CLEANUP(nxl_freep) const char **keys = NULL;
    const char *nearest;
    size_t count = 0;

    keys = nxl_new0_array(HASH_COUNT(settings->by_key), sizeof(*keys));
    for (const struct setting *setting = settings->by_key; setting; setting = setting->hh.next)
        keys[count++] = setting->key;
    nearest = nxl_nearest(key, keys, count);
    for (size_t i = 0; !nearest && i < count; i++) {
        if (strcmp(last_part(keys[i]), last_part(key)) == 0)
            nearest = keys[i];
    }
    return nearest;
}
