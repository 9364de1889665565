/* soak_client.c - one of several clients that do random things for a while:
 *   soak_client SOCKET NAME SEED SECONDS PEERS
 * Names are soak0 ... soak<PEERS-1>. Each owns a page-filled area that others read and check, and
 * an inbox with a slot for each writer. Ends with status 0 and a line of counts, 1 on a wrong byte,
 * 2 on a transfer that never ends, 3 on an answer that makes no sense. */
#include <nixlet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define AREA (1u << 20)   /* read by others */
#define SLOT (128u << 10) /* of the inbox, one per writer */
#define SCRATCH (1u << 20)
#define PEERS_MAX 16
#define RUNS 64

struct far {
    struct nxl_remote *remote;
    uint64_t base; /* of its memory; 0: not known */
};
static struct {
    struct nxl_client *client;
    struct nxl_peer *peer;
    struct nxl_memreg *reg;
    unsigned char *memory; /* AREA | PEERS_MAX slots | SCRATCH */
    uint64_t size, state;
    unsigned self, peers;
    struct far far[PEERS_MAX];
    unsigned long ok, failed, cancelled, notices, sent, lost, downs, reopened;
} me;

static uint64_t now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static uint32_t dice(uint32_t sides)
{
    me.state = me.state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((me.state >> 33) % sides);
}

static void stop(int status, const char *what, const struct nxl_err *err)
{
    fprintf(stderr, "soak%u: %s: %s\n", me.self, what, err != NULL ? err->text : "");
    _Exit(status);
}

/* The word at byte offset of peer's area. The same in every life of the peer. */
static uint64_t word(unsigned peer, uint64_t offset)
{
    return (offset / 8 + 1) * 0x9e3779b97f4a7c15u ^ ((uint64_t)peer << 56);
}

static int gone(enum nxl_code code)
{
    switch (code) {
    case NXL_REMOTE_DISCONNECT:
    case NXL_STALE:
    case NXL_NOT_FOUND:
    case NXL_UNREACHABLE:
    case NXL_BACKEND:
    case NXL_TIMEOUT:
    case NXL_NO_AGENT:
    case NXL_CANCELED:
    case NXL_BUSY:
    case NXL_LIMIT:
    case NXL_NOT_ALLOWED:
        return 1;
    default:
        return 0;
    }
}

static void open_all(const char *name)
{
    struct nxl_region region = {.addr = me.memory, .len = me.size};
    struct nxl_err err = {0};
    uint64_t deadline = now() + 30000000000u;
    enum nxl_code code;

    /* After its own kill the old life of the name may still be known for a moment. */
    do {
        code = nxl_peer_open(me.client, name, &me.peer, &err);
        if (code == NXL_OK)
            code = nxl_register(me.peer, &region, 1, &me.reg, &err);
        if (code == NXL_OK)
            code = nxl_send_metadata(me.peer, NULL, NULL, NULL, 0, 0, &err);
        if (code != NXL_OK)
            (void)poll(NULL, 0, 10);
    } while (code != NXL_OK && gone(code) && now() < deadline);
    if (code != NXL_OK)
        stop(3, "open", &err);
}

static void events_take(void)
{
    struct nxl_event event;

    while (nxl_peer_next(me.peer, &event) == NXL_OK) {
        if (event.kind == NXL_EVENT_NOTICE && event.size == 16) {
            unsigned from = ((const unsigned char *)event.payload)[0];
            uint64_t base;

            memcpy(&base, (const unsigned char *)event.payload + 8, 8);
            me.notices++;
            if (from < me.peers)
                me.far[from].base = base;
        } else if (event.kind == NXL_EVENT_NOTICE_LOST) {
            me.lost++;
        } else if (event.kind == NXL_EVENT_PEER_DOWN) {
            me.downs++;
            for (unsigned i = 0; i < me.peers; i++) {
                if (me.far[i].remote != NULL &&
                    strcmp(nxl_remote_incarnation(me.far[i].remote), event.incarnation) == 0)
                    me.far[i] = (struct far){0};
            }
        } else if (event.kind == NXL_EVENT_AGENT_GONE) {
            memset(me.far, 0, sizeof(me.far));
        }
    }
}

