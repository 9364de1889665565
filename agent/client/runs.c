/* runs.c - descriptor lists as runs: checks, joining, lengths by index. Pure. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "client/client.h"

#define SIZE_LIMIT (1ull << 32) /* indices are 32 bits */

static enum nxl_code run_check(const struct nxl_run *run, uint64_t first, const char *side,
                               struct nxl_err *err)
{
    uint64_t span, end;

    if (run->count == 0)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "%s: the run at descriptor %" PRIu64 " has count 0", side, first);
    if (run->count > 1 && run->stride < run->len)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "%s: the run at descriptor %" PRIu64 " has stride %" PRIu64
                           ", less than its length %" PRIu64 ": its pieces would overlap",
                           side, first, run->stride, run->len);
    if (__builtin_mul_overflow(run->count > 1 ? run->stride : 0, (uint64_t)run->count - 1, &span) ||
        __builtin_add_overflow(span, run->len, &span) ||
        __builtin_add_overflow(run->addr, span, &end))
        return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "%s: descriptor %" PRIu64 " (address %#" PRIx64 ", length %" PRIu64
                           ") overflows the address space",
                           side, first, run->addr, run->len);
    return NXL_OK;
}

/* Appends run to last if the pieces go on at equal steps. */
static int run_join(struct nxl_run *last, const struct nxl_run *run)
{
    uint64_t stride = last->stride;

    if (last->len != run->len || last->device != run->device || run->addr <= last->addr ||
        (uint64_t)last->count + run->count > UINT32_MAX)
        return 0;
    if (last->count == 1) {
        stride = run->addr - last->addr;
        if (stride < run->len)
            return 0;
    } else if (run->addr - last->addr != stride * last->count) {
        return 0;
    }
    if (run->count > 1 && run->stride != stride)
        return 0;
    last->stride = stride;
    last->count += run->count;
    return 1;
}

enum nxl_code nxl_runs_compress(const struct nxl_run *runs, uint32_t count, const char *side,
                                struct nxl_list_part **ret_parts, uint32_t *ret_count,
                                uint64_t *ret_size, uint64_t *ret_uniform_len, struct nxl_err *err)
{
    struct nxl_list_part *parts, *fitted;
    uint64_t first = 0, uniform_len;
    uint32_t used = 0;

    if (!runs || count == 0)
        return nxl_err_set(err, NXL_INVALID_PARAM, 0, "%s: the list is empty", side);
    parts = malloc(count * sizeof(*parts));
    if (!parts)
        return nxl_err_set(err, NXL_LIMIT, ENOMEM, "%s: make a list of %u runs", side, count);
    uniform_len = runs[0].len;
    for (uint32_t i = 0; i < count; i++) {
        enum nxl_code code = run_check(&runs[i], first, side, err);

        if (code == NXL_OK && first + runs[i].count > SIZE_LIMIT)
            code = nxl_err_set(err, NXL_INVALID_PARAM, 0, "%s: more than 2^32 descriptors", side);
        if (code != NXL_OK) {
            free(parts);
            return code;
        }
        if (runs[i].len != uniform_len)
            uniform_len = 0;
        if (used == 0 || !run_join(&parts[used - 1].run, &runs[i])) {
            parts[used].run = runs[i];
            parts[used++].first = first;
        }
        first += runs[i].count;
    }
    fitted = realloc(parts, used * sizeof(*parts));
    *ret_parts = fitted ? fitted : parts;
    *ret_count = used;
    *ret_size = first;
    *ret_uniform_len = uniform_len;
    return NXL_OK;
}

uint64_t nxl_runs_len(const struct nxl_list_part *parts, uint32_t count, uint64_t index,
                      uint32_t *hint)
{
    uint32_t low = 0, high = count;

    if (*hint < count && index - parts[*hint].first < parts[*hint].run.count)
        return parts[*hint].run.len;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;

        if (parts[middle].first <= index)
            low = middle;
        else
            high = middle;
    }
    *hint = low;
    return parts[low].run.len;
}

uint64_t nxl_runs_differ(const struct nxl_list_part *a, uint32_t a_count,
                         const struct nxl_list_part *b, uint32_t b_count)
{
    uint32_t i = 0, k = 0;

    while (i < a_count && k < b_count) {
        uint64_t at = a[i].first > b[k].first ? a[i].first : b[k].first;
        uint64_t a_end = a[i].first + a[i].run.count, b_end = b[k].first + b[k].run.count;

        if (a[i].run.len != b[k].run.len)
            return at;
        if (a_end <= b_end)
            i++;
        if (b_end <= a_end)
            k++;
    }
    return UINT64_MAX;
}
