/* directory_scan.c - the slow and complete way to know what others published: every few heartbeats
 * all node keys are walked; a node whose version changed is read whole and compared with what was
 * seen before. Finds what the stream lost (trimmed, cut, written while we were away). Expiry events
 * are not used at all. A node that lapsed is counted and forgotten here; nobody is judged by it.
 * Loop thread. */
#include "cluster/directory_room.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metric.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define SCAN_PAGE 256u

/* A node key or hash being read. */
struct scan_call {
    struct nxl_directory *directory;
    char node[NXL_NODE_MAX + 1];
    char agent[NXL_INCARNATION_MAX + 1];
    char version[24];
};

static void known_free(struct nxl_directory *directory, struct directory_node *node,
                       struct directory_known *known)
{
    HASH_DEL(node->records, known);
    free(known);
    directory->scan.known--;
}

static void node_free(struct nxl_directory *directory, struct directory_node *node)
{
    struct directory_known *known, *next;

    HASH_ITER(hh, node->records, known, next)
    known_free(directory, node, known);
    HASH_DEL(directory->scan.nodes, node);
    free(node);
}

void directory_free_scan(struct nxl_directory *directory)
{
    struct directory_node *node, *next;

    HASH_ITER(hh, directory->scan.nodes, node, next)
    node_free(directory, node);
}

/* ---- telling ---- */

void directory_tell_record(struct nxl_directory *directory, struct nxl_view bytes,
                           const char *incarnation)
{
    struct nxl_record *record = directory->scratch;
    struct nxl_err err = {0};

    if (nxl_record_decode(bytes, record, &err) != NXL_OK ||
        strcmp(record->incarnation, incarnation) != 0) {
        nxl_debug("store", "event=record_ignored incarnation=%s why=%s", nxl_quote(incarnation),
                  nxl_quote(err.text));
        return;
    }
    directory->ops.on_record(directory->arg, record, 0);
}

void directory_tell_withdrawn(struct nxl_directory *directory, const char *ns, const char *name,
                              const char *incarnation, const char *node, const char *agent)
{
    struct nxl_record *record = directory->scratch;

    memset(record, 0, sizeof(*record));
    (void)nxl_copy_text(record->ns, sizeof(record->ns), ns);
    (void)nxl_copy_text(record->name, sizeof(record->name), name);
    (void)nxl_copy_text(record->incarnation, sizeof(record->incarnation), incarnation);
    (void)nxl_copy_text(record->cluster, sizeof(record->cluster), directory->cluster);
    (void)nxl_copy_text(record->node, sizeof(record->node), node);
    (void)nxl_copy_text(record->agent, sizeof(record->agent), agent);
    directory->ops.on_record(directory->arg, record, 1);
}

/* ---- comparing one node ---- */

static void compare_field(struct nxl_directory *directory, struct directory_node *node,
                          const char *field, struct nxl_view bytes)
{
    struct nxl_record *record = directory->scratch;
    struct directory_known *known;
    struct nxl_err err = {0};
    uint64_t digest = XXH64(bytes.data, bytes.size, 0);
    size_t size = strcspn(field, "#");

    HASH_FIND_STR(node->records, field, known);
    if (known != NULL && known->digest == digest) {
        known->round = directory->scan.round;
        return;
    }
    if (nxl_record_decode(bytes, record, &err) != NXL_OK || strlen(record->incarnation) != size ||
        memcmp(record->incarnation, field, size) != 0) {
        nxl_debug("store", "event=record_ignored field=%s why=%s", nxl_quote(field),
                  nxl_quote(err.text));
        return;
    }
    if (known == NULL && directory->scan.known < DIRECTORY_KNOWN_MAX) {
        known = nxl_new0(sizeof(*known));
        (void)nxl_copy_text(known->field, sizeof(known->field), field);
        HASH_ADD_STR(node->records, field, known);
        directory->scan.known++;
    }
    if (known != NULL) { /* beyond the limit a record is told again at every change of its node */
        (void)nxl_copy_text(known->ns, sizeof(known->ns), record->ns);
        (void)nxl_copy_text(known->name, sizeof(known->name), record->name);
        known->digest = digest;
        known->round = directory->scan.round;
    }
    directory->ops.on_record(directory->arg, record, 0);
}

/* What the same agent had and has no more was withdrawn. Another agent there, or nothing at all,
 * says nothing about the life of those peers. */
