/* frame_json.c - fields in and out of JSON, and the record of one member. Pure; any thread. */
#include "stream/frame_internal.h"

#include "base/bytes.h"
#include "base/mem.h"

#include <string.h>

/* ---- out ---------------------------------------------------------------------------------- */

json_t *stream_new_text(const char *text)
{
    json_t *json = json_string(text != NULL ? text : "");

    return json != NULL ? json : json_string("?");
}

void stream_set_text(json_t *object, const char *key, const char *text)
{
    if (text != NULL && text[0] != '\0')
        (void)json_object_set_new(object, key, stream_new_text(text));
}

void stream_put_json(const json_t *json, struct nxl_bytes *to)
{
    const size_t flags = JSON_COMPACT | JSON_SORT_KEYS;
    size_t room = 512;
    size_t size = json_dumpb(json, nxl_bytes_grow(to, room), room, flags);

    if (size > room)
        size = json_dumpb(json, nxl_bytes_grow(to, size), size, flags);
    to->size += size;
}

json_t *stream_member_json(const struct nxl_stream_member *member)
{
    json_t *item = json_object();
    unsigned life = member->life < STREAM_LIVES ? member->life : NXL_LIFE_DEAD;

    stream_set_text(item, "i", member->id);
    stream_set_text(item, "g", member->group);
    stream_set_text(item, "p", member->pod);
    stream_set_text(item, "n", member->node);
    stream_set_text(item, "r", member->reason);
    stream_set_text(item, "v", member->version);
    stream_set_text(item, "rev", member->revision);
    stream_set_text(item, "z", member->topology);
    (void)json_object_set_new(item, "s", json_string(stream_life_words[life]));
    if (member->suspect)
        (void)json_object_set_new(item, "q", json_integer(1));
    if (member->forget)
        (void)json_object_set_new(item, "forget", json_integer(1));
    return item;
}

void nxl_stream_member_text(const struct nxl_stream_member *member, struct nxl_bytes *to)
{
    json_t *item = stream_member_json(member);

    stream_put_json(item, to);
    json_decref(item);
}

void nxl_stream_dead_text(const char *reason, const char *const *ids, uint32_t count,
                          struct nxl_bytes *to)
{
    json_t *item = json_object(), *list = json_array();

    stream_set_text(item, "r", reason);
    for (uint32_t i = 0; i < count; i++)
        (void)json_array_append_new(list, stream_new_text(ids[i]));
    (void)json_object_set_new(item, "i", list);
    stream_put_json(item, to);
    json_decref(item);
}

/* ---- in ----------------------------------------------------------------------------------- */

enum nxl_code stream_get_text(const json_t *object, const char *key, uint32_t max, const char **ret,
                              struct nxl_err *err)
{
    const json_t *value = json_object_get(object, key);

    if (value == NULL) {
        *ret = "";
        return NXL_OK;
    }
    if (!json_is_string(value))
        return nxl_err_set(err, NXL_MISMATCH, 0, "field '%s' is no text", key);
    if (json_string_length(value) > max)
        return nxl_err_set(err, NXL_MISMATCH, 0, "field '%s' has %zu bytes, at most %u are allowed",
                           key, json_string_length(value), max);
    *ret = json_string_value(value);
    return NXL_OK;
}

enum nxl_code stream_get_number(const json_t *object, const char *key, uint64_t max, uint64_t *ret,
                                struct nxl_err *err)
{
    const json_t *value = json_object_get(object, key);
    json_int_t number;

    if (value == NULL)
        return NXL_OK;
    if (json_is_boolean(value)) {
        *ret = json_is_true(value);
        return NXL_OK;
    }
    number = json_integer_value(value);
    if (!json_is_integer(value) || number < 0 || (uint64_t)number > max)
        return nxl_err_set(err, NXL_MISMATCH, 0, "field '%s' is no number from 0 to %llu", key,
                           (unsigned long long)max);
    *ret = (uint64_t)number;
    return NXL_OK;
}

int stream_is_id(const char *id)
{
    size_t size = strlen(id);
    int slashes = 0;

    if (size == 0 || id[0] == '/' || id[size - 1] == '/')
        return 0;
    for (size_t i = 0; i < size; i++) {
        int word = (id[i] >= 'a' && id[i] <= 'z') || (id[i] >= 'A' && id[i] <= 'Z') ||
                   (id[i] >= '0' && id[i] <= '9') || strchr("._-", id[i]) != NULL;

        if (id[i] == '/' ? id[i + 1] == '/' || ++slashes > 2 : !word)
            return 0;
    }
    return 1;
}

int stream_is_name(const char *text)
{
    return strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/") ==
           strlen(text);
}

static enum nxl_code member_texts(const json_t *item, struct nxl_stream_member *member,
                                  struct nxl_err *err)
{
    const struct {
        const char *key;
        uint32_t max;
        const char **to;
    } rows[] = {
        {"i", NXL_INCARNATION_MAX, &member->id},
        {"g", NXL_STREAM_GROUP_MAX, &member->group},
        {"p", NXL_NODE_MAX, &member->pod},
        {"n", NXL_NODE_MAX, &member->node},
        {"r", NXL_STREAM_TEXT_MAX, &member->reason},
        {"v", NXL_STREAM_VERSION_TEXT_MAX, &member->version},
        {"rev", NXL_STREAM_TEXT_MAX, &member->revision},
        {"z", NXL_STREAM_TEXT_MAX, &member->topology},
    };

    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        enum nxl_code code = stream_get_text(item, rows[i].key, rows[i].max, rows[i].to, err);

        if (code != NXL_OK)
            return code;
    }
    return NXL_OK;
}

enum nxl_code stream_member_read(const json_t *item, int fact, struct nxl_stream_member *ret,
                                 struct nxl_err *err)
{
    uint64_t suspect = 0, forget = 0;
    const char *life = "";
    enum nxl_code code;
    int index;

    if (!json_is_object(item))
        return nxl_err_set(err, NXL_MISMATCH, 0, "it is no object");
    code = member_texts(item, ret, err);
    if (code == NXL_OK)
        code = stream_get_text(item, "s", 16, &life, err);
    if (code == NXL_OK)
        code = stream_get_number(item, "q", 1, &suspect, err);
    if (code == NXL_OK)
        code = stream_get_number(item, "forget", 1, &forget, err);
    if (code != NXL_OK)
        return code;
    if (!stream_is_id(ret->id))
        return nxl_err_set(err, NXL_MISMATCH, 0, "field 'i' is no pod, container or session");
    if (!stream_is_name(ret->group) || !stream_is_name(ret->pod) || !stream_is_name(ret->node))
        return nxl_err_set(err, NXL_MISMATCH, 0, "field 'g', 'p' or 'n' is no name");
    index = stream_word(stream_life_words, STREAM_LIVES, life);
    if (index < 0)
        return nxl_err_set(err, NXL_MISMATCH, 0, "field 's' is not live, draining or dead");
    if (!fact && index != NXL_LIFE_DEAD && !forget && ret->group[0] == '\0')
        return nxl_err_set(err, NXL_MISMATCH, 0, "field 'g' is missing");
    ret->life = (uint8_t)index;
    ret->suspect = (uint8_t)suspect;
    ret->forget = (uint8_t)forget;
    return NXL_OK;
}
