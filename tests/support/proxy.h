/* proxy.h - a TCP relay in the test process, for cutting a connection between two agents. One
 * thread per proxy; only proxy_cut() and proxy_stop() touch it from outside. */
#ifndef NXL_TESTS_PROXY_H
#define NXL_TESTS_PROXY_H

#include <pthread.h>
#include <stdint.h>

#include "support/cluster.h"

#define PROXY_PAIRS 8

struct proxy {
    pthread_t thread;
    int listener, wake;      /* wake: an eventfd */
    _Atomic uint16_t target; /* 0: nobody is let through */
    _Atomic int stop, cut;
    _Atomic uint32_t connections; /* ever relayed */
    struct proxy_pair {
        int fds[2];
        struct proxy_way { /* from fds[k] to fds[1 - k] */
            unsigned char data[65536];
            uint32_t start, end;
        } ways[2];
    } pairs[PROXY_PAIRS];
};

/* Listens on 127.0.0.1:port and relays to 127.0.0.1:target, which need not be there yet. */
void proxy_start(struct proxy *proxy, uint16_t port, uint16_t target);
void proxy_cut(struct proxy *proxy);    /* resets every connection; new ones are relayed */
void proxy_refuse(struct proxy *proxy); /* cuts, and lets nobody through from here on */
void proxy_stop(struct proxy *proxy);
/* Starts agents 0 and 1 of a zeroed or prepared cluster, each dialled through its proxy. */
void proxy_agents_start(struct cluster *c, struct proxy proxies[2], int no_store);

#endif
