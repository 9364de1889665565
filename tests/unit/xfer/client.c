/* client.c - the clients of the rig, see rig.h. */
#include "rig.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ENDS_MAX 4096u
#define SEEN_MAX 512u

/* ---- what it is told ------------------------------------------------------------------------- */

static struct end *end_of(const struct client *client, uint32_t slot, uint32_t generation)
{
    for (uint32_t i = client->end_count; i-- > 0;)
        if (client->ends[i].slot == slot && client->ends[i].last.generation == generation)
            return &client->ends[i];
    return NULL;
}

/* A post ends once. It may be told a second time only to say that it is quiet now. */
static void on_slot(void *front, uint32_t slot, const struct nxl_xfer_slot *update)
{
    struct client *client = front;
    struct end *end = end_of(client, slot, update->generation);

    assert_non_null(client->session);
    assert_true(update->state == NXL_RING_DONE || update->state == NXL_RING_FAILED ||
                update->state == NXL_RING_CANCELLED);
    assert_int_equal(update->state == NXL_RING_DONE, update->code == NXL_OK);
    assert_int_equal(update->state == NXL_RING_CANCELLED, update->code == NXL_CANCELED);
    if (end == NULL) {
        assert_true(client->end_count < ENDS_MAX);
        end = &client->ends[client->end_count++];
        *end = (struct end){.slot = slot, .events = client->seen_count};
    } else {
        assert_int_equal(end->updates, 1);
        assert_int_equal(end->last.quiet, 0);
        assert_int_equal(update->quiet, 1);
        assert_int_equal(end->last.state, update->state);
        assert_int_equal(end->last.code, update->code);
        assert_int_equal(end->last.id, update->id);
        assert_int_equal(end->last.bytes, update->bytes);
    }
    end->last = *update;
    end->updates++;
}

static enum nxl_code on_event(void *front, const struct nxl_xfer_event *event, int must)
{
    struct client *client = front;
    struct seen *seen = &client->seen[client->seen_count];
    size_t size = event->payload.size;

    assert_non_null(client->session);
    if (client->full && !must)
        return NXL_AGAIN;
    assert_true(client->seen_count < SEEN_MAX);
    *seen = (struct seen){.kind = event->kind,
                          .peer = event->peer,
                          .code = event->code,
                          .transfer = event->transfer,
                          .size = size,
                          .ends = client->end_count};
    (void)nxl_copy_text(seen->name, sizeof(seen->name), event->name);
    (void)nxl_copy_text(seen->incarnation, sizeof(seen->incarnation), event->incarnation);
    if (size > 0)
        memcpy(seen->text, event->payload.data,
               size < sizeof(seen->text) ? size : sizeof(seen->text) - 1);
    if (client->base != NULL)
        seen->byte = client->base[client->watch_at];
    client->seen_count++;
    return NXL_OK;
}

static const struct nxl_xfer_front front_ops = {.slot = on_slot, .event = on_event};

const struct end *client_end(const struct client *client, uint32_t generation)
{
    for (uint32_t i = client->end_count; i-- > 0;)
        if (client->ends[i].last.generation == generation)
            return &client->ends[i];
    return NULL;
}

int client_ended(const struct client *client, uint32_t generation, enum nxl_code code, int quiet)
{
    const struct end *end = client_end(client, generation);

    return end != NULL && end->last.code == (int32_t)code && end->last.quiet == quiet;
}

uint32_t client_events(const struct client *client, uint32_t kind)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < client->seen_count; i++)
        count += client->seen[i].kind == kind;
    return count;
}

const struct seen *client_event(const struct client *client, uint32_t kind)
{
    for (uint32_t i = client->seen_count; i-- > 0;)
        if (client->seen[i].kind == kind)
            return &client->seen[i];
    fail_msg("%s was told no event of kind %u", client->name, kind);
    return NULL;
}

/* ---- coming and going --------------------------------------------------------------------------
 */

