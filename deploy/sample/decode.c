/* decode.c - reads a request's KV blocks from prefill, lets prefill push them, checks both by
 * digest, then kills prefill in the middle of a transfer and reports what it was told. Prints a
 * table; exit status 0 only if all of it was true. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workload.h"

#define WAIT 60000000000u
#define PINGS 400

struct result {
    struct nxl_transfer_report read, push;
    double memcpy_gbs, read_gbs, push_gbs, notice_p50_us, notice_p99_us;
    double down_ms, end_ms, quiet_ms;
    int read_true, push_true, down_true, quiet_true;
    enum nxl_code end_code;
    char end_text[NXL_ERR_TEXT_SIZE], down_text[200];
};

static double copy_speed(void)
{
    size_t size = (size_t)SAMPLE_BYTES;
    struct nxl_err err = {0};
    void *from, *to;
    double best = 0;

    sample_check(nxl_alloc(size, NXL_ALLOC_POPULATE, &from, &err), &err, "allocate");
    sample_check(nxl_alloc(size, NXL_ALLOC_POPULATE, &to, &err), &err, "allocate");
    memset(from, 1, size);
    for (int i = 0; i < 5; i++) {
        uint64_t start = sample_now();
        double gbs;

        memcpy(to, from, size);
        gbs = (double)size / (double)(sample_now() - start);
        best = gbs > best ? gbs : best;
    }
    nxl_free(from);
    nxl_free(to);
    return best;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static void ping(struct sample *s, struct nxl_remote *prefill, struct result *r)
{
    static double half_trips[PINGS];
    static struct sample_table table, echo;
    struct nxl_event event;
    struct nxl_err err = {0};

    sample_table(s, SAMPLE_PING, &table);
    for (int i = 0; i < PINGS; i++) {
        uint64_t start = sample_now();

        sample_check(nxl_notify(s->peer, prefill, &table, sizeof(table), &err), &err, "ping");
        if (!sample_event(s, NXL_EVENT_NOTICE, WAIT, &event, &echo))
            sample_check(NXL_TIMEOUT, &err, "no echo of a ping");
        half_trips[i] = (double)(sample_now() - start) / 2000.0;
    }
    qsort(half_trips, PINGS, sizeof(half_trips[0]), compare);
    r->notice_p50_us = half_trips[PINGS / 2];
    r->notice_p99_us = half_trips[PINGS * 99 / 100];
}

static double speed(const struct nxl_transfer_report *report)
{
    return (double)report->bytes / (double)(report->ended_ns - report->posted_ns);
}

static void pull(struct sample *s, struct nxl_transfer *transfer, const struct sample_table *theirs,
                 struct result *r)
{
    struct nxl_err err = {0};

    for (int i = 0; i < 3; i++) { /* the first one also warms the way up */
        sample_check(nxl_transfer_post(transfer, &err), &err, "post the read");
        sample_check(nxl_transfer_wait(transfer, WAIT, &err), &err, "read");
        r->read.size = sizeof(r->read);
        sample_check(nxl_transfer_report(transfer, &r->read), &err, "report");
        if (speed(&r->read) > r->read_gbs)
            r->read_gbs = speed(&r->read);
    }
    r->read_true = sample_digest(s) == theirs->digest;
    sample_say("decode", "read %u descriptors, %llu MiB: digest %s", SAMPLE_DESCRIPTORS,
               (unsigned long long)SAMPLE_BYTES >> 20, r->read_true ? "matches" : "DIFFERS");
}

static void be_pushed(struct sample *s, struct nxl_remote *prefill, struct result *r)
{
    static struct sample_table table, pushed;
    struct nxl_event event;
    struct nxl_err err = {0};

    sample_table(s, SAMPLE_PUSH, &table);
    sample_check(nxl_notify(s->peer, prefill, &table, sizeof(table), &err), &err,
                 "ask for the push");
    if (!sample_event(s, NXL_EVENT_NOTICE, WAIT, &event, &pushed) || pushed.kind != SAMPLE_PUSHED)
        sample_check(NXL_TIMEOUT, &err, "no notice of the push");
    r->push_gbs = (double)SAMPLE_BYTES / (double)(sample_now() - pushed.stamp);
    r->push_true = sample_digest(s) == pushed.digest && event.transfer != 0;
    sample_say("decode", "was pushed %llu MiB, notice of transfer %llu: digest %s",
               (unsigned long long)SAMPLE_BYTES >> 20, (unsigned long long)event.transfer,
               r->push_true ? "matches" : "DIFFERS");
}

static void end_of_prefill(struct sample *s, struct nxl_transfer *transfer, pid_t pid,
                           struct result *r)
{
    struct nxl_event event;
    struct nxl_err err = {0};
    uint64_t killed;
    enum nxl_code code;

