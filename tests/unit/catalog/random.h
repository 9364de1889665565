/* random.h - a small repeatable generator for property tests: same seed, same run. */
#ifndef NXL_TESTS_CATALOG_RANDOM_H
#define NXL_TESTS_CATALOG_RANDOM_H

#include <stdint.h>

struct random {
    uint64_t state; /* not 0 */
};

static inline uint64_t random_next(struct random *random)
{
    random->state ^= random->state << 13;
    random->state ^= random->state >> 7;
    random->state ^= random->state << 17;
    return random->state * 0x2545f4914f6cdd1dull >> 11;
}

static inline uint64_t random_below(struct random *random, uint64_t limit)
{
    return random_next(random) % limit;
}

static inline struct random random_seeded(uint64_t seed)
{
    struct random random = {seed * 0x9e3779b97f4a7c15ull + 1};

    for (int i = 0; i < 8; i++)
        (void)random_next(&random);
    return random;
}

#endif
