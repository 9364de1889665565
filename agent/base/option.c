/* option.c - the settings: declared by table, changed all or nothing, read by full key. Loop
 * thread; after start-up they are only read. */
#include "base/option_inner.h"
#include "base/assert.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

struct nxl_settings *nxl_settings_new(void)
{
    return nxl_new0(sizeof(struct nxl_settings));
}

void nxl_settings_free(struct nxl_settings *settings)
{
    struct setting *setting, *next;

    if (!settings)
        return;
    HASH_ITER(hh, settings->by_key, setting, next)
    {
        HASH_DELETE(hh, settings->by_key, setting);
        free(setting->key);
        free(setting->env);
        free(setting->text);
        free(setting);
    }
    for (size_t i = 0; i < settings->section_count; i++)
        free(settings->sections[i]);
    free(settings->sections);
    free(settings);
}

static int key_is_valid(const char *key)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    size_t length = strlen(key);

    return length > 0 && length <= OPTION_KEY_MAX / 2 && strspn(key, letters) == length &&
           key[0] != '.' && key[0] != '-' && key[length - 1] != '.';
}

static enum nxl_code row_check(const char *section, const struct nxl_option *row,
                               struct nxl_err *err)
{
    NXL_CLEANUP(nxl_freep) char *text = NULL;
    enum nxl_code code;
    int64_t number;

    if (!key_is_valid(row->key))
        return nxl_err_set(err, NXL_CONFIG, 0, "section '%s': '%s' is no valid key", section,
                           row->key);
    if ((unsigned)row->type > NXL_OPTION_ENUM || !row->help || row->min > row->max ||
        (row->type == NXL_OPTION_ENUM && !row->choices))
        return nxl_err_set(
            err, NXL_CONFIG, 0,
            "section '%s', key '%s': the row lacks a known type, help, choices or an "
            "ordered range",
            section, row->key);
    code = nxl_option_check(row, row->initial ? row->initial : "", &text, &number, err);
    if (code != NXL_OK)
        return nxl_err_wrap(err, NXL_CONFIG, "section '%s', key '%s': default", section, row->key);
    return NXL_OK;
}

enum nxl_code nxl_options_check(const char *section, const struct nxl_option *options,
                                struct nxl_err *err)
{
    if (section[0] != '\0' && !key_is_valid(section))
        return nxl_err_set(err, NXL_CONFIG, 0, "'%s' is no valid section", section);
    for (const struct nxl_option *row = options; row && row->key; row++) {
        enum nxl_code code = row_check(section, row, err);

        if (code != NXL_OK)
            return code;
        for (const struct nxl_option *other = options; other < row; other++) {
            if (strcmp(other->key, row->key) == 0)
                return nxl_err_set(err, NXL_CONFIG, 0, "section '%s': key '%s' stands there twice",
                                   section, row->key);
        }
    }
    return NXL_OK;
}

static char *env_name_of(const char *key)
{
    char *name = nxl_format("NIXLET_%s", key);

    for (char *at = name; *at != '\0'; at++) {
        if (*at == '.' || *at == '-')
            *at = '_';
        else if (*at >= 'a' && *at <= 'z')
            *at = (char)(*at - 'a' + 'A');
    }
    return name;
}

static void setting_declare(struct nxl_settings *settings, const char *section,
                            const struct nxl_option *row)
{
    struct setting *setting = nxl_new0(sizeof(*setting));

    setting->row = row;
    setting->key = nxl_format("%s%s%s", section, section[0] ? "." : "", row->key);
    setting->env = env_name_of(setting->key);
    /* "a.b" and "a_b" would be one variable. */
    for (const struct setting *other = settings->by_key; other; other = other->hh.next)
        NXL_ASSERT(strcmp(other->env, setting->env) != 0);
    NXL_ASSERT(nxl_option_check(row, row->initial ? row->initial : "", &setting->text,
                                &setting->number, NULL) == NXL_OK);
    HASH_ADD_KEYPTR(hh, settings->by_key, setting->key, strlen(setting->key), setting);
}

void nxl_settings_declare(struct nxl_settings *settings, const char *section,
                          const struct nxl_option *options)
{
    struct nxl_err err = {0};

    if (nxl_options_check(section, options, &err) != NXL_OK) {
        nxl_error("settings", "event=\"wrong option table\" error=%s", nxl_quote(err.text));
        nxl_assert_failed("every row of an option table is right", __FILE__, __LINE__);
    }
    for (size_t i = 0; i < settings->section_count; i++)
        NXL_ASSERT(strcmp(settings->sections[i], section) != 0);
    settings->sections =
        nxl_resize(settings->sections, settings->section_count + 1, sizeof(*settings->sections));
    settings->sections[settings->section_count++] = nxl_strdup(section);
    for (const struct nxl_option *row = options; row && row->key; row++)
        setting_declare(settings, section, row);
}

struct setting *nxl_option_find(const struct nxl_settings *settings, const char *key)
{
    struct setting *setting = NULL;

