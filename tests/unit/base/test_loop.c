/* test_loop.c - watches, timers, wakers and signals on a real loop. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/loop.h"
#include "base/mem.h"
#include "unit/base/dies.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE (20 * NXL_SEC)

static int loop_setup(void **state)
{
    struct nxl_loop *loop = NULL;

    if (nxl_loop_open(&loop, NULL) != NXL_OK)
        return -1;
    *state = loop;
    return 0;
}

static int loop_teardown(void **state)
{
    nxl_loop_close(*state);
    return 0;
}

struct calls {
    struct nxl_loop *loop;
    struct nxl_watch *watch;
    struct nxl_timer *timer;
    unsigned count, events, stop_at;
    uint64_t at_ns;
    int close_inside;
};

static int is_nonzero(void *arg)
{
    return *(unsigned *)arg > 0;
}

static int never(void *arg)
{
    return 0;
}

/* --- timers --- */

static uint64_t real_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NXL_SEC + (uint64_t)now.tv_nsec;
}

static void timer_counts(void *arg)
{
    struct calls *calls = arg;

    calls->count++;
    calls->at_ns = real_ns();
    if (calls->count == calls->stop_at && calls->close_inside)
        nxl_timer_close(calls->timer);
    else if (calls->count == calls->stop_at)
        nxl_timer_stop(calls->timer);
}

/* A deadline that comes early would find its transfer not due and be lost. */
static void a_timer_is_never_early(void **state)
{
    static const uint64_t delays_ns[] = {1,          NXL_US,        999 * NXL_US, NXL_MS,
                                         NXL_MS + 1, 2500 * NXL_US, 7 * NXL_MS};

    for (unsigned round = 0; round < 5; round++) {
        for (size_t i = 0; i < NXL_COUNT_OF(delays_ns); i++) {
            struct calls calls = {0};
            struct nxl_timer *timer = nxl_timer_open(*state, timer_counts, &calls);
            uint64_t start_ns = real_ns();

            nxl_timer_start(timer, delays_ns[i], 0);
            assert_true(nxl_loop_run_until(*state, is_nonzero, &calls.count, PATIENCE));
            assert_true(calls.at_ns - start_ns >= delays_ns[i]);
            nxl_timer_close(timer);
        }
    }
}

static void a_repeating_timer_stops_when_told_inside_its_callback(void **state)
{
    struct calls calls = {.stop_at = 3};

    calls.timer = nxl_timer_open(*state, timer_counts, &calls);
    nxl_timer_start(calls.timer, 0, NXL_MS);
    assert_false(nxl_loop_run_until(*state, never, NULL, 60 * NXL_MS));
    assert_int_equal(calls.count, 3);
    nxl_timer_close(calls.timer);
}

static void a_timer_may_close_itself(void **state)
{
    struct calls calls = {.stop_at = 1, .close_inside = 1};

    calls.timer = nxl_timer_open(*state, timer_counts, &calls);
    nxl_timer_start(calls.timer, 0, NXL_MS);
    assert_false(nxl_loop_run_until(*state, never, NULL, 30 * NXL_MS));
    assert_int_equal(calls.count, 1);
}

static void a_timer_started_again_forgets_its_first_time(void **state)
{
    struct calls early = {0}, late = {0};
    struct nxl_timer *timer = nxl_timer_open(*state, timer_counts, &early);
    struct nxl_timer *end = nxl_timer_open(*state, timer_counts, &late);

    nxl_timer_start(timer, NXL_MS, 0);
    nxl_timer_start(timer, UINT64_MAX, 0); /* the end of time, not an overflow */
    nxl_timer_start(end, 20 * NXL_MS, 0);
    assert_true(nxl_loop_run_until(*state, is_nonzero, &late.count, PATIENCE));
    assert_int_equal(early.count, 0);
    nxl_timer_close(timer);
    nxl_timer_close(end);
    nxl_timer_close(NULL);
}

/* --- descriptors --- */

