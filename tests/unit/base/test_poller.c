/* test_poller.c - busy polling: when it starts, when it rests, who is served meanwhile. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/loop.h"

#include <fcntl.h>
#include <unistd.h>

#define PATIENCE (20 * NXL_SEC)
#define IDLE_NS (50 * NXL_US)

struct rig {
    struct nxl_loop *loop;
    struct nxl_poller *poller, *other;
    uint64_t now_ns, step_ns; /* the fake clock moves by step_ns per look */
    unsigned polls, idles, served;
    unsigned work_left; /* polls that find work */
    unsigned stay;      /* on_idle calls that ask to stay active */
    int close_at, close_other;
};

static uint64_t rig_now(void *arg)
{
    struct rig *rig = arg;

    rig->now_ns += rig->step_ns;
    return rig->now_ns;
}

static int rig_setup(void **state)
{
    static struct rig rig;

    rig = (struct rig){.now_ns = NXL_SEC, .close_at = -1};
    *state = &rig;
    nxl_clock_replace(rig_now, &rig);
    return nxl_loop_open(&rig.loop, NULL) == NXL_OK ? 0 : -1;
}

static int rig_teardown(void **state)
{
    struct rig *rig = *state;

    nxl_poller_close(rig->poller);
    nxl_poller_close(rig->other);
    nxl_loop_close(rig->loop);
    nxl_clock_replace(NULL, NULL);
    return 0;
}

static int rig_poll(void *arg)
{
    struct rig *rig = arg;

    if ((int)++rig->polls == rig->close_at) {
        nxl_poller_close(rig->close_other ? rig->other : rig->poller);
        if (rig->close_other)
            rig->other = NULL;
        else
            rig->poller = NULL;
    }
    if (rig->work_left == 0)
        return 0;
    rig->work_left--;
    return 1;
}

static int rig_idle(void *arg)
{
    struct rig *rig = arg;

    rig->idles++;
    if (rig->stay == 0)
        return 0;
    rig->stay--;
    return 1;
}

static int at_rest(void *arg)
{
    struct rig *rig = arg;

    return !rig->poller || !nxl_poller_active(rig->poller);
}

static int was_served(void *arg)
{
    return ((struct rig *)arg)->served > 0;
}

static int never(void *arg)
{
    return 0;
}

static void a_poller_rests_until_it_is_activated(void **state)
{
    struct rig *rig = *state;

    rig->poller = nxl_poller_open(rig->loop, rig_poll, rig_idle, rig, IDLE_NS);
    assert_false(nxl_poller_active(rig->poller));
    assert_false(nxl_loop_run_until(rig->loop, never, NULL, 15 * NXL_MS));
    assert_int_equal(rig->polls, 0);
}

static void a_poller_without_work_rests_after_its_idle_time(void **state)
{
    struct rig *rig = *state;
    unsigned polls;

    rig->step_ns = 5 * NXL_US; /* two looks per turn: five turns make the idle time */
    rig->poller = nxl_poller_open(rig->loop, rig_poll, rig_idle, rig, IDLE_NS);
    nxl_poller_activate(rig->poller);
    assert_true(nxl_poller_active(rig->poller));
    assert_true(nxl_loop_run_until(rig->loop, at_rest, rig, PATIENCE));
    assert_int_equal(rig->idles, 1);
    assert_int_equal(rig->polls, 5 * 32);
    polls = rig->polls;
    assert_false(nxl_loop_run_until(rig->loop, never, NULL, 15 * NXL_MS));
    assert_int_equal(rig->polls, polls);
    nxl_poller_activate(rig->poller);
    assert_true(nxl_loop_run_until(rig->loop, at_rest, rig, PATIENCE));
    assert_int_equal(rig->idles, 2);
}

static void work_puts_the_idle_time_off(void **state)
{
    struct rig *rig = *state;

    rig->step_ns = IDLE_NS; /* one turn without work would be enough */
    rig->work_left = 80;
    rig->poller = nxl_poller_open(rig->loop, rig_poll, NULL, rig, IDLE_NS);
    nxl_poller_activate(rig->poller);
    assert_true(nxl_loop_run_until(rig->loop, at_rest, rig, PATIENCE));
    assert_int_equal(rig->work_left, 0);
    assert_int_equal(rig->polls, 80 + 32);
}

