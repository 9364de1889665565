/* near.c - the test process as a client. */
#include "support/near.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define RUN_NS 30000000000u

static void must(enum nxl_code code, const struct nxl_err *err, const char *what)
{
    if (code == NXL_OK)
        return;
    fprintf(stderr, "%s: %s: %s\n", what, nxl_code_name(code), err->text);
    abort();
}

void near_fix_address(struct cluster *c, int agent)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (bind(fd, (struct sockaddr *)&at, sizeof(at)) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &size) != 0)
        abort();
    close(fd);
    snprintf(c->agents[agent].address, sizeof(c->agents[agent].address), "127.0.0.1:%u",
             ntohs(at.sin_port));
}

void near_open(struct cluster *c, int agent, const char *name, uint64_t size, struct near *ret)
{
    struct nxl_region region = {.len = size};
    struct nxl_err err = {0};

    *ret = (struct near){.size = size, .client = cluster_client(c, agent)};
    must(nxl_peer_open(ret->client, name, &ret->peer, &err), &err, "open the peer");
    if (size == 0)
        return;
    must(nxl_alloc(size, 0, (void **)&ret->memory, &err), &err, "allocate");
    region.addr = ret->memory;
    must(nxl_register(ret->peer, &region, 1, &ret->reg, &err), &err, "register");
}

void near_close(struct near *near)
{
    nxl_client_close(near->client);
    nxl_free(near->memory);
    *near = (struct near){0};
}

struct nxl_remote *near_fetch(struct near *near, const char *name)
{
    struct nxl_remote *remote = NULL;
    struct nxl_err err = {0};

    must(nxl_fetch_metadata(near->peer, name, NULL, NULL, 10000, &remote, &err), &err, "fetch");
    return remote;
}

struct nxl_remote *near_load(struct near *near, const struct near *of)
{
    struct nxl_remote *remote = NULL;
    struct nxl_err err = {0};
    void *blob;
    size_t size;

    must(nxl_metadata(of->peer, 0, NULL, 0, &blob, &size, &err), &err, "metadata");
    must(nxl_load(near->peer, blob, size, &remote, &err), &err, "load");
    free(blob);
    return remote;
}

struct nxl_transfer *near_create(struct near *near, enum nxl_op_kind op, struct nxl_remote *remote,
                                 uint64_t here, uint64_t there, uint64_t len)
{
    struct nxl_run local = {
        .addr = (uint64_t)(uintptr_t)near->memory + here, .len = len, .count = 1};
    struct nxl_run far = {.addr = there, .len = len, .count = 1};
    struct nxl_transfer *transfer = NULL;
    struct nxl_err err = {0};

    must(nxl_transfer_create(near->peer, op, remote, NXL_MEM_DRAM, &local, 1, &far, 1, NULL,
                             &transfer, &err),
         &err, "create");
    return transfer;
}

enum nxl_code near_run(struct nxl_transfer *transfer)
{
    struct nxl_err err = {0};
    enum nxl_code code = nxl_transfer_post(transfer, &err);

    return code != NXL_OK ? code : nxl_transfer_wait(transfer, RUN_NS, &err);
}

void near_release(struct nxl_transfer *transfer)
{
    struct nxl_err err = {0};

    must(nxl_transfer_wait_quiesced(transfer, RUN_NS, &err), &err, "wait until quiet");
    must(nxl_transfer_release(transfer, &err), &err, "release");
}

enum nxl_code near_move(struct near *near, enum nxl_op_kind op, struct nxl_remote *remote,
                        uint64_t here, uint64_t there, uint64_t len, struct nxl_err *ret_err)
{
    struct nxl_run local = {
        .addr = (uint64_t)(uintptr_t)near->memory + here, .len = len, .count = 1};
    struct nxl_run far = {.addr = there, .len = len, .count = 1};
    struct nxl_transfer *transfer;
    enum nxl_code code = nxl_transfer_create(near->peer, op, remote, NXL_MEM_DRAM, &local, 1, &far,
                                             1, NULL, &transfer, ret_err);

    if (code != NXL_OK)
        return code;
    code = nxl_transfer_post(transfer, ret_err);
    if (code == NXL_OK) {
        code = nxl_transfer_wait(transfer, RUN_NS, ret_err);
        if (code != NXL_OK)
            (void)nxl_transfer_explain(transfer, ret_err);
    }
    near_release(transfer);
    return code;
}

struct moving {
    struct near *near;
    struct nxl_remote *remote;
    enum nxl_op_kind op;
    uint64_t there, len;
    enum nxl_code code;
    struct nxl_err err;
};

static int moved(void *arg)
{
    struct moving *m = arg;

    m->code = near_move(m->near, m->op, m->remote, 0, m->there, m->len, &m->err);
    return m->code == NXL_OK;
}

int near_moves(struct near *near, enum nxl_op_kind op, struct nxl_remote *remote, uint64_t there,
               uint64_t len, uint64_t timeout_ns)
{
    struct moving m = {.near = near, .remote = remote, .op = op, .there = there, .len = len};

    if (cluster_until(moved, &m, timeout_ns))
        return 1;
    fprintf(stderr, "the last try ended with %s: %s\n", nxl_code_name(m.code), m.err.text);
    return 0;
}

unsigned near_count(struct near *near, uint32_t kind, uint64_t quiet_ns)
{
    struct nxl_event event;
    unsigned count = 0;

    while (cluster_event(near->client, near->peer, kind, quiet_ns, &event))
        count++;
    return count;
}

struct nxl_remote_state near_state(struct near *near, struct nxl_remote *remote)
{
    struct nxl_remote_state state = {.size = sizeof(state)};
    struct nxl_err err = {0};

    must(nxl_remote_state(near->peer, remote, &state, &err), &err, "state");
    return state;
}

uint64_t near_word(uint64_t offset)
{
    return offset / 8 * 0x9e3779b97f4a7c15u;
}
