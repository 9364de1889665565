/* front.c - the front as a whole: settings, turns over the rings, parking, the end. Loop thread. */
#include "front/session.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/option.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static const struct nxl_option options[] = {
    {.key = "path",
     .type = NXL_OPTION_TEXT,
     .initial = "/run/nixlet/agent.sock",
     .help = "Socket file that clients connect to"},
    {.key = "mode",
     .type = NXL_OPTION_TEXT,
     .initial = "0666",
     .help = "Permissions of the socket file, octal"},
    {.key = "namespace",
     .type = NXL_OPTION_TEXT,
     .initial = "default",
     .help = "Namespace of all peers behind this socket"},
    {.key = "backlog",
     .type = NXL_OPTION_INT,
     .initial = "128",
     .min = 1,
     .max = 65535,
     .help = "Connections that may wait to be accepted"},
    {.key = "clients_max",
     .type = NXL_OPTION_INT,
     .initial = "4096",
     .min = 1,
     .max = 1000000,
     .help = "Clients that may be connected at once"},
    {.key = "frames_per_turn",
     .type = NXL_OPTION_INT,
     .initial = "64",
     .min = 1,
     .max = 65536,
     .help = "Frames served per client before others get their turn"},
    {.key = "entries_per_turn",
     .type = NXL_OPTION_INT,
     .initial = "256",
     .min = 1,
     .max = 65536,
     .help = "Ring entries served per client before others get their turn"},
    {.key = "slots_max",
     .type = NXL_OPTION_INT,
     .initial = "65536",
     .min = 1,
     .max = NXL_RING_SLOTS_MAX,
     .help = "Transfers that one client may hold at once"},
    {.key = "arena_max",
     .type = NXL_OPTION_SIZE,
     .initial = "1Gi",
     .min = 4096,
     .max = 1ll << 40,
     .help = "Largest arena (lists, indices, payloads) of one client"},
    {.key = "notice_max",
     .type = NXL_OPTION_SIZE,
     .initial = "64Mi",
     .min = 4096,
     .max = 1ll << 32,
     .help = "Largest notice ring of one client"},
    {.key = "notice_queue_max",
     .type = NXL_OPTION_SIZE,
     .initial = "8Mi",
     .min = 4096,
     .max = 1ll << 32,
     .help = "Bytes of notices kept for a client that does not read"},
    {.key = "reply_queue_max",
     .type = NXL_OPTION_SIZE,
     .initial = "1Mi",
     .min = 131072,
     .max = 1ll << 32,
     .help = "Bytes of answers kept for a client that does not read"},
    {.key = "calls_max",
     .type = NXL_OPTION_INT,
     .initial = "1024",
     .min = 1,
     .max = 1000000,
     .help = "Calls of one client that may wait for an answer at once"},
    {.key = "copy_max",
     .type = NXL_OPTION_SIZE,
     .initial = "64Mi",
     .min = 65536,
     .max = 1ll << 32,
     .help = "Bytes of indices or runs that one post or list part may have"},
    {.key = "hello_timeout",
     .type = NXL_OPTION_DURATION,
     .initial = "10s",
     .min = 1000000,
     .max = 3600ll * 1000000000,
     .help = "A client that has not said HELLO by then is disconnected"},
    {.key = "call_timeout",
     .type = NXL_OPTION_DURATION,
     .initial = "8s",
     .min = 1000000,
     .max = 3600ll * 1000000000,
     .help = "How long a load, connect or deregister may wait for other agents"},
    {.key = NULL},
};

void nxl_front_declare(struct nxl_settings *settings)
{
    nxl_settings_declare(settings, "socket", options);
}

static uint64_t setting(const struct nxl_settings *settings, const char *key)
{
    return (uint64_t)nxl_settings_number(settings, key); /* ranges above: never negative */
}

static void limits_read(struct front_limits *limits, const struct nxl_settings *settings)
{
    limits->frames_per_turn = (uint32_t)setting(settings, "socket.frames_per_turn");
    limits->entries_per_turn = (uint32_t)setting(settings, "socket.entries_per_turn");
    limits->slots_max = (uint32_t)setting(settings, "socket.slots_max");
    limits->clients_max = (uint32_t)setting(settings, "socket.clients_max");
    limits->calls_max = (uint32_t)setting(settings, "socket.calls_max");
    limits->arena_max = setting(settings, "socket.arena_max");
    limits->notice_max = setting(settings, "socket.notice_max");
    limits->notice_queue_max = setting(settings, "socket.notice_queue_max");
    limits->reply_queue_max = setting(settings, "socket.reply_queue_max");
    limits->copy_max = setting(settings, "socket.copy_max");
    limits->hello_timeout_ns = setting(settings, "socket.hello_timeout");
    limits->call_timeout_ns = setting(settings, "socket.call_timeout");
}

