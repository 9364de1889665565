/* print.h - what people and programs read: tables, sizes, JSON, errors. Texts of other machines are
 * made harmless for a terminal. */
#ifndef NXL_CTL_PRINT_H
#define NXL_CTL_PRINT_H

#include <nxl/err.h>

#include <jansson.h>
#include <stdint.h>

struct ctl;
struct ctl_table;

/* Says why, in the way that was asked for; returns exit_code. */
int ctl_fail(const struct ctl *ctl, int exit_code, const struct nxl_err *err);
/* Takes root: one object on standard output. Returns CTL_DONE, or CTL_FAILED with a sentence. */
int ctl_json(const struct ctl *ctl, json_t *root);
/* After the last print: a full disk behind standard output is a failure. */
int ctl_flush(const struct ctl *ctl);

/* heads: NULL-terminated; one that begins with '>' is aligned right. */
struct ctl_table *ctl_table_new(const char *const *heads);
void ctl_table_cell(struct ctl_table *table, const char *fmt, ...) NXL_PRINTF(2, 3);
void ctl_table_print(const struct ctl_table *table);
void ctl_table_free(struct ctl_table *table); /* accepts NULL */

/* "576 B", "68.62 KiB", "1.25 GiB": at most two decimals. to: 24 bytes suffice. */
const char *ctl_bytes_text(uint64_t bytes, char *to, size_t room);
/* Puts '?' where a control character or the beginning of one stands. */
void ctl_harmless(char *text);

#endif
