/* peer.c - a client process for integration tests: peer SOCKET NAME SIZE MODE. It opens a peer,
 * registers SIZE bytes, publishes itself and prints "ready <hex address>". Then, by MODE:
 *   wait    sleeps until it is killed
 *   fork    the same, with a forked child that keeps every descriptor open
 *   echo    answers each notice with the same payload
 *   fill    fills its memory with address-dependent words first, then sleeps */
#include <nixlet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <signal.h>
#include <unistd.h>

static void check(enum nxl_code code, const struct nxl_err *err, const char *what)
{
    if (code == NXL_OK)
        return;
    fprintf(stderr, "peer: %s: %s: %s\n", what, nxl_code_name(code), err->text);
    exit(1);
}

static void echo(struct nxl_client *client, struct nxl_peer *peer)
{
    static unsigned char copy[NXL_NOTICE_MAX];

    for (;;) {
        struct pollfd fd = {.fd = nxl_client_fd(client), .events = POLLIN};
        struct nxl_event event;
        struct nxl_err err = {0};

        while (nxl_peer_next(peer, &event) == NXL_OK) {
            struct nxl_remote *from;
            size_t size = event.size;
            char name[NXL_NAME_MAX + 1];

            if (event.kind != NXL_EVENT_NOTICE)
                continue;
            memcpy(copy, event.payload, size);
            snprintf(name, sizeof(name), "%s", event.name);
            check(nxl_fetch_metadata(peer, name, NULL, NULL, 5000, &from, &err), &err,
                  "find the sender");
            check(nxl_notify(peer, from, copy, size, &err), &err, "echo");
        }
        if (nxl_client_arm(client) == NXL_OK)
            (void)poll(&fd, 1, -1);
    }
}

int main(int argc, char **argv)
{
    struct nxl_client_options options = {.size = sizeof(options), .reconnect = 1};
    struct nxl_client *client;
    struct nxl_peer *peer;
    struct nxl_memreg *reg;
    struct nxl_region region = {0};
    struct nxl_err err = {0};
    enum nxl_code code;

    if (argc != 5)
        return 2;
    options.socket_path = argv[1];
    check(nxl_client_open(&options, &client, &err), &err, "connect");
    check(nxl_peer_open(client, argv[2], &peer, &err), &err, "open the peer");
    region.len = strtoull(argv[3], NULL, 10);
    check(nxl_alloc(region.len, 0, &region.addr, &err), &err, "allocate");
    for (uint64_t i = 0; strcmp(argv[4], "fill") == 0 && i < region.len / 8; i++)
        ((uint64_t *)region.addr)[i] = i * 0x9e3779b97f4a7c15u;
    check(nxl_register(peer, &region, 1, &reg, &err), &err, "register");
    code = nxl_send_metadata(peer, NULL, NULL, NULL, 0, 0, &err);
    if (code != NXL_NOT_SUPPORTED) /* an agent without a store is fine */
        check(code, &err, "publish");
    printf("ready %llx\n", (unsigned long long)(uintptr_t)region.addr);
    fflush(stdout);
    if (strcmp(argv[4], "fork") == 0 && fork() == 0) {
        prctl(PR_SET_PDEATHSIG, 0);
        alarm(60); /* outlives its parent, not the test run */
        for (;;)
            pause();
    }
    if (strcmp(argv[4], "echo") == 0)
        echo(client, peer);
    for (;;)
        pause();
}
