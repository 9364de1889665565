/* directory.c - opens, closes and ties the directory's rooms together: connections, heartbeat,
 * states. Called by the agent's node and by xfer. Loop thread. */
#include "cluster/directory_room.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/mem.h"
#include "base/metric.h"
#include "base/option.h"
#include "cluster/identity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLOSE_BOUND_NS (200 * NXL_MS)
#define MIN_MS ((int64_t)NXL_MS)
#define HOUR ((int64_t)(3600 * NXL_SEC))

static const struct nxl_option store_options[] = {
    {"url", NXL_OPTION_TEXT, "none", 0, 0, NULL,
     "where Redis is: none, redis://host:port[/db], unix:///path[?db=n], rediss://host:port[/db]"},
    {"user", NXL_OPTION_TEXT, "", 0, 0, NULL, "ACL user; empty: the default user"},
    {"password_file", NXL_OPTION_TEXT, "", 0, 0, NULL,
     "file that holds the password; read again at every connect"},
    {"ca_file", NXL_OPTION_TEXT, "", 0, 0, NULL,
     "rediss: PEM file of the authority; empty: the system's"},
    {"heartbeat", NXL_OPTION_DURATION, "1s", 10 * MIN_MS, HOUR, NULL,
     "how often this agent renews its lease"},
    {"lease", NXL_OPTION_DURATION, "5s", 30 * MIN_MS, HOUR, NULL,
     "how long the store keeps what is not renewed; at least three heartbeats"},
    {"command_timeout", NXL_OPTION_DURATION, "1s", 10 * MIN_MS, HOUR, NULL,
     "how long one command may take"},
    {"backoff_max", NXL_OPTION_DURATION, "1s", 10 * MIN_MS, HOUR, NULL,
     "the longest pause between two dials; with one heartbeat, the directory is whole one "
     "heartbeat after the store is back"},
    {"stream_max", NXL_OPTION_INT, "10000", 16, 10000000, NULL,
     "entries that the streams keep, about"},
    {"wait_poll", NXL_OPTION_DURATION, "250ms", 5 * MIN_MS, HOUR, NULL,
     "how often a waiting look-up asks again by itself"},
    {0},
};

void nxl_directory_declare(struct nxl_settings *settings)
{
    nxl_settings_declare(settings, "store", store_options);
}

void directory_key(const struct nxl_directory *directory, char *to, const char *kind,
                   const char *rest)
{
    int size = snprintf(to, DIRECTORY_KEY_MAX, "%s%s%s", directory->prefix, kind, rest);

    NXL_ASSERT(size > 0 && size < DIRECTORY_KEY_MAX);
}

void directory_name_key(const struct nxl_directory *directory, char *to, const char *ns,
                        const char *name)
{
    int size = snprintf(to, DIRECTORY_KEY_MAX, "%sname:%s/%s", directory->prefix, ns, name);

    NXL_ASSERT(size > 0 && size < DIRECTORY_KEY_MAX);
}

int directory_reply_text(const struct redisReply *reply, const char *text)
{
    return reply->type == REDIS_REPLY_STRING && reply->len == strlen(text) &&
           memcmp(reply->str, text, reply->len) == 0;
}

int directory_reply_copy(const struct redisReply *reply, char *to, size_t room)
{
    if (reply->type != REDIS_REPLY_STRING || reply->len >= room ||
        memchr(reply->str, '\0', reply->len) != NULL)
        return -1;
    memcpy(to, reply->str, reply->len);
    to[reply->len] = '\0';
    return 0;
}

/* The server refused a command: an ACL that is too narrow, no memory, foreign data in our keys. */
void directory_complain(struct nxl_directory *directory, const char *doing,
                        const struct nxl_err *err)
{
    static struct nxl_log_gate gate;

    if (err->code == NXL_BACKEND && !directory->closed && nxl_log_gate_open(&gate, 2))
        nxl_warn("store", "event=refused doing=%s why=%s", doing, nxl_quote(err->text));
}

static void directory_free(struct nxl_directory *directory)
{
    nxl_timer_close(directory->lookup_timer);
    nxl_timer_close(directory->tail.retry);
    directory_free_records(directory);
    directory_free_facts(directory);
    directory_free_scan(directory);
    free(directory->scratch);
    free(directory);
}

void directory_enter(struct nxl_directory *directory)
{
    directory->entered++;
}

void directory_leave(struct nxl_directory *directory)
{
    NXL_ASSERT(directory->entered > 0);
    if (--directory->entered == 0 && directory->closed)
        directory_free(directory);
}

