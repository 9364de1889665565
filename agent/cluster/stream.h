/* stream.h - the agent's side of the operator stream: dials every operator, proves its node,
 * applies what it is told to the table of members, fences, acknowledges. Losing all operators
 * changes nothing that is known. Loop thread. */
#ifndef NXL_CLUSTER_STREAM_H
#define NXL_CLUSTER_STREAM_H

#include "stream/frame.h"

struct nxl_bytes;
struct nxl_loop;
struct nxl_members;
struct nxl_metrics;
struct nxl_settings;
struct nxl_stream; /* all operators of this agent */
struct nxl_trust;

struct nxl_stream_ops {
    /* Everything said under this ticket was given to the members' ops: call nxl_stream_fenced()
     * when nothing of the dead moves any more, maybe from inside. NULL: fenced at once. */
    void (*on_fence)(void *arg, uint64_t ticket);
    /* The number of operators that are connected and told everything changed. May be NULL. */
    void (*on_state)(void *arg, uint32_t up, uint32_t known);
    void (*on_second)(void *arg); /* about once a second. May be NULL. */
};

struct nxl_stream_options {
    struct nxl_loop *loop;
    struct nxl_metrics *metrics;
    const struct nxl_settings *settings; /* section "stream" */
    const char *cluster, *node, *agent;
    struct nxl_members *members; /* borrowed */
    struct nxl_trust *trust; /* gets its certificate from the operator; NULL: none is asked for */
    const struct nxl_stream_ops *ops;
    void *arg;
};

/* Options: operators (host:port, several by comma; every address of a name is dialled), token_file,
 * ca_file, server_name, redial_jitter, redial_max, resolve, connect_timeout, silent_after,
 * members_max, cert_renew. */
void nxl_stream_declare(struct nxl_settings *settings);
int nxl_stream_wanted(const struct nxl_settings *settings); /* operators are configured */
/* NXL_CONFIG. Never waits for an operator. */
NXL_MUST_USE enum nxl_code nxl_stream_open(const struct nxl_stream_options *options,
                                           struct nxl_stream **ret, struct nxl_err *err);
void nxl_stream_close(struct nxl_stream *stream); /* accepts NULL; no callback runs any more */
/* purged: how many incarnations went. */
void nxl_stream_fenced(struct nxl_stream *stream, uint64_t ticket, uint32_t purged);
/* A fact about one of our own clients, told to every operator; nothing is kept for one that is
 * down. */
void nxl_stream_tell(struct nxl_stream *stream, const char *incarnation, enum nxl_life life,
                     const char *reason);
void nxl_stream_tell_suspect(struct nxl_stream *stream, const char *incarnation, const char *node,
                             const char *evidence);
/* Which pods have a socket here; the latest list is told again after a reconnect. Copied. */
void nxl_stream_pods(struct nxl_stream *stream, const char *const *uids, uint32_t count);
uint32_t nxl_stream_up(const struct nxl_stream *stream);
uint64_t nxl_stream_heard_ns(const struct nxl_stream *stream); /* last ping of any; 0: never */
void nxl_stream_describe(const struct nxl_stream *stream, struct nxl_bytes *to); /* JSON */

#endif
