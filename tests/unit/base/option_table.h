/* option_table.h - the settings that the option tests work on. */
#ifndef NXL_TESTS_BASE_OPTION_TABLE_H
#define NXL_TESTS_BASE_OPTION_TABLE_H

#include "base/option.h"

#include <string.h>

static const struct nxl_option table_root[] = {
    {"name", NXL_OPTION_TEXT, "node", 0, 0, NULL, "name of the node"},
    {0},
};
static const struct nxl_option table_store[] = {
    {"url", NXL_OPTION_TEXT, "none", 0, 0, NULL, "where Redis is"},
    {"timeout", NXL_OPTION_DURATION, "500ms", 1000000, 60000000000, NULL, "per command"},
    {"tls", NXL_OPTION_BOOL, "false", 0, 0, NULL, "speak TLS"},
    {0},
};
static const struct nxl_option table_link[] = {
    {"port", NXL_OPTION_INT, "7741", 0, 65535, NULL, "listens here"},
    {"min-path", NXL_OPTION_ENUM, "any", 0, 0, "any|tcp|shared", "slowest path allowed"},
    {"window_size", NXL_OPTION_SIZE, "1Mi", 4096, INT64_MAX, NULL, "bytes in flight"},
    {0},
};
static const struct nxl_option table_ucx[] = {
    {"workers", NXL_OPTION_INT, "1", 1, 64, NULL, "how many workers"},
    {"tls", NXL_OPTION_TEXT, "", 0, 0, NULL, "transports, all if empty"},
    {0},
};

static inline struct nxl_settings *table_settings(void)
{
    struct nxl_settings *settings = nxl_settings_new();

    nxl_settings_declare(settings, "", table_root);
    nxl_settings_declare(settings, "store", table_store);
    nxl_settings_declare(settings, "link", table_link);
    nxl_settings_declare(settings, "backends.ucx", table_ucx);
    nxl_settings_declare(settings, "backends.null", NULL);
    return settings;
}

static inline struct nxl_view view_of(const char *text)
{
    return (struct nxl_view){text, strlen(text)};
}

#endif
