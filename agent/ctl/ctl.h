/* ctl.h - what the rooms of nixletctl share: global options and the table of subcommands. The
 * program has one thread. */
#ifndef NXL_CTL_CTL_H
#define NXL_CTL_CTL_H

#include <nxl/err.h>

enum ctl_exit { CTL_DONE = 0, CTL_FAILED = 1, CTL_USAGE = 2 };

struct ctl {
    int json;           /* one object on standard output, errors too */
    int progress;       /* also when standard error is no terminal */
    const char *socket; /* NULL: the client library's default */
    const char *http;   /* unix path or host:port */
};

struct ctl_command {
    const char *name;
    const char *usage; /* behind the name: "[options] FILE" */
    const char *about; /* one line */
    /* argv[0] is the first word behind the name. Returns enum ctl_exit. */
    int (*run)(const struct ctl_command *self, struct ctl *ctl, int argc, char **argv);
};

int ctl_show_run(const struct ctl_command *self, struct ctl *ctl, int argc, char **argv);
int ctl_get_run(const struct ctl_command *self, struct ctl *ctl, int argc, char **argv);
int ctl_put_run(const struct ctl_command *self, struct ctl *ctl, int argc, char **argv);
int ctl_size_run(const struct ctl_command *self, struct ctl *ctl, int argc, char **argv);
int ctl_doctor_run(const struct ctl_command *self, struct ctl *ctl, int argc, char **argv);

#endif
