/* trust_internal.h - shared by trust.c (files, TLS) and trust_sign.c (signatures over facts). */
#ifndef NXL_CLUSTER_TRUST_INTERNAL_H
#define NXL_CLUSTER_TRUST_INTERNAL_H

#include "cluster/trust.h"

#include <openssl/ssl.h>
#include <openssl/x509.h>

struct nxl_trust {
    SSL_CTX *server, *client;
    X509_STORE *authority; /* for signatures; the contexts have their own */
    X509 *cert;
    EVP_PKEY *key;
    char cluster[NXL_NAMESPACE_MAX + 1];
    char node[NXL_NODE_MAX + 1]; /* ours; of a pending one */
};

/* The node that a certificate names, if it is one of cluster. NXL_NOT_ALLOWED tells what it says
 * instead. */
enum nxl_code trust_node_of(const X509 *cert, const char *cluster, char *ret_node, size_t room,
                            struct nxl_err *err);
/* Chain and time, by the authority. */
enum nxl_code trust_check_chain(const struct nxl_trust *trust, X509 *cert, struct nxl_err *err);

/* cert_path NULL: trust->cert alone is shown. NULL: OpenSSL's error queue says why. */
SSL_CTX *trust_context(struct nxl_trust *trust, const SSL_METHOD *method, const char *cert_path);

#endif