void client_open_bare(struct client *client, struct rig *rig, struct engine *engine, const char *ns,
                      const char *name)
{
    struct nxl_xfer_owner owner = {.ns = ns, .pod = "", .container = "", .pid = 1};
    struct nxl_err err = {0};

    memset(client, 0, sizeof(*client));
    client->rig = rig;
    client->engine = engine;
    client->ends = nxl_new0_array(ENDS_MAX, sizeof(*client->ends));
    client->seen = nxl_new0_array(SEEN_MAX, sizeof(*client->seen));
    (void)nxl_copy_text(client->name, sizeof(client->name), name);
    (void)nxl_copy_text(client->ns, sizeof(client->ns), ns);
    client->fd = memfd_create("client", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(client->fd >= 0);
    assert_int_equal(ftruncate(client->fd, CLIENT_SIZE), 0);
    assert_int_equal(fcntl(client->fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    client->base = mmap(NULL, CLIENT_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, client->fd, 0);
    assert_ptr_not_equal(client->base, MAP_FAILED);
    assert_int_equal(nxl_xfer_session_open(engine->xfer, &owner, &front_ops, client,
                                           &client->number, &client->session, &err),
                     NXL_OK);
    if (nxl_xfer_peer_open(client->session, name, &client->peer, client->incarnation,
                           sizeof(client->incarnation), &err) != NXL_OK)
        fail_msg("peer %s: %s", name, err.text);
}

void client_open(struct client *client, struct rig *rig, struct engine *engine, const char *ns,
                 const char *name)
{
    struct nxl_err err = {0};

    client_open_bare(client, rig, engine, ns, name);
    if (client_register(client, 0, CLIENT_SIZE, &client->region, &err) != NXL_OK)
        fail_msg("memory of %s: %s", name, err.text);
}

void client_gone(struct client *client)
{
    nxl_xfer_session_close(client->session, "its process is gone", nxl_now_ns());
    client->session = NULL; /* from here on every callback fails the test */
}

void client_close(struct client *client)
{
    if (client->base == NULL)
        return;
    if (client->session != NULL)
        client_gone(client);
    (void)munmap(client->base, CLIENT_SIZE);
    close(client->fd);
    free(client->ends);
    free(client->seen);
    memset(client, 0, sizeof(*client));
}

enum nxl_code client_register(struct client *client, uint64_t at, uint64_t len, uint64_t *ret_id,
                              struct nxl_err *err)
{
    struct nxl_xfer_region region = {.addr = CLIENT_ADDR + at, .len = len, .fd_offset = at};

    return nxl_xfer_register(client->session, client->peer, &region, 1, &client->fd, 1, ret_id,
                             err);
}

/* ---- posts ----------------------------------------------------------------------------------- */

struct nxl_xfer_post *client_prepare(struct client *client, uint32_t slot, enum nxl_op_kind op,
                                     uint32_t remote, uint64_t local_at, uint64_t remote_at,
                                     uint64_t len)
{
    client->local = (struct nxl_run){.addr = CLIENT_ADDR + local_at, .len = len, .count = 1};
    client->remote = (struct nxl_run){.addr = CLIENT_ADDR + remote_at, .len = len, .count = 1};
    client->post = (struct nxl_xfer_post){.slot = slot,
                                          .peer = client->peer,
                                          .op = (uint8_t)op,
                                          .remote = remote,
                                          .local_runs = &client->local,
                                          .remote_runs = &client->remote,
                                          .count = 1,
                                          .remote_count = 1};
    return &client->post;
}

uint32_t client_post(struct client *client)
{
    client->post.generation = ++client->generation;
    nxl_xfer_post(client->session, &client->post);
    return client->generation;
}

/* ---- replies --------------------------------------------------------------------------------- */

void reply_take(void *arg, enum nxl_code code, const struct nxl_xfer_remote_info *info,
                const struct nxl_err *err)
{
    struct reply *reply = arg;

    assert_int_equal(reply->count++, 0);
    reply->code = code;
    if (code != NXL_OK) {
        assert_null(info);
        assert_true(err->text[0] != '\0'); /* every refusal has a sentence (C-015) */
        (void)nxl_copy_text(reply->text, sizeof(reply->text), err->text);
    }
    if (info == NULL)
        return;
    reply->remote = info->remote;
    reply->life = info->life;
    reply->suspect = info->suspect;
    reply->same_agent = info->same_agent;
    reply->regions = info->regions;
    (void)nxl_copy_text(reply->name, sizeof(reply->name), info->name);
    (void)nxl_copy_text(reply->incarnation, sizeof(reply->incarnation), info->incarnation);
}

void client_blob(struct client *client, uint32_t flags, const uint64_t *ids, uint32_t count,
                 struct nxl_bytes *to)
{
    struct nxl_err err = {0};

    if (nxl_xfer_metadata(client->session, client->peer, flags, ids, count, to, &err) != NXL_OK)
        fail_msg("metadata of %s: %s", client->name, err.text);
}

void client_load_blob(struct client *client, struct nxl_view blob, struct reply *reply)
{
    *reply = (struct reply){0};
    nxl_xfer_load(client->session, client->peer, blob, 10 * NXL_SEC, reply_take, reply);
    WAIT(client->rig, reply->count == 1);
}

uint32_t client_load(struct client *client, struct client *other)
{
    struct nxl_bytes blob = {0};
    struct reply reply;

    client_blob(other, 0, NULL, 0, &blob);
    client_load_blob(client, (struct nxl_view){blob.data, blob.size}, &reply);
    nxl_bytes_fini(&blob);
    if (reply.code != NXL_OK)
        fail_msg("%s loads %s: %s", client->name, other->name, reply.text);
    assert_string_equal(reply.incarnation, other->incarnation);
    return reply.remote;
}

void gone_take(void *arg, const uint8_t *done, uint32_t count, enum nxl_code code,
               const struct nxl_err *err)
{
    struct gone *gone = arg;

    assert_int_equal(gone->count++, 0);
    gone->code = code;
    gone->regions = count;
    for (uint32_t i = 0; i < count; i++)
        gone->done += done[i] == 1;
    if (code != NXL_OK)
        (void)nxl_copy_text(gone->text, sizeof(gone->text), err->text);
}

/* ---- the usual bed --------------------------------------------------------------------------- */

struct bed *bed_new(const char *backends, ...)
{
    struct bed *bed = nxl_new0(sizeof(*bed));
    va_list settings;

    va_start(settings, backends);
    rig_open_list(&bed->rig, backends, settings);
    va_end(settings);
    bed->engine = &bed->rig.engines[0];
    client_open(&bed->from, &bed->rig, bed->engine, "ns", "from");
    client_open(&bed->to, &bed->rig, bed->engine, "ns", "to");
    bed->remote = client_load(&bed->from, &bed->to);
    if (strstr(backends, "hand") != NULL)
        bed->hand = hand_of(&bed->rig, bed->engine);
    return bed;
}

void bed_free(struct bed *bed)
{
    client_close(&bed->from);
    client_close(&bed->to);
    rig_close(&bed->rig);
    free(bed);
}

int bed_teardown(void **state)
{
    bed_free(*state);
    return 0;
}

uint32_t bed_write(struct bed *bed, uint32_t slot)
{
    (void)client_prepare(&bed->from, slot, NXL_WRITE, bed->remote, 0, 4096, 4096);
    return client_post(&bed->from);
}
