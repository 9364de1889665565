/* authority.c - makes, reads and uses the cluster's signing key: agents' certificates for a day,
 * the stream's server certificate, and bytes derived from the key. No I/O. Loop thread. */
#include "push/authority.h"

#include "base/bytes.h"
#include "base/fd.h"
#include "base/mem.h"

#include <openssl/err.h>
#include <openssl/hmac.h>
#include <openssl/kdf.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BACKDATE_S 300L /* the clocks of two nodes may differ a little */
#define TEN_YEARS_S (3650L * 86400L)

struct nxl_authority {
    char cluster[NXL_NAMESPACE_MAX + 1];
    X509 *cert;
    EVP_PKEY *key;
    char *bundle;
};

static enum nxl_code fail(struct nxl_err *err, const char *step)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());
    enum nxl_code code = nxl_err_set(err, NXL_UNKNOWN, 0, "authority: %s: %s", step,
                                     reason != NULL ? reason : "no memory");

    ERR_clear_error();
    return code;
}

void nxl_authority_close(struct nxl_authority *authority)
{
    if (authority == NULL)
        return;
    X509_free(authority->cert);
    EVP_PKEY_free(authority->key);
    free(authority->bundle);
    free(authority);
}

/* ---- certificates ------------------------------------------------------------------------- */

static int set_serial(X509 *cert)
{
    unsigned char bytes[16];
    BIGNUM *number;
    int right;

    nxl_random(bytes, sizeof(bytes));
    bytes[0] = (unsigned char)((bytes[0] & 0x7fu) | 0x40u); /* positive, and all 16 bytes long */
    number = BN_bin2bn(bytes, sizeof(bytes), NULL);
    right = number != NULL && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(cert)) != NULL;
    BN_free(number);
    return right;
}

static int add_name(X509_NAME *name, const char *field, const char *text)
{
    return X509_NAME_add_entry_by_txt(name, field, MBSTRING_UTF8, (const unsigned char *)text, -1,
                                      -1, 0) == 1;
}

