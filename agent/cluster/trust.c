/* trust.c - certificate, key and authority from files; TLS endpoints made of them; who a
 * certificate names. Called at start-up and by the link. Loop thread. */
#include "cluster/trust_internal.h"

#include "base/log.h"
#include "base/mem.h"
#include "cluster/identity.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *openssl_reason(void)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());

    return reason != NULL ? reason : "not readable";
}

/* ---- whom a certificate names ------------------------------------------------------------- */

static int copy_asn1(const ASN1_STRING *text, char *to, size_t room)
{
    int size = ASN1_STRING_length(text);

    if (size <= 0 || (size_t)size >= room ||
        memchr(ASN1_STRING_get0_data(text), '\0', (size_t)size) != NULL)
        return -1;
    memcpy(to, ASN1_STRING_get0_data(text), (size_t)size);
    to[size] = '\0';
    return 0;
}

/* Copies the one URI that begins with nixlet://; -1 if there is none, or several. */
static int copy_nixlet_uri(const X509 *cert, char *to, size_t room)
{
    GENERAL_NAMES *names = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
    int found = 0;

    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) { /* -1 for NULL */
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
        char uri[NXL_NAMESPACE_MAX + NXL_NODE_MAX + 32];

        if (name->type != GEN_URI ||
            copy_asn1(name->d.uniformResourceIdentifier, uri, sizeof(uri)) != 0 ||
            strncmp(uri, "nixlet://", 9) != 0)
            continue;
        found++;
        if (nxl_copy_text(to, room, uri) != 0)
            found = -1;
    }
    GENERAL_NAMES_free(names);
    return found == 1 ? 0 : -1;
}

enum nxl_code trust_node_of(const X509 *cert, const char *cluster, char *ret_node, size_t room,
                            struct nxl_err *err)
{
    const X509_NAME *subject = X509_get_subject_name(cert);
    char node[NXL_NODE_MAX + 1];
    char uri[NXL_NAMESPACE_MAX + NXL_NODE_MAX + 32];
    char want[NXL_NAMESPACE_MAX + NXL_NODE_MAX + 32];
    int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);

    if (at < 0 || X509_NAME_get_index_by_NID(subject, NID_commonName, at) >= 0 ||
        copy_asn1(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)), node, sizeof(node)) !=
            0 ||
        !nxl_identity_is_label(node, NXL_NODE_MAX))
        return nxl_err_set(err, NXL_NOT_ALLOWED, 0,
                           "certificate has no subject CN that is a node name");
    if (copy_nixlet_uri(cert, uri, sizeof(uri)) != 0)
        return nxl_err_set(err, NXL_NOT_ALLOWED, 0,
                           "certificate of '%s' has no URI SAN nixlet://<cluster>/node/<node>",
                           node);
    (void)snprintf(want, sizeof(want), "nixlet://%s/node/%s", cluster, node);
    if (strcmp(uri, want) != 0)
        return nxl_err_set(err, NXL_NOT_ALLOWED, 0, "certificate says %s, and '%s' is needed",
                           nxl_quote(uri), want);
    if (nxl_copy_text(ret_node, room, node) != 0)
        return nxl_err_set(err, NXL_NOT_ALLOWED, 0, "node name of the certificate is too long");
    return NXL_OK;
}

enum nxl_code trust_check_chain(const struct nxl_trust *trust, X509 *cert, struct nxl_err *err)
{
    X509_STORE_CTX *check = X509_STORE_CTX_new();
    enum nxl_code code = NXL_OK;

    if (check == NULL || X509_STORE_CTX_init(check, trust->authority, cert, NULL) != 1)
        code = nxl_err_set(err, NXL_UNKNOWN, 0, "no memory to check a certificate");
    else if (X509_verify_cert(check) != 1)
        code = nxl_err_set(err, NXL_NOT_ALLOWED, 0, "%s",
                           X509_verify_cert_error_string(X509_STORE_CTX_get_error(check)));
    X509_STORE_CTX_free(check);
    return code;
}

/* ---- files -------------------------------------------------------------------------------- */

static enum nxl_code open_pem(const char *path, const char *what, FILE **ret, struct nxl_err *err)
{
    *ret = fopen(path, "re");
    if (*ret == NULL)
        return nxl_err_set(err, NXL_CONFIG, errno, "%s %s", what, nxl_quote(path));
    return NXL_OK;
}

static int no_passphrase(char *to, int size, int writing, void *arg)
{
    (void)to;
    (void)size;
    (void)writing;
    (void)arg;
    return -1; /* the default would ask on the terminal */
}

static enum nxl_code read_own(struct nxl_trust *trust, const char *cert_path, const char *key_path,
                              struct nxl_err *err)
{
    FILE *file;
    enum nxl_code code = open_pem(cert_path, "certificate file", &file, err);

    if (code != NXL_OK)
        return code;
    trust->cert = PEM_read_X509(file, NULL, no_passphrase, NULL);
    (void)fclose(file);
    if (trust->cert == NULL)
        return nxl_err_set(err, NXL_CONFIG, 0, "certificate file %s: %s", nxl_quote(cert_path),
                           openssl_reason());
    code = open_pem(key_path, "key file", &file, err);
    if (code != NXL_OK)
        return code;
    trust->key = PEM_read_PrivateKey(file, NULL, no_passphrase, NULL);
    (void)fclose(file);
    if (trust->key == NULL) /* the library's reason could quote nothing secret, but says little */
        return nxl_err_set(err, NXL_CONFIG, 0,
                           "key file %s: holds no PEM key that can be read without a passphrase",
                           nxl_quote(key_path));
    if (X509_check_private_key(trust->cert, trust->key) != 1)
        return nxl_err_set(err, NXL_CONFIG, 0,
                           "key file %s: the key does not belong to certificate file %s",
                           nxl_quote(key_path), nxl_quote(cert_path));
    return NXL_OK;
}

