/* ring.c - geometry and the conversations of the shared memory file: submissions, parking, notices.
 * Client: under its ring lock. Agent: loop thread. The words that decide whether somebody may sleep
 * are read and written with sequential consistency, so that one of the two sides sees the other. */
#include "wire/ring.h"

#include <string.h>

#define PAGE 4096u
#define ARENA_MAX (1ull << 40)
#define NOTICE_MAX (1ull << 32)

static uint64_t page_up(uint64_t value)
{
    return (value + PAGE - 1) & ~(uint64_t)(PAGE - 1);
}

struct layout {
    uint64_t entries, slots, notices, arena, size;
};

static struct layout layout_of(uint32_t entry_count, uint32_t slots, uint64_t notice_bytes,
                               uint64_t arena_bytes)
{
    struct layout at;

    at.entries = page_up(sizeof(struct nxl_ring_header));
    at.slots = page_up(at.entries + (uint64_t)entry_count * sizeof(struct nxl_ring_entry));
    at.notices = page_up(at.slots + (uint64_t)slots * sizeof(struct nxl_ring_slot));
    at.arena = page_up(at.notices + notice_bytes);
    at.size = at.arena + arena_bytes;
    return at;
}

uint64_t nxl_ring_size(struct nxl_ring_geometry *geometry)
{
    uint64_t notice = PAGE;

    if (geometry->slots == 0 || geometry->slots > NXL_RING_SLOTS_MAX)
        return 0;
    if (geometry->arena_bytes == 0 || geometry->arena_bytes > ARENA_MAX)
        return 0;
    if (geometry->notice_bytes > NOTICE_MAX)
        return 0;
    while (notice < geometry->notice_bytes)
        notice *= 2;
    geometry->notice_bytes = notice;
    geometry->arena_bytes = page_up(geometry->arena_bytes);
    return layout_of(NXL_RING_ENTRIES, geometry->slots, notice, geometry->arena_bytes).size;
}

static void ring_point(struct nxl_ring *ring, unsigned char *base, uint32_t entry_count,
                       uint32_t slot_count, uint64_t notice_bytes, uint64_t arena_bytes)
{
    struct layout at = layout_of(entry_count, slot_count, notice_bytes, arena_bytes);

    memset(ring, 0, sizeof(*ring));
    ring->base = base;
    ring->header = (struct nxl_ring_header *)(void *)base;
    ring->entries = (struct nxl_ring_entry *)(void *)(base + at.entries);
    ring->slots = (struct nxl_ring_slot *)(void *)(base + at.slots);
    ring->notices = base + at.notices;
    ring->arena = base + at.arena;
    ring->size = at.size;
    ring->notice_bytes = notice_bytes;
    ring->arena_bytes = arena_bytes;
    ring->entry_count = entry_count;
    ring->slot_count = slot_count;
}

void nxl_ring_create(struct nxl_ring *ring, void *base, const struct nxl_ring_geometry *geometry)
{
    struct nxl_ring_header *header = base;
    struct layout at =
        layout_of(NXL_RING_ENTRIES, geometry->slots, geometry->notice_bytes, geometry->arena_bytes);

    ring_point(ring, base, NXL_RING_ENTRIES, geometry->slots, geometry->notice_bytes,
               geometry->arena_bytes);
    header->magic = NXL_RING_MAGIC;
    header->layout = NXL_RING_LAYOUT;
    header->size = at.size;
    header->entries_offset = at.entries;
    header->slots_offset = at.slots;
    header->notices_offset = at.notices;
    header->arena_offset = at.arena;
    header->entry_count = NXL_RING_ENTRIES;
    header->slot_count = geometry->slots;
    header->notice_bytes = geometry->notice_bytes;
    header->arena_bytes = geometry->arena_bytes;
}

