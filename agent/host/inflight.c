/* inflight.c - the operations in flight of one instance: a slot each, in chunks that never move, so
 * that any thread can look one up by its id without a lock. Loop thread unless said. */
#include "host/host_inner.h"

#include "base/assert.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>

static void chunk_add(struct nxl_instance *instance)
{
    struct host_slot *slots = nxl_new0_array(HOST_CHUNK_SLOTS, sizeof(*slots));

    for (uint32_t i = HOST_CHUNK_SLOTS; i > 0; i--) {
        struct host_slot *slot = &slots[i - 1];

        slot->loop.index = instance->loop.slots + i - 1;
        slot->ended = (struct host_node){NULL, instance, HOST_ENDED};
        slot->quiet = (struct host_node){NULL, instance, HOST_QUIET};
        slot->loop.next_free = instance->loop.free;
        instance->loop.free = slot;
    }
    atomic_store_explicit(&instance->shared.chunks[instance->loop.slots / HOST_CHUNK_SLOTS], slots,
                          memory_order_release);
    instance->loop.slots += HOST_CHUNK_SLOTS;
}

struct host_slot *host_slot_take(struct nxl_instance *instance)
{
    struct host_slot *slot;

    if (instance->loop.free == NULL && instance->loop.slots < HOST_CHUNK_SLOTS * HOST_CHUNKS_MAX)
        chunk_add(instance);
    slot = instance->loop.free;
    if (slot == NULL)
        return NULL;
    instance->loop.free = slot->loop.next_free;
    instance->loop.inflight++;
    slot->loop.state = SLOT_RUNNING;
    slot->loop.seen = 0;
    slot->loop.id = ++instance->hosts->serial << HOST_SLOT_BITS | slot->loop.index;
    atomic_store_explicit(&slot->word, (slot->loop.id >> HOST_SLOT_BITS) << 2,
                          memory_order_release);
    return slot;
}

void host_slot_settle(struct nxl_instance *instance, struct host_slot *slot)
{
    uint64_t word = (slot->loop.id >> HOST_SLOT_BITS) << 2 | slot->loop.seen;

    NXL_ASSERT(slot->loop.state != SLOT_FREE);
    slot->loop.state = SLOT_OVER;
    /* In one step: from here on a call for this operation finds nobody. */
    if (!atomic_compare_exchange_strong_explicit(&slot->word, &word, 0, memory_order_acq_rel,
                                                 memory_order_acquire))
        return;
    slot->loop.state = SLOT_FREE;
    slot->loop.next_free = instance->loop.free;
    instance->loop.free = slot;
    instance->loop.inflight--;
    host_inflight_show(instance);
}

struct host_slot *host_slot_of(struct nxl_instance *instance, uint64_t op_id)
{
    uint32_t index = (uint32_t)(op_id & ((1u << HOST_SLOT_BITS) - 1));
    struct host_slot *slots = atomic_load_explicit(
        &instance->shared.chunks[index / HOST_CHUNK_SLOTS], memory_order_acquire);

    return slots != NULL ? &slots[index % HOST_CHUNK_SLOTS] : NULL;
}

void host_slots_abandon(struct nxl_instance *instance)
{
    for (uint32_t i = 0; i < instance->loop.slots && instance->loop.inflight > 0; i++) {
        struct host_slot *slot = host_slot_of(instance, i);
        enum slot_state state = slot->loop.state;
        struct nxl_outcome outcome = {
            .size = sizeof(outcome), .code = NXL_BACKEND, .op_id = slot->loop.id, .quiesced = 1};

        if (state == SLOT_FREE)
            continue;
        host_broken(instance, slot->loop.id, "closed without ending an operation");
        snprintf(outcome.text, sizeof(outcome.text), "backend '%s' closed without ending it",
                 instance->name);
        if (state == SLOT_RUNNING)
            host_instance_ended(instance, slot, &outcome);
        host_slot_settle(instance, slot);
        if (state == SLOT_RUNNING)
            slot->loop.on_outcome(slot->loop.arg, &outcome);
        else if (state == SLOT_WAITING && slot->loop.on_quiesced != NULL)
            slot->loop.on_quiesced(slot->loop.arg, outcome.op_id);
    }
}

void host_slots_fini(struct nxl_instance *instance)
{
    for (uint32_t i = 0; i < HOST_CHUNKS_MAX; i++)
        free(atomic_load_explicit(&instance->shared.chunks[i], memory_order_relaxed));
}
