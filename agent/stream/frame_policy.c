/* frame_policy.c - the JSON of one group's policy, both ways. What a later version may add is read
 * so that it never allows more: an unknown operation, kind or path is one that is not listed. Pure.
 */
#include "stream/frame_internal.h"

#include "base/bytes.h"
#include "base/mem.h"

#include <string.h>

static const char *const mode_words[] = {"Enforce", "Observe", "Paused"};
static const char *const op_words[] = {"Read", "Write", "Notify"};
static const char *const kind_words[NXL_MEM_KINDS] = {"DRAM", "VRAM", "Block", "Object", "File"};
static const char *const path_words[] = {"SharedMemory", "CudaIPC", "NVLink", "RDMA",
                                         "TCP",          "Staged",  "Storage"};
static const char *const revision_words[] = {"", "Prefer", "Strict"};
static const char *const topology_words[] = {"", "Preferred", "Required"};

#define UNKNOWN_KIND 0x80u /* a list that named only what we do not know is not "all" */
#define UNKNOWN_PATH 0x80000000u
#define SECONDS_MAX 604800u

/* ---- out ---------------------------------------------------------------------------------- */

static json_t *bits_json(uint32_t bits, const char *const *words, unsigned count)
{
    json_t *list = json_array();

    for (unsigned i = 0; i < count; i++) {
        if (bits & (1u << i))
            (void)json_array_append_new(list, json_string(words[i]));
    }
    if (bits >> count != 0) /* never an empty list, which would be read as all */
        (void)json_array_append_new(list, json_string("?"));
    return list;
}

static void set_number(json_t *object, const char *key, uint64_t value)
{
    if (value != 0)
        (void)json_object_set_new(object, key,
                                  json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value));
}

static json_t *memory_json(const struct nxl_stream_policy *policy)
{
    json_t *list = json_array();

    for (unsigned i = 0; i < NXL_MEM_KINDS; i++) {
        json_t *item;

        if ((policy->memory & (1u << i)) == 0)
            continue;
        item = json_object();
        (void)json_object_set_new(item, "kind", json_string(kind_words[i]));
        set_number(item, "max", policy->memory_max[i]);
        (void)json_array_append_new(list, item);
    }
    return list;
}

static json_t *rules_json(const struct nxl_stream_policy *policy)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < policy->rule_count; i++) {
        const struct nxl_stream_rule *rule = &policy->rules[i];
        json_t *item = json_object();

        stream_set_text(item, "from", rule->from);
        (void)json_object_set_new(item, "ops", bits_json(rule->ops, op_words, 3));
        if (rule->memory != 0)
            (void)json_object_set_new(item, "memory",
                                      bits_json(rule->memory, kind_words, NXL_MEM_KINDS));
        (void)json_array_append_new(list, item);
    }
    return list;
}

static json_t *backends_json(const struct nxl_stream_policy *policy)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < policy->backend_count && i < NXL_COUNT_OF(policy->backends); i++) {
        json_t *item = json_object();

        stream_set_text(item, "name", policy->backends[i].name);
        (void)json_object_set_new(item, "required", json_boolean(policy->backends[i].required));
        (void)json_array_append_new(list, item);
    }
    return list;
}

static void put_times(const struct nxl_stream_policy *policy, json_t *to)
{
    json_t *liveness = json_object(), *drain = json_object(), *limits = json_object();

    set_number(liveness, "hb", policy->heartbeat_s);
    set_number(liveness, "lease", policy->lease_s);
    set_number(liveness, "purge", policy->purge_s);
    set_number(liveness, "loss_after", policy->loss_after_s);
    stream_set_text(liveness, "lapse", policy->lapse_purges ? "Purge" : "Quarantine");
    stream_set_text(liveness, "loss", policy->loss_quarantines ? "Quarantine" : "Continue");
    stream_set_text(drain, "on", policy->drain_purges ? "Purge" : "Drain");
    set_number(drain, "timeout", policy->drain_s);
    set_number(limits, "inflight", policy->inflight_max);
    set_number(limits, "registered", policy->registered_max);
    (void)json_object_set_new(to, "liveness", liveness);
    (void)json_object_set_new(to, "drain", drain);
    (void)json_object_set_new(to, "limits", limits);
}

