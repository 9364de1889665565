/* death.c - from SIGKILL of a client until its agent's other clients know (fence) and until another
 * agent's clients know, over many kills: small clients with Redis and with Redis stopped, and
 * clients with 1 GiB of touched memory. JSON lines. Beside it, measured in the same run: how long
 * this kernel takes to tell a parent of such a process through a pidfd. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/near.h"

#define SMALL_BYTES (4u << 20)
#define LARGE_BYTES (1u << 30)
#define LARGE_KILLS 20
#define TOLD_NS 10000000000u
#define KILLS_MAX 100000
#define LOCAL_GOAL_MS 10.0
#define FAR_GOAL_MS 250.0

struct bench {
    struct cluster cluster;
    struct near near[2]; /* witnesses at agent 0, where the victims live, and at agent 1 */
    uint64_t *told[2], *kernel;
    uint64_t bytes; /* of a victim */
    int kills;
};

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static double percentile(uint64_t *values, int count, int percent)
{
    qsort(values, (size_t)count, sizeof(*values), by_value);
    return (double)values[(count - 1) * percent / 100] / 1e6;
}

static void stop(const char *why)
{
    fprintf(stderr, "death: %s\n", why);
    exit(1);
}

/* A process of the victim's size that nobody but the kernel tells about. */
static uint64_t kernel_kill(uint64_t bytes)
{
    int ready[2] = {-1, -1}, piped = pipe(ready);
    pid_t pid = fork();
    struct pollfd fd = {.events = POLLIN};
    uint64_t start;
    char word;

    if (pid == 0) {
        char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

        memset(memory, 1, bytes);
        (void)!write(ready[1], "r", 1);
        for (;;)
            pause();
    }
    fd.fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (piped != 0 || pid < 0 || fd.fd < 0 || read(ready[0], &word, 1) != 1)
        stop("no pidfd from this kernel");
    start = cluster_now();
    kill(pid, SIGKILL);
    (void)poll(&fd, 1, 10000);
    start = cluster_now() - start;
    close(fd.fd);
    close(ready[0]);
    close(ready[1]);
    waitpid(pid, NULL, 0);
    return start;
}

/* 1 once PEER_DOWN is there. */
static int told(struct near *near)
{
    struct nxl_event event;

    while (nxl_peer_next(near->peer, &event) == NXL_OK) {
        if (event.kind == NXL_EVENT_PEER_DOWN)
            return 1;
    }
    return 0;
}

static void one_kill(struct bench *b, int index)
{
    struct cluster_peer victim;
    uint64_t start;
    int known[2] = {0, 0};

    cluster_peer_start(&b->cluster, 0, "victim", b->bytes, b->bytes > SMALL_BYTES ? "fill" : "wait",
                       &victim);
    for (int i = 0; i < 2; i++) {
        struct nxl_remote *remote;
        struct nxl_err err = {0};

        /* By address, so that it works without Redis too. */
        if (nxl_fetch_metadata(b->near[i].peer, "victim", NULL,
                               i == 0 ? NULL : b->cluster.agents[0].address, 10000, &remote,
                               &err) != NXL_OK ||
            near_move(&b->near[i], NXL_READ, remote, 0, victim.addr, 65536, &err) != NXL_OK)
            stop(err.text);
    }
    start = cluster_now();
    kill(victim.pid, SIGKILL);
    while (!known[0] || !known[1]) {
        struct pollfd fds[2];
        int armed = 1;

        for (int i = 0; i < 2; i++) {
            if (!known[i] && told(&b->near[i])) {
                b->told[i][index] = cluster_now() - start;
                known[i] = 1;
            }
            fds[i] = (struct pollfd){.fd = nxl_client_fd(b->near[i].client), .events = POLLIN};
            armed &= nxl_client_arm(b->near[i].client) == NXL_OK;
        }
        if (cluster_now() - start > TOLD_NS)
            stop("a witness was not told within 10 s");
        if (armed && (!known[0] || !known[1]))
            (void)poll(fds, 2, 1000);
    }
    cluster_peer_kill(&victim, SIGKILL);
    b->kernel[index] = kernel_kill(b->bytes);
}

static int line(const char *name, double value, double against, double goal)
{
    int ok = goal == 0 || value <= goal;

    printf(
        "{\"name\":\"%s\",\"value\":%.3f,\"unit\":\"ms\",\"against\":%.3f,\"ratio\":%.2f,\"goal\":",
        name, value, against, against > 0 ? value / against : 0);
    if (goal > 0)
        printf("%.0f", goal);
    else
        printf("null");
    printf(",\"ok\":%s}\n", ok ? "true" : "false");
    fflush(stdout);
    return ok;
}

static int series(struct bench *b, const char *suffix)
{
    static const char *const who[] = {"local", "far"};
    static const double goals[] = {LOCAL_GOAL_MS, FAR_GOAL_MS};
    int ok = 1;

    for (int k = 0; k < b->kills; k++)
        one_kill(b, k);
    for (int i = 0; i < 2; i++) {
        char name[64];

        snprintf(name, sizeof(name), "death_%s_p50%s", who[i], suffix);
        ok &= line(name, percentile(b->told[i], b->kills, 50), percentile(b->kernel, b->kills, 50),
                   0);
        snprintf(name, sizeof(name), "death_%s_p99%s", who[i], suffix);
        ok &= line(name, percentile(b->told[i], b->kills, 99), percentile(b->kernel, b->kills, 99),
                   goals[i]);
    }
    return ok;
}

int main(int argc, char **argv)
{
    static struct bench b;
    int ok;

    b.kills = argc > 1 ? atoi(argv[1]) : 200;
    if (b.kills < 1 || b.kills > KILLS_MAX)
        stop("usage: death [KILLS], 1 to 100000");
    b.kernel = calloc((size_t)b.kills, sizeof(uint64_t));
    b.cluster.secure = 1;
    near_fix_address(&b.cluster, 0);
    cluster_start(&b.cluster, 2, 0);
    for (int i = 0; i < 2; i++) {
        b.told[i] = calloc((size_t)b.kills, sizeof(uint64_t));
        near_open(&b.cluster, i, i == 0 ? "witness0" : "witness1", 1 << 20, &b.near[i]);
    }
    b.bytes = SMALL_BYTES;
    ok = series(&b, "");
    cluster_redis_kill(&b.cluster);
    ok &= series(&b, "_no_store");
    b.bytes = LARGE_BYTES;
    b.kills = b.kills < LARGE_KILLS ? b.kills : LARGE_KILLS;
    ok &= series(&b, "_1gib");
    near_close(&b.near[0]);
    near_close(&b.near[1]);
    cluster_stop(&b.cluster);
    for (int i = 0; i < 2; i++)
        free(b.told[i]);
    free(b.kernel);
    return ok ? 0 : 1;
}
