/* stream_conn.c - one connection to an operator: TLS, hello with the token, bytes both ways,
 * silence, and its end. Loop thread. */
#include "cluster/stream_internal.h"

#include "base/fd.h"
#include "base/loop.h"
#include "base/mem.h"
#include "cluster/trust.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CA_MAX (1u << 20)
#define GRACE_NS (250 * NXL_MS)
#define CERT_AGAIN_NS (60 * NXL_SEC)

/* ---- the end ------------------------------------------------------------------------------ */

void stream_hang_up(struct stream_end *end)
{
    int was_live = end->state == END_LIVE;

    nxl_tls_close(end->tls);
    end->tls = NULL;
    nxl_timer_stop(end->timer);
    nxl_bytes_fini(&end->in);
    nxl_bytes_fini(&end->out);
    end->fence_count = 0; /* nobody to acknowledge to: the next snapshot is */
    end->state = END_WAIT;
    end->synced = 0;
    if (was_live)
        stream_count_up(end->stream);
}

void stream_fail(struct stream_end *end, int refused, const char *fmt, ...)
{
    struct nxl_stream *stream = end->stream;
    char why[sizeof(end->why)];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(why, sizeof(why), fmt, args);
    va_end(args);
    nxl_metric_add(refused ? stream->metrics.refused : stream->metrics.failures, 1);
    if (end->state == END_LIVE || strcmp(why, end->why) != 0)
        nxl_warn("stream", "event=\"operator lost\" address=%s why=%s", end->text, nxl_quote(why));
    (void)nxl_copy_text(end->why, sizeof(end->why), why);
    end->failures = end->state == END_LIVE ? 0 : end->failures + 1;
    end->refused_ns = refused ? nxl_now_ns() : 0;
    stream_hang_up(end);
    stream_redial(end);
}

/* ---- out ---------------------------------------------------------------------------------- */

static void pump(struct stream_end *end)
{
    size_t sent;

    if (end->out.size == 0 || end->tls == NULL)
        return;
    sent = nxl_tls_write(end->tls, end->out.data, end->out.size);
    if (sent == end->out.size)
        nxl_bytes_fini(&end->out);
    else
        nxl_bytes_drop(&end->out, sent);
}

void stream_say(struct stream_end *end, const struct nxl_stream_frame *frame)
{
    struct nxl_stream *stream = end->stream;
    int idle = end->out.size == 0;
    struct nxl_err err;

    if (end->tls == NULL)
        return;
    if (end->out.size > STREAM_OUT_MAX) {
        nxl_metric_add(stream->metrics.dropped, 1);
        return;
    }
    if (nxl_stream_encode(frame, &end->out, &err) != NXL_OK) {
        nxl_error("stream", "event=\"frame not sent\" why=%s", nxl_quote(err.text));
        return;
    }
    if (idle) /* else on_room goes on, with the very bytes that were refused first */
        pump(end);
}

/* ---- hello -------------------------------------------------------------------------------- */

static enum nxl_code token_read(const struct nxl_stream *stream, char **ret, struct nxl_err *err)
{
    size_t size = 0;
    enum nxl_code code;

    if (stream->token_file[0] == '\0') {
        *ret = nxl_strdup("");
        return NXL_OK;
    }
    code = nxl_read_file(stream->token_file, NXL_STREAM_TOKEN_MAX, ret, &size, err);
    if (code != NXL_OK)
        return nxl_err_wrap(err, code, "stream.token_file");
    (*ret)[strcspn(*ret, "\r\n")] = '\0';
    return NXL_OK;
}

static int wants_certificate(const struct nxl_stream *stream)
{
    return stream->trust != NULL &&
           (!nxl_trust_ready(stream->trust) ||
            nxl_trust_left_s(stream->trust) < (int64_t)(stream->renew_ns / NXL_SEC));
}

static void say_hello(struct stream_end *end)
{
    struct nxl_stream *stream = end->stream;
    struct nxl_stream_frame hello = {.type = NXL_STREAM_HELLO,
                                     .version_min = NXL_STREAM_VERSION_MIN,
                                     .version_max = NXL_STREAM_VERSION_MAX,
                                     .node = stream->node,
                                     .agent = stream->agent,
                                     .cluster = stream->cluster,
                                     .epoch = end->epoch,
                                     .seq = end->seq};
    struct nxl_bytes csr = {0};
    struct nxl_err err;
    char *token = NULL;

    if (token_read(stream, &token, &err) != NXL_OK) {
        stream_fail(end, 1, "%s", err.text);
        return;
    }
    if (wants_certificate(stream) && nxl_trust_request(stream->trust, &csr, &err) == NXL_OK) {
        hello.csr = (const char *)csr.data;
        end->cert_asked_ns = nxl_now_ns();
    }
    hello.token = token;
    stream_say(end, &hello);
    OPENSSL_cleanse(token, strlen(token));
    free(token);
    nxl_bytes_fini(&csr);
}