    HASH_FIND_STR(settings->by_key, key, setting);
    return setting;
}

/* --- changes --- */

static enum nxl_code unknown_key(const struct nxl_settings *settings, const char *key,
                                 const char *where, struct nxl_err *err)
{
    const char *nearest = nxl_option_nearest(settings, key);
    char head[65];

    (void)nxl_copy_text(head, sizeof(head), key); /* a cut key still shows which one it is */
    if (nearest)
        return nxl_err_set(err, NXL_CONFIG, 0, "%s: unknown setting %s, did you mean '%s'?", where,
                           nxl_quote(head), nearest);
    return nxl_err_set(err, NXL_CONFIG, 0, "%s: unknown setting %s; --help lists all settings",
                       where, nxl_quote(head));
}

enum nxl_code nxl_changes_add(struct nxl_settings *settings, struct changes *changes,
                              const char *key, const char *text, unsigned line, const char *where,
                              struct nxl_err *err)
{
    struct setting *setting = nxl_option_find(settings, key);
    struct change change = {.setting = setting, .line = line};
    enum nxl_code code;

    if (!setting)
        return unknown_key(settings, key, where, err);
    code = nxl_option_check(setting->row, text, &change.text, &change.number, err);
    if (code != NXL_OK)
        return nxl_err_wrap(err, NXL_CONFIG, "%s: %s", where, key);
    changes->items = nxl_resize(changes->items, changes->count + 1, sizeof(*changes->items));
    changes->items[changes->count++] = change;
    return NXL_OK;
}

void nxl_changes_apply(struct changes *changes, enum option_rank rank)
{
    for (size_t i = 0; i < changes->count; i++) {
        struct change *change = &changes->items[i];
        struct setting *setting = change->setting;

        if (setting->rank > rank)
            continue;
        free(setting->text);
        setting->text = NXL_TAKE(change->text);
        setting->number = change->number;
        setting->rank = rank;
    }
}

void nxl_changes_fini(struct changes *changes)
{
    for (size_t i = 0; i < changes->count; i++)
        free(changes->items[i].text);
    free(changes->items);
    *changes = (struct changes){0};
}

enum nxl_code nxl_settings_set(struct nxl_settings *settings, const char *key, const char *value,
                               const char *origin, struct nxl_err *err)
{
    NXL_CLEANUP(nxl_changes_fini) struct changes changes = {0};
    enum nxl_code code = nxl_changes_add(settings, &changes, key, value, 0, origin, err);

    if (code != NXL_OK)
        return code;
    nxl_changes_apply(&changes, RANK_FLAG);
    return NXL_OK;
}

/* --- reading --- */

static const struct setting *setting_known(const struct nxl_settings *settings, const char *key)
{
    const struct setting *setting = nxl_option_find(settings, key);

    if (!setting)
        nxl_error("settings", "event=\"a key that nobody declared\" key=%s", nxl_quote(key));
    NXL_ASSERT(setting != NULL);
    return setting;
}

const char *nxl_settings_text(const struct nxl_settings *settings, const char *key)
{
    return setting_known(settings, key)->text;
}

int64_t nxl_settings_number(const struct nxl_settings *settings, const char *key)
{
    const struct setting *setting = setting_known(settings, key);

    NXL_ASSERT(setting->row->type != NXL_OPTION_TEXT);
    return setting->number;
}

int nxl_settings_bool(const struct nxl_settings *settings, const char *key)
{
    const struct setting *setting = setting_known(settings, key);

    NXL_ASSERT(setting->row->type == NXL_OPTION_BOOL);
    return setting->number != 0;
}

struct section_config {
    struct nxl_config config;
    const struct nxl_settings *settings;
    char section[];
};

/* A plug-in that asks for a key outside its table gets an empty answer and a line in the log, not a
 * dead agent. */
static const struct setting *section_find(const struct nxl_config *config, const char *key)
{
    const struct section_config *view =
        nxl_container_of(config, const struct section_config, config);
    NXL_CLEANUP(nxl_freep)
    char *full = nxl_format("%s%s%s", view->section, view->section[0] ? "." : "", key);
    const struct setting *setting = nxl_option_find(view->settings, full);

    if (!setting)
        nxl_warn("settings", "event=\"read of a key that is not in the option table\" key=%s",
                 nxl_quote(full));
    return setting;
}

static const char *section_text(const struct nxl_config *config, const char *key)
{
    const struct setting *setting = section_find(config, key);

    return setting ? setting->text : "";
}

static int64_t section_number(const struct nxl_config *config, const char *key)
{
    const struct setting *setting = section_find(config, key);

    return setting ? setting->number : 0;
}

struct nxl_config *nxl_settings_config(const struct nxl_settings *settings, const char *section)
{
    size_t length = strlen(section);
    struct section_config *view = nxl_new0(sizeof(*view) + length + 1);

    view->config = (struct nxl_config){sizeof(view->config), section_text, section_number};
    view->settings = settings;
    memcpy(view->section, section, length + 1);
    return &view->config;
}
