/* link_dial.c - from a link's address to a connection on its way: look-up at every dial (addresses
 * of a name change), then a non-blocking connect. Called by link.c. Loop thread. */
#include "cluster/link_internal.h"

#include "base/fd.h"
#include "base/loop.h"
#include "base/mem.h"
#include "cluster/identity.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <uv.h>

struct link_resolve {
    uv_getaddrinfo_t request;
    struct nxl_link *link; /* NULL: nobody waits any more */
};

static void add_target(struct nxl_link *link, const struct sockaddr *address, size_t size)
{
    if (link->target_count >= LINK_TARGETS_MAX || size > sizeof(link->targets[0]))
        return;
    memcpy(&link->targets[link->target_count++], address, size);
}

/* 1 if host is an address already, so that nothing has to be looked up. */
static int add_numeric(struct nxl_link *link, const char *host, int port)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};

    if (inet_pton(AF_INET, host, &in.sin_addr) == 1) {
        add_target(link, (const void *)&in, sizeof(in));
        return 1;
    }
    if (inet_pton(AF_INET6, host, &in6.sin6_addr) == 1) {
        add_target(link, (const void *)&in6, sizeof(in6));
        return 1;
    }
    return 0;
}

static void dial_target(struct nxl_link *link)
{
    const struct sockaddr *to = (const void *)&link->targets[link->target_next++];
    socklen_t size =
        to->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    char why[NXL_ERR_TEXT_SIZE];
    struct nxl_err err;
    int fd = socket(to->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0) {
        (void)snprintf(why, sizeof(why), "socket: %s", strerror(errno));
        link_dial_failed(link, why);
        return;
    }
    if (connect(fd, to, size) != 0 && errno != EINPROGRESS) {
        (void)snprintf(why, sizeof(why), "connect to %s: %s", link->address, strerror(errno));
        (void)close(fd);
        nxl_metric_add(link->links->metrics.failures[LINK_FAIL_CONNECT], 1);
        link_dial_failed(link, why);
        return;
    }
    link->trying = conn_new(link->links, fd, 1, to);
    link->trying->link = link;
    if (conn_watch(link->trying, NXL_WATCH_WRITE, &err) != NXL_OK)
        conn_fail(link->trying, LINK_FAIL_CONNECT, "%s", err.text);
}

static void on_resolved(uv_getaddrinfo_t *request, int status, struct addrinfo *found)
{
    struct link_resolve *resolve = nxl_container_of(request, struct link_resolve, request);
    struct nxl_link *link = resolve->link;
    char why[NXL_ERR_TEXT_SIZE];

    free(resolve);
    if (link == NULL) {
        uv_freeaddrinfo(found);
        return;
    }
    link->resolve = NULL;
    for (struct addrinfo *one = found; status == 0 && one != NULL; one = one->ai_next) {
        if (one->ai_family == AF_INET || one->ai_family == AF_INET6)
            add_target(link, one->ai_addr, one->ai_addrlen);
    }
    uv_freeaddrinfo(found);
    if (link->target_count == 0) {
        (void)snprintf(why, sizeof(why), "look up %s: %s", link->address,
                       status != 0 ? uv_strerror(status) : "it has no IP address");
        nxl_metric_add(link->links->metrics.failures[LINK_FAIL_CONNECT], 1);
        link_dial_failed(link, why);
        return;
    }
    dial_target(link);
}

static void look_up(struct nxl_link *link, const char *host, int port)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
    struct link_resolve *resolve = nxl_new0(sizeof(*resolve));
    char service[8];
    char why[NXL_ERR_TEXT_SIZE];
    int status;

    (void)snprintf(service, sizeof(service), "%d", port);
    resolve->link = link;
    link->resolve = resolve;
    status = uv_getaddrinfo(nxl_loop_uv(link->links->loop), &resolve->request, on_resolved, host,
                            service, &hints);
    if (status == 0)
        return;
    link->resolve = NULL;
    free(resolve);
    (void)snprintf(why, sizeof(why), "look up %s: %s", link->address, uv_strerror(status));
    link_dial_failed(link, why);
}

void link_dial(struct nxl_link *link)
{
    char host[sizeof(link->address)];
    int port;

    if (link->over || link->conn != NULL || link->trying != NULL || link->resolve != NULL)
        return;
    link->target_count = 0;
    link->target_next = 0;
    if (nxl_identity_split_address(link->address, host, sizeof(host), &port) != 0)
        return; /* cannot be: addresses are checked before they are kept */
    if (add_numeric(link, host, port))
        dial_target(link);
    else
        look_up(link, host, port);
}

int link_dial_next(struct nxl_link *link)
{
    if (link->over || link->conn != NULL || link->trying != NULL ||
        link->target_next >= link->target_count)
        return 0;
    dial_target(link);
    return 1;
}

void link_dial_cancel(struct nxl_link *link)
{
    struct conn *trying = link->trying;

    if (link->resolve != NULL) {
        link->resolve->link = NULL;
        (void)uv_cancel(
            (uv_req_t *)&link->resolve->request); /* if it runs already, it ends by itself */
        link->resolve = NULL;
    }
    link->trying = NULL;
    if (trying != NULL)
        conn_refuse(trying, NXL_BUSY, "not needed any more");
}

static int same_ip(const struct sockaddr_storage *one, const struct sockaddr_storage *other)
{
    const struct sockaddr_in *in = (const void *)one, *other_in = (const void *)other;
    const struct sockaddr_in6 *in6 = (const void *)one, *other_in6 = (const void *)other;

    if (one->ss_family != other->ss_family)
        return 0;
    if (one->ss_family == AF_INET)
        return in->sin_addr.s_addr == other_in->sin_addr.s_addr;
    return one->ss_family == AF_INET6 &&
           memcmp(&in6->sin6_addr, &other_in6->sin6_addr, sizeof(in6->sin6_addr)) == 0;
}

int link_dial_leads_to(struct nxl_link *link, int fd)
{
    struct sockaddr_storage far;
    socklen_t size = sizeof(far);
    char host[sizeof(link->address)];
    int port;

    if (getpeername(fd, (void *)&far, &size) != 0)
        return 0;
    if (link->target_count == 0 &&
        nxl_identity_split_address(link->address, host, sizeof(host), &port) == 0)
        (void)add_numeric(link, host,
                          port); /* the dial has not begun; a name is not looked up for this */
    for (uint32_t i = 0; i < link->target_count; i++) {
        if (same_ip(&link->targets[i], &far))
            return 1;
    }
    return 0;
}
