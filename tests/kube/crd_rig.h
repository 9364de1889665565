/* crd_rig.h - what the CRD tests share: one control plane with our CRDs, relaxed JSON, and posts
 * that are judged by the causes in the server's answer. */
#ifndef NXL_TESTS_CRD_RIG_H
#define NXL_TESTS_CRD_RIG_H

#include "support/kube_server.h"

#include <jansson.h>

#define CRD_PEERS "/apis/nixlet.dev/v1alpha1/namespaces/default/nixlpeers"
#define CRD_SLICES "/apis/nixlet.dev/v1alpha1/namespaces/default/nixlpeerslices"

extern struct kube_server *crd_server; /* made by the group's setup */

/* JSON with ' for ". Aborts on a mistake. */
json_t *crd_json(const char *text);
/* A NixlPeer with the smallest spec, and patch (may be NULL) merged into its spec. */
json_t *crd_peer(const char *name, const char *patch);
/* A NixlPeerSlice with one member; patch is merged into the whole. */
json_t *crd_slice(const char *name, const char *patch);
/* RFC 7386 */
void crd_merge(json_t *into, const json_t *patch);
/* body is consumed; the answer is parsed, to be freed by json_decref(). */
json_t *crd_send(const char *method, const char *path, const char *type, json_t *body,
                 long *ret_status);
/* 1 if the answer is a refusal (422) with a cause at field (NULL: any) whose message has text in
 * it. */
int crd_refused_for(const json_t *answer, const char *field, const char *text);
/* The openAPIV3Schema that the server has stored for "nixlpeers" or "nixlpeerslices"; new. */
json_t *crd_schema(const char *plural);
void crd_delete(const char *path);

int crd_run_rules(void);
int crd_run_schema(void);

#endif
