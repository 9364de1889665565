/* writer_internal.h - the writer's state; inside reconcile/writer*.c only. */
#ifndef NXL_RECONCILE_WRITER_INTERNAL_H
#define NXL_RECONCILE_WRITER_INTERNAL_H

#include "reconcile/queue.h"
#include "reconcile/writer.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#define CALLS_MAX 8u             /* on their way at once */
#define BURST 10.0               /* writes that a quiet time saves up */
#define UNSEEN_NS (30 * NXL_SEC) /* an own write that the watch never shows */
#define URGENT_NS NXL_SEC        /* the least time between two writes of one object */
#define REVOKE_POLL_NS (200 * NXL_MS)
#define EVENT_EVERY_NS (6 * NXL_SEC) /* 10 a minute and object */
#define EVENT_IDLE_NS (600 * NXL_SEC)
#define EVENTS_MAX 4096u
#define MANAGER "fieldManager=nixlet-operator&force=true"
#define APPLY "application/apply-patch+yaml"

struct object { /* one NixlPeer as we write it */
    UT_hash_handle hh;
    char uid[NXL_UID_MAX + 1];
    char awaited[32];    /* version of our own last write, until the watch shows it; "" */
    char seen[32];       /* version that the watch showed last */
    uint64_t awaited_ns; /* since when */
    uint64_t wrote_ns;   /* 0: never */
    uint64_t revoke_ns;  /* since when it is being deleted; 0: not */
    uint64_t event_ns;   /* last event write */
    struct nxl_group_status sent, on_way;
    uint8_t has_sent;  /* sent holds what the server has */
    uint8_t timed_out; /* RevokeTimedOut was said */
    uint64_t *slice_hash;
    uint32_t slice_room;  /* of slice_hash */
    uint32_t slice_count; /* that may exist on the server */
    char key[];
};

struct event {
    UT_hash_handle hh;
    char *group, *note, *reason, name[96];
    int warning;
    uint32_t count, written; /* times seen; times the server knows */
    uint64_t first_ns, last_ns;
    int64_t first_ms, last_ms;
    char key[];
};

struct call {                  /* one on its way */
    struct nxl_writer *writer; /* NULL: the writer is gone */
    struct call *prev, *next;
    char key[NXL_QUEUE_KEY_MAX + 1];
    char uid[NXL_UID_MAX + 1];
    uint64_t hash; /* of a slice's text; of an event, times written before */
    uint8_t kind;  /* enum call_kind */
};
enum call_kind { CALL_STATUS = 0, CALL_FINALIZER, CALL_SLICE, CALL_SLICE_DELETE, CALL_EVENT };

struct nxl_writer {
    struct nxl_writer_options options;
    struct nxl_writer_api api;
    char instance[128];
    struct nxl_queue *queue;
    struct object *objects;
    struct event *events;
    struct call *calls;
    uint32_t call_count;
    double tokens;
    uint64_t tokens_ns;
    uint64_t now_ns; /* of this run */
    int64_t now_ms;
    struct nxl_writer_counts counts;
    struct nxl_log_gate gate;
};

/* writer.c */
struct object *writer_object(struct nxl_writer *writer, const char *group); /* finds or makes */
struct object *writer_find(struct nxl_writer *writer, const char *group);
void writer_time(struct nxl_writer *writer);
/* The work on key ends with a call; it is done when its answer comes. */
void writer_send(struct nxl_writer *writer, const char *key, const char *uid, enum call_kind kind,
                 uint64_t hash, const struct nxl_writer_call *call);
void writer_done(struct nxl_writer *writer, const char *key);
void writer_later(struct nxl_writer *writer, const char *key, uint64_t at_ns); /* done until then */
int writer_split(const char *group, char ns[NXL_NAMESPACE_MAX + 1], const char **ret_name);

/* writer_status.c */
void work_status(struct nxl_writer *writer, const char *key, const char *group);
void answer_status(struct nxl_writer *writer, struct object *object, const json_t *answer,
                   enum call_kind kind);
/* writer_slice.c */
void work_slice(struct nxl_writer *writer, const char *key, const char *group, uint32_t index);
void answer_slice(struct nxl_writer *writer, const struct call *call);
/* writer_event.c */
void work_event(struct nxl_writer *writer, const char *key);
void answer_event(struct nxl_writer *writer, const struct call *call, int status);
void event_failed(struct nxl_writer *writer, const struct call *call);
void events_free(struct nxl_writer *writer);

#endif