static void watch_counts(void *arg, int fd, unsigned events)
{
    struct calls *calls = arg;

    calls->count++;
    calls->events |= events;
    if (calls->close_inside) {
        nxl_watch_close(calls->watch);
        (void)close(fd);
    }
}

static void a_readable_descriptor_is_reported_until_paused(void **state)
{
    struct calls calls = {0};
    struct nxl_err err = {0};
    unsigned seen;
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(
        nxl_watch_open(*state, pair[0], NXL_WATCH_READ, watch_counts, &calls, &calls.watch, &err),
        NXL_OK);
    assert_false(nxl_loop_run_until(*state, is_nonzero, &calls.count, 15 * NXL_MS));
    assert_int_equal(write(pair[1], "x", 1), 1);
    assert_true(nxl_loop_run_until(*state, is_nonzero, &calls.count, PATIENCE));
    assert_int_equal(calls.events, NXL_WATCH_READ);
    nxl_watch_change(calls.watch, 0);
    seen = calls.count;
    assert_false(nxl_loop_run_until(*state, never, NULL, 15 * NXL_MS));
    assert_int_equal(calls.count, seen);
    calls.count = 0;
    nxl_watch_change(calls.watch, NXL_WATCH_READ | NXL_WATCH_WRITE);
    assert_true(nxl_loop_run_until(*state, is_nonzero, &calls.count, PATIENCE));
    assert_int_equal(calls.events, NXL_WATCH_READ | NXL_WATCH_WRITE);
    nxl_watch_close(calls.watch);
    nxl_watch_close(NULL);
    close(pair[0]);
    close(pair[1]);
}

static void a_watch_may_close_itself_and_its_descriptor(void **state)
{
    struct calls calls = {.close_inside = 1};
    struct nxl_err err = {0};
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(
        nxl_watch_open(*state, pair[0], NXL_WATCH_WRITE, watch_counts, &calls, &calls.watch, &err),
        NXL_OK);
    assert_false(nxl_loop_run_until(*state, never, NULL, 15 * NXL_MS));
    assert_int_equal(calls.count, 1);
    close(pair[1]);
}

/* libuv stops a watch that reports an error; what it must not do is report it for ever or not at
 * all. */
static void an_error_is_reported_once_and_the_watch_rests(void **state)
{
    struct calls calls = {0};
    struct nxl_err err = {0};
    int ends[2];
    char page[4096];

    assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    memset(page, 0, sizeof(page));
    while (write(ends[1], page, sizeof(page)) > 0)
        ;
    assert_int_equal(
        nxl_watch_open(*state, ends[1], NXL_WATCH_WRITE, watch_counts, &calls, &calls.watch, &err),
        NXL_OK);
    assert_false(nxl_loop_run_until(*state, is_nonzero, &calls.count, 15 * NXL_MS));
    close(ends[0]);
    assert_true(nxl_loop_run_until(*state, is_nonzero, &calls.count, PATIENCE));
    assert_false(nxl_loop_run_until(*state, never, NULL, 15 * NXL_MS));
    assert_int_equal(calls.events, NXL_WATCH_ERROR);
    assert_int_equal(calls.count, 1);
    nxl_watch_change(calls.watch,
                     NXL_WATCH_WRITE); /* the same as before the error, yet it starts */
    calls.count = 0;
    assert_true(nxl_loop_run_until(*state, is_nonzero, &calls.count, PATIENCE));
    nxl_watch_close(calls.watch);
    close(ends[1]);
}

static void the_end_of_a_stream_is_readable(void **state)
{
    struct calls calls = {0};
    struct nxl_err err = {0};
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(
        nxl_watch_open(*state, pair[0], NXL_WATCH_READ, watch_counts, &calls, &calls.watch, &err),
        NXL_OK);
    close(pair[1]);
    assert_true(nxl_loop_run_until(*state, is_nonzero, &calls.count, PATIENCE));
    assert_int_equal(calls.events, NXL_WATCH_READ);
    nxl_watch_close(calls.watch);
    close(pair[0]);
}

