/* reconcile_internal.h - what the rooms of reconcile share; inside reconcile/ only. */
#ifndef NXL_RECONCILE_RECONCILE_INTERNAL_H
#define NXL_RECONCILE_RECONCILE_INTERNAL_H

#include "reconcile/reconcile.h"
#include "reconcile/writer.h"

#include "base/bytes.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/mem.h"
#include "base/metric.h"
#include "base/option.h"
#include "push/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum feed_kind { FEED_NIXLPEER = 0, FEED_POD, FEED_NODE, FEED_NAMESPACE, FEED_KINDS };
enum feed_change { FEED_PUT = 0, FEED_DROP };

struct feed_key { /* lent */
    const char *ns, *name, *uid, *version;
};

struct token_check; /* one on its way */
struct unlabelled_ask;
struct kube_side; /* watches and calls */

struct nxl_reconcile {
    struct nxl_reconcile_options options;
    struct nxl_world *world;
    struct nxl_writer *writer;
    struct nxl_push *push;
    struct kube_side *kube;
    struct token_check *checks;
    struct unlabelled_ask *asks;
    uint64_t asked_ns[256];
    uint32_t ask_count;
    struct nxl_timer *tick, *work, *look;
    char **backends;
    uint32_t backend_count;
    const char *account, *audience; /* of the agents; lent from the settings */
    char versions[FEED_KINDS][NXL_STREAM_VERSION_TEXT_MAX + 1];
    uint8_t synced_kinds[FEED_KINDS];
    uint8_t synced, looks, works;
    struct {
        struct nxl_metric *objects[FEED_KINDS], *refused[FEED_KINDS];
        struct nxl_metric *status, *slices, *events, *failed, *depth, *groups, *pods, *tokens_good,
            *tokens_bad, *suspects, *locals, *locals_refused, *unlabelled, *model_bytes;
    } metrics;
    struct nxl_writer_counts counted;
    struct nxl_log_gate gate;
};

/* feed.c: objects in */
void feed_object(struct nxl_reconcile *reconcile, enum feed_kind kind, enum feed_change change,
                 const struct feed_key *key, const json_t *object);
void feed_synced(struct nxl_reconcile *reconcile, enum feed_kind kind);
/* The watch of kind has shown everything up to version: an object, a bookmark, the end of a list.
 */
void feed_version(struct nxl_reconcile *reconcile, enum feed_kind kind, const char *version);
const char *feed_name(enum feed_kind kind); /* "pods" */

/* tell.c: what follows, out to agents and the writer */
extern const struct nxl_world_ops tell_ops;

/* hear.c: what agents say */
void checks_drop(struct nxl_reconcile *reconcile); /* answers that come later are for nobody */

/* unlabelled.c: pods with a socket that no watch shows */
void unlabelled_pods(struct nxl_reconcile *reconcile, const char *node, const char *const *uids,
                     uint32_t count);
void asks_drop(struct nxl_reconcile *reconcile);

/* reconcile.c */
void reconcile_soon(struct nxl_reconcile *reconcile); /* runs the writer when it is due */

/* Agents stand otherwise: all groups are looked at again, soon and together. */
void reconcile_look_again(struct nxl_reconcile *reconcile);

/* kube_side.c; tests bring their own */
NXL_MUST_USE enum nxl_code kube_side_open(struct nxl_reconcile *reconcile, struct kube_side **ret,
                                          struct nxl_err *err);
void kube_side_close(struct kube_side *side); /* accepts NULL; no callback runs any more */
/* write 1: counted and limited as a write by the client. */
void kube_side_call(struct kube_side *side, const struct nxl_writer_call *call, int write,
                    nxl_writer_answer_fn *fn, void *fn_arg);
int kube_side_may_write(struct kube_side *side);

#endif
