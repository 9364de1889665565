/* library.c - loads libucp and finds its calls. Loop thread, once per opened backend. */
#include "library.h"

#include "environment.h"

#include <dlfcn.h>
#include <signal.h>
#include <string.h>

#define UCX_OLDEST_MAJOR 1
#define UCX_OLDEST_MINOR                                                                           \
    12 /* ucp_ep_close_nbx, memh in requests and active messages as we use them */

/* POSIX lets a data pointer hold a function; ISO C has no cast for it. */
static int symbol_find(void *handle, const char *name, void *slot)
{
    void *found = dlsym(handle, name);

    memcpy(slot, &found, sizeof(found));
    return found != NULL;
}

static enum nxl_code symbols_find(void *handle, const char *file, struct ucx_library *library,
                                  struct nxl_err *err)
{
#define UCX_FIND(name)                                                                             \
    if (!symbol_find(handle, #name, &library->name))                                               \
        return nxl_err_set(err, NXL_NOT_SUPPORTED, 0,                                              \
                           "'%s' lacks %s: UCX %d.%d or later is needed", file, #name,             \
                           UCX_OLDEST_MAJOR, UCX_OLDEST_MINOR);
    UCX_SYMBOLS(UCX_FIND)
#undef UCX_FIND
    (void)symbol_find(handle, "ucs_global_opts_set_value", &library->ucs_global_opts_set_value);
    (void)symbol_find(handle, "ucs_log_push_handler", &library->ucs_log_push_handler);
    return NXL_OK;
}

/* Two copies of UCX in one process share symbols and hang: refuse before the second one is mapped.
 */
static enum nxl_code second_copy_refuse(struct nxl_err *err)
{
    char paths[256];

    if (ucx_environment_copies(paths, sizeof(paths)) < 2)
        return NXL_OK;
    return nxl_err_set(
        err, NXL_NOT_SUPPORTED, 0,
        "two copies of UCX are mapped into this process (%s): they would hang; start the agent "
        "without LD_PRELOAD and LD_LIBRARY_PATH of another UCX",
        paths);
}

/* UCX's constructor takes SIGSEGV, SIGBUS, SIGHUP and others for itself; the agent needs its own.
 * Never closed: UCX leaves threads, hooks and thread-local keys behind. */
static void *library_open(const char *file)
{
    struct sigaction before[32], now;
    int known[32];
    void *handle;

    for (int signo = 1; signo < 32; signo++)
        known[signo] = sigaction(signo, NULL, &before[signo]) == 0;
    handle = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    for (int signo = 1; signo < 32; signo++)
        if (known[signo] && sigaction(signo, NULL, &now) == 0 &&
            memcmp(&now.sa_sigaction, &before[signo].sa_sigaction, sizeof(now.sa_sigaction)) != 0)
            (void)sigaction(signo, &before[signo], NULL);
    return handle;
}

enum nxl_code ucx_library_load(const char *file, struct ucx_library *ret_library,
                               struct nxl_err *err)
{
    struct ucx_library library = {0};
    char paths[256];
    enum nxl_code code;
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);

    if (handle == NULL && ucx_environment_copies(paths, sizeof(paths)) > 0)
        return nxl_err_set(
            err, NXL_NOT_SUPPORTED, 0,
            "another copy of UCX is already mapped into this process (%s): a second one from '%s' "
            "would hang",
            paths, file);
    if (handle == NULL) {
        library.fresh = 1;
        handle = library_open(file);
    }
    if (handle == NULL)
        return nxl_err_set(err, NXL_NOT_SUPPORTED, 0,
                           "cannot load '%s' (%s); install UCX (Debian package libucx0) or set "
                           "backends.ucx.library",
                           file, dlerror());
    code = second_copy_refuse(err);
    if (code == NXL_OK)
        code = symbols_find(handle, file, &library, err);
    if (code != NXL_OK)
        return code;
    library.ucp_get_version(&library.major, &library.minor, &library.release);
    if (library.major != UCX_OLDEST_MAJOR || library.minor < UCX_OLDEST_MINOR)
        return nxl_err_set(err, NXL_NOT_SUPPORTED, 0,
                           "'%s' is UCX %u.%u.%u; %d.%d or later of major %d is needed", file,
                           library.major, library.minor, library.release, UCX_OLDEST_MAJOR,
                           UCX_OLDEST_MINOR, UCX_OLDEST_MAJOR);
    *ret_library = library;
    return NXL_OK;
}
