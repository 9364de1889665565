/* loop_inner.h - what loop.c and poller.c share; nobody else includes it. */
#ifndef NXL_BASE_LOOP_INNER_H
#define NXL_BASE_LOOP_INNER_H

#include "base/loop.h"

#include <uv.h>

struct nxl_loop {
    uv_loop_t uv;
    uv_async_t keep; /* never sent: a loop without work waits for stop instead of returning */
    uv_idle_t spin;  /* started while any poller is active: libuv then polls with no timeout */
    struct nxl_poller *pollers;
    unsigned active_pollers, spinning;
    int stopped;
};

#endif
