/* reconcile.h - watches the API server, feeds the model with what it sees, agents with what
 * follows, and writes status, events, slices and the finalizer while the lease says so. Made by
 * operator.c. Loop thread. */
#ifndef NXL_RECONCILE_RECONCILE_H
#define NXL_RECONCILE_RECONCILE_H

#include <nxl/err.h>

struct nxl_bytes;
struct nxl_kube_client;
struct nxl_kube_lease;
struct nxl_loop;
struct nxl_metrics;
struct nxl_push;
struct nxl_push_ops;
struct nxl_reconcile;
struct nxl_settings;
struct nxl_world;

struct nxl_reconcile_options {
    struct nxl_loop *loop;
    struct nxl_metrics *metrics;
    const struct nxl_settings *settings; /* section "reconcile" */
    struct nxl_kube_client *client;      /* borrowed, like all of these */
    struct nxl_kube_lease *lease;        /* NULL: writes nothing */
    const char *id;                      /* of this replica: reportingInstance of events */
};

/* Options: namespaces (empty: all), pod_label, agent_account ("namespace/name" of the agents'
 * service account), audience, slices, status_interval, revoke_timeout, writes_rate, backends. */
void nxl_reconcile_declare(struct nxl_settings *settings);
NXL_MUST_USE enum nxl_code nxl_reconcile_open(const struct nxl_reconcile_options *options,
                                              struct nxl_reconcile **ret, struct nxl_err *err);
/* For nxl_push_open(), with the reconcile as arg: interest, tokens, what agents report. */
const struct nxl_push_ops *nxl_reconcile_push_ops(void);
/* Starts the watches. push is borrowed until close; NULL: nobody is told. Once. */
NXL_MUST_USE enum nxl_code nxl_reconcile_start(struct nxl_reconcile *reconcile,
                                               struct nxl_push *push, struct nxl_err *err);
void nxl_reconcile_close(struct nxl_reconcile *reconcile); /* accepts NULL; before push's close */

int nxl_reconcile_synced(const struct nxl_reconcile *reconcile); /* for /readyz */
/* The lease was gained or lost: everything is looked at again. */
void nxl_reconcile_lead(struct nxl_reconcile *reconcile, int leading);
/* Heartbeats and the state of the store go in here (nxl_world_heartbeat, nxl_world_store). */
struct nxl_world *nxl_reconcile_world(struct nxl_reconcile *reconcile);
/* JSON for people and nixletctl: groups with counts and conditions. */
void nxl_reconcile_describe(struct nxl_reconcile *reconcile, struct nxl_bytes *to);

#endif
