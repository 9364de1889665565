/* far.c - see far.h. Loop thread. */
#include "far.h"

#include "cluster/record.h"

#include <string.h>

static void on_up(void *arg, struct nxl_link *link)
{
    ((struct far *)arg)->link = link;
}

static void on_down(void *arg, struct nxl_link *link, const char *why)
{
    struct far *far = arg;

    if (far->link == link)
        far->link = NULL;
}

static void on_suspect(void *arg, struct nxl_link *link, int suspect)
{
}

void far_say(struct far *far, const struct nxl_message *message)
{
    struct nxl_err err = {0};

    assert_non_null(far->link);
    if (nxl_link_send(far->link, message, &err) != NXL_OK)
        fail_msg("%s says: %s", far->agent, err.text);
}

void far_tell_regions(struct far *far, const char *incarnation, uint32_t count, uint32_t flags)
{
    static const unsigned char key[sizeof(void *)];
    struct nxl_message_region regions[8] = {0};
    struct nxl_message message = {.type = NXL_MESSAGE_REGIONS,
                                  .incarnation = incarnation,
                                  .revision = 1,
                                  .flags = flags,
                                  .regions = regions,
                                  .region_count = count};

    assert_true(count <= NXL_COUNT_OF(regions));
    for (uint32_t i = 0; i < count; i++) {
        regions[i] = (struct nxl_message_region){.id = FAR_REGION + i,
                                                 .addr = CLIENT_ADDR + i * CLIENT_SIZE,
                                                 .len = CLIENT_SIZE,
                                                 .key_count = 1};
        regions[i].keys[0].key = (struct nxl_view){key, sizeof(key)};
    }
    far_say(far, &message);
}

static void on_query(struct far *far, const struct nxl_message *query)
{
    struct nxl_message answer = {.type = NXL_MESSAGE_ANSWER,
                                 .request = query->request,
                                 .code = far->answer,
                                 .text = far->answer == NXL_OK ? "" : "the far agent does not want",
                                 .ns = "ns",
                                 .name = "far",
                                 .incarnation = FAR_PEER,
                                 .revision = 1};

    far->queries++;
    (void)nxl_copy_text(far->from_ns, sizeof(far->from_ns), query->from_ns);
    if (far->answer == NXL_AGAIN)
        return;
    far_say(far, &answer);
    if (far->answer == NXL_OK && (query->flags & 1))
        far_tell_regions(far, FAR_PEER, far->regions, 3);
}

static void on_message(void *arg, struct nxl_link *link, const struct nxl_message *message)
{
    struct far *far = arg;

    far->link = link;
    switch (message->type) {
    case NXL_MESSAGE_QUERY:
        on_query(far, message);
        break;
    case NXL_MESSAGE_FACT_ACK:
        assert_true(far->acks < NXL_COUNT_OF(far->acked));
        far->acked[far->acks++] = message->sequence;
        break;
    case NXL_MESSAGE_UNSUBSCRIBE:
        far->unsubscribes++;
        break;
    case NXL_MESSAGE_FACT:
        far->facts++;
        (void)nxl_copy_text(far->fact, sizeof(far->fact), message->incarnation);
        break;
    case NXL_MESSAGE_ANSWER:
        far->hints += message->request == 0;
        break;
    case NXL_MESSAGE_DIGEST_ANSWER:
        far->digest_codes[far->digests++] = (enum nxl_code)message->code;
        if (message->code != NXL_OK)
            (void)nxl_copy_text(far->digest_text, sizeof(far->digest_text), message->text);
        break;
    default:
        break;
    }
}

static enum nxl_code on_notice(void *arg, struct nxl_link *link, const struct nxl_message *notice)
{
    struct far *far = arg;

    if (far->taken == NXL_OK) {
        far->notices++;
        memcpy(far->notice, notice->payload.data,
               notice->payload.size < sizeof(far->notice) ? notice->payload.size : 0);
    }
    return far->taken;
}

static void on_notice_end(void *arg, uint64_t cookie, enum nxl_code code, const char *why)
{
}

