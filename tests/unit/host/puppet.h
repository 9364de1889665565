/* puppet.h - a backend that does what the test says, and an opened host around it. */
#ifndef NXL_TESTS_UNIT_HOST_PUPPET_H
#define NXL_TESTS_UNIT_HOST_PUPPET_H

#include "host/host.h"

struct nxl_loop;
struct nxl_metrics;

/* The puppet's strings; reset by puppet_open(). */
struct puppet {
    struct nxl_host *host; /* the agent's, for calling back */
    enum nxl_code submit_code, register_code, connect_code;
    int complete_inside; /* submit calls complete() before it returns */
    int register_nothing;
    int close_keeps;     /* close() ends nothing */
    uint64_t ids[70000]; /* of accepted operations */
    uint32_t submits, cancels, progresses, closes, disconnects;
    int progress_answer; /* once */
    const struct nxl_memory *memory;
};
extern struct puppet puppet;
/* The tables; a test may copy and change one. */
extern const struct nxl_backend_ops puppet_ops;
extern const struct nxl_backend_ops *const puppet_statics[];

struct bed {
    struct nxl_loop *loop;
    struct nxl_metrics *metrics;
    struct nxl_hosts *hosts;
    struct nxl_instance *instance; /* the puppet's */
    uint32_t readies, disconnecteds;
    char why[160];
};
void bed_open(struct bed *bed, const struct nxl_backend_ops *const *statics, const char *enabled);
void bed_close(struct bed *bed);

/* What the host told about one operation. */
struct told {
    uint32_t outcomes, quiets;
    struct nxl_outcome outcome;
    uint64_t quiet_id;
};
void told_outcome(void *arg, const struct nxl_outcome *outcome);
void told_quiet(void *arg, uint64_t op_id);
/* Submits an operation of one piece; its answers go to told. */
enum nxl_code bed_submit(struct bed *bed, struct nxl_op *op, struct told *told);
/* Runs the loop until *counter >= want; fails the test after 10 s. */
void bed_run_until(struct bed *bed, const uint32_t *counter, uint32_t want);
struct nxl_outcome puppet_outcome(uint64_t id, int code, int quiet);
long bed_metric(struct bed *bed, const char *name, const char *labels);

#endif
