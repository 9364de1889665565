/* test_work.c - jobs run off the loop's thread and are done on it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>

#include "base/clock.h"
#include "base/loop.h"
#include "base/work.h"

#define JOBS 100

struct job {
    pthread_t worker, finisher;
    int worked, done;
};

static void work(void *arg)
{
    struct job *job = arg;

    job->worker = pthread_self();
    job->worked++;
}

static void done(void *arg)
{
    struct job *job = arg;

    job->finisher = pthread_self();
    job->done = job->worked; /* after the work */
}

static int all_done(void *arg)
{
    const struct job *jobs = arg;

    for (int i = 0; i < JOBS; i++)
        if (!jobs[i].done)
            return 0;
    return 1;
}

static void every_job_works_elsewhere_and_is_done_once_on_the_loop(void **state)
{
    static struct job jobs[JOBS];
    struct nxl_loop *loop;
    struct nxl_err err;

    assert_int_equal(nxl_loop_open(&loop, &err), NXL_OK);
    for (int i = 0; i < JOBS; i++)
        nxl_work_start(loop, work, done, &jobs[i]);
    for (int i = 0; i < JOBS; i++)
        assert_int_equal(jobs[i].done, 0); /* never from inside the call */
    assert_true(nxl_loop_run_until(loop, all_done, jobs, 10 * NXL_SEC));
    for (int i = 0; i < JOBS; i++) {
        assert_int_equal(jobs[i].done, 1);
        assert_false(pthread_equal(jobs[i].worker, pthread_self()));
        assert_true(pthread_equal(jobs[i].finisher, pthread_self()));
    }
    nxl_loop_close(loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_job_works_elsewhere_and_is_done_once_on_the_loop)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