json_t *stream_policy_json(const struct nxl_stream_policy *policy)
{
    json_t *item = json_object();

    stream_set_text(item, "g", policy->group);
    set_number(item, "gen", policy->generation);
    if (policy->gone) {
        (void)json_object_set_new(item, "gone", json_integer(1));
        return item;
    }
    stream_set_text(item, "role", policy->role);
    if (policy->mode < NXL_COUNT_OF(mode_words))
        stream_set_text(item, "mode", mode_words[policy->mode]);
    (void)json_object_set_new(item, "memory", memory_json(policy));
    (void)json_object_set_new(item, "backends", backends_json(policy));
    if (policy->paths != 0)
        (void)json_object_set_new(item, "paths", bits_json(policy->paths, path_words, 7));
    (void)json_object_set_new(item, "allow", rules_json(policy));
    put_times(policy, item);
    if (policy->revision < NXL_COUNT_OF(revision_words))
        stream_set_text(item, "compat", revision_words[policy->revision]);
    if (policy->topology < NXL_COUNT_OF(topology_words))
        stream_set_text(item, "topology", topology_words[policy->topology]);
    return item;
}

enum nxl_code nxl_stream_policy_text(const struct nxl_stream_policy *policy, struct nxl_bytes *to,
                                     struct nxl_err *err)
{
    size_t began = to->size;
    json_t *item;

    if (policy->rule_count > NXL_STREAM_RULES_MAX)
        return nxl_err_set(err, NXL_LIMIT, 0,
                           "policy of %s has %u rules after resolution, at most %u are allowed",
                           policy->group, policy->rule_count, NXL_STREAM_RULES_MAX);
    item = stream_policy_json(policy);
    stream_put_json(item, to);
    json_decref(item);
    if (to->size - began <= NXL_STREAM_FRAME_MAX - 256)
        return NXL_OK;
    to->size = began;
    return nxl_err_set(err, NXL_LIMIT, 0, "policy of %s is longer than one frame", policy->group);
}

/* ---- in ----------------------------------------------------------------------------------- */

static enum nxl_code bits_read(const json_t *object, const char *key, const char *const *words,
                               unsigned count, uint32_t unknown, uint32_t *ret, struct nxl_err *err)
{
    const json_t *list = json_object_get(object, key);
    size_t size = json_array_size(list);

    *ret = 0;
    if (list == NULL)
        return NXL_OK;
    if (!json_is_array(list) || size > 32)
        return nxl_err_set(err, NXL_MISMATCH, 0, "field '%s' is no list of at most 32", key);
    for (size_t i = 0; i < size; i++) {
        const char *word = json_string_value(json_array_get(list, i));
        int index;

        if (word == NULL)
            return nxl_err_set(err, NXL_MISMATCH, 0, "field '%s' has an item that is no text", key);
        index = stream_word(words, count, word);
        *ret |= index < 0 ? unknown : 1u << index;
    }
    return NXL_OK;
}

static enum nxl_code word_read(const json_t *object, const char *key, const char *const *words,
                               unsigned count, uint8_t *ret, struct nxl_err *err)
{
    const char *text;
    enum nxl_code code = stream_get_text(object, key, 32, &text, err);
    int index;

    if (code != NXL_OK || text[0] == '\0')
        return code;
    index = stream_word(words, count, text);
    if (index < 0)
        return nxl_err_set(err, NXL_MISMATCH, 0, "field '%s' has an unknown word", key);
    *ret = (uint8_t)index;
    return NXL_OK;
}

static enum nxl_code memory_read(const json_t *item, struct nxl_stream_policy *ret,
                                 struct nxl_err *err)
{
    const json_t *list = json_object_get(item, "memory");
    size_t count = json_array_size(list);

