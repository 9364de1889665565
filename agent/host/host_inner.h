/* host_inner.h - what the rooms of the host share. Fields are grouped by who may touch them. */
#ifndef NXL_HOST_HOST_INNER_H
#define NXL_HOST_HOST_INNER_H

#include "host/host.h"

#include <stdatomic.h>

struct nxl_metric;
struct nxl_timer;
struct nxl_waker;
struct host_conn;

#define HOST_CHUNK_SLOTS 256u
#define HOST_CHUNKS_MAX 256u /* so 65536 operations per instance; more are told NXL_AGAIN */
#define HOST_SLOT_BITS 16u   /* of an operation id; the rest is a serial that is never reused */
#define HOST_REFUSED_MAX 16u
#define HOST_INSTANCE_NAME_MAX 31u /* "fault:" and a backend's name */
#define HOST_BATCH 256u            /* events that one poll delivers */
#define HOST_CODES 64u             /* result codes that have a counter of their own */

/* An event on its way from any thread to the loop. */
enum host_event { HOST_ENDED, HOST_QUIET, HOST_READY, HOST_DISCONNECTED };
struct host_node {
    struct host_node *next;
    struct nxl_instance *instance;
    enum host_event event;
};
struct host_queue {
    _Atomic(struct host_node *) pushed; /* newest first; any thread */
    struct host_node *first, *last;     /* taken over, oldest first; loop thread */
};

/* Bits beside the serial in a slot's word. */
#define SLOT_ENDED 1ull /* complete() came */
#define SLOT_QUIET 2ull /* quiesced() came */

enum slot_state {
    SLOT_FREE,
    SLOT_RUNNING, /* the outcome is not delivered yet */
    SLOT_WAITING, /* the outcome said "not quiet yet" */
    SLOT_OVER,    /* for the caller; kept while an event that should not exist is in the queue */
};
struct host_slot {
    /* serial << 2 and the two bits; 0 when free. One word, so that a late or second call for an
     * operation whose slot has a new life is told from the first in one step. */
    _Atomic uint64_t word;
    struct host_node ended, quiet;
    struct nxl_outcome outcome; /* by the thread that set SLOT_ENDED, then by the loop */
    struct {
        enum slot_state state;
        uint32_t index;
        struct host_slot *next_free;
        nxl_outcome_fn *on_outcome;
        nxl_quiesced_fn *on_quiesced;
        void *arg;
        uint64_t id, begin_ns;
        uint64_t seen; /* of the two bits: drained from the queue */
    } loop;
};

struct nxl_instance {
    struct nxl_host host; /* lent to the backend */
    struct nxl_hosts *hosts;
    const struct nxl_backend_ops *ops;
    struct nxl_backend *backend;
    struct nxl_backend_caps caps;
    uint32_t index;
    char name[HOST_INSTANCE_NAME_MAX + 1];
    struct {
        struct host_slot *free;
        uint32_t slots, inflight;   /* made; used and not quiet */
        struct host_conn *conns;    /* alive, so that news of dead ones is dropped */
        struct nxl_config *lent[4]; /* during open() */
        uint32_t lent_count;
        int starved, closing;
        struct nxl_metric *ended[HOST_CODES], *bytes, *again, *cancels, *gauge, *time_us;
    } loop;
    struct {
        _Atomic(struct host_slot *) chunks[HOST_CHUNKS_MAX]; /* set once, read by any thread */
        struct host_node ready;
        atomic_int ready_queued;
        atomic_uint broken; /* promises */
        struct nxl_metric *broken_metric;
    } shared;
};

struct host_refusal {
    char name[HOST_INSTANCE_NAME_MAX + 1];
    char reason[NXL_ERR_TEXT_SIZE];
};
struct nxl_hosts {
    struct nxl_loop *loop;
    struct nxl_metrics *metrics;
    const struct nxl_settings *settings;
    struct nxl_settings *own_settings; /* when the caller gave none */
    const struct nxl_backend_ops *const *statics;
    char *plugin_dir;
    const struct nxl_hosts_ops *ops;
    void *arg;
    struct nxl_waker *waker;
    struct nxl_timer *guard; /* runs while somebody is believed to poll */
    int guarding;
    uint64_t polls, guard_polls;
    struct nxl_instance *instances[NXL_BACKENDS_MAX];
    uint32_t count;
    struct host_refusal refused[HOST_REFUSED_MAX];
    uint32_t refused_count;
    uint64_t serial;
    struct {
        struct host_queue queue;
        atomic_int parked; /* the loop sleeps: whoever pushes next wakes it */
    } shared;
};

/* registry.c: finds and checks a backend's table. */
NXL_MUST_USE enum nxl_code host_table_find(const struct nxl_backend_ops *const *statics,
                                           const char *plugin_dir, const char *name,
                                           const struct nxl_backend_ops **ret, struct nxl_err *err);
/* Capabilities are a promise: compares them with the wired operations. */
NXL_MUST_USE enum nxl_code host_caps_check(const struct nxl_backend_ops *ops,
                                           const struct nxl_backend_caps *caps,
                                           struct nxl_err *err);
int host_name_ok(const char *name);

/* inflight.c: the operations in flight of one instance. Loop thread. */
struct host_slot *host_slot_take(struct nxl_instance *instance); /* NULL: the limit is reached */
/* The caller knows all there is to know. Frees the slot, now or with the last event of it that is
 * still in the queue. */
void host_slot_settle(struct nxl_instance *instance, struct host_slot *slot);
/* Any thread; NULL if that operation was never there. */
struct host_slot *host_slot_of(struct nxl_instance *instance, uint64_t op_id);
void host_slots_fini(struct nxl_instance *instance);
/* For a backend that closed without ending what it had. */
void host_slots_abandon(struct nxl_instance *instance);

/* completion.c: the crossing. */
void host_callbacks_init(struct nxl_instance *instance);
void host_queue_drain_all(struct nxl_hosts *hosts); /* the loop thread, at close */
void host_kick(struct nxl_hosts *hosts);            /* loop thread: there is work for a poll */
void host_on_wake(void *arg);                       /* the waker's and the guard's callbacks */
void host_on_guard(void *arg);
void host_conn_forget(struct nxl_instance *instance, struct nxl_backend_conn *conn);
void host_conns_fini(struct nxl_instance *instance);
void host_conn_add(struct nxl_instance *instance, struct nxl_backend_conn *conn);
/* A promise of the contract was broken: one log line now and then, and a counter. Any thread. */
void host_broken(struct nxl_instance *instance, uint64_t op_id, const char *what);

/* instance.c */
void host_instance_metrics(struct nxl_instance *instance);
void host_instance_ended(struct nxl_instance *instance, const struct host_slot *slot,
                         const struct nxl_outcome *outcome);
void host_inflight_show(struct nxl_instance *instance);

#endif
