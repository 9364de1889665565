/* queue.c - a hash of keys, a heap by time for those that wait; a key in work is in no heap. */
#include "reconcile/queue.h"

#include "base/assert.h"
#include "base/mem.h"

#include <string.h>
#include <uthash.h>

#define NOT_IN_HEAP UINT32_MAX
#define BACKOFF_MIN_NS 5000000ull
#define BACKOFF_MAX_NS 1000000000000ull
#define KEYS_MAX 100000u

struct item {
    UT_hash_handle hh;
    uint64_t due_ns, order; /* order: of adding, among those due */
    uint64_t again_ns;      /* in work, and wanted again at; UINT64_MAX: not */
    uint32_t heap;          /* index, or NOT_IN_HEAP */
    uint32_t failures;
    uint8_t in_work;
    uint8_t punished; /* waits out a failure: adding does not bring it forward */
    char key[];
};

struct nxl_queue {
    struct nxl_queue_options options;
    struct item *items;
    struct item **heap;
    uint32_t heap_count, heap_room, in_work;
    uint64_t order;
};

struct nxl_queue *nxl_queue_new(const struct nxl_queue_options *options)
{
    struct nxl_queue *queue = nxl_new0(sizeof(*queue));

    if (options != NULL)
        queue->options = *options;
    if (queue->options.backoff_min_ns == 0)
        queue->options.backoff_min_ns = BACKOFF_MIN_NS;
    if (queue->options.backoff_max_ns == 0)
        queue->options.backoff_max_ns = BACKOFF_MAX_NS;
    if (queue->options.keys_max == 0)
        queue->options.keys_max = KEYS_MAX;
    return queue;
}

void nxl_queue_free(struct nxl_queue *queue)
{
    struct item *item, *next;

    if (queue == NULL)
        return;
    HASH_ITER(hh, queue->items, item, next)
    {
        HASH_DEL(queue->items, item);
        free(item);
    }
    free(queue->heap);
    free(queue);
}

/* ---- the heap ------------------------------------------------------------------------------- */

static int before(const struct item *a, const struct item *b)
{
    return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->order < b->order;
}

static void heap_set(struct nxl_queue *queue, uint32_t index, struct item *item)
{
    queue->heap[index] = item;
    item->heap = index;
}

static void heap_place(struct nxl_queue *queue, uint32_t index, struct item *item)
{
    while (index > 0 && before(item, queue->heap[(index - 1) / 2])) {
        heap_set(queue, index, queue->heap[(index - 1) / 2]);
        index = (index - 1) / 2;
    }
    for (;;) {
        uint32_t child = 2 * index + 1;

        if (child + 1 < queue->heap_count && before(queue->heap[child + 1], queue->heap[child]))
            child++;
        if (child >= queue->heap_count || !before(queue->heap[child], item))
            break;
        heap_set(queue, index, queue->heap[child]);
        index = child;
    }
    heap_set(queue, index, item);
}

static void heap_add(struct nxl_queue *queue, struct item *item, uint64_t due_ns)
{
    if (queue->heap_count == queue->heap_room) {
        queue->heap_room = queue->heap_room == 0 ? 64 : queue->heap_room * 2;
        queue->heap = nxl_resize(queue->heap, queue->heap_room, sizeof(struct item *));
    }
    item->due_ns = due_ns;
    item->order = queue->order++;
    queue->heap[queue->heap_count] = item;
    heap_place(queue, queue->heap_count++, item);
}

static void heap_remove(struct nxl_queue *queue, struct item *item)
{
    struct item *last = queue->heap[--queue->heap_count];

    if (last != item)
        heap_place(queue, item->heap, last);
    item->heap = NOT_IN_HEAP;
}

/* ---- keys ------------------------------------------------------------------------------------ */

static struct item *find(const struct nxl_queue *queue, const char *key)
{
    struct item *item;

    HASH_FIND_STR(queue->items, key, item);
    return item;
}

static struct item *find_or_make(struct nxl_queue *queue, const char *key)
{
    struct item *item = find(queue, key);
    size_t size = strlen(key);

