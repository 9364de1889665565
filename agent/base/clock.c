/* clock.c - the two clocks, and the door for a test's own. Any thread. */
#include "base/clock.h"
#include "base/assert.h"

#include <stdatomic.h>
#include <stddef.h>
#include <time.h>

static nxl_clock_fn *_Atomic clock_source;
static void *_Atomic clock_arg;

uint64_t nxl_now_ns(void)
{
    nxl_clock_fn *source = atomic_load_explicit(&clock_source, memory_order_acquire);
    struct timespec now;

    if (source)
        return source(atomic_load_explicit(&clock_arg, memory_order_relaxed));
    NXL_ASSERT(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return (uint64_t)now.tv_sec * NXL_SEC + (uint64_t)now.tv_nsec;
}

uint64_t nxl_unix_ms(void)
{
    struct timespec now;

    NXL_ASSERT(clock_gettime(CLOCK_REALTIME, &now) == 0);
    return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / NXL_MS;
}

void nxl_clock_replace(nxl_clock_fn *fn, void *arg)
{
    atomic_store_explicit(&clock_source, NULL, memory_order_release);
    atomic_store_explicit(&clock_arg, arg, memory_order_relaxed);
    atomic_store_explicit(&clock_source, fn, memory_order_release);
}
