/* rig.c - the agents of the rig; its clients are in client.c. */
#include "rig.h"

#include "../backends/backends.h"
#include "base/guard.h"
#include "base/log.h"
#include "cluster/directory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t skipped;

static uint64_t clock_skipped(void *arg)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NXL_SEC + (uint64_t)now.tv_nsec + skipped;
}

void rig_skip(struct rig *rig, uint64_t ns)
{
    skipped += ns;
}

/* All that are linked in, and the hand. */
static const struct nxl_backend_ops *const *statics(void)
{
    static const struct nxl_backend_ops *all[16];
    const struct nxl_backend_ops *const *known = nxl_backends_static();
    uint32_t count = 0;

    while (known[count] != NULL) {
        all[count] = known[count];
        count++;
    }
    all[count] = &hand_ops;
    return all;
}

static void set(struct engine *engine, const char *key, const char *value)
{
    struct nxl_err err = {0};

    if (nxl_settings_set(engine->settings, key, value, "test", &err) != NXL_OK)
        fail_msg("setting %s: %s", key, err.text);
}

static void settings_make(struct engine *engine, va_list pairs)
{
    const char *key;

    engine->settings = nxl_settings_new();
    nxl_hosts_declare(engine->settings, statics(), NULL);
    nxl_links_declare(engine->settings);
    nxl_directory_declare(engine->settings);
    nxl_xfer_declare(engine->settings);
    set(engine, "store.url", "none");
    set(engine, "link.listen", "127.0.0.1:0");
    set(engine, "link.insecure", "true");
    set(engine, "link.suspect_after", "60s");
    set(engine, "link.backoff_max", "100ms");
    while ((key = va_arg(pairs, const char *)) != NULL)
        set(engine, key, va_arg(pairs, const char *));
}

static uint32_t addresses_collect(struct engine *engine)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < nxl_hosts_count(engine->hosts); i++) {
        struct nxl_instance *instance = nxl_hosts_at(engine->hosts, i);
        struct nxl_err err = {0};

        if ((nxl_instance_caps(instance)->flags & NXL_CAP_REMOTE) == 0)
            continue;
        (void)nxl_copy_text(engine->addresses[count].name, sizeof(engine->addresses[count].name),
                            nxl_instance_name(instance));
        assert_int_equal(nxl_instance_address(instance, &engine->addresses[count].address, &err),
                         NXL_OK);
        count++;
    }
    return count;
}

static void cluster_open(struct rig *rig, struct engine *engine)
{
    struct nxl_err err = {0};
    struct nxl_links_options links = {
        .loop = rig->loop,
        .metrics = engine->metrics,
        .settings = engine->settings,
        .cluster = "kl",
        .node = engine->node,
        .agent = engine->agent,
        .backends = engine->addresses,
        .backend_count = addresses_collect(engine),
        .ops = &nxl_xfer_links_ops,
        .arg = engine->xfer,
    };
    struct nxl_directory_options directory = {
        .loop = rig->loop,
        .metrics = engine->metrics,
        .settings = engine->settings,
        .cluster = "kl",
        .node = engine->node,
        .agent = engine->agent,
        .ops = &nxl_xfer_directory_ops,
        .arg = engine->xfer,
    };

    if (nxl_links_open(&links, &engine->links, &err) != NXL_OK)
        fail_msg("links of %s: %s", engine->node, err.text);
    directory.address = nxl_links_address(engine->links);
    if (nxl_directory_open(&directory, &engine->directory, &err) != NXL_OK)
        fail_msg("directory of %s: %s", engine->node, err.text);
}