static void greet(unsigned to)
{
    unsigned char payload[16] = {(unsigned char)me.self};
    uint64_t base = (uint64_t)(uintptr_t)me.memory;
    struct nxl_err err = {0};

    memcpy(payload + 8, &base, 8);
    if (nxl_notify(me.peer, me.far[to].remote, payload, sizeof(payload), &err) == NXL_OK)
        me.sent++;
}

static void meet(unsigned to)
{
    char name[32];
    struct nxl_err err = {0};
    enum nxl_code code;

    snprintf(name, sizeof(name), "soak%u", to);
    code = nxl_fetch_metadata(me.peer, name, NULL, NULL, 200, &me.far[to].remote, &err);
    if (code == NXL_OK) {
        greet(to);
        return;
    }
    me.far[to] = (struct far){0};
    if (!gone(code))
        stop(3, "fetch", &err);
}

static unsigned char *scratch(void)
{
    return me.memory + AREA + PEERS_MAX * SLOT;
}

static void read_check(unsigned from, const struct nxl_run *here, const struct nxl_run *there,
                       uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const unsigned char *bytes = (const unsigned char *)(uintptr_t)here[i].addr;
        uint64_t offset = there[i].addr - me.far[from].base;

        for (uint64_t k = 0; k + 8 <= here[i].len; k += 8) {
            uint64_t got;

            memcpy(&got, bytes + k, 8);
            if (got != word(from, offset + k)) {
                fprintf(stderr, "soak%u: wrong byte from soak%u at %llu\n", me.self, from,
                        (unsigned long long)(offset + k));
                _Exit(1);
            }
        }
    }
}

static uint32_t runs_make(enum nxl_op_kind op, unsigned to, struct nxl_run *here,
                          struct nxl_run *there)
{
    uint32_t count = 1 + dice(RUNS), len = 8u << dice(11); /* 8 .. 8192 */
    uint64_t room = op == NXL_READ ? AREA : SLOT, base = op == NXL_READ ? 0 : AREA + me.self * SLOT;

    if ((uint64_t)count * len > room)
        count = (uint32_t)(room / len);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t at =
            op == NXL_READ ? (uint64_t)dice((uint32_t)(room / len)) * len : (uint64_t)i * len;

        here[i] = (struct nxl_run){
            .addr = (uint64_t)(uintptr_t)scratch() + (uint64_t)i * len, .len = len, .count = 1};
        there[i] = (struct nxl_run){.addr = me.far[to].base + base + at, .len = len, .count = 1};
    }
    return count;
}

static void transfer_once(unsigned to)
{
    struct nxl_run here[RUNS], there[RUNS];
    enum nxl_op_kind op = dice(2) ? NXL_READ : NXL_WRITE;
    struct nxl_transfer_options options = {.size = sizeof(options),
                                           .timeout_ns = dice(8) == 0 ? 5000000u : 20000000000u};
    uint32_t count = runs_make(op, to, here, there);
    struct nxl_transfer *t;
    struct nxl_err err = {0};
    enum nxl_code code = nxl_transfer_create(me.peer, op, me.far[to].remote, NXL_MEM_DRAM, here,
                                             count, there, count, &options, &t, &err);

    if (code != NXL_OK) {
        if (!gone(code))
            stop(3, "create", &err);
        me.far[to] = (struct far){0};
        return;
    }
    for (unsigned round = 1 + dice(3); round > 0; round--) {
        code = nxl_transfer_post(t, &err);
        if (code == NXL_OK && dice(6) == 0)
            (void)nxl_transfer_cancel(t, &err);
        if (code == NXL_OK)
            code = nxl_transfer_wait(t, 40000000000u, &err);
        if (nxl_transfer_poll(t) == NXL_IN_PROG ||
            nxl_transfer_wait_quiesced(t, 40000000000u, &err) != NXL_OK)
            stop(2, "a transfer does not end", &err);
        if (code == NXL_OK && op == NXL_READ)
            read_check(to, here, there, count);
        me.ok += code == NXL_OK;
        me.cancelled += code == NXL_CANCELED;
        me.failed += code != NXL_OK && code != NXL_CANCELED;
        if (code != NXL_OK && !gone(code))
            stop(3, nxl_code_name(code), &err);
        if (code != NXL_OK)
            break;
    }
    if (code == NXL_STALE || code == NXL_REMOTE_DISCONNECT || code == NXL_NOT_FOUND)
        me.far[to] = (struct far){0};
    if (nxl_transfer_release(t, &err) != NXL_OK)
        stop(3, "release", &err);
}