    if (item != NULL)
        return item;
    if (size > NXL_QUEUE_KEY_MAX || HASH_COUNT(queue->items) >= queue->options.keys_max)
        return NULL;
    item = nxl_new0(sizeof(*item) + size + 1);
    memcpy(item->key, key, size + 1);
    item->heap = NOT_IN_HEAP;
    item->again_ns = UINT64_MAX;
    HASH_ADD_KEYPTR(hh, queue->items, item->key, size, item);
    return item;
}

static void drop(struct nxl_queue *queue, struct item *item)
{
    HASH_DEL(queue->items, item);
    free(item);
}

int nxl_queue_add_at(struct nxl_queue *queue, const char *key, uint64_t at_ns)
{
    struct item *item = find_or_make(queue, key);

    if (item == NULL)
        return 0;
    if (item->in_work) {
        if (at_ns < item->again_ns)
            item->again_ns = at_ns;
    } else if (item->heap == NOT_IN_HEAP) {
        heap_add(queue, item, at_ns);
    } else if (!item->punished && at_ns < item->due_ns) {
        heap_remove(queue, item);
        heap_add(queue, item, at_ns);
    }
    return 1;
}

int nxl_queue_add(struct nxl_queue *queue, const char *key, uint64_t now_ns)
{
    return nxl_queue_add_at(queue, key, now_ns);
}

const char *nxl_queue_take(struct nxl_queue *queue, uint64_t now_ns)
{
    struct item *item;

    if (queue->heap_count == 0 || queue->heap[0]->due_ns > now_ns)
        return NULL;
    item = queue->heap[0];
    heap_remove(queue, item);
    item->in_work = 1;
    item->punished = 0;
    queue->in_work++;
    return item->key;
}

static struct item *in_work(struct nxl_queue *queue, const char *key)
{
    struct item *item = find(queue, key);

    NXL_ASSERT(item != NULL && item->in_work);
    item->in_work = 0;
    queue->in_work--;
    return item;
}

void nxl_queue_done(struct nxl_queue *queue, const char *key, uint64_t now_ns)
{
    struct item *item = in_work(queue, key);
    uint64_t again_ns = item->again_ns;

    (void)now_ns;
    if (again_ns == UINT64_MAX) {
        drop(queue, item);
        return;
    }
    item->failures = 0;
    item->again_ns = UINT64_MAX;
    heap_add(queue, item, again_ns);
}

uint64_t nxl_queue_retry(struct nxl_queue *queue, const char *key, uint64_t now_ns,
                         uint64_t not_before_ns)
{
    struct item *item = in_work(queue, key);
    uint64_t wait_ns = queue->options.backoff_min_ns;
    uint64_t due_ns;

    for (uint32_t i = 0; i < item->failures && wait_ns < queue->options.backoff_max_ns; i++)
        wait_ns *= 2;
    if (wait_ns > queue->options.backoff_max_ns)
        wait_ns = queue->options.backoff_max_ns;
    due_ns = now_ns + wait_ns > not_before_ns ? now_ns + wait_ns : not_before_ns;
    item->failures++;
    item->again_ns = UINT64_MAX;
    item->punished = 1;
    heap_add(queue, item, due_ns);
    return due_ns;
}

void nxl_queue_forget(struct nxl_queue *queue, const char *key)
{
    struct item *item = find(queue, key);

    if (item == NULL)
        return;
    item->again_ns = UINT64_MAX;
    item->failures = 0;
    if (item->in_work)
        return;
    if (item->heap != NOT_IN_HEAP)
        heap_remove(queue, item);
    drop(queue, item);
}

uint64_t nxl_queue_next_ns(const struct nxl_queue *queue)
{
    return queue->heap_count == 0 ? UINT64_MAX : queue->heap[0]->due_ns;
}

uint32_t nxl_queue_depth(const struct nxl_queue *queue)
{
    return queue->heap_count;
}

uint32_t nxl_queue_in_work(const struct nxl_queue *queue)
{
    return queue->in_work;
}

uint32_t nxl_queue_failures(const struct nxl_queue *queue, const char *key)
{
    const struct item *item = find(queue, key);

    return item != NULL ? item->failures : 0;
}
