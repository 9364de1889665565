/* record.c - codec of the directory record and the metadata blob (record.h has the meaning). Pure.
 */
#include "cluster/record.h"

#include "base/bytes.h"
#include "cluster/identity.h"

#include <string.h>
#include <xxhash.h>

/* Layout, little-endian: u32 magic, u16 major, u16 minor, u32 size of the whole, u32 flags,
 * texts (u16 length + bytes): namespace name incarnation cluster agent node address,
 * u64 revision, u32 region count, regions of 29 bytes: u64 id, u64 addr, u64 len, u8 kind, u32
 * device; what a later minor version appends; u64 XXH64 over all bytes before it. */
#define MAGIC 0x524c584eu /* "NXLR" */
#define MAJOR 1u
#define MINOR 0u
#define HEAD_SIZE 12u
#define REGION_SIZE 29u
#define DIGEST_SIZE 8u

static enum nxl_code check_who(const struct nxl_record *record, enum nxl_code code,
                               struct nxl_err *err)
{
    if (record->ns[0] != '\0' && !nxl_identity_is_label(record->ns, NXL_NAMESPACE_MAX))
        return nxl_err_set(err, code, 0, "record: namespace holds a character that is not allowed");
    if (!nxl_identity_is_name(record->name))
        return nxl_err_set(err, code, 0, "record: name is empty or holds a control character");
    if (!nxl_identity_is_incarnation(record->incarnation))
        return nxl_err_set(err, code, 0, "record: incarnation is not of the form a/b/c");
    return NXL_OK;
}

static enum nxl_code check_where(const struct nxl_record *record, enum nxl_code code,
                                 struct nxl_err *err)
{
    int must = (record->flags & NXL_RECORD_ADDRESS) != 0;

    if ((must || record->cluster[0] != '\0') &&
        !nxl_identity_is_label(record->cluster, NXL_NAMESPACE_MAX))
        return nxl_err_set(err, code, 0,
                           "record: cluster is empty or holds a character that is not allowed");
    if ((must || record->agent[0] != '\0') && !nxl_identity_is_incarnation(record->agent))
        return nxl_err_set(err, code, 0, "record: agent is not an incarnation of the form a/b/c");
    if ((must || record->node[0] != '\0') && !nxl_identity_is_label(record->node, NXL_NODE_MAX))
        return nxl_err_set(err, code, 0,
                           "record: node is empty or holds a character that is not allowed");
    if ((must || record->address[0] != '\0') && !nxl_identity_is_address(record->address))
        return nxl_err_set(err, code, 0, "record: address is not of the form host:port");
    return NXL_OK;
}

static enum nxl_code check_regions(const struct nxl_record *record, enum nxl_code code,
                                   struct nxl_err *err)
{
    if ((record->flags & ~(NXL_RECORD_ADDRESS | NXL_RECORD_FULL)) != 0)
        return nxl_err_set(err, code, 0, "record: flags 0x%x are not known", record->flags);
    if (record->region_count > NXL_RECORD_REGIONS_MAX)
        return nxl_err_set(err, code, 0, "record: region_count %u is above %u",
                           record->region_count, NXL_RECORD_REGIONS_MAX);
    if ((record->flags & NXL_RECORD_FULL) != 0 && record->region_count != 0)
        return nxl_err_set(err, code, 0, "record: flag FULL and %u regions exclude each other",
                           record->region_count);
    for (uint32_t i = 0; i < record->region_count; i++) {
        const struct nxl_record_region *region = &record->regions[i];

        if (region->addr + region->len < region->addr)
            return nxl_err_set(err, code, 0, "record: regions[%u]: addr plus len overflows", i);
        if (region->kind >= NXL_MEM_KINDS)
            return nxl_err_set(err, code, 0, "record: regions[%u]: kind %u is not known", i,
                               region->kind);
    }
    return NXL_OK;
}

static enum nxl_code check(const struct nxl_record *record, enum nxl_code wrong,
                           struct nxl_err *err)
{
    enum nxl_code code = check_who(record, wrong, err);

    if (code == NXL_OK)
        code = check_where(record, wrong, err);
    if (code == NXL_OK)
        code = check_regions(record, wrong, err);
    return code;
}

static void put_u32_at(struct nxl_bytes *bytes, size_t at, uint32_t value)
{
    for (unsigned i = 0; i < 4; i++)
        bytes->data[at + i] = (unsigned char)(value >> (8 * i));
}

enum nxl_code nxl_record_encode(const struct nxl_record *record, struct nxl_bytes *to,
                                struct nxl_err *err)
{
    size_t start = to->size;
    enum nxl_code code = check(record, NXL_INVALID_PARAM, err);

    if (code != NXL_OK)
        return nxl_err_wrap(err, code, "encode");
    nxl_bytes_put_u32(to, MAGIC);
    nxl_bytes_put_u16(to, MAJOR);
    nxl_bytes_put_u16(to, MINOR);
    nxl_bytes_put_u32(to, 0); /* the size, known below */
    nxl_bytes_put_u32(to, record->flags);
    nxl_bytes_put_text(to, record->ns);
    nxl_bytes_put_text(to, record->name);
    nxl_bytes_put_text(to, record->incarnation);
    nxl_bytes_put_text(to, record->cluster);
    nxl_bytes_put_text(to, record->agent);
    nxl_bytes_put_text(to, record->node);
    nxl_bytes_put_text(to, record->address);
    nxl_bytes_put_u64(to, record->revision);
    nxl_bytes_put_u32(to, record->region_count);
    for (uint32_t i = 0; i < record->region_count; i++) {
        nxl_bytes_put_u64(to, record->regions[i].id);
        nxl_bytes_put_u64(to, record->regions[i].addr);
        nxl_bytes_put_u64(to, record->regions[i].len);
        nxl_bytes_put_u8(to, (uint8_t)record->regions[i].kind);
        nxl_bytes_put_u32(to, record->regions[i].device);
    }
    put_u32_at(to, start + 8, (uint32_t)(to->size - start + DIGEST_SIZE));
    nxl_bytes_put_u64(to, XXH64(to->data + start, to->size - start, 0));
    return NXL_OK;
}

