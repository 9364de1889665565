/* registry.c - finds the table of a backend, linked in or in a plug-in, and refuses a wrong one
 * with the reason. Loop thread. A loaded library stays loaded: its tables are lent for ever. */
#include "host/host_inner.h"

#include "base/mem.h"
#include "base/option.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_PREFIX "libnxl_backend_"
#define FILE_SUFFIX ".so"
#define TABLE_SIZE_MIN                                                                             \
    (offsetof(struct nxl_backend_ops, cancel)) /* the last required one is before it */
#define TABLE_SIZE_MAX 65536u
#define OPTIONS_MAX 256u

/* Names become file names and settings' sections, so they are kept plain. */
int host_name_ok(const char *name)
{
    size_t length = strlen(name);

    return length >= 1 && length <= NXL_BACKEND_NAME_MAX &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == length;
}

static enum nxl_code options_check(const struct nxl_backend_ops *ops, struct nxl_err *err)
{
    const struct nxl_option *row = ops->options;
    uint32_t count = 0;

    for (; row != NULL && row->key != NULL; row++)
        if (++count > OPTIONS_MAX || row->initial == NULL || row->help == NULL)
            return nxl_err_set(
                err, NXL_CONFIG, 0,
                "option table: row %u has no default or no help, or the table does not end", count);
    return NXL_OK;
}

/* size and version first: nothing else of the table is read before they are right. */
static enum nxl_code table_check(const struct nxl_backend_ops *ops, const char *name,
                                 struct nxl_err *err)
{
    const char *missing;

    if (ops->size < TABLE_SIZE_MIN || ops->size > TABLE_SIZE_MAX)
        return nxl_err_set(err, NXL_VERSION, 0,
                           "its table has %u bytes, not %zu to %u; build it against this agent",
                           ops->size, TABLE_SIZE_MIN, TABLE_SIZE_MAX);
    if (ops->abi_major != NXL_BACKEND_ABI_MAJOR)
        return nxl_err_set(err, NXL_VERSION, 0,
                           "it speaks contract version %u.%u, this agent %u.%u", ops->abi_major,
                           ops->abi_minor, NXL_BACKEND_ABI_MAJOR, NXL_BACKEND_ABI_MINOR);
    if (ops->name == NULL || strcmp(ops->name, name) != 0)
        return nxl_err_set(err, NXL_CONFIG, 0,
                           "it calls itself '%s'; rename the file or the backend",
                           ops->name != NULL ? ops->name : "(nothing)");
    missing = ops->open == NULL             ? "open"
              : ops->close == NULL          ? "close"
              : ops->query == NULL          ? "query"
              : ops->register_mem == NULL   ? "register_mem"
              : ops->deregister_mem == NULL ? "deregister_mem"
              : ops->submit == NULL         ? "submit"
                                            : NULL;
    if (missing != NULL)
        return nxl_err_set(err, NXL_CONFIG, 0, "it lacks the required operation '%s'", missing);
    return options_check(ops, err);
}

static enum nxl_code plugin_load(const char *plugin_dir, const char *name,
                                 const struct nxl_backend_ops **ret, struct nxl_err *err)
{
    NXL_CLEANUP(nxl_freep)
    char *path = nxl_format("%s/" FILE_PREFIX "%s" FILE_SUFFIX, plugin_dir, name);
    nxl_backend_entry_fn *entry;
    void *handle;

    if (access(path, F_OK) != 0)
        return nxl_err_set(err, NXL_NOT_FOUND, 0, "it is not linked in, and '%s' does not exist",
                           path);
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle == NULL)
        return nxl_err_set(err, NXL_NOT_SUPPORTED, 0, "%s", dlerror());
    *(void **)&entry = dlsym(handle, "nxl_backend_entry");
    dlclose(handle); /* stays mapped: RTLD_NODELETE */
    if (entry == NULL)
        return nxl_err_set(err, NXL_CONFIG, 0, "'%s' exports no nxl_backend_entry", path);
    *ret = entry();
    if (*ret == NULL)
        return nxl_err_set(err, NXL_CONFIG, 0, "nxl_backend_entry of '%s' returned nothing", path);
    return NXL_OK;
}

static const struct nxl_backend_ops *static_find(const struct nxl_backend_ops *const *statics,
                                                 const char *name)
{
    for (; statics != NULL && *statics != NULL; statics++)
        if ((*statics)->name != NULL && strcmp((*statics)->name, name) == 0)
            return *statics;
    return NULL;
}

enum nxl_code host_table_find(const struct nxl_backend_ops *const *statics, const char *plugin_dir,
                              const char *name, const struct nxl_backend_ops **ret,
                              struct nxl_err *err)
{
    const struct nxl_backend_ops *ops = static_find(statics, name);
    enum nxl_code code;

