/* test_region_tree.c - the shape of the tree: its height bounds the work of every step. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "base/mem.h"
#include "catalog/region_tree.h"
#include "unit/catalog/random.h"

enum { COUNT = 10000 };
#define HEIGHT_MAX 19 /* 1.44 * log2(10,000 + 2) */

struct shape {
    uint32_t count;
    int height;
    uint64_t reach;
};

/* Order, balance and reach of every node. */
static struct shape shape_check(const struct nxl_region_node *node,
                                const struct nxl_region_node **last)
{
    struct shape left, right, here = {0};

    if (node == NULL)
        return here;
    left = shape_check(node->left, last);
    if (*last != NULL)
        assert_true((*last)->addr <= node->addr);
    *last = node;
    right = shape_check(node->right, last);
    here.count = left.count + right.count + 1;
    here.height = 1 + (left.height > right.height ? left.height : right.height);
    here.reach = node->end;
    here.reach = left.reach > here.reach ? left.reach : here.reach;
    here.reach = right.reach > here.reach ? right.reach : here.reach;
    assert_in_range(left.height - right.height + 1, 0, 2);
    assert_int_equal(node->height, here.height);
    assert_int_equal(node->reach, here.reach);
    return here;
}

static void check(const struct nxl_region_node *root, uint32_t count)
{
    const struct nxl_region_node *last = NULL;

    assert_int_equal(shape_check(root, &last).count, count);
}

/* C-105: rounds do not degrade it, whatever the order of coming and going. */
static void height_stays_logarithmic_round_after_round(void **state)
{
    struct nxl_region_node *nodes = calloc(COUNT, sizeof(*nodes)), *root = NULL;

    assert_non_null(nodes);
    for (uint32_t round = 0; round < 200; round++) {
        uint64_t step = 1 + 2 * (round % 5) * 618; /* odd multiples modulo COUNT visit all */

        if (step % 5 == 0)
            step += 2;
        for (uint32_t i = 0; i < COUNT; i++) {
            nodes[i].id = (uint64_t)round * COUNT + i;
            nodes[i].addr = step * i % COUNT * 4096;
            nodes[i].end = nodes[i].addr + 4096;
            root = nxl_region_tree_insert(root, &nodes[i]);
        }
        assert_in_range(root->height, 14, HEIGHT_MAX);
        if (round % 50 == 0)
            check(root, COUNT);
        for (uint32_t i = 0; i < COUNT / 2; i++)
            root = nxl_region_tree_remove(root, &nodes[round % 2 ? i : COUNT - 1 - i]);
        assert_in_range(root->height, 13, HEIGHT_MAX);
        if (round % 50 == 0)
            check(root, COUNT / 2);
        for (uint32_t i = COUNT / 2; i < COUNT; i++)
            root = nxl_region_tree_remove(root, &nodes[round % 2 ? i : COUNT - 1 - i]);
        assert_null(root);
    }
    free(nodes);
}

static void shape_holds_after_every_step_of_a_random_walk(void **state)
{
    enum { ROOM = 64 };
    struct nxl_region_node nodes[ROOM] = {{0}}, *root = NULL;
    int in[ROOM] = {0};
    uint32_t count = 0;
    struct random random = random_seeded(7);

    for (int step = 0; step < 20000; step++) {
        uint32_t i = (uint32_t)random_below(&random, ROOM);

        if (in[i]) {
            root = nxl_region_tree_remove(root, &nodes[i]);
            count--;
        } else {
            nodes[i].id = (uint64_t)step + 1;
            nodes[i].addr = random_below(&random, 32);
            nodes[i].end = nodes[i].addr + 1 + random_below(&random, 16);
            root = nxl_region_tree_insert(root, &nodes[i]);
            count++;
        }
        in[i] = !in[i];
        check(root, count);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(height_stays_logarithmic_round_after_round),
        cmocka_unit_test(shape_holds_after_every_step_of_a_random_walk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
