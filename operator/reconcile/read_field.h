/* read_field.h - one field of a JSON object, checked: present or not, type, length. Inside
 * reconcile/read_*. The path in an error is "where.key". */
#ifndef NXL_RECONCILE_READ_FIELD_H
#define NXL_RECONCILE_READ_FIELD_H

#include "reconcile/read.h"

/* Each returns NXL_OK and leaves *ret alone if the key is absent or null. */
NXL_MUST_USE enum nxl_code field_text(const json_t *object, const char *where, const char *key,
                                      size_t max, const char **ret, struct nxl_err *err);
NXL_MUST_USE enum nxl_code field_number(const json_t *object, const char *where, const char *key,
                                        int64_t min, int64_t max, int64_t *ret,
                                        struct nxl_err *err);
NXL_MUST_USE enum nxl_code field_object(const json_t *object, const char *where, const char *key,
                                        const json_t **ret, struct nxl_err *err);
NXL_MUST_USE enum nxl_code field_array(const json_t *object, const char *where, const char *key,
                                       size_t max, const json_t **ret, struct nxl_err *err);
/* The index in words of the field's text; words end with NULL. */
NXL_MUST_USE enum nxl_code field_word(const json_t *object, const char *where, const char *key,
                                      const char *const *words, int *ret, struct nxl_err *err);
/* A bit for each word of an array of texts. */
NXL_MUST_USE enum nxl_code field_words(const json_t *object, const char *where, const char *key,
                                       const char *const *words, uint32_t *ret,
                                       struct nxl_err *err);

struct field_meta {
    const char *ns, *name, *uid, *version;
    int64_t generation;
    int deleting, finalizer;
};
NXL_MUST_USE enum nxl_code field_meta(const json_t *object, struct field_meta *ret,
                                      struct nxl_label labels[NXL_POD_LABELS_MAX],
                                      uint32_t *ret_labels, struct nxl_err *err);

#endif
