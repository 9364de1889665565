/* loop.c - watches, timers, wakers and signals over libuv. One thread runs the loop and calls
 * everything here except nxl_waker_wake(). Wrappers are freed in libuv's close callbacks. */
#include "base/loop_inner.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdatomic.h>
#include <stdlib.h>

#define TICK_MS 10u /* of nxl_loop_run_until(): done() may depend on a thread that wakes nobody */

struct nxl_watch {
    uv_poll_t uv;
    nxl_watch_fn *fn;
    void *arg;
    int fd;
    unsigned events; /* what libuv watches now */
};

struct nxl_timer {
    uv_timer_t uv;
    nxl_timer_fn *fn;
    void *arg;
};

struct nxl_waker {
    uv_async_t uv;
    nxl_timer_fn *fn;
    void *arg;
    /* Set by any thread: merges wakes before the system call, and orders what the waker published
     * before what the callback reads. */
    atomic_int pending;
};

struct nxl_signal {
    uv_signal_t uv;
    nxl_timer_fn *fn;
    void *arg;
};

static void keep_on_wake(uv_async_t *async)
{
    (void)async;
}

enum nxl_code nxl_loop_open(struct nxl_loop **ret, struct nxl_err *err)
{
    struct nxl_loop *loop = nxl_new0(sizeof(*loop));
    int status = uv_loop_init(&loop->uv);

    if (status < 0) {
        free(loop);
        return nxl_err_set(err, NXL_IO, -status, "open the event loop");
    }
    status = uv_async_init(&loop->uv, &loop->keep, keep_on_wake);
    if (status < 0) {
        NXL_ASSERT(uv_loop_close(&loop->uv) == 0);
        free(loop);
        return nxl_err_set(err, NXL_IO, -status, "open the event loop's wake-up");
    }
    NXL_ASSERT(uv_idle_init(&loop->uv, &loop->spin) == 0);
    *ret = loop;
    return NXL_OK;
}

struct census {
    unsigned closing, open;
};

static void census_count(uv_handle_t *handle, void *arg)
{
    struct census *census = arg;

    if (uv_is_closing(handle))
        census->closing++;
    else
        census->open++;
}

static void open_handle_report(uv_handle_t *handle, void *arg)
{
    (void)arg;
    nxl_error("loop", "event=\"still open at close\" kind=%s handle=%p",
              uv_handle_type_name(handle->type), (void *)handle);
}

void nxl_loop_close(struct nxl_loop *loop)
{
    struct census census;

    if (!loop)
        return;
    uv_close((uv_handle_t *)&loop->keep, NULL);
    uv_close((uv_handle_t *)&loop->spin, NULL);
    for (;;) { /* a close callback may close more */
        census = (struct census){0};
        uv_walk(&loop->uv, census_count, &census);
        if (census.closing == 0)
            break;
        (void)uv_run(&loop->uv, UV_RUN_NOWAIT);
    }
    if (census.open > 0)
        uv_walk(&loop->uv, open_handle_report, NULL);
    NXL_ASSERT(census.open == 0);
    (void)uv_run(&loop->uv, UV_RUN_DEFAULT); /* thread pool work that nobody waits for any more */
    NXL_ASSERT(uv_loop_close(&loop->uv) == 0);
    NXL_ASSERT(loop->pollers == NULL);
    free(loop);
}

void nxl_loop_run(struct nxl_loop *loop)
{
    while (!loop->stopped)
        (void)uv_run(&loop->uv, UV_RUN_DEFAULT);
    loop->stopped = 0;
}

void nxl_loop_stop(struct nxl_loop *loop)
{
    loop->stopped = 1;
    uv_stop(&loop->uv);
}

static void tick_on_timer(void *arg)
{
    (void)arg;
}

/* Real time, even under a test's clock: the deadline is there to end a test that hangs. */
int nxl_loop_run_until(struct nxl_loop *loop, int (*done)(void *arg), void *arg,
                       uint64_t timeout_ns)
{
    struct nxl_timer *tick = nxl_timer_open(loop, tick_on_timer, NULL);
    uint64_t start_ns = uv_hrtime();
    int result;

    nxl_timer_start(tick, TICK_MS * NXL_MS, TICK_MS * NXL_MS);
    for (;;) {
        result = done(arg);
        if (result || loop->stopped || uv_hrtime() - start_ns >= timeout_ns)
            break;
        (void)uv_run(&loop->uv, UV_RUN_ONCE);
    }
    nxl_timer_close(tick);
    return result;
}

struct uv_loop_s *nxl_loop_uv(struct nxl_loop *loop)
{
    return &loop->uv;
}

static void handle_on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

/* --- descriptors --- */

static void watch_on_ready(uv_poll_t *uv, int status, int ready)
{
    struct nxl_watch *watch = uv->data;
    unsigned events = 0;

    if (status < 0) {
        watch->events = 0; /* libuv has stopped it: an error would otherwise repeat for ever */
        watch->fn(watch->arg, watch->fd, NXL_WATCH_ERROR);
        return;
    }
    if (ready & UV_READABLE)
        events |= NXL_WATCH_READ;
    if (ready & UV_WRITABLE)
        events |= NXL_WATCH_WRITE;
    if (events)
        watch->fn(watch->arg, watch->fd, events);
}

