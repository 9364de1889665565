/* redis.c - the life of one store connection: dial, up, fail, dial again. Called by the directory
 * and by its own timers. Loop thread. */
#include "cluster/redis_room.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/mem.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#define BACKOFF_FIRST_NS (50 * NXL_MS)
#define DIAL_TIMEOUTS 3u /* resolve, connect and greet together get this many command timeouts */

/* A look-up in libuv's pool outlives the dial that asked for it, so it is an object of its own. */
struct redis_resolve {
    uv_getaddrinfo_t request;
    struct nxl_redis *redis; /* NULL: nobody waits any more */
};

static void redis_free(struct nxl_redis *redis)
{
    nxl_timer_close(redis->deadline_timer);
    nxl_timer_close(redis->dial_timer);
    free(redis);
}

void nxl_redis_enter(struct nxl_redis *redis)
{
    redis->entered++;
}

void nxl_redis_leave(struct nxl_redis *redis)
{
    NXL_ASSERT(redis->entered > 0);
    if (--redis->entered == 0 && redis->closed)
        redis_free(redis);
}

/* Full jitter above one half, so that a thousand agents do not come back in one instant. */
static uint64_t backoff_ns(const struct nxl_redis *redis)
{
    unsigned shift = redis->attempt < 16 ? redis->attempt : 16;
    uint64_t limit = BACKOFF_FIRST_NS << shift;

    if (limit > redis->options.backoff_max_ns)
        limit = redis->options.backoff_max_ns;
    return limit / 2 + nxl_random_u64() % (limit / 2 + 1);
}

static void describe_target(const struct nxl_redis *redis, char *to, size_t room)
{
    const struct nxl_redis_url *url = &redis->options.url;

    if (url->kind == NXL_REDIS_UNIX)
        (void)snprintf(to, room, "%s", url->host);
    else if (redis->moved_host[0] != '\0')
        (void)snprintf(to, room, "%s:%u", redis->moved_host, redis->moved_port);
    else
        (void)snprintf(to, room, "%s:%u", url->host, url->port);
}

/* A store that is away for an hour is a handful of lines: attempts 1, 2, 4, 8, ... */
static void log_failure(const struct nxl_redis *redis, int was_up, uint64_t delay_ns)
{
    char target[300];

    describe_target(redis, target, sizeof(target));
    if (was_up || (redis->attempt & (redis->attempt - 1)) == 0)
        nxl_warn("store", "event=%s purpose=%s target=%s attempt=%u retry_ms=%llu why=%s",
                 was_up ? "down" : "dial_failed", redis->options.purpose, nxl_quote(target),
                 redis->attempt, (unsigned long long)(delay_ns / NXL_MS), nxl_quote(redis->why));
}

void nxl_redis_fail(struct nxl_redis *redis, enum nxl_code code, const char *why)
{
    int was_up = redis->phase == REDIS_UP;
    uint64_t delay_ns;

    nxl_redis_enter(redis);
    (void)nxl_copy_text(redis->why, sizeof(redis->why), why);
    redis->why_code = code;
    redis->phase = REDIS_IDLE;
    redis->following = 0;
    if (redis->resolve != NULL) {
        redis->resolve->redis = NULL;
        (void)uv_cancel(
            (uv_req_t *)&redis->resolve->request); /* too late is fine: it finds nobody */
        redis->resolve = NULL;
    }
    nxl_redis_detach(redis);
    nxl_redis_answer_all(redis, code, redis->why);
    if (!redis->closed) {
        delay_ns = redis->moved_host[0] != '\0' ? 0 : backoff_ns(redis);
        redis->attempt++;
        log_failure(redis, was_up, delay_ns);
        nxl_timer_start(redis->dial_timer, delay_ns, 0);
        if (was_up)
            redis->options.ops->on_down(redis->options.arg, redis->why);
    }
    nxl_redis_leave(redis);
}

static void dial_address(struct nxl_redis *redis, const char *ip, uint16_t port)
{
    struct nxl_err err = {0};
    redisAsyncContext *context = redis->options.url.kind == NXL_REDIS_UNIX
                                     ? redisAsyncConnectUnix(redis->options.url.host)
                                     : redisAsyncConnect(ip, port);

    redis->phase = REDIS_CONNECTING;
    if (context == NULL) {
        nxl_redis_fail(redis, NXL_UNREACHABLE, "no memory for a connection");
        return;
    }
    if (context->err != 0) {
        (void)nxl_err_set(&err, NXL_UNREACHABLE, 0, "connect: %s", context->errstr);
        redisAsyncFree(context);
        nxl_redis_fail(redis, NXL_UNREACHABLE, err.text);
        return;
    }
    if (nxl_redis_attach(redis, context, &err) != NXL_OK) {
        redisAsyncFree(context);
        nxl_redis_fail(redis, NXL_UNREACHABLE, err.text);
    }
}

