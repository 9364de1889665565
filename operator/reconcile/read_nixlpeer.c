/* read_nixlpeer.c - a NixlPeer. The schema has refused most nonsense already; what a server with
 * another schema lets through is refused here, with the field's name. */
#include "reconcile/read_field.h"

#include "model/selector.h"

#include <stdio.h>
#include <string.h>

static const char *const kind_words[] = {"DRAM", "VRAM", "Block", "Object", "File", NULL};
static const char *const role_words[] = {"",           "Prefill", "Decode", "Encode",
                                         "Aggregated", "Storage", "Custom", NULL};
static const char *const op_words[] = {"Read", "Write", "Notify", NULL};

static enum nxl_code read_quantity(const json_t *object, const char *where, const char *key,
                                   uint64_t *ret, struct nxl_err *err)
{
    const char *text = NULL;
    enum nxl_code code = field_text(object, where, key, 32, &text, err);

    if (code == NXL_OK && text != NULL && !nxl_quantity_of(text, ret))
        return nxl_err_set(err, NXL_MISMATCH, 0, "%s.%s \"%s\" is no positive quantity", where, key,
                           text);
    return code;
}

/* ---- selectors --------------------------------------------------------------------------------
 */

static enum nxl_code read_expression(const json_t *item, const char *where,
                                     struct nxl_selector *selector, struct nxl_err *err)
{
    const char *values[NXL_SELECTOR_VALUES_MAX];
    const char *key = "", *op = "";
    const json_t *list = NULL;
    enum nxl_code code;
    uint32_t count = 0;

    if (!json_is_object(item))
        return nxl_err_set(err, NXL_MISMATCH, 0, "%s is no object", where);
    code = field_text(item, where, "key", 317, &key, err);
    if (code == NXL_OK)
        code = field_text(item, where, "operator", 16, &op, err);
    if (code == NXL_OK)
        code = field_array(item, where, "values", NXL_SELECTOR_VALUES_MAX, &list, err);
    if (code != NXL_OK)
        return code;
    for (size_t i = 0; i < json_array_size(list); i++) {
        values[count] = json_string_value(json_array_get(list, i));
        if (values[count++] == NULL)
            return nxl_err_set(err, NXL_MISMATCH, 0, "%s.values[%zu] is no text", where, i);
    }
    if (nxl_selector_op_of(op) < 0)
        return nxl_err_set(err, NXL_MISMATCH, 0, "%s.operator \"%s\" is none that is known", where,
                           op);
    if (nxl_selector_add(selector, key, (enum nxl_selector_op)nxl_selector_op_of(op), values,
                         count) != 0)
        return nxl_err_set(err, NXL_MISMATCH, 0,
                           "%s: an empty key, or values do not fit the operator", where);
    return NXL_OK;
}

/* *ret is set as soon as it exists, so that its owner frees it also after an error. */
static enum nxl_code read_selector(const json_t *object, const char *where, const char *key,
                                   struct nxl_selector **ret, struct nxl_err *err)
{
    const json_t *self = NULL, *labels = NULL, *list = NULL;
    char path[128];
    const char *name;
    json_t *value;
    enum nxl_code code = field_object(object, where, key, &self, err);

    if (code != NXL_OK || self == NULL)
        return code;
    *ret = nxl_selector_new();
    snprintf(path, sizeof(path), "%s.%s", where, key);
    code = field_object(self, path, "matchLabels", &labels, err);
    if (code == NXL_OK)
        code = field_array(self, path, "matchExpressions", 16, &list, err);
    if (code != NXL_OK)
        return code;
    json_object_foreach((json_t *)(uintptr_t)labels, name, value)
    {
        const char *text = json_string_value(value);

        if (text == NULL || nxl_selector_add(*ret, name, NXL_IN, &text, 1) != 0)
            return nxl_err_set(err, NXL_MISMATCH, 0, "%s.matchLabels: \"%.64s\" cannot be taken",
                               path, name);
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        char item[160];

        snprintf(item, sizeof(item), "%s.matchExpressions[%zu]", path, i);
        code = read_expression(json_array_get(list, i), item, *ret, err);
        if (code != NXL_OK)
            return code;
    }
    return NXL_OK;
}

/* ---- the lists --------------------------------------------------------------------------------
 */

static enum nxl_code read_memory(const json_t *spec, struct nxl_nixlpeer *peer, struct nxl_err *err)
{
    const json_t *list = NULL;
    enum nxl_code code = field_array(spec, "spec", "memory", NXL_MEM_KINDS, &list, err);