static uint64_t digest_of(const unsigned char *at)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < DIGEST_SIZE; i++)
        value |= (uint64_t)at[i] << (8 * i);
    return value;
}

/* Everything that can be said without looking at a field. */
static enum nxl_code check_envelope(struct nxl_view bytes, uint16_t *ret_minor, struct nxl_err *err)
{
    struct nxl_reader reader = nxl_reader_of(bytes.data, bytes.size);
    uint32_t magic, size;
    uint16_t major, minor;

    if (bytes.size < HEAD_SIZE + DIGEST_SIZE || bytes.size > NXL_RECORD_MAX)
        return nxl_err_set(err, NXL_MISMATCH, 0, "record: size %zu is not between %u and %u",
                           bytes.size, HEAD_SIZE + DIGEST_SIZE, NXL_RECORD_MAX);
    magic = nxl_reader_u32(&reader);
    if (magic != MAGIC)
        return nxl_err_set(err, NXL_MISMATCH, 0, "record: magic 0x%08x is not 0x%08x", magic,
                           MAGIC);
    major = nxl_reader_u16(&reader);
    minor = nxl_reader_u16(&reader);
    if (major != MAJOR)
        return nxl_err_set(err, NXL_MISMATCH, 0,
                           "record: version %u.%u, and this agent reads %u.%u", major, minor, MAJOR,
                           MINOR);
    size = nxl_reader_u32(&reader);
    if (size != bytes.size)
        return nxl_err_set(err, NXL_MISMATCH, 0, "record: size says %u and there are %zu bytes",
                           size, bytes.size);
    if (XXH64(bytes.data, bytes.size - DIGEST_SIZE, 0) !=
        digest_of((const unsigned char *)bytes.data + bytes.size - DIGEST_SIZE))
        return nxl_err_set(err, NXL_MISMATCH, 0,
                           "record: digest does not fit the bytes: it is damaged");
    *ret_minor = minor;
    return NXL_OK;
}

static enum nxl_code read_texts(struct nxl_reader *reader, struct nxl_record *ret,
                                struct nxl_err *err)
{
    const struct {
        const char *field;
        char *to;
        size_t room;
    } texts[] = {
        {"namespace", ret->ns, sizeof(ret->ns)},
        {"name", ret->name, sizeof(ret->name)},
        {"incarnation", ret->incarnation, sizeof(ret->incarnation)},
        {"cluster", ret->cluster, sizeof(ret->cluster)},
        {"agent", ret->agent, sizeof(ret->agent)},
        {"node", ret->node, sizeof(ret->node)},
        {"address", ret->address, sizeof(ret->address)},
    };

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        nxl_reader_text(reader, texts[i].to, texts[i].room);
        if (reader->bad)
            return nxl_err_set(err, NXL_MISMATCH, 0,
                               "record: %s is cut off, too long or holds a zero byte",
                               texts[i].field);
    }
    return NXL_OK;
}

static enum nxl_code read_regions(struct nxl_reader *reader, struct nxl_record *ret,
                                  struct nxl_err *err)
{
    ret->revision = nxl_reader_u64(reader);
    ret->region_count = nxl_reader_u32(reader);
    if (reader->bad)
        return nxl_err_set(err, NXL_MISMATCH, 0, "record: revision or region_count is cut off");
    if (ret->region_count > NXL_RECORD_REGIONS_MAX)
        return nxl_err_set(err, NXL_MISMATCH, 0, "record: region_count %u is above %u",
                           ret->region_count, NXL_RECORD_REGIONS_MAX);
    if ((size_t)ret->region_count * REGION_SIZE > nxl_reader_left(reader))
        return nxl_err_set(err, NXL_MISMATCH, 0, "record: region_count %u does not fit %zu bytes",
                           ret->region_count, nxl_reader_left(reader));
    for (uint32_t i = 0; i < ret->region_count; i++) {
        ret->regions[i].id = nxl_reader_u64(reader);
        ret->regions[i].addr = nxl_reader_u64(reader);
        ret->regions[i].len = nxl_reader_u64(reader);
        ret->regions[i].kind = nxl_reader_u8(reader);
        ret->regions[i].device = nxl_reader_u32(reader);
    }
    return NXL_OK;
}

enum nxl_code nxl_record_decode(struct nxl_view bytes, struct nxl_record *ret, struct nxl_err *err)
{
    struct nxl_reader reader;
    uint16_t minor = 0;
    enum nxl_code code = check_envelope(bytes, &minor, err);

    if (code != NXL_OK)
        return code;
    reader = nxl_reader_of((const unsigned char *)bytes.data + HEAD_SIZE,
                           bytes.size - HEAD_SIZE - DIGEST_SIZE);
    ret->flags = nxl_reader_u32(&reader);
    if (reader.bad)
        return nxl_err_set(err, NXL_MISMATCH, 0, "record: flags are cut off");
    code = read_texts(&reader, ret, err);
    if (code == NXL_OK)
        code = read_regions(&reader, ret, err);
    if (code != NXL_OK)
        return code;
    if (minor <= MINOR && nxl_reader_left(&reader) != 0)
        return nxl_err_set(err, NXL_MISMATCH, 0, "record: %zu bytes are left after the regions",
                           nxl_reader_left(&reader));
    return check(ret, NXL_MISMATCH, err);
}
