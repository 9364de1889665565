/* record.h - who and where a peer is: the directory record in the store and the metadata blob are
 * the same bytes: magic, format version, length, fields, XXH64. Pure. A damaged, longer, shorter or
 * newer-major record is refused whole. */
#ifndef NXL_CLUSTER_RECORD_H
#define NXL_CLUSTER_RECORD_H

#include <nxl/err.h>
#include <nxl/types.h>

struct nxl_bytes;

#define NXL_RECORD_MAX 32768u /* bytes */
#define NXL_RECORD_REGIONS_MAX 1024u
#define NXL_RECORD_ADDRESS 1u /* says where and who: agent, node, address are set */
#define NXL_RECORD_FULL 2u    /* the live region table; region_count is 0 */
/* Neither FULL nor regions: an address-only blob. Regions: exactly those, additive at the loader.
 */

struct nxl_record {
    uint32_t flags;
    char ns[NXL_NAMESPACE_MAX + 1];
    char name[NXL_NAME_MAX + 1];
    char incarnation[NXL_INCARNATION_MAX + 1];
    char cluster[NXL_NAMESPACE_MAX + 1];
    char agent[NXL_INCARNATION_MAX + 1];
    char node[NXL_NODE_MAX + 1];
    char address[300];
    uint64_t revision;
    uint32_t region_count;
    struct nxl_record_region {
        uint64_t id, addr, len;
        uint32_t kind, device;
    } regions[NXL_RECORD_REGIONS_MAX];
};

NXL_MUST_USE enum nxl_code nxl_record_encode(const struct nxl_record *record, struct nxl_bytes *to,
                                             struct nxl_err *err);
/* NXL_MISMATCH with the field's name; *ret is then void. Names and incarnations are validated. */
NXL_MUST_USE enum nxl_code nxl_record_decode(struct nxl_view bytes, struct nxl_record *ret,
                                             struct nxl_err *err);

#endif
