/* tls.c - one TLS connection on the loop: connect, handshake, bytes both ways, and its end. Called
 * by operator/push and agent/cluster. Loop thread. */
#include "stream/tls_internal.h"

#include "base/assert.h"
#include "base/loop.h"
#include "base/mem.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define READ_CHUNK 16384
#define READS_A_TURN 32 /* then others have their turn */
#define USER_TIMEOUT_MS 15000u

struct nxl_tls {
    struct nxl_tls_context *context;
    const struct nxl_tls_ops *ops;
    void *arg;
    struct nxl_watch *watch;
    SSL *ssl;
    struct tls_socket socket;
    struct nxl_tls_ticket *ticket;
    enum { TLS_CONNECT, TLS_HANDSHAKE, TLS_OPEN, TLS_ENDED } state;
    unsigned events;
    uint8_t room_wanted; /* a write took too little */
    uint8_t want_write;  /* the handshake, or a read, waits for room */
    uint8_t again;       /* decrypted bytes were left for the next turn */
    uint8_t paused, broken, closed, in_event;
    char peer[64];
    char why[256];
};

/* ---- the end ------------------------------------------------------------------------------ */

static void tls_free(struct nxl_tls *tls)
{
    nxl_watch_close(tls->watch);
    if (tls->ssl != NULL) {
        ERR_clear_error();
        if (tls->state == TLS_OPEN && !tls->broken)
            (void)SSL_shutdown(tls->ssl); /* says the end; nobody waits for the answer */
        /* A connection that broke is no reason to forget its ticket. */
        SSL_set_shutdown(tls->ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
        SSL_free(tls->ssl);
        ERR_clear_error();
    }
    nxl_tls_context_unref(tls->context);
    (void)close(tls->socket.fd);
    free(tls);
}

void nxl_tls_close(struct nxl_tls *tls)
{
    if (tls == NULL || tls->closed)
        return;
    tls->closed = 1;
    if (!tls->in_event)
        tls_free(tls);
}

/* From the event handler only. */
static void tls_end(struct nxl_tls *tls)
{
    if (tls->state == TLS_ENDED || tls->closed)
        return;
    tls->broken = 1;
    tls->state = TLS_ENDED;
    nxl_watch_change(tls->watch, 0);
    tls->ops->on_end(tls->arg, tls->why);
}

/* Anywhere: the loop will come round with the end. */
static void tls_break(struct nxl_tls *tls)
{
    if (tls->broken)
        return;
    tls->broken = 1;
    (void)shutdown(tls->socket.fd, SHUT_RDWR); /* makes it readable: that is the wake-up */
    if (tls->state != TLS_ENDED && !tls->closed) {
        tls->events = NXL_WATCH_READ;
        nxl_watch_change(tls->watch, tls->events);
    }
}

static void explain(struct nxl_tls *tls, const char *step)
{
    long verify = SSL_get_verify_result(tls->ssl);
    unsigned long error = ERR_peek_last_error();
    const char *reason = error != 0 ? ERR_reason_error_string(error) : NULL;

    if (tls->why[0] != '\0')
        return;
    if (verify != X509_V_OK)
        (void)snprintf(tls->why, sizeof(tls->why), "%s: certificate of the far side: %s", step,
                       X509_verify_cert_error_string(verify));
    else if (tls->socket.error != 0)
        (void)snprintf(tls->why, sizeof(tls->why), "%s: %s", step, strerror(tls->socket.error));
    else if (reason != NULL)
        (void)snprintf(tls->why, sizeof(tls->why), "%s: %s", step, reason);
    else
        (void)snprintf(tls->why, sizeof(tls->why), "%s: the far side closed the connection", step);
}

/* 0: wait. -1: over, with why. */
static int wait_or_fail(struct nxl_tls *tls, int result, const char *step)
{
    switch (SSL_get_error(tls->ssl, result)) {
    case SSL_ERROR_WANT_READ:
        return 0;
    case SSL_ERROR_WANT_WRITE:
        tls->want_write = 1;
        return 0;
    case SSL_ERROR_ZERO_RETURN:
        if (tls->why[0] == '\0')
            (void)snprintf(tls->why, sizeof(tls->why), "the far side closed the connection");
        return -1;
    default:
        explain(tls, step);
        return -1;
    }
}

/* ---- events ------------------------------------------------------------------------------- */

static void tls_want(struct nxl_tls *tls)
{
    unsigned events = tls->paused && tls->state == TLS_OPEN ? 0 : NXL_WATCH_READ;

    if (tls->closed || tls->broken)
        return;
    if (tls->state == TLS_CONNECT)
        events = NXL_WATCH_WRITE;
    else if (tls->want_write || tls->room_wanted || (tls->again && !tls->paused))
        events |= NXL_WATCH_WRITE;
    if (events == tls->events)
        return;
    tls->events = events;
    nxl_watch_change(tls->watch, events);
}

static void peer_name(struct nxl_tls *tls)
{
    struct sockaddr_storage far = {0};
    socklen_t size = sizeof(far);
    char host[INET6_ADDRSTRLEN] = "?";
    const struct sockaddr_in *in = (const void *)&far;
    const struct sockaddr_in6 *in6 = (const void *)&far;

    if (getpeername(tls->socket.fd, (void *)&far, &size) != 0)
        return;
    if (far.ss_family == AF_INET6) {
        (void)inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof(host));
        (void)snprintf(tls->peer, sizeof(tls->peer), "[%s]:%u", host, ntohs(in6->sin6_port));
    } else if (far.ss_family == AF_INET) {
        (void)inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host));
        (void)snprintf(tls->peer, sizeof(tls->peer), "%s:%u", host, ntohs(in->sin_port));
    }
}