static void metrics_open(struct front_metrics *m, struct nxl_metrics *metrics)
{
    static const char *const kinds[] = {NULL, "post", "cancel", "release", "notify"};

    m->sessions = nxl_metric_open(metrics, NXL_METRIC_GAUGE, "nixlet_sessions",
                                  "Client sessions open now", "");
    m->notice_queue = nxl_metric_open(metrics, NXL_METRIC_GAUGE, "nixlet_notice_queue_bytes",
                                      "Bytes of notices kept for clients that do not read", "");
    m->doorbells = nxl_metric_open(metrics, NXL_METRIC_COUNTER, "nixlet_doorbells_total",
                                   "Times a client woke the agent", "");
    m->wakeups = nxl_metric_open(metrics, NXL_METRIC_COUNTER, "nixlet_wakeups_total",
                                 "Times the agent woke a client", "");
    for (uint32_t type = NXL_FRAME_HELLO; type < NXL_FRAME_GOAWAY; type++) {
        NXL_CLEANUP(nxl_freep)
        char *labels = nxl_format("type=\"%s\"", nxl_frame_type_name((uint16_t)type));

        m->frames[type] =
            nxl_metric_open(metrics, NXL_METRIC_COUNTER, "nixlet_session_frames_total",
                            "Frames received from clients, by type", labels);
    }
    for (uint32_t kind = NXL_RING_POST; kind <= NXL_RING_NOTIFY; kind++) {
        NXL_CLEANUP(nxl_freep) char *labels = nxl_format("kind=\"%s\"", kinds[kind]);

        m->entries[kind] = nxl_metric_open(metrics, NXL_METRIC_COUNTER, "nixlet_ring_entries_total",
                                           "Submission ring entries taken, by kind", labels);
    }
}

/* ---- timers ------------------------------------------------------------------------------ */

static void front_on_reaper(void *arg)
{
    struct nxl_front *front = arg;
    struct front_session *next;

    /* Closing one may doom others, but frees only itself; those get a turn of their own. */
    for (struct front_session *session = front->sessions; session; session = next) {
        next = session->next;
        front_session_settle(session);
    }
}

static void front_on_greeter(void *arg)
{
    struct nxl_front *front = arg;
    uint64_t now_ns = nxl_now_ns(), left_ns = UINT64_MAX;

    for (struct front_session *session = front->sessions; session; session = session->next) {
        uint64_t age_ns = now_ns - session->opened_ns;

        if (session->xfer || session->doomed)
            continue;
        if (age_ns >= front->limits.hello_timeout_ns)
            front_session_doom(session, FRONT_END_SLOW, NXL_TIMEOUT,
                               "the client did not say HELLO in time (socket.hello_timeout)");
        else if (front->limits.hello_timeout_ns - age_ns < left_ns)
            left_ns = front->limits.hello_timeout_ns - age_ns;
    }
    front->greeting = left_ns != UINT64_MAX;
    if (front->greeting)
        nxl_timer_start(front->greeter, left_ns, 0);
}

static void front_on_client(void *arg, int fd)
{
    front_session_open(arg, fd);
}

static int fd_limit_read(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur > INT32_MAX)
        return INT32_MAX;
    return (int)(limit.rlim_cur - limit.rlim_cur / 4);
}

/* ---- open and close ---------------------------------------------------------------------- */

static enum nxl_code mode_parse(const char *text, unsigned *ret, struct nxl_err *err)
{
    char *end = NULL;
    unsigned long mode = strtoul(text, &end, 8);

    if (text[0] < '0' || text[0] > '7' || *end != '\0' || mode > 0777)
        return nxl_err_set(err, NXL_CONFIG, 0,
                           "socket.mode '%s' must be octal permissions such as 0666", text);
    *ret = (unsigned)mode;
    return NXL_OK;
}

