/* stream_dial.c - operators by name to every address behind it, each dialled by itself, again and
 * again, at random times so that a herd does not come as one. Loop thread. */
#include "cluster/stream_internal.h"

#include "base/fd.h"
#include "base/loop.h"
#include "base/mem.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#define REDIAL_MIN_NS (50 * NXL_MS)

struct stream_resolve {
    uv_getaddrinfo_t request;
    struct nxl_stream *stream;
    struct stream_host *host; /* NULL: nobody waits any more */
};

/* ---- addresses ---------------------------------------------------------------------------- */

static int same_address(const struct sockaddr_storage *one, const struct sockaddr *other)
{
    const struct sockaddr_in *in = (const void *)one, *other_in = (const void *)other;
    const struct sockaddr_in6 *in6 = (const void *)one, *other_in6 = (const void *)other;

    if (one->ss_family != other->sa_family)
        return 0;
    if (one->ss_family == AF_INET)
        return in->sin_addr.s_addr == other_in->sin_addr.s_addr &&
               in->sin_port == other_in->sin_port;
    return in6->sin6_port == other_in6->sin6_port &&
           memcmp(&in6->sin6_addr, &other_in6->sin6_addr, sizeof(in6->sin6_addr)) == 0;
}

static void address_text(const struct sockaddr *address, char *to, size_t room)
{
    const struct sockaddr_in *in = (const void *)address;
    const struct sockaddr_in6 *in6 = (const void *)address;
    char host[INET6_ADDRSTRLEN] = "?";

    if (address->sa_family == AF_INET6) {
        (void)inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof(host));
        (void)snprintf(to, room, "[%s]:%u", host, ntohs(in6->sin6_port));
    } else {
        (void)inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host));
        (void)snprintf(to, room, "%s:%u", host, ntohs(in->sin_port));
    }
}

void stream_end_free(struct stream_end *end)
{
    struct nxl_stream *stream = end->stream;

    stream_hang_up(end);
    stream->ends[end->source] = NULL;
    nxl_timer_close(end->timer);
    nxl_tls_ticket_fini(&end->ticket);
    nxl_bytes_fini(&end->in);
    nxl_bytes_fini(&end->out);
    free(end->fences);
    free(end);
}

static void end_found(struct nxl_stream *stream, struct stream_host *host,
                      const struct sockaddr *address, size_t size)
{
    struct stream_end *end = NULL;
    uint32_t free_at = NXL_MEMBERS_SOURCES;

    if (size > sizeof(end->address))
        return;
    for (uint32_t i = 0; i < NXL_MEMBERS_SOURCES; i++) {
        end = stream->ends[i];
        if (end != NULL && same_address(&end->address, address)) {
            end->stale = 0;
            return;
        }
        if (end == NULL && free_at == NXL_MEMBERS_SOURCES)
            free_at = i;
    }
    if (free_at == NXL_MEMBERS_SOURCES) {
        if (nxl_log_gate_open(&stream->gate, 1))
            nxl_warn("stream", "event=\"operator left out\" why=\"more than %u addresses\"",
                     NXL_MEMBERS_SOURCES);
        return;
    }
    end = nxl_new0(sizeof(*end));
    end->stream = stream;
    end->host = host;
    end->source = free_at;
    memcpy(&end->address, address, size);
    address_text(address, end->text, sizeof(end->text));
    end->timer = nxl_timer_open(stream->loop, stream_on_timer, end);
    stream->ends[free_at] = end;
    nxl_timer_start(end->timer, 0, 0); /* the first dial is at once */
}

/* An address that a look-up has not named any more is kept as long as it is connected. */
static void drop_stale(struct nxl_stream *stream, const struct stream_host *host)
{
    for (uint32_t i = 0; i < NXL_MEMBERS_SOURCES; i++) {
        struct stream_end *end = stream->ends[i];

        if (end == NULL || end->host != host || !end->stale || end->state == END_LIVE)
            continue;
        nxl_info("stream", "event=\"operator's address is gone\" address=%s", end->text);
        nxl_members_leave(stream->members, end->source);
        stream_end_free(end);
    }
}

static void mark_stale(struct nxl_stream *stream, const struct stream_host *host)
{
    for (uint32_t i = 0; i < NXL_MEMBERS_SOURCES; i++) {
        if (stream->ends[i] != NULL && stream->ends[i]->host == host)
            stream->ends[i]->stale = 1;
    }
}

