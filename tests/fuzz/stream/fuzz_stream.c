/* fuzz_stream.c - bytes of an operator or an agent: split, decoded, and what decodes must encode
 * and decode to the same again, with the same hashes. */
#include "base/assert.h"
#include "base/bytes.h"
#include "stream/frame.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Deaths by list come back as members, and NONE has no encoding. */
static void again(const struct nxl_stream_frame *frame)
{
    struct nxl_bytes first = {0}, second = {0};
    struct nxl_stream_frame back;
    struct nxl_view body;
    struct nxl_err err;
    size_t used;

    if (frame->type == NXL_STREAM_NONE || frame->member_count > NXL_STREAM_RECORDS_MAX ||
        nxl_stream_encode(frame, &first, &err) != NXL_OK) { /* LIMIT: escapes made it longer */
        nxl_bytes_fini(&first);
        return;
    }
    NXL_ASSERT(nxl_stream_split((struct nxl_view){first.data, first.size}, &body, &used) == 1);
    NXL_ASSERT(used == first.size);
    NXL_ASSERT(nxl_stream_decode(body, &back, &err) == NXL_OK);
    NXL_ASSERT(nxl_stream_encode(&back, &second, &err) == NXL_OK);
    NXL_ASSERT(first.size == second.size && memcmp(first.data, second.data, first.size) == 0);
    NXL_ASSERT(back.member_count == frame->member_count);
    for (uint32_t i = 0; i < back.member_count; i++)
        NXL_ASSERT(nxl_stream_member_hash(&back.members[i]) ==
                   nxl_stream_member_hash(&frame->members[i]));
    nxl_stream_frame_fini(&back);
    nxl_bytes_fini(&first);
    nxl_bytes_fini(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct nxl_view rest = {data, size}, body;
    struct nxl_stream_frame frame;
    struct nxl_err err;
    size_t used;

    while (nxl_stream_split(rest, &body, &used) == 1) {
        if (nxl_stream_decode(body, &frame, &err) == NXL_OK) {
            again(&frame);
            nxl_stream_frame_fini(&frame);
        }
        rest = (struct nxl_view){(const uint8_t *)rest.data + used, rest.size - used};
    }
    if (nxl_stream_decode((struct nxl_view){data, size}, &frame, &err) == NXL_OK) {
        again(&frame);
        nxl_stream_frame_fini(&frame);
    }
    return 0;
}
