/* hear.c - what agents say: who they are, that they are silent, what happened on their node. */
#include "reconcile/reconcile_internal.h"

#define TOKEN_CHECKS_MAX 1024u

struct token_check {
    struct nxl_reconcile *reconcile; /* NULL: nobody waits any more */
    struct token_check *prev, *next;
    uint64_t ticket;
};

static int interested(void *arg, const char *node, const char *group)
{
    struct nxl_reconcile *reconcile = arg;

    return nxl_world_interested(reconcile->world, node, group);
}

/* ---- tokens ------------------------------------------------------------------------------------
 */

static const char *extra(const json_t *user, const char *key)
{
    const char *text =
        json_string_value(json_array_get(json_object_get(json_object_get(user, "extra"), key), 0));

    return text != NULL ? text : "";
}

static int is_our_audience(const json_t *status, const char *audience)
{
    const json_t *list = json_object_get(status, "audiences");

    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = json_string_value(json_array_get(list, i));

        if (text != NULL && strcmp(text, audience) == 0)
            return 1;
    }
    return 0;
}

static int is_agent(const char *user, const char *account)
{
    const char *slash = strchr(account, '/');
    char wanted[512];

    if (slash == NULL)
        return 0;
    snprintf(wanted, sizeof(wanted), "system:serviceaccount:%.*s:%s", (int)(slash - account),
             account, slash + 1);
    return strcmp(user, wanted) == 0;
}

static const char *judge_review(const struct nxl_reconcile *reconcile, const json_t *answer,
                                struct nxl_push_identity *ret)
{
    const json_t *status = json_object_get(answer, "status");
    const json_t *user = json_object_get(status, "user");
    const char *name = json_string_value(json_object_get(user, "username"));

    if (!json_is_true(json_object_get(status, "authenticated")) || name == NULL)
        return "the API server does not know the token";
    if (!is_our_audience(status, reconcile->audience))
        return "the token is for another audience";
    if (!is_agent(name, reconcile->account))
        return "the token is not of the agents' service account";
    ret->node = extra(user, "authentication.kubernetes.io/node-name");
    ret->pod = extra(user, "authentication.kubernetes.io/pod-uid");
    if (ret->node[0] == '\0')
        return "the token is bound to no node; the API server must be 1.32 or newer";
    return NULL;
}

static void reviewed(void *arg, int status, const json_t *answer, uint64_t after_ns,
                     const struct nxl_err *err)
{
    struct token_check *check = arg;
    struct nxl_reconcile *reconcile = check->reconcile;
    struct nxl_push_identity identity = {.node = "", .pod = ""};
    const char *why;

    (void)after_ns;
    if (reconcile == NULL) {
        free(check);
        return;
    }
    if (check->prev != NULL)
        check->prev->next = check->next;
    else
        reconcile->checks = check->next;
    if (check->next != NULL)
        check->next->prev = check->prev;
    if (status < 200 || status >= 300) {
        nxl_metric_add(reconcile->metrics.tokens_bad, 1);
        nxl_push_token_checked(reconcile->push, check->ticket, NXL_AGAIN, NULL,
                               status == 0 && err != NULL
                                   ? err->text
                                   : "the API server cannot check tokens now; try again");
    } else {
        why = judge_review(reconcile, answer, &identity);
        nxl_metric_add(why == NULL ? reconcile->metrics.tokens_good : reconcile->metrics.tokens_bad,
                       1);
        nxl_push_token_checked(reconcile->push, check->ticket,
                               why == NULL ? NXL_OK : NXL_NOT_ALLOWED, &identity,
                               why == NULL ? "" : why);
    }
    free(check);
}

