/* main.c - nixlet-agent: parses options, runs the node, returns the exit code. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "base/option.h"
#include "node.h"

#define DEFAULT_CONFIG "/etc/nixlet/agent.yaml"

extern char **environ;

static void usage(const struct nxl_settings *settings, FILE *to)
{
    char *help = nxl_settings_help(settings, 0);

    fprintf(to,
            "usage: nixlet-agent [--config FILE] [--check] [--section.key=value ...]\n\n"
            "Moves memory between the processes of this node and those of other nodes' agents.\n"
            "Settings come from FILE (default %s if it exists), then NIXLET_SECTION_KEY, then "
            "flags.\n\n"
            "  --config FILE  YAML settings\n"
            "  --check        read the settings, say whether they are right, and end\n"
            "  --print-docs   settings as a Markdown page\n"
            "  --version, --help\n\n%s",
            DEFAULT_CONFIG, help);
    free(help);
}

struct arguments {
    const char *config, *plugin_dir;
    int check, help, docs, version;
    char **rest;
    int rest_count;
};

static int arguments_read(int argc, char **argv, struct arguments *ret)
{
    ret->rest = calloc((size_t)argc + 1, sizeof(char *));
    if (ret->rest == NULL)
        return -1;
    ret->rest[ret->rest_count++] = argv[0];
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--config") == 0 && i + 1 < argc)
            ret->config = argv[++i];
        else if (strncmp(argv[i], "--config=", 9) == 0)
            ret->config = argv[i] + 9;
        else if (strcmp(argv[i], "--check") == 0)
            ret->check = 1;
        else if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            ret->help = 1;
        else if (strcmp(argv[i], "--print-docs") == 0)
            ret->docs = 1;
        else if (strcmp(argv[i], "--version") == 0)
            ret->version = 1;
        else
            ret->rest[ret->rest_count++] = argv[i];
        if (strncmp(argv[i], "--agent.plugin_dir=", 19) == 0)
            ret->plugin_dir = argv[i] + 19;
    }
    return 0;
}

static enum nxl_code settings_read(struct nxl_settings *settings, const struct arguments *arguments,
                                   struct nxl_err *err)
{
    const char *config = arguments->config != NULL ? arguments->config : getenv("NIXLET_CONFIG");
    enum nxl_code code = NXL_OK;
    int next;

    if (config == NULL && access(DEFAULT_CONFIG, R_OK) == 0)
        config = DEFAULT_CONFIG;
    if (config != NULL)
        code = nxl_settings_load_yaml(settings, config, err);
    if (code == NXL_OK)
        code = nxl_settings_load_env(settings, environ, err);
    if (code == NXL_OK)
        code = nxl_settings_load_args(settings, arguments->rest_count, arguments->rest, &next, err);
    if (code == NXL_OK && next < arguments->rest_count)
        code = nxl_err_set(err, NXL_CONFIG, 0, "'%s' is not an option; see --help",
                           arguments->rest[next]);
    return code;
}

#define FILES_MAX (1u << 20) /* where the limit is in the thousands of millions */

/* Clients, links and their pidfds take descriptors; nothing here uses select(). */
static void files_raise(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= FILES_MAX ||
        limit.rlim_cur == limit.rlim_max)
        return;
    limit.rlim_cur = limit.rlim_max < FILES_MAX ? limit.rlim_max : FILES_MAX;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        nxl_warn("node", "event=\"could not raise the limit of open files, ignoring\"");
}

static int run(struct nxl_settings *settings)
{
    struct nxl_node *node;
    struct nxl_err err = {0};
    int code;

    files_raise();
    if (nxl_node_open(settings, &node, &err) != NXL_OK) {
        nxl_error("node", "event=\"cannot start\" why=%s", nxl_quote(err.text));
        return 1;
    }
    code = nxl_node_run(node);
    nxl_node_close(node);
    nxl_info("node", "event=stopped");
    return code;
}

int main(int argc, char **argv)
{
    struct arguments arguments = {0};
    struct nxl_settings *settings = nxl_settings_new();
    struct nxl_err err = {0};
    int code = 0;

    signal(SIGPIPE, SIG_IGN);
    if (arguments_read(argc, argv, &arguments) != 0)
        return 1;
    nxl_log_setup("nixlet-agent", NXL_LOG_INFO, STDERR_FILENO);
    nxl_node_declare(settings, arguments.plugin_dir);
    if (arguments.help) {
        usage(settings, stdout);
    } else if (arguments.version) {
        printf("nixlet-agent %s\n", NIXLET_VERSION);
    } else if (arguments.docs) {
        char *page = nxl_settings_help(settings, 1);

        fputs(page, stdout);
        free(page);
    } else if (settings_read(settings, &arguments, &err) != NXL_OK) {
        fprintf(stderr, "nixlet-agent: %s\n", err.text);
        code = 2;
    } else {
        nxl_log_setup(
            "nixlet-agent",
            (enum nxl_log_level)nxl_log_level_of(nxl_settings_text(settings, "agent.log_level")),
            STDERR_FILENO);
        if (arguments.check)
            printf("settings are right\n");
        else
            code = run(settings);
    }
    nxl_settings_free(settings);
    free(arguments.rest);
    return code;
}
