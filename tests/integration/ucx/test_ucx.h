/* test_ucx.h - what the files of this test share. */
#ifndef NXL_TESTS_INTEGRATION_UCX_TEST_UCX_H
#define NXL_TESTS_INTEGRATION_UCX_TEST_UCX_H

#include "integration/ucx/ucx_rig.h"

extern const char *ucx_settings[8]; /* from the command line; ends with NULL */

/* An own region and a far process with one of the same size, connected. */
struct pair {
    struct ucx_rig *rig;
    struct far far;
    unsigned char *base;
    uint64_t size;
    struct nxl_backend_mem *mem;
    struct nxl_backend_conn *conn;
    struct nxl_backend_remote *remote;
};
void pair_open(struct pair *pair, uint64_t size);
void pair_connect(struct pair *pair); /* to a new far process */
void pair_close(struct pair *pair);
struct ucx_rig_op *pair_op(struct pair *pair, int kind, uint64_t offset, uint64_t len);
void pair_submit(struct pair *pair, struct ucx_rig_op *op);

int death_run(void);
int environment_run(void);
int environment_main(const char *what, const char *arg);

#endif
