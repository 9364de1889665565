/* trust_issue.c - certificates that come over the operator stream instead of from files: the key is
 * made here and never leaves the process. Called by cluster/stream. Loop thread. */
#include "cluster/trust_internal.h"

#include "base/bytes.h"
#include "base/log.h"
#include "base/mem.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <string.h>

static void free_bio(BIO **bio)
{
    BIO_free(*bio);
}

static const char *openssl_reason(void)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());

    return reason != NULL ? reason : "not readable";
}

static int no_passphrase(char *to, int size, int writing, void *arg)
{
    (void)to;
    (void)size;
    (void)writing;
    (void)arg;
    return -1; /* the default would ask on the terminal */
}

enum nxl_code nxl_trust_open_pending(const char *cluster, const char *node, struct nxl_trust **ret,
                                     struct nxl_err *err)
{
    struct nxl_trust *trust = nxl_new0(sizeof(*trust));

    ERR_clear_error();
    if (nxl_copy_text(trust->cluster, sizeof(trust->cluster), cluster) != 0 ||
        nxl_copy_text(trust->node, sizeof(trust->node), node) != 0) {
        nxl_trust_close(trust);
        return nxl_err_set(err, NXL_CONFIG, 0, "cluster %s or node is too long",
                           nxl_quote(cluster));
    }
    trust->key = EVP_EC_gen("P-256");
    if (trust->key == NULL) {
        nxl_trust_close(trust);
        return nxl_err_set(err, NXL_UNKNOWN, 0, "make a key: %s", openssl_reason());
    }
    *ret = trust;
    return NXL_OK;
}

int nxl_trust_ready(const struct nxl_trust *trust)
{
    return trust->cert != NULL;
}

int64_t nxl_trust_left_s(const struct nxl_trust *trust)
{
    int days = 0, seconds = 0;

    if (trust->cert == NULL ||
        ASN1_TIME_diff(&days, &seconds, NULL, X509_get0_notAfter(trust->cert)) != 1)
        return 0;
    return (int64_t)days * 86400 + seconds;
}

enum nxl_code nxl_trust_request(const struct nxl_trust *trust, struct nxl_bytes *to,
                                struct nxl_err *err)
{
    NXL_CLEANUP(free_bio) BIO *out = BIO_new(BIO_s_mem());
    X509_REQ *request = X509_REQ_new();
    X509_NAME *name = request != NULL ? X509_REQ_get_subject_name(request) : NULL;
    const char *pem = NULL;
    long size = 0;

    ERR_clear_error();
    if (out != NULL && request != NULL && X509_REQ_set_version(request, 0) == 1 &&
        X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, (const unsigned char *)trust->node,
                                   -1, -1, 0) == 1 &&
        X509_REQ_set_pubkey(request, trust->key) == 1 &&
        X509_REQ_sign(request, trust->key, EVP_sha256()) > 0 &&
        PEM_write_bio_X509_REQ(out, request) == 1)
        size = BIO_get_mem_data(out, &pem);
    X509_REQ_free(request);
    if (size <= 0)
        return nxl_err_set(err, NXL_UNKNOWN, 0, "request a certificate: %s", openssl_reason());
    nxl_bytes_put(to, pem, (size_t)size);
    nxl_bytes_put_u8(to, 0);
    return NXL_OK;
}

static X509_STORE *store_of(struct nxl_view pem)
{
    NXL_CLEANUP(free_bio) BIO *from = NULL;
    X509_STORE *store = X509_STORE_new();
    unsigned count = 0;
    X509 *cert;

    if (pem.size > 0 && pem.size < INT32_MAX)
        from = BIO_new_mem_buf(pem.data, (int)pem.size);
    while (store != NULL && from != NULL &&
           (cert = PEM_read_bio_X509(from, NULL, no_passphrase, NULL)) != NULL) {
        count += X509_STORE_add_cert(store, cert) == 1;
        X509_free(cert);
    }
    ERR_clear_error(); /* the end of the file is one */
    if (count > 0)
        return store;
    X509_STORE_free(store);
    return NULL;
}

static void let_go(struct nxl_trust *trust)
{
    SSL_CTX_free(trust->server);
    SSL_CTX_free(trust->client);
    X509_STORE_free(trust->authority);
    X509_free(trust->cert);
}

/* next has the new certificate and authority; the key is shared. */
static enum nxl_code next_check(struct nxl_trust *next, struct nxl_err *err)
{
    char node[NXL_NODE_MAX + 1];

    if (X509_check_private_key(next->cert, next->key) != 1)
        return nxl_err_set(err, NXL_MISMATCH, 0, "it does not belong to this agent's key");
    if (trust_check_chain(next, next->cert, err) != NXL_OK ||
        trust_node_of(next->cert, next->cluster, node, sizeof(node), err) != NXL_OK)
        return NXL_MISMATCH;
    if (strcmp(node, next->node) != 0)
        return nxl_err_set(err, NXL_MISMATCH, 0, "it is of node '%s'", node);
    next->server = trust_context(next, TLS_server_method(), NULL);
    next->client = trust_context(next, TLS_client_method(), NULL);
    if (next->server == NULL || next->client == NULL)
        return nxl_err_set(err, NXL_MISMATCH, 0, "TLS with it: %s", openssl_reason());
    return NXL_OK;
}

enum nxl_code nxl_trust_take(struct nxl_trust *trust, struct nxl_view cert_pem,
                             struct nxl_view bundle_pem, struct nxl_err *err)
{
    NXL_CLEANUP(free_bio) BIO *from = NULL;
    struct nxl_trust next = *trust;
    enum nxl_code code = NXL_OK;

    ERR_clear_error();
    next.server = next.client = NULL;
    if (cert_pem.size > 0 && cert_pem.size < INT32_MAX)
        from = BIO_new_mem_buf(cert_pem.data, (int)cert_pem.size);
    next.cert = from != NULL ? PEM_read_bio_X509(from, NULL, no_passphrase, NULL) : NULL;
    next.authority = store_of(bundle_pem);
    if (next.cert == NULL)
        code = nxl_err_set(err, NXL_MISMATCH, 0, "it holds no PEM certificate");
    else if (next.authority == NULL)
        code = nxl_err_set(err, NXL_MISMATCH, 0, "its bundle holds no PEM certificate");
    else
        code = next_check(&next, err);
    ERR_clear_error();
    if (code != NXL_OK) {
        let_go(&next);
        return nxl_err_wrap(err, code, "certificate from the operator");
    }
    let_go(trust);
    *trust = next;
    return NXL_OK;
}
