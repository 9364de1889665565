/* directory_lookup.c - finds a record by name: name index, then the record at the node it names.
 * One that is not there yet is waited for: woken by the `changes` stream, and asking again now and
 * then. Look-ups do not know of each other. Called by xfer through directory.h. Loop thread. */
#include "cluster/directory_room.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/loop.h"
#include "base/mem.h"
#include "base/metric.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A command on its way; the look-up may be forgotten before its answer comes. */
struct lookup_call {
    struct nxl_directory *directory;
    uint64_t ticket;
};

static struct directory_lookup *lookup_find(struct nxl_directory *directory, uint64_t ticket)
{
    struct directory_lookup *lookup;

    HASH_FIND(hh, directory->lookups, &ticket, sizeof(ticket), lookup);
    return lookup;
}

static void lookup_free(struct nxl_directory *directory, struct directory_lookup *lookup)
{
    HASH_DEL(directory->lookups, lookup);
    free(lookup);
    nxl_metric_set(directory->metric.lookups, HASH_COUNT(directory->lookups));
}

/* The one end of a look-up. fn may start and forget others. */
static void lookup_end(struct nxl_directory *directory, struct directory_lookup *lookup,
                       enum nxl_code code, const struct nxl_record *record,
                       const struct nxl_err *err)
{
    nxl_directory_found_fn *fn = lookup->fn;
    void *arg = lookup->arg;

    lookup_free(directory, lookup);
    fn(arg, code, record, err);
}

static void arm(struct nxl_directory *directory, uint64_t due_ns)
{
    uint64_t now = nxl_now_ns();

    if (directory->lookup_armed_ns != 0 && directory->lookup_armed_ns <= due_ns)
        return;
    directory->lookup_armed_ns = due_ns;
    nxl_timer_start(directory->lookup_timer, due_ns > now ? due_ns - now : 0, 0);
}

static void arm_first(struct nxl_directory *directory)
{
    struct directory_lookup *lookup, *next;
    uint64_t first = UINT64_MAX;

    HASH_ITER(hh, directory->lookups, lookup, next)
    {
        uint64_t due = lookup->due_ns < lookup->deadline_ns ? lookup->due_ns : lookup->deadline_ns;

        if (due < first)
            first = due;
    }
    directory->lookup_armed_ns = 0;
    nxl_timer_stop(directory->lookup_timer);
    if (first != UINT64_MAX)
        arm(directory, first);
}

static void lookup_not_there(struct nxl_directory *directory, struct directory_lookup *lookup,
                             const char *what)
{
    struct nxl_err err = {0};

    lookup->answered = 1;
    if (lookup->once) {
        (void)nxl_err_set(&err, NXL_NOT_FOUND, 0, "look up %s/%s: %s", lookup->ns, lookup->name,
                          what);
        lookup_end(directory, lookup, NXL_NOT_FOUND, NULL, &err);
        return;
    }
    /* Jitter: many who wait for one name shall not ask in step. */
    lookup->due_ns = nxl_now_ns() + directory->wait_poll_ns -
                     nxl_random_u64() % (directory->wait_poll_ns / 4 + 1);
    arm(directory, lookup->due_ns);
}

static void lookup_ask(struct nxl_directory *directory, struct directory_lookup *lookup);

/* After an answer: a wake-up that came meanwhile asks again. */
static void lookup_go_on(struct nxl_directory *directory, uint64_t ticket)
{
    struct directory_lookup *lookup = lookup_find(directory, ticket);

    if (!directory->closed && lookup != NULL && !lookup->busy && lookup->again)
        lookup_ask(directory, lookup);
}

static void record_came(struct nxl_directory *directory, struct directory_lookup *lookup,
                        const struct redisReply *reply)
{
    struct nxl_err err = {0};
    enum nxl_code code;

    if (reply->type != REDIS_REPLY_STRING) {
        lookup_not_there(directory, lookup,
                         lookup->label[0] != '\0' ? "the peer has no record with that label"
                                                  : "the peer's record lapsed or was withdrawn");
        return;
    }
    code = nxl_record_decode((struct nxl_view){reply->str, reply->len}, directory->scratch, &err);
    if (code == NXL_OK && (strcmp(directory->scratch->ns, lookup->ns) != 0 ||
                           strcmp(directory->scratch->name, lookup->name) != 0 ||
                           strcmp(directory->scratch->incarnation, lookup->incarnation) != 0))
        code = nxl_err_set(&err, NXL_MISMATCH, 0, "the record is that of %s/%s, incarnation %s",
                           directory->scratch->ns, directory->scratch->name,
                           directory->scratch->incarnation);
    if (code != NXL_OK) {
        /* Damaged or foreign: it changes nothing; a good one may come until the deadline. */
        (void)nxl_err_wrap(&err, code, "look up %s/%s", lookup->ns, lookup->name);
        if (lookup->once)
            lookup_end(directory, lookup, code, NULL, &err);
        else
            lookup_not_there(directory, lookup, "");
        return;
    }
    lookup_end(directory, lookup, NXL_OK, directory->scratch, &err);
}