static int add_extension(X509 *cert, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX ctx;
    X509_EXTENSION *extension;
    int right;

    X509V3_set_ctx_nodb(&ctx);
    X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
    extension = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    right = extension != NULL && X509_add_ext(cert, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    return right;
}

/* Without names: built as an object, so that no character of a name is taken for syntax. */
static int add_alt_names(X509 *cert, GENERAL_NAMES *names)
{
    return X509_add1_ext_i2d(cert, NID_subject_alt_name, names, 0, X509V3_ADD_DEFAULT) == 1;
}

static int push_name(GENERAL_NAMES *names, int type, const char *text)
{
    GENERAL_NAME *name = GENERAL_NAME_new();
    ASN1_STRING *value = type == GEN_IPADD ? a2i_IPADDRESS(text) : ASN1_IA5STRING_new();

    if (name == NULL || value == NULL ||
        (type != GEN_IPADD && ASN1_STRING_set(value, text, -1) != 1)) {
        GENERAL_NAME_free(name);
        ASN1_STRING_free(value);
        return 0;
    }
    GENERAL_NAME_set0_value(name, type, value);
    if (sk_GENERAL_NAME_push(names, name) > 0)
        return 1;
    GENERAL_NAME_free(name);
    return 0;
}

static X509 *cert_begin(EVP_PKEY *key, long life_s)
{
    X509 *cert = X509_new();

    if (cert == NULL)
        return NULL;
    if (X509_set_version(cert, X509_VERSION_3) != 1 || !set_serial(cert) ||
        X509_gmtime_adj(X509_getm_notBefore(cert), -BACKDATE_S) == NULL ||
        X509_gmtime_adj(X509_getm_notAfter(cert), life_s) == NULL ||
        X509_set_pubkey(cert, key) != 1) {
        X509_free(cert);
        return NULL;
    }
    return cert;
}

static int put_cert(X509 *cert, struct nxl_bytes *to)
{
    BIO *out = BIO_new(BIO_s_mem());
    const char *data = NULL;
    long size = 0;

    if (out != NULL && PEM_write_bio_X509(out, cert) == 1)
        size = BIO_get_mem_data(out, &data);
    if (size > 0)
        nxl_bytes_put(to, data, (size_t)size);
    BIO_free(out);
    return size > 0;
}

static int put_key(EVP_PKEY *key, struct nxl_bytes *to)
{
    BIO *out = BIO_new(BIO_s_secmem());
    const char *data = NULL;
    long size = 0;

    if (out != NULL && PEM_write_bio_PrivateKey(out, key, NULL, NULL, 0, NULL, NULL) == 1)
        size = BIO_get_mem_data(out, &data);
    if (size > 0)
        nxl_bytes_put(to, data, (size_t)size);
    BIO_free(out);
    return size > 0;
}

/* ---- the authority itself ------------------------------------------------------------------ */

static int self_sign(struct nxl_authority *authority)
{
    X509 *cert = cert_begin(authority->key, TEN_YEARS_S);
    X509_NAME *name = cert != NULL ? X509_get_subject_name(cert) : NULL;

    authority->cert = cert;
    return cert != NULL && add_name(name, "O", "nixlet") &&
           add_name(name, "OU", authority->cluster) && add_name(name, "CN", "nixlet authority") &&
           X509_set_issuer_name(cert, name) == 1 &&
           add_extension(cert, cert, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
           add_extension(cert, cert, NID_key_usage, "critical,keyCertSign,cRLSign") &&
           add_extension(cert, cert, NID_subject_key_identifier, "hash") &&
           X509_sign(cert, authority->key, EVP_sha256()) > 0;
}

enum nxl_code nxl_authority_make(const char *cluster, struct nxl_authority **ret,
                                 struct nxl_err *err)
{
    struct nxl_authority *authority = nxl_new0(sizeof(*authority));
    struct nxl_bytes bundle = {0};

    ERR_clear_error();
    (void)nxl_copy_text(authority->cluster, sizeof(authority->cluster), cluster);
    authority->key = EVP_EC_gen("P-256");
    if (authority->key == NULL || !self_sign(authority) || !put_cert(authority->cert, &bundle)) {
        nxl_bytes_fini(&bundle);
        nxl_authority_close(authority);
        return fail(err, "make a key and a certificate");
    }
    nxl_bytes_put(&bundle, "", 1);
    authority->bundle = (char *)bundle.data; /* taken over */
    *ret = authority;
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

static enum nxl_code bundle_load(struct nxl_authority *authority, struct nxl_view pem,
                                 struct nxl_err *err)
{
    BIO *from = BIO_new_mem_buf(pem.data, (int)pem.size);
    struct nxl_bytes bundle = {0};
    X509 *cert;

    while (from != NULL && (cert = PEM_read_bio_X509(from, NULL, no_passphrase, NULL)) != NULL) {
        if (!put_cert(cert, &bundle)) {
            X509_free(cert);
            break;
        }
        if (authority->cert == NULL)
            authority->cert = cert;
        else
            X509_free(cert);
    }
    BIO_free(from);
    ERR_clear_error();
    if (authority->cert == NULL) {
        nxl_bytes_fini(&bundle);
        return nxl_err_set(err, NXL_CONFIG, 0, "authority: there is no PEM certificate");
    }
    nxl_bytes_put(&bundle, "", 1);
    authority->bundle = (char *)bundle.data; /* taken over */
    return NXL_OK;
}

static enum nxl_code check(const struct nxl_authority *authority, struct nxl_err *err)
{
    if (X509_check_ca(authority->cert) < 1)
        return nxl_err_set(err, NXL_CONFIG, 0,
                           "authority: the first certificate is none of an authority");
    if (X509_check_private_key(authority->cert, authority->key) != 1)
        return nxl_err_set(err, NXL_CONFIG, 0,
                           "authority: the key does not belong to the first certificate");
    if (nxl_authority_left_s(authority) <= 0)
        return nxl_err_set(err, NXL_CONFIG, 0, "authority: the certificate has expired");
    if (X509_cmp_current_time(X509_get0_notBefore(authority->cert)) > 0)
        return nxl_err_set(err, NXL_CONFIG, 0,
                           "authority: the certificate is not yet valid; compare the clocks");
    return NXL_OK;
}

enum nxl_code nxl_authority_open(const char *cluster, struct nxl_view cert_pem,
                                 struct nxl_view key_pem, struct nxl_authority **ret,
                                 struct nxl_err *err)
{
    struct nxl_authority *authority;
    enum nxl_code code;
    BIO *from;

    if (cert_pem.size > INT32_MAX || key_pem.size > INT32_MAX)
        return nxl_err_set(err, NXL_CONFIG, 0, "authority: it is too long");
    authority = nxl_new0(sizeof(*authority));
    (void)nxl_copy_text(authority->cluster, sizeof(authority->cluster), cluster);
    ERR_clear_error();
    code = bundle_load(authority, cert_pem, err);
    if (code == NXL_OK) {
        from = BIO_new_mem_buf(key_pem.data, (int)key_pem.size);
        authority->key =
            from != NULL ? PEM_read_bio_PrivateKey(from, NULL, no_passphrase, NULL) : NULL;
        BIO_free(from);
        if (authority->key == NULL) /* the library's reason says little, and quotes nothing here */
            code = nxl_err_set(err, NXL_CONFIG, 0,
                               "authority: there is no PEM key that needs no passphrase");
    }
    if (code == NXL_OK)
        code = check(authority, err);
    ERR_clear_error();
    if (code != NXL_OK) {
        nxl_authority_close(authority);
        return code;
    }
    *ret = authority;
    return NXL_OK;
}

enum nxl_code nxl_authority_pem(const struct nxl_authority *authority, struct nxl_bytes *cert,
                                struct nxl_bytes *key, struct nxl_err *err)
{
    nxl_bytes_put(cert, authority->bundle, strlen(authority->bundle));
    return put_key(authority->key, key) ? NXL_OK : fail(err, "write the key");
}

const char *nxl_authority_bundle(const struct nxl_authority *authority)
{
    return authority->bundle;
}

int64_t nxl_authority_left_s(const struct nxl_authority *authority)
{
    int days = 0, seconds = 0;

    if (ASN1_TIME_diff(&days, &seconds, NULL, X509_get0_notAfter(authority->cert)) != 1)
        return 0;
    return (int64_t)days * 86400 + seconds;
}

/* ---- signing ------------------------------------------------------------------------------ */

static int sign_leaf(struct nxl_authority *authority, X509 *cert, const char *usage)
{
    return X509_set_issuer_name(cert, X509_get_subject_name(authority->cert)) == 1 &&
           add_extension(cert, authority->cert, NID_basic_constraints, "critical,CA:FALSE") &&
           add_extension(cert, authority->cert, NID_key_usage, "critical,digitalSignature") &&
           add_extension(cert, authority->cert, NID_ext_key_usage, usage) &&
           add_extension(cert, authority->cert, NID_subject_key_identifier, "hash") &&
           add_extension(cert, authority->cert, NID_authority_key_identifier, "keyid") &&
           X509_sign(cert, authority->key, EVP_sha256()) > 0;
}

static int is_curve(EVP_PKEY *key)
{
    char name[64] = "";
    size_t size = 0;

    return EVP_PKEY_get_base_id(key) == EVP_PKEY_EC &&
           EVP_PKEY_get_group_name(key, name, sizeof(name), &size) == 1 &&
           (strcmp(name, "prime256v1") == 0 || strcmp(name, "secp384r1") == 0 ||
            strcmp(name, "P-256") == 0 || strcmp(name, "P-384") == 0);
}

/* The key of a request whose sender has proven that it holds it. */
static enum nxl_code request_key(struct nxl_view csr_pem, EVP_PKEY **ret, struct nxl_err *err)
{
    BIO *from = csr_pem.size > 0 && csr_pem.size < INT32_MAX
                    ? BIO_new_mem_buf(csr_pem.data, (int)csr_pem.size)
                    : NULL;
    X509_REQ *request =
        from != NULL ? PEM_read_bio_X509_REQ(from, NULL, no_passphrase, NULL) : NULL;
    EVP_PKEY *key = request != NULL ? X509_REQ_get_pubkey(request) : NULL;
    enum nxl_code code = NXL_OK;

    if (request == NULL)
        code = nxl_err_set(err, NXL_INVALID_PARAM, 0, "authority: there is no PEM request");
    else if (key == NULL || !is_curve(key))
        code = nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "authority: the request's key is neither P-256 nor P-384");
    else if (X509_REQ_verify(request, key) != 1)
        code = nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "authority: the request is not signed by its own key");
    X509_REQ_free(request);
    BIO_free(from);
    ERR_clear_error();
    if (code != NXL_OK) {
        EVP_PKEY_free(key);
        return code;
    }
    *ret = key;
    return NXL_OK;
}

static int agent_cert(struct nxl_authority *authority, X509 *cert, const char *node,
                      const char *pod)
{
    X509_NAME *name = X509_get_subject_name(cert);
    GENERAL_NAMES *names = GENERAL_NAMES_new();
    char uri[NXL_NAMESPACE_MAX + NXL_NODE_MAX + 32];
    int right;

    (void)snprintf(uri, sizeof(uri), "nixlet://%s/node/%s", authority->cluster, node);
    right = names != NULL && add_name(name, "O", "nixlet") &&
            (pod[0] == '\0' || add_name(name, "OU", pod)) && add_name(name, "CN", node) &&
            push_name(names, GEN_URI, uri) && add_alt_names(cert, names) &&
            sign_leaf(authority, cert, "clientAuth,serverAuth");
    GENERAL_NAMES_free(names);
    return right;
}

enum nxl_code nxl_authority_sign(struct nxl_authority *authority, struct nxl_view csr_pem,
                                 const char *node, const char *pod, uint32_t life_s,
                                 struct nxl_bytes *to, struct nxl_err *err)
{
    EVP_PKEY *key;
    X509 *cert;
    enum nxl_code code;

    ERR_clear_error();
    if (node[0] == '\0' || strlen(node) > 64) /* the bound of a common name */
        return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "authority: a node's name has 1 to 64 characters");
    code = request_key(csr_pem, &key, err);
    if (code != NXL_OK)
        return code;
    cert = cert_begin(key, (long)life_s);
    if (cert == NULL || !agent_cert(authority, cert, node, pod) || !put_cert(cert, to))
        code = fail(err, "sign an agent's certificate");
    X509_free(cert);
    EVP_PKEY_free(key);
    return code;
}

