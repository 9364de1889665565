/* completion.c - the one crossing from any thread to the loop: outcomes, quiet, ready and
 * disconnected. Pushing is one compare-and-swap; an empty poll is one load. The loop is woken only
 * while it says that it sleeps. */
#include "host/host_inner.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/mem.h"
#include "base/metric.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD_NS (4 * NXL_MS)

/* A connection that is alive, and news about one. */
struct host_conn {
    struct host_conn *next;
    struct nxl_backend_conn *conn;
};
struct host_news {
    struct host_node node; /* first */
    struct nxl_backend_conn *conn;
    char why[160];
};

/* --- any thread --- */

static void loop_wake(struct nxl_hosts *hosts)
{
    if (atomic_exchange_explicit(&hosts->shared.parked, 0, memory_order_acq_rel))
        nxl_waker_wake(hosts->waker);
}

/* The push and the look at `parked` are ordered against nxl_hosts_park(), which stores `parked` and
 * then looks at the queue: one of the two sees the other. */
static void queue_push(struct nxl_hosts *hosts, struct host_node *node)
{
    struct host_queue *queue = &hosts->shared.queue;
    struct host_node *head = atomic_load_explicit(&queue->pushed, memory_order_relaxed);

    do
        node->next = head;
    while (!atomic_compare_exchange_weak_explicit(&queue->pushed, &head, node, memory_order_seq_cst,
                                                  memory_order_relaxed));
    if (atomic_load_explicit(&hosts->shared.parked, memory_order_seq_cst))
        loop_wake(hosts);
}

/* Logged at powers of two: the first at once, and a broken backend cannot flood the log. */
void host_broken(struct nxl_instance *instance, uint64_t op_id, const char *what)
{
    uint32_t count =
        atomic_fetch_add_explicit(&instance->shared.broken, 1, memory_order_relaxed) + 1;

    if (instance->shared.broken_metric != NULL)
        nxl_metric_add(instance->shared.broken_metric, 1);
    if ((count & (count - 1)) == 0)
        nxl_error("host",
                  "event=\"backend broke a promise, ignoring the call\" backend=%s op=%llu what=%s "
                  "times=%u",
                  nxl_quote(instance->name), (unsigned long long)op_id, nxl_quote(what), count);
}

/* Sets one bit of the operation's word, once, and only while the operation lives. */
static struct host_slot *slot_mark(struct nxl_instance *instance, uint64_t op_id, uint64_t bit,
                                   const char *twice, const char *unknown)
{
    struct host_slot *slot = host_slot_of(instance, op_id);
    uint64_t serial = op_id >> HOST_SLOT_BITS;
    uint64_t word = slot != NULL ? atomic_load_explicit(&slot->word, memory_order_acquire) : 0;

    do {
        if (slot == NULL || serial == 0 || word >> 2 != serial) {
            host_broken(instance, op_id, unknown);
            return NULL;
        }
        if (word & bit) {
            host_broken(instance, op_id, twice);
            return NULL;
        }
    } while (!atomic_compare_exchange_weak_explicit(&slot->word, &word, word | bit,
                                                    memory_order_acq_rel, memory_order_acquire));
    return slot;
}

static void host_complete(struct nxl_host *host, const struct nxl_outcome *outcome)
{
    struct nxl_instance *instance = nxl_container_of(host, struct nxl_instance, host);
    struct host_slot *slot;
    size_t size = outcome->size < sizeof(*outcome) ? outcome->size : sizeof(*outcome);

    slot = slot_mark(instance, outcome->op_id, SLOT_ENDED, "second complete()",
                     "complete() of an operation that is not there");
    if (slot == NULL)
        return;
    memset(&slot->outcome, 0, sizeof(slot->outcome));
    memcpy(&slot->outcome, outcome, size);
    slot->outcome.size = sizeof(slot->outcome);
    slot->outcome.text[sizeof(slot->outcome.text) - 1] = '\0';
    queue_push(instance->hosts, &slot->ended);
}

