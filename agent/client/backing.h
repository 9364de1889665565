/* backing.h - finds the file behind memory of this process, so that an agent can map it too.
 * One scan serves many ranges. Not locked: a scan belongs to one call. */
#ifndef NXL_CLIENT_BACKING_H
#define NXL_CLIENT_BACKING_H

#include <nxl/err.h>
#include <nxl/types.h>

struct nxl_backing { /* a file, held open while regions refer to it */
    struct nxl_backing *next;
    uint64_t dev, ino;
    int fd; /* owned; read and write */
    uint32_t refs;
};

struct nxl_backing_scan; /* /proc/self/maps and the files found so far */

/* *list: the files known already; found ones are added, with refs counted per range. */
struct nxl_backing_scan *nxl_backing_scan_new(struct nxl_backing **list);
void nxl_backing_scan_free(struct nxl_backing_scan *scan);
/* NXL_NOT_SUPPORTED: private memory, or the file cannot be reached. NXL_NOT_ALLOWED: a memfd that
 * may shrink. NXL_INVALID_PARAM: not mapped, or past the file's end. Gives one ref. */
NXL_MUST_USE enum nxl_code nxl_backing_find(struct nxl_backing_scan *scan, uint64_t addr,
                                            uint64_t len, struct nxl_backing **ret,
                                            uint64_t *ret_offset, struct nxl_err *err);
void nxl_backing_ref(struct nxl_backing *backing);
void nxl_backing_unref(struct nxl_backing **list, struct nxl_backing *backing);

#endif
