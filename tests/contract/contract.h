/* contract.h - what the files of the contract suite share. */
#ifndef NXL_TESTS_CONTRACT_CONTRACT_H
#define NXL_TESTS_CONTRACT_CONTRACT_H

#include "contract/rig.h"

/* A rig for the case on the command line; skips the test where the backend is not available. */
struct rig *rig_open_or_skip(const char *const *extra);
void noise_fill(unsigned char *to, uint64_t size, uint64_t seed);
/* Rows whose two ends differ; 0 for a backend that moves nothing. */
int noise_wrong(struct rig *rig, const struct rig_op *op, struct rig_region *near,
                struct rig_region *far);
/* test_faults.c: what each option of the fault wrapper does, and that it keeps every promise. */
int contract_run_faults(const struct rig_case *with);

#endif