static void set_up(struct nxl_directory *directory, int up, const char *what)
{
    if (directory->closed || directory->up == up)
        return;
    directory->up = up;
    nxl_metric_set(directory->metric.up, up);
    directory->ops.on_state(directory->arg, up, what);
}

/* ---- heartbeat ---- */

static void notice_epoch(struct nxl_directory *directory, const struct nxl_beat *beat)
{
    int wiped = directory->epoch[0] != '\0' && strcmp(directory->epoch, beat->epoch) != 0;

    (void)nxl_copy_text(directory->epoch, sizeof(directory->epoch), beat->epoch);
    if (!wiped)
        return;
    nxl_warn("store", "event=wiped epoch=%s records=%u", directory->epoch, directory->record_count);
    nxl_metric_add(directory->metric.wiped, 1);
    directory->quiet_until_ns = nxl_now_ns() + 2 * directory->lease_ns;
    directory_follow_from(directory, beat->store_us);
    directory->ops.on_state(directory->arg, 1, "wiped");
}

static void on_beat(void *arg, const struct nxl_beat *beat)
{
    struct nxl_directory *directory = arg;

    directory_enter(directory);
    nxl_metric_add(directory->metric.beats, 1);
    nxl_metric_observe(directory->metric.round_trip, beat->round_trip_ns / 1000);
    directory->store_us = beat->store_us;
    directory->store_at_ns = nxl_now_ns();
    if (!beat->renewed)
        directory_all_dirty(directory);
    else
        directory_check_records(directory, beat->records);
    set_up(directory, 1, "the store answers");
    if (!directory->closed)
        notice_epoch(directory, beat);
    if (!directory->closed) {
        directory_flush(directory);
        directory_send_facts(directory);
        directory_renew_names(directory);
        directory_follow(directory);
        directory_scan_beat(directory);
    }
    directory_leave(directory);
}

static void on_missed(void *arg, const char *why)
{
    struct nxl_directory *directory = arg;

    directory_enter(directory);
    nxl_metric_add(directory->metric.missed, 1);
    set_up(directory, 0, why);
    directory_leave(directory);
}

static void on_fenced(void *arg, const char *why)
{
    struct nxl_directory *directory = arg;

    directory_enter(directory);
    nxl_error("store", "event=fenced agent=%s why=%s", nxl_quote(directory->agent), nxl_quote(why));
    directory->fenced = 1;
    set_up(directory, 0, why);
    if (!directory->closed)
        directory->ops.on_fenced(directory->arg);
    directory_leave(directory);
}

static const struct nxl_heartbeat_ops heartbeat_ops = {on_beat, on_missed, on_fenced};

/* ---- connections ---- */

static void on_main_up(void *arg)
{
    struct nxl_directory *directory = arg;

    directory_enter(directory);
    if (!directory->fenced)
        nxl_heartbeat_now(directory->heartbeat); /* everything else follows its answer */
    if (!directory->closed)
        directory_wake_lookups(directory, NULL, NULL);
    directory_leave(directory);
}

static void on_main_down(void *arg, const char *why)
{
    struct nxl_directory *directory = arg;

    directory_enter(directory);
    set_up(directory, 0, why);
    directory_leave(directory);
}

static void on_follow_up(void *arg)
{
    struct nxl_directory *directory = arg;

    directory_enter(directory);
    directory_follow(directory);
    directory_leave(directory);
}

static void on_follow_down(void *arg, const char *why)
{
    (void)arg; /* dialled again; it goes on from the last ids, so nothing is missed */
    (void)why;
}

static const struct nxl_redis_ops main_ops = {on_main_up, on_main_down};
static const struct nxl_redis_ops follow_ops = {on_follow_up, on_follow_down};

/* ---- open ---- */

/* Both become part of keys and of a MATCH pattern. */
static enum nxl_code check_name(const char *what, const char *text, size_t room,
                                struct nxl_err *err)
{
    if (nxl_identity_is_label(text, room - 1))
        return NXL_OK;
    return nxl_err_set(err, NXL_CONFIG, 0,
                       "directory: the %s '%.80s' must have 1 to %zu bytes and hold only letters, "
                       "digits, '.', '_' and '-'",
                       what, text, room - 1);
}

