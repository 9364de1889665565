/* ucx_rig.h - one opened ucx backend with a host that records every callback, and far processes
 * that own another one. */
#ifndef NXL_TESTS_INTEGRATION_UCX_RIG_H
#define NXL_TESTS_INTEGRATION_UCX_RIG_H

#include <nxl/backend.h>

#include <pthread.h>
#include <sys/types.h>

#define UCX_RIG_OPS_MAX 4096

extern const struct nxl_backend_ops nxl_backend_ucx_ops;

struct ucx_rig_op {
    struct nxl_op op;
    struct nxl_backend_mem *locals[1];
    struct nxl_backend_remote *remotes[1];
    struct nxl_piece *pieces, single;
    struct nxl_outcome outcome; /* under the lock, as the rest */
    int completes, quiesces;
};

struct ucx_rig {
    struct nxl_host host; /* first */
    struct nxl_config config;
    const char *const *settings; /* "key=value", ends with NULL */
    struct nxl_backend *backend;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    struct ucx_rig_op ops[UCX_RIG_OPS_MAX];
    uint64_t ids;
    int disconnects, readies;
    struct nxl_backend_conn *disconnected;
    char why[160], log[8192];
};

/* NULL with *err filled: open() refused. */
struct ucx_rig *ucx_rig_open(const char *const *settings, struct nxl_err *err);
void ucx_rig_close(struct ucx_rig *rig);
/* Fills in op and submits it. */
enum nxl_code ucx_rig_submit(struct ucx_rig *rig, struct ucx_rig_op *op, struct nxl_err *err);
struct ucx_rig_op *ucx_rig_op_new(struct ucx_rig *rig, int kind, struct nxl_backend_conn *conn,
                                  struct nxl_backend_mem *mem, struct nxl_backend_remote *remote);
/* False after limit_ms. Both under the hood wait for the rig's callbacks. */
int ucx_rig_wait_end(struct ucx_rig *rig, struct ucx_rig_op *op, int limit_ms);
int ucx_rig_wait_quiet(struct ucx_rig *rig, struct ucx_rig_op *op, int limit_ms);
int ucx_rig_wait_disconnect(struct ucx_rig *rig, int count, int limit_ms);
uint64_t ucx_rig_now_ns(void);

/* Memory shared with a far process, and that process. */
struct far {
    pid_t pid;
    int socket, fd;
    unsigned char *base; /* our view of the far region */
    uint64_t size;
    unsigned char address[NXL_BACKEND_ADDRESS_MAX], key[NXL_BACKEND_KEY_MAX];
    size_t address_size, key_size;
};
/* Executes this program again as the far side with the same settings. 0: it failed. */
int far_spawn(struct far *far, uint64_t size, const char *const *settings);
void far_kill(struct far *far);  /* SIGKILL, and reaps it */
void far_close(struct far *far); /* asks it to end, kills it otherwise, reaps it */
/* main() of the far side: argv is "far" <socket> <fd> <size> <settings...>. */
int far_main(int argc, char **argv);

#endif
