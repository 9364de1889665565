/* list.c - descriptors resolved to regions once, then found by index. Called by xfer (building) and
 * plan (reading) on the loop thread. */
#include "catalog/list.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/mem.h"
#include "catalog/peer.h"

struct nxl_list_memo {
    uint64_t changes; /* of the region table when the list was last right */
    int stale;        /* a region id never comes back, so neither does the list */
};

struct nxl_catalog_list *nxl_catalog_list_new(struct nxl_catalog_peer *peer, uint32_t kind)
{
    struct nxl_catalog_list *list = nxl_new0(sizeof(*list));

    list->peer = peer;
    list->kind = kind;
    list->memo = nxl_new0(sizeof(*list->memo));
    list->memo->changes = nxl_region_table_changes(peer->regions);
    return list;
}

void nxl_catalog_list_free(struct nxl_catalog_list *list)
{
    if (list == NULL)
        return;
    free(list->runs);
    free(list->regions);
    free(list->slots);
    free(list->memo);
    free(list);
}

/* ---- the regions of a list, each once ---------------------------------------------------- */

static uint32_t *slot_of(const struct nxl_catalog_list *list, uint64_t id)
{
    uint32_t mask = list->slot_count - 1;
    uint32_t at = (uint32_t)((id * 0x9e3779b97f4a7c15ull) >> 32) & mask;

    while (list->slots[at] != 0 && list->regions[list->slots[at] - 1].id != id)
        at = (at + 1) & mask;
    return &list->slots[at];
}

static void slots_rebuild(struct nxl_catalog_list *list, uint32_t slot_count)
{
    free(list->slots);
    list->slots = nxl_new0_array(slot_count, sizeof(uint32_t));
    list->slot_count = slot_count;
    for (uint32_t i = 0; i < list->region_count; i++)
        *slot_of(list, list->regions[i].id) = i + 1;
}

static uint32_t region_index(struct nxl_catalog_list *list, struct nxl_catalog_region *region)
{
    uint32_t *slot;

    if (list->region_count * 2 >= list->slot_count)
        slots_rebuild(list, list->slot_count > 0 ? list->slot_count * 2 : 16);
    slot = slot_of(list, region->id);
    if (*slot != 0)
        return *slot - 1;
    if (list->region_count == list->region_room) {
        list->region_room = list->region_room > 0 ? list->region_room * 2 : 8;
        list->regions = nxl_resize(list->regions, list->region_room, sizeof(*list->regions));
    }
    list->regions[list->region_count] =
        (struct nxl_list_region){.region = region, .id = region->id};
    *slot = ++list->region_count;
    return *slot - 1;
}

/* ---- appending ----------------------------------------------------------------------------- */

/* Joins run to the last ones if together they are one run: the next step of a stride, an adjacent
 * neighbour, or the third of three single pieces at equal distance. Two alone are no stride yet:
 * any two are, and a random order would fall into meaningless pairs. */
static int run_join(struct nxl_catalog_list *list, const struct nxl_list_run *run)
{
    struct nxl_list_run *last, *before;
    uint64_t distance, next;

    if (list->run_count == 0 || run->len == 0)
        return 0;
    last = &list->runs[list->run_count - 1];
    if (last->region_id != run->region_id || last->len != run->len || run->offset <= last->offset ||
        (uint64_t)last->count + run->count > UINT32_MAX)
        return 0;
    distance = run->offset - last->offset;
    if (last->count > 1) {
        if (__builtin_mul_overflow(last->stride, (uint64_t)last->count, &next) ||
            distance != next || (run->count > 1 && run->stride != last->stride))
            return 0;
        last->count += run->count;
        return 1;
    }
    if (distance == (run->count > 1 ? run->stride : run->len)) {
        last->stride = distance;
        last->count += run->count;
        return 1;
    }
    before = list->run_count > 1 ? last - 1 : NULL;
    if (run->count > 1 || distance < run->len || before == NULL || before->count > 1 ||
        before->region_id != run->region_id || before->len != run->len ||
        last->offset <= before->offset || last->offset - before->offset != distance)
        return 0;
    before->stride = distance;
    before->count = 3;
    list->run_count--;
    return 1;
}

