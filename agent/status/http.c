/* http.c - libmicrohttpd driven by our loop: its epoll descriptor is watched, its timeouts become a
 * timer. Loop thread. */
#include "status/http.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/mem.h"

#include <microhttpd.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of a connection. Edge-triggered, MHD does not see an end that comes together with half a request:
 * this is what closes it. */
#define IDLE_SECONDS 10u

struct status_http {
    struct MHD_Daemon *daemon;
    struct nxl_watch *watch;
    struct nxl_timer *timer;
    size_t request_max;
    unsigned connections_max;
    int full;
    status_answer_fn *fn;
    void *arg;
};

struct request { /* MHD's per-request pointer */
    size_t dropped;
};

/* ---- answers ----------------------------------------------------------------------------- */

/* Takes the body. */
static enum MHD_Result answer_queue(struct MHD_Connection *connection, struct status_answer *answer,
                                    const char *allow)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(
        answer->body.size, answer->body.data, MHD_RESPMEM_MUST_FREE);
    enum MHD_Result result;

    if (!response) {
        nxl_bytes_fini(&answer->body);
        return MHD_NO;
    }
    answer->body = (struct nxl_bytes){0};
    /* A header that finds no memory is left out. */
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, answer->type);
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    if (allow)
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, allow);
    result = MHD_queue_response(connection, answer->status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result http_on_request(void *arg, struct MHD_Connection *connection,
                                       const char *url, const char *method, const char *version,
                                       const char *upload, size_t *upload_size, void **state)
{
    struct status_http *http = arg;
    struct status_answer answer = {.status = 200, .type = "application/json"};
    struct request *request = *state;

    (void)version;
    (void)upload;
    if (!request) { /* headers only: MHD wants the body to be read before the answer */
        *state = nxl_new0(sizeof(*request));
        return MHD_YES;
    }
    if (*upload_size > 0) {
        request->dropped += *upload_size;
        *upload_size = 0;
        return request->dropped > http->request_max ? MHD_NO : MHD_YES; /* NO: connection closed */
    }
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0) {
        answer.status = MHD_HTTP_METHOD_NOT_ALLOWED;
        nxl_bytes_printf(&answer.body,
                         "{\"error\":\"method_not_allowed\",\"text\":\"GET and HEAD only\"}\n");
        return answer_queue(connection, &answer, "GET, HEAD");
    }
    http->fn(http->arg, url, &answer);
    return answer_queue(connection, &answer, NULL);
}

static void http_on_completed(void *arg, struct MHD_Connection *connection, void **state,
                              enum MHD_RequestTerminationCode code)
{
    (void)arg;
    (void)connection;
    (void)code;
    free(*state);
    *state = NULL;
}

static void http_on_log(void *arg, const char *fmt, va_list args)
{
    char text[256];

    (void)arg;
    (void)vsnprintf(text, sizeof(text), fmt, args);
    text[strcspn(text, "\n")] = '\0';
    nxl_debug("http", "event=library text=%s", nxl_quote(text));
}

/* ---- the loop ---------------------------------------------------------------------------- */

static unsigned http_connections(const struct status_http *http)
{
    const union MHD_DaemonInfo *info =
        MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_CURRENT_CONNECTIONS);

    return info ? info->num_connections : 0;
}

static void http_run(struct status_http *http)
{
    MHD_UNSIGNED_LONG_LONG wait_ms = 0;
    unsigned connections;

    (void)MHD_run(http->daemon); /* errors of a connection end that connection */
    connections = http_connections(http);
    /* When full, MHD stops listening, and listens again only at the start of a run. */
    if (http->full && connections < http->connections_max) {
        (void)MHD_run(http->daemon);
        connections = http_connections(http);
    }
    http->full = connections >= http->connections_max;
    if (MHD_get_timeout(http->daemon, &wait_ms) == MHD_YES)
        nxl_timer_start(http->timer, wait_ms < 3600000 ? wait_ms * NXL_MS : 3600 * NXL_SEC, 0);
    else
        nxl_timer_stop(http->timer);
}

static void http_on_ready(void *arg, int fd, unsigned events)
{
    (void)fd;
    (void)events;
    http_run(arg);
}

static void http_on_timer(void *arg)
{
    http_run(arg);
}

static void http_closep(struct status_http **http)
{
    status_http_close(*http);
}

enum nxl_code status_http_open(const struct status_http_options *options, struct status_http **ret,
                               struct nxl_err *err)
{
    NXL_CLEANUP(http_closep) struct status_http *http = nxl_new0(sizeof(*http));
    const union MHD_DaemonInfo *info;
    enum nxl_code code;

    http->request_max = options->request_max;
    http->connections_max = options->connections_max;
    http->fn = options->fn;
    http->arg = options->arg;
    /* MHD closes the socket itself, on failure and at its stop. */
    http->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_USE_ERROR_LOG, 0, NULL, NULL, http_on_request, http,
        MHD_OPTION_EXTERNAL_LOGGER, http_on_log, NULL, /* first: later options may log */
        MHD_OPTION_LISTEN_SOCKET, options->fd, MHD_OPTION_CONNECTION_LIMIT,
        options->connections_max, MHD_OPTION_CONNECTION_TIMEOUT, IDLE_SECONDS,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, options->request_max, MHD_OPTION_NOTIFY_COMPLETED,
        http_on_completed, NULL, MHD_OPTION_END);
    if (!http->daemon)
        return nxl_err_set(err, NXL_IO, 0, "start the HTTP server");
    info = MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    if (!info || info->epoll_fd < 0)
        return nxl_err_set(err, NXL_NOT_SUPPORTED, 0, "this libmicrohttpd was built without epoll");
    http->timer = nxl_timer_open(options->loop, http_on_timer, http);
    code = nxl_watch_open(options->loop, info->epoll_fd, NXL_WATCH_READ, http_on_ready, http,
                          &http->watch, err);
    if (code != NXL_OK)
        return code;
    *ret = NXL_TAKE(http);
    return NXL_OK;
}

void status_http_close(struct status_http *http)
{
    if (!http)
        return;
    nxl_watch_close(http->watch);
    nxl_timer_close(http->timer);
    if (http->daemon)
        MHD_stop_daemon(http->daemon);
    free(http);
}