static void check_token(void *arg, uint64_t ticket, const char *token)
{
    struct nxl_reconcile *reconcile = arg;
    struct token_check *check = nxl_new0(sizeof(*check));
    json_t *body =
        json_pack("{s:s, s:s, s:{s:s, s:[s]}}", "apiVersion", "authentication.k8s.io/v1", "kind",
                  "TokenReview", "spec", "token", token, "audiences", reconcile->audience);
    char *text = body != NULL ? json_dumps(body, JSON_COMPACT) : NULL;

    if (text == NULL) { /* bytes that are no UTF-8 */
        free(check);
        json_decref(body);
        nxl_metric_add(reconcile->metrics.tokens_bad, 1);
        nxl_push_token_checked(reconcile->push, ticket, NXL_NOT_ALLOWED, NULL,
                               "the token is no text");
        return;
    }
    check->reconcile = reconcile;
    check->ticket = ticket;
    check->next = reconcile->checks;
    if (check->next != NULL)
        check->next->prev = check;
    reconcile->checks = check;
    kube_side_call(reconcile->kube,
                   &(struct nxl_writer_call){.method = "POST",
                                             .path = "/apis/authentication.k8s.io/v1/tokenreviews",
                                             .query = "",
                                             .content_type = "application/json",
                                             .body = text},
                   0, reviewed, check);
    memset(text, 0, strlen(text));
    free(text);
    json_decref(body);
}

void checks_drop(struct nxl_reconcile *reconcile)
{
    for (struct token_check *check = reconcile->checks; check != NULL; check = check->next)
        check->reconcile = NULL;
    reconcile->checks = NULL;
}

/* ---- facts
 * --------------------------------------------------------------------------------------- */

static void on_agent(void *arg, const struct nxl_push_agent *agent, int up)
{
    struct nxl_reconcile *reconcile = arg;

    /* A connection that ends is no fact about anybody's life; silence is judged by on_silent. */
    nxl_world_silent(reconcile->world, agent->node, up ? 0 : agent->silent, nxl_now_ns());
    reconcile_look_again(reconcile);
}

static void on_silent(void *arg, const struct nxl_push_agent *agent, int silent)
{
    struct nxl_reconcile *reconcile = arg;

    nxl_world_silent(reconcile->world, agent->node, silent, nxl_now_ns());
}

static void on_ack(void *arg, const struct nxl_push_agent *agent, uint64_t seq, uint32_t purged,
                   uint64_t us)
{
    struct nxl_reconcile *reconcile = arg;

    (void)seq;
    (void)purged;
    (void)us;
    (void)agent;
    reconcile_look_again(reconcile);
}

static void on_local(void *arg, const struct nxl_push_agent *agent,
                     const struct nxl_stream_member *fact)
{
    struct nxl_reconcile *reconcile = arg;
    int taken = nxl_world_local(
        reconcile->world, agent->node, fact->id, fact->life,
        fact->reason != NULL && fact->reason[0] != '\0' ? fact->reason : "agent", nxl_now_ns());

    nxl_metric_add(taken ? reconcile->metrics.locals : reconcile->metrics.locals_refused, 1);
}

static void on_pods(void *arg, const struct nxl_push_agent *agent, const char *const *uids,
                    uint32_t count)
{
    unlabelled_pods(arg, agent->node, uids, count);
}

static void on_suspect(void *arg, const struct nxl_push_agent *agent, const char *id,
                       const char *node, const char *evidence)
{
    struct nxl_reconcile *reconcile = arg;

    /* One agent's failed transfer may be its own fault: it is counted and shown, nobody is judged.
     */
    nxl_metric_add(reconcile->metrics.suspects, 1);
    nxl_debug("reconcile", "event=suspect from=%s id=%s node=%s evidence=%s",
              nxl_quote(agent->node), nxl_quote(id != NULL ? id : ""),
              nxl_quote(node != NULL ? node : ""), nxl_quote(evidence != NULL ? evidence : ""));
}

const struct nxl_push_ops *nxl_reconcile_push_ops(void)
{
    static const struct nxl_push_ops ops = {
        .interested = interested,
        .check_token = check_token,
        .on_agent = on_agent,
        .on_silent = on_silent,
        .on_ack = on_ack,
        .on_local = on_local,
        .on_pods = on_pods,
        .on_suspect = on_suspect,
    };

    return &ops;
}
