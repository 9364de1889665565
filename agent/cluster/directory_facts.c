/* directory_facts.c - facts about life and death: ours into the `dead` stream, others' out of it.
 * Loop thread.
 *
 * A fact is a text and, beside it, a signature with the signer's certificate. It is believed only
 * if the signature holds, the text names our cluster, and the signer is the node where the
 * incarnation lives: its certificate's node is the first component of the prefix. A fact is
 * permanent and may be said again at any time, so an old one played back changes nothing. Without
 * certificates (insecure) the text alone counts. */
#include "cluster/directory_room.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metric.h"
#include "cluster/identity.h"
#include "cluster/trust.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const life_words[] = {
    [NXL_LIFE_LIVE] = "live", [NXL_LIFE_DRAINING] = "draining", [NXL_LIFE_DEAD] = "dead"};

/* ---- the text: six lines, fixed order, so that one fact has one text ---- */

void directory_fact_encode(const struct directory_fact_text *fact, struct nxl_bytes *to)
{
    nxl_bytes_printf(to, "nixlet-fact 1\ncluster %s\nprefix %s\nlife %s\nwitness %s\nreason %s\n",
                     fact->cluster, fact->prefix, life_words[fact->life], fact->witness,
                     fact->reason);
}

/* Takes "key value\n" from the front of *rest. */
static enum nxl_code take_line(struct nxl_view *rest, const char *key, char *to, size_t room,
                               struct nxl_err *err)
{
    const char *text = rest->data, *end = rest->size > 0 ? memchr(text, '\n', rest->size) : NULL;
    size_t key_size = strlen(key), size;

    if (end == NULL || (size_t)(end - text) < key_size + 1 || memcmp(text, key, key_size) != 0 ||
        text[key_size] != ' ')
        return nxl_err_set(err, NXL_MISMATCH, 0,
                           "fact: the line '%s' is missing or not in its place", key);
    size = (size_t)(end - text) - key_size - 1;
    if (size >= room)
        return nxl_err_set(err, NXL_MISMATCH, 0,
                           "fact: '%s' has %zu bytes; at most %zu are allowed", key, size,
                           room - 1);
    for (const char *c = text + key_size + 1; c < end; c++)
        if ((unsigned char)*c < 0x20 || (unsigned char)*c == 0x7f)
            return nxl_err_set(err, NXL_MISMATCH, 0, "fact: '%s' holds a control character", key);
    memcpy(to, text + key_size + 1, size);
    to[size] = '\0';
    rest->data = end + 1;
    rest->size -= (size_t)(end + 1 - text);
    return NXL_OK;
}

enum nxl_code directory_fact_decode(struct nxl_view text, struct directory_fact_text *ret,
                                    struct nxl_err *err)
{
    struct directory_fact_text fact = {0};
    char version[16], life[16];
    enum nxl_code code;

    if (text.size > DIRECTORY_FACT_MAX)
        return nxl_err_set(err, NXL_MISMATCH, 0, "fact: %zu bytes; at most %u are allowed",
                           text.size, DIRECTORY_FACT_MAX);
    code = take_line(&text, "nixlet-fact", version, sizeof(version), err);
    if (code == NXL_OK && strcmp(version, "1") != 0)
        code = nxl_err_set(err, NXL_MISMATCH, 0, "fact: version '%s'; this agent knows version 1",
                           version);
    if (code == NXL_OK)
        code = take_line(&text, "cluster", fact.cluster, sizeof(fact.cluster), err);
    if (code == NXL_OK)
        code = take_line(&text, "prefix", fact.prefix, sizeof(fact.prefix), err);
    if (code == NXL_OK)
        code = take_line(&text, "life", life, sizeof(life), err);
    if (code == NXL_OK)
        code = take_line(&text, "witness", fact.witness, sizeof(fact.witness), err);
    if (code == NXL_OK)
        code = take_line(&text, "reason", fact.reason, sizeof(fact.reason), err);
    if (code != NXL_OK)
        return code;
    if (text.size != 0)
        return nxl_err_set(err, NXL_MISMATCH, 0, "fact: %zu bytes follow after its end", text.size);
    if (!nxl_identity_is_incarnation(fact.prefix))
        return nxl_err_set(err, NXL_MISMATCH, 0,
                           "fact: prefix '%s' is no incarnation or part of one", fact.prefix);
    if (strcmp(life, life_words[NXL_LIFE_DEAD]) == 0)
        fact.life = NXL_LIFE_DEAD;
    else if (strcmp(life, life_words[NXL_LIFE_DRAINING]) == 0)
        fact.life = NXL_LIFE_DRAINING;
    else
        return nxl_err_set(err, NXL_MISMATCH, 0, "fact: life '%s' is neither draining nor dead",
                           life);
    *ret = fact;
    return NXL_OK;
}