static void runs_reserve(struct nxl_catalog_list *list, uint32_t more)
{
    uint32_t room = list->run_room > 0 ? list->run_room : 16;

    if (list->run_room - list->run_count >= more)
        return;
    NXL_ASSERT(more <= UINT32_MAX / 2 && list->run_count <= UINT32_MAX / 4);
    while (room - list->run_count < more)
        room *= 2;
    list->run_room = room;
    list->runs = nxl_resize(list->runs, room, sizeof(*list->runs));
}

static void run_push(struct nxl_catalog_list *list, struct nxl_catalog_region *region,
                     const struct nxl_run *from, uint64_t skip, uint32_t count)
{
    struct nxl_list_run run = {.region = region,
                               .region_id = region->id,
                               .offset = from->addr + skip * from->stride - region->addr,
                               .len = from->len,
                               .stride = count > 1 ? from->stride : from->len,
                               .first = list->size,
                               .count = count};

    list->size += count;
    if (run_join(list, &run))
        return;
    if (list->run_count > 0 && list->runs[list->run_count - 1].region_id == region->id)
        run.region_index = list->runs[list->run_count - 1].region_index;
    else
        run.region_index = region_index(list, region);
    runs_reserve(list, 1);
    list->runs[list->run_count++] = run;
}

static enum nxl_code run_check(struct nxl_catalog_list *list, const struct nxl_run *run,
                               uint64_t *ret_span, struct nxl_err *err)
{
    uint64_t reach, end;

    if (run->count == 0)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "descriptor %" PRIu64 " is a run at 0x%" PRIx64 " with count 0",
                           list->size, run->addr);
    if (run->count > 1 && run->stride < run->len)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "descriptor %" PRIu64 " is a run at 0x%" PRIx64 " with stride %" PRIu64
                           ", less than its length %" PRIu64 ": its pieces would overlap",
                           list->size, run->addr, run->stride, run->len);
    if (__builtin_mul_overflow((uint64_t)(run->count - 1), run->stride, &reach) ||
        __builtin_add_overflow(reach, run->len, &reach) ||
        __builtin_add_overflow(run->addr, reach, &end))
        return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "descriptor %" PRIu64 " at 0x%" PRIx64 ", %u x %" PRIu64
                           " bytes every %" PRIu64 ", reaches beyond the address space",
                           list->size, run->addr, run->count, run->len, run->stride);
    /* Pieces do not overlap, so their sum is at most reach. */
    if (__builtin_add_overflow(list->bytes, run->len * run->count, &list->bytes))
        return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "descriptor %" PRIu64 ": the sum of all lengths overflows", list->size);
    *ret_span = reach;
    return NXL_OK;
}

struct acceptance {
    nxl_region_accept_fn *accept;
    void *arg;
};

static struct nxl_catalog_region *find(struct nxl_catalog_list *list, uint64_t addr, uint64_t len,
                                       uint32_t device, const struct acceptance *which)
{
    return nxl_region_table_find_if(list->peer->regions, addr, len, list->kind, device,
                                    which->accept, which->arg);
}

static enum nxl_code not_found(struct nxl_catalog_list *list, const struct nxl_run *run,
                               uint64_t piece, const struct acceptance *which, struct nxl_err *err)
{
    const struct nxl_catalog_peer *peer = list->peer;
    uint64_t addr = run->addr + piece * run->stride;
    char nearest[160] = "the metadata loaded for it names no region that covers this";

    if (which->accept == NULL) /* who sees a part only is not told of the rest */
        nxl_region_table_nearest(peer->regions, addr, run->len, list->kind, run->device, nearest,
                                 sizeof(nearest));
    return nxl_err_set(err, NXL_NOT_FOUND, 0,
                       "descriptor %" PRIu64 " at 0x%" PRIx64 ", %" PRIu64
                       " bytes, device %u: no registered region of peer '%.80s' (%s) covers it; %s",
                       list->size, addr, run->len, run->device, peer->name, peer->incarnation,
                       nearest);
}

/* Whole if one region covers all of it; else piece by piece, as many as fit. Every region is met
 * once at most, since addresses rise. */
