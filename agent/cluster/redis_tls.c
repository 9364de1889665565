/* redis_tls.c - rediss://: TLS under hiredis 1.x, with the server's name or address checked
 * (hiredis itself does not check it). Without hiredis_ssl the URL is refused before anything comes
 * here. Loop thread. */
#include "cluster/redis_room.h"

#if NXL_REDIS_HAS_TLS

#include "base/mem.h"

#include <arpa/inet.h>
#include <hiredis/hiredis_ssl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>

static enum nxl_code tls_error(struct nxl_err *err, const char *doing)
{
    char text[160] = "unknown reason";
    unsigned long code = ERR_peek_last_error();

    if (code != 0)
        ERR_error_string_n(code, text, sizeof(text));
    ERR_clear_error();
    return nxl_err_set(err, NXL_CONFIG, 0, "tls: %s: %s", doing, text);
}

/* The file is read at every dial, so that a renewed authority needs no restart. */
static enum nxl_code make_context(const struct nxl_redis *redis, SSL_CTX **ret, struct nxl_err *err)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    int loaded;

    if (context == NULL)
        return tls_error(err, "make a context");
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    (void)SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    loaded = redis->ca_file[0] != '\0'
                 ? SSL_CTX_load_verify_locations(context, redis->ca_file, NULL)
                 : SSL_CTX_set_default_verify_paths(context);
    if (loaded != 1) {
        SSL_CTX_free(context);
        return tls_error(err, redis->ca_file[0] != '\0' ? "read store.ca_file"
                                                        : "find the system's authorities");
    }
    *ret = context;
    return NXL_OK;
}

static int expect_host(SSL *ssl, const char *host)
{
    unsigned char binary[16];

    if (inet_pton(AF_INET, host, binary) == 1 || inet_pton(AF_INET6, host, binary) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host);
    return SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1;
}

enum nxl_code nxl_redis_secure(struct nxl_redis *redis, struct nxl_err *err)
{
    SSL_CTX *context = NULL;
    enum nxl_code code = make_context(redis, &context, err);
    SSL *ssl;

    if (code != NXL_OK)
        return code;
    ssl = SSL_new(context); /* holds the context */
    SSL_CTX_free(context);
    if (ssl == NULL || !expect_host(ssl, redis->host)) {
        SSL_free(ssl);
        return tls_error(err, "prepare the connection");
    }
    if (redisInitiateSSL(&redis->context->c, ssl) != REDIS_OK) {
        SSL_free(ssl);
        return nxl_err_set(err, NXL_UNREACHABLE, 0, "tls: %s", redis->context->c.errstr);
    }
    redis->tls = ssl; /* hiredis frees it with the context */
    return NXL_OK;
}

void nxl_redis_secure_failed(struct nxl_redis *redis)
{
    long verdict = SSL_get_verify_result(redis->tls);

    if (verdict != X509_V_OK)
        (void)snprintf(redis->last_text, sizeof(redis->last_text),
                       "tls: the server's certificate: %s", X509_verify_cert_error_string(verdict));
}

#else

enum nxl_code nxl_redis_secure(struct nxl_redis *redis, struct nxl_err *err)
{
    (void)redis;
    return nxl_err_set(err, NXL_NOT_SUPPORTED, 0, "tls: this build has hiredis %s without TLS",
                       NXL_REDIS_HIREDIS_VERSION);
}

void nxl_redis_secure_failed(struct nxl_redis *redis)
{
    (void)redis;
}

#endif
