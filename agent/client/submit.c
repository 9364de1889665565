/* submit.c - the client's side of the submission ring: entries, slots, blocks of the arena.
 * Under submit.lock, which makes the session the ring's only producer. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/client.h"

#define FULL_WAIT_NS 200000000ull

static void doorbell(struct nxl_session *session)
{
    uint64_t one = 1;

    if (nxl_ring_agent_parked(&session->ring))
        (void)!write(session->doorbell, &one,
                     sizeof(one)); /* full counter: it is ringing already */
}

static uint64_t taken(struct nxl_session *session)
{
    return atomic_load_explicit(&session->ring.header->submit_tail, memory_order_acquire);
}

/* Gives back blocks whose entries the agent has taken. */
static void later_reclaim(struct nxl_session *session)
{
    uint64_t tail = taken(session);

    while (session->submit.later_count > 0) {
        struct nxl_later *later = &session->submit.later[session->submit.later_first];

        if (later->position > tail)
            return;
        nxl_arena_give(&session->submit.arena, later->offset);
        session->submit.later_first++;
        session->submit.later_count--;
    }
    session->submit.later_first = 0;
}

enum nxl_code nxl_submit_entry(struct nxl_session *session, const struct nxl_ring_entry *entry,
                               struct nxl_err *err)
{
    uint64_t deadline_ns = 0;

    if (atomic_load_explicit(&session->gone, memory_order_acquire))
        return nxl_err_set(err, NXL_NO_AGENT, 0, "the agent went away");
    /* The agent does not spin on a core that we need. */
    atomic_store_explicit(&session->ring.header->client_cpu, (uint32_t)(sched_getcpu() + 1),
                          memory_order_relaxed);
    while (nxl_ring_submit(&session->ring, entry) != NXL_OK) {
        uint64_t now = nxl_client_now();

        if (deadline_ns == 0)
            deadline_ns = now + FULL_WAIT_NS;
        if (atomic_load_explicit(&session->gone, memory_order_acquire) || now >= deadline_ns)
            return nxl_err_set(err, NXL_LIMIT, 0,
                               "the submission ring holds %u entries that the agent does not take; "
                               "try again, and look at the agent if it stays so",
                               session->ring.entry_count);
        doorbell(session);
        sched_yield();
    }
    doorbell(session);
    return NXL_OK;
}

enum nxl_code nxl_submit_block(struct nxl_session *session, uint64_t size, uint64_t *ret,
                               struct nxl_err *err)
{
    struct nxl_arena *arena = &session->submit.arena;
    uint64_t deadline_ns = 0;

    if (session->submit.later_count > 0)
        later_reclaim(session);
    while (nxl_arena_take(arena, size, ret) != NXL_OK) {
        uint64_t now = nxl_client_now();

        if (deadline_ns == 0)
            deadline_ns = now + FULL_WAIT_NS;
        if (session->submit.later_count == 0 || now >= deadline_ns ||
            atomic_load_explicit(&session->gone, memory_order_acquire))
            return nxl_err_set(err, NXL_LIMIT, 0,
                               "the session's arena has no %llu bytes left (%llu of %llu in use): "
                               "raise nxl_client_options.arena_bytes, or release transfers",
                               (unsigned long long)size, (unsigned long long)arena->used,
                               (unsigned long long)arena->size);
        doorbell(session);
        sched_yield();
        later_reclaim(session);
    }
    return NXL_OK;
}

static int later_room_make(struct nxl_session *session)
{
    size_t room = session->submit.later_room ? session->submit.later_room * 2 : 256;
    struct nxl_later *later = session->submit.later;

    if (session->submit.later_first > session->submit.later_room / 2) {
        memmove(later, later + session->submit.later_first,
                session->submit.later_count * sizeof(*later));
        session->submit.later_first = 0;
        return 1;
    }
    later = realloc(later, room * sizeof(*later));
    if (!later)
        return 0;
    session->submit.later = later;
    session->submit.later_room = room;
    return 1;
}

void nxl_submit_block_later(struct nxl_session *session, uint64_t offset, uint64_t position)
{
    if (atomic_load_explicit(&session->gone, memory_order_acquire))
        return; /* the arena ends with its session */
    if (session->submit.later_count > 0)
        later_reclaim(session);
    if (session->submit.later_count == 0 && taken(session) >= position) {
        nxl_arena_give(&session->submit.arena, offset);
        return;
    }
    if (session->submit.later_first + session->submit.later_count == session->submit.later_room &&
        !later_room_make(session))
        return; /* the block is lost until the session ends, which is better than too early */
    session->submit.later[session->submit.later_first + session->submit.later_count++] =
        (struct nxl_later){position, offset};
}

enum nxl_code nxl_submit_slot(struct nxl_session *session, uint32_t *ret, struct nxl_err *err)
{
    if (session->submit.free_count == 0)
        return nxl_err_set(err, NXL_LIMIT, 0,
                           "all %u transfers of this session exist: release some, or raise "
                           "nxl_client_options.slots",
                           session->ring.slot_count);
    *ret = session->submit.free_slots[--session->submit.free_count];
    return NXL_OK;
}

/* ---- lists that nobody needs any more --------------------------------------------------- */

void nxl_submit_list_dead(struct nxl_session *session, uint32_t peer, uint32_t list)
{
    pthread_mutex_lock(&session->submit.lock);
    if (session->submit.dead_count == session->submit.dead_room) {
        size_t room = session->submit.dead_room ? session->submit.dead_room * 2 : 64;
        uint32_t *lists = realloc(session->submit.dead_lists, room * sizeof(*lists));
        uint32_t *peers;

        if (lists)
            session->submit.dead_lists = lists;
        peers = lists ? realloc(session->submit.dead_peers, room * sizeof(*peers)) : NULL;
        if (!peers) { /* the agent keeps the list until the session ends */
            pthread_mutex_unlock(&session->submit.lock);
            return;
        }
        session->submit.dead_peers = peers;
        session->submit.dead_room = room;
    }
    session->submit.dead_lists[session->submit.dead_count] = list;
    session->submit.dead_peers[session->submit.dead_count++] = peer;
    pthread_mutex_unlock(&session->submit.lock);
}

static int dead_list_take(struct nxl_session *session, uint32_t *ret_peer, uint32_t *ret_list)
{
    int found = 0;

    pthread_mutex_lock(&session->submit.lock);
    if (session->submit.dead_count > 0) {
        session->submit.dead_count--;
        *ret_peer = session->submit.dead_peers[session->submit.dead_count];
        *ret_list = session->submit.dead_lists[session->submit.dead_count];
        found = 1;
    }
    pthread_mutex_unlock(&session->submit.lock);
    return found;
}

void nxl_submit_flush_lists(struct nxl_session *session, size_t at_least)
{
    struct nxl_call *call = NULL;
    uint32_t peer, list;
    size_t count;

    pthread_mutex_lock(&session->submit.lock);
    count = session->submit.dead_count;
    pthread_mutex_unlock(&session->submit.lock);
    if (count < at_least || count == 0)
        return;
    while (!atomic_load_explicit(&session->gone, memory_order_acquire) &&
           dead_list_take(session, &peer, &list)) {
        call = nxl_call_new(session, NXL_FRAME_LIST_FREE);
        if (!call)
            return;
        call->frame.peer = peer;
        call->frame.list = list;
        /* A refusal means that it is gone already, which is all that is wanted. */
        if (nxl_call_run(session, call, NULL, 0, nxl_client_timeout(session->client), NULL) ==
            NXL_TIMEOUT) {
            nxl_call_free(session, call);
            return;
        }
        nxl_call_free(session, call);
    }
}
