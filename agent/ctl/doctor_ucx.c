/* doctor_ucx.c - UCX as the agent would find it: library, version, transports, variables around. */
#include "ctl/doctor.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "ctl/ctl.h"

#ifdef NXL_HAVE_UCX
#include <ucp/api/ucp.h>
#endif

#define UCX_LIMIT_S 20

extern char **environ;

void doctor_ucx_resources(const char *text, char *to, size_t room)
{
    to[0] = '\0';
    for (const char *line = text; line != NULL && *line != '\0'; line = strchr(line, '\n')) {
        char name[64];
        size_t used = strlen(to);

        line += *line == '\n';
        if (sscanf(line, "# resource %*u : md %*u dev %*u flags %*s %63s", name) == 1 &&
            used + 1 < room)
            (void)snprintf(to + used, room - used, "%s%s", used > 0 ? " " : "", name);
    }
}

static void look_variables(struct doctor *doctor)
{
    char names[300] = "";
    unsigned count = 0;

    for (char **entry = environ; entry != NULL && *entry != NULL; entry++) {
        size_t used = strlen(names);

        if (strncmp(*entry, "UCX_", 4) != 0)
            continue;
        count++; /* values stay out: one may be a path or a secret of others */
        if (used + 1 < sizeof(names))
            (void)snprintf(names + used, sizeof(names) - used, "%s%.*s", used > 0 ? " " : "",
                           (int)strcspn(*entry, "="), *entry);
    }
    if (count == 0)
        doctor_say(doctor, DOCTOR_OK, "ucx-variables", NULL, "no UCX_* variable is set");
    else
        doctor_say(
            doctor, DOCTOR_WARN, "ucx-variables",
            "unset them, or set backends.ucx.* on purpose: they change every UCX in the process",
            "%u set here, and an agent started from here inherits them: %s", count, names);
}

#ifdef NXL_HAVE_UCX

struct calls {
    ucs_status_t (*init)(unsigned major, unsigned minor, const ucp_params_t *params,
                         const ucp_config_t *config, ucp_context_h *ret);
    void (*print)(const ucp_context_h context, FILE *stream);
    void (*cleanup)(ucp_context_h context);
    const char *(*status)(ucs_status_t status);
};

static int calls_find(void *library, struct calls *ret)
{
    void *found[4] = {dlsym(library, "ucp_init_version"), dlsym(library, "ucp_context_print_info"),
                      dlsym(library, "ucp_cleanup"), dlsym(library, "ucs_status_string")};

    memcpy(&ret->init, &found[0], sizeof(found[0])); /* ISO C has no cast for it */
    memcpy(&ret->print, &found[1], sizeof(found[1]));
    memcpy(&ret->cleanup, &found[2], sizeof(found[2]));
    memcpy(&ret->status, &found[3], sizeof(found[3]));
    return found[0] != NULL && found[1] != NULL && found[2] != NULL && found[3] != NULL;
}

static void look_transports(struct doctor *doctor, void *library)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                           .features = UCP_FEATURE_RMA | UCP_FEATURE_AM};
    ucp_context_h context;
    struct calls calls;
    char *text = NULL, names[320];
    size_t size = 0;
    FILE *stream;
    ucs_status_t status;

    if (!calls_find(library, &calls)) {
        doctor_say(doctor, DOCTOR_WARN, "ucx-transports", "install UCX 1.12 or later",
                   "libucp lacks calls that the agent needs");
        return;
    }
    status = calls.init(UCP_API_MAJOR, UCP_API_MINOR, &params, NULL, &context);
    if (status != UCS_OK) {
        doctor_say(doctor, DOCTOR_WARN, "ucx-transports",
                   "look at UCX_* variables and `ucx_info -d`", "UCX does not come up: %s",
                   calls.status(status));
        return;
    }
    stream = open_memstream(&text, &size);
    if (stream != NULL) {
        calls.print(context, stream);
        (void)fclose(stream); /* memory */
        doctor_ucx_resources(text != NULL ? text : "", names, sizeof(names));
        doctor_say(doctor, names[0] != '\0' ? DOCTOR_OK : DOCTOR_WARN, "ucx-transports",
                   "look at `ucx_info -d`", "%s", names[0] != '\0' ? names : "none that UCX names");
    }
    free(text);
    calls.cleanup(context);
}

#else

static void look_transports(struct doctor *doctor, void *library)
{
    (void)library;
    doctor_say(doctor, DOCTOR_WARN, "ucx-transports",
               "build with the UCX headers, or ask `ucx_info -d`",
               "this build has no UCX backend and cannot ask");
}

#endif

/* UCX looks at devices, and a sick one may hang it: the user gets an answer all the same. */
static void on_alarm(int signum)
{
    static const char text[] =
        "nixletctl: doctor: UCX did not come up within 20 s: a device may hang; "
        "try UCX_TLS=tcp\n";

    (void)signum;
    (void)!write(STDERR_FILENO, text, sizeof(text) - 1);
    _exit(CTL_FAILED);
}

void doctor_ucx(struct doctor *doctor)
{
    void (*version_get)(unsigned *major, unsigned *minor, unsigned *release) = NULL;
    unsigned major = 0, minor = 0, release = 0;
    void *library, *found;

    look_variables(doctor);
    /* Its warnings go to standard output by default, where the answer is. */
    (void)setenv("UCX_LOG_FILE", "stderr", 1);
    (void)setenv("UCX_LOG_LEVEL", "error", 1);
    (void)setenv("UCX_WARN_UNUSED_ENV_VARS", "n", 1);
    (void)signal(SIGALRM, on_alarm);
    (void)alarm(UCX_LIMIT_S);
    library = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    found = library != NULL ? dlsym(library, "ucp_get_version") : NULL;
    memcpy(&version_get, &found, sizeof(found)); /* ISO C has no cast for it */
    if (version_get == NULL) {
        const char *why = dlerror();

        (void)alarm(0);
        doctor_say(doctor, DOCTOR_WARN, "ucx",
                   "install UCX (Debian: libucx0), or set backends.ucx.library",
                   "agents of other nodes cannot be reached: %.200s",
                   why != NULL ? why : "no libucp.so.0");
        return;
    }
    version_get(&major, &minor, &release);
    if (major != 1 || minor < 12)
        doctor_say(doctor, DOCTOR_WARN, "ucx", "install UCX 1.12 or later of major 1",
                   "version %u.%u.%u is not one that the agent can use", major, minor, release);
    else
        doctor_say(doctor, DOCTOR_OK, "ucx", NULL, "version %u.%u.%u (libucp.so.0)", major, minor,
                   release);
    if (major == 1 && minor >= 12)
        look_transports(doctor, library);
    (void)alarm(0);
}
