/* reconcile.c - opens and closes the parts, ticks the model, runs the writer, counts. */
#include "reconcile/reconcile_internal.h"

#define TICK_NS (250 * NXL_MS)
#define LOOK_NS (200 * NXL_MS)

static const struct nxl_option reconcile_options[] = {
    {"agent_account", NXL_OPTION_TEXT, "nixlet-system/nixlet-agent", 0, 0, NULL,
     "namespace/name of the service account that agents must have"},
    {"audience", NXL_OPTION_TEXT, "nixlet-operator", 0, 0, NULL, "audience of agents' tokens"},
    {"backends", NXL_OPTION_TEXT, "", 0, 0, NULL,
     "backend names that a NixlPeer may use beside the built-in ones, comma-separated"},
    {"namespace", NXL_OPTION_TEXT, "", 0, 0, NULL,
     "watch pods and NixlPeers of this namespace only; empty: of all"},
    {"pod_selector", NXL_OPTION_TEXT, "nixlet.dev/transfer", 0, 0, NULL,
     "label selector of the pods that are watched"},
    {"slices", NXL_OPTION_BOOL, "true", 0, 0, NULL, "write NixlPeerSlices for people to look at"},
    {"status_interval", NXL_OPTION_DURATION, "5s", NXL_SEC, 600 * NXL_SEC, NULL,
     "time between status writes of one object that change no condition"},
    {"revoke_timeout", NXL_OPTION_DURATION, "60s", NXL_SEC, 600 * NXL_SEC, NULL,
     "a deleted NixlPeer waits so long for its agents"},
    {"writes_rate", NXL_OPTION_INT, "2", 1, 1000, NULL, "writes a second, steady"},
    {NULL, NXL_OPTION_TEXT, NULL, 0, 0, NULL, NULL},
};

void nxl_reconcile_declare(struct nxl_settings *settings)
{
    nxl_settings_declare(settings, "reconcile", reconcile_options);
}

/* ---- what the writer asks
 * ------------------------------------------------------------------------ */

static void api_call(void *arg, const struct nxl_writer_call *call, nxl_writer_answer_fn *fn,
                     void *fn_arg)
{
    struct nxl_reconcile *reconcile = arg;

    kube_side_call(reconcile->kube, call, 1, fn, fn_arg);
}

static int api_may_write(void *arg)
{
    struct nxl_reconcile *reconcile = arg;

    return reconcile->kube != NULL && reconcile->synced && kube_side_may_write(reconcile->kube);
}

static void api_agents(void *arg, const char *group, struct nxl_writer_agents *ret)
{
    struct nxl_reconcile *reconcile = arg;
    struct nxl_world_group state;
    struct nxl_push_group agents = {0};

    if (reconcile->push != NULL)
        NXL_IGNORE(nxl_push_group(reconcile->push, group, &agents)); /* not known: nobody */
    ret->interested = agents.interested;
    ret->synced = agents.synced;
    ret->slowest_ns = agents.slowest_ns;
    /* A node whose agent is not there is not in sync, however well the others are. */
    if (agents.interested > 0 && nxl_world_group(reconcile->world, group, &state) &&
        state.nodes > ret->interested)
        ret->interested = state.nodes;
}

static int ack_is_open(void *arg, const struct nxl_push_agent *agent)
{
    (void)arg;
    return agent->acked_seq < agent->sent_seq;
}

static int api_revoked(void *arg, const char *group)
{
    struct nxl_reconcile *reconcile = arg;

    (void)group; /* an agent that owes nothing has heard of it */
    return reconcile->push == NULL || nxl_push_each(reconcile->push, ack_is_open, NULL) == 0;
}

static void api_clock(void *arg, uint64_t *ret_now_ns, int64_t *ret_now_ms)
{
    (void)arg;
    *ret_now_ns = nxl_now_ns();
    *ret_now_ms = (int64_t)nxl_unix_ms();
}

/* ---- timers
 * ----------------------------------------------------------------------------------------- */

static void on_work(void *arg)
{
    struct nxl_reconcile *reconcile = arg;
    uint64_t next_ns, now_ns;

    reconcile->works = 0;
    nxl_writer_run(reconcile->writer);
    next_ns = nxl_writer_next_ns(reconcile->writer);
    now_ns = nxl_now_ns();
    if (next_ns == UINT64_MAX)
        return;
    nxl_timer_start(reconcile->work, next_ns > now_ns ? next_ns - now_ns : 0, 0);
}

void reconcile_soon(struct nxl_reconcile *reconcile)
{
    if (reconcile->works || reconcile->work == NULL)
        return;
    reconcile->works = 1;
    nxl_timer_start(reconcile->work, 0, 0);
}

