/* heartbeat.c - lease renewal and self-fencing. Driven by its own timer and by the directory.
 * Loop thread. */
#include "cluster/heartbeat.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/loop.h"
#include "base/mem.h"
#include "cluster/redis.h"

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* One script, so that look and write are one step: of two agents that think they are this node, the
 * late one never disturbs the holder's key. "new" takes over from an earlier life and drops its
 * records; "keep" writes an absent key again, "frozen" does not. KEYS node peers epoch. ARGV mode
 * agent address lease_ms epoch beats missed reset. */
static const char beat_script[] =
    "local held=redis.call('HGET',KEYS[1],'agent') "
    "local now=redis.call('TIME') "
    "local epoch=redis.call('GET',KEYS[3]) "
    "if not epoch then redis.call('SET',KEYS[3],ARGV[5],'NX') epoch=ARGV[5] end "
    "if held and held~=ARGV[2] and ARGV[1]~='new' then return {'held',held,now[1],now[2],epoch,0} "
    "end "
    "if not held and ARGV[1]=='frozen' then return {'gone','',now[1],now[2],epoch,0} end "
    "if held~=ARGV[2] or ARGV[8]=='1' then redis.call('DEL',KEYS[2]) end "
    "redis.call('HSET',KEYS[1],'agent',ARGV[2],'address',ARGV[3],'time',now[1]..string.format('%"
    "06d',now[2]),"
    "'heartbeats',ARGV[6],'missed',ARGV[7],'lease_ms',ARGV[4]) "
    "redis.call('PEXPIRE',KEYS[1],ARGV[4]) "
    "redis.call('PEXPIRE',KEYS[2],ARGV[4]) "
    "return {'ok',held or '',now[1],now[2],epoch,redis.call('HLEN',KEYS[2])}";

struct nxl_heartbeat {
    struct nxl_heartbeat_options options;
    struct nxl_timer *timer;
    uint64_t turned_ns; /* when we last looked at the clock: a long gap means we did not run */
    uint64_t turned_boot_ns;
    uint64_t sent_ns, answered_ns; /* of the outstanding beat; send time of the last answered one */
    uint64_t beats, missed;
    int outstanding, taken, frozen, reset, fenced, closed, entered;
};

/* Also counts while the machine is suspended. */
static uint64_t boot_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * NXL_SEC + (uint64_t)now.tv_nsec;
}

static void heartbeat_leave(struct nxl_heartbeat *heartbeat)
{
    if (--heartbeat->entered > 0 || !heartbeat->closed || heartbeat->outstanding)
        return;
    nxl_timer_close(heartbeat->timer);
    free(heartbeat);
}

/* The lease may have run out in a gap during which nothing of ours ran. */
static void notice_gap(struct nxl_heartbeat *heartbeat)
{
    uint64_t now = nxl_now_ns(), boot = boot_ns();
    uint64_t gap = now - heartbeat->turned_ns, boot_gap = boot - heartbeat->turned_boot_ns;
    uint64_t limit = heartbeat->options.lease_ns - heartbeat->options.interval_ns;

    if (gap < boot_gap)
        gap = boot_gap;
    heartbeat->turned_ns = now;
    heartbeat->turned_boot_ns = boot;
    if (heartbeat->taken && gap > limit)
        heartbeat->frozen = 1;
}

static void missed(struct nxl_heartbeat *heartbeat, const char *why)
{
    heartbeat->missed++;
    /* Inside the period again, so that one lost beat costs nothing. */
    nxl_timer_start(heartbeat->timer, heartbeat->options.interval_ns / 4, 0);
    heartbeat->options.ops->on_missed(heartbeat->options.arg, why);
}

static void fence(struct nxl_heartbeat *heartbeat, const char *why)
{
    heartbeat->fenced = 1;
    nxl_timer_stop(heartbeat->timer);
    heartbeat->options.ops->on_fenced(heartbeat->options.arg, why);
}

static uint64_t reply_number(const struct redisReply *reply)
{
    if (reply->type == REDIS_REPLY_INTEGER)
        return reply->integer > 0 ? (uint64_t)reply->integer : 0;
    return strtoull(reply->str, NULL, 10);
}

static int beat_well_formed(const struct redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 6)
        return 0;
    for (size_t i = 0; i < 5; i++)
        if (reply->element[i]->type != REDIS_REPLY_STRING)
            return 0;
    return reply->element[5]->type == REDIS_REPLY_INTEGER && reply->element[4]->len > 0 &&
           reply->element[4]->len < sizeof(((struct nxl_beat *)0)->epoch);
}

static void beat_answered(struct nxl_heartbeat *heartbeat, const struct redisReply *reply)
{
    struct nxl_beat beat = {0};
    char why[400];

    if (strcmp(reply->element[0]->str, "held") == 0) {
        (void)snprintf(why, sizeof(why),
                       "agent %.160s took over this node's lease; if it runs elsewhere, the node "
                       "name is used twice",
                       reply->element[1]->str);
        fence(heartbeat, why);
        return;
    }
    if (strcmp(reply->element[0]->str, "gone") == 0) {
        fence(heartbeat,
              "this process did not run for longer than its lease, which lapsed meanwhile");
        return;
    }
    heartbeat->answered_ns = heartbeat->sent_ns;
    heartbeat->beats++;
    heartbeat->taken = 1;
    heartbeat->frozen = 0;
    (void)nxl_copy_text(beat.epoch, sizeof(beat.epoch), reply->element[4]->str);
    beat.store_us = reply_number(reply->element[2]) * 1000000u + reply_number(reply->element[3]);
    beat.records = reply_number(reply->element[5]);
    beat.renewed = strcmp(reply->element[1]->str, heartbeat->options.agent) == 0;
    beat.round_trip_ns = nxl_now_ns() - heartbeat->sent_ns;
    /* A tenth of jitter keeps a thousand agents from beating together. */
    nxl_timer_start(heartbeat->timer,
                    heartbeat->options.interval_ns -
                        nxl_random_u64() % (heartbeat->options.interval_ns / 10 + 1),
                    0);
    heartbeat->options.ops->on_beat(heartbeat->options.arg, &beat);
}