static struct engine *engine_open(struct rig *rig, const char *node, const char *backends,
                                  va_list pairs)
{
    struct engine *engine = &rig->engines[rig->count++];
    struct nxl_err err = {0};
    struct nxl_xfer_options options;
    struct nxl_hosts_options hosts;
    static unsigned lives;

    assert_true(rig->count <= RIG_ENGINES);
    (void)snprintf(engine->node, sizeof(engine->node), "%s", node);
    (void)snprintf(engine->agent, sizeof(engine->agent), "%s/agent/%08x", node, ++lives);
    engine->metrics = nxl_metrics_new();
    settings_make(engine, pairs);
    options = (struct nxl_xfer_options){.loop = rig->loop,
                                        .metrics = engine->metrics,
                                        .settings = engine->settings,
                                        .cluster = "kl",
                                        .node = engine->node,
                                        .agent = engine->agent};
    assert_int_equal(nxl_xfer_open(&options, &engine->xfer, &err), NXL_OK);
    hosts = (struct nxl_hosts_options){.loop = rig->loop,
                                       .metrics = engine->metrics,
                                       .settings = engine->settings,
                                       .statics = statics(),
                                       .enabled = backends,
                                       .ops = &nxl_xfer_hosts_ops,
                                       .arg = engine->xfer};
    assert_int_equal(nxl_hosts_open(&hosts, &engine->hosts, &err), NXL_OK);
    assert_null(nxl_hosts_refused(engine->hosts, 0, &(const char *){NULL}));
    cluster_open(rig, engine);
    nxl_xfer_attach(engine->xfer, engine->hosts, engine->links, engine->directory);
    return engine;
}

void rig_open_list(struct rig *rig, const char *backends, va_list settings)
{
    struct nxl_err err = {0};
    static int guarded;

    if (!guarded++)
        nxl_guard_install();
    nxl_log_limit = getenv("NXL_TEST_LOG") != NULL ? NXL_LOG_DEBUG : NXL_LOG_ERROR;
    memset(rig, 0, sizeof(*rig));
    skipped = 0;
    nxl_clock_replace(clock_skipped, NULL);
    assert_int_equal(nxl_loop_open(&rig->loop, &err), NXL_OK);
    (void)engine_open(rig, "node-a", backends, settings);
}

void rig_open(struct rig *rig, const char *backends, ...)
{
    va_list pairs;

    va_start(pairs, backends);
    rig_open_list(rig, backends, pairs);
    va_end(pairs);
}

struct engine *rig_join(struct rig *rig, const char *node, const char *backends, ...)
{
    struct engine *engine;
    va_list pairs;

    va_start(pairs, backends);
    engine = engine_open(rig, node, backends, pairs);
    va_end(pairs);
    return engine;
}

void rig_engine_close(struct rig *rig, struct engine *engine)
{
    struct hand *hand = hand_of(rig, engine);

    if (engine->xfer == NULL)
        return;
    if (hand != NULL)
        hand_end_all(hand);
    nxl_directory_close(engine->directory);
    nxl_links_close(engine->links);
    nxl_xfer_attach(engine->xfer, engine->hosts, NULL, NULL);
    nxl_xfer_close(engine->xfer);
    nxl_hosts_close(engine->hosts);
    nxl_settings_free(engine->settings);
    nxl_metrics_free(engine->metrics);
    memset(engine, 0, sizeof(*engine));
}

void rig_close(struct rig *rig)
{
    for (uint32_t i = rig->count; i-- > 0;)
        rig_engine_close(rig, &rig->engines[i]);
    nxl_loop_close(rig->loop);
    nxl_clock_replace(NULL, NULL);
}

static int turn_done(void *arg)
{
    return ++*(int *)arg > 1;
}

void rig_turn(struct rig *rig)
{
    int turns = 0, work = 0;

    for (uint32_t i = 0; i < rig->count; i++)
        if (rig->engines[i].hosts != NULL)
            work += nxl_hosts_deliver(rig->engines[i].hosts);
    if (work == 0)
        (void)nxl_loop_run_until(rig->loop, turn_done, &turns, NXL_SEC);
}

int64_t rig_metric(struct engine *engine, const char *name, const char *labels)
{
    struct nxl_bytes text = {0};
    char head[160];
    const char *at;
    int64_t value = -1;

    (void)snprintf(head, sizeof(head), labels[0] ? "\n%s{%s} " : "\n%s ", name, labels);
    nxl_bytes_put_u8(&text, '\n');
    nxl_metrics_render(engine->metrics, &text);
    nxl_bytes_put_u8(&text, 0);
    at = strstr((const char *)text.data, head);
    if (at != NULL)
        value = strtoll(at + strlen(head), NULL, 10);
    nxl_bytes_fini(&text);
    return value;
}
