/* read.h - objects as the API server sends them to the model's structs. Bounded; a malformed object
 * is refused with the name of the field, and nothing of it is used. Pure but for jansson; fuzzed.
 * Texts of pods, nodes and namespaces are lent from the JSON. */
#ifndef NXL_RECONCILE_READ_H
#define NXL_RECONCILE_READ_H

#include "model/object.h"
#include "model/status.h"

#include <jansson.h>

#define NXL_GROUP_NAME "nixlet.dev"
#define NXL_API_VERSION "nixlet.dev/v1alpha1"
#define NXL_FINALIZER "nixlet.dev/revoke"

/* NXL_MISMATCH: err names the field, what it is and what it must be. */
NXL_MUST_USE enum nxl_code nxl_read_pod(const json_t *object, struct nxl_pod *ret,
                                        struct nxl_err *err);
NXL_MUST_USE enum nxl_code nxl_read_node(const json_t *object, struct nxl_node *ret,
                                         struct nxl_err *err);
NXL_MUST_USE enum nxl_code nxl_read_namespace(const json_t *object, struct nxl_namespace *ret,
                                              struct nxl_err *err);
/* Gives *ret to nxl_nixlpeer_free(). */
NXL_MUST_USE enum nxl_code nxl_read_nixlpeer(const json_t *object, struct nxl_nixlpeer **ret,
                                             struct nxl_err *err);
/* What an earlier operator wrote, so that transition times go on; what cannot be read is left out.
 */
void nxl_read_status(const json_t *object, struct nxl_group_status *ret);

/* "2026-12-01T12:00:00Z" in milliseconds since 1970; -1 if it is no such. */
int64_t nxl_time_of(const char *text);
#define NXL_TIME_SIZE 32
const char *nxl_time_text(int64_t ms, int micros, char to[NXL_TIME_SIZE]);

#endif
