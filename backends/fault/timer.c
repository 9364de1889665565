/* timer.c - the wrapper's own thread: ends that are delayed, held back or late. Every function is
 * called with the lock. */
#include "fault.h"

#include <time.h>

void fault_unschedule(struct nxl_backend *backend, struct fault_op *record)
{
    if (record->due_prev != NULL)
        record->due_prev->due_next = record->due_next;
    else
        backend->locked.due_first = record->due_next;
    if (record->due_next != NULL)
        record->due_next->due_prev = record->due_prev;
    else
        backend->locked.due_last = record->due_prev;
    record->due_prev = record->due_next = NULL;
}

/* Sorted by time; looked for from the end, where equal delays find their place at once. */
void fault_schedule(struct nxl_backend *backend, struct fault_op *record, enum fault_action action,
                    uint64_t delay_ns)
{
    struct fault_op *before = backend->locked.due_last;

    if (action == FAULT_ACT_END) {
        record->state = FAULT_QUEUED;
        if (backend->option.reorder_ns > 0)
            delay_ns += fault_random(&backend->locked.random) % backend->option.reorder_ns;
    }
    record->action = action;
    record->due_ns = fault_now_ns() + delay_ns;
    while (before != NULL && before->due_ns > record->due_ns)
        before = before->due_prev;
    record->due_prev = before;
    record->due_next = before != NULL ? before->due_next : backend->locked.due_first;
    if (record->due_next != NULL)
        record->due_next->due_prev = record;
    else
        backend->locked.due_last = record;
    if (before != NULL)
        before->due_next = record;
    else
        backend->locked.due_first = record;
    pthread_cond_broadcast(&backend->locked.moved);
}

void fault_quiet(struct nxl_backend *backend, struct fault_op *record)
{
    uint64_t id = record->id;

    fault_remove(backend, record);
    pthread_mutex_unlock(&backend->locked.lock);
    fault_op_free(record);
    backend->host->quiesced(backend->host, id);
    pthread_mutex_lock(&backend->locked.lock);
    pthread_cond_broadcast(&backend->locked.moved);
}

void fault_end(struct nxl_backend *backend, struct fault_op *record)
{
    struct nxl_outcome outcome = record->outcome;
    int late = record->late_open && outcome.code == NXL_OK;

    outcome.quiesced = record->inner_quiet && !late && !(record->faults & FAULT_NEVER_QUIET);
    if (outcome.quiesced) {
        fault_remove(backend, record);
        pthread_mutex_unlock(&backend->locked.lock);
        fault_op_free(record);
        backend->host->complete(backend->host, &outcome);
        pthread_mutex_lock(&backend->locked.lock);
        pthread_cond_broadcast(&backend->locked.moved);
        return;
    }
    record->state = FAULT_DELIVERING;
    pthread_mutex_unlock(&backend->locked.lock);
    backend->host->complete(backend->host, &outcome);
    pthread_mutex_lock(&backend->locked.lock);
    record->state = FAULT_ENDED;
    pthread_cond_broadcast(&backend->locked.moved);
    if (late && record->late_open)
        fault_schedule(backend, record, FAULT_ACT_LATE, backend->option.late_ns);
    else if (record->inner_quiet && !(record->faults & FAULT_NEVER_QUIET))
        fault_quiet(backend, record);
}

static void due_act(struct nxl_backend *backend, struct fault_op *record)
{
    fault_unschedule(backend, record);
    if (record->action == FAULT_ACT_END) {
        fault_end(backend, record);
    } else if (record->action == FAULT_ACT_LATE && record->late_open) {
        record->due_next = backend->locked.late_first;
        backend->locked.late_first = record;
        pthread_mutex_unlock(&backend->locked.lock);
        backend->host->ready(backend->host); /* so that progress() is called */
        pthread_mutex_lock(&backend->locked.lock);
    } else if (record->inner_quiet && !(record->faults & FAULT_NEVER_QUIET)) {
        fault_quiet(backend, record);
    }
}

static void timer_wait(struct nxl_backend *backend, uint64_t until_ns)
{
    struct timespec to = {(time_t)(until_ns / 1000000000ull), (long)(until_ns % 1000000000ull)};

    if (until_ns == UINT64_MAX)
        pthread_cond_wait(&backend->locked.moved, &backend->locked.lock);
    else
        (void)pthread_cond_timedwait(&backend->locked.moved, &backend->locked.lock, &to);
}

void *fault_timer_main(void *arg)
{
    struct nxl_backend *backend = arg;

    pthread_mutex_lock(&backend->locked.lock);
    while (!backend->locked.stop) {
        struct fault_op *first = backend->locked.due_first;
        uint64_t now = fault_now_ns();
        uint64_t ready = backend->locked.ready_due_ns;

        if (ready != 0 && ready <= now) {
            backend->locked.ready_due_ns = 0;
            pthread_mutex_unlock(&backend->locked.lock);
            backend->host->ready(backend->host);
            pthread_mutex_lock(&backend->locked.lock);
        } else if (first != NULL && (first->due_ns <= now || backend->locked.closing)) {
            due_act(backend, first);
        } else {
            uint64_t until = first != NULL ? first->due_ns : UINT64_MAX;

            timer_wait(backend, ready != 0 && ready < until ? ready : until);
        }
    }
    pthread_mutex_unlock(&backend->locked.lock);
    return NULL;
}
