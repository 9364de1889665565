/* transfer.c - submit, cancel, and what comes back from the wrapped backend. */
#include "fault.h"

#include <stdio.h>

static struct nxl_backend *backend_of(struct nxl_host *host)
{
    return (struct nxl_backend *)(void *)((char *)host - offsetof(struct nxl_backend, inner_host));
}

static int hit(const struct nxl_backend *backend, uint64_t every)
{
    return every > 0 && (backend->loop.count + 1 + backend->option.seed) % every == 0;
}

/* For the operation that would be accepted next; the same question has the same answer. */
unsigned fault_choose(const struct nxl_backend *backend)
{
    unsigned faults = 0;

    if (hit(backend, backend->option.fail_every))
        return FAULT_FAIL;
    if (hit(backend, backend->option.drop_every))
        faults |= FAULT_DROP;
    if (hit(backend, backend->option.never_quiesce_every))
        faults |= FAULT_NEVER_QUIET;
    if (hit(backend, backend->option.skip_every))
        faults |= FAULT_SKIP;
    else if (hit(backend, backend->option.late_every))
        faults |= FAULT_LATE;
    else if (hit(backend, backend->option.flip_every))
        faults |= FAULT_FLIP;
    return faults;
}

static struct fault_op **bucket_of(struct nxl_backend *backend, uint64_t id)
{
    return &backend->locked.buckets[(id ^ (id >> 32)) % FAULT_BUCKETS];
}

struct fault_op *fault_find(struct nxl_backend *backend, uint64_t id)
{
    struct fault_op *record = *bucket_of(backend, id & ~FAULT_LATE_BIT);

    while (record != NULL && record->id != (id & ~FAULT_LATE_BIT))
        record = record->bucket_next;
    return record;
}

void fault_remove(struct nxl_backend *backend, struct fault_op *record)
{
    struct fault_op **link = bucket_of(backend, record->id);

    while (*link != record)
        link = &(*link)->bucket_next;
    *link = record->bucket_next;
    backend->locked.open--;
}

static void record_insert(struct nxl_backend *backend, struct fault_op *record)
{
    struct fault_op **bucket = bucket_of(backend, record->id);

    record->bucket_next = *bucket;
    *bucket = record;
    backend->locked.open++;
}

static void outcome_fail(const struct nxl_backend *backend, struct nxl_outcome *outcome)
{
    outcome->code = backend->option.fail_code;
    outcome->untouched = !backend->option.fail_touched;
    snprintf(outcome->text, sizeof(outcome->text), "made to fail by backends.fault.fail_every");
}

/* Without the wrapped backend: what fails untouched, and what has no piece left. */
static void submit_nothing(struct nxl_backend *backend, struct fault_op *record)
{
    record->outcome = (struct nxl_outcome){
        .size = sizeof(record->outcome),
        .op_id = record->id,
        .code = NXL_OK,
        .bytes = record->bytes,
        .path = NXL_PATH_NONE,
    };
    record->inner_quiet = 1;
    if (record->faults & FAULT_FAIL) {
        outcome_fail(backend, &record->outcome);
        record->outcome.bytes = 0;
    }
    pthread_mutex_lock(&backend->locked.lock);
    record_insert(backend, record);
    record->state = FAULT_HELD;
    if (!(record->faults & FAULT_DROP))
        fault_schedule(backend, record, FAULT_ACT_END, backend->option.delay_ns);
    pthread_mutex_unlock(&backend->locked.lock);
}

static enum nxl_code submit_inner(struct nxl_backend *backend, struct fault_op *record,
                                  struct nxl_err *err)
{
    enum nxl_code code;

    /* Known before the call: its end may come from another thread before the call returns. */
    pthread_mutex_lock(&backend->locked.lock);
    record_insert(backend, record);
    backend->locked.running++;
    pthread_mutex_unlock(&backend->locked.lock);
    code = backend->inner_ops->submit(backend->inner, &record->op, err);
    if (code == NXL_OK)
        return NXL_OK;
    pthread_mutex_lock(&backend->locked.lock);
    fault_remove(backend, record);
    backend->locked.running--;
    pthread_mutex_unlock(&backend->locked.lock);
    fault_op_free(record);
    return code;
}

enum nxl_code fault_submit(struct nxl_backend *backend, const struct nxl_op *op,
                           struct nxl_err *err)
{
    uint64_t every = backend->option.again_every == 1 ? 2 : backend->option.again_every;
    struct fault_op *record;
    enum nxl_code code = NXL_OK;

    backend->loop.attempts++;
    if (every > 0 && backend->loop.attempts % every == 0) {
        pthread_mutex_lock(&backend->locked.lock);
        backend->locked.ready_due_ns = fault_now_ns() + backend->option.delay_ns;
        pthread_cond_broadcast(&backend->locked.moved);
        pthread_mutex_unlock(&backend->locked.lock);
        return NXL_AGAIN;
    }
    record = fault_op_new(backend, op, fault_choose(backend));
    if (record == NULL)
        return nxl_err_set(err, NXL_LIMIT, 0, "no memory for a copy of the operation");
    if (((record->faults & FAULT_FAIL) && !backend->option.fail_touched) ||
        (record->op.piece_count == 0 && op->piece_count > 0))
        submit_nothing(backend, record);
    else
        code = submit_inner(backend, record, err);
    if (code == NXL_OK)
        backend->loop.count++;
    return code;
}

