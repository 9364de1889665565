/* proxy.c - relays bytes between agents until the test cuts the line. */
#include "support/proxy.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/near.h"

static void pair_close(struct proxy_pair *pair)
{
    struct linger reset = {1, 0}; /* what is in flight is lost, as with a broken line */

    for (int k = 0; k < 2; k++) {
        if (pair->fds[k] < 0)
            continue;
        (void)setsockopt(pair->fds[k], SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
        close(pair->fds[k]);
        pair->fds[k] = -1;
    }
    memset(pair->ways, 0, sizeof(pair->ways));
}

static void pair_open(struct proxy *proxy)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(proxy->target),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int from = accept4(proxy->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    int out = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    for (int i = 0; from >= 0 && i < PROXY_PAIRS; i++) {
        if (proxy->pairs[i].fds[0] >= 0)
            continue;
        if (proxy->target == 0 || connect(out, (struct sockaddr *)&to, sizeof(to)) != 0)
            break;
        proxy->pairs[i].fds[0] = from;
        proxy->pairs[i].fds[1] = out;
        proxy->connections++;
        return;
    }
    if (from >= 0)
        close(from);
    close(out);
}

/* 0: the pair is over. */
static int way_move(struct proxy_pair *pair, int k, short readable, short writable)
{
    struct proxy_way *way = &pair->ways[k];

    if (readable && way->start == way->end) {
        ssize_t got = recv(pair->fds[k], way->data, sizeof(way->data), MSG_DONTWAIT);

        if (got == 0 || (got < 0 && errno != EAGAIN))
            return 0;
        way->start = 0;
        way->end = got > 0 ? (uint32_t)got : 0;
        writable = 1;
    }
    if (writable && way->start < way->end) {
        ssize_t put = send(pair->fds[1 - k], way->data + way->start, way->end - way->start,
                           MSG_DONTWAIT | MSG_NOSIGNAL);

        if (put < 0 && errno != EAGAIN)
            return 0;
        way->start += put > 0 ? (uint32_t)put : 0;
    }
    return 1;
}

static void turn(struct proxy *proxy)
{
    struct pollfd fds[2 + 2 * PROXY_PAIRS] = {{.fd = proxy->listener, .events = POLLIN},
                                              {.fd = proxy->wake, .events = POLLIN}};
    uint64_t count;

    for (int i = 0; i < PROXY_PAIRS; i++) {
        struct proxy_pair *pair = &proxy->pairs[i];

        for (int k = 0; k < 2; k++) {
            struct pollfd *fd = &fds[2 + 2 * i + k];

            fd->fd = pair->fds[k];
            fd->events = (short)((pair->ways[k].start == pair->ways[k].end ? POLLIN : 0) |
                                 (pair->ways[1 - k].start < pair->ways[1 - k].end ? POLLOUT : 0));
        }
    }
    (void)poll(fds, 2 + 2 * PROXY_PAIRS, -1);
    if (fds[1].revents & POLLIN)
        (void)!read(proxy->wake, &count, sizeof(count));
    if (proxy->cut) {
        for (int i = 0; i < PROXY_PAIRS; i++)
            pair_close(&proxy->pairs[i]);
        proxy->cut = 0;
        return;
    }
    for (int i = 0; i < PROXY_PAIRS; i++) {
        struct pollfd *fd = &fds[2 + 2 * i];
        struct proxy_pair *pair = &proxy->pairs[i];

        if (pair->fds[0] < 0 || fd->fd < 0)
            continue;
        for (int k = 0; k < 2 && pair->fds[0] >= 0; k++) {
            if (!way_move(pair, k, fd[k].revents & (POLLIN | POLLHUP | POLLERR),
                          fd[1 - k].revents & POLLOUT))
                pair_close(pair);
        }
    }
    if (fds[0].revents & POLLIN)
        pair_open(proxy);
}

static void *proxy_main(void *arg)
{
    struct proxy *proxy = arg;

    while (!proxy->stop)
        turn(proxy);
    return NULL;
}

void proxy_start(struct proxy *proxy, uint16_t port, uint16_t target)
{
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;

    proxy->stop = proxy->cut = 0;
    proxy->connections = 0;
    proxy->target = target;
    for (int i = 0; i < PROXY_PAIRS; i++)
        proxy->pairs[i].fds[0] = proxy->pairs[i].fds[1] = -1;
    proxy->wake = eventfd(0, EFD_CLOEXEC);
    proxy->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)setsockopt(proxy->listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(proxy->listener, (struct sockaddr *)&at, sizeof(at)) != 0 ||
        listen(proxy->listener, 16) != 0 ||
        pthread_create(&proxy->thread, NULL, proxy_main, proxy) != 0)
        abort();
}

static void nudge(struct proxy *proxy)
{
    uint64_t one = 1;

    (void)!write(proxy->wake, &one, sizeof(one));
}

void proxy_cut(struct proxy *proxy)
{
    proxy->cut = 1;
    nudge(proxy);
}

void proxy_refuse(struct proxy *proxy)
{
    proxy->target = 0;
    proxy_cut(proxy);
}

void proxy_stop(struct proxy *proxy)
{
    proxy->stop = 1;
    nudge(proxy);
    (void)pthread_join(proxy->thread, NULL);
    for (int i = 0; i < PROXY_PAIRS; i++)
        pair_close(&proxy->pairs[i]);
    close(proxy->listener);
    close(proxy->wake);
}

static uint16_t port_of(const char *address)
{
    return (uint16_t)atoi(strrchr(address, ':') + 1);
}

void proxy_agents_start(struct cluster *c, struct proxy proxies[2], int no_store)
{
    static char advertise[2][96];
    int last = 0;

    for (int i = 0; i < 4; i++)
        near_fix_address(c, i); /* 2 and 3: the proxies' */
    while (c->extra[last] != NULL)
        last++;
    cluster_start(c, 0, no_store);
    for (int i = 0; i < 2; i++) {
        proxy_start(&proxies[i], port_of(c->agents[2 + i].address), port_of(c->agents[i].address));
        snprintf(advertise[i], sizeof(advertise[i]), "--link.advertise=%s",
                 c->agents[2 + i].address);
        c->extra[last] = advertise[i];
        cluster_agent_start(c, i);
    }
}