    for (size_t i = 0; code == NXL_OK && i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        char where[32];
        int kind = -1;

        snprintf(where, sizeof(where), "spec.memory[%zu]", i);
        code = field_word(item, where, "kind", kind_words, &kind, err);
        if (code == NXL_OK && kind < 0)
            return nxl_err_set(err, NXL_MISMATCH, 0, "%s.kind is missing", where);
        if (code == NXL_OK)
            code = read_quantity(item, where, "maxBytesPerPod", &peer->spec.memory_max[kind], err);
        if (code == NXL_OK)
            peer->spec.memory |= (uint8_t)(1u << kind);
    }
    return code;
}

static enum nxl_code read_backends(const json_t *spec, struct nxl_nixlpeer *peer,
                                   struct nxl_err *err)
{
    static const char *const words[] = {"Preferred", "Required", NULL};
    const json_t *list = NULL;
    enum nxl_code code = field_array(spec, "spec", "backends", NXL_BACKENDS_MAX, &list, err);

    for (size_t i = 0; code == NXL_OK && i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        const char *name = "";
        char where[32];
        int required = 0;

        snprintf(where, sizeof(where), "spec.backends[%zu]", i);
        code = field_text(item, where, "name", 32, &name, err);
        if (code == NXL_OK)
            code = field_word(item, where, "requirement", words, &required, err);
        if (code == NXL_OK && name[0] == '\0')
            return nxl_err_set(err, NXL_MISMATCH, 0, "%s.name is missing", where);
        if (code == NXL_OK)
            peer->spec.backends[peer->spec.backend_count++] = (struct nxl_backend_wish){
                .name = nxl_nixlpeer_keep(peer, name), .required = (uint8_t)required};
    }
    return code;
}

static enum nxl_code read_from(const json_t *item, const char *where, struct nxl_nixlpeer *peer,
                               struct nxl_rule *rule, struct nxl_err *err)
{
    const json_t *from = NULL;
    const char *name = NULL;
    char path[64];
    int role = NXL_ROLE_NONE;
    enum nxl_code code = field_object(item, where, "from", &from, err);

    if (code != NXL_OK)
        return code;
    snprintf(path, sizeof(path), "%s.from", where);
    code = field_text(from, path, "peerName", 52, &name, err);
    if (code == NXL_OK)
        code = read_selector(from, path, "peerSelector", &rule->peers, err);
    if (code == NXL_OK)
        code = field_word(from, path, "role", role_words, &role, err);
    if (code == NXL_OK)
        code = read_selector(from, path, "namespaceSelector", &rule->spaces, err);
    if (code != NXL_OK)
        return code;
    if ((name != NULL) + (rule->peers != NULL) + (role != NXL_ROLE_NONE) != 1)
        return nxl_err_set(err, NXL_MISMATCH, 0,
                           "%s: set exactly one of peerName, peerSelector and role", path);
    rule->role = (uint8_t)role;
    if (name != NULL)
        rule->peer_name = nxl_nixlpeer_keep(peer, name);
    return NXL_OK;
}

static enum nxl_code read_allow(const json_t *spec, struct nxl_nixlpeer *peer, struct nxl_err *err)
{
    const json_t *list = NULL;
    enum nxl_code code = field_array(spec, "spec", "allow", NXL_RULES_MAX, &list, err);

    for (size_t i = 0; code == NXL_OK && i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        struct nxl_rule *rule = &peer->spec.rules[peer->spec.rule_count++];
        uint32_t ops = 0, memory = 0;
        char where[32];

        snprintf(where, sizeof(where), "spec.allow[%zu]", i);
        code = read_from(item, where, peer, rule, err);
        if (code == NXL_OK)
            code = field_words(item, where, "operations", op_words, &ops, err);
        if (code == NXL_OK)
            code = field_words(item, where, "memory", kind_words, &memory, err);
        if (code == NXL_OK && ops == 0)
            return nxl_err_set(err, NXL_MISMATCH, 0, "%s.operations is empty", where);
        rule->ops = (uint8_t)ops;
        rule->memory = (uint8_t)memory;
    }
    return code;
}

/* ---- the rest of spec --------------------------------------------------------------------------
 */

static enum nxl_code read_seconds(const json_t *object, const char *where, const char *key,
                                  int64_t min, int64_t max, uint32_t *ret, struct nxl_err *err)
{
    int64_t number = *ret;
    enum nxl_code code = field_number(object, where, key, min, max, &number, err);

    if (code == NXL_OK)
        *ret = (uint32_t)number;
    return code;
}