static void open_metrics(struct nxl_directory *directory, struct nxl_metrics *metrics)
{
    directory->metric.up =
        nxl_metric_open(metrics, NXL_METRIC_GAUGE, "nixlet_store_up",
                        "1 while the store's primary answers our heartbeats", "");
    directory->metric.beats =
        nxl_metric_open(metrics, NXL_METRIC_COUNTER, "nixlet_store_heartbeats_total",
                        "heartbeats that the store answered", "");
    directory->metric.missed =
        nxl_metric_open(metrics, NXL_METRIC_COUNTER, "nixlet_store_heartbeats_missed_total",
                        "heartbeats without an answer or without a connection", "");
    directory->metric.round_trip =
        nxl_metric_open(metrics, NXL_METRIC_HISTOGRAM, "nixlet_store_round_trip_us",
                        "time from a heartbeat to its answer in microseconds", "");
    directory->metric.records =
        nxl_metric_open(metrics, NXL_METRIC_GAUGE, "nixlet_store_records",
                        "records of this agent that it keeps in the store", "");
    directory->metric.lookups = nxl_metric_open(metrics, NXL_METRIC_GAUGE, "nixlet_store_lookups",
                                                "look-ups by name that wait now", "");
    directory->metric.refused =
        nxl_metric_open(metrics, NXL_METRIC_COUNTER, "nixlet_store_facts_refused_total",
                        "life facts not believed: malformed, unsigned, or by another node", "");
    directory->metric.facts = nxl_metric_open(
        metrics, NXL_METRIC_COUNTER, "nixlet_store_facts_total", "life facts believed", "");
    directory->metric.lapsed = nxl_metric_open(
        metrics, NXL_METRIC_COUNTER, "nixlet_store_nodes_lapsed_total",
        "other nodes whose key was gone at a reconcile; nobody is judged by it", "");
    directory->metric.wiped =
        nxl_metric_open(metrics, NXL_METRIC_COUNTER, "nixlet_store_wiped_total",
                        "changes of the store's epoch", "");
}

static enum nxl_code read_settings(struct nxl_directory *directory,
                                   const struct nxl_settings *settings, struct nxl_err *err)
{
    directory->heartbeat_ns = (uint64_t)nxl_settings_number(settings, "store.heartbeat");
    directory->lease_ns = (uint64_t)nxl_settings_number(settings, "store.lease");
    directory->wait_poll_ns = (uint64_t)nxl_settings_number(settings, "store.wait_poll");
    directory->command_timeout_ns =
        (uint64_t)nxl_settings_number(settings, "store.command_timeout");
    directory->stream_max = (uint64_t)nxl_settings_number(settings, "store.stream_max");
    if (directory->lease_ns < 3 * directory->heartbeat_ns)
        return nxl_err_set(
            err, NXL_CONFIG, 0,
            "store.lease is %llu ms but must be at least three times store.heartbeat (%llu ms): "
            "two lost heartbeats must not end a lease",
            (unsigned long long)(directory->lease_ns / NXL_MS),
            (unsigned long long)(directory->heartbeat_ns / NXL_MS));
    return NXL_OK;
}

static enum nxl_code copy_identity(struct nxl_directory *directory,
                                   const struct nxl_directory_options *options, struct nxl_err *err)
{
    enum nxl_code code = check_name("cluster", options->cluster, sizeof(directory->cluster), err);

    if (code == NXL_OK)
        code = check_name("node", options->node, sizeof(directory->node), err);
    if (code != NXL_OK)
        return code;
    if (nxl_copy_text(directory->agent, sizeof(directory->agent), options->agent) != 0 ||
        nxl_copy_text(directory->address, sizeof(directory->address), options->address) != 0)
        return nxl_err_set(err, NXL_CONFIG, 0,
                           "directory: the agent's incarnation or address is too long");
    (void)nxl_copy_text(directory->cluster, sizeof(directory->cluster), options->cluster);
    (void)nxl_copy_text(directory->node, sizeof(directory->node), options->node);
    (void)snprintf(directory->prefix, sizeof(directory->prefix),
                   "nixlet:{%s}:", directory->cluster);
    directory_key(directory, directory->node_key, "node:", directory->node);
    directory_key(directory, directory->peers_key, "peers:", directory->node);
    directory_key(directory, directory->epoch_key, "epoch", "");
    directory_key(directory, directory->changes_key, "changes", "");
    directory_key(directory, directory->dead_key, "dead", "");
    return NXL_OK;
}

