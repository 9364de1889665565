/* directory_publish.c - our records: kept here until withdrawn, sent when dirty, sent again after a
 * wipe. Called by xfer through directory.h and by every heartbeat. Loop thread.
 *
 * Every write is one small script that first checks that node:<node> is still ours. So a fenced
 * agent changes nothing, no key is ever left without an expiry, and the name index moves only
 * forward: an incarnation claims its name with a stamp (store time, at least one more than the
 * stamp there) and keeps that stamp for its life; a lower stamp never overwrites a higher one. */
#include "cluster/directory_room.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metric.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define LEAVE_RECORDS 256u /* withdrawn one by one at the end */

/* KEYS node peers name changes. ARGV agent lease_ms field bytes incarnation node stamp stream_max
 * ns name label name_ms inline. */
static const char publish_script[] =
    "if redis.call('HGET',KEYS[1],'agent')~=ARGV[1] then return {'away','0',0} end "
    "local t=redis.call('TIME') local now=t[1]*1000000+t[2] "
    "redis.call('HSET',KEYS[2],ARGV[3],ARGV[4]) redis.call('PEXPIRE',KEYS[2],ARGV[2]) "
    "redis.call('HSET',KEYS[1],'version',string.format('%.0f',now)) "
    "local old=tonumber(redis.call('HGET',KEYS[3],'stamp') or '0') or 0 "
    "local stamp=tonumber(ARGV[7]) local moved=0 "
    "if stamp==0 then stamp=math.max(now,old+1) end "
    "local text=string.format('%.0f',stamp) "
    "if old<=stamp then "
    "redis.call('HSET',KEYS[3],'incarnation',ARGV[5],'node',ARGV[6],'agent',ARGV[1],'stamp',text) "
    "redis.call('PEXPIRE',KEYS[3],ARGV[12]) moved=1 end "
    "local "
    "entry={'XADD',KEYS[4],'MAXLEN','~',ARGV[8],'*','op','publish','ns',ARGV[9],'name',ARGV[10],"
    "'incarnation',ARGV[5],'label',ARGV[11],'node',ARGV[6],'agent',ARGV[1]} "
    "if ARGV[13]=='1' then entry[#entry+1]='record' entry[#entry+1]=ARGV[4] end "
    "redis.call(unpack(entry)) "
    "return {'ok',text,moved}";

/* KEYS node peers name changes. ARGV agent incarnation node ns name stream_max name_ms field... The
 * emptied index keeps its stamp until it expires, so that nothing older comes back under the name.
 */
static const char withdraw_script[] =
    "if redis.call('HGET',KEYS[1],'agent')~=ARGV[1] then return 'away' end "
    "for i=8,#ARGV do redis.call('HDEL',KEYS[2],ARGV[i]) end "
    "local t=redis.call('TIME') "
    "redis.call('HSET',KEYS[1],'version',string.format('%.0f',t[1]*1000000+t[2])) "
    "if redis.call('HGET',KEYS[3],'incarnation')==ARGV[2] then "
    "redis.call('HSET',KEYS[3],'incarnation','','node','') redis.call('PEXPIRE',KEYS[3],ARGV[7]) "
    "end "
    "redis.call('XADD',KEYS[4],'MAXLEN','~',ARGV[6],'*','op','withdraw','ns',ARGV[4],'name',ARGV[5]"
    ","
    "'incarnation',ARGV[2],'label','','node',ARGV[3],'agent',ARGV[1]) "
    "return 'ok'";

/* KEYS node peers. ARGV agent. */
static const char leave_script[] = "if redis.call('HGET',KEYS[1],'agent')==ARGV[1] then "
                                   "redis.call('DEL',KEYS[1],KEYS[2]) end return 'ok'";

/* What a publish on its way belongs to; the record itself may be gone when the answer comes. */
struct publish_call {
    struct nxl_directory *directory;
    uint64_t generation;
    char field[DIRECTORY_FIELD_MAX + 1];
};

