/* ring.h - the shared memory file of one session: layout and the four one-way conversations in it.
 * The agent creates it (sealed memfd), both sides map it. Little-endian, 64-bit hosts only.
 *
 * | area            | writer | content                                                   |
 * | header          | both   | geometry, parked words, ring positions                     |
 * | submission ring | client | struct nxl_ring_entry: post, cancel, release, notify       |
 * | transfer slots  | agent  | struct nxl_ring_slot, one cache line each                  |
 * | notice ring     | agent  | struct nxl_ring_notice records and PEER_DOWN events        |
 * | arena           | client | indices, runs, payloads that entries point to              |
 *
 * The agent trusts nothing here: it keeps its own copy of geometry and of its own positions, copies
 * each entry out once, and validates the copy. A client that scribbles hurts only itself. */
#ifndef NXL_WIRE_RING_H
#define NXL_WIRE_RING_H

#include <stdatomic.h>

#include <nxl/err.h>
#include <nxl/types.h>

#define NXL_RING_MAGIC 0x314c584eu /* "NXL1" */
#define NXL_RING_LAYOUT 2u
#define NXL_RING_ENTRIES 1024u /* power of two */
#define NXL_RING_SLOTS_MAX 65536u
#define NXL_RING_DEVICES 32u
#define NXL_RING_WITNESS_SIZE 64u
#define NXL_RING_WITNESS_TID 0x3fffffffu /* FUTEX_TID_MASK */

struct nxl_ring_header {
    uint32_t magic, layout;
    uint64_t size; /* of the whole file */
    uint64_t entries_offset, slots_offset, notices_offset, arena_offset;
    uint32_t entry_count, slot_count; /* entry_count is a power of two */
    uint64_t notice_bytes;            /* power of two */
    uint64_t arena_bytes;
    char devices[NXL_RING_DEVICES][32]; /* agent; index 0 is "" */

    _Alignas(64) _Atomic uint64_t submit_head; /* client: entries ever written */
    _Atomic uint32_t client_cpu; /* client: 1 + core of the last submission; a hint, 0: unknown */
    _Alignas(64) _Atomic uint64_t submit_tail;   /* agent: entries ever taken */
    _Alignas(64) _Atomic uint64_t notice_head;   /* agent: bytes ever written */
    _Alignas(64) _Atomic uint64_t notice_tail;   /* client: bytes ever taken */
    _Alignas(64) _Atomic uint32_t agent_parked;  /* agent 1: ring the doorbell; client may set 0 */
    _Alignas(64) _Atomic uint32_t client_parked; /* client 1: wake me; agent sets 0 */
    _Alignas(64) _Atomic uint64_t ended; /* agent: transfers that ever ended or became quiet */
    _Atomic uint32_t gone;               /* agent: 1 when the session is over (agent left) */

    /* Client: a robust lock that a thread holds for as long as its process lives. The kernel marks
     * it when that thread dies, before it takes the process's memory down. */
    _Alignas(64) unsigned char witness[NXL_RING_WITNESS_SIZE];
    _Atomic uint32_t witness_word; /* 1 + index of the u32 in witness[] that holds the thread's id;
                                      0: there is none */
};

enum nxl_ring_kind { NXL_RING_POST = 1, NXL_RING_CANCEL, NXL_RING_RELEASE, NXL_RING_NOTIFY };

#define NXL_RING_WRITE (1u << 0)      /* op is WRITE */
#define NXL_RING_NOTICE (1u << 1)     /* a notice goes with it (maybe empty) */
#define NXL_RING_RUNS (1u << 2)       /* arena holds runs: local then remote; lists are 0 */
#define NXL_RING_LOCAL_ALL (1u << 3)  /* local index k is k; no array */
#define NXL_RING_REMOTE_ALL (1u << 4) /* remote index k is k; no array */
#define NXL_RING_NO_MERGE (1u << 5)
#define NXL_RING_REUSE (1u << 6)  /* same pieces as the last post of this slot: keep the plan */
#define NXL_RING_VERIFY (1u << 7) /* compare digests of both sides before it ends */

struct nxl_ring_entry {
    uint8_t kind;     /* enum nxl_ring_kind */
    uint8_t flags;    /* NXL_RING_* */
    uint8_t min_path; /* enum nxl_path_class */
    uint8_t backend;  /* 0: any; else 1 + index into WELCOME's backend list */
    uint32_t slot;
    uint32_t generation; /* counts the posts of a slot; CANCEL names the post it means */
    uint32_t peer;       /* our peer */
    uint32_t local_list, remote_list; /* ids from LIST */
    uint32_t remote;                  /* id from LOAD/FETCH; RUNS and NOTIFY */
    uint32_t count;                   /* pairs; with RUNS local runs */
    uint32_t remote_count;            /* with RUNS */
    uint32_t notice_size;
    uint64_t
        arena_offset; /* u32 local[count], u32 remote[count], each left out by *_ALL; or runs */
    uint64_t notice_offset;
    uint64_t timeout_ns;
};
_Static_assert(sizeof(struct nxl_ring_entry) == 64, "one cache line");

enum nxl_ring_state {
    NXL_RING_IDLE = 0,
    NXL_RING_RUNNING,
    NXL_RING_DONE,
    NXL_RING_FAILED,
    NXL_RING_CANCELLED,
};
#define NXL_RING_STATE_MASK 0x7fu
#define NXL_RING_QUIET 0x80u /* beside the state: the buffers are the client's again */

