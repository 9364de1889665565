/* read_field.c - the checks behind every field, and metadata, which all objects share. */
#include "reconcile/read_field.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define UNKNOWN_TYPE "something else"

static const char *type_name(const json_t *value)
{
    static const char *const names[] = {
        [JSON_OBJECT] = "an object",    [JSON_ARRAY] = "a list",    [JSON_STRING] = "a text",
        [JSON_INTEGER] = "a number",    [JSON_REAL] = "a fraction", [JSON_TRUE] = "a truth value",
        [JSON_FALSE] = "a truth value", [JSON_NULL] = "null"};
    unsigned type = (unsigned)json_typeof(value);

    return type < sizeof(names) / sizeof(names[0]) ? names[type] : UNKNOWN_TYPE;
}

static const json_t *get(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    return json_is_null(value) ? NULL : value;
}

static enum nxl_code wrong_type(struct nxl_err *err, const char *where, const char *key,
                                const json_t *value, const char *wanted)
{
    return nxl_err_set(err, NXL_MISMATCH, 0, "%s%s%s is %s, not %s", where,
                       where[0] != '\0' ? "." : "", key, type_name(value), wanted);
}

enum nxl_code field_text(const json_t *object, const char *where, const char *key, size_t max,
                         const char **ret, struct nxl_err *err)
{
    const json_t *value = get(object, key);
    size_t size;

    if (value == NULL)
        return NXL_OK;
    if (!json_is_string(value))
        return wrong_type(err, where, key, value, "a text");
    size = json_string_length(value);
    if (size > max || memchr(json_string_value(value), '\0', size) != NULL)
        return nxl_err_set(err, NXL_MISMATCH, 0, "%s.%s has %zu bytes, at most %zu are taken",
                           where, key, size, max);
    *ret = json_string_value(value);
    return NXL_OK;
}

enum nxl_code field_number(const json_t *object, const char *where, const char *key, int64_t min,
                           int64_t max, int64_t *ret, struct nxl_err *err)
{
    const json_t *value = get(object, key);
    int64_t number;

    if (value == NULL)
        return NXL_OK;
    if (!json_is_integer(value))
        return wrong_type(err, where, key, value, "a whole number");
    number = json_integer_value(value);
    if (number < min || number > max)
        return nxl_err_set(err, NXL_MISMATCH, 0, "%s.%s is %lld, not %lld to %lld", where, key,
                           (long long)number, (long long)min, (long long)max);
    *ret = number;
    return NXL_OK;
}

enum nxl_code field_object(const json_t *object, const char *where, const char *key,
                           const json_t **ret, struct nxl_err *err)
{
    const json_t *value = get(object, key);

    if (value == NULL)
        return NXL_OK;
    if (!json_is_object(value))
        return wrong_type(err, where, key, value, "an object");
    *ret = value;
    return NXL_OK;
}

enum nxl_code field_array(const json_t *object, const char *where, const char *key, size_t max,
                          const json_t **ret, struct nxl_err *err)
{
    const json_t *value = get(object, key);

    if (value == NULL)
        return NXL_OK;
    if (!json_is_array(value))
        return wrong_type(err, where, key, value, "a list");
    if (json_array_size(value) > max)
        return nxl_err_set(err, NXL_MISMATCH, 0, "%s.%s has %zu entries, at most %zu are taken",
                           where, key, json_array_size(value), max);
    *ret = value;
    return NXL_OK;
}

static int word_index(const char *const *words, const char *text)
{
    for (int i = 0; words[i] != NULL; i++)
        if (strcmp(words[i], text) == 0)
            return i;
    return -1;
}

enum nxl_code field_word(const json_t *object, const char *where, const char *key,
                         const char *const *words, int *ret, struct nxl_err *err)
{
    const char *text = NULL;
    enum nxl_code code = field_text(object, where, key, 64, &text, err);
    int index;

    if (code != NXL_OK || text == NULL)
        return code;
    index = word_index(words, text);
    if (index < 0)
        return nxl_err_set(err, NXL_MISMATCH, 0, "%s.%s \"%s\" is none that is known", where, key,
                           text);
    *ret = index;
    return NXL_OK;
}

enum nxl_code field_words(const json_t *object, const char *where, const char *key,
                          const char *const *words, uint32_t *ret, struct nxl_err *err)
{
    const json_t *list = NULL;
    enum nxl_code code = field_array(object, where, key, 32, &list, err);
    uint32_t bits = 0;

    if (code != NXL_OK || list == NULL)
        return code;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = json_string_value(json_array_get(list, i));
        int index = text != NULL ? word_index(words, text) : -1;

        if (index < 0)
            return nxl_err_set(err, NXL_MISMATCH, 0, "%s.%s[%zu] is none that is known", where, key,
                               i);
        bits |= 1u << index;
    }
    *ret = bits;
    return NXL_OK;
}

