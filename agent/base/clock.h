/* clock.h - monotonic time in nanoseconds. Tests may replace the source. */
#ifndef NXL_BASE_CLOCK_H
#define NXL_BASE_CLOCK_H

#include <stdint.h>

#define NXL_US 1000ull
#define NXL_MS 1000000ull
#define NXL_SEC 1000000000ull

typedef uint64_t nxl_clock_fn(void *arg);
uint64_t nxl_now_ns(void);  /* CLOCK_MONOTONIC, or the test's clock */
uint64_t nxl_unix_ms(void); /* CLOCK_REALTIME, for logs only; never compared between machines */
void nxl_clock_replace(nxl_clock_fn *fn, void *arg); /* tests; NULL restores */

#endif