static void record_free(struct nxl_directory *directory, struct directory_record *record)
{
    if (record->queued)
        DL_DELETE(directory->dirty, record);
    HASH_DEL(directory->records, record);
    directory->record_count--;
    nxl_bytes_fini(&record->bytes);
    free(record);
}

void directory_free_records(struct nxl_directory *directory)
{
    struct directory_record *record, *next;

    HASH_ITER(hh, directory->records, record, next)
    record_free(directory, record);
}

/* One on its way waits for its answer first. */
static void record_queue(struct nxl_directory *directory, struct directory_record *record)
{
    record->dirty = 1;
    if (record->queued || record->sent)
        return;
    record->queued = 1;
    DL_APPEND(directory->dirty, record);
}

void directory_all_dirty(struct nxl_directory *directory)
{
    struct directory_record *record, *next;

    HASH_ITER(hh, directory->records, record, next)
    {
        record->stored = 0;
        record_queue(directory, record);
    }
}

/* The heartbeat counted what the store holds for us. Another count than ours means that something
 * was lost on the way, there or here: then everything is written again. */
void directory_check_records(struct nxl_directory *directory, uint64_t stored)
{
    struct directory_record *record, *next;
    uint64_t expected = 0;

    HASH_ITER(hh, directory->records, record, next)
    {
        if (record->sent)
            return; /* on its way: the next beat counts again */
        expected += record->stored ? 1u : 0u;
    }
    if (expected == stored)
        return;
    nxl_info("store", "event=resync expected=%llu stored=%llu", (unsigned long long)expected,
             (unsigned long long)stored);
    directory_all_dirty(directory);
    if (stored > expected) {
        nxl_heartbeat_reset_records(directory->heartbeat);
        nxl_heartbeat_now(directory->heartbeat); /* goes ahead of what is written next */
    }
}

/* Returns 1 if the store has it now. */
static int publish_answered(struct nxl_directory *directory, struct directory_record *record,
                            const struct redisReply *reply)
{
    char stamp[32];

    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 3 ||
        directory_reply_copy(reply->element[1], stamp, sizeof(stamp)) != 0)
        return 0;
    if (!directory_reply_text(reply->element[0], "ok")) {
        nxl_heartbeat_now(
            directory->heartbeat); /* our key lapsed or is another's: it finds out which */
        return 0;
    }
    if (record->stamp == 0)
        record->stamp = strtoull(stamp, NULL, 10);
    record->stored = 1;
    record->name_due_ns = nxl_now_ns() + directory->lease_ns / 2;
    return 1;
}

static void on_published(void *arg, enum nxl_code code, const struct redisReply *reply,
                         const struct nxl_err *err)
{
    struct publish_call *call = arg;
    struct nxl_directory *directory = call->directory;
    struct directory_record *record;
    int done = code == NXL_OK;

    directory_enter(directory);
    directory->publishing--;
    if (code != NXL_OK)
        directory_complain(directory, "publish", err);
    HASH_FIND_STR(directory->records, call->field, record);
    if (record != NULL && !directory->closed) {
        record->sent = 0;
        done = done && publish_answered(directory, record, reply);
        /* Not taken, changed meanwhile, or asked for again: its turn comes once more. */
        if (!done || record->generation != call->generation || record->dirty)
            record_queue(directory, record);
    }
    if (done && !directory->closed)
        directory_flush(directory); /* else the next beat does */
    free(call);
    directory_leave(directory);
}