static enum nxl_code read_labels(const json_t *meta, struct nxl_label labels[NXL_POD_LABELS_MAX],
                                 uint32_t *ret_labels, struct nxl_err *err)
{
    const json_t *object = NULL;
    enum nxl_code code = field_object(meta, "metadata", "labels", &object, err);
    const char *key;
    json_t *value;
    uint32_t count = 0;

    if (code != NXL_OK || object == NULL)
        return code;
    if (json_object_size(object) > NXL_POD_LABELS_MAX)
        return nxl_err_set(err, NXL_MISMATCH, 0,
                           "metadata.labels has %zu entries, at most %u are taken",
                           json_object_size(object), NXL_POD_LABELS_MAX);
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        const char *text = json_string_value(value);

        if (text == NULL || strlen(key) > 317 || json_string_length(value) > NXL_LABEL_MAX ||
            strlen(text) != json_string_length(value))
            return nxl_err_set(err, NXL_MISMATCH, 0,
                               "metadata.labels: \"%.64s\" is no label of at most %d bytes", key,
                               NXL_LABEL_MAX);
        labels[count++] = (struct nxl_label){.key = key, .value = text};
    }
    *ret_labels = count;
    return NXL_OK;
}

static int has_finalizer(const json_t *meta)
{
    const json_t *list = json_object_get(meta, "finalizers");

    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = json_string_value(json_array_get(list, i));

        if (text != NULL && strcmp(text, NXL_FINALIZER) == 0)
            return 1;
    }
    return 0;
}

enum nxl_code field_meta(const json_t *object, struct field_meta *ret,
                         struct nxl_label labels[NXL_POD_LABELS_MAX], uint32_t *ret_labels,
                         struct nxl_err *err)
{
    struct field_meta got = {.ns = "", .name = "", .uid = "", .version = ""};
    const json_t *meta = NULL;
    const char *deleted = NULL;
    uint32_t count = 0;
    enum nxl_code code;

    if (!json_is_object(object))
        return nxl_err_set(err, NXL_MISMATCH, 0, "it is no JSON object");
    code = field_object(object, "", "metadata", &meta, err);
    if (code == NXL_OK && meta == NULL)
        return nxl_err_set(err, NXL_MISMATCH, 0, "metadata is missing");
    if (code == NXL_OK)
        code = field_text(meta, "metadata", "namespace", NXL_NAMESPACE_MAX, &got.ns, err);
    if (code == NXL_OK)
        code = field_text(meta, "metadata", "name", NXL_NODE_MAX, &got.name, err);
    if (code == NXL_OK)
        code = field_text(meta, "metadata", "uid", NXL_UID_MAX, &got.uid, err);
    if (code == NXL_OK)
        code = field_text(meta, "metadata", "resourceVersion", 31, &got.version, err);
    if (code == NXL_OK)
        code = field_number(meta, "metadata", "generation", 0, INT64_MAX, &got.generation, err);
    if (code == NXL_OK)
        code = field_text(meta, "metadata", "deletionTimestamp", 64, &deleted, err);
    if (code == NXL_OK)
        code = read_labels(meta, labels, &count, err);
    if (code != NXL_OK)
        return code;
    if (got.name[0] == '\0' || got.uid[0] == '\0')
        return nxl_err_set(err, NXL_MISMATCH, 0, "metadata.%s is missing",
                           got.name[0] == '\0' ? "name" : "uid");
    if (strchr(got.uid, '/') != NULL || strchr(got.name, '/') != NULL ||
        strchr(got.ns, '/') != NULL)
        return nxl_err_set(err, NXL_MISMATCH, 0, "metadata: a name or uid holds a slash");
    got.deleting = deleted != NULL;
    got.finalizer = has_finalizer(meta);
    *ret = got;
    *ret_labels = count;
    return NXL_OK;
}

int64_t nxl_time_of(const char *text)
{
    struct tm tm = {0};
    const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    int64_t ms = 0, scale = 100;

    if (rest == NULL)
        return -1;
    if (*rest == '.')
        for (rest++; *rest >= '0' && *rest <= '9'; rest++, scale /= 10)
            ms += (*rest - '0') * scale;
    if (strcmp(rest, "Z") != 0)
        return -1;
    return (int64_t)timegm(&tm) * 1000 + ms;
}

const char *nxl_time_text(int64_t ms, int micros, char to[NXL_TIME_SIZE])
{
    time_t seconds = (time_t)(ms / 1000);
    struct tm tm;
    size_t size;

    gmtime_r(&seconds, &tm);
    size = strftime(to, NXL_TIME_SIZE, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(to + size, NXL_TIME_SIZE - size, micros ? ".%03d000Z" : "Z", (int)(ms % 1000));
    return to;
}
