/* hostile.c - the scene of attacks on an agent. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/hostile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SETTLE_NS 15000000000u
/* Growth that an attack may leave behind: caches of the allocator, and with sanitizers their
 * quarantine and shadow. */
#define RSS_ROOM_KIB (STEADY_SLOW > 1 ? 600l << 10 : 64l << 10)

/* ThreadSanitizer starts a symbolizer, with a pipe each way, when it first looks whether a race is
 * one of tsan.supp. */
#define TOOL_FDS 0
#if defined(__SANITIZE_THREAD__)
#undef TOOL_FDS
#define TOOL_FDS 2
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#undef TOOL_FDS
#define TOOL_FDS 2
#endif
#endif

static const char *const small[] = {
    "--socket.hello_timeout=2s",      "--socket.clients_max=48", "--socket.calls_max=64",
    "--socket.notice_queue_max=64Ki", "--socket.arena_max=64Mi", "--limits.sessions=24",
    "--limits.regions=4096",          "--limits.files=256",      "--limits.files_total=400",
    "--limits.registered=4Gi",        "--limits.remotes=100",    "--limits.list_runs=100000",
    "--limits.held_notices=64",       "--limits.transfers=8",    "--limits.transfer_bytes=256Mi",
    "--limits.descriptors=100000",
};

static int metric(struct hostile *h, const char *name)
{
    return (int)hostile_metric(h, name, "");
}

void hostile_open(struct hostile *h, int limits)
{
    memset(h, 0, sizeof(*h));
    for (size_t i = 0; limits && i < sizeof(small) / sizeof(small[0]); i++)
        h->cluster.extra[i] = small[i];
    cluster_start(&h->cluster, 1, 1);
    h->agent = h->cluster.agents[0].pid;
    steady_start(&h->steady, &h->cluster, 0);
    h->sessions = metric(h, "nixlet_sessions");
    h->fds = INT32_MAX;
    for (int i = 0; i < 50; i++) { /* the smallest: none that is only passing through */
        int fds = cluster_fd_count(h->agent);

        h->fds = fds < h->fds ? fds : h->fds;
    }
    h->rss_kib = cluster_rss_kib(h->agent);
    /* One peer, one region each; the third comes and goes. */
    h->regions = 2;
}

void hostile_close(struct hostile *h)
{
    steady_stop(&h->steady);
    cluster_stop(&h->cluster);
}

double hostile_metric(struct hostile *h, const char *name, const char *label)
{
    static char text[1 << 20];
    size_t length = strlen(name);
    double sum = 0;

    assert_int_equal(cluster_http(&h->cluster, 0, "/metrics", text, sizeof(text)), 200);
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        if (strncmp(line, name, length) == 0 && (line[length] == ' ' || line[length] == '{') &&
            strstr(line, label) != NULL)
            sum += atof(strrchr(line, ' '));
    }
    return sum;
}

double hostile_refused(struct hostile *h)
{
    return hostile_metric(h, "nixlet_frame_refused_total", "code=\"limit\"");
}

void hostile_says(const char *text, const char *word)
{
    if (strstr(text, word) == NULL)
        fail_msg("'%s' does not name %s", text, word);
}

/* The looking itself takes a descriptor for a moment, and so do the well-behaved clients. */
static int settled(void *arg)
{
    struct hostile *h = arg;

    return cluster_fd_count(h->agent) <= h->fds + TOOL_FDS &&
           metric(h, "nixlet_sessions") == h->sessions &&
           metric(h, "nixlet_regions") <= h->regions + 1 &&
           metric(h, "nixlet_regions_leaving") <= 1;
}

/* What is open, for whoever has to find out what was left behind. */
static void descriptors_print(const struct hostile *h)
{
    char path[64], target[256];

    for (int fd = 0; fd < 4096; fd++) {
        ssize_t size;

        snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)h->agent, fd);
        size = readlink(path, target, sizeof(target) - 1);
        if (size > 0)
            print_message("    %d -> %.*s\n", fd, (int)size, target);
    }
}

void hostile_unnoticed(struct hostile *h, uint64_t rounds)
{
    const char *flaw = steady_check(&h->steady, rounds);

    if (flaw != NULL)
        fail_msg("the other clients noticed: %s", flaw);
}

void hostile_unharmed(struct hostile *h)
{
    char body[4096];
    int status = 0;
    long rss;

    if (waitpid(h->agent, &status, WNOHANG) != 0) {
        h->cluster.agents[0].pid = 0;
        fprintf(stderr, "the agent ended with wait status 0x%x, see %s\n", status,
                h->cluster.agents[0].log);
        abort();
    }
    assert_int_equal(cluster_http(&h->cluster, 0, "/healthz", body, sizeof(body)), 200);
    hostile_unnoticed(h, 3);
    if (!cluster_until(settled, h, SETTLE_NS)) {
        descriptors_print(h);
        fail_msg("the agent keeps %d descriptors (%d before), %d sessions (%d), %d regions (%d), "
                 "%d leaving",
                 cluster_fd_count(h->agent), h->fds, metric(h, "nixlet_sessions"), h->sessions,
                 metric(h, "nixlet_regions"), h->regions, metric(h, "nixlet_regions_leaving"));
    }
    rss = cluster_rss_kib(h->agent);
    if (rss > h->rss_kib + RSS_ROOM_KIB)
        fail_msg("the agent has grown from %ld to %ld KiB", h->rss_kib, rss);
    print_message("    slowest step of the others: %.1f ms moving, %.1f ms calling; the agent has "
                  "%ld KiB (%ld before)\n",
                  (double)atomic_exchange(&h->steady.facts->worst_move_ns, 0) / 1e6,
                  (double)atomic_exchange(&h->steady.facts->worst_call_ns, 0) / 1e6, rss,
                  h->rss_kib);
}
