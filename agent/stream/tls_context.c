/* tls_context.c - certificates and rules of one side of the stream, from PEM in memory; and the BIO
 * that reads and writes without SIGPIPE. Loop thread. */
#include "stream/tls_internal.h"

#include "base/mem.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define TICKET_LIFE_S 7200

static const char *reason(void)
{
    const char *text = ERR_reason_error_string(ERR_peek_last_error());

    return text != NULL ? text : "not readable";
}

/* ---- BIO ---------------------------------------------------------------------------------- */

static int bio_read(BIO *bio, char *to, int room)
{
    struct tls_socket *socket = BIO_get_data(bio);
    ssize_t got;

    BIO_clear_retry_flags(bio);
    if (socket->drained || room <= 0) {
        BIO_set_retry_read(bio);
        return -1;
    }
    do {
        got = recv(socket->fd, to, (size_t)room, 0);
    } while (got < 0 && errno == EINTR);
    if (got > 0) {
        socket->drained = got < room;
        return (int)got;
    }
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        socket->drained = 1;
        BIO_set_retry_read(bio);
        return -1;
    }
    socket->error = got == 0 ? 0 : errno;
    return got == 0 ? 0 : -1;
}

static int bio_write(BIO *bio, const char *data, int size)
{
    struct tls_socket *socket = BIO_get_data(bio);
    ssize_t sent;

    BIO_clear_retry_flags(bio);
    do {
        sent = send(socket->fd, data, size > 0 ? (size_t)size : 0, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent >= 0)
        return (int)sent;
    if (errno == EAGAIN || errno == EWOULDBLOCK)
        BIO_set_retry_write(bio);
    else
        socket->error = errno;
    return -1;
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

static BIO_METHOD *bio_method;
static pthread_once_t bio_once = PTHREAD_ONCE_INIT; /* tests run several loops */

static void bio_method_make(void)
{
    BIO_METHOD *method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "nixlet stream");

    if (method == NULL || BIO_meth_set_read(method, bio_read) != 1 ||
        BIO_meth_set_write(method, bio_write) != 1 || BIO_meth_set_ctrl(method, bio_ctrl) != 1 ||
        BIO_meth_set_create(method, bio_create) != 1) {
        BIO_meth_free(method);
        return;
    }
    bio_method = method;
}

const BIO_METHOD *tls_bio_method(void)
{
    (void)pthread_once(&bio_once, bio_method_make);
    return bio_method;
}

/* ---- PEM ---------------------------------------------------------------------------------- */

static int no_passphrase(char *to, int size, int writing, void *arg)
{
    (void)to;
    (void)size;
    (void)writing;
    (void)arg;
    return -1; /* the default would ask on the terminal */
}

static BIO *memory_of(struct nxl_view pem)
{
    return pem.data != NULL && pem.size > 0 && pem.size < INT32_MAX
               ? BIO_new_mem_buf(pem.data, (int)pem.size)
               : NULL;
}

static enum nxl_code chain_load(SSL_CTX *ctx, struct nxl_view pem, struct nxl_err *err)
{
    BIO *from = memory_of(pem);
    X509 *cert = from != NULL ? PEM_read_bio_X509(from, NULL, no_passphrase, NULL) : NULL;
    enum nxl_code code = NXL_OK;

    if (cert == NULL || SSL_CTX_use_certificate(ctx, cert) != 1)
        code = nxl_err_set(err, NXL_CONFIG, 0, "certificate: %s", reason());
    X509_free(cert);
    while (code == NXL_OK && (cert = PEM_read_bio_X509(from, NULL, no_passphrase, NULL)) != NULL) {
        if (SSL_CTX_add0_chain_cert(ctx, cert) != 1) {
            X509_free(cert);
            code = nxl_err_set(err, NXL_CONFIG, 0, "certificate chain: %s", reason());
        }
    }
    ERR_clear_error(); /* the end of the chain is one */
    BIO_free(from);
    return code;
}

static enum nxl_code key_load(SSL_CTX *ctx, struct nxl_view pem, struct nxl_err *err)
{
    BIO *from = memory_of(pem);
    EVP_PKEY *key = from != NULL ? PEM_read_bio_PrivateKey(from, NULL, no_passphrase, NULL) : NULL;
    enum nxl_code code = NXL_OK;

    if (key == NULL)
        code = nxl_err_set(err, NXL_CONFIG, 0,
                           "key: it holds no PEM key that can be read without a passphrase");
    else if (SSL_CTX_use_PrivateKey(ctx, key) != 1 || SSL_CTX_check_private_key(ctx) != 1)
        code = nxl_err_set(err, NXL_CONFIG, 0, "key: it does not belong to the certificate");
    EVP_PKEY_free(key);
    BIO_free(from);
    ERR_clear_error();
    return code;
}

static enum nxl_code trust_load(SSL_CTX *ctx, struct nxl_view pem, struct nxl_err *err)
{
    X509_STORE *store = SSL_CTX_get_cert_store(ctx);
    BIO *from = memory_of(pem);
    unsigned count = 0;
    X509 *cert;

    while (from != NULL && (cert = PEM_read_bio_X509(from, NULL, no_passphrase, NULL)) != NULL) {
        count += X509_STORE_add_cert(store, cert) == 1;
        X509_free(cert);
    }
    BIO_free(from);
    ERR_clear_error();
    if (count == 0)
        return nxl_err_set(err, NXL_CONFIG, 0, "authority: there is no PEM certificate in it");
    return NXL_OK;
}

/* ---- contexts ----------------------------------------------------------------------------- */

static SSL_CTX *ctx_new(int server)
{
    SSL_CTX *ctx = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());

    if (ctx == NULL)
        return NULL;
    if (SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_max_proto_version(ctx, TLS1_3_VERSION) != 1) {
        SSL_CTX_free(ctx);
        return NULL;
    }
    (void)SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE |
                                    SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                    SSL_MODE_RELEASE_BUFFERS); /* thousands of idle connections */
    SSL_CTX_set_read_ahead(ctx, 1);                            /* one recv for many small records */
    (void)SSL_CTX_set_timeout(ctx, TICKET_LIFE_S);
    return ctx;
}

