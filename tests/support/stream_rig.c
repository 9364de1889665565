/* stream_rig.c - operators and agents of the stream's tests. */
#include "support/stream_rig.h"

#include "base/fd.h"
#include "base/log.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MUST(expr)                                                                                 \
    do {                                                                                           \
        if (!(expr)) {                                                                             \
            (void)fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #expr, err.text);         \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static int turn_done(void *arg)
{
    return ++*(int *)arg > 1;
}

void stream_turn(struct nxl_loop *loop)
{
    int turns = 0;

    (void)nxl_loop_run_until(loop, turn_done, &turns, NXL_MS);
}

void stream_run(struct nxl_loop *loop, uint64_t ns)
{
    uint64_t end = nxl_now_ns() + ns;

    while (nxl_now_ns() < end)
        stream_turn(loop);
}

static void settings_apply(struct nxl_settings *settings, va_list args)
{
    struct nxl_err err = {0};

    for (const char *key = va_arg(args, const char *); key != NULL;
         key = va_arg(args, const char *))
        MUST(nxl_settings_set(settings, key, va_arg(args, const char *), "test", &err) == NXL_OK);
}

int64_t stream_rig_metric(struct nxl_metrics *metrics, const char *name, const char *labels)
{
    struct nxl_bytes text = {0};
    char want[256];
    const char *at;
    int64_t value = -1;

    nxl_metrics_render(metrics, &text);
    nxl_bytes_put_u8(&text, 0);
    (void)snprintf(want, sizeof(want), "\n%s%s%s%s ", name, labels[0] != '\0' ? "{" : "", labels,
                   labels[0] != '\0' ? "}" : "");
    at = strstr((const char *)text.data, want);
    if (at != NULL)
        value = strtoll(at + strlen(want), NULL, 10);
    nxl_bytes_fini(&text);
    return value;
}

/* ---- the operator ------------------------------------------------------------------------- */

static int interested(void *arg, const char *node, const char *group)
{
    const struct stream_rig *rig = arg;
    char both[512];

    (void)snprintf(both, sizeof(both), "%s %s", node, group);
    return rig->uninterested == NULL || strcmp(both, rig->uninterested) != 0;
}

static void answer(struct stream_rig *rig, uint64_t ticket, const char *token)
{
    struct nxl_push_identity identity = {.node = "", .pod = ""};
    char node[128] = "";
    char *colon;

    if (rig->fail_tokens) {
        nxl_push_token_checked(rig->push, ticket, NXL_UNREACHABLE, NULL, "no API server");
        return;
    }
    if (strncmp(token, "node:", 5) == 0) {
        (void)nxl_copy_text(node, sizeof(node), token + 5);
        colon = strchr(node, ':');
        if (colon != NULL) {
            *colon = '\0';
            identity.pod = colon + 1;
        }
        identity.node = node;
    } else if (strcmp(token, "unbound") != 0) {
        nxl_push_token_checked(rig->push, ticket, NXL_NOT_ALLOWED, NULL, "not authenticated");
        return;
    }
    nxl_push_token_checked(rig->push, ticket, NXL_OK, &identity, "");
}

static void check_token(void *arg, uint64_t ticket, const char *token)
{
    struct stream_rig *rig = arg;

    rig->checks++;
    if (!rig->hold_tokens) {
        answer(rig, ticket, token);
        return;
    }
    rig->held[rig->held_count] = ticket;
    (void)nxl_copy_text(rig->held_token[rig->held_count++], sizeof(rig->held_token[0]), token);
}

void stream_rig_answer(struct stream_rig *rig)
{
    for (unsigned i = 0; i < rig->held_count; i++)
        answer(rig, rig->held[i], rig->held_token[i]);
    rig->held_count = 0;
}

static void on_agent(void *arg, const struct nxl_push_agent *agent, int up)
{
    struct stream_rig *rig = arg;

    (void)agent;
    if (up)
        rig->ups++;
    else
        rig->downs++;
}

static void on_silent(void *arg, const struct nxl_push_agent *agent, int silent)
{
    struct stream_rig *rig = arg;

    (void)agent;
    if (silent)
        rig->silents++;
    else
        rig->heards++;
}

static void on_ack(void *arg, const struct nxl_push_agent *agent, uint64_t seq, uint32_t purged,
                   uint64_t us)
{
    struct stream_rig *rig = arg;

    (void)agent;
    rig->acks++;
    rig->acked_seq = seq;
    rig->acked_us = us;
    rig->acked_purged = purged;
    rig->purged += purged;
}

static void on_local(void *arg, const struct nxl_push_agent *agent,
                     const struct nxl_stream_member *fact)
{
    struct stream_rig *rig = arg;

    rig->locals++;
    (void)snprintf(rig->last, sizeof(rig->last), "%s %s %d %s", agent->node, fact->id, fact->life,
                   fact->reason);
}

static void on_pods(void *arg, const struct nxl_push_agent *agent, const char *const *uids,
                    uint32_t count)
{
    struct stream_rig *rig = arg;

    rig->pods++;
    (void)snprintf(rig->last, sizeof(rig->last), "%s %u %s", agent->node, count, uids[0]);
}

static void on_suspect(void *arg, const struct nxl_push_agent *agent, const char *id,
                       const char *node, const char *evidence)
{
    struct stream_rig *rig = arg;

    rig->suspects++;
    (void)snprintf(rig->last, sizeof(rig->last), "%s %s %s %s", agent->node, id, node, evidence);
}

static const struct nxl_push_ops push_ops = {.interested = interested,
                                             .check_token = check_token,
                                             .on_agent = on_agent,
                                             .on_silent = on_silent,
                                             .on_ack = on_ack,
                                             .on_local = on_local,
                                             .on_pods = on_pods,
                                             .on_suspect = on_suspect};

static void push_start(struct stream_rig *rig)
{
    const struct nxl_push_options options = {.loop = rig->loop,
                                             .metrics = rig->metrics,
                                             .settings = rig->settings,
                                             .cluster = "test",
                                             .id = "operator-0",
                                             .authority = rig->authority,
                                             .ops = &push_ops,
                                             .arg = rig};
    struct nxl_err err = {0};

    MUST(nxl_push_open(&options, &rig->push, &err) == NXL_OK);
}

static void file_put(const struct stream_rig *rig, const char *name, const void *data, size_t size)
{
    struct nxl_err err = {0};
    char path[256];

    (void)snprintf(path, sizeof(path), "%s/%s", rig->folder, name);
    MUST(nxl_write_file(path, data, size, 0600, &err) == NXL_OK);
}

void stream_rig_open(struct stream_rig *rig, struct nxl_loop *loop, const struct stream_rig *other,
                     ...)
{
    struct nxl_bytes cert = {0}, key = {0};
    struct nxl_err err = {0};
    va_list args;

    memset(rig, 0, sizeof(*rig));
    rig->loop = loop;
    (void)strcpy(rig->folder, "/tmp/nxl-stream-XXXXXX");
    MUST(mkdtemp(rig->folder) != NULL);
    rig->metrics = nxl_metrics_new();
    rig->settings = nxl_settings_new();
    nxl_push_declare(rig->settings);
    MUST(nxl_settings_set(rig->settings, "stream.listen", "127.0.0.1:0", "test", &err) == NXL_OK);
    va_start(args, other);
    settings_apply(rig->settings, args);
    va_end(args);
    if (other == NULL) {
        MUST(nxl_authority_make("test", &rig->authority, &err) == NXL_OK);
    } else {
        MUST(nxl_authority_pem(other->authority, &cert, &key, &err) == NXL_OK);
        MUST(nxl_authority_open("test", (struct nxl_view){cert.data, cert.size},
                                (struct nxl_view){key.data, key.size}, &rig->authority,
                                &err) == NXL_OK);
        nxl_bytes_fini(&cert);
        nxl_bytes_fini(&key);
    }
    file_put(rig, "ca.pem", nxl_authority_bundle(rig->authority),
             strlen(nxl_authority_bundle(rig->authority)));
    push_start(rig);
}

void stream_rig_stop(struct stream_rig *rig)
{
    nxl_push_close(rig->push);
    rig->push = NULL;
}

void stream_rig_restart(struct stream_rig *rig)
{
    struct nxl_err err = {0};
    char address[128];

    (void)nxl_copy_text(address, sizeof(address), nxl_push_address(rig->push));
    stream_rig_stop(rig);
    MUST(nxl_settings_set(rig->settings, "stream.listen", address, "test", &err) == NXL_OK);
    push_start(rig);
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)info;
    (void)type;
    (void)walk;
    return remove(path);
}

void stream_rig_close(struct stream_rig *rig)
{
    stream_rig_stop(rig);
    nxl_authority_close(rig->authority);
    nxl_settings_free(rig->settings);
    nxl_metrics_free(rig->metrics);
    (void)nftw(rig->folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

uint64_t stream_rig_put(struct stream_rig *rig, const char *id, const char *group, const char *node,
                        const char *version)
{
    const struct nxl_stream_member member = {
        .id = id, .group = group, .pod = id, .node = node, .version = version};

    return nxl_push_member(rig->push, &member);
}

uint64_t stream_rig_dead(struct stream_rig *rig, const char *id, const char *reason)
{
    const struct nxl_stream_member member = {.id = id, .reason = reason, .life = NXL_LIFE_DEAD};

    return nxl_push_member(rig->push, &member);
}

void stream_rig_policy(struct stream_rig *rig, const char *group, uint64_t generation,
                       const char *from, unsigned ops)
{
    const struct nxl_stream_rule rule = {.from = from, .ops = (uint8_t)ops};
    const struct nxl_stream_policy policy = {.group = group,
                                             .generation = generation,
                                             .role = "Custom",
                                             .rules = &rule,
                                             .rule_count = from != NULL};
    struct nxl_err err = {0};
    uint64_t seq;

    MUST(nxl_push_policy(rig->push, &policy, &seq, &err) == NXL_OK);
}

/* ---- an agent ----------------------------------------------------------------------------- */

static void on_life(void *arg, const char *prefix, enum nxl_life life, const char *reason)
{
    struct stream_client *client = arg;

    if (life != NXL_LIFE_DEAD) {
        client->drains++;
        return;
    }
    client->deaths++;
    client->dead_ns = nxl_now_ns();
    (void)nxl_copy_text(client->dead, sizeof(client->dead), prefix);
    (void)nxl_copy_text(client->reason, sizeof(client->reason), reason);
    if (client->on_death != NULL)
        client->on_death(client, prefix);
}

static void on_doubt(void *arg, const char *prefix, int suspect, const char *reason)
{
    struct stream_client *client = arg;

    (void)prefix;
    (void)reason;
    if (suspect)
        client->suspects++;
    else
        client->clears++;
}

static void on_policy(void *arg, const char *group)
{
    struct stream_client *client = arg;

    (void)group;
    client->policies++;
}

static void on_drained(void *arg, const char *prefix)
{
    struct stream_client *client = arg;

    (void)prefix;
    client->drained++;
}

static const struct nxl_members_ops members_ops = {
    .on_life = on_life, .on_suspect = on_doubt, .on_policy = on_policy, .on_drained = on_drained};

static void on_fence(void *arg, uint64_t ticket)
{
    struct stream_client *client = arg;

    if (client->hold_fences)
        client->fences[client->fence_count++] = ticket;
    else
        nxl_stream_fenced(client->stream, ticket, 1);
}

static void on_state(void *arg, uint32_t up, uint32_t known)
{
    struct stream_client *client = arg;

    (void)up;
    (void)known;
    client->states++;
}

static const struct nxl_stream_ops stream_ops = {.on_fence = on_fence, .on_state = on_state};

static void client_settings(struct stream_client *client, const struct stream_rig *rig,
                            const char *token, const char *operators)
{
    struct nxl_err err = {0};
    char path[256], name[160];

    (void)snprintf(name, sizeof(name), "token-%s-%p", client->node, (void *)client);
    if (token == NULL)
        (void)snprintf(client->token, sizeof(client->token), "node:%s", client->node);
    else
        (void)nxl_copy_text(client->token, sizeof(client->token), token);
    file_put(rig, name, client->token, strlen(client->token));
    client->settings = nxl_settings_new();
    nxl_stream_declare(client->settings);
    (void)snprintf(path, sizeof(path), "%s/%s", rig->folder, name);
    MUST(nxl_settings_set(client->settings, "stream.token_file", path, "test", &err) == NXL_OK);
    (void)snprintf(path, sizeof(path), "%s/ca.pem", rig->folder);
    MUST(nxl_settings_set(client->settings, "stream.ca_file", path, "test", &err) == NXL_OK);
    MUST(nxl_settings_set(client->settings, "stream.operators",
                          operators != NULL ? operators : nxl_push_address(rig->push), "test",
                          &err) == NXL_OK);
    MUST(nxl_settings_set(client->settings, "stream.redial_jitter", "100ms", "test", &err) ==
         NXL_OK);
}

void stream_client_open(struct stream_client *client, struct nxl_loop *loop,
                        const struct stream_rig *rig, const char *node, const char *token,
                        const char *operators, struct nxl_metrics *metrics, int with_trust, ...)
{
    struct nxl_members_options table = {
        .node = node, .max = 65536, .ops = &members_ops, .arg = client};
    struct nxl_stream_options options = {
        .loop = loop, .cluster = "test", .ops = &stream_ops, .arg = client};
    struct nxl_err err = {0};
    va_list args;

    memset(client, 0, sizeof(*client));
    client->loop = loop;
    (void)nxl_copy_text(client->node, sizeof(client->node), node);
    (void)snprintf(client->agent, sizeof(client->agent), "%s/agent/%016llx", node,
                   (unsigned long long)nxl_random_u64());
    client_settings(client, rig, token, operators);
    va_start(args, with_trust);
    settings_apply(client->settings, args);
    va_end(args);
    client->metrics = metrics == NULL ? nxl_metrics_new() : NULL;
    client->members = nxl_members_new(&table);
    if (with_trust)
        MUST(nxl_trust_open_pending("test", node, &client->trust, &err) == NXL_OK);
    options.metrics = metrics != NULL ? metrics : client->metrics;
    options.settings = client->settings;
    options.node = client->node;
    options.agent = client->agent;
    options.members = client->members;
    options.trust = client->trust;
    MUST(nxl_stream_open(&options, &client->stream, &err) == NXL_OK);
}

void stream_client_close(struct stream_client *client)
{
    nxl_stream_close(client->stream);
    nxl_members_free(client->members);
    nxl_trust_close(client->trust);
    nxl_settings_free(client->settings);
    if (client->metrics != NULL)
        nxl_metrics_free(client->metrics);
}
