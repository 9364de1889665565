/* Any packet: the decoder refuses it, or what it gives encodes to the same bytes again. */
#include <stdlib.h>
#include <string.h>

#include "wire/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct nxl_frame frame;
    static unsigned char again[NXL_FRAME_MAX];
    struct nxl_err err;
    size_t again_size = 0;

    if (nxl_frame_decode((struct nxl_view){data, size}, &frame, &err) != NXL_OK)
        return 0;
    /* A request's text does not travel, so a frame that carries one comes back without it. */
    if (!frame.reply && frame.type != NXL_FRAME_GOAWAY && frame.text[0])
        return 0;
    if (nxl_frame_encode(&frame, again, sizeof(again), &again_size, &err) != NXL_OK)
        abort();
    if (again_size != size || memcmp(again, data, size) != 0)
        abort();
    return 0;
}