static enum nxl_code attach_refused(struct nxl_err *err, const char *field, uint64_t value)
{
    return nxl_err_set(err, NXL_MISMATCH, 0,
                       "ring header: %s is %llu, which this library cannot work with", field,
                       (unsigned long long)value);
}

static int power_of_two(uint64_t value)
{
    return value != 0 && (value & (value - 1)) == 0;
}

enum nxl_code nxl_ring_attach(struct nxl_ring *ring, void *base, uint64_t size, struct nxl_err *err)
{
    const struct nxl_ring_header *header = base;
    struct layout at;

    if (size < page_up(sizeof(*header)))
        return nxl_err_set(err, NXL_MISMATCH, 0, "ring file has %llu bytes, less than its header",
                           (unsigned long long)size);
    if (header->magic != NXL_RING_MAGIC)
        return attach_refused(err, "magic", header->magic);
    if (header->layout != NXL_RING_LAYOUT)
        return attach_refused(err, "layout version", header->layout);
    if (!power_of_two(header->entry_count) || header->entry_count > (1u << 20))
        return attach_refused(err, "entry_count", header->entry_count);
    if (header->slot_count == 0 || header->slot_count > NXL_RING_SLOTS_MAX)
        return attach_refused(err, "slot_count", header->slot_count);
    if (!power_of_two(header->notice_bytes) || header->notice_bytes < PAGE ||
        header->notice_bytes > NOTICE_MAX)
        return attach_refused(err, "notice_bytes", header->notice_bytes);
    if (header->arena_bytes == 0 || header->arena_bytes > ARENA_MAX ||
        header->arena_bytes % PAGE != 0)
        return attach_refused(err, "arena_bytes", header->arena_bytes);
    at = layout_of(header->entry_count, header->slot_count, header->notice_bytes,
                   header->arena_bytes);
    if (header->entries_offset != at.entries)
        return attach_refused(err, "entries_offset", header->entries_offset);
    if (header->slots_offset != at.slots)
        return attach_refused(err, "slots_offset", header->slots_offset);
    if (header->notices_offset != at.notices)
        return attach_refused(err, "notices_offset", header->notices_offset);
    if (header->arena_offset != at.arena)
        return attach_refused(err, "arena_offset", header->arena_offset);
    if (header->size != at.size || size < at.size)
        return attach_refused(err, "size", header->size);
    ring_point(ring, base, header->entry_count, header->slot_count, header->notice_bytes,
               header->arena_bytes);
    ring->submit_pos = atomic_load(&ring->header->submit_head);
    ring->notice_pos = atomic_load(&ring->header->notice_tail);
    return NXL_OK;
}

/* ---- submissions ------------------------------------------------------------------------ */

enum nxl_code nxl_ring_submit(struct nxl_ring *ring, const struct nxl_ring_entry *entry)
{
    uint64_t tail = atomic_load_explicit(&ring->header->submit_tail, memory_order_acquire);

    if (ring->submit_pos - tail >= ring->entry_count)
        return NXL_AGAIN;
    ring->entries[ring->submit_pos & (ring->entry_count - 1)] = *entry;
    ring->submit_pos++;
    /* Sequentially consistent: pairs with the agent's "parked = 1, then look at head". */
    atomic_store(&ring->header->submit_head, ring->submit_pos);
    return NXL_OK;
}

int nxl_ring_agent_parked(struct nxl_ring *ring)
{
    if (atomic_load(&ring->header->agent_parked) == 0)
        return 0;
    return atomic_exchange(&ring->header->agent_parked, 0) != 0;
}

/* The tail is published when the agent comes back for more, not when it takes: what an entry points
 * to in the arena stays the agent's to read until then. */
enum nxl_code nxl_ring_take(struct nxl_ring *ring, struct nxl_ring_entry *ret)
{
    uint64_t head = atomic_load_explicit(&ring->header->submit_head, memory_order_acquire);