static enum nxl_code read_choice(const json_t *object, const char *where, const char *key,
                                 const char *const *words, uint8_t *ret, struct nxl_err *err)
{
    int index = *ret;
    enum nxl_code code = field_word(object, where, key, words, &index, err);

    if (code == NXL_OK)
        *ret = (uint8_t)index;
    return code;
}

static enum nxl_code read_loss(const json_t *liveness, struct nxl_nixlpeer *peer,
                               struct nxl_err *err)
{
    static const char *const words[] = {"Continue", "Quarantine", NULL};
    const char *where = "spec.liveness.controlPlaneLoss";
    const json_t *self = NULL;
    enum nxl_code code = field_object(liveness, "spec.liveness", "controlPlaneLoss", &self, err);

    if (code == NXL_OK)
        code = read_choice(self, where, "action", words, &peer->spec.loss_quarantines, err);
    if (code == NXL_OK)
        code = read_seconds(self, where, "afterSeconds", 5, 86400, &peer->spec.loss_after_s, err);
    return code;
}

static enum nxl_code read_liveness(const json_t *spec, struct nxl_nixlpeer *peer,
                                   struct nxl_err *err)
{
    static const char *const words[] = {"Quarantine", "Purge", NULL};
    const char *where = "spec.liveness";
    const json_t *self = NULL;
    enum nxl_code code = field_object(spec, "spec", "liveness", &self, err);

    if (code != NXL_OK || self == NULL)
        return code;
    code =
        read_seconds(self, where, "heartbeatIntervalSeconds", 1, 60, &peer->spec.heartbeat_s, err);
    if (code == NXL_OK)
        code = read_seconds(self, where, "leaseDurationSeconds", 3, 600, &peer->spec.lease_s, err);
    if (code == NXL_OK)
        code = read_choice(self, where, "onLapse", words, &peer->spec.lapse_purges, err);
    if (code == NXL_OK)
        code = read_seconds(self, where, "purgeAfterSeconds", 5, 86400, &peer->spec.purge_s, err);
    if (code == NXL_OK)
        code = read_seconds(self, where, "massLapsePercent", 1, 100, &peer->spec.mass_percent, err);
    if (code == NXL_OK)
        code = read_loss(self, peer, err);
    if (code == NXL_OK && peer->spec.lapse_purges && peer->spec.purge_s < peer->spec.lease_s)
        return nxl_err_set(err, NXL_MISMATCH, 0,
                           "%s.purgeAfterSeconds must be set, and not shorter than the lease",
                           where);
    return code;
}

static enum nxl_code read_pairing(const json_t *spec, struct nxl_nixlpeer *peer,
                                  struct nxl_err *err)
{
    static const char *const policies[] = {"", "Prefer", "Strict", NULL};
    static const char *const enforcements[] = {"", "Preferred", "Required", NULL};
    const json_t *revision = NULL, *topology = NULL;
    const char *key = "";
    enum nxl_code code = field_object(spec, "spec", "compatibility", &revision, err);

    if (code == NXL_OK && revision != NULL) {
        peer->spec.revision_pairing = NXL_PAIR_STRICT;
        code = field_text(revision, "spec.compatibility", "revisionLabelKey", 317, &key, err);
        peer->spec.revision_key = nxl_nixlpeer_keep(peer, key);
        if (code == NXL_OK)
            code = read_choice(revision, "spec.compatibility", "policy", policies,
                               &peer->spec.revision_pairing, err);
    }
    if (code == NXL_OK)
        code = field_object(spec, "spec", "topology", &topology, err);
    if (code == NXL_OK && topology != NULL) {
        peer->spec.topology_pairing = NXL_PAIR_PREFER;
        key = "";
        code = field_text(topology, "spec.topology", "labelKey", 317, &key, err);
        peer->spec.topology_key = nxl_nixlpeer_keep(peer, key);
        if (code == NXL_OK)
            code = read_choice(topology, "spec.topology", "enforcement", enforcements,
                               &peer->spec.topology_pairing, err);
    }
    return code;
}

static enum nxl_code read_drain_and_limits(const json_t *spec, struct nxl_nixlpeer *peer,
                                           struct nxl_err *err)
{
    static const char *const words[] = {"Drain", "Purge", NULL};
    const json_t *drain = NULL, *limits = NULL;
    enum nxl_code code = field_object(spec, "spec", "drain", &drain, err);

    if (code == NXL_OK)
        code =
            read_choice(drain, "spec.drain", "onTermination", words, &peer->spec.drain_purges, err);
    if (code == NXL_OK)
        code =
            read_seconds(drain, "spec.drain", "timeoutSeconds", 0, 3600, &peer->spec.drain_s, err);
    if (code == NXL_OK)
        code = field_object(spec, "spec", "limits", &limits, err);
    if (code == NXL_OK)
        code =
            read_quantity(limits, "spec.limits", "maxInFlightBytes", &peer->spec.inflight_max, err);
    if (code == NXL_OK)
        code = read_quantity(limits, "spec.limits", "maxRegisteredBytes",
                             &peer->spec.registered_max, err);
    return code;
}