/* Each attempt takes the next address, so one dead address of several does not hold us. */
static void dial_resolved(struct nxl_redis *redis, const struct addrinfo *list, uint16_t port)
{
    const struct addrinfo *entry;
    char ip[INET6_ADDRSTRLEN + 32];
    unsigned count = 0, pick;

    for (entry = list; entry != NULL; entry = entry->ai_next)
        count++;
    pick = count > 0 ? redis->dials % count : 0;
    for (entry = list; entry != NULL && pick > 0; entry = entry->ai_next)
        pick--;
    if (entry == NULL || getnameinfo(entry->ai_addr, entry->ai_addrlen, ip, sizeof(ip), NULL, 0,
                                     NI_NUMERICHOST) != 0) {
        nxl_redis_fail(redis, NXL_UNREACHABLE, "resolve: the name has no usable address");
        return;
    }
    dial_address(redis, ip, port);
}

static void on_resolved(uv_getaddrinfo_t *request, int status, struct addrinfo *list)
{
    struct redis_resolve *resolve = nxl_container_of(request, struct redis_resolve, request);
    struct nxl_redis *redis = resolve->redis;
    uint16_t port = (uint16_t)(uintptr_t)request->data;
    char why[160];

    free(resolve);
    if (redis != NULL) {
        nxl_redis_enter(redis);
        redis->resolve = NULL;
        if (status == 0) {
            dial_resolved(redis, list, port);
        } else {
            (void)snprintf(why, sizeof(why), "resolve: %s", uv_strerror(status));
            nxl_redis_fail(redis, NXL_UNREACHABLE, why);
        }
        nxl_redis_leave(redis);
    }
    uv_freeaddrinfo(list);
}

static void dial_host(struct nxl_redis *redis, const char *host, uint16_t port)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
    struct redis_resolve *resolve;
    unsigned char binary[16];
    int status;

    if (inet_pton(AF_INET, host, binary) == 1 || inet_pton(AF_INET6, host, binary) == 1) {
        dial_address(redis, host, port);
        return;
    }
    resolve = nxl_new0(sizeof(*resolve));
    resolve->redis = redis;
    resolve->request.data = (void *)(uintptr_t)port;
    status = uv_getaddrinfo(nxl_loop_uv(redis->options.loop), &resolve->request, on_resolved, host,
                            NULL, &hints);
    if (status != 0) {
        free(resolve);
        nxl_redis_fail(redis, NXL_UNREACHABLE, uv_strerror(status));
        return;
    }
    redis->resolve = resolve;
}

static void dial(struct nxl_redis *redis)
{
    uint16_t port = redis->options.url.port;

    redis->phase = REDIS_RESOLVING;
    redis->dials++;
    redis->connected = 0;
    redis->last_text[0] = '\0';
    redis->dial_deadline_ns = nxl_now_ns() + DIAL_TIMEOUTS * redis->options.command_timeout_ns;
    nxl_timer_start(redis->dial_timer, DIAL_TIMEOUTS * redis->options.command_timeout_ns, 0);
    if (redis->options.url.kind == NXL_REDIS_UNIX) {
        dial_address(redis, NULL, 0);
        return;
    }
    (void)nxl_copy_text(redis->host, sizeof(redis->host), redis->options.url.host);
    if (redis->moved_host[0] != '\0') {
        (void)nxl_copy_text(redis->host, sizeof(redis->host), redis->moved_host);
        port = redis->moved_port;
        redis->moved_host[0] = '\0';
        redis->following = 1;
    }
    dial_host(redis, redis->host, port);
}

/* Idle: the back-off is over. Dialling: it took too long. */
static void on_dial_timer(void *arg)
{
    static const char *const stages[] = {
        [REDIS_RESOLVING] = "resolve: no answer in time",
        [REDIS_CONNECTING] = "connect: no answer in time",
        [REDIS_GREETING] = "greet: connected, but the server does not answer in time",
    };
    struct nxl_redis *redis = arg;

    nxl_redis_enter(redis);
    if (redis->phase == REDIS_IDLE)
        dial(redis);
    else if (redis->phase != REDIS_UP)
        nxl_redis_fail(redis, NXL_TIMEOUT, stages[redis->phase]);
    nxl_redis_leave(redis);
}

static void greet_connected(struct nxl_redis *redis)
{
    struct nxl_err err = {0};
    enum nxl_code code = NXL_OK;

    redis->phase = REDIS_GREETING;
    if (redis->options.url.kind == NXL_REDIS_TLS)
        code = nxl_redis_secure(redis, &err);
    if (code == NXL_OK)
        nxl_redis_greet(redis);
    else
        nxl_redis_fail(redis, code, err.text);
}

/* hiredis may not be told to free a context inside its connect callback, and it frees a broken one
 * by itself; so its callbacks only take notes, and this runs when it has returned. */
void nxl_redis_settle(struct nxl_redis *redis)
{
    char why[200];

    if (redis->closed || redis->phase < REDIS_CONNECTING)
        return;
    if (redis->context == NULL) {
        (void)snprintf(why, sizeof(why), "%s%s",
                       redis->phase == REDIS_CONNECTING ? "connect: " : "",
                       redis->last_text[0] != '\0' ? redis->last_text : "the connection broke");
        nxl_redis_fail(redis, NXL_UNREACHABLE, why);
    } else if (redis->connected && redis->phase == REDIS_CONNECTING) {
        greet_connected(redis);
    }
}

