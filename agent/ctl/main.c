/* main.c - nixletctl: finds the subcommand, prints the help, returns the exit code. */
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/option.h"
#include "ctl/args.h"
#include "ctl/ctl.h"
#include "ctl/print.h"

#define DEFAULT_HTTP "/run/nixlet/http.sock"

static int version_run(const struct ctl_command *self, struct ctl *ctl, int argc, char **argv);

static const struct ctl_command commands[] = {
    {"peers", "[options]", "The peers that the agent knows, its own and remote ones", ctl_show_run},
    {"regions", "[options]", "Registered memory: address, length, how it is reached", ctl_show_run},
    {"transfers", "[options]", "Transfers that run and the last ones that ended, with their paths",
     ctl_show_run},
    {"backends", "[options]", "Backends that are open, and why others are not", ctl_show_run},
    {"get", "--peer NAME [options] FILE", "Reads a peer's region into a file", ctl_get_run},
    {"put", "--peer NAME [options] FILE", "Writes a file into a peer's region", ctl_put_run},
    {"size", "[--model NAME | --layers N --kv-heads N --head-dim N] [options]",
     "KV-cache bytes per token, layer and request, and the descriptors they make", ctl_size_run},
    {"doctor", "[options]", "What this node can do, why not, and what to do about it",
     ctl_doctor_run},
    {"version", "", "The version of this program", version_run},
};

static int version_run(const struct ctl_command *self, struct ctl *ctl, int argc, char **argv)
{
    struct ctl_words words;
    int code = ctl_args_read(ctl, self, NULL, argc, argv, 0, 0, &words);

    if (code >= 0)
        return code;
    if (ctl->json)
        return ctl_json(ctl, json_pack("{s:s}", "version", NIXLET_VERSION));
    printf("nixletctl %s\n", NIXLET_VERSION);
    return ctl_flush(ctl);
}

static int help(const struct ctl *ctl)
{
    json_t *rows = json_array();

    if (!ctl->json)
        printf("usage: nixletctl COMMAND [options]\n\nLooks at a nixlet-agent of this node and "
               "uses it.\n\n");
    for (size_t i = 0; i < NXL_COUNT_OF(commands); i++) {
        if (!ctl->json)
            printf("  %-10s %s\n", commands[i].name, commands[i].about);
        (void)json_array_append_new(rows, json_pack("{s:s, s:s, s:s}", "name", commands[i].name,
                                                    "usage", commands[i].usage, "about",
                                                    commands[i].about)); /* aborts below if none */
    }
    if (ctl->json)
        return ctl_json(ctl, json_pack("{s:o}", "commands", rows));
    json_decref(rows);
    printf("\nEvery command takes --json, --socket PATH, --http WHERE and --help.\n"
           "Exit: 0 ok, 1 failed, 2 wrong usage.\n");
    return ctl_flush(ctl);
}

static const struct ctl_command *command_find(const char *word, struct nxl_err *err)
{
    const char *names[NXL_COUNT_OF(commands)], *nearest;

    for (size_t i = 0; i < NXL_COUNT_OF(commands); i++) {
        if (strcmp(commands[i].name, word) == 0)
            return &commands[i];
        names[i] = commands[i].name;
    }
    nearest = nxl_nearest(word, names, NXL_COUNT_OF(commands));
    NXL_IGNORE(nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           nearest != NULL ? "there is no command '%.60s'; did you mean '%s'?"
                                           : "there is no command '%.60s'; see nixletctl --help",
                           word, nearest)); /* the caller prints it */
    return NULL;
}

/* Where the command's name stands: the first word that is not a global option. */
static int command_at(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--socket") == 0 || strcmp(argv[i], "--http") == 0)
            i++;
        else if (argv[i][0] != '-')
            return i;
    }
    return argc;
}

int main(int argc, char **argv)
{
    const char *http = getenv("NIXLET_HTTP");
    struct ctl ctl = {.http = http != NULL && http[0] != '\0' ? http : DEFAULT_HTTP};
    const struct ctl_command *command;
    struct ctl_words words = {0};
    struct nxl_err err = {0};
    int at = command_at(argc, argv);

    (void)signal(SIGPIPE, SIG_IGN); /* cannot fail for this signal */
    for (int i = 1; i < argc; i++)  /* also when the rest of the line is wrong */
        ctl.json |= strcmp(argv[i], "--json") == 0;
    if (ctl_args_parse(&ctl, NULL, at - 1, argv + 1, &words, &err) != NXL_OK)
        return ctl_fail(&ctl, CTL_USAGE, &err);
    if (words.help)
        return help(&ctl);
    if (at >= argc) {
        NXL_IGNORE(nxl_err_set(&err, NXL_INVALID_PARAM, 0,
                               "a command is missing; nixletctl --help lists them")); /* printed */
        return ctl_fail(&ctl, CTL_USAGE, &err);
    }
    if (strcmp(argv[at], "help") == 0)
        return help(&ctl);
    command = command_find(argv[at], &err);
    if (command == NULL)
        return ctl_fail(&ctl, CTL_USAGE, &err);
    return command->run(command, &ctl, argc - at - 1, argv + at + 1);
}