void fault_release(struct nxl_backend *backend, struct fault_op *record, int code, const char *why)
{
    record->outcome.code = code;
    record->outcome.untouched = 0;
    snprintf(record->outcome.text, sizeof(record->outcome.text), "%s", why);
    fault_schedule(backend, record, FAULT_ACT_END, 0);
}

void fault_cancel(struct nxl_backend *backend, uint64_t op_id)
{
    struct fault_op *record;
    int forward = 0;

    pthread_mutex_lock(&backend->locked.lock);
    record = fault_find(backend, op_id);
    if (record != NULL && record->state == FAULT_HELD) {
        fault_release(backend, record, NXL_CANCELED,
                      "carried out, and held back until it was cancelled");
    } else if (record != NULL && record->state == FAULT_RUNNING) {
        record->canceled = 1;
        forward = 1;
    }
    pthread_mutex_unlock(&backend->locked.lock);
    if (forward && NXL_BACKEND_HAS(backend->inner_ops, cancel))
        backend->inner_ops->cancel(backend->inner, op_id);
}

/* With the lock: the wrapped backend is done with the operation itself. */
static void inner_ended(struct nxl_backend *backend, struct fault_op *record,
                        const struct nxl_outcome *outcome)
{
    record->outcome = *outcome;
    record->outcome.size = sizeof(record->outcome);
    record->inner_quiet = outcome->quiesced != 0;
    if (outcome->code == NXL_OK) {
        record->outcome.bytes = record->bytes; /* what was left out is the lie */
        if (record->flip != NULL)
            *record->flip = (unsigned char)~*record->flip;
        if (record->faults & FAULT_FAIL)
            outcome_fail(backend, &record->outcome);
    } else {
        record->late_open = 0;
    }
    if ((record->faults & FAULT_DROP) && !backend->locked.closing) {
        record->state = FAULT_HELD;
        if (record->canceled)
            fault_release(backend, record, NXL_CANCELED,
                          "carried out, and held back until it was cancelled");
        return;
    }
    if (backend->option.delay_ns == 0 && backend->option.reorder_ns == 0)
        fault_end(backend, record);
    else
        fault_schedule(backend, record, FAULT_ACT_END, backend->option.delay_ns);
}

void fault_inner_complete(struct nxl_host *host, const struct nxl_outcome *outcome)
{
    struct nxl_backend *backend = backend_of(host);
    struct fault_op *record;

    pthread_mutex_lock(&backend->locked.lock);
    record = fault_find(backend, outcome->op_id);
    if (record == NULL || (record->state != FAULT_RUNNING && !(outcome->op_id & FAULT_LATE_BIT))) {
        pthread_mutex_unlock(&backend->locked.lock);
        /* Handed on as it is: the agent sees and counts it. */
        backend->host->complete(backend->host, outcome);
        return;
    }
    backend->locked.running--;
    if (outcome->op_id & FAULT_LATE_BIT) {
        record->inner_quiet = outcome->quiesced != 0;
        if (record->inner_quiet && !(record->faults & FAULT_NEVER_QUIET))
            fault_quiet(backend, record);
    } else {
        inner_ended(backend, record, outcome);
    }
    pthread_cond_broadcast(&backend->locked.moved);
    pthread_mutex_unlock(&backend->locked.lock);
}

void fault_inner_quiesced(struct nxl_host *host, uint64_t op_id)
{
    struct nxl_backend *backend = backend_of(host);
    struct fault_op *record;

    pthread_mutex_lock(&backend->locked.lock);
    record = fault_find(backend, op_id);
    if (record != NULL) {
        record->inner_quiet = 1;
        if (record->state == FAULT_ENDED && !(record->faults & FAULT_NEVER_QUIET) &&
            ((op_id & FAULT_LATE_BIT) || !record->late_open))
            fault_quiet(backend, record);
    }
    pthread_mutex_unlock(&backend->locked.lock);
}

/* Late rows are submitted here, because only the loop thread may submit. */
static int late_submit(struct nxl_backend *backend)
{
    int done = 0;

    pthread_mutex_lock(&backend->locked.lock);
    while (backend->locked.late_first != NULL) {
        struct fault_op *record = backend->locked.late_first;
        int quiet = record->inner_quiet;
        struct nxl_err err;
        enum nxl_code code;

        backend->locked.late_first = record->due_next;
        record->due_next = NULL;
        backend->locked.running++;
        record->inner_quiet = 0;
        pthread_mutex_unlock(&backend->locked.lock);
        code = backend->inner_ops->submit(backend->inner, &record->late, &err);
        pthread_mutex_lock(&backend->locked.lock);
        done++;
        if (code == NXL_OK)
            continue;
        backend->locked.running--;
        record->inner_quiet = quiet;
        if (code == NXL_AGAIN) {
            record->due_next = backend->locked.late_first;
            backend->locked.late_first = record;
            break;
        }
        record->late_open = 0;
        fault_schedule(backend, record, FAULT_ACT_QUIET, 0);
    }
    pthread_mutex_unlock(&backend->locked.lock);
    return done;
}

int fault_progress(struct nxl_backend *backend)
{
    int done = late_submit(backend);

    if (NXL_BACKEND_HAS(backend->inner_ops, progress))
        done += backend->inner_ops->progress(backend->inner);
    return done;
}