static void compare_missing(struct nxl_directory *directory, struct directory_node *node,
                            int same_agent)
{
    struct directory_known *known, *next;

    HASH_ITER(hh, node->records, known, next)
    {
        char ns[sizeof(known->ns)], name[sizeof(known->name)], incarnation[sizeof(known->field)];
        int full = strchr(known->field, '#') == NULL;

        if (known->round == directory->scan.round)
            continue;
        (void)nxl_copy_text(ns, sizeof(ns), known->ns);
        (void)nxl_copy_text(name, sizeof(name), known->name);
        (void)nxl_copy_text(incarnation, sizeof(incarnation), known->field);
        known_free(directory, node, known);
        if (same_agent && full)
            directory_tell_withdrawn(directory, ns, name, incarnation, node->node, node->agent);
        if (directory->closed)
            return;
    }
}

static void compare_node(struct nxl_directory *directory, const struct scan_call *call,
                         const struct redisReply *reply)
{
    struct directory_node *node;
    char field[DIRECTORY_FIELD_MAX + 1];
    int same_agent;

    HASH_FIND_STR(directory->scan.nodes, call->node, node);
    if (node == NULL || reply->type != REDIS_REPLY_ARRAY)
        return;
    same_agent = strcmp(node->agent, call->agent) == 0;
    (void)nxl_copy_text(node->agent, sizeof(node->agent), call->agent);
    (void)nxl_copy_text(node->version, sizeof(node->version), call->version);
    for (size_t i = 0; i + 1 < reply->elements && !directory->closed; i += 2)
        if (directory_reply_copy(reply->element[i], field, sizeof(field)) == 0 &&
            reply->element[i + 1]->type == REDIS_REPLY_STRING)
            compare_field(
                directory, node, field,
                (struct nxl_view){reply->element[i + 1]->str, reply->element[i + 1]->len});
    /* An emptied hash after a wipe is not a withdrawal: its agent publishes again within a
     * heartbeat. */
    if (!directory->closed)
        compare_missing(directory, node, same_agent && nxl_now_ns() >= directory->quiet_until_ns);
}

/* ---- walking ---- */

static void scan_next(struct nxl_directory *directory);

static void scan_finish(struct nxl_directory *directory)
{
    struct directory_node *node, *next;

    HASH_ITER(hh, directory->scan.nodes, node, next)
    {
        if (node->round == directory->scan.round)
            continue;
        nxl_metric_add(directory->metric.lapsed, 1);
        directory->scan.lapsed++;
        nxl_debug("store", "event=node_lapsed node=%s", nxl_quote(node->node));
        node_free(directory, node);
    }
    directory->scan.running = 0;
}

static void scan_abandon(struct nxl_directory *directory)
{
    directory->scan.running = 0; /* incomplete: it judges nothing; the next one begins anew */
}

/* One command of the walk was answered. The next page follows when all of this one is read. */
static void scan_answered(struct nxl_directory *directory, enum nxl_code code,
                          const struct nxl_err *err)
{
    directory->scan.outstanding--;
    if (directory->closed)
        return;
    if (code != NXL_OK) {
        directory_complain(directory, "reconcile", err);
        scan_abandon(directory);
    } else if (directory->scan.running && directory->scan.outstanding == 0) {
        if (strcmp(directory->scan.cursor, "0") == 0)
            scan_finish(directory);
        else
            scan_next(directory);
    }
}

static int scan_send(struct nxl_directory *directory, const struct nxl_redis_words *words,
                     nxl_redis_reply_fn *fn, void *arg)
{
    if (nxl_redis_send(directory->redis, words, 0, fn, arg) != NXL_OK) {
        scan_abandon(directory);
        return -1;
    }
    directory->scan.outstanding++;
    return 0;
}

static void on_peers(void *arg, enum nxl_code code, const struct redisReply *reply,
                     const struct nxl_err *err)
{
    struct scan_call *call = arg;
    struct nxl_directory *directory = call->directory;

    directory_enter(directory);
    if (code == NXL_OK && !directory->closed && directory->scan.running)
        compare_node(directory, call, reply);
    scan_answered(directory, code, err);
    free(call);
    directory_leave(directory);
}

