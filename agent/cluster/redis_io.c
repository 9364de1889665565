/* redis_io.c - hiredis on our loop: five function pointers and the readiness callback. libuv
 * reports POLLERR as an error and stops the watch; hiredis's own adapter ignores that, so a refused
 * connect or a reset was never reported. Here an error is one read, which makes hiredis notice.
 * Loop thread. */
#include "cluster/redis_room.h"

#include "base/clock.h"
#include "base/loop.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>

static void change_events(struct nxl_redis *redis, unsigned events)
{
    if (redis->watch == NULL || redis->events == events)
        return;
    redis->events = events;
    nxl_watch_change(redis->watch, events);
}

static void io_add_read(void *data)
{
    struct nxl_redis *redis = data;

    change_events(redis, redis->events | NXL_WATCH_READ);
}

static void io_del_read(void *data)
{
    struct nxl_redis *redis = data;

    change_events(redis, redis->events & ~NXL_WATCH_READ);
}

static void io_add_write(void *data)
{
    struct nxl_redis *redis = data;

    change_events(redis, redis->events | NXL_WATCH_WRITE);
}

static void io_del_write(void *data)
{
    struct nxl_redis *redis = data;

    change_events(redis, redis->events & ~NXL_WATCH_WRITE);
}

/* hiredis frees the context: the last moment to read its error and to leave its descriptor alone.
 */
static void io_cleanup(void *data)
{
    struct nxl_redis *redis = data;

    if (redis->context->errstr != NULL && redis->context->err != 0)
        (void)nxl_copy_text(redis->last_text, sizeof(redis->last_text), redis->context->errstr);
    else if (redis->last_text[0] == '\0' && redis->context->c.errstr[0] != '\0')
        (void)nxl_copy_text(redis->last_text, sizeof(redis->last_text), redis->context->c.errstr);
    if (redis->tls != NULL)
        nxl_redis_secure_failed(redis);
    redis->tls = NULL;
    nxl_watch_close(NXL_TAKE(redis->watch));
    redis->context->data = NULL;
    redis->context = NULL;
}

static void on_connect(const redisAsyncContext *context, int status)
{
    struct nxl_redis *redis = context->data;

    /* context->err is 0 here even when the connect failed; status tells. */
    if (redis == NULL)
        return;
    if (status == REDIS_OK)
        redis->connected = 1;
    else
        (void)nxl_copy_text(redis->last_text, sizeof(redis->last_text), context->c.errstr);
}

static void on_ready(void *arg, int fd, unsigned events)
{
    struct nxl_redis *redis = arg;
    redisAsyncContext *context = redis->context;

    (void)fd;
    nxl_redis_enter(redis);
    if (context != NULL && (events & (NXL_WATCH_READ | NXL_WATCH_ERROR)))
        redisAsyncHandleRead(context);
    if (redis->context == context && context != NULL && (events & NXL_WATCH_WRITE))
        redisAsyncHandleWrite(context);
    if (redis->context == context && context != NULL && (events & NXL_WATCH_ERROR))
        nxl_redis_fail(redis, NXL_UNREACHABLE, "the socket reports an error");
    nxl_redis_settle(redis);
    nxl_redis_leave(redis);
}

int nxl_redis_pump(struct nxl_redis *redis)
{
    struct pollfd slot;

    if (redis->context == NULL)
        return 0;
    slot = (struct pollfd){.fd = redis->context->c.fd, .events = POLLIN};
    if (poll(&slot, 1, 0) <= 0)
        return 0;
    redisAsyncHandleRead(redis->context);
    return 1;
}

enum nxl_code nxl_redis_attach(struct nxl_redis *redis, redisAsyncContext *context,
                               struct nxl_err *err)
{
    int flags = fcntl(context->c.fd, F_GETFD);
    enum nxl_code code;

    if (flags < 0 || fcntl(context->c.fd, F_SETFD, flags | FD_CLOEXEC) != 0)
        return nxl_err_set(err, NXL_IO, errno, "connect: set close-on-exec");
    code = nxl_watch_open(redis->options.loop, context->c.fd, NXL_WATCH_WRITE, on_ready, redis,
                          &redis->watch, err);
    if (code != NXL_OK)
        return nxl_err_wrap(err, code, "connect");
    redis->events = NXL_WATCH_WRITE;
    redis->context = context;
    context->data = redis;
    context->ev.data = redis;
    context->ev.addRead = io_add_read;
    context->ev.delRead = io_del_read;
    context->ev.addWrite = io_add_write;
    context->ev.delWrite = io_del_write;
    context->ev.cleanup = io_cleanup;
    (void)redisAsyncSetConnectCallback(context,
                                       on_connect); /* fails only if there is one already */
    return NXL_OK;
}

/* Inside a reply callback hiredis frees the context later, so it must not find us any more then. */
void nxl_redis_detach(struct nxl_redis *redis)
{
    redisAsyncContext *context = NXL_TAKE(redis->context);

    if (context == NULL)
        return;
    redis->tls = NULL;
    nxl_watch_close(NXL_TAKE(redis->watch));
    context->data = NULL;
    context->ev.data = NULL;
    context->ev.addRead = NULL;
    context->ev.delRead = NULL;
    context->ev.addWrite = NULL;
    context->ev.delWrite = NULL;
    context->ev.cleanup = NULL;
    redisAsyncFree(context);
}
