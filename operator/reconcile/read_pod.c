/* read_pod.c - a Pod: name, place, labels, phase and what its containers are. */
#include "reconcile/read_field.h"

#include <stdio.h>
#include <string.h>

static enum nxl_code read_container(const json_t *status, size_t index, struct nxl_container *ret,
                                    struct nxl_err *err)
{
    struct nxl_container container = {.name = "", .id = ""};
    const json_t *state = NULL;
    const char *mark;
    char where[64];
    int64_t restarts = 0;
    enum nxl_code code;

    snprintf(where, sizeof(where), "status.containerStatuses[%zu]", index);
    if (!json_is_object(status))
        return nxl_err_set(err, NXL_MISMATCH, 0, "%s is no object", where);
    code = field_text(status, where, "name", NXL_LABEL_MAX, &container.name, err);
    if (code == NXL_OK)
        code =
            field_text(status, where, "containerID", NXL_CONTAINER_ID_MAX + 16, &container.id, err);
    if (code == NXL_OK)
        code = field_number(status, where, "restartCount", 0, INT32_MAX, &restarts, err);
    if (code == NXL_OK)
        code = field_object(status, where, "state", &state, err);
    if (code != NXL_OK)
        return code;
    mark = strstr(container.id, "://");
    if (mark != NULL)
        container.id = mark + 3;
    if (container.name[0] == '\0' || strlen(container.id) > NXL_CONTAINER_ID_MAX ||
        strchr(container.id, '/') != NULL)
        return nxl_err_set(err, NXL_MISMATCH, 0, "%s.%s is not what it must be", where,
                           container.name[0] == '\0' ? "name" : "containerID");
    container.restarts = (uint32_t)restarts;
    /* An id with a state that does not run is the one that has ended: a crash loop waits so. */
    container.ended = state != NULL && container.id[0] != '\0' &&
                      !json_is_object(json_object_get(state, "running")) &&
                      json_object_size(state) > 0;
    *ret = container;
    return NXL_OK;
}

static enum nxl_code read_pod_status(const json_t *status, struct nxl_pod *pod, struct nxl_err *err)
{
    static const char *const phases[] = {"Pending", "Running", "Succeeded",
                                         "Failed",  "Unknown", NULL};
    const json_t *list = NULL;
    int phase = NXL_PHASE_PENDING;
    enum nxl_code code = field_word(status, "status", "phase", phases, &phase, err);

    if (code == NXL_OK)
        code = field_text(status, "status", "reason", 256, &pod->reason, err);
    if (code == NXL_OK)
        code =
            field_array(status, "status", "containerStatuses", NXL_POD_CONTAINERS_MAX, &list, err);
    for (size_t i = 0; code == NXL_OK && i < json_array_size(list); i++)
        code = read_container(json_array_get(list, i), i, &pod->containers[pod->container_count++],
                              err);
    pod->phase = (uint8_t)phase;
    return code;
}

enum nxl_code nxl_read_pod(const json_t *object, struct nxl_pod *ret, struct nxl_err *err)
{
    const json_t *spec = NULL, *status = NULL;
    struct field_meta meta;
    enum nxl_code code;

    ret->node = ret->reason = "";
    ret->phase = NXL_PHASE_PENDING;
    ret->label_count = ret->container_count = 0;
    code = field_meta(object, &meta, ret->labels, &ret->label_count, err);
    if (code == NXL_OK && meta.ns[0] == '\0')
        code = nxl_err_set(err, NXL_MISMATCH, 0, "metadata.namespace is missing");
    if (code == NXL_OK)
        code = field_object(object, "", "spec", &spec, err);
    if (code == NXL_OK && spec != NULL)
        code = field_text(spec, "spec", "nodeName", NXL_NODE_MAX, &ret->node, err);
    if (code == NXL_OK)
        code = field_object(object, "", "status", &status, err);
    if (code == NXL_OK && status != NULL)
        code = read_pod_status(status, ret, err);
    if (code != NXL_OK)
        return code;
    ret->ns = meta.ns;
    ret->name = meta.name;
    ret->uid = meta.uid;
    ret->version = meta.version;
    ret->deleting = (uint8_t)meta.deleting;
    return NXL_OK;
}