static void look_at(void *arg, const char *group)
{
    struct nxl_reconcile *reconcile = arg;

    nxl_writer_group(reconcile->writer, group);
}

static void on_look(void *arg)
{
    struct nxl_reconcile *reconcile = arg;

    reconcile->looks = 0;
    nxl_world_each_group(reconcile->world, look_at, reconcile);
    reconcile_soon(reconcile);
}

void reconcile_look_again(struct nxl_reconcile *reconcile)
{
    if (reconcile->looks || reconcile->look == NULL)
        return;
    reconcile->looks = 1;
    nxl_timer_start(reconcile->look, LOOK_NS, 0);
}

static void on_tick(void *arg)
{
    struct nxl_reconcile *reconcile = arg;

    nxl_world_tick(reconcile->world, nxl_now_ns());
}

/* ---- metrics
 * ------------------------------------------------------------------------------------------ */

static struct nxl_metric *counter(struct nxl_reconcile *r, const char *name, const char *help,
                                  const char *labels)
{
    return nxl_metric_open(r->options.metrics, NXL_METRIC_COUNTER, name, help, labels);
}

static struct nxl_metric *gauge(struct nxl_reconcile *r, const char *name, const char *help)
{
    return nxl_metric_open(r->options.metrics, NXL_METRIC_GAUGE, name, help, "");
}

static void add_since(struct nxl_metric *metric, uint64_t now, uint64_t before)
{
    nxl_metric_add(metric, now - before);
}

static void refresh_metrics(void *arg)
{
    struct nxl_reconcile *r = arg;
    struct nxl_writer_counts counts;
    struct nxl_world_size size;

    if (r->writer == NULL)
        return;
    nxl_writer_counts(r->writer, &counts);
    add_since(r->metrics.status, counts.status, r->counted.status);
    add_since(r->metrics.slices, counts.slices, r->counted.slices);
    add_since(r->metrics.events, counts.events, r->counted.events);
    add_since(r->metrics.failed, counts.failed, r->counted.failed);
    r->counted = counts;
    nxl_world_size(r->world, &size);
    nxl_metric_set(r->metrics.depth, nxl_writer_depth(r->writer));
    nxl_metric_set(r->metrics.groups, size.groups);
    nxl_metric_set(r->metrics.pods, size.pods);
    nxl_metric_set(r->metrics.model_bytes, (int64_t)size.bytes);
}

static void open_metrics(struct nxl_reconcile *r)
{
    char labels[64];
    const char *writes = "writes to the API server by what they write";

    for (int kind = 0; kind < FEED_KINDS; kind++) {
        snprintf(labels, sizeof(labels), "kind=\"%s\"", feed_name((enum feed_kind)kind));
        r->metrics.objects[kind] =
            counter(r, "nixlet_operator_objects_total", "objects seen by the watches", labels);
        r->metrics.refused[kind] =
            counter(r, "nixlet_operator_objects_refused_total",
                    "objects that were malformed and therefore not used", labels);
    }
    r->metrics.status = counter(r, "nixlet_operator_writes_total", writes, "what=\"status\"");
    r->metrics.slices = counter(r, "nixlet_operator_writes_total", writes, "what=\"slice\"");
    r->metrics.events = counter(r, "nixlet_operator_writes_total", writes, "what=\"event\"");
    r->metrics.failed = counter(r, "nixlet_operator_writes_failed_total",
                                "writes that the API server did not take", "");
    r->metrics.tokens_good = counter(r, "nixlet_operator_token_reviews_total",
                                     "tokens of agents that were checked", "result=\"good\"");
    r->metrics.tokens_bad = counter(r, "nixlet_operator_token_reviews_total",
                                    "tokens of agents that were checked", "result=\"bad\"");
    r->metrics.suspects = counter(r, "nixlet_operator_suspects_total",
                                  "members or nodes that an agent could not reach", "");
    r->metrics.locals =
        counter(r, "nixlet_operator_local_facts_total",
                "facts that agents told of pods on their nodes", "result=\"taken\"");
    r->metrics.locals_refused =
        counter(r, "nixlet_operator_local_facts_total",
                "facts that agents told of pods on their nodes", "result=\"refused\"");
    r->metrics.unlabelled =
        counter(r, "nixlet_operator_unlabelled_pods_total",
                "pods with a socket at an agent that fit a group and lack the label", "");
    r->metrics.depth = gauge(r, "nixlet_operator_queue_depth", "keys that wait for work");
    r->metrics.groups = gauge(r, "nixlet_operator_groups", "NixlPeers");
    r->metrics.pods = gauge(r, "nixlet_operator_pods", "pods that are watched");
    r->metrics.model_bytes = gauge(r, "nixlet_operator_model_bytes", "memory of the model");
    nxl_metrics_refresher(r->options.metrics, refresh_metrics, r);
}