void nxl_redis_greeted(struct nxl_redis *redis)
{
    char target[300];

    redis->phase = REDIS_UP;
    redis->attempt = 0;
    redis->why[0] = '\0';
    redis->ups++;
    nxl_timer_stop(redis->dial_timer);
    describe_target(redis, target, sizeof(target));
    nxl_info("store", "event=up purpose=%s target=%s connection=%llu", redis->options.purpose,
             nxl_quote(target), (unsigned long long)redis->ups);
    redis->options.ops->on_up(redis->options.arg);
}

/* hiredis writes with write(2): a peer that reset the connection would end the whole process. */
static void ignore_sigpipe(void)
{
    struct sigaction now;

    if (sigaction(SIGPIPE, NULL, &now) == 0 && now.sa_handler == SIG_DFL)
        (void)signal(SIGPIPE, SIG_IGN);
}

enum nxl_code nxl_redis_open(const struct nxl_redis_options *options, struct nxl_redis **ret,
                             struct nxl_err *err)
{
    struct nxl_redis *redis;

    NXL_ASSERT(options->url.kind != NXL_REDIS_NONE);
    redis = nxl_new0(sizeof(*redis));
    redis->options = *options;
    if (nxl_copy_text(redis->user, sizeof(redis->user), options->user) != 0 ||
        nxl_copy_text(redis->password_file, sizeof(redis->password_file), options->password_file) !=
            0 ||
        nxl_copy_text(redis->ca_file, sizeof(redis->ca_file), options->ca_file) != 0) {
        free(redis);
        return nxl_err_set(err, NXL_CONFIG, 0,
                           "store.user or a file name of the store section is too long");
    }
    ignore_sigpipe();
    redis->phase = REDIS_IDLE;
    redis->deadline_timer = nxl_timer_open(options->loop, nxl_redis_check_deadline, redis);
    redis->dial_timer = nxl_timer_open(options->loop, on_dial_timer, redis);
    (void)nxl_copy_text(redis->why, sizeof(redis->why), "not connected yet");
    redis->why_code = NXL_UNREACHABLE;
    nxl_timer_start(redis->dial_timer, 0, 0);
    *ret = redis;
    return NXL_OK;
}

void nxl_redis_close(struct nxl_redis *redis)
{
    if (redis == NULL || redis->closed)
        return;
    nxl_redis_enter(redis);
    redis->closed = 1;
    nxl_timer_stop(redis->dial_timer);
    nxl_timer_stop(redis->deadline_timer);
    nxl_redis_fail(redis, NXL_CANCELED, "closed");
    nxl_redis_leave(redis);
}

int nxl_redis_up(const struct nxl_redis *redis)
{
    return redis->phase == REDIS_UP && !redis->closed;
}

uint64_t nxl_redis_reconnects(const struct nxl_redis *redis)
{
    return redis->ups > 0 ? redis->ups - 1 : 0;
}

const char *nxl_redis_why(const struct nxl_redis *redis)
{
    return redis->why;
}

void nxl_redis_drop(struct nxl_redis *redis, const char *why)
{
    if (!redis->closed && redis->phase != REDIS_IDLE)
        nxl_redis_fail(redis, NXL_UNREACHABLE, why);
}

/* Inside one of hiredis's callbacks it must not run again, nor learn of an error: only write. */
static void flush_written(struct nxl_redis *redis, uint64_t deadline_ns)
{
    struct pollfd slot = {.fd = redis->context->c.fd, .events = POLLOUT};
    int done = 0;

    while (redisBufferWrite(&redis->context->c, &done) == REDIS_OK && !done) {
        uint64_t now = nxl_now_ns();

        if (now >= deadline_ns)
            return;
        (void)poll(&slot, 1, (int)((deadline_ns - now) / NXL_MS) + 1);
    }
}

static void flush_answered(struct nxl_redis *redis, uint64_t deadline_ns)
{
    while (redis->first != NULL && redis->context != NULL) {
        struct pollfd slot = {.fd = redis->context->c.fd, .events = POLLIN};
        uint64_t now = nxl_now_ns();

        if (now >= deadline_ns)
            return;
        redisAsyncHandleWrite(redis->context);
        if (redis->context == NULL)
            return;
        if (redis->events & NXL_WATCH_WRITE)
            slot.events |= POLLOUT;
        if (poll(&slot, 1, (int)((deadline_ns - now) / NXL_MS) + 1) > 0 &&
            (slot.revents & ~POLLOUT) != 0)
            redisAsyncHandleRead(redis->context);
    }
}

void nxl_redis_flush(struct nxl_redis *redis, uint64_t deadline_ns)
{
    nxl_redis_enter(redis);
    if (redis->context != NULL && (redis->context->c.flags & REDIS_IN_CALLBACK))
        flush_written(redis, deadline_ns);
    else
        flush_answered(redis, deadline_ns);
    nxl_redis_settle(redis);
    nxl_redis_leave(redis);
}
