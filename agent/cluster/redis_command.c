/* redis_command.c - commands on their way: sent in order, answered in order, each with a deadline.
 * A command that misses it ends the connection, because later answers could not be told apart. Loop
 * thread. */
#include "cluster/redis_room.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/loop.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void nxl_redis_word_view(struct nxl_redis_words *words, struct nxl_view view)
{
    NXL_ASSERT(words->count < NXL_COUNT_OF(words->list));
    words->list[words->count++] = view;
}

void nxl_redis_word(struct nxl_redis_words *words, const char *text)
{
    nxl_redis_word_view(words, (struct nxl_view){text, strlen(text)});
}

void nxl_redis_word_number(struct nxl_redis_words *words, uint64_t number)
{
    char *slot;

    NXL_ASSERT(words->number_count < NXL_COUNT_OF(words->numbers));
    slot = words->numbers[words->number_count++];
    (void)snprintf(slot, sizeof(words->numbers[0]), "%llu", (unsigned long long)number);
    nxl_redis_word(words, slot);
}

static void arm_deadline(struct nxl_redis *redis)
{
    uint64_t now = nxl_now_ns(), due = redis->first->deadline_ns;

    redis->timer_due_ns = due > now ? due : now;
    nxl_timer_start(redis->deadline_timer, redis->timer_due_ns - now, 0);
}

static void on_reply(redisAsyncContext *context, void *raw, void *unused)
{
    struct nxl_redis *redis = context->data;

    (void)unused;
    /* Without a reply hiredis is giving the connection up; settle() answers everything at once. */
    if (redis != NULL && raw != NULL)
        nxl_redis_answered(redis, raw);
}

enum nxl_code nxl_redis_push(struct nxl_redis *redis, const struct nxl_redis_words *words,
                             uint64_t wait_ns, nxl_redis_reply_fn *fn, void *arg)
{
    const char *list[NXL_COUNT_OF(words->list)];
    size_t sizes[NXL_COUNT_OF(words->list)];
    struct redis_command *command;

    if (redis->context == NULL || redis->outstanding >= NXL_REDIS_OUTSTANDING_MAX)
        return NXL_UNREACHABLE;
    for (uint32_t i = 0; i < words->count; i++) {
        list[i] = words->list[i].data;
        sizes[i] = words->list[i].size;
    }
    if (redisAsyncCommandArgv(redis->context, on_reply, NULL, (int)words->count, list, sizes) !=
        REDIS_OK)
        return NXL_UNREACHABLE;
    command = nxl_new0(sizeof(*command));
    command->redis = redis;
    command->fn = fn;
    command->arg = arg;
    command->deadline_ns = nxl_now_ns() + redis->options.command_timeout_ns + wait_ns;
    /* Answers come in order, so nobody can be due before the one in front. */
    if (redis->last != NULL && command->deadline_ns < redis->last->deadline_ns)
        command->deadline_ns = redis->last->deadline_ns;
    if (redis->last != NULL)
        redis->last->next = command;
    else
        redis->first = command;
    redis->last = command;
    if (redis->outstanding++ == 0)
        arm_deadline(redis);
    return NXL_OK;
}

enum nxl_code nxl_redis_send(struct nxl_redis *redis, const struct nxl_redis_words *words,
                             uint64_t wait_ns, nxl_redis_reply_fn *fn, void *arg)
{
    if (!nxl_redis_up(redis))
        return NXL_UNREACHABLE;
    return nxl_redis_push(redis, words, wait_ns, fn, arg);
}

static struct redis_command *take_first(struct nxl_redis *redis)
{
    struct redis_command *command = redis->first;

    redis->first = command->next;
    if (redis->first == NULL)
        redis->last = NULL;
    redis->outstanding--;
    return command;
}

void nxl_redis_answered(struct nxl_redis *redis, const struct redisReply *reply)
{
    NXL_CLEANUP(nxl_freep) struct redis_command *command = NULL;
    struct nxl_err err = {0};
    int phase_up = redis->phase == REDIS_UP;

    if (redis->first == NULL) {
        nxl_redis_fail(redis, NXL_MISMATCH, "the server answered more than it was asked");
        return;
    }
    command = take_first(redis);
    if (reply->type != REDIS_REPLY_ERROR) {
        command->fn(command->arg, NXL_OK, reply, &err);
        return;
    }
    if (phase_up && nxl_redis_wrong_server(redis, reply->str)) {
        (void)nxl_err_set(&err, NXL_UNREACHABLE, 0, "store: %.200s", reply->str);
        command->fn(command->arg, NXL_UNREACHABLE, NULL, &err);
        if (!redis->closed && redis->phase == REDIS_UP)
            nxl_redis_fail(redis, NXL_UNREACHABLE, err.text);
        return;
    }
    (void)nxl_err_set(&err, NXL_BACKEND, 0, "store: %.300s", reply->str);
    command->fn(command->arg, NXL_BACKEND, reply, &err);
}

void nxl_redis_answer_all(struct nxl_redis *redis, enum nxl_code code, const char *why)
{
    struct nxl_err err = {0};

    (void)nxl_err_set(&err, code, 0, "store: %s", why);
    while (redis->first != NULL) {
        struct redis_command *command = take_first(redis);

        command->fn(command->arg, code, NULL, &err);
        free(command);
    }
}

/* What this process slept through is not the server's fault: a command may not even be written yet.
 * So each starts anew, once. */
static void extend_deadlines(struct nxl_redis *redis, uint64_t now)
{
    uint64_t least = now + redis->options.command_timeout_ns;

    for (struct redis_command *command = redis->first; command != NULL; command = command->next) {
        if (!command->extended && command->deadline_ns < least)
            command->deadline_ns = least;
        command->extended = 1;
    }
}

/* After a pause of our own (a stopped process, a busy loop) the answer may already lie in the
 * socket: what is there counts before the deadline does. */
void nxl_redis_check_deadline(void *arg)
{
    struct nxl_redis *redis = arg;
    uint64_t now = nxl_now_ns(), late = now > redis->timer_due_ns ? now - redis->timer_due_ns : 0;
    unsigned reads = 256;

    nxl_redis_enter(redis);
    while (redis->first != NULL && redis->first->deadline_ns <= now && reads-- > 0 &&
           nxl_redis_pump(redis))
        continue;
    nxl_redis_settle(redis);
    if (!redis->closed && redis->first != NULL) {
        if (late > redis->options.command_timeout_ns / 8)
            extend_deadlines(redis, now);
        if (redis->first->deadline_ns <= now)
            nxl_redis_fail(redis, NXL_TIMEOUT, "a command was not answered in time");
        else
            arm_deadline(redis);
    }
    nxl_redis_leave(redis);
}
