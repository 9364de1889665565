/* stream_fanout.c - how fast a death reaches N agents over the operator stream, and what it costs.
 * One thread is the operator's stream server; another is all agents, with the agent's own stream
 * code. Prints JSON lines; --raw FILE keeps every sample (ns). bench_stream_fanout [--agents 1000]
 * [--deletes 200] [--pods 32] [--pause_ms 50] [--raw FILE] */
#include "support/stream_rig.h"

#include "base/log.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define PODS_MAX 4096u

static struct {
    long agents, deletes, pods, pause_ms, batch, restart;
    const char *raw;
} want = {.agents = 1000, .deletes = 200, .pods = 32, .pause_ms = 10, .batch = 1000};

static struct stream_rig rig;
static struct stream_client *clients;
static struct nxl_metrics *client_metrics;
static _Atomic uint64_t said_ns;  /* when the running round was said */
static _Atomic long taken, heard; /* agents that know it */
static uint64_t *samples;         /* of the running round, then all */
static _Atomic long sample_count;
static _Atomic int agents_stop, operator_stop;
static _Atomic long command; /* what the operator thread is to do */
static _Atomic uint64_t operator_cpu_ns;
static long next_pod;
static _Atomic long synced; /* agents that acknowledged everything, as the operator sees it */

/* ---- agents ------------------------------------------------------------------------------- */

static void on_death(struct stream_client *client, const char *prefix)
{
    long at = atomic_fetch_add(&taken, 1);

    (void)prefix;
    samples[atomic_load(&sample_count) + at] = client->dead_ns - atomic_load(&said_ns);
    (void)atomic_fetch_add(&heard, 1);
}

static int agents_done(void *arg)
{
    (void)arg;
    return atomic_load(&agents_stop);
}

static long count_up(void)
{
    long up = 0;

    for (long i = 0; i < want.agents; i++)
        up += nxl_stream_up(clients[i].stream) > 0;
    return up;
}

static _Atomic long ups;

static void on_count(void *arg)
{
    (void)arg;
    atomic_store(&ups, count_up());
}

static void *agents_main(void *arg)
{
    struct nxl_loop *loop;
    struct nxl_timer *timer;
    struct nxl_err err;

    (void)arg;
    if (nxl_loop_open(&loop, &err) != NXL_OK)
        abort();
    client_metrics = nxl_metrics_new();
    clients = nxl_new0_array((size_t)want.agents, sizeof(*clients));
    for (long i = 0; i < want.agents; i++) {
        char node[32];

        (void)snprintf(node, sizeof(node), "node-%ld", i);
        stream_client_open(&clients[i], loop, &rig, node, NULL, NULL, client_metrics, 0,
                           "stream.connect_timeout", "60s", "stream.silent_after", "60s", RIG_END);
        clients[i].on_death = on_death;
    }
    timer = nxl_timer_open(loop, on_count, NULL);
    nxl_timer_start(timer, 10 * NXL_MS, 10 * NXL_MS);
    while (!atomic_load(&agents_stop))
        (void)nxl_loop_run_until(loop, agents_done, NULL, NXL_SEC);
    nxl_timer_close(timer);
    for (long i = 0; i < want.agents; i++)
        stream_client_close(&clients[i]);
    free(clients);
    nxl_loop_close(loop);
    nxl_metrics_free(client_metrics);
    return NULL;
}

/* ---- the operator ------------------------------------------------------------------------- */

enum { DO_NOTHING = 0, DO_DELETE, DO_BATCH, DO_ADD, DO_FILL, DO_COUNT, DO_RESTART };

static void pod_name(char *to, size_t room, long number)
{
    (void)snprintf(to, room, "00000000-0000-4000-8000-%012ld", number);
}

static void add_pods(long count)
{
    char uid[64], version[32];

    for (long i = 0; i < count; i++, next_pod++) {
        pod_name(uid, sizeof(uid), next_pod);
        (void)snprintf(version, sizeof(version), "%ld", 1000 + next_pod);
        (void)stream_rig_put(&rig, uid, "default/decode", "elsewhere", version);
    }
}

static void delete_pods(long count)
{
    static long first;
    char uid[64];

    atomic_store(&said_ns, nxl_now_ns());
    for (long i = 0; i < count; i++, first++) {
        pod_name(uid, sizeof(uid), first);
        (void)stream_rig_dead(&rig, uid, "deleted");
    }
    nxl_push_flush(rig.push);
}

static void count_synced(void)
{
    struct nxl_push_group group = {0};

    (void)nxl_push_group(rig.push, "default/decode", &group);
    atomic_store(&synced, group.synced);
}