static int resting_poll(void *arg)
{
    struct rig *rig = arg;

    nxl_poller_rest(rig->poller);
    return rig_poll(rig);
}

static void a_poller_that_asks_for_rest_does_not_spin(void **state)
{
    struct rig *rig = *state;

    rig->step_ns = 10 * NXL_US; /* five turns would make the idle time */
    rig->work_left = 3;
    rig->poller = nxl_poller_open(rig->loop, resting_poll, rig_idle, rig, IDLE_NS);
    nxl_poller_activate(rig->poller);
    assert_true(nxl_loop_run_until(rig->loop, at_rest, rig, PATIENCE));
    assert_int_equal(rig->work_left, 0);
    assert_int_equal(rig->idles, 1);
    assert_true(rig->polls <= 32); /* one turn */
    rig->work_left = 200; /* more than a turn does: rest is taken from a poller that works */
    rig->stay = 100;
    nxl_poller_activate(rig->poller);
    assert_true(nxl_loop_run_until(rig->loop, at_rest, rig, PATIENCE));
    assert_int_equal(rig->work_left, 0);
}

static void on_idle_may_ask_to_stay_active(void **state)
{
    struct rig *rig = *state;

    rig->step_ns = IDLE_NS;
    rig->stay = 3;
    rig->poller = nxl_poller_open(rig->loop, rig_poll, rig_idle, rig, IDLE_NS);
    nxl_poller_activate(rig->poller);
    assert_true(nxl_loop_run_until(rig->loop, at_rest, rig, PATIENCE));
    assert_int_equal(rig->idles, 4);
}

static int idle_activates(void *arg)
{
    struct rig *rig = arg;

    if (++rig->idles == 1)
        nxl_poller_activate(rig->poller);
    return 0;
}

/* Parking and an arrival may cross: the arrival wins. */
static void an_activation_inside_on_idle_is_not_undone(void **state)
{
    struct rig *rig = *state;

    rig->step_ns = IDLE_NS;
    rig->poller = nxl_poller_open(rig->loop, rig_poll, idle_activates, rig, IDLE_NS);
    nxl_poller_activate(rig->poller);
    assert_true(nxl_loop_run_until(rig->loop, at_rest, rig, PATIENCE));
    assert_int_equal(rig->idles, 2);
}

static void serve_timer(void *arg)
{
    ((struct rig *)arg)->served |= 1;
}

static void serve_watch(void *arg, int fd, unsigned events)
{
    ((struct rig *)arg)->served |= 2;
}

static void serve_waker(void *arg)
{
    ((struct rig *)arg)->served |= 4;
}

static int all_served(void *arg)
{
    return ((struct rig *)arg)->served == 7;
}

static int long_poll(void *arg)
{
    struct rig *rig = arg;

    rig->polls++;
    rig->now_ns += 2 * NXL_MS;
    return 1;
}

/* One round can be a client's longest post: it is not followed by seven more before a descriptor
 * gets its look. */
static void a_round_that_takes_long_is_the_last_of_its_turn(void **state)
{
    struct rig *rig = *state;
    struct nxl_watch *watch;
    struct nxl_err err = {0};
    int pipes[2];

    assert_int_equal(pipe2(pipes, O_CLOEXEC | O_NONBLOCK), 0);
    assert_int_equal(write(pipes[1], "x", 1), 1);
    assert_int_equal(
        nxl_watch_open(rig->loop, pipes[0], NXL_WATCH_READ, serve_watch, rig, &watch, &err),
        NXL_OK);
    rig->poller = nxl_poller_open(rig->loop, long_poll, NULL, rig, IDLE_NS);
    nxl_poller_activate(rig->poller);
    assert_true(nxl_loop_run_until(rig->loop, was_served, rig, PATIENCE));
    assert_in_range(rig->polls, 0, 2);
    nxl_watch_close(watch);
    close(pipes[0]);
    close(pipes[1]);
}

