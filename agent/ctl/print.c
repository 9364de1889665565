/* print.c - standard output and standard error of nixletctl. */
#include "ctl/print.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "ctl/ctl.h"

#define COLUMNS_MAX 16
#define CELL_MAX 512

struct ctl_table {
    const char *const *heads;
    size_t columns, count, room; /* cells, the heads not among them */
    char **cells;
};

void ctl_harmless(char *text)
{
    for (unsigned char *at = (unsigned char *)text; *at != '\0'; at++) {
        /* 0xc2 0x80..0x9f are the C1 controls in UTF-8; a lone 0x9b is one in Latin-1. */
        if (*at < 0x20 || *at == 0x7f || (at[0] == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0))
            *at = '?';
    }
}

int ctl_fail(const struct ctl *ctl, int exit_code, const struct nxl_err *err)
{
    char text[NXL_ERR_TEXT_SIZE];

    (void)nxl_copy_text(text, sizeof(text), err->text); /* same size */
    if (ctl->json) {
        json_t *root =
            json_pack("{s:{s:s, s:s}}", "error", "code", nxl_code_word(err->code), "text", text);

        if (root == NULL) { /* the text is no UTF-8 */
            ctl_harmless(text);
            for (char *at = text; *at != '\0'; at++)
                *at = (unsigned char)*at > 0x7e ? '?' : *at;
            root = json_pack("{s:{s:s, s:s}}", "error", "code", nxl_code_word(err->code), "text",
                             text);
        }
        NXL_IGNORE(ctl_json(ctl, root)); /* it failed already */
    } else {
        ctl_harmless(text);
        (void)fprintf(stderr, "nixletctl: %s\n", text);
    }
    return exit_code;
}

int ctl_flush(const struct ctl *ctl)
{
    (void)ctl;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return CTL_DONE;
    (void)fprintf(stderr, "nixletctl: write to standard output: %s\n", strerror(errno));
    return CTL_FAILED;
}

int ctl_json(const struct ctl *ctl, json_t *root)
{
    NXL_ASSERT(root != NULL);
    (void)json_dumpf(root, stdout,
                     JSON_INDENT(1) | JSON_ENSURE_ASCII); /* ctl_flush() sees errors */
    (void)fputc('\n', stdout);
    json_decref(root);
    return ctl_flush(ctl);
}

/* ---- tables ------------------------------------------------------------------------------- */

struct ctl_table *ctl_table_new(const char *const *heads)
{
    struct ctl_table *table = nxl_new0(sizeof(*table));

    table->heads = heads;
    while (heads[table->columns] != NULL)
        table->columns++;
    NXL_ASSERT(table->columns > 0 && table->columns <= COLUMNS_MAX);
    return table;
}

void ctl_table_free(struct ctl_table *table)
{
    if (table == NULL)
        return;
    for (size_t i = 0; i < table->count; i++)
        free(table->cells[i]);
    free(table->cells);
    free(table);
}

void ctl_table_cell(struct ctl_table *table, const char *fmt, ...)
{
    char text[CELL_MAX];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args); /* a cut cell is still a cell */
    va_end(args);
    ctl_harmless(text);
    if (table->count == table->room) {
        table->room = table->room == 0 ? 64 : table->room * 2;
        table->cells = nxl_resize(table->cells, table->room, sizeof(*table->cells));
    }
    table->cells[table->count++] = nxl_strdup(text[0] != '\0' ? text : "-");
}

static void row_print(const struct ctl_table *table, const size_t *widths, char *const *cells)
{
    for (size_t c = 0; c < table->columns; c++) {
        const char *head = table->heads[c],
                   *text = cells != NULL ? cells[c] : head + (*head == '>');
        int width = (int)widths[c];

        if (*head == '>')
            printf("%*s", width, text);
        else
            printf("%-*s", c + 1 < table->columns ? width : 0, text);
        (void)fputs(c + 1 < table->columns ? "  " : "\n", stdout);
    }
}

void ctl_table_print(const struct ctl_table *table)
{
    size_t widths[COLUMNS_MAX] = {0};

    for (size_t c = 0; c < table->columns; c++)
        widths[c] = strlen(table->heads[c]) - (table->heads[c][0] == '>');
    for (size_t i = 0; i < table->count; i++) {
        size_t width = strlen(table->cells[i]);

        if (width > widths[i % table->columns])
            widths[i % table->columns] = width;
    }
    row_print(table, widths, NULL);
    for (size_t i = 0; i + table->columns <= table->count; i += table->columns)
        row_print(table, widths, table->cells + i);
}

const char *ctl_bytes_text(uint64_t bytes, char *to, size_t room)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    size_t unit = 0;
    char digits[32];

    while (value >= 1024 && unit + 1 < NXL_COUNT_OF(units)) {
        value /= 1024;
        unit++;
    }
    (void)snprintf(digits, sizeof(digits), "%.2f", value);
    while (digits[strlen(digits) - 1] == '0')
        digits[strlen(digits) - 1] = '\0';
    if (digits[strlen(digits) - 1] == '.')
        digits[strlen(digits) - 1] = '\0';
    (void)snprintf(to, room, "%s %s", digits, units[unit]);
    return to;
}