static struct nxl_tls_context *context_of(SSL_CTX *ctx, int server)
{
    struct nxl_tls_context *context = nxl_new0(sizeof(*context));

    context->ctx = ctx;
    context->server = server;
    context->refs = 1;
    return context;
}

static enum nxl_code tickets_setup(SSL_CTX *ctx, const unsigned char *secret, struct nxl_err *err)
{
    static const unsigned char name[] = "nixlet stream";
    unsigned char keys[NXL_TLS_SECRET];
    int right;

    if (secret != NULL)
        memcpy(keys, secret, sizeof(keys));
    else if (RAND_bytes(keys, sizeof(keys)) != 1)
        return nxl_err_set(err, NXL_UNKNOWN, 0, "tickets: no random bytes");
    right = SSL_CTX_set_tlsext_ticket_keys(ctx, keys, sizeof(keys)) == 1 &&
            SSL_CTX_set_session_id_context(ctx, name, sizeof(name)) == 1;
    OPENSSL_cleanse(keys, sizeof(keys));
    if (!right)
        return nxl_err_set(err, NXL_UNKNOWN, 0, "tickets: %s", reason());
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF); /* the tickets hold the state */
    (void)SSL_CTX_set_num_tickets(ctx, 1);
    return NXL_OK;
}

enum nxl_code nxl_tls_server(struct nxl_view cert_pem, struct nxl_view key_pem,
                             const unsigned char *secret, struct nxl_tls_context **ret,
                             struct nxl_err *err)
{
    SSL_CTX *ctx = ctx_new(1);
    enum nxl_code code;

    ERR_clear_error();
    if (ctx == NULL)
        return nxl_err_set(err, NXL_UNKNOWN, 0, "TLS: no memory for a context");
    code = chain_load(ctx, cert_pem, err);
    if (code == NXL_OK)
        code = key_load(ctx, key_pem, err);
    if (code == NXL_OK)
        code = tickets_setup(ctx, secret, err);
    if (code != NXL_OK) {
        SSL_CTX_free(ctx);
        return nxl_err_wrap(err, code, "TLS server");
    }
    *ret = context_of(ctx, 1);
    return NXL_OK;
}

static int on_new_session(SSL *ssl, SSL_SESSION *session)
{
    tls_on_ticket(ssl, session);
    return 1; /* it is ours now */
}

enum nxl_code nxl_tls_client(struct nxl_view ca_pem, struct nxl_tls_context **ret,
                             struct nxl_err *err)
{
    SSL_CTX *ctx = ctx_new(0);
    enum nxl_code code;

    ERR_clear_error();
    if (ctx == NULL)
        return nxl_err_set(err, NXL_UNKNOWN, 0, "TLS: no memory for a context");
    code = trust_load(ctx, ca_pem, err);
    if (code != NXL_OK) {
        SSL_CTX_free(ctx);
        return nxl_err_wrap(err, code, "TLS client");
    }
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(ctx, on_new_session);
    *ret = context_of(ctx, 0);
    return NXL_OK;
}

void tls_context_ref(struct nxl_tls_context *context)
{
    context->refs++;
}

void nxl_tls_context_unref(struct nxl_tls_context *context)
{
    if (context == NULL || --context->refs > 0)
        return;
    SSL_CTX_free(context->ctx);
    free(context);
}

void nxl_tls_ticket_fini(struct nxl_tls_ticket *ticket)
{
    SSL_SESSION_free(ticket->session);
    ticket->session = NULL;
}
