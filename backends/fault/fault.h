/* fault.h - what the rooms of the fault wrapper share. It carries out every operation through the
 * backend that it wraps, and harms some of them on the way, on purpose and repeatably. */
#ifndef NXL_BACKENDS_FAULT_FAULT_H
#define NXL_BACKENDS_FAULT_FAULT_H

#include <nxl/backend.h>

#include <pthread.h>

#define FAULT_BUCKETS 1024u
#define FAULT_LATE_BIT (1ull << 63) /* marks the id of an operation of our own */
#define FAULT_SCRATCH_SIZE 4096u
#define FAULT_PIECES_MORE 4u /* pieces that cutting one row out may add */

enum fault_kind {
    FAULT_FAIL = 1u << 0,
    FAULT_DROP = 1u << 1,
    FAULT_SKIP = 1u << 2,
    FAULT_FLIP = 1u << 3,
    FAULT_LATE = 1u << 4,
    FAULT_NEVER_QUIET = 1u << 5,
};

/* Where the one complete() of an operation is. */
enum fault_state {
    FAULT_RUNNING,    /* the wrapped backend has it */
    FAULT_HELD,       /* dropped: carried out, and nobody is told */
    FAULT_QUEUED,     /* its outcome is in the timer's list */
    FAULT_DELIVERING, /* complete() is being called */
    FAULT_ENDED,      /* told; only its quiet is outstanding */
};
enum fault_action { FAULT_ACT_END, FAULT_ACT_LATE, FAULT_ACT_QUIET };

struct nxl_backend_mem {
    struct nxl_backend_mem *next, **link; /* in backend->loop.mems */
    struct nxl_backend_mem *inner;        /* the wrapped backend's own */
    unsigned char *base;
    uint64_t size;
};

struct fault_op {
    struct fault_op *bucket_next;
    struct fault_op *due_prev, *due_next; /* the timer's list, or the late list by due_next */
    uint64_t id, due_ns;
    uint64_t bytes;     /* what the caller asked for */
    struct nxl_op op;   /* what the wrapped backend is asked for; its arrays are ours */
    struct nxl_op late; /* the row that follows after the end */
    struct nxl_piece late_piece;
    struct nxl_backend_mem **locals, **peers;
    struct nxl_backend_remote **remotes;
    struct nxl_piece *pieces;
    unsigned char *flip; /* the byte to turn once the wrapped backend is done; NULL: none */
    struct nxl_outcome outcome;
    unsigned faults; /* FAULT_* */
    enum fault_state state;
    enum fault_action action; /* what the timer does when it is due */
    int inner_quiet, canceled, late_open;
};

struct nxl_backend {
    struct nxl_host *host;      /* the agent's */
    struct nxl_host inner_host; /* lent to the wrapped backend */
    const struct nxl_backend_ops *inner_ops;
    struct nxl_backend *inner;
    struct nxl_backend_caps caps; /* of the wrapped one */
    struct {
        uint64_t delay_ns, reorder_ns, late_ns, seed;
        uint64_t again_every, fail_every, drop_every, skip_every, flip_every, late_every,
            never_quiesce_every;
        int fail_code, fail_touched;
    } option;
    struct {
        struct nxl_backend_mem *mems;
        uint64_t count, attempts; /* operations accepted, submits tried */
        uint64_t random;
        unsigned char *scratch; /* bytes that replace others in remote writes */
        struct nxl_backend_mem *scratch_mem;
        uint32_t scratch_at;
    } loop; /* loop thread, no lock */
    struct {
        pthread_mutex_t lock;
        pthread_cond_t moved;
        struct fault_op *buckets[FAULT_BUCKETS];
        struct fault_op *due_first, *due_last; /* by time */
        struct fault_op *late_first;           /* for progress() to submit */
        uint64_t ready_due_ns;                 /* 0: nobody waits */
        uint64_t random;
        uint32_t running; /* operations in the hands of the wrapped backend, late ones too */
        uint32_t open;    /* records */
        int closing, stop;
    } locked;
    pthread_t timer;
    int lock_made, timer_made;
};

uint64_t fault_now_ns(void);
uint64_t fault_random(uint64_t *state);

/* fault.c */
extern const struct nxl_option fault_options[];
void fault_options_read(struct nxl_backend *backend, const struct nxl_config *config);

/* wrap.c: memory, connections and keys, handed through. */
void fault_query(struct nxl_backend *backend, struct nxl_backend_caps *ret);
enum nxl_code fault_register(struct nxl_backend *backend, const struct nxl_memory *memory,
                             struct nxl_backend_mem **ret, struct nxl_err *err);
enum nxl_code fault_deregister(struct nxl_backend *backend, struct nxl_backend_mem *mem,
                               struct nxl_err *err);
void fault_mem_free(struct nxl_backend_mem *mem);
enum nxl_code fault_address(struct nxl_backend *backend, struct nxl_view *ret, struct nxl_err *err);
enum nxl_code fault_connect(struct nxl_backend *backend, struct nxl_view address,
                            struct nxl_backend_conn **ret, struct nxl_err *err);
void fault_disconnect(struct nxl_backend *backend, struct nxl_backend_conn *conn);
enum nxl_code fault_export(struct nxl_backend *backend, struct nxl_backend_mem *mem, void *buf,
                           size_t *ret_size, struct nxl_err *err);
enum nxl_code fault_import(struct nxl_backend *backend, struct nxl_backend_conn *conn,
                           struct nxl_view key, struct nxl_backend_remote **ret,
                           struct nxl_err *err);
void fault_forget(struct nxl_backend *backend, struct nxl_backend_remote *remote);

/* alter.c: the copy of an operation that the wrapped backend sees. Loop thread. */
struct fault_op *fault_op_new(struct nxl_backend *backend, const struct nxl_op *op,
                              unsigned faults);
void fault_op_free(struct fault_op *record); /* accepts NULL */

/* transfer.c */
unsigned fault_choose(const struct nxl_backend *backend);
enum nxl_code fault_submit(struct nxl_backend *backend, const struct nxl_op *op,
                           struct nxl_err *err);
void fault_cancel(struct nxl_backend *backend, uint64_t op_id);
int fault_progress(struct nxl_backend *backend);
void fault_inner_complete(struct nxl_host *host, const struct nxl_outcome *outcome);
void fault_inner_quiesced(struct nxl_host *host, uint64_t op_id);
struct fault_op *fault_find(struct nxl_backend *backend, uint64_t id); /* with the lock */
/* With the lock: what was held back ends as `code`, by the timer. */
void fault_release(struct nxl_backend *backend, struct fault_op *record, int code, const char *why);

/* timer.c; all with the lock */
void fault_schedule(struct nxl_backend *backend, struct fault_op *record, enum fault_action action,
                    uint64_t delay_ns);
void fault_unschedule(struct nxl_backend *backend, struct fault_op *record);
/* Tells the host. Both drop the lock for the call; the record may be gone afterwards. */
void fault_end(struct nxl_backend *backend, struct fault_op *record);
void fault_quiet(struct nxl_backend *backend, struct fault_op *record);
void fault_remove(struct nxl_backend *backend, struct fault_op *record); /* from its bucket */
void *fault_timer_main(void *arg);

#endif