    sample_check(nxl_transfer_post(transfer, &err), &err, "post the read that will be cut");
    killed = sample_now();
    kill(pid, SIGKILL);
    code = nxl_transfer_wait(transfer, WAIT, &err);
    while (code == NXL_OK &&
           sample_now() - killed < WAIT) { /* it was faster than the news; go on until it is told */
        code = nxl_transfer_post(transfer, &err);
        if (code == NXL_OK)
            code = nxl_transfer_wait(transfer, WAIT, &err);
    }
    r->end_ms = (double)(sample_now() - killed) / 1e6;
    r->end_code = code;
    if (nxl_transfer_explain(transfer, &err) == NXL_OK || err.text[0] != '\0')
        snprintf(r->end_text, sizeof(r->end_text), "%s", err.text);
    if (nxl_transfer_wait_quiesced(transfer, WAIT, &err) == NXL_OK) {
        r->quiet_ms = (double)(sample_now() - killed) / 1e6;
        r->quiet_true = nxl_transfer_quiesced(transfer);
    }
    if (sample_event(s, NXL_EVENT_PEER_DOWN, WAIT, &event, NULL)) {
        r->down_true = strcmp(event.name, "prefill") == 0;
        r->down_ms = (double)(event.at_ns - killed) / 1e6;
        snprintf(r->down_text, sizeof(r->down_text), "%s (%s): %.*s", event.name, event.incarnation,
                 (int)(event.size < 80 ? event.size : 80), (const char *)event.payload);
    }
}

static void table_print(const struct result *r)
{
    printf("\n%-28s %s\n", "what", "result");
    printf("%-28s %u x %u bytes, %u layers, %llu MiB\n", "request (Llama-3-70B TP8)",
           SAMPLE_DESCRIPTORS, SAMPLE_BLOCK, SAMPLE_LAYERS, (unsigned long long)SAMPLE_BYTES >> 20);
    printf("%-28s %s, %s, path %s, device %s\n", "path taken", r->read.backend,
           nxl_protocol_name(r->read.protocol), nxl_path_name(r->read.path), r->read.device);
    printf("%-28s %u before merging, %u after\n", "descriptors", r->read.descriptors,
           r->read.pieces);
    printf("%-28s %.2f GB/s read, %.2f GB/s push with notice; memcpy %.2f GB/s\n", "speed",
           r->read_gbs, r->push_gbs, r->memcpy_gbs);
    printf("%-28s read %s, push %s\n", "xxHash", r->read_true ? "same" : "DIFFERENT",
           r->push_true ? "same" : "DIFFERENT");
    printf("%-28s p50 %.1f us, p99 %.1f us (half a round trip, both asleep)\n", "notice latency",
           r->notice_p50_us, r->notice_p99_us);
    printf("%-28s told after %.2f ms: %s\n", "kill -9 to peer down", r->down_ms,
           r->down_true ? r->down_text : "NEVER");
    printf("%-28s %s after %.2f ms, buffers quiet after %.2f ms\n", "transfer that was cut",
           nxl_code_name(r->end_code), r->end_ms, r->quiet_ms);
    printf("%-28s %s\n\n", "its sentence", r->end_text);
}

int main(int argc, char **argv)
{
    static struct sample s;
    static struct sample_table ask, theirs;
    static struct result r;
    struct nxl_remote *prefill;
    struct nxl_transfer *transfer;
    struct nxl_event event;
    struct nxl_err err = {0};
    int ended;

    if (argc != 2) {
        fprintf(stderr, "usage: nixlet-decode SOCKET\n");
        return 2;
    }
    sample_open(&s, argv[1], "decode", 2);
    sample_check(nxl_fetch_metadata(s.peer, "prefill", NULL, NULL, 10000, &prefill, &err), &err,
                 "find prefill by name");
    sample_say("decode", "found prefill through the store: %s", nxl_remote_incarnation(prefill));
    r.memcpy_gbs = copy_speed();
    sample_table(&s, SAMPLE_TABLE, &ask);
    sample_check(nxl_notify(s.peer, prefill, &ask, sizeof(ask), &err), &err, "ask for the table");
    if (!sample_event(&s, NXL_EVENT_NOTICE, WAIT, &event, &theirs) || theirs.kind != SAMPLE_TABLE)
        sample_check(NXL_TIMEOUT, &err, "no table from prefill");
    transfer = sample_transfer(&s, NXL_READ, prefill, &theirs, NULL);
    pull(&s, transfer, &theirs, &r);
    be_pushed(&s, prefill, &r);
    ping(&s, prefill, &r);
    end_of_prefill(&s, transfer, (pid_t)theirs.pid, &r);
    table_print(&r);
    /* Whichever came first: the fact ends it as disconnected, or refuses the next post as stale. */
    ended = r.end_code == NXL_REMOTE_DISCONNECT || r.end_code == NXL_STALE;
    sample_close(&s);
    return r.read_true && r.push_true && r.down_true && r.quiet_true && ended ? 0 : 1;
}
