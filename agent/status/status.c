/* status.c - what is served under which path, and on which sockets. Loop thread. */
#include "status/status.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metric.h"
#include "base/option.h"
#include "status/http.h"
#include "status/listen.h"

#include <stdlib.h>
#include <string.h>

static const struct nxl_option options[] = {
    {.key = "socket",
     .type = NXL_OPTION_TEXT,
     .initial = "/run/nixlet/http.sock",
     .help = "Unix socket for HTTP; empty: none"},
    {.key = "listen",
     .type = NXL_OPTION_TEXT,
     .initial = "127.0.0.1:7742",
     .help = "Address and port for HTTP; empty: none; port 0: any free one. Beyond loopback only "
             "/metrics, "
             "/healthz and /readyz are served"},
    {.key = "connections_max",
     .type = NXL_OPTION_INT,
     .initial = "64",
     .min = 1,
     .max = 65536,
     .help = "HTTP connections at once, per socket"},
    {.key = "request_max",
     .type = NXL_OPTION_SIZE,
     .initial = "16Ki",
     .min = 2048,
     .max = 1 << 24,
     .help = "Bytes of one HTTP request"},
    {.key = NULL},
};

struct status_server {
    struct nxl_status *status;
    struct status_http *http; /* NULL: off */
    int private;              /* no other host can reach it: everything is served */
};

struct nxl_status {
    struct nxl_status_options options;
    struct status_server local, tcp; /* unix socket; host:port */
    char *path;                      /* of the unix socket, once it is bound */
    char address[300];
};

void nxl_status_declare(struct nxl_settings *settings)
{
    nxl_settings_declare(settings, "http", options);
}

/* ---- answers ----------------------------------------------------------------------------- */

static void answer_text(struct status_answer *answer, unsigned status, const char *text)
{
    answer->status = status;
    answer->type = "text/plain; charset=utf-8";
    nxl_bytes_printf(&answer->body, "%s\n", text);
}

static void answer_error(struct status_answer *answer, unsigned status, const char *word,
                         const char *text)
{
    answer->status = status;
    answer->type = "application/json";
    nxl_bytes_printf(&answer->body, "{\"error\":\"%s\",\"text\":\"%s\"}\n", word, text);
}

static void answer_ready(struct nxl_status *status, struct status_answer *answer)
{
    NXL_CLEANUP(nxl_bytes_fini) struct nxl_bytes why = {0};

    if (!status->options.ready || status->options.ready(status->options.ready_arg, &why)) {
        answer_text(answer, 200, "ready");
        return;
    }
    nxl_bytes_put_u8(&why, '\0');
    answer_text(answer, 503, why.size > 1 ? (const char *)why.data : "not ready");
}

static void answer_index(struct nxl_status *status, struct status_answer *answer)
{
    answer->type = "text/plain; charset=utf-8";
    nxl_bytes_printf(&answer->body, "/metrics\n/healthz\n/readyz\n");
    for (unsigned i = 0; i < status->options.source_count; i++)
        nxl_bytes_printf(&answer->body, "%s\n", status->options.sources[i].path);
}

static const struct nxl_status_source *source_find(const struct nxl_status *status,
                                                   const char *path)
{
    for (unsigned i = 0; i < status->options.source_count; i++)
        if (strcmp(status->options.sources[i].path, path) == 0)
            return &status->options.sources[i];
    return NULL;
}

/* Returns the path as a metric label: unknown ones are one series, whatever strangers ask for. */
static const char *answer_make(struct status_server *server, const char *path,
                               struct status_answer *answer)
{
    struct nxl_status *status = server->status;
    const struct nxl_status_source *source = source_find(status, path);