    if (list != NULL && (!json_is_array(list) || count > 16))
        return nxl_err_set(err, NXL_MISMATCH, 0, "field 'memory' is no list of at most 16");
    for (size_t i = 0; i < count; i++) {
        const json_t *one = json_array_get(list, i);
        const char *kind = json_string_value(json_object_get(one, "kind"));
        int index = kind != NULL ? stream_word(kind_words, NXL_MEM_KINDS, kind) : -1;
        enum nxl_code code;

        if (kind == NULL)
            return nxl_err_set(err, NXL_MISMATCH, 0, "field 'memory' has an item without a kind");
        if (index < 0)
            continue;
        ret->memory |= (uint8_t)(1u << index);
        code = stream_get_number(one, "max", INT64_MAX, &ret->memory_max[index], err);
        if (code != NXL_OK)
            return nxl_err_wrap(err, code, "memory %s", kind_words[index]);
    }
    return NXL_OK;
}

static enum nxl_code backends_read(const json_t *item, struct nxl_stream_policy *ret,
                                   struct nxl_err *err)
{
    const json_t *list = json_object_get(item, "backends");
    size_t count = json_array_size(list);

    if (list != NULL && (!json_is_array(list) || count > NXL_COUNT_OF(ret->backends)))
        return nxl_err_set(err, NXL_MISMATCH, 0, "field 'backends' is no list of at most 8");
    for (size_t i = 0; i < count; i++) {
        const json_t *one = json_array_get(list, i);
        enum nxl_code code;

        if (!json_is_object(one))
            return nxl_err_set(err, NXL_MISMATCH, 0, "field 'backends' has an item without a name");
        code = stream_get_text(one, "name", 32, &ret->backends[i].name, err);
        if (code != NXL_OK)
            return code;
        ret->backends[i].required = json_is_true(json_object_get(one, "required"));
    }
    ret->backend_count = (uint32_t)count;
    return NXL_OK;
}

static enum nxl_code rules_read(const json_t *item, struct nxl_stream_policy *ret,
                                struct nxl_stream_rule *rules, uint32_t *used, struct nxl_err *err)
{
    const json_t *list = json_object_get(item, "allow");
    size_t count = json_array_size(list);

    if (list != NULL && (!json_is_array(list) || count > NXL_STREAM_RULES_MAX))
        return nxl_err_set(err, NXL_MISMATCH, 0, "field 'allow' is no list of at most %u",
                           NXL_STREAM_RULES_MAX);
    ret->rules = rules + *used;
    for (size_t i = 0; i < count; i++) {
        const json_t *one = json_array_get(list, i);
        struct nxl_stream_rule *rule = &rules[*used];
        uint32_t ops = 0, memory = 0;
        enum nxl_code code;

        if (!json_is_object(one))
            return nxl_err_set(err, NXL_MISMATCH, 0, "field 'allow' has an item that is no object");
        code = stream_get_text(one, "from", NXL_STREAM_GROUP_MAX, &rule->from, err);
        if (code == NXL_OK)
            code = bits_read(one, "ops", op_words, 3, 0, &ops, err);
        if (code == NXL_OK)
            code = bits_read(one, "memory", kind_words, NXL_MEM_KINDS, UNKNOWN_KIND, &memory, err);
        if (code != NXL_OK)
            return nxl_err_wrap(err, code, "rule %zu", i);
        rule->ops = (uint8_t)ops;
        rule->memory = (uint8_t)memory;
        *used += 1;
    }
    ret->rule_count = (uint32_t)count;
    return NXL_OK;
}

static enum nxl_code number_read(const json_t *from, const char *key, uint32_t *ret,
                                 struct nxl_err *err)
{
    uint64_t value = 0;
    enum nxl_code code = stream_get_number(from, key, SECONDS_MAX, &value, err);

    *ret = (uint32_t)value;
    return code;
}