static void on_command(void *arg)
{
    (void)arg;
    if (atomic_load(&command) == DO_RESTART)
        return; /* not inside the loop's callback */
    switch (atomic_load(&command)) {
    case DO_DELETE:
        delete_pods(1);
        break;
    case DO_BATCH:
        delete_pods(want.batch);
        break;
    case DO_ADD:
        add_pods(1);
        break;
    case DO_FILL:
        add_pods(want.batch);
        break;
    case DO_COUNT:
        count_synced();
        break;
    default:
        break;
    }
    atomic_store(&command, DO_NOTHING);
}

static int operator_done(void *arg)
{
    (void)arg;
    return atomic_load(&operator_stop) || atomic_load(&command) == DO_RESTART;
}

static uint64_t thread_cpu(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * NXL_SEC + (uint64_t)now.tv_nsec;
}

static void fill(void)
{
    stream_rig_policy(&rig, "default/decode", 1, "default/prefill", NXL_STREAM_READ);
    nxl_push_rv(rig.push, "1");
    nxl_push_synced(rig.push);
}

static struct nxl_waker *waker;

static void *operator_main(void *arg)
{
    struct nxl_loop *loop = arg;

    while (!atomic_load(&operator_stop)) {
        (void)nxl_loop_run_until(loop, operator_done, NULL, 100 * NXL_MS);
        atomic_store(&operator_cpu_ns, thread_cpu());
        if (atomic_load(&command) == DO_RESTART) {
            stream_rig_restart(&rig);
            next_pod -= want.pods; /* the same pods again */
            add_pods(want.pods);
            fill();
            atomic_store(&command, DO_NOTHING);
        }
    }
    return NULL;
}

/* ---- the run ------------------------------------------------------------------------------ */

static void pause_ms(long ms)
{
    const struct timespec wait = {ms / 1000, ms % 1000 * 1000000};

    (void)nanosleep(&wait, NULL);
}