static int watch_start(struct nxl_watch *watch, unsigned events)
{
    int wanted = 0;

    if (events & NXL_WATCH_READ)
        wanted |= UV_READABLE;
    if (events & NXL_WATCH_WRITE)
        wanted |= UV_WRITABLE;
    watch->events = events;
    return wanted ? uv_poll_start(&watch->uv, wanted, watch_on_ready) : uv_poll_stop(&watch->uv);
}

enum nxl_code nxl_watch_open(struct nxl_loop *loop, int fd, unsigned events, nxl_watch_fn *fn,
                             void *arg, struct nxl_watch **ret, struct nxl_err *err)
{
    struct nxl_watch *watch = nxl_new0(sizeof(*watch));
    int status = uv_poll_init(&loop->uv, &watch->uv, fd);

    if (status < 0) {
        free(watch);
        return nxl_err_set(err, NXL_IO, -status, "watch descriptor %d", fd);
    }
    watch->uv.data = watch;
    watch->fn = fn;
    watch->arg = arg;
    watch->fd = fd;
    NXL_ASSERT(watch_start(watch, events) == 0);
    *ret = watch;
    return NXL_OK;
}

void nxl_watch_change(struct nxl_watch *watch, unsigned events)
{
    NXL_ASSERT(!uv_is_closing((uv_handle_t *)&watch->uv));
    if (events != watch->events)
        NXL_ASSERT(watch_start(watch, events) == 0);
}

void nxl_watch_close(struct nxl_watch *watch)
{
    if (watch)
        uv_close((uv_handle_t *)&watch->uv, handle_on_closed);
}

/* --- timers --- */

struct nxl_timer *nxl_timer_open(struct nxl_loop *loop, nxl_timer_fn *fn, void *arg)
{
    struct nxl_timer *timer = nxl_new0(sizeof(*timer));

    NXL_ASSERT(uv_timer_init(&loop->uv, &timer->uv) == 0);
    timer->uv.data = timer;
    timer->fn = fn;
    timer->arg = arg;
    return timer;
}

static void timer_on_due(uv_timer_t *uv)
{
    struct nxl_timer *timer = uv->data;

    timer->fn(timer->arg);
}

static uint64_t ms_rounded_up(uint64_t ns)
{
    return ns / NXL_MS + (ns % NXL_MS ? 1 : 0);
}

/* libuv counts from the time at which the turn began, in whole ms; counted from there the timer
 * would be early by what the turn has taken so far. */
void nxl_timer_start(struct nxl_timer *timer, uint64_t delay_ns, uint64_t repeat_ns)
{
    uint64_t delay_ms = 0;

    NXL_ASSERT(!uv_is_closing((uv_handle_t *)&timer->uv));
    if (delay_ns > 0) {
        uint64_t now_ns = uv_hrtime(), turn_ms = uv_now(timer->uv.loop);

        if (delay_ns > UINT64_MAX / 2 - now_ns)
            delay_ns = UINT64_MAX / 2 - now_ns;
        delay_ms = ms_rounded_up(now_ns + delay_ns) - turn_ms;
    }
    NXL_ASSERT(uv_timer_start(&timer->uv, timer_on_due, delay_ms, ms_rounded_up(repeat_ns)) == 0);
}

void nxl_timer_stop(struct nxl_timer *timer)
{
    (void)uv_timer_stop(&timer->uv); /* always 0 */
}

void nxl_timer_close(struct nxl_timer *timer)
{
    if (timer)
        uv_close((uv_handle_t *)&timer->uv, handle_on_closed);
}

/* --- wakers --- */

static void waker_on_wake(uv_async_t *uv)
{
    struct nxl_waker *waker = uv->data;

    /* Cleared before the callback: a wake during it leads to another one. */
    if (atomic_exchange_explicit(&waker->pending, 0, memory_order_acq_rel))
        waker->fn(waker->arg);
}

struct nxl_waker *nxl_waker_open(struct nxl_loop *loop, nxl_timer_fn *fn, void *arg)
{
    struct nxl_waker *waker = nxl_new0(sizeof(*waker));

    NXL_ASSERT(uv_async_init(&loop->uv, &waker->uv, waker_on_wake) == 0);
    waker->uv.data = waker;
    waker->fn = fn;
    waker->arg = arg;
    return waker;
}

void nxl_waker_wake(struct nxl_waker *waker)
{
    if (!atomic_exchange_explicit(&waker->pending, 1, memory_order_acq_rel))
        NXL_ASSERT(uv_async_send(&waker->uv) == 0);
}

void nxl_waker_close(struct nxl_waker *waker)
{
    if (waker)
        uv_close((uv_handle_t *)&waker->uv, handle_on_closed);
}

/* --- signals --- */

static void signal_on_arrival(uv_signal_t *uv, int signum)
{
    struct nxl_signal *signal = uv->data;

    (void)signum;
    signal->fn(signal->arg);
}

struct nxl_signal *nxl_signal_open(struct nxl_loop *loop, int signum, nxl_timer_fn *fn, void *arg)
{
    struct nxl_signal *signal = nxl_new0(sizeof(*signal));

    NXL_ASSERT(uv_signal_init(&loop->uv, &signal->uv) == 0);
    signal->uv.data = signal;
    signal->fn = fn;
    signal->arg = arg;
    NXL_ASSERT(uv_signal_start(&signal->uv, signal_on_arrival, signum) == 0);
    return signal;
}

void nxl_signal_close(struct nxl_signal *signal)
{
    if (signal)
        uv_close((uv_handle_t *)&signal->uv, handle_on_closed);
}