void stream_ask_certificate(struct stream_end *end)
{
    struct nxl_stream *stream = end->stream;
    struct nxl_stream_frame frame = {.type = NXL_STREAM_CERT};
    struct nxl_bytes csr = {0};
    uint64_t now = nxl_now_ns();
    struct nxl_err err;

    if (!wants_certificate(stream) || now - end->cert_asked_ns < CERT_AGAIN_NS)
        return;
    end->cert_asked_ns = now;
    if (nxl_trust_request(stream->trust, &csr, &err) == NXL_OK) {
        frame.csr = (const char *)csr.data;
        stream_say(end, &frame);
    }
    nxl_bytes_fini(&csr);
}

/* ---- events ------------------------------------------------------------------------------- */

static void on_open(void *arg)
{
    struct stream_end *end = arg;

    end->state = END_HELLO;
    say_hello(end);
}

static void on_room(void *arg)
{
    pump(arg);
}

static void on_end(void *arg, const char *why)
{
    stream_fail(arg, 0, "%s", why);
}

static void take_frame(struct stream_end *end, struct nxl_view body)
{
    struct nxl_stream_frame frame;
    struct nxl_err err;

    if (nxl_stream_decode(body, &frame, &err) != NXL_OK) {
        stream_fail(end, 1, "%s", err.text);
        return;
    }
    nxl_metric_add(end->stream->metrics.frames, 1);
    stream_on_frame(end, &frame);
    nxl_stream_frame_fini(&frame);
}

static void on_data(void *arg, const void *data, size_t size)
{
    struct stream_end *end = arg;
    const struct nxl_tls *tls = end->tls;
    size_t used = 0;

    end->heard_ns = nxl_now_ns();
    end->grace = 0;
    nxl_bytes_put(&end->in, data, size);
    while (end->tls == tls) {
        struct nxl_view rest = {end->in.data + used, end->in.size - used}, body;
        size_t taken = 0;
        int got = nxl_stream_split(rest, &body, &taken);

        if (got < 0)
            stream_fail(end, 1, "a frame's length is 0 or above %u", NXL_STREAM_FRAME_MAX);
        if (got <= 0)
            break;
        used += taken;
        take_frame(end, body);
    }
    if (end->tls != tls)
        return; /* it ended inside */
    nxl_bytes_drop(&end->in, used);
    if (end->in.size == 0)
        nxl_bytes_fini(&end->in);
}

static const struct nxl_tls_ops tls_ops = {
    .on_open = on_open, .on_data = on_data, .on_room = on_room, .on_end = on_end};

/* ---- connecting --------------------------------------------------------------------------- */

/* The bundle is read again when it changes, so that an authority can be replaced under us. */
static enum nxl_code context_load(struct nxl_stream *stream, struct nxl_err *err)
{
    struct nxl_tls_context *context;
    struct stat info = {0};
    char *pem = NULL;
    size_t size = 0;
    uint64_t stamp;
    enum nxl_code code;

    (void)stat(stream->ca_file, &info); /* a missing file is told by the read */
    stamp = (uint64_t)info.st_ino * 1000003u + (uint64_t)info.st_mtim.tv_sec * NXL_SEC +
            (uint64_t)info.st_mtim.tv_nsec;
    if (stream->context != NULL && stamp == stream->ca_stamp)
        return NXL_OK;
    code = nxl_read_file(stream->ca_file, CA_MAX, &pem, &size, err);
    if (code == NXL_OK)
        code = nxl_tls_client((struct nxl_view){pem, size}, &context, err);
    free(pem);
    if (code != NXL_OK)
        return stream->context != NULL ? NXL_OK : nxl_err_wrap(err, code, "stream.ca_file");
    nxl_tls_context_unref(stream->context);
    stream->context = context;
    stream->ca_stamp = stamp;
    return NXL_OK;
}

enum nxl_code stream_connect(struct stream_end *end, int fd, struct nxl_err *err)
{
    struct nxl_stream *stream = end->stream;
    const char *name = stream->server_name[0] != '\0' ? stream->server_name : end->host->name;
    enum nxl_code code = context_load(stream, err);

    if (code != NXL_OK) {
        (void)close(fd);
        return code;
    }
    return nxl_tls_connect(stream->loop, stream->context, fd, name, &end->ticket, &tls_ops, end,
                           &end->tls, err);
}

static uint64_t silence_of(const struct stream_end *end)
{
    uint64_t pings = 3ull * end->ping_ms * NXL_MS;

    return pings > end->stream->silent_ns ? pings : end->stream->silent_ns;
}

static void judge_silence(struct stream_end *end)
{
    uint64_t silent = nxl_now_ns() - end->heard_ns, bound = silence_of(end);

    if (silent < bound) {
        nxl_timer_start(end->timer, bound - silent, 0);
        return;
    }
    if (!end->grace) { /* timers come before sockets: after a pause of ours the bytes lie there */
        end->grace = 1;
        nxl_timer_start(end->timer, GRACE_NS, 0);
        return;
    }
    stream_fail(end, 0, "no ping for %llu ms", (unsigned long long)(silent / NXL_MS));
}

void stream_on_timer(void *arg)
{
    struct stream_end *end = arg;

    switch (end->state) {
    case END_WAIT:
        stream_dial(end);
        break;
    case END_LIVE:
        judge_silence(end);
        break;
    default:
        stream_fail(end, 0, "no welcome within %llu ms",
                    (unsigned long long)(end->stream->connect_ns / NXL_MS));
        break;
    }
}
