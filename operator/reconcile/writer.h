/* writer.h - everything the leader writes: status, finalizer, slices, events. It knows no sockets:
 * calls go out through an api of two functions, answers come back by nxl_writer_answer_fn. Inside
 * reconcile; tests bring their own api. Time is an argument. Loop thread. */
#ifndef NXL_RECONCILE_WRITER_H
#define NXL_RECONCILE_WRITER_H

#include "reconcile/read.h"

struct nxl_writer;

struct nxl_writer_call { /* lent for the call */
    const char *method, *path, *query, *content_type;
    const char *body; /* JSON text; NULL: none */
};
/* status 0: no answer came, err says why. after_ns: the server asks to wait so long. */
typedef void nxl_writer_answer_fn(void *arg, int status, const json_t *answer, uint64_t after_ns,
                                  const struct nxl_err *err);

struct nxl_writer_agents { /* as agents stand towards a group */
    uint32_t interested, synced;
    uint64_t slowest_ns;
};

struct nxl_writer_api {
    void (*call)(void *arg, const struct nxl_writer_call *call, nxl_writer_answer_fn *fn,
                 void *fn_arg);
    int (*may_write)(void *arg); /* the lease, checked just before each call */
    void (*agents)(void *arg, const char *group, struct nxl_writer_agents *ret);
    /* Everybody has heard that group is revoked. */
    int (*revoked)(void *arg, const char *group);
    void (*clock)(void *arg, uint64_t *ret_now_ns, int64_t *ret_now_ms);
};

struct nxl_writer_options {
    struct nxl_world *world;
    const struct nxl_writer_api *api;
    void *arg;
    const char *instance;        /* reportingInstance of events */
    uint64_t status_interval_ns; /* between writes of one object that are not urgent */
    uint64_t revoke_timeout_ns;
    double writes_rate; /* a second, steady */
    int slices;
};

struct nxl_writer_counts {
    uint64_t status, finalizers, slices, events, failed, skipped_not_leader, notes_merged;
};

struct nxl_writer *nxl_writer_new(const struct nxl_writer_options *options);
/* Answers that come later are dropped. */
void nxl_writer_free(struct nxl_writer *writer); /* accepts NULL */

void nxl_writer_group(struct nxl_writer *writer, const char *group);
void nxl_writer_slice(struct nxl_writer *writer, const char *group, uint32_t index);
#define NXL_EVENT_WARNING 1u
#define NXL_EVENT_MERGE 2u /* another text is a repetition too, not an event of its own */
void nxl_writer_note(struct nxl_writer *writer, const char *group, const char *reason,
                     unsigned flags, const char *text);
/* An object of this group was seen by the watch: our own write of an earlier version is visible. */
void nxl_writer_seen(struct nxl_writer *writer, const char *group, const json_t *object);
void nxl_writer_lead(struct nxl_writer *writer);              /* everything is looked at again */
void nxl_writer_run(struct nxl_writer *writer);               /* what is due */
uint64_t nxl_writer_next_ns(const struct nxl_writer *writer); /* when to run again */
void nxl_writer_counts(const struct nxl_writer *writer, struct nxl_writer_counts *ret);
uint32_t nxl_writer_depth(const struct nxl_writer *writer);
/* The status last computed and written for group; NULL if none. Lent. */
const struct nxl_group_status *nxl_writer_status(struct nxl_writer *writer, const char *group);

#endif
