/* tiny.c - the smallest plug-in, and wrong in the one way that PLUGIN_* asks for at compile time.
 */
#include <nxl/backend.h>

NXL_EXPORT const struct nxl_backend_ops *nxl_backend_entry(void);

#ifdef PLUGIN_UNRESOLVED
extern int a_library_that_is_not_installed(void);
#endif

static enum nxl_code tiny_open(struct nxl_host *host, const struct nxl_config *config,
                               struct nxl_backend **ret, struct nxl_err *err)
{
    static char backend;

    (void)host;
#ifdef PLUGIN_UNRESOLVED
    if (a_library_that_is_not_installed())
        return NXL_OK;
#endif
#ifdef PLUGIN_OPEN_REFUSES
    static const char why[] = "libtiny.so.1 is not installed";
    for (size_t i = 0; i < sizeof(why); i++)
        err->text[i] = why[i];
    return NXL_NOT_SUPPORTED;
#endif
    (void)err;
    if (config->number(config, "level") != 3)
        return NXL_CONFIG;
    *ret = (struct nxl_backend *)(void *)&backend;
    return NXL_OK;
}

static void tiny_close(struct nxl_backend *backend)
{
    (void)backend;
}

static void tiny_query(struct nxl_backend *backend, struct nxl_backend_caps *ret)
{
    (void)backend;
#ifdef PLUGIN_FALSE_CAPS
    ret->flags = NXL_CAP_LOCAL | NXL_CAP_REMOTE;
#else
    ret->flags = NXL_CAP_LOCAL;
#endif
    ret->mem_kinds = 1u << NXL_MEM_DRAM;
}

static enum nxl_code tiny_register(struct nxl_backend *backend, const struct nxl_memory *memory,
                                   struct nxl_backend_mem **ret, struct nxl_err *err)
{
    (void)memory;
    (void)err;
    *ret = (struct nxl_backend_mem *)backend;
    return NXL_OK;
}

static enum nxl_code tiny_deregister(struct nxl_backend *backend, struct nxl_backend_mem *mem,
                                     struct nxl_err *err)
{
    (void)backend;
    (void)mem;
    (void)err;
    return NXL_OK;
}

#ifndef PLUGIN_NO_SUBMIT
static enum nxl_code tiny_submit(struct nxl_backend *backend, const struct nxl_op *op,
                                 struct nxl_err *err)
{
    (void)backend;
    (void)op;
    (void)err;
    return NXL_NOT_SUPPORTED;
}
#endif

static const struct nxl_option tiny_options[] = {
    {"level", NXL_OPTION_INT, "3", 0, 9, NULL, "a number"},
    {NULL, NXL_OPTION_BOOL, NULL, 0, 0, NULL, NULL},
};

const struct nxl_backend_ops *nxl_backend_entry(void)
{
    static const struct nxl_backend_ops ops = {
#ifdef PLUGIN_SMALL_SIZE
        .size = 16,
#else
        .size = sizeof(struct nxl_backend_ops),
#endif
#ifdef PLUGIN_OTHER_ABI
        .abi_major = NXL_BACKEND_ABI_MAJOR + 1,
#else
        .abi_major = NXL_BACKEND_ABI_MAJOR,
#endif
        .name = PLUGIN_NAME,
        .options = tiny_options,
        .open = tiny_open,
        .close = tiny_close,
        .query = tiny_query,
        .register_mem = tiny_register,
        .deregister_mem = tiny_deregister,
#ifndef PLUGIN_NO_SUBMIT
        .submit = tiny_submit,
#endif
    };

#ifdef PLUGIN_NO_TABLE
    (void)ops;
    return NULL;
#else
    return &ops;
#endif
}
