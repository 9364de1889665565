/* option_parse.c - texts to numbers and back, checked against an option's row. Pure. */
#include "base/option_inner.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define SHOWN_MAX 80u
#define NO_RANGE(row) ((row)->min == 0 && (row)->max == 0)

struct unit {
    const char *word;
    int64_t factor;
};

/* As in Kubernetes quantities: K is 1000, Ki is 1024. */
static const struct unit size_units[] = {
    {"Ti", 1ll << 40},
    {"Gi", 1ll << 30},
    {"Mi", 1ll << 20},
    {"Ki", 1ll << 10},
    {"T", 1000000000000ll},
    {"G", 1000000000},
    {"M", 1000000},
    {"K", 1000},
    {"k", 1000},
    {"", 1},
};
static const struct unit duration_units[] = {
    {"h", 3600 * (int64_t)NXL_SEC}, {"m", 60 * (int64_t)NXL_SEC}, {"s", (int64_t)NXL_SEC},
    {"ms", (int64_t)NXL_MS},        {"us", (int64_t)NXL_US},      {"ns", 1},
};

/* A value for an error line: quoted, short, without what could break the line. */
static const char *shown(const char *text)
{
    char head[SHOWN_MAX + 1];

    (void)nxl_copy_text(head, sizeof(head), text); /* a cut value still shows which one it is */
    return nxl_quote(head);
}

enum digits { DIGITS_OK, DIGITS_NONE, DIGITS_TOO_LARGE };

static enum digits digits_read(const char **at, int64_t *ret)
{
    enum digits result = DIGITS_NONE;
    int64_t value = 0;

    for (; **at >= '0' && **at <= '9'; (*at)++) {
        if (result == DIGITS_NONE)
            result = DIGITS_OK;
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, **at - '0', &value))
            result = DIGITS_TOO_LARGE;
        if (result == DIGITS_TOO_LARGE)
            value = 0; /* go on to the end of the digits without overflowing again and again */
    }
    *ret = value;
    return result;
}

static enum nxl_code quantity_parse(const char *text, const struct unit *units, size_t unit_count,
                                    const char *rule, int64_t *ret, struct nxl_err *err)
{
    const char *at = text;
    int64_t value;
    enum digits digits = digits_read(&at, &value);

    if (digits == DIGITS_NONE)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "%s is wrong: write %s", shown(text), rule);
    for (size_t i = 0; i < unit_count; i++) {
        if (strcmp(at, units[i].word) != 0)
            continue;
        if (digits == DIGITS_TOO_LARGE || __builtin_mul_overflow(value, units[i].factor, &value))
            return nxl_err_set(err, NXL_INVALID_PARAM, 0, "%s is too large: 2^63 - 1 is the end",
                               shown(text));
        *ret = value;
        return NXL_OK;
    }
    return nxl_err_set(err, NXL_INVALID_PARAM, 0, "%s has %s unit: write %s", shown(text),
                       *at == '\0' ? "no" : "an unknown", rule);
}

enum nxl_code nxl_parse_size(const char *text, int64_t *ret, struct nxl_err *err)
{
    char bare[32];
    size_t length = strlen(text);

    /* "64KiB" is "64Ki"; a unit is never a B alone without a digit in front. */
    if (length > 1 && length < sizeof(bare) && text[length - 1] == 'B') {
        memcpy(bare, text, length - 1);
        bare[length - 1] = '\0';
        if (bare[length - 2] != 'B' &&
            quantity_parse(bare, size_units, NXL_COUNT_OF(size_units), "", ret, NULL) == NXL_OK)
            return NXL_OK;
    }
    return quantity_parse(text, size_units, NXL_COUNT_OF(size_units),
                          "bytes as a whole number with K, M, G, T (1000s), Ki, Mi, Gi, Ti (1024s) "
                          "or nothing behind it",
                          ret, err);
}

enum nxl_code nxl_parse_duration(const char *text, int64_t *ret_ns, struct nxl_err *err)
{
    return quantity_parse(text, duration_units, NXL_COUNT_OF(duration_units),
                          "a whole number with ns, us, ms, s, m or h behind it", ret_ns, err);
}

static enum nxl_code int_parse(const char *text, int64_t *ret, struct nxl_err *err)
{
    const char *at = text + (text[0] == '-');
    int64_t value;
    enum digits digits = digits_read(&at, &value);

    if (digits == DIGITS_NONE || *at != '\0')
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "%s is not a whole number", shown(text));
    if (digits == DIGITS_TOO_LARGE)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "%s is too large", shown(text));
    *ret = text[0] == '-' ? -value : value;
    return NXL_OK;
}

int nxl_option_bool_word(const char *text)
{
    static const char *const words[] = {"n", "y", "no",    "yes",  "off",     "on",
                                        "0", "1", "false", "true", "disable", "enable"};

    for (size_t i = 0; i < NXL_COUNT_OF(words); i++) {
        if (strcasecmp(text, words[i]) == 0)
            return (int)(i & 1);
    }
    return -1;
}

