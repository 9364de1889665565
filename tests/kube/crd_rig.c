/* crd_rig.c - posts objects to a real API server and reads its refusals. Test thread. */
#include "kube/crd_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct kube_server *crd_server;

json_t *crd_json(const char *text)
{
    char *copy = strdup(text);
    json_error_t error;
    json_t *value;

    if (copy == NULL)
        abort();
    for (char *at = copy; *at != '\0'; at++)
        if (*at == '\'')
            *at = '"';
    value = json_loads(copy, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &error);
    if (value == NULL) {
        (void)fprintf(stderr, "crd_json: %s at %d in: %s\n", error.text, error.position, text);
        abort();
    }
    free(copy);
    return value;
}

void crd_merge(json_t *into, const json_t *patch)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)patch, key, value)
    {
        json_t *old = json_object_get(into, key);

        if (json_is_null(value)) {
            (void)json_object_del(into, key);
        } else if (json_is_object(value)) {
            if (!json_is_object(old)) {
                (void)json_object_set_new(into, key, json_object());
                old = json_object_get(into, key);
            }
            crd_merge(old, value);
        } else {
            (void)json_object_set_new(into, key, json_deep_copy(value));
        }
    }
}

static json_t *made(const char *base, const char *name, const char *under, const char *patch)
{
    json_t *object = crd_json(base);

    (void)json_object_set_new(json_object_get(object, "metadata"), "name", json_string(name));
    if (patch != NULL) {
        json_t *change = crd_json(patch);

        crd_merge(under != NULL ? json_object_get(object, under) : object, change);
        json_decref(change);
    }
    return object;
}

json_t *crd_peer(const char *name, const char *patch)
{
    return made("{'apiVersion':'nixlet.dev/v1alpha1','kind':'NixlPeer','metadata':{},"
                "'spec':{'role':'Prefill','selector':{'matchLabels':{'app':'x'}}}}",
                name, "spec", patch);
}

json_t *crd_slice(const char *name, const char *patch)
{
    return made("{'apiVersion':'nixlet.dev/v1alpha1','kind':'NixlPeerSlice','metadata':{},"
                "'peerName':'a','index':0,'members':[{'uid':'u','pod':'p','state':'Live'}]}",
                name, NULL, patch);
}

json_t *crd_send(const char *method, const char *path, const char *type, json_t *body,
                 long *ret_status)
{
    char *text = body != NULL ? json_dumps(body, JSON_COMPACT) : NULL;
    struct kube_answer answer = kube_server_ask(crd_server, method, path, type, text);
    json_t *parsed = json_loadb(answer.text, answer.size, 0, NULL);

    free(text);
    json_decref(body);
    *ret_status = answer.status;
    return parsed != NULL ? parsed : json_string(answer.text);
}

int crd_refused_for(const json_t *answer, const char *field, const char *text)
{
    const json_t *causes = json_object_get(json_object_get(answer, "details"), "causes");

    if (json_integer_value(json_object_get(answer, "code")) != 422)
        return 0;
    for (size_t i = 0; i < json_array_size(causes); i++) {
        const json_t *cause = json_array_get(causes, i);
        const char *at = json_string_value(json_object_get(cause, "field"));
        const char *message = json_string_value(json_object_get(cause, "message"));

        if (message != NULL && strstr(message, text) != NULL &&
            (field == NULL || (at != NULL && strcmp(at, field) == 0)))
            return 1;
    }
    return 0;
}

json_t *crd_schema(const char *plural)
{
    char path[256];
    long status;
    json_t *crd, *schema;

    (void)snprintf(path, sizeof(path),
                   "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/%s.nixlet.dev", plural);
    crd = crd_send("GET", path, NULL, NULL, &status);
    schema = json_object_get(crd, "spec");
    schema = json_array_get(json_object_get(schema, "versions"), 0);
    schema = json_object_get(json_object_get(schema, "schema"), "openAPIV3Schema");
    if (schema == NULL)
        abort();
    json_incref(schema);
    json_decref(crd);
    return schema;
}

void crd_delete(const char *path)
{
    (void)kube_server_ask(crd_server, "DELETE", path, NULL, NULL);
}