static enum nxl_code times_read(const json_t *item, struct nxl_stream_policy *ret,
                                struct nxl_err *err)
{
    static const char *const lapse[] = {"Quarantine", "Purge"};
    static const char *const loss[] = {"Continue", "Quarantine"};
    static const char *const drains[] = {"Drain", "Purge"};
    const json_t *liveness = json_object_get(item, "liveness");
    const json_t *drain = json_object_get(item, "drain");
    const json_t *limits = json_object_get(item, "limits");
    enum nxl_code code = number_read(liveness, "hb", &ret->heartbeat_s, err);

    if (code == NXL_OK)
        code = number_read(liveness, "lease", &ret->lease_s, err);
    if (code == NXL_OK)
        code = number_read(liveness, "purge", &ret->purge_s, err);
    if (code == NXL_OK)
        code = number_read(liveness, "loss_after", &ret->loss_after_s, err);
    if (code == NXL_OK)
        code = word_read(liveness, "lapse", lapse, 2, &ret->lapse_purges, err);
    if (code == NXL_OK)
        code = word_read(liveness, "loss", loss, 2, &ret->loss_quarantines, err);
    if (code == NXL_OK)
        code = word_read(drain, "on", drains, 2, &ret->drain_purges, err);
    if (code == NXL_OK)
        code = number_read(drain, "timeout", &ret->drain_s, err);
    if (code == NXL_OK)
        code = stream_get_number(limits, "inflight", INT64_MAX, &ret->inflight_max, err);
    if (code == NXL_OK)
        code = stream_get_number(limits, "registered", INT64_MAX, &ret->registered_max, err);
    return code;
}

static enum nxl_code body_read(const json_t *item, struct nxl_stream_policy *ret,
                               struct nxl_stream_rule *rules, uint32_t *used, struct nxl_err *err)
{
    enum nxl_code code = stream_get_text(item, "role", 32, &ret->role, err);

    if (code == NXL_OK)
        code = word_read(item, "mode", mode_words, 3, &ret->mode, err);
    if (code == NXL_OK)
        code = memory_read(item, ret, err);
    if (code == NXL_OK)
        code = backends_read(item, ret, err);
    if (code == NXL_OK)
        code = bits_read(item, "paths", path_words, 7, UNKNOWN_PATH, &ret->paths, err);
    if (code == NXL_OK)
        code = rules_read(item, ret, rules, used, err);
    if (code == NXL_OK)
        code = times_read(item, ret, err);
    if (code == NXL_OK)
        code = word_read(item, "compat", revision_words, 3, &ret->revision, err);
    if (code == NXL_OK)
        code = word_read(item, "topology", topology_words, 3, &ret->topology, err);
    return code;
}

enum nxl_code stream_policy_read(json_t *item, struct nxl_stream_policy *ret,
                                 struct nxl_stream_rule *rules, uint32_t *used, struct nxl_err *err)
{
    struct nxl_bytes text = {0};
    uint64_t gone = 0;
    enum nxl_code code;

    if (!json_is_object(item))
        return nxl_err_set(err, NXL_MISMATCH, 0, "it is no object");
    ret->role = "";
    code = stream_get_text(item, "g", NXL_STREAM_GROUP_MAX, &ret->group, err);
    if (code == NXL_OK)
        code = stream_get_number(item, "gen", INT64_MAX, &ret->generation, err);
    if (code == NXL_OK)
        code = stream_get_number(item, "gone", 1, &gone, err);
    if (code == NXL_OK && !stream_is_name(ret->group))
        code = nxl_err_set(err, NXL_MISMATCH, 0, "field 'g' is no name");
    if (code == NXL_OK && ret->group[0] == '\0')
        code = nxl_err_set(err, NXL_MISMATCH, 0, "field 'g' is missing");
    if (code != NXL_OK)
        return code;
    ret->gone = (int)gone;
    if (!gone)
        code = body_read(item, ret, rules, used, err);
    if (code != NXL_OK)
        return nxl_err_wrap(err, code, "policy of %s", ret->group);
    stream_put_json(item, &text);
    ret->hash = nxl_stream_policy_hash((struct nxl_view){text.data, text.size});
    nxl_bytes_fini(&text);
    return NXL_OK;
}