static int push_names(GENERAL_NAMES *to, const char *names)
{
    char *copy = nxl_strdup(names), *save = NULL;
    int right = 1, count = 0;

    for (char *one = strtok_r(copy, ", ", &save); one != NULL && right;
         one = strtok_r(NULL, ", ", &save)) {
        ASN1_OCTET_STRING *address = a2i_IPADDRESS(one);

        right = push_name(to, address != NULL ? GEN_IPADD : GEN_DNS, one);
        ASN1_OCTET_STRING_free(address);
        count++;
    }
    free(copy);
    ERR_clear_error(); /* a name that is no address leaves one */
    return right && count > 0;
}

enum nxl_code nxl_authority_serve(struct nxl_authority *authority, const char *names,
                                  uint32_t life_s, struct nxl_bytes *cert, struct nxl_bytes *key,
                                  struct nxl_err *err)
{
    EVP_PKEY *pair = EVP_EC_gen("P-256");
    X509 *leaf = pair != NULL ? cert_begin(pair, (long)life_s) : NULL;
    GENERAL_NAMES *list = GENERAL_NAMES_new();
    enum nxl_code code = NXL_OK;

    ERR_clear_error();
    if (leaf == NULL || list == NULL || !push_names(list, names) ||
        !add_name(X509_get_subject_name(leaf), "CN", "nixlet-operator") ||
        !add_alt_names(leaf, list) || !sign_leaf(authority, leaf, "serverAuth") ||
        !put_cert(leaf, cert) || !put_key(pair, key))
        code = fail(err, "make the server's certificate");
    GENERAL_NAMES_free(list);
    X509_free(leaf);
    EVP_PKEY_free(pair);
    return code;
}

