/* session_notices.c - what xfer tells one client: transfer slots, notices and events, the wake-up.
 * Loop thread, sometimes from inside a call into xfer: nothing here closes a session. */
#include "front/session.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define RETRY_FIRST_NS (1 * NXL_MS)
#define RETRY_LAST_NS (10 * NXL_MS)
/* What must not be lost (deaths) may exceed the queue's limit by as much again. */
#define MUST_FACTOR 2u

/* ---- wake-up ----------------------------------------------------------------------------- */

void front_wake_write(struct front_session *session)
{
    struct nxl_front *front = session->front;

    if (front_wake_signal(front->wake, session->wake))
        nxl_metric_add(front->metrics.wakeups, 1);
}

void front_kick(struct front_session *session)
{
    if (nxl_ring_client_parked(&session->ring))
        front_wake_write(session);
}

/* ---- slots ------------------------------------------------------------------------------- */

/* Index of a device name in the header's table; 0, which is "", when the table is full. */
static uint8_t device_index(struct front_session *session, const char *device)
{
    char name[sizeof(session->devices[0])];

    if (!device || device[0] == '\0')
        return 0;
    (void)nxl_copy_text(name, sizeof(name), device); /* a long one is cut, as the table says */
    for (uint32_t i = 1; i <= session->device_count; i++)
        if (strcmp(session->devices[i], name) == 0)
            return (uint8_t)i;
    if (session->device_count + 1 >= NXL_RING_DEVICES)
        return 0;
    session->device_count++;
    memcpy(session->devices[session->device_count], name, sizeof(name));
    memcpy(session->ring.header->devices[session->device_count], name, sizeof(name));
    return (uint8_t)session->device_count;
}

void front_slot_write(struct front_session *session, uint32_t index,
                      const struct nxl_xfer_slot *update)
{
    struct nxl_ring_slot *slot = &session->ring.slots[index];
    uint64_t word = (uint64_t)update->generation << 8 | update->state;

    NXL_ASSERT(index < session->ring.slot_count);
    if (update->quiet)
        word |= NXL_RING_QUIET;
    slot->code = update->code;
    slot->backend = update->backend;
    slot->path = update->path;
    slot->protocol = update->protocol;
    slot->device = device_index(session, update->device);
    slot->bytes = update->bytes;
    slot->id = update->id;
    slot->started_ns = update->started_ns;
    slot->ended_ns = update->ended_ns;
    slot->descriptors = update->descriptors;
    slot->pieces = update->pieces;
    atomic_store_explicit(&slot->word, word, memory_order_release);
    if (update->state < NXL_RING_DONE)
        return;
    /* Ended, or quiet after its end. The addition orders the word before the look at "parked". */
    atomic_fetch_add(&session->ring.header->ended, 1);
    front_kick(session);
}

static void front_on_slot(void *arg, uint32_t slot, const struct nxl_xfer_slot *update)
{
    front_slot_write(arg, slot, update);
}

/* ---- events ------------------------------------------------------------------------------ */

static struct nxl_view text_view(const char *text)
{
    return (struct nxl_view){text, text ? strlen(text) : 0};
}

static struct nxl_view view_keep(unsigned char **at, struct nxl_view view)
{
    struct nxl_view kept = {*at, view.size};

    if (view.size > 0)
        memcpy(*at, view.data, view.size);
    *at += view.size;
    return kept;
}

static void notice_queue(struct front_session *session, const struct nxl_ring_event *event,
                         size_t cost)
{
    struct nxl_front *front = session->front;
    struct front_notice *notice = nxl_new0(cost);
    unsigned char *at = notice->data;

    notice->cost = cost;
    notice->event = *event;
    notice->event.name = view_keep(&at, event->name);
    notice->event.incarnation = view_keep(&at, event->incarnation);
    notice->event.payload = view_keep(&at, event->payload);
    *session->notices.tail = notice;
    session->notices.tail = &notice->next;
    session->notices.bytes += cost;
    nxl_metric_move(front->metrics.notice_queue, (int64_t)cost);
    if (!front->retrying) {
        front->retrying = 1;
        front->retry_ns = RETRY_FIRST_NS;
        nxl_timer_start(front->retry, front->retry_ns, 0);
    }
}

