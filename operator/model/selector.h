/* selector.h - label selectors with Kubernetes' meaning: matchLabels and matchExpressions, all of
 * which must hold. An empty one matches everything. Pure, any thread. */
#ifndef NXL_MODEL_SELECTOR_H
#define NXL_MODEL_SELECTOR_H

#include "model/object.h"

#define NXL_SELECTOR_TERMS_MAX 32u  /* 16 labels and 16 expressions */
#define NXL_SELECTOR_VALUES_MAX 32u /* of one expression */

enum nxl_selector_op { NXL_IN = 0, NXL_NOT_IN, NXL_EXISTS, NXL_NOT_EXISTS };

struct nxl_selector;

struct nxl_selector *nxl_selector_new(void);
void nxl_selector_free(struct nxl_selector *selector); /* accepts NULL */
/* Copies. -1 and unchanged: too many terms or values, an empty key, values where there must be
 * none, or none where there must be some. */
int nxl_selector_add(struct nxl_selector *selector, const char *key, enum nxl_selector_op op,
                     const char *const *values, uint32_t count);
uint32_t nxl_selector_terms(const struct nxl_selector *selector);
/* NotIn and DoesNotExist hold when the key is absent, as in Kubernetes. */
int nxl_selector_matches(const struct nxl_selector *selector, const struct nxl_label *labels,
                         uint32_t count);
/* enum nxl_selector_op of "In", "NotIn", "Exists", "DoesNotExist"; -1 if there is no such. */
int nxl_selector_op_of(const char *word);

#endif