static enum nxl_code open_connections(struct nxl_directory *directory,
                                      const struct nxl_settings *settings, struct nxl_err *err)
{
    struct nxl_redis_options redis = {.loop = directory->loop, .arg = directory};
    struct nxl_heartbeat_options heartbeat;
    const char *url = nxl_settings_text(settings, "store.url");
    enum nxl_code code = nxl_redis_url_parse(url, &redis.url, err);

    if (code != NXL_OK)
        return code;
    (void)nxl_copy_text(directory->url_text, sizeof(directory->url_text), url);
    if (redis.url.kind == NXL_REDIS_NONE)
        return NXL_OK;
    redis.user = nxl_settings_text(settings, "store.user");
    redis.password_file = nxl_settings_text(settings, "store.password_file");
    redis.ca_file = nxl_settings_text(settings, "store.ca_file");
    redis.command_timeout_ns = (uint64_t)nxl_settings_number(settings, "store.command_timeout");
    redis.backoff_max_ns = (uint64_t)nxl_settings_number(settings, "store.backoff_max");
    redis.purpose = "store";
    redis.ops = &main_ops;
    code = nxl_redis_open(&redis, &directory->redis, err);
    if (code != NXL_OK)
        return code;
    redis.purpose = "store-follow";
    redis.ops = &follow_ops;
    code = nxl_redis_open(&redis, &directory->follow, err);
    if (code != NXL_OK)
        return code;
    heartbeat = (struct nxl_heartbeat_options){.loop = directory->loop,
                                               .redis = directory->redis,
                                               .node_key = directory->node_key,
                                               .peers_key = directory->peers_key,
                                               .epoch_key = directory->epoch_key,
                                               .agent = directory->agent,
                                               .address = directory->address,
                                               .interval_ns = directory->heartbeat_ns,
                                               .lease_ns = directory->lease_ns,
                                               .ops = &heartbeat_ops,
                                               .arg = directory};
    directory->heartbeat = nxl_heartbeat_open(&heartbeat);
    directory->lookup_timer = nxl_timer_open(directory->loop, directory_on_lookup_timer, directory);
    directory->tail.retry = nxl_timer_open(directory->loop, directory_on_follow_retry, directory);
    directory->enabled = 1;
    return NXL_OK;
}

static void directory_closep(struct nxl_directory **directory)
{
    nxl_directory_close(*directory);
}

enum nxl_code nxl_directory_open(const struct nxl_directory_options *options,
                                 struct nxl_directory **ret, struct nxl_err *err)
{
    NXL_CLEANUP(directory_closep) struct nxl_directory *directory = nxl_new0(sizeof(*directory));
    enum nxl_code code;

    directory->loop = options->loop;
    directory->trust = options->trust;
    directory->ops = *options->ops;
    directory->arg = options->arg;
    directory->scratch = nxl_new0(sizeof(*directory->scratch));
    code = copy_identity(directory, options, err);
    if (code == NXL_OK)
        code = read_settings(directory, options->settings, err);
    if (code != NXL_OK)
        return code;
    open_metrics(directory, options->metrics);
    code = open_connections(directory, options->settings, err);
    if (code != NXL_OK)
        return code;
    if (directory->enabled)
        nxl_info(
            "store",
            "event=open url=%s cluster=%s node=%s heartbeat_ms=%llu lease_ms=%llu signed_facts=%d",
            nxl_quote(directory->url_text), directory->cluster, directory->node,
            (unsigned long long)(directory->heartbeat_ns / NXL_MS),
            (unsigned long long)(directory->lease_ns / NXL_MS), directory->trust != NULL);
    *ret = NXL_TAKE(directory);
    return NXL_OK;
}

void nxl_directory_close(struct nxl_directory *directory)
{
    if (directory == NULL || directory->closed)
        return;
    directory_enter(directory);
    if (directory->enabled && !directory->fenced)
        directory_leave_store(directory);
    directory->closed = 1; /* from here on nothing is told any more */
    nxl_heartbeat_close(directory->heartbeat);
    if (directory->enabled && nxl_redis_up(directory->redis))
        nxl_redis_flush(directory->redis, nxl_now_ns() + CLOSE_BOUND_NS);
    nxl_redis_close(directory->redis);
    nxl_redis_close(directory->follow);
    directory_end_lookups(directory);
    directory_leave(directory);
}

void nxl_directory_status(const struct nxl_directory *directory, struct nxl_directory_status *ret)
{
    struct nxl_directory_status status = {
        .enabled = directory->enabled, .up = directory->up, .published = directory->record_count};

    (void)nxl_copy_text(status.url, sizeof(status.url), directory->url_text);
    (void)nxl_copy_text(status.epoch, sizeof(status.epoch), directory->epoch);
    if (directory->enabled) {
        status.heartbeats = nxl_heartbeat_count(directory->heartbeat, &status.failures);
        status.last_heartbeat_ns = nxl_heartbeat_last_ns(directory->heartbeat);
        status.reconnects = nxl_redis_reconnects(directory->redis);
    }
    *ret = status;
}