    if (!host_name_ok(name))
        return nxl_err_set(err, NXL_CONFIG, 0, "'%s' is no backend name: 1 to %d of a-z, 0-9 and _",
                           name, NXL_BACKEND_NAME_MAX);
    if (ops == NULL && plugin_dir == NULL)
        return nxl_err_set(err, NXL_NOT_FOUND, 0,
                           "it is not linked in, and no plug-in folder is set");
    if (ops == NULL) {
        code = plugin_load(plugin_dir, name, &ops, err);
        if (code != NXL_OK)
            return code;
    }
    code = table_check(ops, name, err);
    if (code != NXL_OK)
        return code;
    *ret = ops;
    return NXL_OK;
}

enum nxl_code host_caps_check(const struct nxl_backend_ops *ops,
                              const struct nxl_backend_caps *caps, struct nxl_err *err)
{
    const char *missing = NULL;

    if ((caps->flags & (NXL_CAP_LOCAL | NXL_CAP_REMOTE)) == 0)
        return nxl_err_set(err, NXL_CONFIG, 0, "it moves neither locally nor to other agents");
    if ((caps->mem_kinds & ((1u << NXL_MEM_KINDS) - 1)) == 0)
        return nxl_err_set(err, NXL_CONFIG, 0, "it takes no kind of memory");
    if (caps->path < NXL_PATH_NONE || caps->path > NXL_PATH_ONE_COPY ||
        caps->honesty > NXL_HONESTY_COMPILED)
        return nxl_err_set(err, NXL_CONFIG, 0, "path class %d or honesty level %u is unknown",
                           caps->path, caps->honesty);
    if ((caps->flags & NXL_CAP_CANCEL) && !NXL_BACKEND_HAS(ops, cancel))
        return nxl_err_set(err, NXL_CONFIG, 0, "it promises 'cancel' and has no operation for it");
    if ((caps->flags & NXL_CAP_REMOTE) == 0)
        return NXL_OK;
    missing = !NXL_BACKEND_HAS(ops, address)      ? "address"
              : !NXL_BACKEND_HAS(ops, connect)    ? "connect"
              : !NXL_BACKEND_HAS(ops, disconnect) ? "disconnect"
              : !NXL_BACKEND_HAS(ops, export_key) ? "export_key"
              : !NXL_BACKEND_HAS(ops, import_key) ? "import_key"
              : !NXL_BACKEND_HAS(ops, forget)     ? "forget"
                                                  : NULL;
    if (missing != NULL)
        return nxl_err_set(err, NXL_CONFIG, 0, "it promises to reach other agents and lacks '%s'",
                           missing);
    return NXL_OK;
}

static void table_declare(struct nxl_settings *settings, const struct nxl_backend_ops *ops)
{
    static const struct nxl_option none[] = {{NULL, NXL_OPTION_BOOL, NULL, 0, 0, NULL, NULL}};
    NXL_CLEANUP(nxl_freep) char *section = nxl_format("backends.%s", ops->name);

    nxl_settings_declare(settings, section, ops->options != NULL ? ops->options : none);
}

static int is_plugin(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);
    size_t around = strlen(FILE_PREFIX) + strlen(FILE_SUFFIX);

    return length > around && length - around <= NXL_BACKEND_NAME_MAX &&
           strncmp(entry->d_name, FILE_PREFIX, strlen(FILE_PREFIX)) == 0 &&
           strcmp(entry->d_name + length - strlen(FILE_SUFFIX), FILE_SUFFIX) == 0;
}

/* A plug-in that is wrong is passed over here; if it is enabled, opening says why. */
static void plugins_declare(struct nxl_settings *settings,
                            const struct nxl_backend_ops *const *statics, const char *plugin_dir)
{
    struct dirent **entries = NULL;
    int count = scandir(plugin_dir, &entries, is_plugin, alphasort);

    for (int i = 0; i < count; i++) {
        const struct nxl_backend_ops *ops;
        char name[NXL_BACKEND_NAME_MAX + 1];
        struct nxl_err err;

        snprintf(name, sizeof(name), "%.*s",
                 (int)(strlen(entries[i]->d_name) - strlen(FILE_PREFIX) - strlen(FILE_SUFFIX)),
                 entries[i]->d_name + strlen(FILE_PREFIX));
        if (static_find(statics, name) == NULL &&
            host_table_find(statics, plugin_dir, name, &ops, &err) == NXL_OK)
            table_declare(settings, ops);
        free(entries[i]);
    }
    free(entries);
}

void nxl_hosts_declare(struct nxl_settings *settings, const struct nxl_backend_ops *const *statics,
                       const char *plugin_dir)
{
    struct nxl_err err;

    for (const struct nxl_backend_ops *const *ops = statics; ops != NULL && *ops != NULL; ops++)
        if ((*ops)->name != NULL && table_check(*ops, (*ops)->name, &err) == NXL_OK)
            table_declare(settings, *ops);
    if (plugin_dir != NULL)
        plugins_declare(settings, statics, plugin_dir);
}