static void a_poller_that_always_finds_work_starves_nobody(void **state)
{
    struct rig *rig = *state;
    struct nxl_timer *timer = nxl_timer_open(rig->loop, serve_timer, rig);
    struct nxl_waker *waker = nxl_waker_open(rig->loop, serve_waker, rig);
    struct nxl_watch *watch = NULL;
    int ends[2];

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_int_equal(
        nxl_watch_open(rig->loop, ends[0], NXL_WATCH_READ, serve_watch, rig, &watch, NULL), NXL_OK);
    rig->work_left = UINT32_MAX;
    rig->poller = nxl_poller_open(rig->loop, rig_poll, NULL, rig, IDLE_NS);
    nxl_poller_activate(rig->poller);
    nxl_timer_start(timer, NXL_MS, 0);
    nxl_waker_wake(waker);
    assert_true(nxl_loop_run_until(rig->loop, all_served, rig, PATIENCE));
    assert_true(nxl_poller_active(rig->poller));
    assert_true(rig->polls > 0);
    nxl_watch_close(watch);
    nxl_waker_close(waker);
    nxl_timer_close(timer);
    close(ends[0]);
    close(ends[1]);
}

static void a_poller_may_close_itself(void **state)
{
    struct rig *rig = *state;

    rig->close_at = 5;
    rig->poller = nxl_poller_open(rig->loop, rig_poll, NULL, rig, IDLE_NS);
    nxl_poller_activate(rig->poller);
    assert_true(nxl_loop_run_until(rig->loop, at_rest, rig, PATIENCE));
    assert_false(nxl_loop_run_until(rig->loop, never, NULL, 15 * NXL_MS));
    assert_int_equal(rig->polls, 5);
}

static int count_served(void *arg)
{
    ((struct rig *)arg)->served++;
    return 0;
}

/* Once with the closed one later in the walk, once with it earlier. */
static void a_poller_may_close_another(void **state)
{
    for (int order = 0; order < 2; order++) {
        struct rig *rig = *state;
        unsigned served;

        rig->polls = 0;
        rig->close_at = 5;
        rig->close_other = 1;
        if (order == 0)
            rig->other = nxl_poller_open(rig->loop, count_served, NULL, rig, IDLE_NS);
        rig->poller = nxl_poller_open(rig->loop, rig_poll, NULL, rig, IDLE_NS);
        if (order == 1)
            rig->other = nxl_poller_open(rig->loop, count_served, NULL, rig, IDLE_NS);
        nxl_poller_activate(rig->poller);
        nxl_poller_activate(rig->other);
        rig->served = 0;
        assert_true(nxl_loop_run_until(rig->loop, was_served, rig, PATIENCE));
        assert_null(rig->other);
        served = rig->served;
        assert_false(nxl_loop_run_until(rig->loop, never, NULL, 5 * NXL_MS));
        assert_int_equal(rig->served, served);
        nxl_poller_close(rig->poller);
        rig->poller = NULL;
    }
}

static int stop_loop(void *arg)
{
    struct rig *rig = arg;

    if (++rig->polls == 3)
        nxl_loop_stop(rig->loop);
    return 1;
}

static void stopping_inside_a_poll_ends_the_run_at_once(void **state)
{
    struct rig *rig = *state;

    rig->poller = nxl_poller_open(rig->loop, stop_loop, NULL, rig, IDLE_NS);
    nxl_poller_activate(rig->poller);
    nxl_loop_run(rig->loop);
    assert_int_equal(rig->polls, 3);
    nxl_poller_close(NULL);
}

#define RIG_TEST(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(a_poller_rests_until_it_is_activated),
        RIG_TEST(a_poller_without_work_rests_after_its_idle_time),
        RIG_TEST(work_puts_the_idle_time_off),
        RIG_TEST(a_poller_that_asks_for_rest_does_not_spin),
        RIG_TEST(on_idle_may_ask_to_stay_active),
        RIG_TEST(an_activation_inside_on_idle_is_not_undone),
        RIG_TEST(a_round_that_takes_long_is_the_last_of_its_turn),
        RIG_TEST(a_poller_that_always_finds_work_starves_nobody),
        RIG_TEST(a_poller_may_close_itself),
        RIG_TEST(a_poller_may_close_another),
        RIG_TEST(stopping_inside_a_poll_ends_the_run_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
