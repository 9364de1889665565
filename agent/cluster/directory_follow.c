/* directory_follow.c - reads the two streams as they grow, on a connection of its own (the server
 * holds the answer). `changes` wakes look-ups and tells records; `dead` tells facts. Goes on from
 * the last id after a break, so nothing is missed but what was trimmed, which the scan finds. Loop
 * thread. */
#include "cluster/directory_room.h"

#include "base/clock.h"
#include "base/loop.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

#define READ_COUNT 64u /* entries per turn: a flood does not hold the loop */
#define READ_WAIT_NS (2 * NXL_SEC)
#define RETRY_NS NXL_SEC
#define DEAD_LEASES 4u /* how far back a new agent reads: longer than any record lives */

void directory_follow_from(struct nxl_directory *directory, uint64_t store_us)
{
    uint64_t now_ms = store_us / 1000, back_ms = DEAD_LEASES * directory->lease_ns / NXL_MS;

    (void)snprintf(directory->tail.changes_id, sizeof(directory->tail.changes_id), "%llu-0",
                   (unsigned long long)now_ms);
    (void)snprintf(directory->tail.dead_id, sizeof(directory->tail.dead_id), "%llu-0",
                   (unsigned long long)(now_ms > back_ms ? now_ms - back_ms : 0));
}

/* The value of a field in an entry's flat list, or NULL. */
static const struct redisReply *entry_field(const struct redisReply *fields, const char *name)
{
    for (size_t i = 0; i + 1 < fields->elements; i += 2)
        if (directory_reply_text(fields->element[i], name) &&
            fields->element[i + 1]->type == REDIS_REPLY_STRING)
            return fields->element[i + 1];
    return NULL;
}

static int entry_text(const struct redisReply *fields, const char *name, char *to, size_t room)
{
    const struct redisReply *value = entry_field(fields, name);

    return value != NULL ? directory_reply_copy(value, to, room) : -1;
}

/* What others write is a hint; whatever does not fit is passed over. */
static void hear_change(struct nxl_directory *directory, const struct redisReply *fields)
{
    char op[16], ns[NXL_NAMESPACE_MAX + 1], name[NXL_NAME_MAX + 1],
        incarnation[NXL_INCARNATION_MAX + 1];
    char node[NXL_NODE_MAX + 1], agent[NXL_INCARNATION_MAX + 1];
    const struct redisReply *record;

    if (entry_text(fields, "op", op, sizeof(op)) != 0 ||
        entry_text(fields, "ns", ns, sizeof(ns)) != 0 ||
        entry_text(fields, "name", name, sizeof(name)) != 0 ||
        entry_text(fields, "incarnation", incarnation, sizeof(incarnation)) != 0 ||
        entry_text(fields, "node", node, sizeof(node)) != 0 ||
        entry_text(fields, "agent", agent, sizeof(agent)) != 0)
        return;
    if (strcmp(op, "publish") == 0)
        directory_wake_lookups(directory, ns, name);
    if (strcmp(agent, directory->agent) == 0)
        return;
    if (strcmp(op, "withdraw") == 0) {
        directory_tell_withdrawn(directory, ns, name, incarnation, node, agent);
        return;
    }
    record = entry_field(fields, "record");
    if (strcmp(op, "publish") == 0 && record != NULL)
        directory_tell_record(directory, (struct nxl_view){record->str, record->len}, incarnation);
}

static void hear_dead(struct nxl_directory *directory, const struct redisReply *fields)
{
    const struct redisReply *text = entry_field(fields, "text"),
                            *signature = entry_field(fields, "signature");

    directory_hear_fact(directory,
                        text != NULL ? (struct nxl_view){text->str, text->len}
                                     : (struct nxl_view){"", 0},
                        signature != NULL ? (struct nxl_view){signature->str, signature->len}
                                          : (struct nxl_view){"", 0});
}

/* [id, [field, value, ...]]; the id is kept even if the entry is nonsense. */
static void hear_entry(struct nxl_directory *directory, const struct redisReply *entry,
                       char *last_id, int dead)
{
    char id[sizeof(directory->tail.dead_id)];

    if (entry->type != REDIS_REPLY_ARRAY || entry->elements != 2 ||
        directory_reply_copy(entry->element[0], id, sizeof(id)) != 0)
        return;
    (void)nxl_copy_text(last_id, sizeof(id), id);
    if (entry->element[1]->type != REDIS_REPLY_ARRAY)
        return;
    if (dead)
        hear_dead(directory, entry->element[1]);
    else
        hear_change(directory, entry->element[1]);
}

static void hear_streams(struct nxl_directory *directory, const struct redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY)
        return; /* nil: nothing new within the wait */
    for (size_t i = 0; i < reply->elements; i++) {
        const struct redisReply *stream = reply->element[i];
        int dead;

        if (stream->type != REDIS_REPLY_ARRAY || stream->elements != 2 ||
            stream->element[1]->type != REDIS_REPLY_ARRAY)
            continue;
        dead = directory_reply_text(stream->element[0], directory->dead_key);
        if (!dead && !directory_reply_text(stream->element[0], directory->changes_key))
            continue;
        for (size_t k = 0; k < stream->element[1]->elements && !directory->closed; k++)
            hear_entry(directory, stream->element[1]->element[k],
                       dead ? directory->tail.dead_id : directory->tail.changes_id, dead);
    }
}

static void on_read(void *arg, enum nxl_code code, const struct redisReply *reply,
                    const struct nxl_err *err)
{
    struct nxl_directory *directory = arg;

    directory_enter(directory);
    directory->tail.reading = 0;
    if (code == NXL_OK && !directory->closed)
        hear_streams(directory, reply);
    if (!directory->closed && code == NXL_OK) {
        directory_follow(directory);
    } else if (!directory->closed && code == NXL_BACKEND) {
        directory_complain(directory, "follow the streams", err);
        nxl_timer_start(directory->tail.retry, RETRY_NS, 0);
    }
    directory_leave(directory);
}

void directory_follow(struct nxl_directory *directory)
{
    struct nxl_redis_words words = {0};

    if (directory->tail.reading || directory->closed || directory->store_us == 0 ||
        !nxl_redis_up(directory->follow))
        return;
    if (directory->tail.dead_id[0] == '\0')
        directory_follow_from(directory, directory->store_us);
    nxl_redis_word(&words, "XREAD");
    nxl_redis_word(&words, "COUNT");
    nxl_redis_word_number(&words, READ_COUNT);
    nxl_redis_word(&words, "BLOCK");
    nxl_redis_word_number(&words, READ_WAIT_NS / NXL_MS);
    nxl_redis_word(&words, "STREAMS");
    nxl_redis_word(&words, directory->changes_key);
    nxl_redis_word(&words, directory->dead_key);
    nxl_redis_word(&words, directory->tail.changes_id);
    nxl_redis_word(&words, directory->tail.dead_id);
    if (nxl_redis_send(directory->follow, &words, READ_WAIT_NS, on_read, directory) == NXL_OK)
        directory->tail.reading = 1;
}

void directory_on_follow_retry(void *arg)
{
    struct nxl_directory *directory = arg;

    directory_enter(directory);
    directory_follow(directory);
    directory_leave(directory);
}
