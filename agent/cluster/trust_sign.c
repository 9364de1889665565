/* trust_sign.c - signatures over life facts: who said it can be checked long after, and by agents
 * that have no link with the witness. Called by the directory. Loop thread. */
#include "cluster/trust_internal.h"

#include "base/bytes.h"
#include "base/mem.h"

#include <openssl/err.h>
#include <openssl/evp.h>

/* Blob: u8 version, view certificate (DER), view signature (SHA-256 over PURPOSE and the text). */
#define BLOB_VERSION 1u
#define BLOB_MAX 16384u
static const char purpose[] =
    "nixlet life fact 1"; /* with its NUL: the key signs nothing else by mistake */

static void free_evp(EVP_MD_CTX **ctx)
{
    EVP_MD_CTX_free(*ctx);
}

static void free_cert(X509 **cert)
{
    X509_free(*cert);
}

enum nxl_code nxl_trust_sign(struct nxl_trust *trust, struct nxl_view text, struct nxl_bytes *to,
                             struct nxl_err *err)
{
    NXL_CLEANUP(free_evp) EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    unsigned char signature[1024];
    unsigned char der[8192];
    unsigned char *end = der;
    size_t signature_size = sizeof(signature);
    int der_size = i2d_X509(trust->cert, NULL);

    ERR_clear_error();
    if (der_size <= 0 || (size_t)der_size > sizeof(der) || i2d_X509(trust->cert, &end) != der_size)
        return nxl_err_set(err, NXL_LIMIT, 0, "sign: the certificate has more than %zu bytes",
                           sizeof(der));
    if (ctx == NULL || EVP_DigestSignInit(ctx, NULL, EVP_sha256(), NULL, trust->key) != 1 ||
        EVP_DigestSignUpdate(ctx, purpose, sizeof(purpose)) != 1 ||
        EVP_DigestSignUpdate(ctx, text.data, text.size) != 1 ||
        EVP_DigestSignFinal(ctx, signature, &signature_size) != 1) {
        ERR_clear_error();
        return nxl_err_set(err, NXL_NOT_SUPPORTED, 0,
                           "sign: the key cannot sign with SHA-256; use a P-256 key");
    }
    nxl_bytes_put_u8(to, BLOB_VERSION);
    nxl_bytes_put_view(to, (struct nxl_view){der, (size_t)der_size});
    nxl_bytes_put_view(to, (struct nxl_view){signature, signature_size});
    return NXL_OK;
}

static enum nxl_code read_blob(struct nxl_view blob, X509 **ret_cert,
                               struct nxl_view *ret_signature, struct nxl_err *err)
{
    struct nxl_reader reader = nxl_reader_of(blob.data, blob.size);
    uint8_t version = nxl_reader_u8(&reader);
    struct nxl_view der = nxl_reader_view(&reader);
    struct nxl_view signature = nxl_reader_view(&reader);
    const unsigned char *at = der.data;

    if (reader.bad || blob.size > BLOB_MAX || nxl_reader_left(&reader) != 0)
        return nxl_err_set(err, NXL_MISMATCH, 0,
                           "signature: blob is cut off, too long or has a rest");
    if (version != BLOB_VERSION)
        return nxl_err_set(err, NXL_MISMATCH, 0, "signature: version %u, and this agent reads %u",
                           version, BLOB_VERSION);
    *ret_cert = d2i_X509(NULL, &at, (long)der.size);
    if (*ret_cert == NULL || at != (const unsigned char *)der.data + der.size)
        return nxl_err_set(err, NXL_MISMATCH, 0, "signature: certificate is no DER certificate");
    *ret_signature = signature;
    return NXL_OK;
}

static int signature_holds(X509 *cert, struct nxl_view text, struct nxl_view signature)
{
    NXL_CLEANUP(free_evp) EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    EVP_PKEY *key = X509_get0_pubkey(cert);

    return ctx != NULL && key != NULL &&
           EVP_DigestVerifyInit(ctx, NULL, EVP_sha256(), NULL, key) == 1 &&
           EVP_DigestVerifyUpdate(ctx, purpose, sizeof(purpose)) == 1 &&
           EVP_DigestVerifyUpdate(ctx, text.data, text.size) == 1 &&
           EVP_DigestVerifyFinal(ctx, signature.data, signature.size) == 1;
}

static enum nxl_code check(struct nxl_trust *trust, struct nxl_view text, struct nxl_view blob,
                           char *ret_node, size_t room, struct nxl_err *err)
{
    NXL_CLEANUP(free_cert) X509 *cert = NULL;
    char node[NXL_NODE_MAX + 1];
    struct nxl_view signature = {0};
    enum nxl_code code = read_blob(blob, &cert, &signature, err);

    if (code != NXL_OK)
        return code;
    code = trust_check_chain(trust, cert, err);
    if (code == NXL_OK)
        code = trust_node_of(cert, trust->cluster, node, sizeof(node), err);
    if (code != NXL_OK)
        return nxl_err_wrap(err, code, "signature: certificate");
    if (!signature_holds(cert, text, signature))
        return nxl_err_set(
            err, NXL_NOT_ALLOWED, 0,
            "signature: it does not fit the text, which node '%s' is said to have signed", node);
    if (nxl_copy_text(ret_node, room, node) != 0)
        return nxl_err_set(err, NXL_NOT_ALLOWED, 0, "signature: node name is too long");
    return NXL_OK;
}

enum nxl_code nxl_trust_verify(struct nxl_trust *trust, struct nxl_view text,
                               struct nxl_view signature, char *ret_node, size_t room,
                               struct nxl_err *err)
{
    enum nxl_code code;

    ERR_clear_error();
    code = check(trust, text, signature, ret_node, room, err);
    ERR_clear_error(); /* nothing of a stranger's blob is left for the next TLS call to trip over */
    return code;
}
