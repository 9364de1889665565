/* local.h - rooms of the local benchmark: rows (local.c), costs of calls (local_cost.c), bytes at
 * one agent (local_move.c), two agents over TCP (local_ucx.c), an idle agent (local_idle.c). */
#ifndef NXL_TESTS_BENCH_LOCAL_H
#define NXL_TESTS_BENCH_LOCAL_H

#include "support/near.h"

#define KIB 1024u
#define MIB (1u << 20)
#define WAIT_NS 60000000000u

/* at_most: value may be at most goal. at_least: the ratio must be at least goal. */
enum local_goal { GOAL_NONE, GOAL_VALUE_AT_MOST, GOAL_RATIO_AT_LEAST };
struct local_row {
    const char *name, *unit;
    double value;
    const char *against; /* what it is compared with; NULL: nothing */
    double against_value, ratio;
    enum local_goal kind;
    double goal;
};
void local_row(const struct local_row *row); /* prints; remembers a goal that was missed */
void local_fail(const char *fmt, ...) NXL_PRINTF(1, 2) __attribute__((noreturn));
double local_percentile(double *values, int count, int percent); /* sorts */
/* Fails the whole run with the sentence unless code is NXL_OK. */
void local_must(enum nxl_code code, const struct nxl_err *err, const char *what);
void local_wait(struct nxl_transfer *transfer); /* posted before */

/* A row whose value and yardstick are both times of moving `bytes`: shown in GB/s. */
void local_speed_row(const char *name, double *ns, double *memcpy_ns, int count, double bytes,
                     const char *against, double goal);

void local_cost(struct cluster *c);  /* agent 0 */
void local_move(struct cluster *c);  /* agent 0 */
void local_delay(struct cluster *c); /* agents 0 and 1 */
void local_ucx(struct cluster *c);   /* agents 0 and 1, TCP */
void local_idle(struct cluster *c);  /* agent 0, nobody else on it */

#endif