static int publish_send(struct nxl_directory *directory, struct directory_record *record)
{
    struct nxl_redis_words words = {0};
    struct publish_call *call = nxl_new0(sizeof(*call));
    struct nxl_view bytes = {record->bytes.data, record->bytes.size};
    char name_key[DIRECTORY_KEY_MAX];

    directory_name_key(directory, name_key, record->ns, record->name);
    nxl_redis_word(&words, "EVAL");
    nxl_redis_word(&words, publish_script);
    nxl_redis_word_number(&words, 4);
    nxl_redis_word(&words, directory->node_key);
    nxl_redis_word(&words, directory->peers_key);
    nxl_redis_word(&words, name_key);
    nxl_redis_word(&words, directory->changes_key);
    nxl_redis_word(&words, directory->agent);
    nxl_redis_word_number(&words, directory->lease_ns / NXL_MS);
    nxl_redis_word(&words, record->field);
    nxl_redis_word_view(&words, bytes);
    nxl_redis_word(&words, record->incarnation);
    nxl_redis_word(&words, directory->node);
    nxl_redis_word_number(&words, record->stamp);
    nxl_redis_word_number(&words, directory->stream_max);
    nxl_redis_word(&words, record->ns);
    nxl_redis_word(&words, record->name);
    nxl_redis_word(&words, record->label);
    nxl_redis_word_number(&words, DIRECTORY_NAME_LEASES * directory->lease_ns / NXL_MS);
    nxl_redis_word(&words, bytes.size <= DIRECTORY_INLINE_MAX ? "1" : "0");
    call->directory = directory;
    call->generation = record->generation;
    (void)nxl_copy_text(call->field, sizeof(call->field), record->field);
    if (nxl_redis_send(directory->redis, &words, 0, on_published, call) != NXL_OK) {
        free(call);
        return -1;
    }
    DL_DELETE(directory->dirty, record);
    record->queued = 0;
    record->dirty = 0;
    record->sent = 1;
    directory->publishing++;
    return 0;
}

void directory_flush(struct nxl_directory *directory)
{
    if (!directory->up || directory->fenced)
        return; /* the beat that brings the store back flushes */
    while (directory->dirty != NULL && directory->publishing < DIRECTORY_PUBLISHING_MAX)
        if (publish_send(directory, directory->dirty) != 0)
            return;
}

static int make_field(char *to, const char *incarnation, const char *label)
{
    int size = snprintf(to, DIRECTORY_FIELD_MAX + 1, "%s%s%s", incarnation,
                        label[0] != '\0' ? "#" : "", label);

    return size > 0 && size <= DIRECTORY_FIELD_MAX ? 0 : -1;
}

static struct directory_record *record_get(struct nxl_directory *directory,
                                           const struct nxl_record *record, const char *label,
                                           struct nxl_err *err)
{
    struct directory_record *entry;
    char field[DIRECTORY_FIELD_MAX + 1];

    if (strlen(label) > NXL_LABEL_MAX || make_field(field, record->incarnation, label) != 0) {
        (void)nxl_err_set(err, NXL_INVALID_PARAM, 0,
                          "publish %s/%s: label '%.80s' is longer than %d bytes", record->ns,
                          record->name, label, NXL_LABEL_MAX);
        return NULL;
    }
    HASH_FIND_STR(directory->records, field, entry);
    if (entry != NULL)
        return entry;
    if (directory->record_count >= DIRECTORY_RECORDS_MAX) {
        (void)nxl_err_set(err, NXL_LIMIT, 0,
                          "publish %s/%s: this agent keeps %u records in the store already",
                          record->ns, record->name, DIRECTORY_RECORDS_MAX);
        return NULL;
    }
    entry = nxl_new0(sizeof(*entry));
    (void)nxl_copy_text(entry->field, sizeof(entry->field), field);
    (void)nxl_copy_text(entry->ns, sizeof(entry->ns), record->ns);
    (void)nxl_copy_text(entry->name, sizeof(entry->name), record->name);
    (void)nxl_copy_text(entry->incarnation, sizeof(entry->incarnation), record->incarnation);
    (void)nxl_copy_text(entry->label, sizeof(entry->label), label);
    HASH_ADD_STR(directory->records, field, entry);
    directory->record_count++;
    return entry;
}

