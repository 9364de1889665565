/* log.c - our lines and UCX's own through the host. UCX prints to stdout if nobody takes its lines,
 * and knows one handler per process: it speaks to the oldest open backend. Any thread. */
#include "ucx.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static pthread_mutex_t listeners_lock = PTHREAD_MUTEX_INITIALIZER;
static struct nxl_backend *listeners[8]; /* under the lock; further ones just do not listen */

void ucx_log(struct nxl_backend *backend, int level, const char *fmt, ...)
{
    char text[512];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    backend->host->log(backend->host, level, text);
}

static int level_of(ucs_log_level_t level)
{
    if (level <= UCS_LOG_LEVEL_ERROR)
        return 1; /* what fails shows in an outcome; UCX's own word for it is a hint */
    return level == UCS_LOG_LEVEL_WARN ? 1 : 3;
}

static void message_pass(struct nxl_backend *backend, ucs_log_level_t level, const char *text)
{
    int mine = level_of(level);

    /* Of the settings that are ours, each version of UCX knows only some. */
    if (strncmp(text, "invalid configuration", 21) == 0 &&
        backend->settings.engine_config[0] == '\0')
        mine = 3;
    ucx_log(backend, mine, "ucx says: %s", text);
}

static ucs_log_func_rc_t log_on_message(const char *file, unsigned line, const char *function,
                                        ucs_log_level_t level,
                                        const ucs_log_component_config_t *config,
                                        const char *message, va_list args) NXL_PRINTF(6, 0);
static ucs_log_func_rc_t log_on_message(const char *file, unsigned line, const char *function,
                                        ucs_log_level_t level,
                                        const ucs_log_component_config_t *config,
                                        const char *message, va_list args)
{
    char text[384];

    (void)file;
    (void)line;
    (void)function;
    if (config != NULL && level > config->log_level)
        return UCS_LOG_FUNC_RC_STOP;
    (void)vsnprintf(text, sizeof(text), message, args);
    (void)pthread_mutex_lock(&listeners_lock);
    for (size_t i = 0; i < sizeof(listeners) / sizeof(listeners[0]); i++) {
        if (listeners[i] == NULL)
            continue;
        message_pass(listeners[i], level, text);
        break;
    }
    (void)pthread_mutex_unlock(&listeners_lock);
    return UCS_LOG_FUNC_RC_STOP;
}

void ucx_log_listen(struct nxl_backend *backend)
{
    size_t i = 0;

    (void)pthread_mutex_lock(&listeners_lock);
    while (i < sizeof(listeners) / sizeof(listeners[0]) && listeners[i] != NULL)
        i++;
    if (i < sizeof(listeners) / sizeof(listeners[0]))
        listeners[i] = backend;
    (void)pthread_mutex_unlock(&listeners_lock);
    if (backend->lib.fresh && backend->lib.ucs_log_push_handler != NULL)
        backend->lib.ucs_log_push_handler(log_on_message);
}

void ucx_log_leave(struct nxl_backend *backend)
{
    (void)pthread_mutex_lock(&listeners_lock);
    for (size_t i = 0; i < sizeof(listeners) / sizeof(listeners[0]); i++)
        if (listeners[i] == backend)
            listeners[i] = NULL;
    (void)pthread_mutex_unlock(&listeners_lock);
}
