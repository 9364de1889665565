/* hostile.h - the scene of every attack: one real agent with small limits, two clients that do
 * everything right, and the question afterwards whether anything but the attacker was hurt. */
#ifndef NXL_TESTS_HOSTILE_H
#define NXL_TESTS_HOSTILE_H

#include "support/cluster.h"
#include "support/raw.h"
#include "support/steady.h"

struct hostile {
    struct cluster cluster;
    struct steady steady;
    pid_t agent;
    int fds, sessions, regions; /* before any attack */
    long rss_kib;
};

/* limits: 0, the agent's defaults. 1: small ones, see hostile.c. */
void hostile_open(struct hostile *h, int limits);
void hostile_close(struct hostile *h);
/* Same process, healthy, descriptors, sessions and regions as before, memory bounded, and the
 * well-behaved clients saw nothing. Fails the test otherwise. */
void hostile_unharmed(struct hostile *h);
/* The part of it that can be asked in the middle of an attack. */
void hostile_unnoticed(struct hostile *h, uint64_t rounds);
/* Sum over the series of that name that have this label (as printed; "": all); 0 if there is none.
 */
double hostile_metric(struct hostile *h, const char *name, const char *label);
/* Frames and posts refused with code "limit", as /metrics counts them. */
double hostile_refused(struct hostile *h);
/* Fails the test unless text holds word. */
void hostile_says(const char *text, const char *word);

#endif