static enum nxl_code front_listen(struct nxl_front *front, struct nxl_err *err)
{
    const struct nxl_settings *settings = front->options.settings;
    const char *ns = nxl_settings_text(settings, "socket.namespace");
    struct front_listener_options listen = {
        .loop = front->options.loop,
        .path = nxl_settings_text(settings, "socket.path"),
        .backlog = (int)nxl_settings_number(settings, "socket.backlog"),
        .fn = front_on_client,
        .arg = front,
    };
    enum nxl_code code;

    if (!nxl_namespace_valid(ns))
        return nxl_err_set(err, NXL_CONFIG, 0,
                           "socket.namespace '%s' must be 1 to 63 of a-z, 0-9 and inner '-'", ns);
    (void)nxl_copy_text(front->ns, sizeof(front->ns), ns); /* checked: it fits */
    code = mode_parse(nxl_settings_text(settings, "socket.mode"), &listen.mode, err);
    if (code == NXL_OK)
        code = front_listener_open(&listen, &front->listener, err);
    if (code != NXL_OK)
        return nxl_err_wrap(err, code, "client socket");
    nxl_info("front", "event=listening path=%s namespace=%s", nxl_quote(listen.path), front->ns);
    return NXL_OK;
}

static void front_closep(struct nxl_front **front)
{
    nxl_front_close(*front);
}

enum nxl_code nxl_front_open(const struct nxl_front_options *from, struct nxl_front **ret,
                             struct nxl_err *err)
{
    NXL_CLEANUP(front_closep) struct nxl_front *front = nxl_new0(sizeof(*front));
    enum nxl_code code;

    NXL_ASSERT(from->node && from->agent && from->backends && from->wake);
    front->options = *from;
    limits_read(&front->limits, from->settings);
    metrics_open(&front->metrics, from->metrics);
    front->fd_limit = fd_limit_read();
    front->reaper = nxl_timer_open(from->loop, front_on_reaper, front);
    front->retry = nxl_timer_open(from->loop, front_notices_on_retry, front);
    front->greeter = nxl_timer_open(from->loop, front_on_greeter, front);
    front->wake = front_wake_open();
    front->witness = front_witness_open(from->loop);
    front->in = nxl_new0(sizeof(*front->in));
    front->out = nxl_new0(sizeof(*front->out));
    front->packet = nxl_new0(NXL_FRAME_MAX);
    code = front_listen(front, err);
    if (code != NXL_OK)
        return code;
    *ret = NXL_TAKE(front);
    return NXL_OK;
}

void nxl_front_close(struct nxl_front *front)
{
    if (!front)
        return;
    front_listener_close(front->listener);
    while (front->sessions) {
        front_session_doom(front->sessions, FRONT_END_LEAVING, NXL_NO_AGENT,
                           "the agent is leaving");
        front_session_close(front->sessions);
    }
    nxl_timer_close(front->reaper);
    nxl_timer_close(front->retry);
    nxl_timer_close(front->greeter);
    front_wake_close(front->wake);
    front_witness_close(front->witness);
    nxl_bytes_fini(&front->copy);
    free(front->in);
    free(front->out);
    free(front->packet);
    free(front);
}

/* ---- turns ------------------------------------------------------------------------------- */

int nxl_front_poll(struct nxl_front *front)
{
    struct front_session *next;
    int taken = 0;

    for (struct front_session *session = front->awake; session; session = next) {
        next = session->next_awake;
        if (session->notices.head || session->notices.refused)
            front_notices_flush(session);
        taken += (int)front_ring_serve(session);
        front_session_settle(session);
    }
    return taken;
}

int nxl_front_same_core(const struct nxl_front *front)
{
    uint32_t here = (uint32_t)(sched_getcpu() + 1);

    for (const struct front_session *session = front->awake; session; session = session->next_awake)
        if (atomic_load_explicit(&session->ring.header->client_cpu, memory_order_relaxed) == here &&
            atomic_load_explicit(&session->ring.header->client_parked, memory_order_relaxed) == 0)
            return 1;
    return 0;
}

int nxl_front_park(struct nxl_front *front)
{
    struct front_session *next;
    int came = 0;

    for (struct front_session *session = front->awake; session; session = next) {
        next = session->next_awake;
        if (nxl_ring_park(&session->ring) == NXL_OK)
            front_session_park(session);
        else
            came = 1;
    }
    front_copy_trim(front);
    return came;
}

uint32_t nxl_front_sessions(const struct nxl_front *front)
{
    return front->helloed;
}
