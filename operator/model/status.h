/* status.h - the status of a NixlPeer from what is known of it: counts and conditions with
 * observedGeneration and reasons that kstatus and people read. Pure, any thread. */
#ifndef NXL_MODEL_STATUS_H
#define NXL_MODEL_STATUS_H

#include "model/world.h"

enum nxl_condition_type {
    NXL_CONDITION_ACCEPTED = 0,
    NXL_CONDITION_PROGRAMMED,
    NXL_CONDITION_DEGRADED,
    NXL_CONDITION_READY,
    NXL_CONDITIONS
};
#define NXL_CONDITION_TEXT_MAX 512u

struct nxl_condition {
    int is_true;
    int64_t generation;
    int64_t since_ms;   /* lastTransitionTime, wall clock */
    const char *reason; /* static */
    char message[NXL_CONDITION_TEXT_MAX];
};

struct nxl_group_status_facts {
    struct nxl_world_group group;
    uint32_t interested, synced; /* agents that need the group; of those, up to date */
    uint64_t slowest_ns;         /* acknowledgement of the last invalidation */
    const char *missing_backend; /* required, and an agent of a member has it not; NULL */
    uint64_t now_ns;
    int64_t now_ms; /* the same moment on the wall */
};

struct nxl_group_status {
    int64_t generation, revision;
    uint32_t total, live, draining, suspect, pending, interested, synced, slices;
    int64_t dead_ms; /* lastInvalidation; 0: none */
    uint32_t dead_count, slowest_ms;
    char dead_reason[64];
    struct nxl_condition conditions[NXL_CONDITIONS];
};

const char *nxl_condition_name(enum nxl_condition_type type);
/* before: the last one written or read, whose transition times go on; NULL if there is none. */
void nxl_group_status_make(const struct nxl_group_status_facts *facts,
                           const struct nxl_group_status *before, struct nxl_group_status *ret);
/* 1 if writing b over a would change something. */
int nxl_group_status_differs(const struct nxl_group_status *a, const struct nxl_group_status *b);
/* 1 if people or tools wait for it: a condition, its reason or generation differs. */
int nxl_group_status_urgent(const struct nxl_group_status *a, const struct nxl_group_status *b);

#endif