/* ---- hearing ---- */

static enum nxl_code check_signer(struct nxl_directory *directory,
                                  const struct directory_fact_text *fact, struct nxl_view text,
                                  struct nxl_view signature, struct nxl_err *err)
{
    char node[NXL_NODE_MAX + 1];
    size_t first = strcspn(fact->prefix, "/");
    enum nxl_code code;

    if (strcmp(fact->cluster, directory->cluster) != 0)
        return nxl_err_set(err, NXL_NOT_ALLOWED, 0, "fact: it is about cluster '%s'",
                           fact->cluster);
    if (directory->trust == NULL)
        return NXL_OK;
    if (signature.size == 0 || signature.size > DIRECTORY_SIGNATURE_MAX)
        return nxl_err_set(err, NXL_NOT_ALLOWED, 0,
                           "fact: not signed, or the signature is too long");
    code = nxl_trust_verify(directory->trust, text, signature, node, sizeof(node), err);
    if (code != NXL_OK)
        return nxl_err_wrap(err, code, "fact");
    if (strlen(node) != first || memcmp(node, fact->prefix, first) != 0)
        return nxl_err_set(err, NXL_NOT_ALLOWED, 0,
                           "fact: node '%s' speaks about '%s', which does not live there", node,
                           fact->prefix);
    return NXL_OK;
}

void directory_hear_fact(struct nxl_directory *directory, struct nxl_view text,
                         struct nxl_view signature)
{
    static struct nxl_log_gate gate;
    struct directory_fact_text fact;
    struct nxl_err err = {0};
    enum nxl_code code = directory_fact_decode(text, &fact, &err);

    if (code == NXL_OK && strcmp(fact.witness, directory->agent) == 0)
        return; /* our own words */
    if (code == NXL_OK)
        code = check_signer(directory, &fact, text, signature, &err);
    if (code != NXL_OK) {
        nxl_metric_add(directory->metric.refused, 1);
        if (nxl_log_gate_open(&gate, 2))
            nxl_warn("store", "event=fact_refused why=%s", nxl_quote(err.text));
        return;
    }
    nxl_metric_add(directory->metric.facts, 1);
    directory->ops.on_fact(directory->arg, fact.prefix, fact.life, fact.reason, fact.witness);
}

/* ---- telling ---- */

struct fact_call {
    struct nxl_directory *directory;
    struct directory_fact *fact; /* owned while on its way */
};

static void fact_queue(struct nxl_directory *directory, struct directory_fact *fact)
{
    fact->next = NULL;
    if (directory->last_fact != NULL)
        directory->last_fact->next = fact;
    else
        directory->first_fact = fact;
    directory->last_fact = fact;
    directory->fact_count++;
}

static struct directory_fact *fact_take(struct nxl_directory *directory)
{
    struct directory_fact *fact = directory->first_fact;

    directory->first_fact = fact->next;
    if (directory->first_fact == NULL)
        directory->last_fact = NULL;
    directory->fact_count--;
    return fact;
}

void directory_free_facts(struct nxl_directory *directory)
{
    while (directory->first_fact != NULL)
        free(fact_take(directory));
}

static void on_told(void *arg, enum nxl_code code, const struct redisReply *reply,
                    const struct nxl_err *err)
{
    struct fact_call *call = arg;
    struct nxl_directory *directory = call->directory;

    (void)reply;
    directory_enter(directory);
    /* Without an answer it may be told twice, which is harmless; refused ones are not told again.
     */
    if (code == NXL_OK || code == NXL_BACKEND || directory->closed)
        free(call->fact);
    else
        fact_queue(directory, call->fact);
    directory_complain(directory, "tell a fact", err);
    free(call);
    directory_leave(directory);
}

