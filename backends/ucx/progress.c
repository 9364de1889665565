/* progress.c - the thread that owns the worker: takes commands, posts, progresses, ends operations,
 * polls for a short while and then sleeps on UCX's and our own descriptor. */
#include "ucx.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SLEEP_MAX_MS 100u

uint64_t ucx_now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* Any thread. Wakes the progress thread only if it sleeps: it says so before it looks a last time.
 */
void ucx_command_push(struct nxl_backend *backend, struct ucx_command *command,
                      enum ucx_command_kind kind)
{
    static const uint64_t one = 1;

    command->kind = kind;
    command->next = atomic_load(&backend->shared.head);
    while (!atomic_compare_exchange_weak(&backend->shared.head, &command->next, command))
        continue;
    if (atomic_load(&backend->shared.parked) && atomic_exchange(&backend->shared.parked, 0)) {
        ssize_t written = write(backend->event_fd, &one, sizeof(one));

        (void)written; /* a full counter wakes as well */
    }
}

static void command_run(struct nxl_backend *backend, struct ucx_command *command)
{
    struct ucx_cancel *cancel;

    switch (command->kind) {
    case UCX_COMMAND_CONNECT:
        ucx_conn_open(UCX_OF(command, struct nxl_backend_conn, connect));
        break;
    case UCX_COMMAND_DISCONNECT:
        ucx_conn_release(UCX_OF(command, struct nxl_backend_conn, disconnect));
        break;
    case UCX_COMMAND_IMPORT:
        ucx_remote_unpack(UCX_OF(command, struct nxl_backend_remote, import));
        break;
    case UCX_COMMAND_FORGET:
        ucx_remote_free(UCX_OF(command, struct nxl_backend_remote, forget));
        break;
    case UCX_COMMAND_SUBMIT:
        ucx_op_start(UCX_OF(command, struct ucx_op, command));
        break;
    case UCX_COMMAND_CANCEL:
        cancel = UCX_OF(command, struct ucx_cancel, command);
        ucx_op_cancel(backend, cancel->op_id);
        free(cancel);
        break;
    case UCX_COMMAND_STOP:
        backend->own.stop = 1;
        break;
    }
}

static unsigned commands_run(struct nxl_backend *backend)
{
    struct ucx_command *newest, *oldest = NULL;
    unsigned count = 0;

    if (atomic_load_explicit(&backend->shared.head, memory_order_relaxed) == NULL)
        return 0;
    newest = atomic_exchange(&backend->shared.head, NULL);
    while (newest != NULL) { /* the stack has the newest on top */
        struct ucx_command *next = newest->next;

        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    while (oldest != NULL) {
        struct ucx_command *next = oldest->next; /* read first: running may free it */

        command_run(backend, oldest);
        oldest = next;
        count++;
    }
    return count;
}

/* Milliseconds to sleep at most, rounded up.
 * UCX keeps what a full shared memory queue refused in a list of its own, also answers to the
 * peer's gets, and no event tells when there is room again: ucp_worker_arm() succeeds and both
 * sides would sleep for ever (1.13, seen between two busy agents). So sleeps are short after work
 * and grow with the time without any; UCX's keep-alive counts as work, so they must grow quickly.
 */
static int sleep_limit(const struct nxl_backend *backend, uint64_t now_ns)
{
    uint64_t due = backend->own.next_deadline_ns;
    uint64_t limit = (now_ns - backend->own.worked_ns) / 8 / 1000000, left;

    if (due <= now_ns)
        return 0;
    if (limit < 1)
        limit = 1;
    if (limit > SLEEP_MAX_MS)
        limit = SLEEP_MAX_MS;
    left = (due - now_ns) / 1000000;
    return left < limit ? (int)left + 1 : (int)limit;
}

static void event_drain(struct nxl_backend *backend)
{
    uint64_t count;
    ssize_t size = read(backend->event_fd, &count, sizeof(count));

    (void)size; /* nothing to read: UCX woke us */
}

static void thread_sleep(struct nxl_backend *backend, uint64_t now_ns)
{
    struct pollfd fds[2] = {
        {.fd = backend->own.efd, .events = POLLIN},
        {.fd = backend->event_fd, .events = POLLIN},
    };
    ucs_status_t armed;

    atomic_store(&backend->shared.parked, 1);
    if (atomic_load(&backend->shared.head) == NULL) {
        armed = backend->lib.ucp_worker_arm(backend->own.worker);
        if (armed == UCS_OK) /* otherwise there are events to progress first */
            (void)poll(fds, 2, sleep_limit(backend, now_ns));
    }
    if (!atomic_exchange(&backend->shared.parked, 0))
        event_drain(backend);
}

static unsigned turn(struct nxl_backend *backend)
{
    unsigned work = commands_run(backend);

    work += ucx_ops_issue(backend);
    for (unsigned left = 16; left > 0; left--) {
        unsigned done = backend->lib.ucp_worker_progress(backend->own.worker);

        work += done;
        if (done == 0)
            break;
    }
    if (backend->own.conn_failed)
        ucx_conns_check(backend);
    work += ucx_ops_settle(backend);
    return work;
}

static void thread_run(struct nxl_backend *backend)
{
    uint64_t idle_since_ns = ucx_now_ns();
    struct ucx_link *link;

    while (!backend->own.stop || !ucx_link_empty(&backend->own.conns)) {
        unsigned work = turn(backend);
        uint64_t now_ns = ucx_now_ns();

        if (now_ns >= backend->own.next_deadline_ns)
            ucx_ops_deadlines(backend, now_ns);
        if (backend->own.stop == 1) {
            backend->own.stop = 2;
            for (link = backend->own.conns.next; link != &backend->own.conns; link = link->next)
                ucx_conn_release(UCX_OF(link, struct nxl_backend_conn, link));
            continue;
        }
        if (work > 0)
            backend->own.worked_ns = now_ns;
        if (work > 0 || backend->own.conn_failed)
            idle_since_ns = now_ns;
        else if (now_ns - idle_since_ns >= (uint64_t)backend->settings.spin_ns)
            thread_sleep(backend, now_ns);
        else
            (void)sched_yield(); /* the peer, or the agent's loop, may wait for this very core */
    }
}

/* Tells open() how it went. 0: nobody waits any more. */
static int start_report(struct nxl_backend *backend, enum nxl_code code)
{
    int waited;

    (void)pthread_mutex_lock(&backend->start.lock);
    waited = backend->start.phase == UCX_STARTING;
    if (waited)
        backend->start.phase = code == NXL_OK ? UCX_READY : UCX_START_FAILED;
    (void)pthread_cond_broadcast(&backend->start.changed);
    (void)pthread_mutex_unlock(&backend->start.lock);
    return waited;
}

void *ucx_progress_main(void *arg)
{
    struct nxl_backend *backend = arg;
    enum nxl_code code = ucx_start(backend, &backend->start.err);

    if (!start_report(backend, code)) {
        ucx_finish(backend);
        ucx_backend_free(backend); /* open() gave up on us; the thread is detached */
        return NULL;
    }
    if (code == NXL_OK)
        thread_run(backend);
    ucx_finish(backend);
    return NULL;
}
