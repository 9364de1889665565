/* tls_internal.h - shared by tls_context.c (certificates) and tls.c (connections). */
#ifndef NXL_STREAM_TLS_INTERNAL_H
#define NXL_STREAM_TLS_INTERNAL_H

#include "stream/tls.h"

#include <openssl/ssl.h>

struct nxl_tls_context {
    SSL_CTX *ctx;
    int server;
    uint32_t refs;
};

void tls_context_ref(struct nxl_tls_context *context);
/* BIO over a descriptor whose state is a struct tls_socket. NULL when there is no memory. */
const BIO_METHOD *tls_bio_method(void);

struct tls_socket {
    int fd;
    int drained; /* the last recv gave less than asked: the next would only say EAGAIN */
    int error;   /* errno of the last failure; 0: the far side closed */
};

/* A client's connection got a ticket. */
void tls_on_ticket(SSL *ssl, SSL_SESSION *session);

#endif
