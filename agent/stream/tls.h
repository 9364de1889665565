/* tls.h - a TLS 1.3 byte stream over a socket on the loop, server or client side. Never blocks,
 * never raises SIGPIPE; sessions are resumed. Used by operator/push and agent/cluster. Loop thread.
 */
#ifndef NXL_STREAM_TLS_H
#define NXL_STREAM_TLS_H

#include <nxl/err.h>
#include <nxl/types.h>

struct nxl_loop;
struct nxl_tls;         /* one connection */
struct nxl_tls_context; /* certificates of one side; connections keep it as long as they need it */

/* Server: certificate chain and key in PEM. secret: 80 bytes that all replicas share, so that a
 * client resumes with any of them and after a restart; NULL: random. */
NXL_MUST_USE enum nxl_code nxl_tls_server(struct nxl_view cert_pem, struct nxl_view key_pem,
                                          const unsigned char *secret, struct nxl_tls_context **ret,
                                          struct nxl_err *err);
/* Client: the authority's certificates in PEM. */
NXL_MUST_USE enum nxl_code nxl_tls_client(struct nxl_view ca_pem, struct nxl_tls_context **ret,
                                          struct nxl_err *err);
void nxl_tls_context_unref(struct nxl_tls_context *context); /* accepts NULL */
#define NXL_TLS_SECRET 80

/* What a client remembers of one server, to resume. Zeroed is empty. */
struct nxl_tls_ticket {
    void *session;
};
void nxl_tls_ticket_fini(struct nxl_tls_ticket *ticket);

struct nxl_tls_ops {
    void (*on_open)(void *arg); /* the handshake is done */
    /* Decrypted bytes, lent. May close the connection. */
    void (*on_data)(void *arg, const void *data, size_t size);
    void (*on_room)(void *arg); /* a write that took too little may go on */
    /* Over: broken, refused or ended by the far side. Once, never from inside a call of ours, and
     * never after nxl_tls_close(), which must still be called. */
    void (*on_end)(void *arg, const char *why);
};

/* Takes fd, which is non-blocking and connected, or (client) connecting. */
NXL_MUST_USE enum nxl_code nxl_tls_accept(struct nxl_loop *loop, struct nxl_tls_context *context,
                                          int fd, const struct nxl_tls_ops *ops, void *arg,
                                          struct nxl_tls **ret, struct nxl_err *err);
/* name: DNS name or IP address that the server's certificate must carry. ticket: borrowed until
 * close; may be NULL. */
NXL_MUST_USE enum nxl_code nxl_tls_connect(struct nxl_loop *loop, struct nxl_tls_context *context,
                                           int fd, const char *name, struct nxl_tls_ticket *ticket,
                                           const struct nxl_tls_ops *ops, void *arg,
                                           struct nxl_tls **ret, struct nxl_err *err);
void nxl_tls_close(struct nxl_tls *tls); /* accepts NULL; fine inside a callback */
/* How much was taken, maybe 0: then the rest, the very same bytes, must be offered first after
 * on_room. A broken connection takes everything and says on_end later. */
size_t nxl_tls_write(struct nxl_tls *tls, const void *data, size_t size);
void nxl_tls_pause(struct nxl_tls *tls, int pause); /* do not read for now */
int nxl_tls_resumed(const struct nxl_tls *tls);
int nxl_tls_is_open(const struct nxl_tls *tls);
const char *nxl_tls_peer(const struct nxl_tls *tls); /* "ip:port" of the far end */

#endif
