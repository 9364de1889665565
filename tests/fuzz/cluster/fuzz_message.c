/* fuzz_message.c - frames of another agent; whatever decodes must encode and decode to the same
 * again. */
#include "base/assert.h"
#include "base/bytes.h"
#include "cluster/message.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct nxl_message_decoder *decoder, *again;
    static struct nxl_bytes first, second;
    struct nxl_message message;
    struct nxl_err err;

    if (decoder == NULL) {
        decoder = nxl_message_decoder_new();
        again = nxl_message_decoder_new();
    }
    if (nxl_message_decode(decoder, (struct nxl_view){data, size}, &message, &err) != NXL_OK)
        return 0;
    nxl_bytes_clear(&first);
    nxl_bytes_clear(&second);
    NXL_ASSERT(nxl_message_encode(&message, &first, &err) == NXL_OK);
    NXL_ASSERT(nxl_message_decode(again, (struct nxl_view){first.data + 4, first.size - 4},
                                  &message, &err) == NXL_OK);
    NXL_ASSERT(nxl_message_encode(&message, &second, &err) == NXL_OK);
    NXL_ASSERT(first.size == second.size && memcmp(first.data, second.data, first.size) == 0);
    return 0;
}
