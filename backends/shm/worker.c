/* worker.c - the copy threads: each takes one chunk of the operation at the head of the ready list,
 * puts the operation back at the tail, and copies without the lock. So a client with a hundred
 * thousand pieces delays another one's small operation by a chunk, not by all of it. */
#include "shm.h"

#include <time.h>

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void ready_push(struct nxl_backend *backend, struct shm_op *op)
{
    shm_list_push(&backend->locked.ready, op);
    op->queued = 1;
    atomic_fetch_add_explicit(&backend->ready_count, 1, memory_order_relaxed);
}

static struct shm_op *ready_pop(struct nxl_backend *backend)
{
    struct shm_op *op = shm_list_pop(&backend->locked.ready);

    if (op != NULL) {
        op->queued = 0;
        atomic_fetch_sub_explicit(&backend->ready_count, 1, memory_order_relaxed);
    }
    return op;
}

void shm_workers_feed(struct nxl_backend *backend, struct shm_op *op, uint64_t chunks)
{
    ready_push(backend, op);
    for (uint32_t i = 0; i < backend->locked.sleepers && i < chunks; i++)
        pthread_cond_signal(&backend->locked.work);
}

/* With the lock; drops it while it spins. Sleeps only after a while without work. */
static void worker_wait(struct nxl_backend *backend)
{
    if (backend->option.spin_ns > 0) {
        uint64_t until = now_ns() + backend->option.spin_ns;

        pthread_mutex_unlock(&backend->locked.lock);
        while (atomic_load_explicit(&backend->ready_count, memory_order_relaxed) == 0 &&
               now_ns() < until)
            for (int i = 0; i < 16; i++)
                pause_cpu();
        pthread_mutex_lock(&backend->locked.lock);
    }
    if (backend->locked.ready.head != NULL || backend->locked.closing)
        return;
    backend->locked.sleepers++;
    pthread_cond_wait(&backend->locked.work, &backend->locked.lock);
    backend->locked.sleepers--;
}

/* With the lock: one chunk of op, copied without it. */
static void worker_step(struct nxl_backend *backend, struct shm_op *op, uint64_t room)
{
    struct shm_cursor from = op->cursor;
    uint64_t bytes;
    int took = 0;

    if (op->code == NXL_OK)
        took = shm_chunk_take(op, room);
    if (took > 0) {
        struct shm_cursor to = op->cursor;

        op->outstanding++;
        if (!shm_cursor_at_end(op))
            shm_workers_feed(backend, op, 1);
        pthread_mutex_unlock(&backend->locked.lock);
        bytes = shm_chunk_copy(op, from, to);
        pthread_mutex_lock(&backend->locked.lock);
        op->bytes += bytes;
        op->outstanding--;
    }
    if (!op->queued && op->outstanding == 0)
        shm_op_end(backend, op);
}

void *shm_worker_main(void *arg)
{
    struct nxl_backend *backend = arg;

    pthread_mutex_lock(&backend->locked.lock);
    for (;;) {
        struct shm_op *op = ready_pop(backend);

        if (op != NULL)
            worker_step(backend, op, op->chunk_bytes);
        else if (backend->locked.closing)
            break;
        else
            worker_wait(backend);
    }
    pthread_mutex_unlock(&backend->locked.lock);
    return NULL;
}

int shm_worker_help(struct nxl_backend *backend, uint64_t room)
{
    struct shm_op *op;

    if (atomic_load_explicit(&backend->ready_count, memory_order_relaxed) == 0)
        return 0;
    pthread_mutex_lock(&backend->locked.lock);
    op = ready_pop(backend);
    if (op != NULL)
        worker_step(backend, op, room);
    pthread_mutex_unlock(&backend->locked.lock);
    return op != NULL;
}