SSL_CTX *trust_context(struct nxl_trust *trust, const SSL_METHOD *method, const char *cert_path)
{
    SSL_CTX *ctx = SSL_CTX_new(method);

    if (ctx == NULL)
        return NULL;
    if (SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_max_proto_version(ctx, TLS1_3_VERSION) != 1 ||
        (cert_path != NULL ? SSL_CTX_use_certificate_chain_file(ctx, cert_path)
                           : SSL_CTX_use_certificate(ctx, trust->cert)) != 1 ||
        SSL_CTX_use_PrivateKey(ctx, trust->key) != 1 ||
        SSL_CTX_set1_verify_cert_store(ctx, trust->authority) != 1) {
        SSL_CTX_free(ctx);
        return NULL;
    }
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    (void)SSL_CTX_set_num_tickets(ctx, 0); /* each connection shows its certificate anew */
    (void)SSL_CTX_set_mode(ctx,
                           SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    return ctx;
}

static enum nxl_code load(struct nxl_trust *trust, const char *cert_path, const char *key_path,
                          const char *ca_path, const char *node, struct nxl_err *err)
{
    char cert_node[NXL_NODE_MAX + 1];
    enum nxl_code code = read_own(trust, cert_path, key_path, err);

    if (code != NXL_OK)
        return code;
    trust->authority = X509_STORE_new();
    if (trust->authority == NULL || X509_STORE_load_file(trust->authority, ca_path) != 1)
        return nxl_err_set(err, NXL_CONFIG, 0, "authority file %s: %s", nxl_quote(ca_path),
                           openssl_reason());
    if (trust_check_chain(trust, trust->cert, err) != NXL_OK)
        return nxl_err_wrap(err, NXL_CONFIG, "certificate file %s, checked by authority file %s",
                            nxl_quote(cert_path), nxl_quote(ca_path));
    if (trust_node_of(trust->cert, trust->cluster, cert_node, sizeof(cert_node), err) != NXL_OK)
        return nxl_err_wrap(err, NXL_CONFIG, "certificate file %s", nxl_quote(cert_path));
    if (strcmp(cert_node, node) != 0)
        return nxl_err_set(err, NXL_CONFIG, 0,
                           "certificate file %s: it is of node '%s', and this node is %s",
                           nxl_quote(cert_path), cert_node, nxl_quote(node));
    trust->server = trust_context(trust, TLS_server_method(), cert_path);
    trust->client = trust_context(trust, TLS_client_method(), cert_path);
    if (trust->server == NULL || trust->client == NULL)
        return nxl_err_set(err, NXL_CONFIG, 0, "TLS with certificate file %s: %s",
                           nxl_quote(cert_path), openssl_reason());
    return NXL_OK;
}

void nxl_trust_close(struct nxl_trust *trust)
{
    if (trust == NULL)
        return;
    SSL_CTX_free(trust->server);
    SSL_CTX_free(trust->client);
    X509_STORE_free(trust->authority);
    X509_free(trust->cert);
    EVP_PKEY_free(trust->key);
    free(trust);
}

enum nxl_code nxl_trust_open(const char *cert_path, const char *key_path, const char *ca_path,
                             const char *cluster, const char *node, struct nxl_trust **ret,
                             struct nxl_err *err)
{
    struct nxl_trust *trust = nxl_new0(sizeof(*trust));
    enum nxl_code code;

    ERR_clear_error();
    if (nxl_copy_text(trust->cluster, sizeof(trust->cluster), cluster) != 0)
        code = nxl_err_set(err, NXL_CONFIG, 0, "cluster %s is too long", nxl_quote(cluster));
    else
        code = load(trust, cert_path, key_path, ca_path, node, err);
    ERR_clear_error();
    if (code != NXL_OK) {
        nxl_trust_close(trust);
        return code;
    }
    *ret = trust;
    return NXL_OK;
}

/* ---- TLS ---------------------------------------------------------------------------------- */

SSL *nxl_trust_ssl(struct nxl_trust *trust, int server)
{
    SSL_CTX *ctx = server ? trust->server : trust->client;
    SSL *ssl = ctx != NULL ? SSL_new(ctx) : NULL;

    if (ssl == NULL)
        return NULL; /* no memory, or no certificate yet */
    if (server)
        SSL_set_accept_state(ssl);
    else
        SSL_set_connect_state(ssl);
    return ssl;
}

enum nxl_code nxl_trust_peer(struct nxl_trust *trust, SSL *ssl, char *ret_node, size_t room,
                             struct nxl_err *err)
{
    const X509 *cert = SSL_get0_peer_certificate(ssl);

    if (cert == NULL || SSL_get_verify_result(ssl) != X509_V_OK)
        return nxl_err_set(err, NXL_NOT_ALLOWED, 0,
                           "the far side has no certificate that was verified");
    return trust_node_of(cert, trust->cluster, ret_node, room, err);
}