static void what_cannot_be_watched_is_refused_with_its_number(void **state)
{
    struct calls calls = {0};
    struct nxl_watch *watch = NULL, *second = NULL;
    struct nxl_err err = {0};
    int file = open("/etc/passwd", O_RDONLY | O_CLOEXEC), pair[2];

    assert_true(file >= 0);
    assert_int_equal(
        nxl_watch_open(*state, file, NXL_WATCH_READ, watch_counts, &calls, &watch, &err), NXL_IO);
    assert_null(watch);
    assert_non_null(strstr(err.text, "watch descriptor"));
    close(file);
    assert_int_equal(
        nxl_watch_open(*state, 9999, NXL_WATCH_READ, watch_counts, &calls, &watch, &err), NXL_IO);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(
        nxl_watch_open(*state, pair[0], NXL_WATCH_READ, watch_counts, &calls, &watch, &err),
        NXL_OK);
    assert_int_equal(
        nxl_watch_open(*state, pair[0], NXL_WATCH_READ, watch_counts, &calls, &second, &err),
        NXL_IO);
    assert_null(second);
    nxl_watch_close(watch);
    close(pair[0]);
    close(pair[1]);
}

/* --- wakers --- */

#define WAKE_THREADS 4u
#define WAKES_PER_THREAD 2000u

struct wakes {
    struct nxl_waker *waker;
    atomic_uint sent;
    unsigned seen, calls;
};

static void waker_counts(void *arg)
{
    struct wakes *wakes = arg;

    wakes->calls++;
    wakes->seen = atomic_load_explicit(&wakes->sent, memory_order_relaxed);
}

static void *wake_often(void *arg)
{
    struct wakes *wakes = arg;

    for (unsigned i = 0; i < WAKES_PER_THREAD; i++) {
        atomic_fetch_add_explicit(&wakes->sent, 1, memory_order_relaxed);
        nxl_waker_wake(wakes->waker);
    }
    return NULL;
}

static int all_wakes_seen(void *arg)
{
    return ((struct wakes *)arg)->seen == WAKE_THREADS * WAKES_PER_THREAD;
}

/* A result that another thread published before waking is seen by the call that follows. */
static void the_last_wake_is_never_lost(void **state)
{
    struct wakes wakes = {0};
    pthread_t threads[WAKE_THREADS];

    wakes.waker = nxl_waker_open(*state, waker_counts, &wakes);
    for (unsigned i = 0; i < WAKE_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, wake_often, &wakes), 0);
    assert_true(nxl_loop_run_until(*state, all_wakes_seen, &wakes, PATIENCE));
    for (unsigned i = 0; i < WAKE_THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_true(wakes.calls <= WAKE_THREADS * WAKES_PER_THREAD);
    nxl_waker_close(wakes.waker);
    nxl_waker_close(NULL);
}

static void wakes_before_the_loop_runs_are_merged(void **state)
{
    struct wakes wakes = {0};

    wakes.waker = nxl_waker_open(*state, waker_counts, &wakes);
    for (unsigned i = 0; i < 100; i++)
        nxl_waker_wake(wakes.waker);
    assert_true(nxl_loop_run_until(*state, is_nonzero, &wakes.calls, PATIENCE));
    assert_int_equal(wakes.calls, 1);
    nxl_waker_close(wakes.waker);
}

static void waker_wakes_again(void *arg)
{
    struct wakes *wakes = arg;

    if (++wakes->calls < 3)
        nxl_waker_wake(wakes->waker);
}

static int three_calls(void *arg)
{
    return ((struct wakes *)arg)->calls == 3;
}

static void a_wake_inside_the_callback_leads_to_another_call(void **state)
{
    struct wakes wakes = {0};

    wakes.waker = nxl_waker_open(*state, waker_wakes_again, &wakes);
    nxl_waker_wake(wakes.waker);
    assert_true(nxl_loop_run_until(*state, three_calls, &wakes, PATIENCE));
    nxl_waker_close(wakes.waker);
}

