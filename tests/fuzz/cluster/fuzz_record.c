/* fuzz_record.c - records and blobs, raw and with size and digest repaired so that the fields are
 * reached. */
#include "base/assert.h"
#include "base/bytes.h"
#include "cluster/record.h"

#include <string.h>
#include <xxhash.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
static void try_one(const void *data, size_t size)
{
    static struct nxl_record record;
    static struct nxl_bytes bytes;
    struct nxl_err err;

    if (nxl_record_decode((struct nxl_view){data, size}, &record, &err) != NXL_OK)
        return;
    nxl_bytes_clear(&bytes);
    NXL_ASSERT(nxl_record_encode(&record, &bytes, &err) == NXL_OK);
    NXL_ASSERT(nxl_record_decode((struct nxl_view){bytes.data, bytes.size}, &record, &err) ==
               NXL_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static unsigned char sealed[NXL_RECORD_MAX];
    uint32_t total = (uint32_t)size;
    uint64_t digest;

    try_one(data, size);
    if (size < 20 || size > sizeof(sealed))
        return 0;
    memcpy(sealed, data, size);
    memcpy(sealed + 8, &total, sizeof(total));
    digest = XXH64(sealed, size - 8, 0);
    memcpy(sealed + size - 8, &digest, sizeof(digest));
    try_one(sealed, size);
    return 0;
}