static void on_beat_reply(void *arg, enum nxl_code code, const struct redisReply *reply,
                          const struct nxl_err *err)
{
    struct nxl_heartbeat *heartbeat = arg;

    heartbeat->entered++;
    heartbeat->outstanding = 0;
    if (!heartbeat->closed) {
        if (code != NXL_OK) {
            missed(heartbeat, err->text);
        } else if (!beat_well_formed(reply)) {
            missed(heartbeat,
                   "the answer to the heartbeat has another form; is something else in our keys?");
        } else {
            beat_answered(heartbeat, reply);
        }
    }
    heartbeat_leave(heartbeat);
}

static void beat(struct nxl_heartbeat *heartbeat)
{
    const struct nxl_heartbeat_options *options = &heartbeat->options;
    struct nxl_redis_words words = {0};
    char epoch[40]; /* set if there is none; never the same twice, or a wipe would go unseen */

    notice_gap(heartbeat);
    if (heartbeat->outstanding || heartbeat->fenced || heartbeat->closed)
        return;
    (void)snprintf(epoch, sizeof(epoch), "%016llx%016llx", (unsigned long long)nxl_random_u64(),
                   (unsigned long long)nxl_random_u64());
    nxl_redis_word(&words, "EVAL");
    nxl_redis_word(&words, beat_script);
    nxl_redis_word_number(&words, 3);
    nxl_redis_word(&words, options->node_key);
    nxl_redis_word(&words, options->peers_key);
    nxl_redis_word(&words, options->epoch_key);
    nxl_redis_word(&words, !heartbeat->taken ? "new" : heartbeat->frozen ? "frozen" : "keep");
    nxl_redis_word(&words, options->agent);
    nxl_redis_word(&words, options->address);
    nxl_redis_word_number(&words, options->lease_ns / NXL_MS);
    nxl_redis_word(&words, epoch);
    nxl_redis_word_number(&words, heartbeat->beats + 1);
    nxl_redis_word_number(&words, heartbeat->missed);
    nxl_redis_word(&words, heartbeat->reset ? "1" : "0");
    if (nxl_redis_send(options->redis, &words, 0, on_beat_reply, heartbeat) != NXL_OK) {
        heartbeat->missed++; /* the directory beats at once when the store is back */
        options->ops->on_missed(options->arg, "the store is not connected");
        return;
    }
    heartbeat->reset = 0; /* a lost answer leaves a count that differs, which asks for it again */
    heartbeat->outstanding = 1;
    heartbeat->sent_ns = nxl_now_ns();
}

static void on_tick(void *arg)
{
    struct nxl_heartbeat *heartbeat = arg;

    heartbeat->entered++;
    /* Armed before the beat: ticks also measure gaps while the store is away. */
    nxl_timer_start(heartbeat->timer, heartbeat->options.interval_ns, 0);
    beat(heartbeat);
    heartbeat_leave(heartbeat);
}

struct nxl_heartbeat *nxl_heartbeat_open(const struct nxl_heartbeat_options *options)
{
    struct nxl_heartbeat *heartbeat = nxl_new0(sizeof(*heartbeat));

    heartbeat->options = *options;
    heartbeat->timer = nxl_timer_open(options->loop, on_tick, heartbeat);
    heartbeat->turned_ns = nxl_now_ns();
    heartbeat->turned_boot_ns = boot_ns();
    nxl_timer_start(heartbeat->timer, options->interval_ns, 0);
    return heartbeat;
}

void nxl_heartbeat_close(struct nxl_heartbeat *heartbeat)
{
    if (heartbeat == NULL || heartbeat->closed)
        return;
    heartbeat->entered++;
    heartbeat->closed = 1;
    nxl_timer_stop(heartbeat->timer);
    heartbeat_leave(
        heartbeat); /* with a beat outstanding its answer frees; closing redis answers */
}

void nxl_heartbeat_now(struct nxl_heartbeat *heartbeat)
{
    heartbeat->entered++;
    beat(heartbeat);
    heartbeat_leave(heartbeat);
}

void nxl_heartbeat_reset_records(struct nxl_heartbeat *heartbeat)
{
    heartbeat->reset = 1;
}

int nxl_heartbeat_leased(const struct nxl_heartbeat *heartbeat)
{
    return heartbeat->answered_ns != 0 &&
           nxl_now_ns() - heartbeat->answered_ns < heartbeat->options.lease_ns;
}

uint64_t nxl_heartbeat_last_ns(const struct nxl_heartbeat *heartbeat)
{
    return heartbeat->answered_ns;
}

uint64_t nxl_heartbeat_count(const struct nxl_heartbeat *heartbeat, uint64_t *ret_missed)
{
    *ret_missed = heartbeat->missed;
    return heartbeat->beats;
}