static void host_quiesced(struct nxl_host *host, uint64_t op_id)
{
    struct nxl_instance *instance = nxl_container_of(host, struct nxl_instance, host);
    struct host_slot *slot = slot_mark(instance, op_id, SLOT_QUIET, "second quiesced()",
                                       "quiesced() of an operation that is not there");

    if (slot != NULL)
        queue_push(instance->hosts, &slot->quiet);
}

static void host_ready(struct nxl_host *host)
{
    struct nxl_instance *instance = nxl_container_of(host, struct nxl_instance, host);

    if (!atomic_exchange_explicit(&instance->shared.ready_queued, 1, memory_order_acq_rel))
        queue_push(instance->hosts, &instance->shared.ready);
}

static void host_disconnected(struct nxl_host *host, struct nxl_backend_conn *conn, const char *why)
{
    struct nxl_instance *instance = nxl_container_of(host, struct nxl_instance, host);
    struct host_news *news = nxl_new0(sizeof(*news));

    news->node = (struct host_node){NULL, instance, HOST_DISCONNECTED};
    news->conn = conn;
    (void)nxl_copy_text(news->why, sizeof(news->why), why != NULL ? why : ""); /* cut is fine */
    queue_push(instance->hosts, &news->node);
}

static void host_log(struct nxl_host *host, int level, const char *text)
{
    struct nxl_instance *instance = nxl_container_of(host, struct nxl_instance, host);
    enum nxl_log_level to = level <= 0   ? NXL_LOG_ERROR
                            : level >= 3 ? NXL_LOG_DEBUG
                                         : (enum nxl_log_level)level;

    NXL_LOG(to, "backend", "backend=%s text=%s", nxl_quote(instance->name), nxl_quote(text));
}

void host_callbacks_init(struct nxl_instance *instance)
{
    instance->host = (struct nxl_host){
        .size = sizeof(instance->host),
        .complete = host_complete,
        .quiesced = host_quiesced,
        .ready = host_ready,
        .disconnected = host_disconnected,
        .log = host_log,
    };
    instance->shared.ready = (struct host_node){NULL, instance, HOST_READY};
}

/* --- loop thread --- */

void host_kick(struct nxl_hosts *hosts)
{
    if (atomic_load_explicit(&hosts->shared.parked, memory_order_relaxed))
        loop_wake(hosts);
}

/* Takes over what was pushed; it comes newest first. */
static void queue_take(struct host_queue *queue)
{
    struct host_node *node, *turned = NULL, *last;

    if (atomic_load_explicit(&queue->pushed, memory_order_relaxed) == NULL)
        return;
    node = atomic_exchange_explicit(&queue->pushed, NULL, memory_order_acquire);
    last = node;
    while (node != NULL) {
        struct host_node *next = node->next;

        node->next = turned;
        turned = node;
        node = next;
    }
    if (queue->first == NULL)
        queue->first = turned;
    else
        queue->last->next = turned;
    queue->last = last;
}

static int queue_empty(struct host_queue *queue)
{
    return queue->first == NULL &&
           atomic_load_explicit(&queue->pushed, memory_order_seq_cst) == NULL;
}

static void slot_quiet(struct nxl_instance *instance, struct host_slot *slot)
{
    nxl_quiesced_fn *on_quiesced = slot->loop.on_quiesced;
    void *arg = slot->loop.arg;
    uint64_t id = slot->loop.id;

    host_slot_settle(instance, slot);
    if (on_quiesced != NULL)
        on_quiesced(arg, id);
}