/* --- running and ending --- */

static void signal_stops(void *arg)
{
    struct calls *calls = arg;

    calls->count++;
    nxl_loop_stop(calls->loop);
}

static void a_signal_arrives_on_the_loop_and_may_stop_it(void **state)
{
    struct calls calls = {.loop = *state};
    struct nxl_signal *sig = nxl_signal_open(*state, SIGUSR1, signal_stops, &calls);

    assert_int_equal(raise(SIGUSR1), 0);
    nxl_loop_run(*state);
    assert_int_equal(calls.count, 1);
    nxl_signal_close(sig);
    nxl_signal_close(NULL);
}

static void timer_stops(void *arg)
{
    nxl_loop_stop(arg);
}

static void a_stopped_loop_can_run_again(void **state)
{
    struct nxl_timer *timer = nxl_timer_open(*state, timer_stops, *state);

    for (unsigned i = 0; i < 3; i++) {
        nxl_timer_start(timer, NXL_MS, 0);
        nxl_loop_run(*state);
    }
    nxl_timer_close(timer);
    assert_non_null(nxl_loop_uv(*state));
}

static void close_with_an_open_timer(const void *arg)
{
    struct nxl_loop *loop = NULL;

    if (nxl_loop_open(&loop, NULL) != NXL_OK)
        _exit(0);
    if (arg)
        nxl_timer_close(nxl_timer_open(loop, timer_stops, loop));
    else
        (void)nxl_timer_open(loop, timer_stops, loop);
    nxl_loop_close(loop);
}

static void closing_the_loop_finds_what_was_left_open(void **state)
{
    assert_int_equal(dies_of(close_with_an_open_timer, NULL), SIGABRT);
    assert_int_equal(dies_of(close_with_an_open_timer, ""), 0);
}

static unsigned count_fds(void)
{
    unsigned count = 0;

    for (int fd = 0; fd < 256; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static void a_loop_gives_all_its_descriptors_back(void **state)
{
    struct nxl_loop *loop = NULL;
    unsigned before = count_fds();

    nxl_loop_close(NULL);
    for (unsigned i = 0; i < 10; i++) {
        assert_int_equal(nxl_loop_open(&loop, NULL), NXL_OK);
        assert_true(count_fds() > before);
        nxl_timer_close(nxl_timer_open(loop, timer_stops, loop));
        nxl_waker_close(nxl_waker_open(loop, timer_stops, loop));
        nxl_loop_close(loop);
    }
    /* libuv keeps one pipe for signals per process. */
    assert_true(count_fds() <= before + 2);
}

#define LOOP_TEST(name) cmocka_unit_test_setup_teardown(name, loop_setup, loop_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closing_the_loop_finds_what_was_left_open),
        LOOP_TEST(a_timer_is_never_early),
        LOOP_TEST(a_repeating_timer_stops_when_told_inside_its_callback),
        LOOP_TEST(a_timer_may_close_itself),
        LOOP_TEST(a_timer_started_again_forgets_its_first_time),
        LOOP_TEST(a_readable_descriptor_is_reported_until_paused),
        LOOP_TEST(a_watch_may_close_itself_and_its_descriptor),
        LOOP_TEST(an_error_is_reported_once_and_the_watch_rests),
        LOOP_TEST(the_end_of_a_stream_is_readable),
        LOOP_TEST(what_cannot_be_watched_is_refused_with_its_number),
        LOOP_TEST(the_last_wake_is_never_lost),
        LOOP_TEST(wakes_before_the_loop_runs_are_merged),
        LOOP_TEST(a_wake_inside_the_callback_leads_to_another_call),
        LOOP_TEST(a_signal_arrives_on_the_loop_and_may_stop_it),
        LOOP_TEST(a_stopped_loop_can_run_again),
        cmocka_unit_test(a_loop_gives_all_its_descriptors_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
