/* test_bytes.c - whatever the planner joins and cuts, every byte goes where its pair says, once. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/catalog/random.h"
#include "unit/plan/rig.h"

enum { REGIONS = 4, REGION_SIZE = 4096, SLOTS = REGIONS * REGION_SIZE, PAIRS_MAX = 600 };

struct descriptor {
    uint64_t addr, len;
};

struct bytes_rig {
    struct rig *rig;
    struct random random;
    struct descriptor local[PAIRS_MAX], remote[PAIRS_MAX];
    uint32_t local_index[PAIRS_MAX], remote_index[PAIRS_MAX];
    uint32_t count;
    int32_t expected[SLOTS], got[SLOTS]; /* local byte -> remote byte, -1 none */
};

/* Disjoint descriptors of one side, rising with gaps now and then, in regions that are adjacent. */
static void side_fill(struct bytes_rig *b, struct descriptor *to, const struct descriptor *like,
                      uint64_t base)
{
    uint64_t at = 0;

    for (uint32_t i = 0; i < b->count; i++) {
        uint64_t len = like != NULL                  ? like[i].len
                       : random_below(&b->random, 4) ? 8
                                                     : random_below(&b->random, 20);

        if (random_below(&b->random, 3) == 0)
            at += random_below(&b->random, 2) ? 8 : random_below(&b->random, 9);
        if (at / REGION_SIZE != (at + len) / REGION_SIZE && (at + len) % REGION_SIZE != 0)
            at = (at / REGION_SIZE + 1) * REGION_SIZE; /* not across a border */
        to[i] = (struct descriptor){base + at, len};
        at += len;
    }
    assert_true(at <= SLOTS);
}

/* mixed: 0 in order, 1 reversed, 2 shuffled, 3 shuffled in blocks. The lists are in the order of
 * the descriptors or, without indices, in the order of use. */
static void order_fill(struct bytes_rig *b, uint32_t *order, int mixed)
{
    uint32_t block = mixed == 3 ? 5 : 1;

    for (uint32_t i = 0; i < b->count; i++)
        order[i] = mixed == 1 ? b->count - 1 - i : i;
    for (uint32_t i = b->count / block; mixed >= 2 && i > 1; i--) {
        uint32_t k = (uint32_t)random_below(&b->random, i);

        for (uint32_t j = 0; j < block; j++) {
            uint32_t swap = order[(i - 1) * block + j];

            order[(i - 1) * block + j] = order[k * block + j];
            order[k * block + j] = swap;
        }
    }
}

static void list_fill(struct bytes_rig *b, struct rig_side *side, const struct descriptor *all,
                      const uint32_t *order, int indexed)
{
    rig_side_list(side);
    for (uint32_t i = 0; i < b->count; i++) {
        const struct descriptor *d = &all[indexed ? i : order[i]];
        const struct nxl_run run = {d->addr, d->len, 0, 1, 0};

        rig_runs(side, &run, 1);
    }
}

static void expect(struct bytes_rig *b)
{
    for (uint32_t i = 0; i < SLOTS; i++)
        b->expected[i] = b->got[i] = -1;
    for (uint32_t i = 0; i < b->count; i++) {
        const struct descriptor *local = &b->local[b->local_index[i]],
                                *remote = &b->remote[b->remote_index[i]];

        for (uint64_t k = 0; k < local->len; k++)
            b->expected[local->addr - 0x10000 + k] = (int32_t)(remote->addr - 0x90000 + k);
    }
}

static void piece_play(struct bytes_rig *b, const struct nxl_piece *p)
{
    const struct nxl_plan *plan = b->rig->plan;

    for (uint64_t row = 0; row < p->count; row++) {
        uint64_t local =
            plan->locals[p->local]->addr - 0x10000 + p->local_offset + row * p->local_stride;
        uint64_t remote =
            plan->remotes[p->remote]->addr - 0x90000 + p->remote_offset + row * p->remote_stride;

        assert_true(p->local_offset + row * p->local_stride + p->len <= REGION_SIZE);
        assert_true(p->remote_offset + row * p->remote_stride + p->len <= REGION_SIZE);
        for (uint64_t k = 0; k < p->len; k++) {
            assert_int_equal(b->got[local + k], -1); /* once */
            b->got[local + k] = (int32_t)(remote + k);
        }
    }
}