/* 1: no emptying of the ring makes room for it. It would stand at the head of the queue for ever.
 */
static int never_fits(const struct front_session *session, const struct nxl_ring_event *event)
{
    size_t size = sizeof(struct nxl_ring_notice) + event->name.size + event->incarnation.size +
                  event->payload.size;

    return ((size + 7) & ~(size_t)7) > session->ring.notice_bytes / 2;
}

static enum nxl_code front_on_event(void *arg, const struct nxl_xfer_event *from, int must)
{
    struct front_session *session = arg;
    uint64_t max = session->front->limits.notice_queue_max;
    struct nxl_ring_event event = {
        .kind = from->kind,
        .peer = from->peer,
        .code = from->code,
        .transfer = from->transfer,
        .at_ns = from->at_ns,
        .name = text_view(from->name),
        .incarnation = text_view(from->incarnation),
        .payload = from->payload,
    };
    size_t cost =
        sizeof(struct front_notice) + event.name.size + event.incarnation.size + event.payload.size;
    enum nxl_code code = NXL_AGAIN;

    if (session->doomed)
        return NXL_OK; /* nobody is there to read it */
    if (never_fits(session, &event))
        return NXL_LIMIT;
    if (!session->notices.head)
        code = nxl_ring_notice_put(&session->ring, &event);
    if (code == NXL_OK)
        front_kick(session);
    if (code != NXL_AGAIN)
        return code;
    /* The first one is always kept: something has to be tried again for room to be noticed. */
    if (!must && session->notices.head && session->notices.bytes + cost > max) {
        session->notices.refused = 1;
        return NXL_AGAIN;
    }
    if (session->notices.head && session->notices.bytes + cost > max * MUST_FACTOR) {
        front_session_doom(session, FRONT_END_SLOW, NXL_LIMIT,
                           "the client does not read its notices: %llu bytes are queued "
                           "(socket.notice_queue_max)",
                           (unsigned long long)session->notices.bytes);
        return NXL_OK;
    }
    notice_queue(session, &event, cost);
    return NXL_OK;
}

const struct nxl_xfer_front front_xfer_ops = {
    .slot = front_on_slot,
    .event = front_on_event,
};

/* ---- the queue --------------------------------------------------------------------------- */

static void notice_pop(struct front_session *session)
{
    struct front_notice *notice = session->notices.head;

    session->notices.head = notice->next;
    if (!notice->next)
        session->notices.tail = &session->notices.head;
    session->notices.bytes -= notice->cost;
    nxl_metric_move(session->front->metrics.notice_queue, -(int64_t)notice->cost);
    free(notice);
}

void front_notices_flush(struct front_session *session)
{
    int put = 0;

    while (session->notices.head && !session->doomed) {
        enum nxl_code code = nxl_ring_notice_put(&session->ring, &session->notices.head->event);

        if (code == NXL_AGAIN)
            break;
        put |= code == NXL_OK; /* nothing else can come: what never fits was not queued */
        notice_pop(session);
    }
    if (put)
        front_kick(session);
    if (!session->notices.refused || session->doomed ||
        session->notices.bytes > session->front->limits.notice_queue_max / 2)
        return;
    session->notices.refused = 0; /* first: xfer may be refused again from inside */
    nxl_xfer_session_room(session->xfer);
}

/* The client frees room without a sound, so its queue is tried again and again, ever more rarely
 * while nothing moves. */
void front_notices_on_retry(void *arg)
{
    struct nxl_front *front = arg;
    int waiting = 0, moved = 0;

    for (struct front_session *session = front->sessions; session; session = session->next) {
        uint64_t before = session->notices.bytes;

        if (!session->notices.head)
            continue;
        front_notices_flush(session);
        moved |= session->notices.bytes < before;
        waiting |= session->notices.head != NULL;
    }
    front->retrying = waiting;
    if (!waiting)
        return;
    front->retry_ns = moved ? RETRY_FIRST_NS : front->retry_ns * 2;
    if (front->retry_ns > RETRY_LAST_NS)
        front->retry_ns = RETRY_LAST_NS;
    nxl_timer_start(front->retry, front->retry_ns, 0);
}

void front_notices_drop(struct front_session *session)
{
    while (session->notices.head)
        notice_pop(session);
    session->notices.refused = 0;
}
