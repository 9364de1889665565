/* local.c - main and rows of the local benchmark; run by local.sh. Every figure is a JSON line with
 * what it was held against in the same run. Exit status 1 if a goal was missed. */
#include "bench/local.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int missed;

void local_fail(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    fputs("local: ", stderr);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
    exit(2);
}

void local_must(enum nxl_code code, const struct nxl_err *err, const char *what)
{
    if (code != NXL_OK)
        local_fail("%s: %s: %s", what, nxl_code_name(code), err->text);
}

void local_wait(struct nxl_transfer *transfer)
{
    struct nxl_err err = {0};

    local_must(nxl_transfer_wait(transfer, WAIT_NS, &err), &err, "transfer");
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

double local_percentile(double *values, int count, int percent)
{
    qsort(values, (size_t)count, sizeof(*values), by_value);
    return values[(count - 1) * percent / 100];
}

void local_row(const struct local_row *row)
{
    int ok = 1;

    if (row->kind == GOAL_VALUE_AT_MOST)
        ok = row->value <= row->goal;
    else if (row->kind == GOAL_RATIO_AT_LEAST)
        ok = row->ratio >= row->goal;
    missed |= !ok;
    printf("{\"name\":\"%s\",\"value\":%.4g,\"unit\":\"%s\",\"against\":", row->name, row->value,
           row->unit);
    if (row->against != NULL)
        printf("{\"what\":\"%s\",\"value\":%.4g},\"ratio\":%.3f,", row->against, row->against_value,
               row->ratio);
    else
        printf("null,\"ratio\":null,");
    if (row->kind == GOAL_NONE)
        printf("\"goal\":null,");
    else
        printf("\"goal\":\"%s %g\",",
               row->kind == GOAL_VALUE_AT_MOST ? "value <=" : "ratio >=", row->goal);
    printf("\"ok\":%s}\n", ok ? "true" : "false");
    fflush(stdout);
}

void local_speed_row(const char *name, double *ns, double *memcpy_ns, int count, double bytes,
                     const char *against, double goal)
{
    double own = bytes / local_percentile(ns, count, 50);
    double bar = bytes / local_percentile(memcpy_ns, count, 50);

    local_row(&(struct local_row){.name = name,
                                  .unit = "GB/s",
                                  .value = own,
                                  .against = against,
                                  .against_value = bar,
                                  .ratio = own / bar,
                                  .kind = goal > 0 ? GOAL_RATIO_AT_LEAST : GOAL_NONE,
                                  .goal = goal});
}

static void with_agents(int agents, const char *flag, void (*room)(struct cluster *c))
{
    static struct cluster c;

    memset(&c, 0, sizeof(c));
    c.secure = 1;
    c.extra[0] = flag;
    cluster_start(&c, agents, 0);
    room(&c);
    cluster_stop(&c);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int agents;
        const char *flag;
        void (*room)(struct cluster *c);
    } rooms[] = {
        {"cost", 1, NULL, local_cost},   {"move", 1, NULL, local_move},
        {"delay", 2, NULL, local_delay}, {"ucx", 2, "--backends.ucx.tls=tcp,self", local_ucx},
        {"idle", 1, NULL, local_idle},
    };
    int ran = 0;

    for (size_t i = 0; i < sizeof(rooms) / sizeof(rooms[0]); i++) {
        if (argc > 1 && strcmp(argv[1], rooms[i].name) != 0)
            continue;
        with_agents(rooms[i].agents, rooms[i].flag, rooms[i].room);
        ran++;
    }
    if (ran == 0)
        local_fail("usage: local [cost|move|delay|ucx|idle]");
    return missed;
}