static void register_once(void)
{
    struct nxl_region regions[8];
    struct nxl_memreg *regs[8];
    uint32_t count = 1 + dice(8);
    struct nxl_err err = {0};
    enum nxl_code code;

    for (uint32_t i = 0; i < count; i++)
        regions[i] = (struct nxl_region){.addr = scratch() + dice(SCRATCH / 2),
                                         .len = 1 + dice(SCRATCH / 2)};
    code = nxl_register(me.peer, regions, count, regs, &err);
    if (code == NXL_OK)
        code = nxl_deregister(me.peer, regs, count, &err);
    if (code != NXL_OK && !gone(code))
        stop(3, "register", &err);
}

static void act(const char *name)
{
    unsigned to = dice(me.peers);
    uint32_t what = dice(100);
    struct nxl_err err = {0};

    events_take();
    if (to == me.self) {
        register_once();
    } else if (me.far[to].remote == NULL) {
        meet(to);
    } else if (me.far[to].base == 0 || what < 5) {
        greet(to); /* it answers by greeting us some day */
    } else if (what < 90) {
        transfer_once(to);
    } else if (what < 93) {
        (void)nxl_invalidate(me.peer, me.far[to].remote, &err);
        me.far[to] = (struct far){0};
    } else if (what == 93) {
        (void)nxl_peer_close(me.peer, &err);
        memset(me.far, 0, sizeof(me.far));
        me.reopened++;
        open_all(name);
    }
    if (nxl_client_check(me.client, &err) != NXL_OK)
        (void)poll(NULL, 0, 5); /* no agent at this moment */
}

int main(int argc, char **argv)
{
    struct nxl_client_options options = {.size = sizeof(options), .reconnect = 1};
    struct nxl_err err = {0};
    uint64_t end;

    if (argc != 6)
        return 3;
    options.socket_path = argv[1];
    me.self = (unsigned)atoi(argv[2] + strlen("soak"));
    me.state = strtoull(argv[3], NULL, 10) * 2654435761u + me.self;
    me.peers = (unsigned)atoi(argv[5]);
    end = now() + strtoull(argv[4], NULL, 10) * 1000000000u;
    me.size = AREA + PEERS_MAX * SLOT + SCRATCH;
    while (nxl_client_open(&options, &me.client, &err) != NXL_OK && now() < end)
        (void)poll(NULL, 0, 20);
    if (me.client == NULL || nxl_alloc(me.size, 0, (void **)&me.memory, &err) != NXL_OK)
        stop(3, "start", &err);
    for (uint64_t i = 0; i < AREA; i += 8) {
        uint64_t w = word(me.self, i);

        memcpy(me.memory + i, &w, 8);
    }
    open_all(argv[2]);
    while (now() < end)
        act(argv[2]);
    printf("soak%u ok=%lu failed=%lu cancelled=%lu notices=%lu sent=%lu lost=%lu downs=%lu "
           "reopened=%lu\n",
           me.self, me.ok, me.failed, me.cancelled, me.notices, me.sent, me.lost, me.downs,
           me.reopened);
    nxl_client_close(me.client);
    nxl_free(me.memory);
    return 0;
}