    atomic_store_explicit(&ring->header->submit_tail, ring->submit_pos, memory_order_release);
    if (head == ring->submit_pos)
        return NXL_AGAIN;
    if (head - ring->submit_pos > ring->entry_count)
        return NXL_MISMATCH;
    memcpy(ret, &ring->entries[ring->submit_pos & (ring->entry_count - 1)], sizeof(*ret));
    ring->submit_pos++;
    return NXL_OK;
}

enum nxl_code nxl_ring_park(struct nxl_ring *ring)
{
    atomic_store_explicit(&ring->header->submit_tail, ring->submit_pos, memory_order_release);
    atomic_store(&ring->header->agent_parked, 1);
    if (atomic_load(&ring->header->submit_head) == ring->submit_pos)
        return NXL_OK;
    nxl_ring_unpark(ring);
    return NXL_AGAIN;
}

void nxl_ring_unpark(struct nxl_ring *ring)
{
    atomic_store(&ring->header->agent_parked, 0);
}

const void *nxl_ring_arena(const struct nxl_ring *ring, uint64_t offset, uint64_t size)
{
    if (offset > ring->arena_bytes || size > ring->arena_bytes - offset)
        return NULL;
    return ring->arena + offset;
}

/* ---- notices ---------------------------------------------------------------------------- */

static uint64_t record_size(const struct nxl_ring_event *event)
{
    uint64_t size = sizeof(struct nxl_ring_notice);

    size += event->name.size;
    size += event->incarnation.size;
    size += event->payload.size;
    return (size + 7) & ~7ull;
}

static unsigned char *append(unsigned char *to, struct nxl_view view)
{
    if (view.size > 0)
        memcpy(to, view.data, view.size);
    return to + view.size;
}

static void record_write(unsigned char *to, const struct nxl_ring_event *event, uint64_t size)
{
    struct nxl_ring_notice head = {
        .size = (uint32_t)size,
        .kind = (uint16_t)event->kind,
        .peer = event->peer,
        .code = event->code,
        .transfer = event->transfer,
        .at_ns = event->at_ns,
        .name_size = (uint16_t)event->name.size,
        .incarnation_size = (uint16_t)event->incarnation.size,
        .payload_size = (uint32_t)event->payload.size,
    };

    memcpy(to, &head, sizeof(head));
    to = append(to + sizeof(head), event->name);
    to = append(to, event->incarnation);
    append(to, event->payload);
}

/* Eight bytes are the least a gap can have: enough for size and kind of a padding record. */
static void padding_write(unsigned char *to, uint64_t size)
{
    uint32_t words[2] = {(uint32_t)size, 0};

    memcpy(to, words, sizeof(words));
}

enum nxl_code nxl_ring_notice_put(struct nxl_ring *ring, const struct nxl_ring_event *event)
{
    uint64_t tail = atomic_load_explicit(&ring->header->notice_tail, memory_order_acquire);
    uint64_t at = ring->notice_pos & (ring->notice_bytes - 1);
    uint64_t gap = 0, size, used;

    if (event->kind == 0 || event->kind > UINT16_MAX || event->name.size > NXL_NAME_MAX ||
        event->incarnation.size > NXL_INCARNATION_MAX || event->payload.size > ring->notice_bytes)
        return NXL_LIMIT;
    size = record_size(event);
    /* A record never wraps, so at an unlucky place one larger than half the ring never fits. */
    if (size > ring->notice_bytes / 2)
        return NXL_LIMIT;
    used = ring->notice_pos - tail;
    if (used > ring->notice_bytes)
        return NXL_AGAIN; /* the client scribbled over its tail: it gets no more notices */
    if (ring->notice_bytes - at < size)
        gap = ring->notice_bytes - at;
    if (gap + size > ring->notice_bytes - used)
        return NXL_AGAIN;
    if (gap > 0) {
        padding_write(ring->notices + at, gap);
        at = 0;
    }
    record_write(ring->notices + at, event, size);
    ring->notice_pos += gap + size;
    /* Sequentially consistent: pairs with the client's "parked = 1, then look at head". */
    atomic_store(&ring->header->notice_head, ring->notice_pos);
    return NXL_OK;
}