static enum nxl_code read_spec(const json_t *spec, struct nxl_nixlpeer *peer, struct nxl_err *err)
{
    static const char *const modes[] = {"Enforce", "Observe", "Paused", NULL};
    static const char *const ways[] = {"SharedMemory", "CudaIPC", "NVLink",  "RDMA",
                                       "TCP",          "Staged",  "Storage", NULL};
    const char *container = "";
    enum nxl_code code = read_selector(spec, "spec", "selector", &peer->spec.selector, err);

    if (code == NXL_OK &&
        (peer->spec.selector == NULL || nxl_selector_terms(peer->spec.selector) == 0))
        return nxl_err_set(err, NXL_MISMATCH, 0, "spec.selector is empty");
    if (code == NXL_OK)
        code = field_text(spec, "spec", "containerName", NXL_LABEL_MAX, &container, err);
    peer->spec.container = nxl_nixlpeer_keep(peer, container);
    if (code == NXL_OK)
        code = read_choice(spec, "spec", "role", role_words, &peer->spec.role, err);
    if (code == NXL_OK && peer->spec.role == NXL_ROLE_NONE)
        return nxl_err_set(err, NXL_MISMATCH, 0, "spec.role is missing");
    if (code == NXL_OK)
        code = read_choice(spec, "spec", "mode", modes, &peer->spec.mode, err);
    if (code == NXL_OK)
        code = field_words(spec, "spec", "allowedPaths", ways, &peer->spec.ways, err);
    if (code == NXL_OK)
        code = read_memory(spec, peer, err);
    if (code == NXL_OK)
        code = read_backends(spec, peer, err);
    if (code == NXL_OK)
        code = read_allow(spec, peer, err);
    if (code == NXL_OK)
        code = read_liveness(spec, peer, err);
    if (code == NXL_OK)
        code = read_pairing(spec, peer, err);
    if (code == NXL_OK)
        code = read_drain_and_limits(spec, peer, err);
    return code;
}

static void keep_meta(struct nxl_nixlpeer *peer, const struct field_meta *meta)
{
    peer->ns = nxl_nixlpeer_keep(peer, meta->ns);
    peer->name = nxl_nixlpeer_keep(peer, meta->name);
    peer->uid = nxl_nixlpeer_keep(peer, meta->uid);
    peer->version = nxl_nixlpeer_keep(peer, meta->version);
    peer->generation = meta->generation;
    peer->deleting = (uint8_t)meta->deleting;
    peer->finalizer = (uint8_t)meta->finalizer;
    for (uint32_t i = 0; i < peer->label_count; i++) {
        peer->labels[i].key = nxl_nixlpeer_keep(peer, peer->labels[i].key);
        peer->labels[i].value = nxl_nixlpeer_keep(peer, peer->labels[i].value);
    }
}

enum nxl_code nxl_read_nixlpeer(const json_t *object, struct nxl_nixlpeer **ret,
                                struct nxl_err *err)
{
    struct nxl_nixlpeer *peer = nxl_nixlpeer_new();
    const json_t *spec = NULL, *status = NULL;
    struct field_meta meta;
    enum nxl_code code = field_meta(object, &meta, peer->labels, &peer->label_count, err);

    if (code == NXL_OK && meta.ns[0] == '\0')
        code = nxl_err_set(err, NXL_MISMATCH, 0, "metadata.namespace is missing");
    if (code == NXL_OK && strlen(meta.ns) + strlen(meta.name) + 1 >= 128)
        code = nxl_err_set(err, NXL_MISMATCH, 0, "metadata.name is too long");
    if (code == NXL_OK)
        code = field_object(object, "", "spec", &spec, err);
    if (code == NXL_OK && spec == NULL)
        code = nxl_err_set(err, NXL_MISMATCH, 0, "spec is missing");
    if (code == NXL_OK)
        code = read_spec(spec, peer, err);
    if (code == NXL_OK)
        code = field_object(object, "", "status", &status, err);
    if (code == NXL_OK)
        code = field_number(status, "status", "membershipRevision", 0, INT64_MAX, &peer->revision,
                            err);
    if (code != NXL_OK) {
        nxl_nixlpeer_free(peer);
        return code;
    }
    keep_meta(peer, &meta);
    *ret = peer;
    return NXL_OK;
}
