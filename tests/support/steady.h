/* steady.h - two well-behaved clients in a process of their own. They move data, compare it, send
 * notices, register and prepare lists, round after round, and write down what they saw: whoever
 * attacks the agent asks afterwards whether they noticed. */
#ifndef NXL_TESTS_STEADY_H
#define NXL_TESTS_STEADY_H

#include <stdatomic.h>

#include "support/cluster.h"

/* No single step of theirs may take longer. Sanitizers make the agent slow. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define STEADY_SLOW 4u
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define STEADY_SLOW 4u
#endif
#endif
#ifndef STEADY_SLOW
#define STEADY_SLOW 1u
#endif
#define STEADY_DEADLINE_NS (5000000000u * (uint64_t)STEADY_SLOW)

struct steady_facts { /* shared with the process */
    _Atomic uint64_t rounds, worst_move_ns, worst_call_ns;
    _Atomic uint32_t stop, failed;
    char text[256]; /* of the first failure */
};

struct steady {
    pid_t pid;
    struct steady_facts *facts;
};

void steady_start(struct steady *steady, struct cluster *c, int agent); /* first round done */
/* Rounds begun after this call go well: as many as count, within the deadline each. NULL, or what
 * went wrong, at any time since the start. */
const char *steady_check(struct steady *steady, uint64_t count);
void steady_stop(struct steady *steady);

#endif