static void deliver_ended(struct nxl_instance *instance, struct host_slot *slot)
{
    struct nxl_outcome outcome = slot->outcome;

    slot->loop.seen |= SLOT_ENDED;
    if (slot->loop.state == SLOT_OVER) {
        host_broken(instance, slot->loop.id, "complete() of a refused operation");
        host_slot_settle(instance, slot);
        return;
    }
    if (outcome.code == NXL_AGAIN || outcome.code == NXL_IN_PROG) {
        host_broken(instance, slot->loop.id, "ended with a code that is no end");
        outcome.code = NXL_BACKEND;
    }
    host_instance_ended(instance, slot, &outcome);
    if (outcome.quiesced) {
        nxl_outcome_fn *on_outcome = slot->loop.on_outcome;
        void *arg = slot->loop.arg;

        if (slot->loop.seen & SLOT_QUIET)
            host_broken(instance, slot->loop.id, "quiesced() although the outcome says so");
        host_slot_settle(instance, slot);
        on_outcome(arg, &outcome);
        return;
    }
    slot->loop.state = SLOT_WAITING;
    slot->loop.on_outcome(slot->loop.arg, &outcome);
    if (slot->loop.seen & SLOT_QUIET)
        slot_quiet(instance, slot);
}

static void deliver_quiet(struct nxl_instance *instance, struct host_slot *slot)
{
    slot->loop.seen |= SLOT_QUIET;
    if (slot->loop.state == SLOT_WAITING) {
        slot_quiet(instance, slot);
    } else if (slot->loop.state == SLOT_OVER) {
        host_broken(instance, slot->loop.id, "quiesced() of an operation that was over");
        host_slot_settle(instance, slot);
    } /* else it overtook its outcome, which looks at `seen` */
}

static void deliver_news(struct nxl_instance *instance, struct host_news *news)
{
    struct host_conn *known = instance->loop.conns;

    while (known != NULL && known->conn != news->conn)
        known = known->next;
    if (known != NULL && instance->hosts->ops != NULL && instance->hosts->ops->disconnected != NULL)
        instance->hosts->ops->disconnected(instance->hosts->arg, instance, news->conn, news->why);
    free(news);
}

static void deliver(struct host_node *node)
{
    struct nxl_instance *instance = node->instance;

    switch (node->event) {
    case HOST_ENDED:
        deliver_ended(instance, nxl_container_of(node, struct host_slot, ended));
        break;
    case HOST_QUIET:
        deliver_quiet(instance, nxl_container_of(node, struct host_slot, quiet));
        break;
    case HOST_READY:
        atomic_store_explicit(&instance->shared.ready_queued, 0, memory_order_release);
        if (instance->hosts->ops != NULL && instance->hosts->ops->ready != NULL &&
            !instance->loop.closing)
            instance->hosts->ops->ready(instance->hosts->arg, instance);
        break;
    case HOST_DISCONNECTED:
        deliver_news(instance, nxl_container_of(node, struct host_news, node));
        break;
    }
}

static int queue_drain(struct nxl_hosts *hosts, uint32_t limit)
{
    struct host_queue *queue = &hosts->shared.queue;
    uint32_t done = 0;

    queue_take(queue);
    for (; queue->first != NULL && done < limit; done++) {
        struct host_node *node = queue->first;

        queue->first = node->next;
        deliver(node);
    }
    return (int)done;
}

void host_queue_drain_all(struct nxl_hosts *hosts)
{
    while (queue_drain(hosts, HOST_BATCH) > 0)
        ;
}

static int backends_progress(struct nxl_hosts *hosts)
{
    int done = 0;

    for (uint32_t i = 0; i < hosts->count; i++) {
        struct nxl_instance *instance = hosts->instances[i];

        if (NXL_BACKEND_HAS(instance->ops, progress) && instance->backend != NULL)
            done += instance->ops->progress(instance->backend);
    }
    return done;
}

