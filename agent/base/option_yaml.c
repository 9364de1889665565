/* option_yaml.c - settings from YAML by libyaml's events: nested mappings become dotted keys.
 * Start-up only. No aliases, no tags, one document: a settings file needs none of them. */
#include "base/option_inner.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#define YAML_DEPTH_MAX 8u

struct yaml_source {
    struct nxl_settings *settings;
    const char *origin;
    yaml_parser_t parser;
    struct changes changes;
};

static unsigned line_of(const yaml_event_t *event)
{
    return (unsigned)event->start_mark.line + 1;
}

static void event_delete(yaml_event_t *event)
{
    yaml_event_delete(event);
}

static enum nxl_code event_next(struct yaml_source *source, yaml_event_t *event,
                                struct nxl_err *err)
{
    const yaml_parser_t *parser = &source->parser;
    unsigned line;

    yaml_event_delete(event);
    memset(event, 0, sizeof(*event));
    if (yaml_parser_parse(&source->parser, event))
        return NXL_OK;
    memset(event, 0, sizeof(*event));
    line = (unsigned)parser->problem_mark.line + 1;
    return nxl_err_set(err, NXL_CONFIG, 0, "%s:%u: not YAML: %s%s%s", source->origin, line,
                       parser->problem ? parser->problem : "unknown problem",
                       parser->context ? ", " : "", parser->context ? parser->context : "");
}

/* What a file of settings does not use, refused with its line. NULL if the event is fine. */
static const char *event_refusal(const yaml_event_t *event)
{
    switch (event->type) {
    case YAML_ALIAS_EVENT:
        return "an alias (*name) is not supported; write the value again";
    case YAML_SCALAR_EVENT:
        if (event->data.scalar.tag)
            return "a tag (!name) is not supported";
        if (strlen((const char *)event->data.scalar.value) != event->data.scalar.length)
            return "the text holds a NUL byte";
        return NULL;
    case YAML_SEQUENCE_START_EVENT:
        return event->data.sequence_start.tag ? "a tag (!name) is not supported" : NULL;
    case YAML_MAPPING_START_EVENT:
        return event->data.mapping_start.tag ? "a tag (!name) is not supported" : NULL;
    default:
        return NULL;
    }
}

static enum nxl_code node_next(struct yaml_source *source, yaml_event_t *event, struct nxl_err *err)
{
    enum nxl_code code = event_next(source, event, err);
    const char *refusal;

    if (code != NXL_OK)
        return code;
    refusal = event_refusal(event);
    if (refusal)
        return nxl_err_set(err, NXL_CONFIG, 0, "%s:%u: %s", source->origin, line_of(event),
                           refusal);
    return NXL_OK;
}

static int is_section(const struct nxl_settings *settings, const char *key)
{
    size_t length = strlen(key);

    for (size_t i = 0; i < settings->section_count; i++) {
        const char *section = settings->sections[i];

        if (strncmp(section, key, length) == 0 &&
            (section[length] == '\0' || section[length] == '.'))
            return 1;
    }
    for (const struct setting *setting = settings->by_key; setting; setting = setting->hh.next) {
        if (strncmp(setting->key, key, length) == 0 && setting->key[length] == '.')
            return 1;
    }
    return 0;
}

static enum nxl_code value_take(struct yaml_source *source, const char *key, const char *text,
                                unsigned line, struct nxl_err *err)
{
    NXL_CLEANUP(nxl_freep) char *where = nxl_format("%s:%u", source->origin, line);
    const struct setting *setting = nxl_option_find(source->settings, key);

    for (size_t i = 0; setting && i < source->changes.count; i++) {
        if (source->changes.items[i].setting == setting)
            return nxl_err_set(err, NXL_CONFIG, 0, "%s: %s is set a second time, first in line %u",
                               where, key, source->changes.items[i].line);
    }
    return nxl_changes_add(source->settings, &source->changes, key, text, line, where, err);
}

static int scalar_is_null(const yaml_event_t *event)
{
    const char *text = (const char *)event->data.scalar.value;

    return event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (text[0] == '\0' || strcmp(text, "~") == 0 || strcmp(text, "null") == 0);
}

static enum nxl_code scalar_take(struct yaml_source *source, const char *key,
                                 const yaml_event_t *event, struct nxl_err *err)
{
    if (scalar_is_null(event)) {
        if (is_section(source->settings, key))
            return NXL_OK; /* "store:" with all its lines commented out */
        if (nxl_option_find(source->settings, key))
            return nxl_err_set(
                err, NXL_CONFIG, 0,
                "%s:%u: %s has no value; remove the line, or write \"\" for an empty "
                "text",
                source->origin, line_of(event), key);
    }
    return value_take(source, key, (const char *)event->data.scalar.value, line_of(event), err);
}

/* [a, b] is the text "a,b"; only a text can be a list. */
static enum nxl_code sequence_take(struct yaml_source *source, const char *key, unsigned line,
                                   struct nxl_err *err)
{
    NXL_CLEANUP(event_delete) yaml_event_t event = {0};
    const struct setting *setting = nxl_option_find(source->settings, key);
    char joined[OPTION_VALUE_MAX + 1];
    size_t used = 0;

