/* args.c - parses command lines and prints the help that the same rows yield. */
#include "ctl/args.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/option.h"
#include "ctl/ctl.h"
#include "ctl/print.h"

#define GLOBALS 5
#define OPTIONS_MAX 32

static void globals_fill(struct ctl *ctl, int *help, struct ctl_option *to)
{
    const struct ctl_option rows[GLOBALS] = {
        {"json", CTL_SWITCH, &ctl->json, 0, 0, NULL, "one JSON object on standard output"},
        {"socket", CTL_TEXT, &ctl->socket, 0, 0, "PATH",
         "the agent's socket (default $NIXLET_SOCKET, else /run/nixlet/agent.sock)"},
        {"http", CTL_TEXT, &ctl->http, 0, 0, "WHERE",
         "the agent's HTTP, a path or host:port (default $NIXLET_HTTP, else "
         "/run/nixlet/http.sock)"},
        {"progress", CTL_SWITCH, &ctl->progress, 0, 0, NULL,
         "progress of long work also when standard error is no terminal"},
        {"help", CTL_SWITCH, help, 0, 0, NULL, "this text"},
    };

    memcpy(to, rows, sizeof(rows));
}

/* ---- one value ---------------------------------------------------------------------------- */

static enum nxl_code address_parse(const char *text, uint64_t *ret, struct nxl_err *err)
{
    const char *digits = strncmp(text, "0x", 2) == 0 ? text + 2 : text;
    char *end;

    if (strspn(digits, "0123456789abcdefABCDEF") != strlen(digits) || digits[0] == '\0' ||
        strlen(digits) > 16)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "'%.40s' is no address: up to 16 hexadecimal digits, as `nixletctl "
                           "regions` prints them",
                           text);
    *ret = strtoull(digits, &end, 16);
    return NXL_OK;
}

static enum nxl_code number_parse(const struct ctl_option *row, const char *text, int64_t *ret,
                                  struct nxl_err *err)
{
    enum nxl_code code = row->kind == CTL_DURATION ? nxl_parse_duration(text, ret, err)
                                                   : nxl_parse_size(text, ret, err);

    if (code != NXL_OK)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "'%.40s' is not %s", text,
                           row->kind == CTL_DURATION
                               ? "a duration: a whole number with ms, s, m or "
                                 "h behind it"
                           : row->kind == CTL_SIZE
                               ? "a size: a whole number, K, M, G (1000s) or Ki, Mi, Gi (1024s) "
                                 "behind it"
                               : "a whole number");
    if (row->max > 0 && (*ret < row->min || *ret > row->max))
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "%.40s is not between %lld and %lld", text,
                           (long long)row->min, (long long)row->max);
    return NXL_OK;
}

static enum nxl_code value_take(const struct ctl_option *row, const char *text, struct nxl_err *err)
{
    enum nxl_code code = NXL_OK;
    uint64_t address;
    int64_t number;

    switch (row->kind) {
    case CTL_SWITCH:
        *(int *)row->to = 1;
        break;
    case CTL_TEXT:
        *(const char **)row->to = text;
        break;
    case CTL_ADDRESS:
        code = address_parse(text, &address, err);
        if (code == NXL_OK)
            *(uint64_t *)row->to = address;
        break;
    case CTL_COUNT:
    case CTL_SIZE:
    case CTL_DURATION:
        code = number_parse(row, text, &number, err);
        if (code == NXL_OK)
            *(int64_t *)row->to = number;
        break;
    }
    return code == NXL_OK ? code : nxl_err_wrap(err, code, "--%s", row->name);
}

/* ---- the line ----------------------------------------------------------------------------- */

static const struct ctl_option *row_find(const struct ctl_option *rows, size_t count,
                                         const char *name, size_t size)
{
    for (size_t i = 0; i < count; i++) {
        if (strlen(rows[i].name) == size && memcmp(rows[i].name, name, size) == 0)
            return &rows[i];
    }
    return NULL;
}

static enum nxl_code unknown(const struct ctl_option *rows, size_t count, const char *word,
                             struct nxl_err *err)
{
    const char *names[OPTIONS_MAX], *nearest;
    char bare[64];

    for (size_t i = 0; i < count; i++)
        names[i] = rows[i].name;
    (void)snprintf(bare, sizeof(bare), "%.*s", (int)strcspn(word + 2, "="), word + 2);
    nearest = nxl_nearest(bare, names, count);
    if (nearest != NULL)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "there is no option '%.60s'; did you mean --%s?", word, nearest);
    return nxl_err_set(err, NXL_INVALID_PARAM, 0, "there is no option '%.60s'; see --help", word);
}