/* Room again after the host itself said NXL_AGAIN. */
static void starved_feed(struct nxl_hosts *hosts)
{
    for (uint32_t i = 0; i < hosts->count; i++) {
        struct nxl_instance *instance = hosts->instances[i];

        if (instance->loop.starved && instance->loop.free != NULL && !instance->loop.closing) {
            instance->loop.starved = 0;
            if (hosts->ops != NULL && hosts->ops->ready != NULL)
                hosts->ops->ready(hosts->arg, instance);
        }
    }
}

static int events_deliver(struct nxl_hosts *hosts)
{
    int done = backends_progress(hosts);

    done += queue_drain(hosts, HOST_BATCH);
    if (done > 0)
        starved_feed(hosts);
    return done;
}

int nxl_hosts_poll(struct nxl_hosts *hosts)
{
    hosts->polls++;
    if (atomic_load_explicit(&hosts->shared.parked, memory_order_relaxed)) {
        atomic_store_explicit(&hosts->shared.parked, 0, memory_order_relaxed);
        if (!hosts->guarding) {
            hosts->guarding = 1;
            hosts->guard_polls = hosts->polls;
            nxl_timer_start(hosts->guard, GUARD_NS, GUARD_NS);
        }
    }
    return events_deliver(hosts);
}

int nxl_hosts_park(struct nxl_hosts *hosts)
{
    atomic_store_explicit(&hosts->shared.parked, 1, memory_order_seq_cst);
    if (queue_empty(&hosts->shared.queue) && backends_progress(hosts) == 0 &&
        queue_empty(&hosts->shared.queue)) {
        if (hosts->guarding)
            nxl_timer_stop(hosts->guard);
        hosts->guarding = 0;
        return 0;
    }
    atomic_store_explicit(&hosts->shared.parked, 0, memory_order_relaxed);
    return 1;
}

int nxl_hosts_deliver(struct nxl_hosts *hosts)
{
    int parked = atomic_exchange_explicit(&hosts->shared.parked, 0, memory_order_relaxed);
    int done = events_deliver(hosts);

    if (parked && nxl_hosts_park(hosts))
        nxl_waker_wake(hosts->waker);
    return done;
}

/* Bounded turns: what is left comes in the next one. */
void host_on_wake(void *arg)
{
    struct nxl_hosts *hosts = arg;

    if (events_deliver(hosts) > 0 || nxl_hosts_park(hosts))
        nxl_waker_wake(hosts->waker);
}

/* Whoever polls parks when he is done. Should one stop without that, completions would wait for
 * ever; so it is looked at now and then. */
void host_on_guard(void *arg)
{
    struct nxl_hosts *hosts = arg;

    if (hosts->polls == hosts->guard_polls && nxl_hosts_park(hosts))
        nxl_waker_wake(hosts->waker);
    hosts->guard_polls = hosts->polls;
}

void host_conn_add(struct nxl_instance *instance, struct nxl_backend_conn *conn)
{
    struct host_conn *known = nxl_new0(sizeof(*known));

    known->conn = conn;
    known->next = instance->loop.conns;
    instance->loop.conns = known;
}

/* News of it that are still in the queue must not reach a later connection at the same address. */
void host_conn_forget(struct nxl_instance *instance, struct nxl_backend_conn *conn)
{
    struct host_queue *queue = &instance->hosts->shared.queue;
    struct host_conn **link = &instance->loop.conns;

    queue_take(queue);
    for (struct host_node *node = queue->first; node != NULL; node = node->next)
        if (node->event == HOST_DISCONNECTED && node->instance == instance) {
            struct host_news *news = nxl_container_of(node, struct host_news, node);

            if (news->conn == conn)
                news->conn = NULL;
        }
    while (*link != NULL && (*link)->conn != conn)
        link = &(*link)->next;
    if (*link != NULL) {
        struct host_conn *known = *link;

        *link = known->next;
        free(known);
    }
}

void host_conns_fini(struct nxl_instance *instance)
{
    while (instance->loop.conns != NULL) {
        struct host_conn *known = instance->loop.conns;

        instance->loop.conns = known->next;
        free(known);
    }
}