static enum nxl_code not_supported(struct nxl_err *err, const char *doing)
{
    return nxl_err_set(
        err, NXL_NOT_SUPPORTED, 0,
        "%s: this agent has no store (store.url is 'none'); pass the metadata blob, or name the "
        "other agent's address",
        doing);
}

enum nxl_code nxl_directory_publish(struct nxl_directory *directory,
                                    const struct nxl_record *record, const char *label,
                                    struct nxl_err *err)
{
    struct nxl_bytes bytes = {0};
    struct directory_record *entry;
    enum nxl_code code;

    if (!directory->enabled)
        return not_supported(err, "publish by name");
    if (directory->fenced)
        return nxl_err_set(err, NXL_NOT_ALLOWED, 0,
                           "publish %s/%s: this agent was fenced and takes a new incarnation",
                           record->ns, record->name);
    code = nxl_record_encode(record, &bytes, err);
    if (code != NXL_OK) {
        nxl_bytes_fini(&bytes);
        return nxl_err_wrap(err, code, "publish");
    }
    entry = record_get(directory, record, label != NULL ? label : "", err);
    if (entry == NULL) {
        nxl_bytes_fini(&bytes);
        return err != NULL ? (enum nxl_code)err->code : NXL_LIMIT;
    }
    nxl_bytes_fini(&entry->bytes);
    entry->bytes = bytes;
    entry->generation = ++directory->generation;
    record_queue(directory, entry);
    nxl_metric_set(directory->metric.records, directory->record_count);
    directory_flush(directory);
    return NXL_OK;
}

/* ---- withdraw ---- */

static void on_withdrawn(void *arg, enum nxl_code code, const struct redisReply *reply,
                         const struct nxl_err *err)
{
    struct nxl_directory *directory = arg;

    (void)reply;
    directory_enter(directory);
    if (code != NXL_OK && !directory->closed) {
        directory_complain(directory, "withdraw", err);
        nxl_heartbeat_reset_records(directory->heartbeat);
        directory_all_dirty(directory);
    }
    directory_leave(directory);
}

/* At most 16 labels go with one command; more are rare and take another one. */
static int withdraw_send(struct nxl_directory *directory, const struct directory_record *first,
                         char (*fields)[DIRECTORY_FIELD_MAX + 1], uint32_t count)
{
    struct nxl_redis_words words = {0};
    char name_key[DIRECTORY_KEY_MAX];

    directory_name_key(directory, name_key, first->ns, first->name);
    nxl_redis_word(&words, "EVAL");
    nxl_redis_word(&words, withdraw_script);
    nxl_redis_word_number(&words, 4);
    nxl_redis_word(&words, directory->node_key);
    nxl_redis_word(&words, directory->peers_key);
    nxl_redis_word(&words, name_key);
    nxl_redis_word(&words, directory->changes_key);
    nxl_redis_word(&words, directory->agent);
    nxl_redis_word(&words, first->incarnation);
    nxl_redis_word(&words, directory->node);
    nxl_redis_word(&words, first->ns);
    nxl_redis_word(&words, first->name);
    nxl_redis_word_number(&words, directory->stream_max);
    nxl_redis_word_number(&words, DIRECTORY_NAME_LEASES * directory->lease_ns / NXL_MS);
    for (uint32_t i = 0; i < count; i++)
        nxl_redis_word(&words, fields[i]);
    return nxl_redis_send(directory->redis, &words, 0, on_withdrawn, directory) == NXL_OK;
}