static const struct nxl_links_ops far_ops = {.on_up = on_up,
                                             .on_down = on_down,
                                             .on_gone = on_down,
                                             .on_suspect = on_suspect,
                                             .on_message = on_message,
                                             .on_notice = on_notice,
                                             .on_notice_end = on_notice_end};

static void set(struct far *far, const char *key, const char *value)
{
    struct nxl_err err = {0};

    if (nxl_settings_set(far->settings, key, value, "test", &err) != NXL_OK)
        fail_msg("setting %s: %s", key, err.text);
}

void far_open(struct far *far, struct nxl_loop *loop, const char *node, const char *agent,
              const char *listen)
{
    struct nxl_err err = {0};
    struct nxl_links_options options;

    memset(far, 0, sizeof(*far));
    far->regions = 1;
    far->settings = nxl_settings_new();
    far->metrics = nxl_metrics_new();
    nxl_links_declare(far->settings);
    set(far, "link.listen", listen != NULL ? listen : "127.0.0.1:0");
    set(far, "link.insecure", "true");
    set(far, "link.suspect_after", "60s");
    set(far, "link.backoff_max", "100ms");
    (void)nxl_copy_text(far->node, sizeof(far->node), node);
    (void)nxl_copy_text(far->agent, sizeof(far->agent), agent);
    strcpy(far->backend.name, "hand");
    far->backend.address = (struct nxl_view){"hand", 4};
    options = (struct nxl_links_options){.loop = loop,
                                         .metrics = far->metrics,
                                         .settings = far->settings,
                                         .cluster = "kl",
                                         .node = far->node,
                                         .agent = far->agent,
                                         .backends = &far->backend,
                                         .backend_count = 1,
                                         .ops = &far_ops,
                                         .arg = far};
    if (nxl_links_open(&options, &far->links, &err) != NXL_OK)
        fail_msg("links of %s: %s", agent, err.text);
}

void far_close(struct far *far)
{
    if (far->links == NULL)
        return;
    nxl_links_close(far->links);
    nxl_settings_free(far->settings);
    nxl_metrics_free(far->metrics);
    far->links = NULL;
    far->link = NULL;
}

void far_blob(const struct far *far, struct nxl_bytes *to)
{
    struct nxl_record *record = nxl_new0(sizeof(*record));
    struct nxl_err err = {0};

    record->flags = NXL_RECORD_ADDRESS | NXL_RECORD_FULL;
    strcpy(record->ns, "ns");
    strcpy(record->name, "far");
    strcpy(record->incarnation, FAR_PEER);
    strcpy(record->cluster, "kl");
    (void)nxl_copy_text(record->agent, sizeof(record->agent), far->agent);
    (void)nxl_copy_text(record->node, sizeof(record->node), far->node);
    (void)nxl_copy_text(record->address, sizeof(record->address), nxl_links_address(far->links));
    if (nxl_record_encode(record, to, &err) != NXL_OK)
        fail_msg("record: %s", err.text);
    free(record);
}

void far_fact(struct far *far, const char *incarnation, uint64_t sequence)
{
    const struct nxl_message fact = {.type = NXL_MESSAGE_FACT,
                                     .incarnation = incarnation,
                                     .life = NXL_LIFE_DEAD,
                                     .text = "its process is gone",
                                     .sequence = sequence};

    far_say(far, &fact);
}

int far_acked(const struct far *far, uint64_t sequence)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < far->acks; i++)
        count += far->acked[i] == sequence;
    assert_true(count <= 1); /* confirmed once */
    return count == 1;
}

uint32_t far_load(struct far *far, struct client *client)
{
    struct nxl_bytes blob = {0};
    struct reply reply;

    far_blob(far, &blob);
    client_load_blob(client, (struct nxl_view){blob.data, blob.size}, &reply);
    nxl_bytes_fini(&blob);
    if (reply.code != NXL_OK)
        fail_msg("%s loads the far peer: %s", client->name, reply.text);
    assert_int_equal(reply.regions, far->regions);
    assert_int_equal(reply.same_agent, 0);
    return reply.remote;
}
