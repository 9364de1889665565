/* cost.c - the estimate by which plan.c compares backends. Pure. */
#include "plan/cost.h"

static uint64_t product(uint64_t a, uint64_t b)
{
    uint64_t result;

    return __builtin_mul_overflow(a, b, &result) ? UINT64_MAX : result;
}

static uint64_t sum(uint64_t a, uint64_t b)
{
    uint64_t result;

    return __builtin_add_overflow(a, b, &result) ? UINT64_MAX : result;
}

uint64_t nxl_cost_ns(const struct nxl_backend_caps *caps, uint64_t pieces, uint64_t bytes)
{
    uint64_t cost = sum(caps->op_ns, product(pieces, caps->piece_ns));

    cost = sum(cost, product(bytes / 1024, caps->kib_ns));
    return sum(cost, product(bytes % 1024, caps->kib_ns) / 1024);
}
