/* policy.h - may a backend carry a request at all: reach, registered regions, required path, size
 * of the plan. Only agent/plan includes it. Pure. */
#ifndef NXL_PLAN_POLICY_H
#define NXL_PLAN_POLICY_H

#include "plan/merge.h"

enum nxl_policy {
    NXL_POLICY_FITS,
    NXL_POLICY_SLOW,  /* it could, but not on the required path */
    NXL_POLICY_LARGE, /* it could, but not in one plan */
    NXL_POLICY_UNFIT,
};

/* reason may be NULL; else it gets a clause like "remote region 7 [0x..., 0x...) has no key for
 * it". */
enum nxl_policy nxl_policy_check(const struct nxl_plan_request *request,
                                 const struct nxl_merge *merge,
                                 const struct nxl_plan_candidate *candidate, char *reason,
                                 size_t room);
const char *nxl_policy_path_word(int path); /* "rdma"; never NULL */

#endif
