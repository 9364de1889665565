/* trust.h - the agent's certificate, key and the authority's bundle: TLS contexts for the link, and
 * signatures over life facts. Files are read at open; nothing secret is ever logged. Loop thread.
 */
#ifndef NXL_CLUSTER_TRUST_H
#define NXL_CLUSTER_TRUST_H

#include <nxl/err.h>
#include <nxl/types.h>

struct nxl_bytes;
struct nxl_trust;
struct ssl_st;

/* The certificate says who: subject CN = node name; URI SAN "nixlet://<cluster>/node/<node>". err
 * names the file and what is wrong with it (expired, key does not match, not signed by ca, other
 * node). */
NXL_MUST_USE enum nxl_code nxl_trust_open(const char *cert_path, const char *key_path,
                                          const char *ca_path, const char *cluster,
                                          const char *node, struct nxl_trust **ret,
                                          struct nxl_err *err);
/* Without files: makes a P-256 key, and waits for a certificate from the operator. Until then no
 * endpoint can be made and nothing is signed. */
NXL_MUST_USE enum nxl_code nxl_trust_open_pending(const char *cluster, const char *node,
                                                  struct nxl_trust **ret, struct nxl_err *err);
int nxl_trust_ready(const struct nxl_trust *trust); /* it has a certificate */
int64_t
nxl_trust_left_s(const struct nxl_trust *trust); /* seconds until it ends; 0 if there is none */
/* A request for a certificate, signed by the key, as PEM with its NUL. */
NXL_MUST_USE enum nxl_code nxl_trust_request(const struct nxl_trust *trust, struct nxl_bytes *to,
                                             struct nxl_err *err);
/* Takes a certificate for the key, and the authority's bundle, both PEM. Checked like files; the
 * old ones stay on error. Connections keep what they began with. */
NXL_MUST_USE enum nxl_code nxl_trust_take(struct nxl_trust *trust, struct nxl_view cert_pem,
                                          struct nxl_view bundle_pem, struct nxl_err *err);
void nxl_trust_close(struct nxl_trust *trust);
/* A TLS 1.3 endpoint with mutual verification. Given to SSL_free(). */
struct ssl_st *nxl_trust_ssl(struct nxl_trust *trust, int server);
/* After the handshake: the peer's node name, checked against our cluster. NXL_NOT_ALLOWED
 * otherwise. */
NXL_MUST_USE enum nxl_code nxl_trust_peer(struct nxl_trust *trust, struct ssl_st *ssl,
                                          char *ret_node, size_t room, struct nxl_err *err);
/* Signature and certificate in one blob, to be put beside the text. */
NXL_MUST_USE enum nxl_code nxl_trust_sign(struct nxl_trust *trust, struct nxl_view text,
                                          struct nxl_bytes *to, struct nxl_err *err);
/* Checks chain, cluster, time and signature; tells which node signed. */
NXL_MUST_USE enum nxl_code nxl_trust_verify(struct nxl_trust *trust, struct nxl_view text,
                                            struct nxl_view signature, char *ret_node, size_t room,
                                            struct nxl_err *err);

#endif
