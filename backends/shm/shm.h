/* shm.h - what the rooms of the shm backend share: one copy between two mappings of one agent.
 * Small operations run on the loop thread in progress(), the others on a small pool of workers. */
#ifndef NXL_BACKENDS_SHM_SHM_H
#define NXL_BACKENDS_SHM_SHM_H

#include <nxl/backend.h>

#include <pthread.h>
#include <stdatomic.h>

#define SHM_BUCKETS 1024u    /* of the table from operation id to record */
#define SHM_THREADS_MAX 64   /* as in the option table */
#define SHM_INLINE_ROWS 256u /* more rows than this never run on the loop thread */
#define SHM_CHUNK_ROWS 1024u /* of one chunk, so that taking one under the lock stays short */
#define SHM_INLINE_BATCH 32u /* operations of one progress() call */

struct nxl_backend_mem {
    struct nxl_backend_mem *next, **link; /* in backend->loop.mems */
    unsigned char *base;
    uint64_t size;
};

/* A place in an operation: rows before it are taken, and `offset` bytes of this row. */
struct shm_cursor {
    uint32_t piece, row;
    uint64_t offset;
};

struct shm_op {
    const struct nxl_op *op; /* lent until complete(); NULL: the record is free */
    struct shm_op *bucket_next;
    struct shm_op *next;      /* free list, ready list or inline list */
    struct shm_cursor cursor; /* taken so far */
    uint64_t chunk_bytes;
    uint64_t bytes; /* copied so far */
    uint64_t id;
    uint32_t outstanding; /* chunks in the hands of workers */
    int queued;           /* in the ready list or the inline list */
    int streaming;        /* past the caches, as memcpy does for such sizes */
    int code;             /* why it ends early; NXL_OK: it does not */
    char text[160];
};

struct shm_list {
    struct shm_op *head, *tail;
};

struct nxl_backend {
    struct nxl_host *host;
    struct {
        uint64_t inline_bytes, chunk_bytes, stream_bytes, help_bytes, spin_ns;
        uint32_t threads, queue;
    } option;
    struct shm_op *ops; /* option.queue records */
    struct {
        struct shm_list inlined; /* operations for progress() */
        struct nxl_backend_mem *mems;
    } loop; /* loop thread, no lock */
    struct {
        pthread_mutex_t lock;
        pthread_cond_t work; /* for sleeping workers */
        struct shm_op *free;
        struct shm_op *buckets[SHM_BUCKETS];
        struct shm_list ready; /* operations with chunks to take, round robin */
        uint32_t sleepers, used;
        int starved; /* somebody was told NXL_AGAIN */
        int closing;
    } locked;
    atomic_uint ready_count; /* length of locked.ready, so that workers spin without the lock */
    pthread_t threads[SHM_THREADS_MAX];
    uint32_t started;
    int lock_made;
};

/* copy.c: pure but for the bytes they move. */

/* Moves the cursor past the next chunk, room bytes at most where rows can be cut. 1: some of it was
 * taken; 0: the end was there already. A piece that leaves its
 * region is refused: -1, with the sentence in op->text. */
int shm_chunk_take(struct shm_op *op, uint64_t room);
/* Copies what lies between two cursors; returns the bytes. */
uint64_t shm_chunk_copy(const struct shm_op *op, struct shm_cursor from, struct shm_cursor to);
int shm_cursor_at_end(const struct shm_op *op);

/* transfer.c */
void shm_list_push(struct shm_list *list, struct shm_op *op);
struct shm_op *shm_list_pop(struct shm_list *list);
/* The one place where an operation ends. Called with the lock, returns with it, calls the host
 * without it. The record is free before the host hears of it. */
void shm_op_end(struct nxl_backend *backend, struct shm_op *op);
enum nxl_code shm_submit(struct nxl_backend *backend, const struct nxl_op *op, struct nxl_err *err);
void shm_cancel(struct nxl_backend *backend, uint64_t op_id);
int shm_progress(struct nxl_backend *backend);
void shm_cancel_all(struct nxl_backend *backend);

/* worker.c */
void *shm_worker_main(void *arg);
/* The loop thread as one more worker: at most one chunk of room bytes. Returns how many it took. */
int shm_worker_help(struct nxl_backend *backend, uint64_t room);
/* With the lock: an operation has work; wakes at most `chunks` sleepers. */
void shm_workers_feed(struct nxl_backend *backend, struct shm_op *op, uint64_t chunks);

#endif
