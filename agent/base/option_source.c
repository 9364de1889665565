/* option_source.c - settings from the environment and from the command line. Start-up only. */
#include "base/option_inner.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static int starts_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* Variables of the same prefix that belong to others: the client's socket, the choice of the file,
 * the tests. */
static int env_is_foreign(const char *name)
{
    return strcmp(name, "NIXLET_SOCKET") == 0 || strcmp(name, "NIXLET_CONFIG") == 0 ||
           starts_with(name, "NIXLET_TEST_");
}

/* Kubernetes sets variables for every service, NIXLET_PORT_7741_TCP among them: never an error. */
static void env_report_unknown(const struct nxl_settings *settings, const char *name)
{
    NXL_CLEANUP(nxl_freep) const char **names = NULL;
    const char *nearest;
    size_t count = 0;

    names = nxl_new0_array(HASH_COUNT(settings->by_key), sizeof(*names));
    for (const struct setting *setting = settings->by_key; setting; setting = setting->hh.next)
        names[count++] = setting->env;
    nearest = nxl_nearest(name, names, count);
    nxl_warn("settings", "event=\"environment variable of no setting\" name=%s nearest=%s",
             nxl_quote(name), nearest ? nearest : "-");
}

static enum nxl_code env_take(struct nxl_settings *settings, struct changes *changes,
                              const char *variable, struct nxl_err *err)
{
    const char *equals = strchr(variable, '=');
    NXL_CLEANUP(nxl_freep) char *name = NULL;

    if (!equals || !starts_with(variable, "NIXLET_"))
        return NXL_OK;
    name = nxl_format("%.*s", (int)(equals - variable), variable);
    if (env_is_foreign(name))
        return NXL_OK;
    for (const struct setting *setting = settings->by_key; setting; setting = setting->hh.next) {
        NXL_CLEANUP(nxl_freep) char *where = NULL;

        if (strcmp(setting->env, name) != 0)
            continue;
        where = nxl_format("environment %s", name);
        return nxl_changes_add(settings, changes, setting->key, equals + 1, 0, where, err);
    }
    env_report_unknown(settings, name);
    return NXL_OK;
}

enum nxl_code nxl_settings_load_env(struct nxl_settings *settings, char **env, struct nxl_err *err)
{
    NXL_CLEANUP(nxl_changes_fini) struct changes changes = {0};

    for (; *env; env++) {
        enum nxl_code code = env_take(settings, &changes, *env, err);

        if (code != NXL_OK)
            return code;
    }
    nxl_changes_apply(&changes, RANK_ENV);
    return NXL_OK;
}

/* Takes the option at argv[*at] and moves *at behind what it used up. */
static enum nxl_code arg_take(struct nxl_settings *settings, struct changes *changes, int argc,
                              char **argv, int *at, struct nxl_err *err)
{
    const char *word = argv[*at], *equals = strchr(word, '='), *value = equals ? equals + 1 : NULL;
    NXL_CLEANUP(nxl_freep) char *key = NULL;
    NXL_CLEANUP(nxl_freep) char *where = NULL;
    const struct setting *setting;

    (*at)++;
    if (!starts_with(word, "--"))
        return nxl_err_set(err, NXL_CONFIG, 0, "flag %.64s: flags begin with two dashes", word);
    key = equals ? nxl_format("%.*s", (int)(equals - word - 2), word + 2) : nxl_strdup(word + 2);
    where = nxl_format("flag --%.64s", key);
    setting = nxl_option_find(settings, key);
    if (setting && !value) {
        const char *next = *at < argc ? argv[*at] : NULL;
        int is_bool = setting->row->type == NXL_OPTION_BOOL;

        if (next && (is_bool ? nxl_option_bool_word(next) >= 0 : !starts_with(next, "--"))) {
            value = next;
            (*at)++;
        } else if (is_bool) {
            value = "true"; /* "--log.json" alone says yes */
        } else {
            return nxl_err_set(err, NXL_CONFIG, 0, "%s: no value; write --%s=VALUE", where, key);
        }
    }
    return nxl_changes_add(settings, changes, key, value ? value : "", 0, where, err);
}

enum nxl_code nxl_settings_load_args(struct nxl_settings *settings, int argc, char **argv,
                                     int *ret_next, struct nxl_err *err)
{
    NXL_CLEANUP(nxl_changes_fini) struct changes changes = {0};
    int at = argc > 0; /* behind the program's name */

    while (at < argc && argv[at][0] == '-' && argv[at][1] != '\0') {
        enum nxl_code code;

        if (strcmp(argv[at], "--") == 0) {
            at++;
            break;
        }
        code = arg_take(settings, &changes, argc, argv, &at, err);
        if (code != NXL_OK)
            return code;
    }
    nxl_changes_apply(&changes, RANK_FLAG);
    *ret_next = at;
    return NXL_OK;
}
