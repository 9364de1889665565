/* cost.h - what a candidate would take for a shape; pure. Lower wins; ties go to the better path
 * class, then to the lower instance index. */
#ifndef NXL_PLAN_COST_H
#define NXL_PLAN_COST_H

#include <nxl/backend.h>

/* op_ns + pieces * piece_ns + bytes / 1024 * kib_ns, saturating. */
uint64_t nxl_cost_ns(const struct nxl_backend_caps *caps, uint64_t pieces, uint64_t bytes);

#endif
