/* option_help.c - the help text and the reference page, made from the same rows. Pure. */
#include "base/option_inner.h"
#include "base/bytes.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static const char *initial_of(const struct setting *setting)
{
    return setting->row->initial ? setting->row->initial : "";
}

static void help_setting(struct nxl_bytes *to, const struct setting *setting)
{
    char allowed[256];

    nxl_option_allowed(setting->row, allowed, sizeof(allowed));
    nxl_bytes_printf(to, "  --%s=%s\n      %s\n      default: %s", setting->key,
                     nxl_option_type_word(setting->row), setting->row->help,
                     initial_of(setting)[0] ? initial_of(setting) : "none");
    if (allowed[0] != '\0' && setting->row->type != NXL_OPTION_BOOL)
        nxl_bytes_printf(to, "; allowed: %s", allowed);
    nxl_bytes_printf(to, "; environment: %s\n", setting->env);
}

/* A bar would end the cell. */
static void cell_put(struct nxl_bytes *to, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '|')
            nxl_bytes_put_u8(to, '\\');
        nxl_bytes_put_u8(to, (uint8_t)*text);
    }
}

static void page_setting(struct nxl_bytes *to, const struct setting *setting)
{
    char allowed[256];

    nxl_option_allowed(setting->row, allowed, sizeof(allowed));
    nxl_bytes_printf(to, "| `%s` | %s | ", setting->key, nxl_option_type_word(setting->row));
    if (initial_of(setting)[0] != '\0') {
        nxl_bytes_put_u8(to, '`');
        cell_put(to, initial_of(setting));
        nxl_bytes_put_u8(to, '`');
    }
    nxl_bytes_printf(to, " | %s | `%s` | ", allowed, setting->env);
    cell_put(to, setting->row->help);
    nxl_bytes_printf(to, " |\n");
}

/* True for the keys declared under this very section, not under a deeper one. */
static int belongs_to(const struct setting *setting, const char *section)
{
    size_t length = strlen(section), key_length = strlen(setting->row->key);

    if (strlen(setting->key) != length + (length ? 1 : 0) + key_length)
        return 0;
    return strncmp(setting->key, section, length) == 0;
}

static void section_put(struct nxl_bytes *to, const struct nxl_settings *settings,
                        const char *section, int markdown)
{
    unsigned count = 0;

    for (const struct setting *setting = settings->by_key; setting; setting = setting->hh.next) {
        if (!belongs_to(setting, section))
            continue;
        if (count++ == 0 && markdown)
            nxl_bytes_printf(
                to,
                "## %s\n\n| setting | type | default | allowed | environment | meaning |\n"
                "|---|---|---|---|---|---|\n",
                section[0] ? section : "general");
        else if (count == 1)
            nxl_bytes_printf(to, "%s:\n", section[0] ? section : "general");
        if (markdown)
            page_setting(to, setting);
        else
            help_setting(to, setting);
    }
    if (count > 0)
        nxl_bytes_printf(to, "\n");
}

char *nxl_settings_help(const struct nxl_settings *settings, int markdown)
{
    struct nxl_bytes to = {0};

    for (size_t i = 0; i < settings->section_count; i++)
        section_put(&to, settings, settings->sections[i], markdown);
    nxl_bytes_put_u8(&to, '\0');
    return (char *)to.data; /* a buffer's memory is plain malloc's */
}