/* ---- open and close
 * -------------------------------------------------------------------------------------- */

static void read_backends(struct nxl_reconcile *reconcile)
{
    char *copy = nxl_strdup(nxl_settings_text(reconcile->options.settings, "reconcile.backends"));
    char *rest = copy, *name;

    while ((name = strsep(&rest, ", ")) != NULL) {
        if (name[0] == '\0')
            continue;
        reconcile->backends = nxl_resize(reconcile->backends, reconcile->backend_count + 1u,
                                         sizeof(*reconcile->backends));
        reconcile->backends[reconcile->backend_count++] = nxl_strdup(name);
    }
    free(copy);
}

enum nxl_code nxl_reconcile_open(const struct nxl_reconcile_options *options,
                                 struct nxl_reconcile **ret, struct nxl_err *err)
{
    static const struct nxl_writer_api api = {.call = api_call,
                                              .may_write = api_may_write,
                                              .agents = api_agents,
                                              .revoked = api_revoked,
                                              .clock = api_clock};
    struct nxl_reconcile *reconcile;
    const struct nxl_settings *s = options->settings;
    const char *account = nxl_settings_text(s, "reconcile.agent_account");

    if (strchr(account, '/') == NULL)
        return nxl_err_set(err, NXL_CONFIG, 0,
                           "reconcile.agent_account \"%s\" is not namespace/name", account);
    reconcile = nxl_new0(sizeof(*reconcile));
    reconcile->options = *options;
    reconcile->account = account;
    reconcile->audience = nxl_settings_text(s, "reconcile.audience");
    read_backends(reconcile);
    open_metrics(reconcile);
    reconcile->world = nxl_world_new(&(struct nxl_world_options){
        .ops = &tell_ops,
        .arg = reconcile,
        .backends = (const char *const *)reconcile->backends,
        .backend_count = reconcile->backend_count,
    });
    reconcile->writer = nxl_writer_new(&(struct nxl_writer_options){
        .world = reconcile->world,
        .api = &api,
        .arg = reconcile,
        .instance = options->id,
        .status_interval_ns = (uint64_t)nxl_settings_number(s, "reconcile.status_interval"),
        .revoke_timeout_ns = (uint64_t)nxl_settings_number(s, "reconcile.revoke_timeout"),
        .writes_rate = (double)nxl_settings_number(s, "reconcile.writes_rate"),
        .slices = nxl_settings_bool(s, "reconcile.slices"),
    });
    *ret = reconcile;
    return NXL_OK;
}

enum nxl_code nxl_reconcile_start(struct nxl_reconcile *reconcile, struct nxl_push *push,
                                  struct nxl_err *err)
{
    enum nxl_code code;

    reconcile->push = push;
    reconcile->tick = nxl_timer_open(reconcile->options.loop, on_tick, reconcile);
    reconcile->work = nxl_timer_open(reconcile->options.loop, on_work, reconcile);
    reconcile->look = nxl_timer_open(reconcile->options.loop, on_look, reconcile);
    nxl_timer_start(reconcile->tick, TICK_NS, TICK_NS);
    code = kube_side_open(reconcile, &reconcile->kube, err);
    return code == NXL_OK ? NXL_OK : nxl_err_wrap(err, code, "start the watches");
}

void nxl_reconcile_close(struct nxl_reconcile *reconcile)
{
    if (reconcile == NULL)
        return;
    kube_side_close(reconcile->kube);
    reconcile->kube = NULL;
    checks_drop(reconcile);
    asks_drop(reconcile);
    nxl_timer_close(reconcile->tick);
    nxl_timer_close(reconcile->work);
    nxl_timer_close(reconcile->look);
    nxl_writer_free(reconcile->writer);
    reconcile->writer = NULL;
    nxl_world_free(reconcile->world);
    for (uint32_t i = 0; i < reconcile->backend_count; i++)
        free(reconcile->backends[i]);
    free(reconcile->backends);
    free(reconcile);
}

int nxl_reconcile_synced(const struct nxl_reconcile *reconcile)
{
    return reconcile->synced;
}

void nxl_reconcile_lead(struct nxl_reconcile *reconcile, int leading)
{
    if (!leading)
        return;
    nxl_writer_lead(reconcile->writer);
    reconcile_soon(reconcile);
}

struct nxl_world *nxl_reconcile_world(struct nxl_reconcile *reconcile)
{
    return reconcile->world;
}