static void on_record(void *arg, enum nxl_code code, const struct redisReply *reply,
                      const struct nxl_err *err)
{
    struct lookup_call *call = arg;
    struct nxl_directory *directory = call->directory;
    struct directory_lookup *lookup;

    directory_enter(directory);
    lookup = directory->closed ? NULL : lookup_find(directory, call->ticket);
    if (lookup != NULL) {
        lookup->busy = 0;
        if (code == NXL_OK)
            record_came(directory, lookup, reply);
        else
            directory_complain(directory, "look up", err);
        lookup_go_on(directory, call->ticket);
    }
    free(call);
    directory_leave(directory);
}

static int lookup_send(struct nxl_directory *directory, struct directory_lookup *lookup,
                       const struct nxl_redis_words *words, nxl_redis_reply_fn *fn)
{
    struct lookup_call *call = nxl_new0(sizeof(*call));

    call->directory = directory;
    call->ticket = lookup->ticket;
    if (nxl_redis_send(directory->redis, words, 0, fn, call) != NXL_OK) {
        free(call);
        return -1;
    }
    lookup->busy = 1;
    return 0;
}

/* The index may outlive the record, so the record itself decides. */
static void index_came(struct nxl_directory *directory, struct directory_lookup *lookup,
                       const struct redisReply *reply)
{
    struct nxl_redis_words words = {0};
    char node[NXL_NODE_MAX + 1], key[DIRECTORY_KEY_MAX], field[DIRECTORY_FIELD_MAX + 1];

    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
        directory_reply_copy(reply->element[0], lookup->incarnation, sizeof(lookup->incarnation)) !=
            0 ||
        directory_reply_copy(reply->element[1], node, sizeof(node)) != 0 ||
        lookup->incarnation[0] == '\0' || node[0] == '\0') {
        lookup_not_there(directory, lookup, "the store knows no such peer");
        return;
    }
    directory_key(directory, key, "peers:", node);
    (void)snprintf(field, sizeof(field), "%s%s%s", lookup->incarnation,
                   lookup->label[0] != '\0' ? "#" : "", lookup->label);
    nxl_redis_word(&words, "HGET");
    nxl_redis_word(&words, key);
    nxl_redis_word(&words, field);
    (void)lookup_send(directory, lookup, &words, on_record); /* not connected: the next poll */
}

static void on_index(void *arg, enum nxl_code code, const struct redisReply *reply,
                     const struct nxl_err *err)
{
    struct lookup_call *call = arg;
    struct nxl_directory *directory = call->directory;
    struct directory_lookup *lookup;

    directory_enter(directory);
    lookup = directory->closed ? NULL : lookup_find(directory, call->ticket);
    if (lookup != NULL) {
        lookup->busy = 0;
        if (code == NXL_OK)
            index_came(directory, lookup, reply);
        else
            directory_complain(directory, "look up", err);
        lookup_go_on(directory, call->ticket);
    }
    free(call);
    directory_leave(directory);
}

static void lookup_ask(struct nxl_directory *directory, struct directory_lookup *lookup)
{
    struct nxl_redis_words words = {0};
    char key[DIRECTORY_KEY_MAX];

    lookup->again = 0;
    lookup->due_ns = nxl_now_ns() + directory->wait_poll_ns;
    directory_name_key(directory, key, lookup->ns, lookup->name);
    nxl_redis_word(&words, "HMGET");
    nxl_redis_word(&words, key);
    nxl_redis_word(&words, "incarnation");
    nxl_redis_word(&words, "node");
    if (lookup_send(directory, lookup, &words, on_index) == 0)
        lookup->reached = 1;
}

void directory_wake_lookups(struct nxl_directory *directory, const char *ns, const char *name)
{
    struct directory_lookup *lookup, *next;

    HASH_ITER(hh, directory->lookups, lookup, next)
    {
        if (ns != NULL && (strcmp(lookup->ns, ns) != 0 || strcmp(lookup->name, name) != 0))
            continue;
        if (lookup->busy)
            lookup->again = 1;
        else
            lookup_ask(directory, lookup);
    }
}

