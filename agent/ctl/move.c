/* move.c - `nixletctl get` and `put`: a file on this side, a peer's region on the other. */
#include "ctl/move.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "ctl/args.h"
#include "ctl/ctl.h"
#include "ctl/print.h"

#define FIND_MS 10000u

struct move {
    const struct ctl *ctl;
    const struct move_options *options;
    uint64_t deadline_ns;
    struct nxl_client *client;
    struct nxl_peer *peer;
    struct nxl_remote *remote;
    struct nxl_memreg *reg;
    struct move_file file;
    struct move_where where;
    struct move_result result;
    uint64_t digest;
};

/* A mistyped name must not cost the whole time. */
static uint32_t find_ms(const struct move *move)
{
    uint64_t now = nxl_now_ns();
    uint64_t left = now < move->deadline_ns ? (move->deadline_ns - now) / NXL_MS : 0;

    return left > FIND_MS ? FIND_MS : (uint32_t)left;
}

static enum nxl_code connect_peer(struct move *move, struct nxl_err *err)
{
    struct nxl_client_options options = {.size = sizeof(options), .socket_path = move->ctl->socket};
    const struct move_options *o = move->options;
    char name[64];
    enum nxl_code code = nxl_client_open(&options, &move->client, err);

    if (code != NXL_OK)
        return code;
    (void)snprintf(name, sizeof(name), "nixletctl-%d-%08llx", (int)getpid(),
                   (unsigned long long)(nxl_random_u64() >> 32));
    code = nxl_peer_open(move->client, name, &move->peer, err);
    if (code != NXL_OK)
        return code;
    code = nxl_fetch_metadata(move->peer, o->peer, NULL, o->at, find_ms(move), &move->remote, err);
    if ((code == NXL_NOT_FOUND || code == NXL_TIMEOUT) && o->at == NULL)
        return nxl_err_wrap(err, code, "--at HOST:PORT asks another agent instead of the store");
    return code;
}

/* The far side first for a get, whose file takes its size from there. */
static enum nxl_code both_sides(struct move *move, struct nxl_err *err)
{
    const struct move_options *o = move->options;
    uint64_t length = (uint64_t)o->length;
    enum nxl_code code = NXL_OK;

    if (o->op == NXL_WRITE) {
        code = move_file_open(o->file, &move->file, err);
        if (code == NXL_OK && length > move->file.size)
            code = nxl_err_set(err, NXL_INVALID_PARAM, 0,
                               "'%.200s' has %" PRIu64 " bytes, not %" PRIu64, o->file,
                               move->file.size, length);
        if (length == 0)
            length = move->file.size;
    }
    if (code == NXL_OK)
        code = connect_peer(move, err);
    if (code == NXL_OK)
        code = move_where_find(move->ctl, o, nxl_remote_incarnation(move->remote), length,
                               &move->where, err);
    if (code == NXL_OK && o->op == NXL_READ)
        code = move_file_create(o->file, move->where.length, &move->file, err);
    return code;
}

static enum nxl_code move_bytes(struct move *move, struct nxl_err *err)
{
    struct nxl_region region = {.addr = move->file.base, .len = move->file.size};
    struct move_run run = {
        .ctl = move->ctl,
        .peer = move->peer,
        .remote = move->remote,
        .op = move->options->op,
        .local = move->file.base,
        .where = move->where,
        .chunk = (uint64_t)move->options->chunk,
        .deadline_ns = move->deadline_ns,
    };
    enum nxl_code code = nxl_register(move->peer, &region, 1, &move->reg, err);

    if (code != NXL_OK)
        return nxl_err_wrap(err, code, "register '%.200s'", move->options->file);
    /* A put says what it sent, a get what it has. */
    if (run.op == NXL_WRITE)
        code = move_file_digest(&move->file, move->where.length, &move->digest, err);
    if (code == NXL_OK)
        code = move_chunks(&run, &move->result, err);
    if (code == NXL_OK && run.op == NXL_READ)
        code = move_file_digest(&move->file, move->where.length, &move->digest, err);
    if (code == NXL_OK && run.op == NXL_READ)
        code = move_file_keep(&move->file, err);
    return code;
}