    joined[0] = '\0';
    if (setting && setting->row->type != NXL_OPTION_TEXT)
        return nxl_err_set(err, NXL_CONFIG, 0, "%s:%u: %s takes one value, not a list",
                           source->origin, line, key);
    for (;;) {
        enum nxl_code code = node_next(source, &event, err);
        size_t length;

        if (code != NXL_OK)
            return code;
        if (event.type == YAML_SEQUENCE_END_EVENT)
            return value_take(source, key, joined, line, err);
        if (event.type != YAML_SCALAR_EVENT || strchr((const char *)event.data.scalar.value, ','))
            return nxl_err_set(err, NXL_CONFIG, 0,
                               "%s:%u: an item of %s is not a plain text without a comma",
                               source->origin, line_of(&event), key);
        length = event.data.scalar.length;
        if (length + 1 >= sizeof(joined) - used)
            return nxl_err_set(err, NXL_CONFIG, 0, "%s:%u: %s is longer than %u bytes",
                               source->origin, line_of(&event), key, OPTION_VALUE_MAX);
        if (used > 0)
            joined[used++] = ',';
        memcpy(joined + used, event.data.scalar.value, length + 1);
        used += length;
    }
}

/* The full key of a mapping's key in full[OPTION_KEY_MAX + 1]. */
static enum nxl_code key_join(const struct yaml_source *source, const char *prefix,
                              const yaml_event_t *event, char *full, struct nxl_err *err)
{
    size_t used = strlen(prefix), length;

    if (event->type != YAML_SCALAR_EVENT)
        return nxl_err_set(err, NXL_CONFIG, 0, "%s:%u: a key is a plain word", source->origin,
                           line_of(event));
    length = event->data.scalar.length;
    if (length == 0 || used + 1 + length > OPTION_KEY_MAX)
        return nxl_err_set(err, NXL_CONFIG, 0, "%s:%u: a key has 1 to %u bytes with its section",
                           source->origin, line_of(event), OPTION_KEY_MAX);
    memcpy(full, prefix, used);
    if (used > 0)
        full[used++] = '.';
    memcpy(full + used, event->data.scalar.value, length + 1);
    return NXL_OK;
}

static enum nxl_code mapping_take(struct yaml_source *source, const char *prefix, unsigned depth,
                                  struct nxl_err *err)
{
    NXL_CLEANUP(event_delete) yaml_event_t event = {0};
    char key[OPTION_KEY_MAX + 1];

    for (;;) {
        enum nxl_code code = node_next(source, &event, err);

        if (code != NXL_OK || event.type == YAML_MAPPING_END_EVENT)
            return code;
        code = key_join(source, prefix, &event, key, err);
        if (code == NXL_OK)
            code = node_next(source, &event, err);
        if (code != NXL_OK)
            return code;
        if (event.type == YAML_SCALAR_EVENT)
            code = scalar_take(source, key, &event, err);
        else if (event.type == YAML_SEQUENCE_START_EVENT)
            code = sequence_take(source, key, line_of(&event), err);
        else if (depth >= YAML_DEPTH_MAX)
            code = nxl_err_set(err, NXL_CONFIG, 0, "%s:%u: sections lie more than %u deep",
                               source->origin, line_of(&event), YAML_DEPTH_MAX);
        else
            code = mapping_take(source, key, depth + 1, err);
        if (code != NXL_OK)
            return code;
    }
}

static enum nxl_code document_take(struct yaml_source *source, struct nxl_err *err)
{
    NXL_CLEANUP(event_delete) yaml_event_t event = {0};
    enum nxl_code code = event_next(source, &event, err); /* stream start */

    if (code == NXL_OK)
        code = event_next(source, &event, err);
    if (code != NXL_OK || event.type == YAML_STREAM_END_EVENT)
        return code;                       /* an empty file sets nothing */
    code = node_next(source, &event, err); /* behind the document's start: its root */
    if (code != NXL_OK)
        return code;
    if (event.type == YAML_MAPPING_START_EVENT)
        code = mapping_take(source, "", 1, err);
    else if (event.type != YAML_SCALAR_EVENT || !scalar_is_null(&event))
        code = nxl_err_set(err, NXL_CONFIG, 0, "%s:%u: settings are lines of the form 'key: value'",
                           source->origin, line_of(&event));
    if (code == NXL_OK)
        code = event_next(source, &event, err); /* document end */
    if (code == NXL_OK)
        code = event_next(source, &event, err);
    if (code == NXL_OK && event.type != YAML_STREAM_END_EVENT)
        code = nxl_err_set(err, NXL_CONFIG, 0,
                           "%s:%u: a second document begins; there can be only one", source->origin,
                           line_of(&event));
    return code;
}

enum nxl_code nxl_settings_parse_yaml(struct nxl_settings *settings, const char *origin,
                                      struct nxl_view text, struct nxl_err *err)
{
    struct yaml_source source = {.settings = settings, .origin = origin};
    enum nxl_code code;

    if (text.size > OPTION_FILE_MAX)
        return nxl_err_set(err, NXL_CONFIG, 0, "%s: %zu bytes, more than the limit of %u", origin,
                           text.size, OPTION_FILE_MAX);
    if (!yaml_parser_initialize(&source.parser))
        return nxl_err_set(err, NXL_CONFIG, 0, "%s: no memory for the YAML parser", origin);
    yaml_parser_set_input_string(&source.parser, text.size ? text.data : (const unsigned char *)"",
                                 text.size);
    code = document_take(&source, err);
    if (code == NXL_OK)
        nxl_changes_apply(&source.changes, RANK_FILE);
    nxl_changes_fini(&source.changes);
    yaml_parser_delete(&source.parser);
    return code;
}

enum nxl_code nxl_settings_load_yaml(struct nxl_settings *settings, const char *path,
                                     struct nxl_err *err)
{
    NXL_CLEANUP(nxl_freep) char *text = NULL;
    size_t size = 0;
    enum nxl_code code = nxl_read_file(path, OPTION_FILE_MAX, &text, &size, err);

    if (code != NXL_OK)
        return nxl_err_wrap(err, NXL_CONFIG, "settings"); /* err->os tells a missing file */
    return nxl_settings_parse_yaml(settings, path, (struct nxl_view){text, size}, err);
}
