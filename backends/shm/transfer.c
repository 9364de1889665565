/* transfer.c - submit, cancel and the inline part of the shm backend. Loop thread, except
 * shm_op_end(), which workers call too. */
#include "shm.h"

#include <stdio.h>
#include <string.h>

void shm_list_push(struct shm_list *list, struct shm_op *op)
{
    op->next = NULL;
    if (list->tail != NULL)
        list->tail->next = op;
    else
        list->head = op;
    list->tail = op;
}

struct shm_op *shm_list_pop(struct shm_list *list)
{
    struct shm_op *op = list->head;

    if (op != NULL) {
        list->head = op->next;
        if (list->head == NULL)
            list->tail = NULL;
    }
    return op;
}

static struct shm_op **bucket_of(struct nxl_backend *backend, uint64_t id)
{
    return &backend->locked.buckets[(id ^ (id >> 32)) % SHM_BUCKETS];
}

static struct shm_op *op_new(struct nxl_backend *backend, const struct nxl_op *op)
{
    struct shm_op *record = backend->locked.free;
    struct shm_op **bucket = bucket_of(backend, op->id);

    if (record == NULL) {
        backend->locked.starved = 1;
        return NULL;
    }
    backend->locked.free = record->next;
    backend->locked.used++;
    memset(record, 0, sizeof(*record));
    record->op = op;
    record->id = op->id;
    record->code = NXL_OK;
    record->bucket_next = *bucket;
    *bucket = record;
    return record;
}

static void op_free(struct nxl_backend *backend, struct shm_op *record)
{
    struct shm_op **link = bucket_of(backend, record->id);

    while (*link != record)
        link = &(*link)->bucket_next;
    *link = record->bucket_next;
    record->op = NULL;
    record->next = backend->locked.free;
    backend->locked.free = record;
    backend->locked.used--;
}

void shm_op_end(struct nxl_backend *backend, struct shm_op *record)
{
    struct nxl_outcome outcome = {
        .size = sizeof(outcome),
        .code = record->code,
        .op_id = record->id,
        .bytes = record->bytes,
        .quiesced = 1,
        .untouched = record->code != NXL_OK && record->bytes == 0,
        .device = "memory",
        .path = NXL_PATH_ONE_COPY,
    };
    int again;

    snprintf(outcome.text, sizeof(outcome.text), "%s", record->text);
    op_free(backend, record);
    again = backend->locked.starved &&
            backend->locked.used <= backend->option.queue - 1 - backend->option.queue / 4;
    if (again)
        backend->locked.starved = 0;
    pthread_mutex_unlock(&backend->locked.lock);
    backend->host->complete(backend->host, &outcome);
    if (again)
        backend->host->ready(backend->host);
    pthread_mutex_lock(&backend->locked.lock);
}

static int is_small(const struct nxl_backend *backend, const struct nxl_op *op)
{
    uint64_t rows = 0;

    if (op->bytes > backend->option.inline_bytes || op->piece_count > SHM_INLINE_ROWS)
        return 0;
    for (uint32_t i = 0; i < op->piece_count; i++)
        rows += op->pieces[i].count;
    return rows <= SHM_INLINE_ROWS;
}

/* Large operations are shared out evenly, in pieces small enough that nobody waits long for the
 * last one; the option only says how much at most. */
static uint64_t chunk_of(const struct nxl_backend *backend, uint64_t bytes)
{
    uint64_t even = (bytes / backend->option.threads / 4 + 65535) & ~65535ull;

    if (even < 262144)
        even = 262144;
    return even < backend->option.chunk_bytes ? even : backend->option.chunk_bytes;
}

enum nxl_code shm_submit(struct nxl_backend *backend, const struct nxl_op *op, struct nxl_err *err)
{
    struct shm_op *record;
    int small;

    if (op->conn != NULL || op->peers == NULL)
        return nxl_err_set(err, NXL_NOT_SUPPORTED, 0,
                           "shm moves only between clients of one agent");
    small = is_small(backend, op);
    pthread_mutex_lock(&backend->locked.lock);
    record = op_new(backend, op);
    if (record != NULL) {
        record->chunk_bytes = chunk_of(backend, op->bytes);
        record->streaming = !small && op->bytes >= backend->option.stream_bytes;
        if (small) {
            record->queued = 1;
            shm_list_push(&backend->loop.inlined, record);
        } else {
            shm_workers_feed(backend, record, 1 + op->bytes / record->chunk_bytes);
        }
    }
    pthread_mutex_unlock(&backend->locked.lock);
    return record != NULL ? NXL_OK : NXL_AGAIN;
}

static void op_cancel(struct shm_op *record)
{
    /* All of it was handed out: it ends by itself, and as what it is. */
    if (record->code != NXL_OK || !record->queued)
        return;
    record->code = NXL_CANCELED;
    snprintf(record->text, sizeof(record->text), "cancelled after %llu of %llu bytes",
             (unsigned long long)record->bytes, (unsigned long long)record->op->bytes);
}

/* Marks only: whoever holds the operation next ends it. */
void shm_cancel(struct nxl_backend *backend, uint64_t op_id)
{
    pthread_mutex_lock(&backend->locked.lock);
    for (struct shm_op *record = *bucket_of(backend, op_id); record != NULL;
         record = record->bucket_next)
        if (record->id == op_id)
            op_cancel(record);
    pthread_mutex_unlock(&backend->locked.lock);
}

/* With the lock; for close(). */
void shm_cancel_all(struct nxl_backend *backend)
{
    for (uint32_t i = 0; i < SHM_BUCKETS; i++)
        for (struct shm_op *record = backend->locked.buckets[i]; record != NULL;
             record = record->bucket_next)
            op_cancel(record);
}

/* An inline operation is one chunk: its rows are few and its bytes are bounded. With nothing of
 * that kind to do, and few CPUs, the loop thread copies too, instead of spinning beside the one
 * worker. */
int shm_progress(struct nxl_backend *backend)
{
    int done = 0;

    while (done < (int)SHM_INLINE_BATCH) {
        struct shm_op *record = shm_list_pop(&backend->loop.inlined);

        if (record == NULL)
            break;
        record->queued = 0;
        if (record->code == NXL_OK) {
            struct shm_cursor from = record->cursor;

            if (shm_chunk_take(record, UINT64_MAX) > 0)
                record->bytes = shm_chunk_copy(record, from, record->cursor);
        }
        pthread_mutex_lock(&backend->locked.lock);
        shm_op_end(backend, record);
        pthread_mutex_unlock(&backend->locked.lock);
        done++;
    }
    if (done == 0 && backend->option.help_bytes > 0 && backend->option.threads == 1)
        done = shm_worker_help(backend, backend->option.help_bytes);
    return done;
}
