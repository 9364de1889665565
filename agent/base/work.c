/* work.c - jobs for libuv's thread pool. Started on the loop thread. */
#include "base/work.h"

#include <stdlib.h>
#include <uv.h>

#include "base/assert.h"
#include "base/loop.h"
#include "base/mem.h"

struct job {
    uv_work_t request; /* first */
    void (*work)(void *arg);
    void (*done)(void *arg);
    void *arg;
};

static void job_work(uv_work_t *request)
{
    struct job *job = (struct job *)(void *)request;

    job->work(job->arg);
}

static void job_done(uv_work_t *request, int status)
{
    struct job *job = (struct job *)(void *)request;

    NXL_ASSERT(status == 0); /* nothing here is ever cancelled */
    job->done(job->arg);
    free(job);
}

void nxl_work_start(struct nxl_loop *loop, void (*work)(void *arg), void (*done)(void *arg),
                    void *arg)
{
    struct job *job = nxl_new0(sizeof(*job));
    int error;

    job->work = work;
    job->done = done;
    job->arg = arg;
    error = uv_queue_work(nxl_loop_uv(loop), &job->request, job_work, job_done);
    NXL_ASSERT(error == 0); /* fails only on a NULL function */
}