static void lookup_expire(struct nxl_directory *directory, struct directory_lookup *lookup)
{
    struct nxl_err err = {0};
    enum nxl_code code = lookup->answered  ? NXL_NOT_FOUND
                         : lookup->reached ? NXL_TIMEOUT
                                           : NXL_UNREACHABLE;

    if (code == NXL_NOT_FOUND)
        (void)nxl_err_set(&err, code, 0, "look up %s/%s: nobody published it until the deadline",
                          lookup->ns, lookup->name);
    else if (code == NXL_TIMEOUT)
        (void)nxl_err_set(&err, code, 0,
                          "look up %s/%s: the store did not answer until the deadline", lookup->ns,
                          lookup->name);
    else
        (void)nxl_err_set(&err, code, 0, "look up %s/%s: the store %.120s is down: %.200s",
                          lookup->ns, lookup->name, directory->url_text,
                          nxl_redis_why(directory->redis));
    lookup_end(directory, lookup, code, NULL, &err);
}

void directory_on_lookup_timer(void *arg)
{
    struct nxl_directory *directory = arg;
    struct directory_lookup *lookup, *next;
    uint64_t now = nxl_now_ns(), last = directory->ticket;

    directory_enter(directory);
    /* fn may forget any look-up, so tickets are noted and found again. Order of the hash: of
     * addition. */
    for (lookup = directory->lookups; lookup != NULL && lookup->ticket <= last; lookup = next) {
        uint64_t next_ticket;

        next = lookup->hh.next;
        next_ticket = next != NULL ? next->ticket : 0;
        if (now >= lookup->deadline_ns) {
            lookup_expire(directory, lookup);
            if (directory->closed)
                break;
            next = next_ticket != 0 ? lookup_find(directory, next_ticket) : NULL;
            if (next_ticket != 0 && next == NULL)
                break; /* that one was forgotten: the timer comes again at once */
        } else if (now >= lookup->due_ns) {
            if (!lookup->busy)
                lookup_ask(directory, lookup);
            else
                lookup->due_ns =
                    now + directory->wait_poll_ns; /* its answer or its deadline comes first */
        }
    }
    if (!directory->closed)
        arm_first(directory);
    directory_leave(directory);
}

enum nxl_code nxl_directory_lookup(struct nxl_directory *directory, const char *ns,
                                   const char *name, const char *label, uint64_t deadline_ns,
                                   nxl_directory_found_fn *fn, void *arg, uint64_t *ret_ticket,
                                   struct nxl_err *err)
{
    struct directory_lookup *lookup;
    uint64_t now = nxl_now_ns();

    if (directory->closed)
        return nxl_err_set(err, NXL_CANCELED, 0, "look up %.63s/%.200s: the directory is closing",
                           ns, name);
    if (!directory->enabled)
        return nxl_err_set(err, NXL_NOT_SUPPORTED, 0,
                           "look up %.63s/%.200s: this agent has no store (store.url is 'none'); "
                           "pass the metadata "
                           "blob, or name the other agent's address",
                           ns, name);
    if (HASH_COUNT(directory->lookups) >= DIRECTORY_LOOKUPS_MAX)
        return nxl_err_set(err, NXL_LIMIT, 0, "look up %.63s/%.200s: %u look-ups wait already", ns,
                           name, DIRECTORY_LOOKUPS_MAX);
    lookup = nxl_new0(sizeof(*lookup));
    if (nxl_copy_text(lookup->ns, sizeof(lookup->ns), ns) != 0 ||
        nxl_copy_text(lookup->name, sizeof(lookup->name), name) != 0 ||
        nxl_copy_text(lookup->label, sizeof(lookup->label), label != NULL ? label : "") != 0) {
        free(lookup);
        return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "look up: namespace, name or label is too long");
    }
    lookup->ticket = ++directory->ticket;
    lookup->fn = fn;
    lookup->arg = arg;
    lookup->once = deadline_ns <= now;
    /* A look-up without patience still has the time that one command may take, also to connect. */
    lookup->deadline_ns = lookup->once ? now + directory->command_timeout_ns : deadline_ns;
    lookup->due_ns = now + directory->wait_poll_ns;
    HASH_ADD(hh, directory->lookups, ticket, sizeof(lookup->ticket), lookup);
    nxl_metric_set(directory->metric.lookups, HASH_COUNT(directory->lookups));
    lookup_ask(directory, lookup);
    arm(directory, lookup->deadline_ns < lookup->due_ns ? lookup->deadline_ns : lookup->due_ns);
    *ret_ticket = lookup->ticket;
    return NXL_OK;
}

void nxl_directory_forget(struct nxl_directory *directory, uint64_t ticket)
{
    struct directory_lookup *lookup = lookup_find(directory, ticket);

    if (lookup != NULL)
        lookup_free(directory, lookup);
}

void directory_end_lookups(struct nxl_directory *directory)
{
    struct nxl_err err = {0};

    (void)nxl_err_set(&err, NXL_CANCELED, 0, "look up: the directory was closed");
    while (directory->lookups != NULL)
        lookup_end(directory, directory->lookups, NXL_CANCELED, NULL, &err);
}
