/* frame_internal.h - shared by the rooms of the frame codec: which fields a frame has, words, and
 * the JSON of members and policies. */
#ifndef NXL_STREAM_FRAME_INTERNAL_H
#define NXL_STREAM_FRAME_INTERNAL_H

#include "stream/frame.h"

#include <jansson.h>

enum stream_form {
    STREAM_TEXT = 1, /* const char * */
    STREAM_U32,
    STREAM_I32,
    STREAM_U64,
    STREAM_HEX, /* uint64_t as hex text */
    STREAM_PART,
    STREAM_RANGE, /* [version_min, version_max] */
    STREAM_MEMBERS,
    STREAM_DEAD,
    STREAM_POLICIES,
    STREAM_PODS,
};

struct stream_field {
    const char *key; /* NULL ends a row */
    enum stream_form form;
    uint32_t max; /* bytes of a text */
    int required;
    size_t offset;
};

#define STREAM_FIELDS_MAX 11
struct stream_shape {
    const char *name;
    struct stream_field fields[STREAM_FIELDS_MAX];
};
/* NULL for numbers that are no type. */
const struct stream_shape *stream_shape_of(unsigned type);

/* What the arrays of a decoded frame lie in. */
struct stream_room {
    struct nxl_stream_member *members;
    struct nxl_stream_policy *policies;
    struct nxl_stream_rule *rules;
    const char **pods;
};

extern const char *const stream_part_words[];
#define STREAM_PARTS 3
extern const char *const stream_life_words[];
#define STREAM_LIVES 3

/* The index of word, or -1. */
int stream_word(const char *const *words, unsigned count, const char *word);
/* A text or "" if the key is not there. NXL_MISMATCH: no text, or longer than max. */
enum nxl_code stream_get_text(const json_t *object, const char *key, uint32_t max, const char **ret,
                              struct nxl_err *err);
/* Unchanged if the key is not there. NXL_MISMATCH: no number in 0..max. */
enum nxl_code stream_get_number(const json_t *object, const char *key, uint64_t max, uint64_t *ret,
                                struct nxl_err *err);
/* Never NULL; what is no UTF-8 becomes "?". */
json_t *stream_new_text(const char *text);
/* Leaves "" and NULL out. */
void stream_set_text(json_t *object, const char *key, const char *text);
void stream_put_json(const json_t *json, struct nxl_bytes *to); /* compact, keys sorted */

/* 1 if id is a pod, container or session: nothing else goes into logs, catalog and paths. */
int stream_is_id(const char *id);
/* 1 if text is a Kubernetes name, or two by '/'; "" too: it needs no escape anywhere. */
int stream_is_name(const char *text);
json_t *stream_member_json(const struct nxl_stream_member *member);
enum nxl_code stream_member_read(const json_t *item, int fact, struct nxl_stream_member *ret,
                                 struct nxl_err *err);
json_t *stream_policy_json(const struct nxl_stream_policy *policy);
/* rules: where this policy's rules go; *used moves on. */
enum nxl_code stream_policy_read(json_t *item, struct nxl_stream_policy *ret,
                                 struct nxl_stream_rule *rules, uint32_t *used,
                                 struct nxl_err *err);

#endif
