/* args.h - a subcommand's command line by table: values, ranges, help, "did you mean". */
#ifndef NXL_CTL_ARGS_H
#define NXL_CTL_ARGS_H

#include <nxl/err.h>

struct ctl;
struct ctl_command;

enum ctl_kind {
    CTL_SWITCH,   /* int *: set to 1 */
    CTL_TEXT,     /* const char **: lent from argv */
    CTL_COUNT,    /* int64_t *: whole number; K, M, Ki, ... allowed */
    CTL_SIZE,     /* int64_t *: bytes */
    CTL_DURATION, /* int64_t *: nanoseconds */
    CTL_ADDRESS,  /* uint64_t *: hexadecimal, 0x optional */
};

struct ctl_option {
    const char *name; /* without the dashes; NULL ends the table */
    enum ctl_kind kind;
    void *to;
    int64_t min, max;  /* numbers; both 0: any that is not negative */
    const char *value; /* "NAME" in the help; NULL for a switch */
    const char *help;
};

#define CTL_WORDS_MAX 8
struct ctl_words {
    const char *at[CTL_WORDS_MAX];
    int count;
    int help; /* --help was among the options */
};

/* Takes --name=value and --name value, in any order with words; "--" ends the options. The global
 * options are known everywhere. Pure but for the values it writes; those keep what they had on
 * error. NXL_INVALID_PARAM: err names option, value and what is allowed. */
NXL_MUST_USE enum nxl_code ctl_args_parse(struct ctl *ctl, const struct ctl_option *options,
                                          int argc, char **argv, struct ctl_words *ret,
                                          struct nxl_err *err);
/* The same for a subcommand, with its help and its errors printed. -1: go on; else the exit code.
 */
int ctl_args_read(struct ctl *ctl, const struct ctl_command *command,
                  const struct ctl_option *options, int argc, char **argv, int words_min,
                  int words_max, struct ctl_words *ret);

#endif
