/* authority.h - the issuing authority of a cluster: a P-256 certificate authority, made on first
 * start or given, that signs agents' requests for a day. Where its key is kept is the caller's
 * business; the key is never logged. Loop thread; no I/O. */
#ifndef NXL_PUSH_AUTHORITY_H
#define NXL_PUSH_AUTHORITY_H

#include <nxl/err.h>
#include <nxl/types.h>

struct nxl_authority;
struct nxl_bytes;

#define NXL_AUTHORITY_DAY_S 86400u
#define NXL_AUTHORITY_SECRET_MAX 128u

/* A new one, valid for ten years. */
NXL_MUST_USE enum nxl_code nxl_authority_make(const char *cluster, struct nxl_authority **ret,
                                              struct nxl_err *err);
/* cert_pem: the authority's certificate first, others behind it are trusted too (the one before, in
 * a rotation). NXL_CONFIG: err says what is wrong (no authority, key does not fit, expired). */
NXL_MUST_USE enum nxl_code nxl_authority_open(const char *cluster, struct nxl_view cert_pem,
                                              struct nxl_view key_pem, struct nxl_authority **ret,
                                              struct nxl_err *err);
void nxl_authority_close(struct nxl_authority *authority); /* accepts NULL */
/* What to keep in the Secret; key is a secret. */
NXL_MUST_USE enum nxl_code nxl_authority_pem(const struct nxl_authority *authority,
                                             struct nxl_bytes *cert, struct nxl_bytes *key,
                                             struct nxl_err *err);
const char *nxl_authority_bundle(const struct nxl_authority *authority); /* PEM that agents trust */

/* Signs an agent's request: CN node, URI SAN nixlet://<cluster>/node/<node>, OU the agent's pod UID
 * (may be ""). Of the request only the key counts, proven by its signature; it must be P-256 or
 * P-384. NXL_INVALID_PARAM. Appends PEM. */
NXL_MUST_USE enum nxl_code nxl_authority_sign(struct nxl_authority *authority,
                                              struct nxl_view csr_pem, const char *node,
                                              const char *pod, uint32_t life_s,
                                              struct nxl_bytes *to, struct nxl_err *err);
/* A server certificate for the stream: names is "a.b.svc,c,10.0.0.1". Appends PEM; key is a secret.
 */
NXL_MUST_USE enum nxl_code nxl_authority_serve(struct nxl_authority *authority, const char *names,
                                               uint32_t life_s, struct nxl_bytes *cert,
                                               struct nxl_bytes *key, struct nxl_err *err);
/* Bytes that every holder of the key derives alike, e.g. for tickets of the stream. */
NXL_MUST_USE enum nxl_code nxl_authority_secret(const struct nxl_authority *authority,
                                                const char *purpose, unsigned char *to, size_t size,
                                                struct nxl_err *err);
/* Seconds until the certificate of the authority ends; negative: it did. */
int64_t nxl_authority_left_s(const struct nxl_authority *authority);

#endif