static void order(long what)
{
    atomic_store(&command, what);
    nxl_waker_wake(waker);
    while (atomic_load(&command) != DO_NOTHING)
        pause_ms(1);
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static double ms_at(const uint64_t *sorted, long count, double part)
{
    long at = (long)((double)count * part);

    return (double)sorted[at < count ? at : count - 1] / 1e6;
}

static long rss_kb(void)
{
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");

    if (file == NULL || fscanf(file, "%ld %ld", &pages, &resident) != 2)
        resident = 0;
    if (file != NULL)
        (void)fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static void wait_heard(long count)
{
    while (atomic_load(&heard) < count)
        pause_ms(1);
}

static void wait_synced(void)
{
    do {
        pause_ms(5);
        order(DO_COUNT);
    } while (atomic_load(&synced) < want.agents);
}

static void measure_deletes(void)
{
    uint64_t cpu = atomic_load(&operator_cpu_ns);

    for (long i = 0; i < want.deletes; i++) {
        atomic_store(&taken, 0);
        atomic_store(&heard, 0);
        order(DO_DELETE);
        wait_heard(want.agents);
        sample_count += want.agents;
        order(DO_ADD);
        wait_synced(); /* the next delete does not wait behind this one's successor */
        pause_ms(want.pause_ms);
    }
    cpu = atomic_load(&operator_cpu_ns) - cpu;
    if (want.raw != NULL) {
        FILE *raw = fopen(want.raw, "we");

        for (long i = 0; raw != NULL && i < sample_count; i++)
            (void)fprintf(raw, "%llu\n", (unsigned long long)samples[i]);
        if (raw != NULL)
            (void)fclose(raw);
    }
    qsort(samples, (size_t)sample_count, sizeof(*samples), compare);
    printf("{\"bench\":\"stream_fanout\",\"agents\":%ld,\"deletes\":%ld,\"samples\":%ld,"
           "\"p50_ms\":%.2f,\"p90_ms\":%.2f,\"p99_ms\":%.2f,\"max_ms\":%.2f,"
           "\"operator_cpu_ms_per_delete\":%.2f}\n",
           want.agents, want.deletes, sample_count, ms_at(samples, sample_count, 0.5),
           ms_at(samples, sample_count, 0.9), ms_at(samples, sample_count, 0.99),
           (double)samples[sample_count - 1] / 1e6, (double)cpu / 1e6 / (double)want.deletes);
}

static void measure_batch(void)
{
    uint64_t last = 0;

    if (want.batch == 0)
        return;
    order(DO_FILL);
    wait_synced();
    sample_count = 0;
    atomic_store(&taken, 0);
    atomic_store(&heard, 0);
    order(DO_BATCH);
    wait_heard(want.agents * want.batch);
    for (long i = 0; i < want.agents * want.batch; i++)
        last = samples[i] > last ? samples[i] : last;
    printf("{\"bench\":\"stream_scale_down\",\"agents\":%ld,\"pods\":%ld,\"all_purged_ms\":%.1f}\n",
           want.agents, want.batch, (double)last / 1e6);
}

static void measure_restart(void)
{
    uint64_t at = nxl_now_ns(), resumed;
    long low = want.agents;

    atomic_store(&command, DO_RESTART);
    nxl_waker_wake(waker);
    while (atomic_load(&command) != DO_NOTHING)
        pause_ms(1);
    while (low > want.agents / 2 && nxl_now_ns() - at < 10 * NXL_SEC) {
        low = atomic_load(&ups);
        pause_ms(5);
    }
    while (atomic_load(&ups) < want.agents)
        pause_ms(5);
    resumed = (uint64_t)stream_rig_metric(rig.metrics, "nixlet_stream_resumed_total", "");
    printf("{\"bench\":\"stream_restart\",\"agents\":%ld,\"all_back_ms\":%.0f,\"resumed\":%llu}\n",
           want.agents, (double)(nxl_now_ns() - at) / 1e6, (unsigned long long)resumed);
}

static void measure_idle(void)
{
    uint64_t cpu;

    pause_ms(500);
    cpu = atomic_load(&operator_cpu_ns);
    pause_ms(5000);
    cpu = atomic_load(&operator_cpu_ns) - cpu;
    printf("{\"bench\":\"stream_idle\",\"agents\":%ld,\"operator_cores\":%.4f}\n", want.agents,
           (double)cpu / 5e9);
}

static void arguments(int argc, char **argv)
{
    const struct {
        const char *name;
        long *to;
    } rows[] = {{"--agents", &want.agents}, {"--deletes", &want.deletes},
                {"--pods", &want.pods},     {"--pause_ms", &want.pause_ms},
                {"--batch", &want.batch},   {"--restart", &want.restart}};

    for (int i = 1; i + 1 < argc; i += 2) {
        for (size_t k = 0; k < NXL_COUNT_OF(rows); k++) {
            if (strcmp(argv[i], rows[k].name) == 0)
                *rows[k].to = strtol(argv[i + 1], NULL, 10);
        }
        if (strcmp(argv[i], "--raw") == 0)
            want.raw = argv[i + 1];
    }
}

int main(int argc, char **argv)
{
    struct nxl_loop *loop;
    pthread_t operator_thread, agents_thread;
    struct nxl_err err;
    uint64_t at;
    long rss, rounds;

    arguments(argc, argv);
    nxl_log_setup("bench", NXL_LOG_ERROR, STDERR_FILENO);
    rounds = want.deletes > want.batch ? want.deletes : want.batch;
    samples = nxl_new0_array((size_t)(want.agents * rounds), sizeof(*samples));
    if (nxl_loop_open(&loop, &err) != NXL_OK)
        abort();
    stream_rig_open(&rig, loop, NULL, "stream.agents_max", "20000", "stream.handshakes_max",
                    "10000", "stream.hello_timeout", "60s", RIG_END);
    waker = nxl_waker_open(loop, on_command, NULL);
    add_pods(want.pods);
    fill();
    rss = rss_kb();
    at = nxl_now_ns();
    (void)pthread_create(&operator_thread, NULL, operator_main, loop);
    (void)pthread_create(&agents_thread, NULL, agents_main, NULL);
    while (atomic_load(&ups) < want.agents)
        pause_ms(5);
    printf("{\"bench\":\"stream_connect\",\"agents\":%ld,\"ms\":%.0f,\"rss_kb_per_pair\":%.1f}\n",
           want.agents, (double)(nxl_now_ns() - at) / 1e6,
           (double)(rss_kb() - rss) / (double)want.agents);
    measure_idle();
    measure_deletes();
    measure_batch();
    if (want.restart)
        measure_restart();
    (void)fflush(stdout);
    atomic_store(&agents_stop, 1);
    (void)pthread_join(agents_thread, NULL);
    atomic_store(&operator_stop, 1);
    nxl_waker_wake(waker);
    (void)pthread_join(operator_thread, NULL);
    nxl_waker_close(waker);
    stream_rig_close(&rig);
    nxl_loop_close(loop);
    free(samples);
    return 0;
}