static enum nxl_code run_append(struct nxl_catalog_list *list, const struct nxl_run *run,
                                const struct acceptance *which, struct nxl_err *err)
{
    uint64_t span;
    enum nxl_code code = run_check(list, run, &span, err);
    struct nxl_catalog_region *region;

    if (code != NXL_OK)
        return code;
    region = find(list, run->addr, span, run->device, which);
    if (region != NULL) {
        run_push(list, region, run, 0, run->count);
        return NXL_OK;
    }
    for (uint32_t done = 0; done < run->count;) {
        uint64_t addr = run->addr + done * run->stride, fit = run->count - done;

        region = find(list, addr, run->len, run->device, which);
        if (region == NULL)
            return not_found(list, run, done, which, err);
        if (run->stride > 0) {
            uint64_t room = (region->addr + region->len - addr - run->len) / run->stride + 1;

            fit = room < fit ? room : fit;
        }
        run_push(list, region, run, done, (uint32_t)fit);
        done += (uint32_t)fit;
    }
    return NXL_OK;
}

enum nxl_code nxl_catalog_list_append(struct nxl_catalog_list *list, const struct nxl_run *runs,
                                      uint32_t count, nxl_region_accept_fn *accept,
                                      void *accept_arg, struct nxl_err *err)
{
    const struct nxl_catalog_list before = *list;
    struct nxl_list_run ends[2] = {{0}}; /* joining changes the last two at most */
    uint32_t end_count = list->run_count < 2 ? list->run_count : 2;
    struct acceptance which = {.accept = accept, .arg = accept_arg};
    enum nxl_code code = NXL_OK;

    for (uint32_t i = 0; i < end_count; i++)
        ends[i] = list->runs[before.run_count - end_count + i];
    runs_reserve(list, count);
    for (uint32_t i = 0; i < count && code == NXL_OK; i++)
        code = run_append(list, &runs[i], &which, err);
    if (code == NXL_OK) {
        list->density = list->size > 0 ? (double)list->run_count / (double)list->size : 0;
        return NXL_OK;
    }
    for (uint32_t i = 0; i < end_count; i++)
        list->runs[before.run_count - end_count + i] = ends[i];
    list->run_count = before.run_count;
    list->size = before.size;
    list->bytes = before.bytes;
    if (list->region_count != before.region_count) {
        list->region_count = before.region_count;
        slots_rebuild(list, list->slot_count);
    }
    return code;
}

/* ---- reading ------------------------------------------------------------------------------- */

/* Starts where the run would be if all were equally long, which they mostly are, and widens. */
static uint32_t run_search(const struct nxl_catalog_list *list, uint64_t index)
{
    uint32_t guess = (uint32_t)((double)index * list->density), low, high, step = 1;

    if (guess >= list->run_count)
        guess = list->run_count - 1;
    if (list->runs[guess].first <= index) {
        low = guess;
        high = list->run_count;
        while (step < high - low && list->runs[low + step].first <= index) {
            low += step;
            step *= 2;
        }
        high = step < high - low ? low + step : high;
    } else {
        low = 0;
        high = guess;
        while (step < high && list->runs[high - step].first > index) {
            high -= step;
            step *= 2;
        }
        low = step < high ? high - step : 0;
    }
    while (high - low > 1) { /* runs[low] starts at or before index, runs[high] after it */
        uint32_t middle = low + (high - low) / 2;

        if (list->runs[middle].first <= index)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static int run_holds(const struct nxl_list_run *run, uint64_t index)
{
    return index - run->first < run->count; /* wraps to a huge number below first */
}

const struct nxl_list_run *nxl_catalog_list_at(const struct nxl_catalog_list *list, uint64_t index,
                                               uint32_t *hint)
{
    uint32_t at = *hint;

    if (at < list->run_count && run_holds(&list->runs[at], index))
        return &list->runs[at];
    if (at + 1 < list->run_count && run_holds(&list->runs[at + 1], index)) {
        *hint = at + 1;
        return &list->runs[at + 1];
    }
    NXL_ASSERT(index < list->size);
    *hint = run_search(list, index);
    return &list->runs[*hint];
}

int nxl_catalog_list_fresh(const struct nxl_catalog_list *list)
{
    uint64_t changes = nxl_region_table_changes(list->peer->regions);

    if (list->memo->stale)
        return 0;
    if (list->memo->changes == changes)
        return 1;
    for (uint32_t i = 0; i < list->region_count; i++) {
        if (nxl_region_table_by_id(list->peer->regions, list->regions[i].id) !=
            list->regions[i].region) {
            list->memo->stale = 1;
            return 0;
        }
    }
    list->memo->changes = changes;
    return 1;
}