enum nxl_code nxl_authority_secret(const struct nxl_authority *authority, const char *purpose,
                                   unsigned char *to, size_t size, struct nxl_err *err)
{
    unsigned char raw[64];
    BIGNUM *number = NULL;
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_id(EVP_PKEY_HKDF, NULL);
    size_t got = size;
    int count = 0, right;

    ERR_clear_error();
    if (size <= NXL_AUTHORITY_SECRET_MAX &&
        EVP_PKEY_get_bn_param(authority->key, "priv", &number) == 1)
        count = BN_num_bytes(number) <= (int)sizeof(raw) ? BN_bn2binpad(number, raw, 48) : -1;
    right = ctx != NULL && count > 0 && EVP_PKEY_derive_init(ctx) == 1 &&
            EVP_PKEY_CTX_set_hkdf_md(ctx, EVP_sha256()) == 1 &&
            EVP_PKEY_CTX_set1_hkdf_salt(ctx, (const unsigned char *)"nixlet", 6) == 1 &&
            EVP_PKEY_CTX_set1_hkdf_key(ctx, raw, count) == 1 &&
            EVP_PKEY_CTX_add1_hkdf_info(ctx, (const unsigned char *)purpose,
                                        (int)strlen(purpose)) == 1 &&
            EVP_PKEY_derive(ctx, to, &got) == 1 && got == size;
    OPENSSL_cleanse(raw, sizeof(raw));
    BN_clear_free(number);
    EVP_PKEY_CTX_free(ctx);
    return right ? NXL_OK : fail(err, "derive bytes from the key; it must be an EC key");
}