/* Reads the record at the client's position; 0: bounds are wrong. */
static int record_read(const struct nxl_ring *ring, uint64_t left, struct nxl_ring_notice *ret)
{
    uint64_t at = ring->notice_pos & (ring->notice_bytes - 1);
    uint64_t room = ring->notice_bytes - at;
    uint32_t words[2];

    memcpy(words, ring->notices + at, sizeof(words));
    if (words[0] < sizeof(words) || words[0] % 8 != 0 || words[0] > room || words[0] > left)
        return 0;
    memset(ret, 0, sizeof(*ret));
    if ((words[1] & 0xffffu) == 0) {
        ret->size = words[0];
        return words[0] == room;
    }
    if (words[0] < sizeof(*ret))
        return 0;
    memcpy(ret, ring->notices + at, sizeof(*ret));
    return ret->size == words[0] && ret->name_size <= NXL_NAME_MAX &&
           ret->incarnation_size <= NXL_INCARNATION_MAX &&
           (uint64_t)ret->name_size + ret->incarnation_size + ret->payload_size <=
               ret->size - sizeof(*ret);
}

static void notice_skip(struct nxl_ring *ring, uint64_t size)
{
    ring->notice_pos += size;
    atomic_store_explicit(&ring->header->notice_tail, ring->notice_pos, memory_order_release);
}

enum nxl_code nxl_ring_notice_peek(struct nxl_ring *ring, struct nxl_ring_event *ret)
{
    uint64_t head = atomic_load_explicit(&ring->header->notice_head, memory_order_acquire);
    struct nxl_ring_notice record;
    const unsigned char *data;

    for (int tries = 0; tries < 2; tries++) { /* at most one padding record, then a real one */
        if (head == ring->notice_pos)
            return NXL_AGAIN;
        if (head - ring->notice_pos > ring->notice_bytes ||
            !record_read(ring, head - ring->notice_pos, &record)) {
            /* Nothing after a broken record can be trusted; what comes later may be. */
            notice_skip(ring, head - ring->notice_pos);
            return NXL_AGAIN;
        }
        if (record.kind != 0)
            break;
        notice_skip(ring, record.size);
        record.size = 0;
    }
    if (record.size == 0)
        return NXL_AGAIN;
    data = ring->notices + (ring->notice_pos & (ring->notice_bytes - 1)) + sizeof(record);
    ret->kind = record.kind;
    ret->peer = record.peer;
    ret->code = record.code;
    ret->transfer = record.transfer;
    ret->at_ns = record.at_ns;
    ret->name = (struct nxl_view){data, record.name_size};
    data += record.name_size;
    ret->incarnation = (struct nxl_view){data, record.incarnation_size};
    data += record.incarnation_size;
    ret->payload = (struct nxl_view){data, record.payload_size};
    return NXL_OK;
}

void nxl_ring_notice_done(struct nxl_ring *ring)
{
    uint64_t head = atomic_load_explicit(&ring->header->notice_head, memory_order_acquire);
    struct nxl_ring_notice record;

    if (head != ring->notice_pos && record_read(ring, head - ring->notice_pos, &record))
        notice_skip(ring, record.size);
}

int nxl_ring_notice_pending(const struct nxl_ring *ring)
{
    /* Both words are shared ones, so that any thread may look while another takes records. */
    return atomic_load_explicit(&ring->header->notice_head, memory_order_acquire) !=
           atomic_load_explicit(&ring->header->notice_tail, memory_order_relaxed);
}

int nxl_ring_client_parked(struct nxl_ring *ring)
{
    if (atomic_load(&ring->header->client_parked) == 0)
        return 0;
    return atomic_exchange(&ring->header->client_parked, 0) != 0;
}
