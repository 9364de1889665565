/* fuzz_fact.c - the text of a life fact: what decodes has exactly one text. */
#include "base/assert.h"
#include "base/bytes.h"
#include "cluster/directory_room.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct nxl_bytes bytes;
    struct directory_fact_text fact;
    struct nxl_err err;

    if (directory_fact_decode((struct nxl_view){data, size}, &fact, &err) != NXL_OK)
        return 0;
    nxl_bytes_clear(&bytes);
    directory_fact_encode(&fact, &bytes);
    NXL_ASSERT(bytes.size == size && memcmp(bytes.data, data, size) == 0);
    return 0;
}
