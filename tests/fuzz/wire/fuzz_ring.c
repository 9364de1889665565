/* A client that scribbles: the input overwrites parts of the shared memory between the agent's
 * steps. The agent must never read outside the file, and never take more than the ring holds. */
#include <stdlib.h>
#include <string.h>

#include "wire/ring.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void agent_step(struct nxl_ring *ring, unsigned what)
{
    struct nxl_ring_entry entry;
    struct nxl_ring_event event = {
        .kind = 1 + what % 7, .name = {"far", 3}, .payload = {"payload", what % 8}};

    for (unsigned i = 0; i < ring->entry_count + 2; i++) {
        const unsigned char *arena;

        if (nxl_ring_take(ring, &entry) != NXL_OK)
            break;
        if (i > ring->entry_count)
            abort();
        arena = nxl_ring_arena(ring, entry.arena_offset, (uint64_t)entry.count * 4);
        if (arena && entry.count > 0) {
            volatile unsigned char touch = arena[0];

            touch = arena[(uint64_t)entry.count * 4 - 1];
            (void)touch;
        }
        arena = nxl_ring_arena(ring, entry.notice_offset, entry.notice_size);
        event.payload = (struct nxl_view){arena, arena ? entry.notice_size : 0};
        (void)nxl_ring_notice_put(ring, &event);
    }
    if (nxl_ring_park(ring) == NXL_OK)
        nxl_ring_unpark(ring);
    (void)nxl_ring_client_parked(ring);
}

static void client_step(struct nxl_ring *ring)
{
    struct nxl_ring_event event;

    for (int i = 0; i < 600; i++) {
        volatile unsigned char touch;

        if (nxl_ring_notice_peek(ring, &event) != NXL_OK)
            break;
        for (size_t k = 0; k < event.payload.size; k++)
            touch = ((const unsigned char *)event.payload.data)[k];
        (void)touch;
        nxl_ring_notice_done(ring);
    }
}

/* Input: records of (u32 offset, u8 length, bytes), each written into the memory in turn. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct nxl_ring_geometry geometry = {.slots = 4, .arena_bytes = 4096, .notice_bytes = 4096};
    uint64_t bytes = nxl_ring_size(&geometry);
    unsigned char *base = aligned_alloc(4096, bytes);
    struct nxl_ring agent, client, other;
    struct nxl_err err;

    memset(base, 0, bytes);
    nxl_ring_create(&agent, base, &geometry);
    if (nxl_ring_attach(&client, base, bytes, &err) != NXL_OK)
        abort();
    while (size >= 5) {
        uint32_t at;
        size_t length = data[4];

        memcpy(&at, data, sizeof(at));
        data += 5;
        size -= 5;
        if (length > size)
            length = size;
        at %= (uint32_t)(bytes - 256);
        memcpy(base + at, data, length);
        data += length;
        size -= length;
        agent_step(&agent, at);
        client_step(&client);
    }
    /* And a header that was scribbled over, seen by a client. */
    if (nxl_ring_attach(&other, base, bytes, &err) == NXL_OK)
        client_step(&other);
    free(base);
    return 0;
}