static void on_resolved(uv_getaddrinfo_t *request, int status, struct addrinfo *found)
{
    struct stream_resolve *resolve = nxl_container_of(request, struct stream_resolve, request);
    struct nxl_stream *stream = resolve->stream;
    struct stream_host *host = resolve->host;

    free(resolve);
    if (host == NULL) {
        uv_freeaddrinfo(found);
        return;
    }
    host->resolve = NULL;
    if (status != 0) {
        if (nxl_log_gate_open(&stream->gate, 2))
            nxl_warn("stream", "event=\"operator not found\" name=%s why=%s", nxl_quote(host->name),
                     nxl_quote(uv_strerror(status)));
        host->next_ns = nxl_now_ns() + NXL_SEC;
        return; /* what was found before stays */
    }
    mark_stale(stream, host);
    for (struct addrinfo *one = found; one != NULL; one = one->ai_next) {
        if (one->ai_family == AF_INET || one->ai_family == AF_INET6)
            end_found(stream, host, one->ai_addr, one->ai_addrlen);
    }
    uv_freeaddrinfo(found);
    drop_stale(stream, host);
}

static int found_numeric(struct nxl_stream *stream, struct stream_host *host)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons((uint16_t)host->port)};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)host->port)};

    if (inet_pton(AF_INET, host->name, &in.sin_addr) == 1)
        end_found(stream, host, (const void *)&in, sizeof(in));
    else if (inet_pton(AF_INET6, host->name, &in6.sin6_addr) == 1)
        end_found(stream, host, (const void *)&in6, sizeof(in6));
    else
        return 0;
    return 1;
}

void stream_resolve(struct nxl_stream *stream, struct stream_host *host)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
    struct stream_resolve *resolve;
    char service[8];
    int status;

    if (host->resolve != NULL)
        return;
    host->next_ns = nxl_now_ns() + stream->resolve_ns;
    if (found_numeric(stream, host)) {
        host->next_ns = UINT64_MAX;
        return;
    }
    resolve = nxl_new0(sizeof(*resolve));
    resolve->stream = stream;
    resolve->host = host;
    (void)snprintf(service, sizeof(service), "%d", host->port);
    status = uv_getaddrinfo(nxl_loop_uv(stream->loop), &resolve->request, on_resolved, host->name,
                            service, &hints);
    if (status == 0) {
        host->resolve = resolve;
        return;
    }
    free(resolve);
    nxl_warn("stream", "event=\"operator not found\" name=%s why=%s", nxl_quote(host->name),
             nxl_quote(uv_strerror(status)));
}

void stream_resolve_cancel(struct stream_host *host)
{
    if (host->resolve == NULL)
        return;
    host->resolve->host = NULL;
    (void)uv_cancel((uv_req_t *)&host->resolve->request); /* if it runs, it ends by itself */
    host->resolve = NULL;
}

/* ---- dialling ----------------------------------------------------------------------------- */

static uint64_t random_below(uint64_t bound)
{
    return bound == 0 ? 0 : nxl_random_u64() % bound;
}

/* A lost operator is dialled within the jitter; one that refuses us is asked ever more rarely. */
void stream_redial(struct stream_end *end)
{
    const struct nxl_stream *stream = end->stream;
    uint32_t doublings = end->failures < 16 ? end->failures : 16;
    uint64_t wait = random_below(stream->jitter_ns);

    if (stream->closing)
        return;
    if (end->refused_ns != 0) {
        uint64_t back = (100 * NXL_MS) << doublings;

        wait += back < stream->redial_max_ns ? back : stream->redial_max_ns;
    }
    end->state = END_WAIT;
    nxl_timer_start(end->timer, wait < REDIAL_MIN_NS ? REDIAL_MIN_NS : wait, 0);
}

void stream_dial(struct stream_end *end)
{
    const struct sockaddr *to = (const void *)&end->address;
    socklen_t size =
        to->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    int fd = socket(to->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct nxl_err err;

    if (end->stale) { /* the look-up that comes next drops it, or finds it again */
        stream_redial(end);
        return;
    }
    if (fd < 0) {
        stream_fail(end, 0, "socket: %s", strerror(errno));
        return;
    }
    if (connect(fd, to, size) != 0 && errno != EINPROGRESS) {
        int error = errno;

        (void)close(fd);
        stream_fail(end, 0, "connect: %s", strerror(error));
        return;
    }
    if (stream_connect(end, fd, &err) != NXL_OK) {
        stream_fail(end, 0, "%s", err.text);
        return;
    }
    end->state = END_CONNECT;
    nxl_timer_start(end->timer, end->stream->connect_ns, 0);
}