static int on_connected(struct nxl_tls *tls)
{
    int error = 0;
    socklen_t size = sizeof(error);

    if (getsockopt(tls->socket.fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
        error = errno;
    if (error != 0) {
        (void)snprintf(tls->why, sizeof(tls->why), "connect: %s", strerror(error));
        return -1;
    }
    peer_name(tls);
    tls->state = TLS_HANDSHAKE;
    return 0;
}

static int do_handshake(struct nxl_tls *tls)
{
    int result;

    ERR_clear_error();
    tls->want_write = 0;
    result = SSL_do_handshake(tls->ssl);
    if (result != 1)
        return wait_or_fail(tls, result, "TLS handshake");
    tls->state = TLS_OPEN;
    tls->ops->on_open(tls->arg);
    return 0;
}

static int do_read(struct nxl_tls *tls)
{
    unsigned char chunk[READ_CHUNK];

    tls->again = 0;
    tls->want_write = 0;
    for (int i = 0; i < READS_A_TURN; i++) {
        size_t size = 0;
        int result;

        if (tls->closed || tls->paused || tls->broken)
            return 0;
        ERR_clear_error();
        result = SSL_read_ex(tls->ssl, chunk, sizeof(chunk), &size);
        if (result != 1)
            return wait_or_fail(tls, result, "TLS read");
        tls->ops->on_data(tls->arg, chunk, size);
    }
    tls->again = 1; /* maybe bytes wait inside, for which no descriptor becomes ready */
    return 0;
}

static void on_event(void *arg, int fd, unsigned events)
{
    struct nxl_tls *tls = arg;
    int result = tls->broken ? -1 : 0;

    (void)fd;
    tls->in_event = 1;
    tls->socket.drained = 0;
    if (result == 0 && tls->state == TLS_CONNECT)
        result = on_connected(tls);
    if (result == 0 && tls->state == TLS_HANDSHAKE)
        result = do_handshake(tls);
    if (result == 0 && tls->state == TLS_OPEN && !tls->closed)
        result = do_read(tls);
    if (result == 0 && tls->room_wanted && !tls->closed && !tls->broken) {
        tls->room_wanted = 0;
        tls->ops->on_room(tls->arg);
    }
    if (result == 0 && (events & NXL_WATCH_ERROR) != 0 && !tls->closed) {
        explain(tls, "connection");
        result = -1;
    }
    if (result < 0)
        tls_end(tls);
    else
        tls_want(tls);
    tls->in_event = 0;
    if (tls->closed)
        tls_free(tls);
}

/* ---- building ----------------------------------------------------------------------------- */

static void socket_setup(int fd)
{
    int on = 1, idle = 5, interval = 5, count = 3;
    unsigned timeout = USER_TIMEOUT_MS;

    /* Each is only better with, so a kernel that refuses one is no error. */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, sizeof(timeout));
}

static enum nxl_code tls_new(struct nxl_loop *loop, struct nxl_tls_context *context, int fd,
                             const struct nxl_tls_ops *ops, void *arg, struct nxl_tls **ret,
                             struct nxl_err *err)
{
    struct nxl_tls *tls = nxl_new0(sizeof(*tls));
    const BIO_METHOD *method = tls_bio_method();
    BIO *bio = method != NULL ? BIO_new(method) : NULL;
    enum nxl_code code;

    tls->context = context;
    tls_context_ref(context);
    tls->socket.fd = fd;
    tls->ops = ops;
    tls->arg = arg;
    tls->ssl = SSL_new(context->ctx);
    if (bio == NULL || tls->ssl == NULL) {
        BIO_free(bio);
        tls_free(tls);
        return nxl_err_set(err, NXL_UNKNOWN, 0, "TLS: no memory for a connection");
    }
    BIO_set_data(bio, &tls->socket);
    SSL_set_bio(tls->ssl, bio, bio); /* takes bio */
    SSL_set_app_data(tls->ssl, tls);
    socket_setup(fd);
    tls->state = context->server ? TLS_HANDSHAKE : TLS_CONNECT;
    tls->events = context->server ? NXL_WATCH_READ : NXL_WATCH_WRITE;
    code = nxl_watch_open(loop, fd, tls->events, on_event, tls, &tls->watch, err);
    if (code != NXL_OK) {
        tls_free(tls);
        return code;
    }
    *ret = tls;
    return NXL_OK;
}

enum nxl_code nxl_tls_accept(struct nxl_loop *loop, struct nxl_tls_context *context, int fd,
                             const struct nxl_tls_ops *ops, void *arg, struct nxl_tls **ret,
                             struct nxl_err *err)
{
    enum nxl_code code;

    NXL_ASSERT(context->server);
    code = tls_new(loop, context, fd, ops, arg, ret, err);
    if (code != NXL_OK)
        return code;
    SSL_set_accept_state((*ret)->ssl);
    peer_name(*ret);
    return NXL_OK;
}

static int name_set(SSL *ssl, const char *name)
{
    X509_VERIFY_PARAM *param = SSL_get0_param(ssl);

    if (X509_VERIFY_PARAM_set1_ip_asc(param, name) == 1)
        return 1;
    X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return SSL_set1_host(ssl, name) == 1 && SSL_set_tlsext_host_name(ssl, name) == 1;
}

enum nxl_code nxl_tls_connect(struct nxl_loop *loop, struct nxl_tls_context *context, int fd,
                              const char *name, struct nxl_tls_ticket *ticket,
                              const struct nxl_tls_ops *ops, void *arg, struct nxl_tls **ret,
                              struct nxl_err *err)
{
    struct nxl_tls *tls;
    enum nxl_code code;

    NXL_ASSERT(!context->server);
    code = tls_new(loop, context, fd, ops, arg, &tls, err);
    if (code != NXL_OK)
        return code;
    SSL_set_connect_state(tls->ssl);
    ERR_clear_error();
    if (!name_set(tls->ssl, name)) {
        tls_free(tls);
        return nxl_err_set(err, NXL_CONFIG, 0, "TLS: '%s' is no name of a server", name);
    }
    tls->ticket = ticket;
    if (ticket != NULL && ticket->session != NULL)
        (void)SSL_set_session(tls->ssl, ticket->session); /* else a full handshake */
    ERR_clear_error();
    *ret = tls;
    return NXL_OK;
}

void tls_on_ticket(SSL *ssl, SSL_SESSION *session)
{
    struct nxl_tls *tls = SSL_get_app_data(ssl);

    if (tls->ticket == NULL) {
        SSL_SESSION_free(session);
        return;
    }
    SSL_SESSION_free(tls->ticket->session);
    tls->ticket->session = session;
}

/* ---- out ---------------------------------------------------------------------------------- */

size_t nxl_tls_write(struct nxl_tls *tls, const void *data, size_t size)
{
    size_t total = 0;

    if (tls->broken || tls->closed)
        return size;
    if (tls->state != TLS_OPEN)
        return 0;
    while (total < size) {
        size_t sent = 0;
        int result;

        ERR_clear_error();
        result = SSL_write_ex(tls->ssl, (const unsigned char *)data + total, size - total, &sent);
        if (result == 1) {
            total += sent;
            continue;
        }
        switch (SSL_get_error(tls->ssl, result)) {
        case SSL_ERROR_WANT_WRITE:
        case SSL_ERROR_WANT_READ:
            tls->room_wanted = 1;
            tls_want(tls);
            return total;
        default:
            explain(tls, "TLS write");
            tls_break(tls);
            return size;
        }
    }
    return total;
}

void nxl_tls_pause(struct nxl_tls *tls, int pause)
{
    tls->paused = (uint8_t)(pause != 0);
    if (!pause)
        tls->again = 1;
    tls_want(tls);
}

int nxl_tls_resumed(const struct nxl_tls *tls)
{
    return SSL_session_reused(tls->ssl);
}

int nxl_tls_is_open(const struct nxl_tls *tls)
{
    return tls->state == TLS_OPEN && !tls->broken;
}

const char *nxl_tls_peer(const struct nxl_tls *tls)
{
    return tls->peer;
}