static int fact_send(struct nxl_directory *directory, struct directory_fact *fact)
{
    struct directory_fact_text text = {.life = fact->life};
    NXL_CLEANUP(nxl_bytes_fini) struct nxl_bytes body = {0};
    NXL_CLEANUP(nxl_bytes_fini) struct nxl_bytes signature = {0};
    struct nxl_redis_words words = {0};
    struct fact_call *call;
    struct nxl_err err = {0};

    (void)nxl_copy_text(text.cluster, sizeof(text.cluster), directory->cluster);
    (void)nxl_copy_text(text.prefix, sizeof(text.prefix), fact->prefix);
    (void)nxl_copy_text(text.witness, sizeof(text.witness), directory->agent);
    (void)nxl_copy_text(text.reason, sizeof(text.reason), fact->reason);
    directory_fact_encode(&text, &body);
    if (directory->trust != NULL &&
        nxl_trust_sign(directory->trust, (struct nxl_view){body.data, body.size}, &signature,
                       &err) != NXL_OK) {
        nxl_error("store", "event=fact_not_signed prefix=%s why=%s", nxl_quote(fact->prefix),
                  nxl_quote(err.text));
        free(fact);
        return 0;
    }
    nxl_redis_word(&words, "XADD");
    nxl_redis_word(&words, directory->dead_key);
    nxl_redis_word(&words, "MAXLEN");
    nxl_redis_word(&words, "~");
    nxl_redis_word_number(&words, directory->stream_max);
    nxl_redis_word(&words, "*");
    nxl_redis_word(&words, "text");
    nxl_redis_word_view(&words, (struct nxl_view){body.data, body.size});
    nxl_redis_word(&words, "signature");
    nxl_redis_word_view(
        &words, (struct nxl_view){signature.size > 0 ? signature.data : (const unsigned char *)"",
                                  signature.size});
    call = nxl_new0(sizeof(*call));
    call->directory = directory;
    call->fact = fact;
    if (nxl_redis_send(directory->redis, &words, 0, on_told, call) != NXL_OK) {
        free(call);
        fact_queue(directory, fact);
        return -1;
    }
    return 0;
}

void directory_send_facts(struct nxl_directory *directory)
{
    uint64_t now = nxl_now_ns();

    if (directory->fenced || !directory->up)
        return;
    for (uint32_t left = directory->fact_count; left > 0; left--) {
        struct directory_fact *fact = fact_take(directory);

        /* After a lease everybody has seen the lapse; the other two channels told it long ago. */
        if (now - fact->since_ns > directory->lease_ns) {
            free(fact);
            continue;
        }
        if (fact_send(directory, fact) != 0)
            return;
    }
}

void nxl_directory_fact(struct nxl_directory *directory, const char *prefix, enum nxl_life life,
                        const char *reason)
{
    struct directory_fact *fact;

    if (!directory->enabled || directory->fenced || life == NXL_LIFE_LIVE)
        return;
    if (!nxl_identity_is_incarnation(prefix) || strlen(prefix) > NXL_INCARNATION_MAX) {
        nxl_warn("store", "event=fact_ignored why=\"not an incarnation\" prefix=%s",
                 nxl_quote(prefix));
        return;
    }
    if (directory->fact_count >= DIRECTORY_FACTS_MAX) {
        nxl_warn("store", "event=fact_dropped waiting=%u", directory->fact_count);
        free(fact_take(directory)); /* the oldest: the links told it already */
    }
    fact = nxl_new0(sizeof(*fact));
    fact->life = life;
    fact->since_ns = nxl_now_ns();
    (void)nxl_copy_text(fact->prefix, sizeof(fact->prefix), prefix);
    (void)nxl_copy_text(fact->reason, sizeof(fact->reason), reason);
    for (char *c = fact->reason; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || (unsigned char)*c == 0x7f)
            *c = ' ';
    fact_queue(directory, fact);
    directory_send_facts(directory);
}