/* argv[*at] begins with two dashes; moves *at over what it took. */
static enum nxl_code option_take(const struct ctl_option *rows, size_t count, int argc, char **argv,
                                 int *at, struct nxl_err *err)
{
    const char *word = argv[*at], *equals = strchr(word, '=');
    size_t size = equals != NULL ? (size_t)(equals - word) - 2 : strlen(word) - 2;
    const struct ctl_option *row = row_find(rows, count, word + 2, size);
    const char *value = equals != NULL ? equals + 1 : NULL;

    if (row == NULL)
        return unknown(rows, count, word, err);
    if (row->kind == CTL_SWITCH && value != NULL)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "--%s is a switch and takes no value",
                           row->name);
    if (row->kind != CTL_SWITCH && value == NULL) {
        if (*at + 1 >= argc)
            return nxl_err_set(err, NXL_INVALID_PARAM, 0, "--%s needs a value: --%s=%s", row->name,
                               row->name, row->value);
        value = argv[++*at];
    }
    (*at)++;
    return value_take(row, value, err);
}

enum nxl_code ctl_args_parse(struct ctl *ctl, const struct ctl_option *options, int argc,
                             char **argv, struct ctl_words *ret, struct nxl_err *err)
{
    struct ctl_option rows[OPTIONS_MAX];
    struct ctl_words words = {0};
    size_t count = GLOBALS;
    int at = 0, over = 0;

    globals_fill(ctl, &words.help, rows);
    for (; options != NULL && options->name != NULL && count < OPTIONS_MAX; options++)
        rows[count++] = *options;
    while (at < argc) {
        const char *word = argv[at];

        if (!over && strcmp(word, "--") == 0) {
            over = 1;
            at++;
        } else if (!over && strcmp(word, "-h") == 0) {
            words.help = 1;
            at++;
        } else if (!over && word[0] == '-' && word[1] == '-') {
            enum nxl_code code = option_take(rows, count, argc, argv, &at, err);

            if (code != NXL_OK)
                return code;
        } else if (!over && word[0] == '-' && word[1] != '\0') {
            return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                               "there is no option '%.60s'; options are written --name=value",
                               word);
        } else {
            if (words.count == CTL_WORDS_MAX)
                return nxl_err_set(err, NXL_INVALID_PARAM, 0, "more than %d words at '%.60s'",
                                   CTL_WORDS_MAX, word);
            words.at[words.count++] = word;
            at++;
        }
    }
    *ret = words;
    return NXL_OK;
}

/* ---- help --------------------------------------------------------------------------------- */

static void option_help(const struct ctl_option *row)
{
    char left[48];

    (void)snprintf(left, sizeof(left), "--%s%s%s", row->name, row->value != NULL ? " " : "",
                   row->value != NULL ? row->value : "");
    printf("  %-20s %s\n", left, row->help);
}

static void help_print(struct ctl *ctl, const struct ctl_command *command,
                       const struct ctl_option *options)
{
    struct ctl_option globals[GLOBALS];
    int help;

    printf("usage: nixletctl %s %s\n\n%s.\n\n", command->name, command->usage, command->about);
    for (; options != NULL && options->name != NULL; options++)
        option_help(options);
    globals_fill(ctl, &help, globals);
    for (int i = 0; i < GLOBALS; i++)
        option_help(&globals[i]);
}

int ctl_args_read(struct ctl *ctl, const struct ctl_command *command,
                  const struct ctl_option *options, int argc, char **argv, int words_min,
                  int words_max, struct ctl_words *ret)
{
    struct nxl_err err = {0};
    enum nxl_code code = ctl_args_parse(ctl, options, argc, argv, ret, &err);

    if (code == NXL_OK && ret->help) {
        help_print(ctl, command, options);
        return CTL_DONE;
    }
    if (code == NXL_OK && ret->count > words_max)
        code = nxl_err_set(&err, NXL_INVALID_PARAM, 0,
                           "'%.60s' is one word too many; usage: "
                           "nixletctl %s %s",
                           ret->at[words_max], command->name, command->usage);
    if (code == NXL_OK && ret->count < words_min)
        code = nxl_err_set(&err, NXL_INVALID_PARAM, 0, "a word is missing; usage: nixletctl %s %s",
                           command->name, command->usage);
    if (code != NXL_OK) {
        NXL_IGNORE(nxl_err_wrap(&err, code, "%s", command->name)); /* returns the code */
        return ctl_fail(ctl, CTL_USAGE, &err);
    }
    return -1;
}
