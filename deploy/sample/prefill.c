/* prefill.c - owns a filled KV cache; answers a decode peer's requests: the table of its cache, a
 * push of the request with a notice, echoes of pings. Ends on "bye" or when it is killed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workload.h"

static void push(struct sample *s, struct nxl_remote *decode, const struct sample_table *theirs)
{
    struct sample_table pushed;
    struct nxl_transfer *transfer;
    struct nxl_err err = {0};

    sample_fill(s, 0xbeef);
    sample_table(s, SAMPLE_PUSHED, &pushed);
    pushed.digest = sample_digest(s);
    transfer = sample_transfer(s, NXL_WRITE, decode, theirs, NULL);
    pushed.stamp = sample_now();
    sample_check(nxl_transfer_notice(transfer, &pushed, sizeof(pushed), 1, &err), &err,
                 "attach the notice");
    sample_check(nxl_transfer_post(transfer, &err), &err, "post the push");
    sample_check(nxl_transfer_wait(transfer, 60000000000u, &err), &err, "push");
    sample_check(nxl_transfer_release(transfer, &err), &err, "release the push");
}

int main(int argc, char **argv)
{
    static struct sample s;
    static struct sample_table asked, table;
    struct nxl_remote *decode = NULL;
    struct nxl_event event;
    struct nxl_err err = {0};

    if (argc != 2) {
        fprintf(stderr, "usage: nixlet-prefill SOCKET\n");
        return 2;
    }
    sample_open(&s, argv[1], "prefill", 1);
    sample_fill(&s, 0xcafe);
    sample_say("prefill", "registered %u layers, %llu MiB, published as %s", SAMPLE_LAYERS,
               (unsigned long long)SAMPLE_LAYERS * SAMPLE_POOL * SAMPLE_BLOCK >> 20,
               nxl_peer_incarnation(s.peer));
    while (sample_event(&s, NXL_EVENT_NOTICE, 120000000000u, &event, &asked)) {
        if (event.size != sizeof(asked) || asked.kind == SAMPLE_BYE)
            break;
        if (decode == NULL)
            sample_check(nxl_fetch_metadata(s.peer, "decode", NULL, NULL, 10000, &decode, &err),
                         &err, "find decode");
        if (asked.kind == SAMPLE_PING) {
            sample_check(nxl_notify(s.peer, decode, &asked, sizeof(asked), &err), &err,
                         "echo a ping");
        } else if (asked.kind == SAMPLE_TABLE) {
            sample_table(&s, SAMPLE_TABLE, &table);
            table.digest = sample_digest(&s);
            sample_check(nxl_notify(s.peer, decode, &table, sizeof(table), &err), &err,
                         "send the table");
        } else if (asked.kind == SAMPLE_PUSH) {
            push(&s, decode, &asked);
        }
    }
    sample_close(&s);
    return 0;
}