struct nxl_ring_slot {
    _Atomic uint64_t word; /* generation << 8 | NXL_RING_QUIET? | state; stored last, release */
    int32_t code;
    uint8_t backend; /* as in the entry: 1 + index into WELCOME's list; 0: none yet */
    uint8_t path, protocol, device;
    uint64_t bytes, id, started_ns, ended_ns;
    uint32_t descriptors, pieces;
    uint64_t reserved;
};
_Static_assert(sizeof(struct nxl_ring_slot) == 64, "one cache line");

/* Head of a record in the notice ring; name, incarnation and payload follow, padded to 8 bytes. */
struct nxl_ring_notice {
    uint32_t size; /* of the whole record, multiple of 8 */
    uint16_t kind; /* enum nxl_event_kind; 0: padding up to the end of the ring */
    uint16_t reserved;
    uint32_t peer; /* our peer that it is for */
    int32_t code;
    uint64_t transfer;
    uint64_t at_ns;
    uint16_t name_size, incarnation_size; /* without NUL */
    uint32_t payload_size;
};
_Static_assert(sizeof(struct nxl_ring_notice) == 40, "eight-byte multiple");

struct nxl_ring_geometry {
    uint32_t slots;        /* 1..NXL_RING_SLOTS_MAX */
    uint64_t arena_bytes;  /* rounded up to a page */
    uint64_t notice_bytes; /* rounded up to a power of two, >= 4 KiB */
};

/* One side's view. base is the mapping; the copies of geometry are private to the side. */
struct nxl_ring {
    unsigned char *base;
    struct nxl_ring_header *header;
    struct nxl_ring_entry *entries;
    struct nxl_ring_slot *slots;
    unsigned char *notices, *arena;
    uint64_t size, notice_bytes, arena_bytes;
    uint32_t entry_count, slot_count;
    uint64_t submit_pos; /* own position: head for the client, tail for the agent */
    uint64_t notice_pos; /* own position: head for the agent, tail for the client */
};

/* Bytes of the file for a geometry; 0 if the geometry is out of bounds. Normalises *geometry. */
uint64_t nxl_ring_size(struct nxl_ring_geometry *geometry);
/* Agent: writes a fresh header into zeroed memory of nxl_ring_size() bytes. Borrows base. */
void nxl_ring_create(struct nxl_ring *ring, void *base, const struct nxl_ring_geometry *geometry);
/* Client: checks the header it was given (offsets, order, bounds). NXL_MISMATCH with a sentence. */
NXL_MUST_USE enum nxl_code nxl_ring_attach(struct nxl_ring *ring, void *base, uint64_t size,
                                           struct nxl_err *err);

/* Client, one producer at a time. NXL_AGAIN: full. After NXL_OK, ring the doorbell if
 * nxl_ring_agent_parked(). */
NXL_MUST_USE enum nxl_code nxl_ring_submit(struct nxl_ring *ring,
                                           const struct nxl_ring_entry *entry);
int nxl_ring_agent_parked(struct nxl_ring *ring); /* takes the word: 1 to exactly one caller */
/* Agent. Copies the next entry out. NXL_AGAIN: none. NXL_MISMATCH: the client's head is nonsense
 * (further ahead than the ring is long): the session must end. An entry counts as taken (its notice
 * may be overwritten) when the agent asks for the next one or parks: copy before that. */
NXL_MUST_USE enum nxl_code nxl_ring_take(struct nxl_ring *ring, struct nxl_ring_entry *ret);
/* Agent: about to sleep. NXL_AGAIN: something came; do not sleep. */
enum nxl_code nxl_ring_park(struct nxl_ring *ring);
void nxl_ring_unpark(struct nxl_ring *ring);
/* Agent: address of size bytes at offset of the arena, NULL if they do not lie inside. The bytes
 * may change under the reader: copy, then validate the copy. */
const void *nxl_ring_arena(const struct nxl_ring *ring, uint64_t offset, uint64_t size);

/* Agent. NXL_AGAIN: no room now. NXL_LIMIT: can never fit. at_ns, name... are copied. */
struct nxl_ring_event {
    uint32_t kind, peer;
    int32_t code;
    uint64_t transfer, at_ns;
    struct nxl_view name, incarnation, payload;
};
NXL_MUST_USE enum nxl_code nxl_ring_notice_put(struct nxl_ring *ring,
                                               const struct nxl_ring_event *event);
/* Client. Lends *ret (pointing into the ring) until nxl_ring_notice_done(). NXL_AGAIN: none.
 * Client trusts the agent but checks bounds all the same. */
NXL_MUST_USE enum nxl_code nxl_ring_notice_peek(struct nxl_ring *ring, struct nxl_ring_event *ret);
void nxl_ring_notice_done(struct nxl_ring *ring);
int nxl_ring_notice_pending(const struct nxl_ring *ring); /* client */

/* Agent: 1 if the client is parked and must be woken now; clears the word. Call it after a notice
 * was put, and after `ended` was raised with atomic_fetch_add() behind the store of a slot's word
 * (plain release stores alone could pass a client that parks at the same time). */
int nxl_ring_client_parked(struct nxl_ring *ring);

#endif
