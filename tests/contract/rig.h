/* rig.h - one backend opened with a host that checks every promise of nxl/backend.h, its regions
 * and its operations. A broken promise is remembered and fails the test in rig_close(). */
#ifndef NXL_TESTS_CONTRACT_RIG_H
#define NXL_TESTS_CONTRACT_RIG_H

#include <nxl/backend.h>

#include <pthread.h>

struct nxl_settings;

/* One row of the table of backends (rows.c). */
struct rig_row {
    const char *name;  /* as in nxl_backends_static() */
    int moves;         /* bytes really arrive; 0 only for null */
    const char *again; /* "queue=4": the setting under which NXL_AGAIN is reached, or NULL */
    int fair;          /* a huge operation does not hold up a small one */
    uint64_t size_max; /* largest operation of the suite; 0: 64 MiB */
    const char *const *settings; /* "key=value" of its own section, ends with NULL; may be NULL */
};
const struct rig_row *rig_row_find(const char *name);

/* How the suite runs over a row: given on the command line as <name> bare|fault local|remote. */
struct rig_case {
    const struct rig_row *row;
    int wrapped; /* inside fault */
    int remote;  /* two instances with a connection; else one with two regions */
};

struct rig_op {
    struct nxl_op op;
    struct nxl_backend_mem **locals, **peers;
    struct nxl_backend_remote **remotes;
    struct nxl_piece *pieces;
    struct nxl_outcome outcome;
    int completes, quiesces; /* how often; under the rig's lock */
    int order;               /* of its end among all ends, from 1 */
    int accepted;
};

struct rig_region {
    unsigned char *base;
    uint64_t size;
    int fd, end; /* the instance that it is registered with */
    struct nxl_backend_mem *mem;
    struct nxl_backend_remote *remote; /* imported at end 0; only for far regions of a remote rig */
};

#define RIG_OPS_MAX 65536
#define RIG_REGIONS_MAX 64

struct rig;
struct rig_end {
    struct nxl_host host; /* first: the backend's callbacks find their end by it */
    struct rig *rig;
    const struct nxl_backend_ops *ops;
    struct nxl_backend *backend;
    struct nxl_backend_caps caps;
    struct nxl_config *inner_config; /* lent during open() */
};
struct rig {
    struct rig_case with;
    struct rig_end ends[2];
    int end_count;
    struct nxl_backend_conn *conn; /* from end 0 to end 1 */
    struct nxl_settings *settings;
    struct rig_region regions[RIG_REGIONS_MAX];
    int region_count;
    struct {
        pthread_mutex_t lock;
        pthread_cond_t moved;
        struct rig_op *ops[RIG_OPS_MAX]; /* by id */
        uint64_t ids;
        int readies, disconnects, ends, violations;
        char violation[256]; /* the first one */
    } shared;
};

/* extra: "key=value" for the backend's own section, "fault.key=value" for the wrapper's; ends with
 * NULL, may be NULL. NULL if the backend is not available here: the test is skipped, with reason.
 */
struct rig *rig_open(const struct rig_case *with, const char *const *extra);
/* Closes the backend with whatever still runs, then checks: every accepted operation completed
 * exactly once and is quiet exactly once, a refused one never, and no promise was broken. */
void rig_close(struct rig *rig);

/* Shared memory, registered near (end 0) or far (the other side of the wiring). */
struct rig_region *rig_region_open(struct rig *rig, uint64_t size, int far);
void rig_region_close(struct rig *rig, struct rig_region *region);

/* Copies pieces; regions by index 0 unless pieces say otherwise. Lives until rig_close(). */
struct rig_op *rig_op_new(struct rig *rig, enum nxl_op_kind kind, struct rig_region *near,
                          struct rig_region *far, const struct nxl_piece *pieces, uint32_t count);
enum nxl_code rig_try(struct rig *rig, struct rig_op *op, struct nxl_err *err); /* submit once */
void rig_submit(struct rig *rig,
                struct rig_op *op); /* goes on after NXL_AGAIN; fails the test else */
void rig_cancel(struct rig *rig, struct rig_op *op);
void rig_wait_end(struct rig *rig, struct rig_op *op);   /* until its complete() */
void rig_wait_quiet(struct rig *rig, struct rig_op *op); /* ... and its buffers are quiet */
/* Lets the backends work until done(arg) or a deadline that fails the test. */
void rig_pump(struct rig *rig, int (*done)(void *arg), void *arg);
int rig_completes(struct rig *rig, struct rig_op *op);
int rig_readies(struct rig *rig);
void rig_check(struct rig *rig); /* fails the test with the first broken promise */

#endif