    if (strcmp(path, "/metrics") == 0) {
        answer->type = "text/plain; version=0.0.4; charset=utf-8";
        nxl_metrics_render(status->options.metrics, &answer->body);
        return "/metrics";
    }
    if (strcmp(path, "/healthz") == 0) {
        answer_text(answer, 200, "ok");
        return "/healthz";
    }
    if (strcmp(path, "/readyz") == 0) {
        answer_ready(status, answer);
        return "/readyz";
    }
    if ((source || strcmp(path, "/") == 0) && !server->private) {
        answer_error(answer, 403, "not_allowed", "served on loopback and on the unix socket only");
        return "other";
    }
    if (source) {
        source->write(source->arg, path, &answer->body);
        return source->path;
    }
    if (strcmp(path, "/") == 0) {
        answer_index(status, answer);
        return "/";
    }
    answer_error(answer, 404, "not_found", "no such page: GET / lists them");
    return "other";
}

static void status_on_request(void *arg, const char *path, struct status_answer *answer)
{
    struct status_server *server = arg;
    const char *label = answer_make(server, path, answer);
    NXL_CLEANUP(nxl_freep)
    char *labels = nxl_format("path=\"%s\",status=\"%u\"", label, answer->status);

    nxl_metric_add(nxl_metric_open(server->status->options.metrics, NXL_METRIC_COUNTER,
                                   "nixlet_http_requests_total", "HTTP requests answered", labels),
                   1);
}

/* ---- open and close ---------------------------------------------------------------------- */

static enum nxl_code server_open(struct nxl_status *status, struct status_server *server, int fd,
                                 int private, struct nxl_err *err)
{
    const struct nxl_settings *settings = status->options.settings;
    struct status_http_options http = {
        .loop = status->options.loop,
        .fd = fd,
        .connections_max = (unsigned)nxl_settings_number(settings, "http.connections_max"),
        .request_max = (size_t)nxl_settings_number(settings, "http.request_max"),
        .fn = status_on_request,
        .arg = server,
    };

    server->status = status;
    server->private = private;
    return status_http_open(&http, &server->http, err);
}

static enum nxl_code local_open(struct nxl_status *status, struct nxl_err *err)
{
    const char *path = nxl_settings_text(status->options.settings, "http.socket");
    enum nxl_code code;
    int fd = -1;

    if (path[0] == '\0')
        return NXL_OK;
    code = status_listen_unix(path, &fd, err);
    if (code != NXL_OK)
        return code;
    status->path = nxl_strdup(path);
    return server_open(status, &status->local, fd, 1, err);
}

static enum nxl_code tcp_open(struct nxl_status *status, struct nxl_err *err)
{
    const char *text = nxl_settings_text(status->options.settings, "http.listen");
    enum nxl_code code;
    int fd = -1, loopback = 0;

    if (text[0] == '\0')
        return NXL_OK;
    code = status_listen_tcp(text, &fd, &loopback, status->address, sizeof(status->address), err);
    if (code != NXL_OK)
        return code;
    return server_open(status, &status->tcp, fd, loopback, err);
}

static void status_closep(struct nxl_status **status)
{
    nxl_status_close(*status);
}

enum nxl_code nxl_status_open(const struct nxl_status_options *from, struct nxl_status **ret,
                              struct nxl_err *err)
{
    NXL_CLEANUP(status_closep) struct nxl_status *status = nxl_new0(sizeof(*status));
    enum nxl_code code;

    status->options = *from;
    code = local_open(status, err);
    if (code == NXL_OK)
        code = tcp_open(status, err);
    if (code != NXL_OK)
        return nxl_err_wrap(err, code, "HTTP");
    nxl_info("http", "event=listening socket=%s address=%s all=%d",
             nxl_quote(status->path ? status->path : ""), nxl_quote(status->address),
             status->tcp.private);
    *ret = NXL_TAKE(status);
    return NXL_OK;
}

void nxl_status_close(struct nxl_status *status)
{
    if (!status)
        return;
    status_http_close(status->local.http);
    status_http_close(status->tcp.http);
    if (status->path)
        status_unlink_unix(status->path);
    free(status->path);
    free(status);
}

const char *nxl_status_address(const struct nxl_status *status)
{
    return status->address;
}
