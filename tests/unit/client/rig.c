/* rig.c - set-up shared by the tests of the client. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "rig.h"

static struct rig *rig_new(const struct nxl_client_options *options)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    struct nxl_client_options own = *options;

    rig->agent = fake_agent_start();
    own.size = sizeof(own);
    own.socket_path = fake_agent_path(rig->agent);
    own.reconnect = 1;
    assert_code(NXL_OK, rig, nxl_client_open(&own, &rig->client, &rig->err));
    return rig;
}

int rig_setup_session(void **state)
{
    struct nxl_client_options options = {
        .slots = 64, .arena_bytes = 1 << 20, .notice_bytes = 1 << 16};

    *state = rig_new(&options);
    return 0;
}

int rig_setup(void **state)
{
    rig_setup_session(state);
    rig_peer(*state);
    rig_lists(*state);
    return 0;
}

int rig_setup_small(void **state)
{
    struct nxl_client_options options = {.slots = 4, .arena_bytes = 65536, .notice_bytes = 4096};

    *state = rig_new(&options);
    rig_peer(*state);
    rig_lists(*state);
    return 0;
}

int rig_teardown(void **state)
{
    struct rig *rig = *state;

    nxl_client_close(rig->client);
    fake_agent_stop(rig->agent);
    free(rig);
    return 0;
}

void rig_peer(struct rig *rig)
{
    assert_code(NXL_OK, rig, nxl_peer_open(rig->client, "me", &rig->peer, &rig->err));
    assert_code(NXL_OK, rig, nxl_load(rig->peer, "far", 3, &rig->remote, &rig->err));
}

void rig_lists(struct rig *rig)
{
    struct nxl_run near = {
        .addr = 0x10000, .len = RIG_PAGE, .stride = RIG_PAGE, .count = RIG_BLOCKS};
    struct nxl_run far = {
        .addr = 0x90000, .len = RIG_PAGE, .stride = 2 * RIG_PAGE, .count = RIG_BLOCKS};

    assert_code(NXL_OK, rig,
                nxl_list_prepare(rig->peer, NULL, NXL_MEM_DRAM, &near, 1, &rig->local, &rig->err));
    assert_code(
        NXL_OK, rig,
        nxl_list_prepare(rig->peer, rig->remote, NXL_MEM_DRAM, &far, 1, &rig->far, &rig->err));
}

struct nxl_transfer *rig_transfer(struct rig *rig)
{
    struct nxl_transfer *transfer = NULL;

    assert_code(NXL_OK, rig,
                nxl_transfer_make(rig->peer, NXL_WRITE, rig->local, NULL, rig->far, NULL,
                                  RIG_BLOCKS, NULL, &transfer, &rig->err));
    return transfer;
}

struct nxl_ring_entry rig_take(struct rig *rig)
{
    struct nxl_ring_entry entry = {0};

    assert_int_equal(nxl_ring_take(fake_agent_ring(rig->agent), &entry), NXL_OK);
    return entry;
}

struct nxl_ring_entry rig_post(struct rig *rig, struct nxl_transfer *transfer)
{
    assert_code(NXL_OK, rig, nxl_transfer_post(transfer, &rig->err));
    return rig_take(rig);
}

void rig_end(struct rig *rig, struct nxl_ring_entry entry, unsigned state, enum nxl_code code)
{
    fake_agent_end(rig->agent, entry.slot, entry.generation, state, code);
}

void rig_event(struct rig *rig, uint32_t peer, uint32_t kind, const char *payload)
{
    struct nxl_ring_event event = {
        .kind = kind,
        .peer = peer,
        .at_ns = 5,
        .transfer = 17,
        .name = {"far", 3},
        .incarnation = {"far/1/0", 7},
        .payload = {payload, strlen(payload)},
    };

    fake_agent_event(rig->agent, &event);
}

uint32_t rig_peer_id(struct rig *rig)
{
    struct nxl_frame *frame = malloc(sizeof(*frame));
    uint32_t id;

    /* Every later frame of the peer names it. */
    fake_agent_last(rig->agent, NXL_FRAME_LOAD, frame);
    id = frame->peer;
    free(frame);
    return id;
}
