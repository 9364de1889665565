/* local_idle.c - what an agent costs that has eight clients and nothing to do. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench/local.h"

#define CLIENTS 8
#define SECONDS 10

static double cpu_seconds(pid_t pid)
{
    char path[64], text[1024];
    unsigned long user = 0, system = 0;
    FILE *file;
    size_t size;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    file = fopen(path, "r");
    if (file == NULL)
        local_fail("no %s", path);
    size = fread(text, 1, sizeof(text) - 1, file);
    text[size] = '\0';
    fclose(file);
    if (sscanf(strrchr(text, ')') + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
               &system) != 2)
        local_fail("%s is not as expected", path);
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

/* Resident bytes that are not mappings of clients' or rings' memory files. */
static double resident_mb(pid_t pid)
{
    char path[64], line[512];
    unsigned long total = 0, kb;
    int counted = 1;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/smaps", (int)pid);
    file = fopen(path, "r");
    if (file == NULL)
        local_fail("no %s", path);
    while (fgets(line, sizeof(line), file) != NULL) {
        unsigned long from, to;

        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            counted = strstr(line, "memfd:") == NULL;
        else if (counted && sscanf(line, "Rss: %lu kB", &kb) == 1)
            total += kb;
    }
    fclose(file);
    return (double)total * 1024 / 1e6;
}

void local_idle(struct cluster *c)
{
    struct near clients[CLIENTS];
    struct timespec pause = {.tv_sec = 2};
    double before;
    uint64_t start;

    for (int i = 0; i < CLIENTS; i++) {
        char name[16];

        snprintf(name, sizeof(name), "client%d", i);
        near_open(c, 0, name, 64 * MIB, &clients[i]);
        memset(clients[i].memory, i, 64 * MIB);
    }
    for (int i = 0; i < CLIENTS; i++) { /* each has worked once, so that nothing is lazy any more */
        struct nxl_remote *remote = near_load(&clients[i], &clients[(i + 1) % CLIENTS]);
        struct nxl_transfer *transfer =
            near_create(&clients[i], NXL_READ, remote, 0,
                        (uint64_t)(uintptr_t)clients[(i + 1) % CLIENTS].memory, 64 * MIB);

        if (near_run(transfer) != NXL_OK)
            local_fail("the first transfer failed");
        near_release(transfer);
    }
    (void)nanosleep(&pause, NULL);
    before = cpu_seconds(c->agents[0].pid);
    start = cluster_now();
    pause.tv_sec = SECONDS;
    (void)nanosleep(&pause, NULL);
    local_row(&(struct local_row){.name = "idle_8_clients_cpu",
                                  .unit = "% of a core",
                                  .value = 100 * (cpu_seconds(c->agents[0].pid) - before) /
                                           ((double)(cluster_now() - start) / 1e9),
                                  .kind = GOAL_VALUE_AT_MOST,
                                  .goal = 0.5});
    local_row(&(struct local_row){.name = "idle_8_clients_rss",
                                  .unit = "MB",
                                  .value = resident_mb(c->agents[0].pid),
                                  .kind = GOAL_VALUE_AT_MOST,
                                  .goal = 30});
    for (int i = 0; i < CLIENTS; i++)
        near_close(&clients[i]);
}
