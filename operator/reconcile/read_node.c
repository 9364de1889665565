/* read_node.c - a Node: labels, readiness, the out-of-service taint; and a Namespace's labels. */
#include "reconcile/read_field.h"

#include <string.h>

#define NODE_CONDITIONS_MAX 256u
#define NODE_TAINTS_MAX 256u

static enum nxl_code read_ready(const json_t *object, uint8_t *ret, struct nxl_err *err)
{
    const json_t *status = NULL, *list = NULL;
    enum nxl_code code = field_object(object, "", "status", &status, err);

    if (code == NXL_OK && status != NULL)
        code = field_array(status, "status", "conditions", NODE_CONDITIONS_MAX, &list, err);
    for (size_t i = 0; code == NXL_OK && i < json_array_size(list); i++) {
        const json_t *condition = json_array_get(list, i);
        const char *type = json_string_value(json_object_get(condition, "type"));
        const char *is = json_string_value(json_object_get(condition, "status"));

        if (type == NULL || is == NULL)
            return nxl_err_set(err, NXL_MISMATCH, 0, "status.conditions[%zu] lacks type or status",
                               i);
        if (strcmp(type, "Ready") == 0)
            *ret = strcmp(is, "True") == 0    ? NXL_NODE_READY
                   : strcmp(is, "False") == 0 ? NXL_NODE_NOT_READY
                                              : NXL_NODE_UNKNOWN;
    }
    return code;
}

static enum nxl_code read_taints(const json_t *object, uint8_t *ret, struct nxl_err *err)
{
    const json_t *spec = NULL, *list = NULL;
    enum nxl_code code = field_object(object, "", "spec", &spec, err);

    if (code == NXL_OK && spec != NULL)
        code = field_array(spec, "spec", "taints", NODE_TAINTS_MAX, &list, err);
    for (size_t i = 0; code == NXL_OK && i < json_array_size(list); i++) {
        const char *key = json_string_value(json_object_get(json_array_get(list, i), "key"));

        if (key == NULL)
            return nxl_err_set(err, NXL_MISMATCH, 0, "spec.taints[%zu].key is missing", i);
        if (strcmp(key, "node.kubernetes.io/out-of-service") == 0)
            *ret = 1;
    }
    return code;
}

enum nxl_code nxl_read_node(const json_t *object, struct nxl_node *ret, struct nxl_err *err)
{
    struct field_meta meta;
    enum nxl_code code;

    ret->ready = NXL_NODE_READY; /* a node that says nothing is not judged */
    ret->out_of_service = 0;
    ret->label_count = 0;
    code = field_meta(object, &meta, ret->labels, &ret->label_count, err);
    if (code == NXL_OK)
        code = read_ready(object, &ret->ready, err);
    if (code == NXL_OK)
        code = read_taints(object, &ret->out_of_service, err);
    if (code != NXL_OK)
        return code;
    ret->name = meta.name;
    ret->uid = meta.uid;
    ret->version = meta.version;
    return NXL_OK;
}

enum nxl_code nxl_read_namespace(const json_t *object, struct nxl_namespace *ret,
                                 struct nxl_err *err)
{
    struct field_meta meta;
    enum nxl_code code;

    ret->label_count = 0;
    code = field_meta(object, &meta, ret->labels, &ret->label_count, err);
    if (code != NXL_OK)
        return code;
    if (strlen(meta.name) > NXL_NAMESPACE_MAX)
        return nxl_err_set(err, NXL_MISMATCH, 0, "metadata.name is longer than %d bytes",
                           NXL_NAMESPACE_MAX);
    ret->name = meta.name;
    ret->uid = meta.uid;
    ret->version = meta.version;
    return NXL_OK;
}
