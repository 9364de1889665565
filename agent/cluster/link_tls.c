/* link_tls.c - TLS 1.3 over a connection's socket: OpenSSL reads and writes through conn_recv() and
 * conn_send(), so it never blocks and never raises SIGPIPE. Called by link_conn.c. Loop thread. */
#include "cluster/link_internal.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>

static int bio_read(BIO *bio, char *to, int room)
{
    struct conn *conn = BIO_get_data(bio);
    long size = conn_recv(conn, to, room > 0 ? (size_t)room : 0);

    BIO_clear_retry_flags(bio);
    if (size == 0) {
        BIO_set_retry_read(bio);
        return -1;
    }
    return (int)size;
}

static int bio_write(BIO *bio, const char *data, int size)
{
    struct conn *conn = BIO_get_data(bio);
    long sent = conn_send(conn, data, size > 0 ? (size_t)size : 0);

    BIO_clear_retry_flags(bio);
    if (sent == 0) {
        BIO_set_retry_write(bio);
        return -1;
    }
    return (int)sent;
}

static long bio_ctrl(BIO *bio, int command, long number, void *pointer)
{
    (void)bio;
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH; /* nothing is buffered here */
}

static int bio_create(BIO *bio)
{
    BIO_set_init(bio, 1);
    return 1;
}

BIO_METHOD *conn_tls_method(void)
{
    BIO_METHOD *method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "nixlet link");

    if (method == NULL || BIO_meth_set_read(method, bio_read) != 1 ||
        BIO_meth_set_write(method, bio_write) != 1 || BIO_meth_set_ctrl(method, bio_ctrl) != 1 ||
        BIO_meth_set_create(method, bio_create) != 1) {
        BIO_meth_free(method);
        return NULL;
    }
    return method;
}

enum nxl_code conn_tls_start(struct conn *conn, struct nxl_err *err)
{
    BIO *bio = BIO_new(conn->links->bio_method);
    SSL *ssl = nxl_trust_ssl(conn->links->trust, !conn->outbound);

    if (bio == NULL || ssl == NULL) {
        BIO_free(bio);
        SSL_free(ssl);
        return nxl_err_set(err, NXL_UNKNOWN, 0, "TLS: %s",
                           nxl_trust_ready(conn->links->trust)
                               ? "no memory for a connection"
                               : "this agent has no certificate from an operator yet");
    }
    BIO_set_data(bio, conn);
    SSL_set_bio(ssl, bio, bio); /* takes bio */
    conn->ssl = ssl;
    return NXL_OK;
}

/* What OpenSSL has to say, with the certificate's fault if that is it. */
static void explain(struct conn *conn, const char *step)
{
    long verify = SSL_get_verify_result(conn->ssl);
    unsigned long error = ERR_peek_last_error();
    const char *reason = error != 0 ? ERR_reason_error_string(error) : NULL;

    if (verify != X509_V_OK)
        (void)snprintf(conn->why, sizeof(conn->why), "%s: certificate of the far side: %s", step,
                       X509_verify_cert_error_string(verify));
    else if (reason != NULL)
        (void)snprintf(conn->why, sizeof(conn->why), "%s: %s", step, reason);
    else if (conn->why[0] == '\0')
        (void)snprintf(conn->why, sizeof(conn->why), "%s: the far side closed the connection",
                       step);
}

/* 0 for "wait", -1 with conn->why for the rest. */
static int wait_or_fail(struct conn *conn, int result, const char *step)
{
    switch (SSL_get_error(conn->ssl, result)) {
    case SSL_ERROR_WANT_READ:
        return 0;
    case SSL_ERROR_WANT_WRITE:
        conn->read_wants_write = 1;
        return 0;
    case SSL_ERROR_ZERO_RETURN:
        (void)snprintf(conn->why, sizeof(conn->why), "the far side closed the connection");
        return -1;
    default:
        explain(conn, step);
        return -1;
    }
}

int conn_tls_handshake(struct conn *conn)
{
    int result;

    ERR_clear_error();
    conn->read_wants_write = 0;
    result = SSL_do_handshake(conn->ssl);
    return result == 1 ? 1 : wait_or_fail(conn, result, "TLS handshake");
}

long conn_tls_read(struct conn *conn, void *to, size_t room)
{
    size_t size = 0;
    int result;

    ERR_clear_error();
    result = SSL_read_ex(conn->ssl, to, room, &size);
    return result == 1 ? (long)size : wait_or_fail(conn, result, "TLS read");
}

long conn_tls_write(struct conn *conn, const void *data, size_t size)
{
    size_t sent = 0;
    int result;

    ERR_clear_error();
    result = SSL_write_ex(conn->ssl, data, size, &sent);
    return result == 1 ? (long)sent : wait_or_fail(conn, result, "TLS write");
}

void conn_tls_close(struct conn *conn)
{
    if (conn->ssl == NULL)
        return;
    ERR_clear_error();
    if (SSL_is_init_finished(conn->ssl))
        (void)SSL_shutdown(conn->ssl); /* says the end; nobody waits for the answer */
    ERR_clear_error();
    SSL_free(conn->ssl);
    conn->ssl = NULL;
}