static int report(const struct move *move)
{
    const struct move_result *r = &move->result;
    const char *verb = move->options->op == NXL_READ ? "get" : "put";
    double rate = r->ns > 0 ? (double)r->bytes / (double)r->ns : 0.0;
    char digest[24], address[24], size[32];

    (void)snprintf(digest, sizeof(digest), "xxh64:%016" PRIx64, move->digest);
    (void)snprintf(address, sizeof(address), "0x%" PRIx64, move->where.address);
    if (move->ctl->json)
        return ctl_json(
            move->ctl,
            json_pack(
                "{s:s, s:s, s:s, s:s, s:s, s:I, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:f, s:f}",
                "op", verb, "peer", move->options->peer, "incarnation",
                nxl_remote_incarnation(move->remote), "file", move->options->file, "address",
                address, "bytes", (json_int_t)r->bytes, "digest", digest, "backend", r->backend,
                "path", nxl_path_name(r->path), "protocol", nxl_protocol_name(r->protocol),
                "device", r->device, "transfers", (json_int_t)r->transfers, "descriptors",
                (json_int_t)r->descriptors, "pieces", (json_int_t)r->pieces, "seconds",
                (double)r->ns / 1e9, "gb_per_s", rate));
    printf("%s %s %s %s at %s of %s\n", verb, ctl_bytes_text(r->bytes, size, sizeof(size)),
           move->options->op == NXL_READ ? "from" : "to", move->options->peer, address,
           nxl_remote_incarnation(move->remote));
    printf("digest   %s  %s\n", digest, move->options->file);
    printf("path     %s by %s%s%s, %s\n", nxl_path_name(r->path), r->backend,
           r->device[0] != '\0' ? " on " : "", r->device, nxl_protocol_name(r->protocol));
    printf("speed    %.3f s, %.2f GB/s, %" PRIu64 " transfer%s\n", (double)r->ns / 1e9, rate,
           r->transfers, r->transfers == 1 ? "" : "s");
    return ctl_flush(move->ctl);
}

static int move_run_all(const struct ctl *ctl, const struct move_options *options)
{
    struct move move = {.ctl = ctl,
                        .options = options,
                        .deadline_ns = nxl_now_ns() + (uint64_t)options->timeout_ns,
                        .file = {.fd = -1, .guard = -1}};
    struct nxl_err err = {0};
    enum nxl_code code;
    int result;

    move_signals_listen();
    code = both_sides(&move, &err);
    if (code == NXL_OK)
        code = move_bytes(&move, &err);
    if (code != NXL_OK)
        NXL_IGNORE(
            nxl_err_wrap(&err, code, options->op == NXL_READ ? "get" : "put")); /* said below */
    result = code == NXL_OK
                 ? report(&move)
                 : ctl_fail(ctl, code == NXL_INVALID_PARAM ? CTL_USAGE : CTL_FAILED, &err);
    nxl_client_close(move.client); /* before the memory goes */
    move_file_fini(&move.file);
    return result;
}

static int move_command(const struct ctl_command *self, struct ctl *ctl, enum nxl_op_kind op,
                        int argc, char **argv)
{
    struct move_options o = {
        .op = op, .region = -1, .chunk = 64 << 20, .timeout_ns = 60 * (int64_t)NXL_SEC};
    const struct ctl_option options[] = {
        {"peer", CTL_TEXT, &o.peer, 0, 0, "NAME", "whose memory"},
        {"region", CTL_COUNT, &o.region, 0, INT64_MAX, "ID",
         "which region; not needed if it has one"},
        {"address", CTL_ADDRESS, &o.address, 0, 0, "HEX",
         "begin there, in the peer's own addresses"},
        {"length", CTL_SIZE, &o.length, 1, INT64_MAX, "SIZE",
         op == NXL_READ ? "how much (default: to the region's end)"
                        : "how much (default: the file)"},
        {"at", CTL_TEXT, &o.at, 0, 0, "HOST:PORT", "ask the agent there instead of the store"},
        {"timeout", CTL_DURATION, &o.timeout_ns, NXL_MS, 86400 * (int64_t)NXL_SEC, "TIME",
         "for all of it (default 60s)"},
        {"chunk", CTL_SIZE, &o.chunk, 4096, 1ll << 40, "SIZE", "of one transfer (default 64Mi)"},
        {NULL, CTL_TEXT, NULL, 0, 0, NULL, NULL},
    };
    struct ctl_words words;
    struct nxl_err err = {0};
    int code = ctl_args_read(ctl, self, options, argc, argv, 1, 1, &words);

    if (code >= 0)
        return code;
    o.file = words.at[0];
    if (o.peer == NULL || o.peer[0] == '\0') {
        NXL_IGNORE(
            nxl_err_set(&err, NXL_INVALID_PARAM, 0,
                        "%s: --peer NAME is missing; `nixletctl peers` lists those the agent "
                        "knows",
                        self->name)); /* said below */
        return ctl_fail(ctl, CTL_USAGE, &err);
    }
    return move_run_all(ctl, &o);
}

int ctl_get_run(const struct ctl_command *self, struct ctl *ctl, int argc, char **argv)
{
    return move_command(self, ctl, NXL_READ, argc, argv);
}

int ctl_put_run(const struct ctl_command *self, struct ctl *ctl, int argc, char **argv)
{
    return move_command(self, ctl, NXL_WRITE, argc, argv);
}