void nxl_directory_withdraw(struct nxl_directory *directory, const char *incarnation)
{
    struct directory_record *record, *next, head = {0};
    char fields[16][DIRECTORY_FIELD_MAX + 1];
    uint32_t count = 0;
    int told = 1;

    HASH_ITER(hh, directory->records, record, next)
    {
        if (strcmp(record->incarnation, incarnation) != 0)
            continue;
        (void)nxl_copy_text(head.ns, sizeof(head.ns), record->ns);
        (void)nxl_copy_text(head.name, sizeof(head.name), record->name);
        (void)nxl_copy_text(head.incarnation, sizeof(head.incarnation), record->incarnation);
        (void)nxl_copy_text(fields[count++], sizeof(fields[0]), record->field);
        record_free(directory, record);
        if (count == NXL_COUNT_OF(fields)) {
            told &= directory->up && withdraw_send(directory, &head, fields, count);
            count = 0;
        }
    }
    if (count > 0)
        told &= directory->up && withdraw_send(directory, &head, fields, count);
    if (directory->enabled)
        nxl_metric_set(directory->metric.records, directory->record_count);
    /* The store is away: when it is back, what it holds for us is replaced as a whole. */
    if (!told && directory->enabled && !directory->fenced) {
        nxl_heartbeat_reset_records(directory->heartbeat);
        directory_all_dirty(directory);
    }
}

/* ---- leases of the name index, and the end ---- */

static void on_name_renewed(void *arg, enum nxl_code code, const struct redisReply *reply,
                            const struct nxl_err *err)
{
    struct publish_call *call = arg;
    struct nxl_directory *directory = call->directory;
    struct directory_record *record;

    directory_enter(directory);
    HASH_FIND_STR(directory->records, call->field, record);
    if (code != NXL_OK)
        directory_complain(directory, "renew a name", err);
    else if (record != NULL && !directory->closed && reply->type == REDIS_REPLY_INTEGER &&
             reply->integer == 0)
        record_queue(directory,
                     record); /* the index entry vanished: the next beat writes it again */
    free(call);
    directory_leave(directory);
}

void directory_renew_names(struct nxl_directory *directory)
{
    struct directory_record *record, *next;
    uint64_t now = nxl_now_ns();
    uint32_t left = DIRECTORY_RENEW_MAX;

    HASH_ITER(hh, directory->records, record, next)
    {
        struct nxl_redis_words words = {0};
        struct publish_call *call;
        char name_key[DIRECTORY_KEY_MAX];

        if (!record->stored || now < record->name_due_ns)
            continue;
        if (left-- == 0)
            return;
        record->name_due_ns = now + directory->lease_ns / 2;
        call = nxl_new0(sizeof(*call));
        call->directory = directory;
        (void)nxl_copy_text(call->field, sizeof(call->field), record->field);
        directory_name_key(directory, name_key, record->ns, record->name);
        nxl_redis_word(&words, "PEXPIRE");
        nxl_redis_word(&words, name_key);
        nxl_redis_word_number(&words, DIRECTORY_NAME_LEASES * directory->lease_ns / NXL_MS);
        if (nxl_redis_send(directory->redis, &words, 0, on_name_renewed, call) != NXL_OK) {
            free(call);
            return;
        }
    }
}

void directory_leave_store(struct nxl_directory *directory)
{
    struct nxl_redis_words words = {0};

    /* The rest goes with the node's keys; only its index entries stay until they lapse. */
    for (uint32_t left = LEAVE_RECORDS; directory->records != NULL && left > 0; left--) {
        char incarnation[NXL_INCARNATION_MAX + 1];

        (void)nxl_copy_text(incarnation, sizeof(incarnation), directory->records->incarnation);
        nxl_directory_withdraw(directory, incarnation);
    }
    nxl_redis_word(&words, "EVAL");
    nxl_redis_word(&words, leave_script);
    nxl_redis_word_number(&words, 2);
    nxl_redis_word(&words, directory->node_key);
    nxl_redis_word(&words, directory->peers_key);
    nxl_redis_word(&words, directory->agent);
    if (nxl_redis_send(directory->redis, &words, 0, on_withdrawn, directory) != NXL_OK)
        nxl_debug("store", "event=leave told=0");
}