static void node_came(struct nxl_directory *directory, struct scan_call **call,
                      const struct redisReply *reply)
{
    struct nxl_redis_words words = {0};
    struct directory_node *node;
    char key[DIRECTORY_KEY_MAX];

    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
        directory_reply_copy(reply->element[0], (*call)->agent, sizeof((*call)->agent)) != 0)
        return; /* lapsed between SCAN and now, or not ours */
    if (directory_reply_copy(reply->element[1], (*call)->version, sizeof((*call)->version)) != 0)
        (*call)->version[0] = '\0'; /* it has published nothing yet */
    HASH_FIND_STR(directory->scan.nodes, (*call)->node, node);
    if (node == NULL) {
        node = nxl_new0(sizeof(*node));
        (void)nxl_copy_text(node->node, sizeof(node->node), (*call)->node);
        (void)nxl_copy_text(node->agent, sizeof(node->agent), (*call)->agent);
        HASH_ADD_STR(directory->scan.nodes, node, node);
    }
    node->round = directory->scan.round;
    if (strcmp(node->agent, (*call)->agent) == 0 && strcmp(node->version, (*call)->version) == 0)
        return;
    directory_key(directory, key, "peers:", (*call)->node);
    nxl_redis_word(&words, "HGETALL");
    nxl_redis_word(&words, key);
    if (scan_send(directory, &words, on_peers, *call) == 0)
        *call = NULL; /* goes on with it */
}

static void on_node(void *arg, enum nxl_code code, const struct redisReply *reply,
                    const struct nxl_err *err)
{
    struct scan_call *call = arg;
    struct nxl_directory *directory = call->directory;

    directory_enter(directory);
    if (code == NXL_OK && !directory->closed && directory->scan.running)
        node_came(directory, &call, reply);
    scan_answered(directory, code, err);
    free(call);
    directory_leave(directory);
}

static void read_node(struct nxl_directory *directory, const char *node)
{
    struct nxl_redis_words words = {0};
    struct scan_call *call = nxl_new0(sizeof(*call));
    char key[DIRECTORY_KEY_MAX];

    call->directory = directory;
    (void)nxl_copy_text(call->node, sizeof(call->node), node);
    directory_key(directory, key, "node:", node);
    nxl_redis_word(&words, "HMGET");
    nxl_redis_word(&words, key);
    nxl_redis_word(&words, "agent");
    nxl_redis_word(&words, "version");
    if (scan_send(directory, &words, on_node, call) != 0)
        free(call);
}

static void page_came(struct nxl_directory *directory, const struct redisReply *reply)
{
    const struct redisReply *keys;
    char key[DIRECTORY_KEY_MAX];
    size_t prefix_size = strlen(directory->prefix) + strlen("node:");

    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
        reply->element[1]->type != REDIS_REPLY_ARRAY ||
        directory_reply_copy(reply->element[0], directory->scan.cursor,
                             sizeof(directory->scan.cursor)) != 0) {
        scan_abandon(directory);
        return;
    }
    keys = reply->element[1];
    for (size_t i = 0; i < keys->elements; i++)
        if (directory_reply_copy(keys->element[i], key, sizeof(key)) == 0 &&
            strlen(key) > prefix_size && strlen(key) - prefix_size <= NXL_NODE_MAX &&
            strcmp(key + prefix_size, directory->node) != 0)
            read_node(directory, key + prefix_size);
}

static void on_page(void *arg, enum nxl_code code, const struct redisReply *reply,
                    const struct nxl_err *err)
{
    struct nxl_directory *directory = arg;

    directory_enter(directory);
    if (code == NXL_OK && !directory->closed && directory->scan.running)
        page_came(directory, reply);
    scan_answered(directory, code, err);
    directory_leave(directory);
}

static void scan_next(struct nxl_directory *directory)
{
    struct nxl_redis_words words = {0};
    char pattern[DIRECTORY_KEY_MAX];

    directory_key(directory, pattern, "node:", "*");
    nxl_redis_word(&words, "SCAN");
    nxl_redis_word(&words, directory->scan.cursor);
    nxl_redis_word(&words, "MATCH");
    nxl_redis_word(&words, pattern);
    nxl_redis_word(&words, "COUNT");
    nxl_redis_word_number(&words, SCAN_PAGE);
    (void)scan_send(directory, &words, on_page, directory);
}

void directory_scan_beat(struct nxl_directory *directory)
{
    if (directory->scan.running || directory->scan.outstanding > 0 ||
        directory->scan.beats++ % DIRECTORY_SCAN_BEATS != 0)
        return;
    directory->scan.running = 1;
    directory->scan.round++;
    (void)nxl_copy_text(directory->scan.cursor, sizeof(directory->scan.cursor), "0");
    scan_next(directory);
}