static void plan_check(struct bytes_rig *b, const struct nxl_backend_caps *caps)
{
    const struct nxl_plan *plan = b->rig->plan;
    uint64_t bytes = 0;

    expect(b);
    for (uint32_t i = 0; i < plan->piece_count; i++) {
        const struct nxl_piece *p = &plan->pieces[i],
                               *next = i + 1 < plan->piece_count ? p + 1 : NULL;

        assert_true(p->len > 0 && p->count > 0);
        assert_true(p->count == 1 || (caps->flags & NXL_CAP_STRIDED) != 0);
        assert_true(caps->piece_len_max == 0 || p->len <= caps->piece_len_max);
        if (next != NULL && caps->piece_len_max == 0 && (caps->flags & NXL_CAP_STRIDED) &&
            !b->rig->request.no_merge)
            assert_false(p->count == 1 && next->count == 1 && p->local == next->local &&
                         p->remote == next->remote &&
                         p->local_offset + p->len == next->local_offset &&
                         p->remote_offset + p->len == next->remote_offset);
        bytes += p->len * p->count;
        piece_play(b, p);
    }
    assert_int_equal(bytes, plan->bytes);
    assert_memory_equal(b->got, b->expected, sizeof(b->got));
}

static void one_round(struct bytes_rig *b, uint64_t seed)
{
    struct rig *rig = b->rig;
    struct nxl_backend_caps *caps = &rig->candidates[0].caps;
    int local_indexed = seed % 2 == 0, remote_indexed = seed / 2 % 2 == 0;
    int local_order = (int)(seed % 3 == 0 ? seed / 3 % 4 : 0),
        remote_order = (int)(seed % 5 == 0 ? seed / 5 % 4 : 0);

    b->random = random_seeded(seed);
    b->count = 1 + (uint32_t)random_below(&b->random, PAIRS_MAX);
    side_fill(b, b->local, NULL, 0x10000);
    order_fill(b, b->local_index, local_order);
    order_fill(b, b->remote_index, remote_order);
    { /* pair i joins local_index[i] and remote_index[i]: give the remote one that length */
        struct descriptor like[PAIRS_MAX];

        for (uint32_t i = 0; i < b->count; i++)
            like[b->remote_index[i]] = b->local[b->local_index[i]];
        side_fill(b, b->remote, like, 0x90000);
    }
    list_fill(b, &rig->local, b->local, b->local_index, local_indexed);
    list_fill(b, &rig->remote, b->remote, b->remote_index, remote_indexed);
    rig->request.local_index = local_indexed ? b->local_index : NULL;
    rig->request.remote_index = remote_indexed ? b->remote_index : NULL;
    for (int variant = 0; variant < 8; variant++) {
        caps->flags = NXL_CAP_REMOTE | (variant & 1 ? NXL_CAP_STRIDED : 0);
        caps->piece_len_max = variant & 2 ? 1 + random_below(&b->random, 24) : 0;
        rig->request.no_merge = (variant & 4) != 0;
        assert_int_equal(rig_plan(rig, b->count), NXL_OK);
        plan_check(b, caps);
    }
}

static void every_byte_goes_where_its_pair_says_once(void **state)
{
    struct bytes_rig *b = calloc(1, sizeof(*b));

    assert_non_null(b);
    b->rig = *state;
    (void)rig_candidate(b->rig, "any");
    for (uint64_t i = 0; i < REGIONS; i++) {
        (void)rig_region(&b->rig->local, 0x10000 + i * REGION_SIZE, REGION_SIZE);
        (void)rig_region(&b->rig->remote, 0x90000 + i * REGION_SIZE, REGION_SIZE);
    }
    for (uint64_t seed = 1; seed <= 240; seed++)
        one_round(b, seed);
    free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_byte_goes_where_its_pair_says_once, rig_open,
                                        rig_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
