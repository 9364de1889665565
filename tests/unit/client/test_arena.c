/* The arena's allocator: no two blocks overlap, everything comes back, full is full. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "client/arena.h"

#define SIZE (1u << 20)

struct block {
    uint64_t offset, size;
    unsigned char fill;
};

static struct nxl_arena arena;
static unsigned char *memory;

static int setup(void **state)
{
    memory = aligned_alloc(4096, SIZE);
    nxl_arena_init(&arena, memory, SIZE);
    return 0;
}

static int teardown(void **state)
{
    free(memory);
    return 0;
}

static void random_blocks_never_overlap_and_all_come_back(void **state)
{
    static struct block blocks[400];
    unsigned seed = 7, taken = 0, full = 0;

    for (int step = 0; step < 200000; step++) {
        struct block *block = &blocks[(unsigned)rand_r(&seed) % 400];

        if (block->size > 0) {
            for (uint64_t i = 0; i<block->size; i += block->size> 64 ? block->size - 1 : 1)
                assert_int_equal(memory[block->offset + i], block->fill);
            nxl_arena_give(&arena, block->offset);
            block->size = 0;
            continue;
        }
        block->size = 1 + (unsigned)rand_r(&seed) % (step % 10 == 0 ? 60000 : 900);
        block->fill = (unsigned char)rand_r(&seed);
        if (nxl_arena_take(&arena, block->size, &block->offset) != NXL_OK) {
            block->size = 0;
            full++;
            continue;
        }
        taken++;
        assert_int_equal(block->offset % 16, 0);
        assert_true(block->offset + block->size <= SIZE);
        memset(memory + block->offset, block->fill, block->size);
    }
    assert_true(taken > 50000);
    assert_true(full > 0);
    for (size_t i = 0; i < 400; i++)
        if (blocks[i].size > 0)
            nxl_arena_give(&arena, blocks[i].offset);
    assert_int_equal(arena.used, 0);
    /* All joined again: one block of nearly everything. */
    assert_int_equal(nxl_arena_take(&arena, SIZE - 16, &blocks[0].offset), NXL_OK);
}

static void the_whole_arena_is_one_block_at_most(void **state)
{
    uint64_t offset = 99;

    assert_int_equal(nxl_arena_take(&arena, SIZE - 15, &offset), NXL_LIMIT);
    assert_int_equal(nxl_arena_take(&arena, UINT64_MAX, &offset), NXL_LIMIT);
    assert_int_equal(nxl_arena_take(&arena, UINT64_MAX - 20, &offset), NXL_LIMIT);
    assert_int_equal(offset, 99);
    assert_int_equal(nxl_arena_take(&arena, SIZE - 16, &offset), NXL_OK);
    assert_int_equal(nxl_arena_take(&arena, 1, &offset), NXL_LIMIT);
    nxl_arena_give(&arena, offset);
    assert_int_equal(nxl_arena_take(&arena, 0, &offset), NXL_OK);
}

static void small_blocks_fill_it_and_free_in_any_order(void **state)
{
    static uint64_t offsets[SIZE / 64];
    uint64_t whole;

    for (int order = 0; order < 3; order++) {
        size_t count = 0;

        while (nxl_arena_take(&arena, 48, &offsets[count]) == NXL_OK)
            count++;
        assert_int_equal(count, SIZE / 64);
        for (size_t i = 0; i < count; i++) {
            size_t at = order == 0 ? i : order == 1 ? count - 1 - i : i * 7919 % count;

            nxl_arena_give(&arena, offsets[at]);
        }
        assert_int_equal(nxl_arena_take(&arena, SIZE - 16, &whole), NXL_OK);
        nxl_arena_give(&arena, whole);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(random_blocks_never_overlap_and_all_come_back),
        TEST(the_whole_arena_is_one_block_at_most),
        TEST(small_blocks_fill_it_and_free_in_any_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