/* The index of text in "a|b|c", -1 if it is not there. */
static int choice_index(const char *choices, const char *text)
{
    size_t length = strlen(text);
    int index = 0;

    if (length == 0 || strchr(text, '|'))
        return -1;
    for (const char *at = choices; at; index++) {
        const char *end = strchrnul(at, '|');

        if ((size_t)(end - at) == length && memcmp(at, text, length) == 0)
            return index;
        at = *end ? end + 1 : NULL;
    }
    return -1;
}

static void quantity_format(int64_t value, const struct unit *units, size_t unit_count, char *to,
                            size_t size)
{
    for (size_t i = 0; i < unit_count; i++) {
        if (value != 0 && value % units[i].factor == 0) {
            (void)snprintf(to, size, "%" PRId64 "%s", value / units[i].factor, units[i].word);
            return;
        }
    }
    (void)snprintf(to, size, "0%s", units == duration_units ? "s" : "");
}

static void number_format(const struct nxl_option *row, int64_t value, char *to, size_t size)
{
    if (row->type == NXL_OPTION_SIZE)
        quantity_format(value, size_units, NXL_COUNT_OF(size_units), to, size);
    else if (row->type == NXL_OPTION_DURATION)
        quantity_format(value, duration_units, NXL_COUNT_OF(duration_units), to, size);
    else
        (void)snprintf(to, size, "%" PRId64, value);
}

void nxl_option_allowed(const struct nxl_option *row, char *to, size_t size)
{
    char min[32], max[32];
    size_t used = 0;

    to[0] = '\0';
    if (row->type == NXL_OPTION_BOOL) {
        (void)nxl_copy_text(to, size, "true or false");
    } else if (row->type == NXL_OPTION_ENUM) {
        for (const char *at = row->choices; *at != '\0' && used + 3 < size; at++) {
            if (*at == '|') {
                memcpy(to + used, ", ", 2);
                used += 2;
            } else {
                to[used++] = *at;
            }
        }
        to[used] = '\0';
    } else if (row->type != NXL_OPTION_TEXT && !NO_RANGE(row)) {
        number_format(row, row->min, min, sizeof(min));
        number_format(row, row->max, max, sizeof(max));
        (void)snprintf(to, size, row->max == INT64_MAX ? "at least %s" : "%s to %s", min, max);
    }
}

const char *nxl_option_type_word(const struct nxl_option *row)
{
    static const char *const words[] = {"BOOL", "NUMBER", "SIZE", "DURATION", "TEXT", "CHOICE"};

    return words[row->type];
}

static enum nxl_code number_parse(const struct nxl_option *row, const char *text, int64_t *ret,
                                  struct nxl_err *err)
{
    switch (row->type) {
    case NXL_OPTION_INT:
        return int_parse(text, ret, err);
    case NXL_OPTION_SIZE:
        return nxl_parse_size(text, ret, err);
    case NXL_OPTION_DURATION:
        return nxl_parse_duration(text, ret, err);
    case NXL_OPTION_BOOL:
        *ret = nxl_option_bool_word(text);
        return *ret >= 0
                   ? NXL_OK
                   : nxl_err_set(err, NXL_INVALID_PARAM, 0, "%s is not true or false", shown(text));
    case NXL_OPTION_ENUM:
        *ret = choice_index(row->choices, text);
        return *ret >= 0 ? NXL_OK
                         : nxl_err_set(err, NXL_INVALID_PARAM, 0, "%s is no choice", shown(text));
    case NXL_OPTION_TEXT:
        break;
    }
    *ret = 0;
    return NXL_OK;
}

/* Texts are not shown: one may hold a password that somebody put where none belongs. */
static enum nxl_code text_check(const char *text, struct nxl_err *err)
{
    size_t length = strlen(text);

    if (length > OPTION_VALUE_MAX)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "the value has %zu bytes, more than %u",
                           length, OPTION_VALUE_MAX);
    for (size_t i = 0; i < length; i++) {
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                               "byte %zu of the value is a control character (0x%02x)", i,
                               (unsigned)(unsigned char)text[i]);
    }
    return NXL_OK;
}

enum nxl_code nxl_option_check(const struct nxl_option *row, const char *text, char **ret_text,
                               int64_t *ret_number, struct nxl_err *err)
{
    char allowed[256];
    int64_t number;
    enum nxl_code code = text_check(text, err);

    if (code != NXL_OK)
        return code;
    nxl_option_allowed(row, allowed, sizeof(allowed));
    code = number_parse(row, text, &number, err);
    if (code != NXL_OK) {
        struct nxl_err why = err ? *err : (struct nxl_err){0};

        return allowed[0] ? nxl_err_set(err, code, 0, "%s; allowed: %s", why.text, allowed) : code;
    }
    if (row->type != NXL_OPTION_ENUM && row->type != NXL_OPTION_BOOL &&
        row->type != NXL_OPTION_TEXT && !NO_RANGE(row) && (number < row->min || number > row->max))
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "%s is out of range; allowed: %s",
                           shown(text), allowed);
    *ret_text = nxl_strdup(row->type != NXL_OPTION_BOOL ? text : number ? "true" : "false");
    *ret_number = number;
    return NXL_OK;
}
