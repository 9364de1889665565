/* near.h - a client inside the test process: one peer, its memory, and short ways to move bytes.
 * Every step that must not fail aborts the test with the error's sentence. */
#ifndef NXL_TESTS_NEAR_H
#define NXL_TESTS_NEAR_H

#include "support/cluster.h"

struct near {
    struct nxl_client *client;
    struct nxl_peer *peer;
    struct nxl_memreg *reg;
    unsigned char *memory;
    uint64_t size;
};

/* Before the agents start: this one gets a free port and keeps it over its restarts. */
void near_fix_address(struct cluster *c, int agent);
void near_open(struct cluster *c, int agent, const char *name, uint64_t size, struct near *ret);
void near_close(struct near *near);
/* By name through this agent or the store, within 10 s. */
struct nxl_remote *near_fetch(struct near *near, const char *name);
struct nxl_remote *near_load(struct near *near, const struct near *of);
struct nxl_transfer *near_create(struct near *near, enum nxl_op_kind op, struct nxl_remote *remote,
                                 uint64_t here, uint64_t there, uint64_t len);
/* Posts and waits 30 s; the code it ended with. */
enum nxl_code near_run(struct nxl_transfer *transfer);
/* create, run, release: the code, and the sentence if it failed. */
enum nxl_code near_move(struct near *near, enum nxl_op_kind op, struct nxl_remote *remote,
                        uint64_t here, uint64_t there, uint64_t len, struct nxl_err *ret_err);
/* near_move() that succeeds as soon as the far side is wired up again; 0 if not within timeout_ns.
 */
int near_moves(struct near *near, enum nxl_op_kind op, struct nxl_remote *remote, uint64_t there,
               uint64_t len, uint64_t timeout_ns);
void near_release(struct nxl_transfer *transfer); /* waits until it is quiet */
/* Events of that kind that come within quiet_ns after the last one: for "once" and "none". */
unsigned near_count(struct near *near, uint32_t kind, uint64_t quiet_ns);
/* The state as the agent tells it now. */
struct nxl_remote_state near_state(struct near *near, struct nxl_remote *remote);
/* A far peer of mode "fill" has this word at that offset. */
uint64_t near_word(uint64_t offset);

#endif
