/* bytes.h - a growing buffer with a read cursor, and bounds-checked little-endian access.
 * Readers never overrun: after the first short read `bad` stays set and reads give zeros. */
#ifndef NXL_BASE_BYTES_H
#define NXL_BASE_BYTES_H

#include <nxl/types.h>

struct nxl_bytes {
    unsigned char *data;
    size_t size, room;
};
void nxl_bytes_fini(struct nxl_bytes *bytes); /* zeroed memory is a valid empty buffer */
void nxl_bytes_clear(struct nxl_bytes *bytes);
void *nxl_bytes_grow(struct nxl_bytes *bytes, size_t more); /* room for more; returns the end */
void nxl_bytes_put(struct nxl_bytes *bytes, const void *data, size_t size);
void nxl_bytes_put_u8(struct nxl_bytes *bytes, uint8_t value);
void nxl_bytes_put_u16(struct nxl_bytes *bytes, uint16_t value);
void nxl_bytes_put_u32(struct nxl_bytes *bytes, uint32_t value);
void nxl_bytes_put_u64(struct nxl_bytes *bytes, uint64_t value);
void nxl_bytes_put_text(struct nxl_bytes *bytes, const char *text);     /* u16 length + bytes */
void nxl_bytes_put_view(struct nxl_bytes *bytes, struct nxl_view view); /* u32 length + bytes */
void nxl_bytes_printf(struct nxl_bytes *bytes, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void nxl_bytes_drop(struct nxl_bytes *bytes, size_t size); /* from the front */

struct nxl_reader {
    const unsigned char *data;
    size_t size, pos;
    int bad;
};
struct nxl_reader nxl_reader_of(const void *data, size_t size);
uint8_t nxl_reader_u8(struct nxl_reader *reader);
uint16_t nxl_reader_u16(struct nxl_reader *reader);
uint32_t nxl_reader_u32(struct nxl_reader *reader);
uint64_t nxl_reader_u64(struct nxl_reader *reader);
/* Copies a u16-length text; sets bad if longer than room - 1 or if it holds a NUL. */
void nxl_reader_text(struct nxl_reader *reader, char *to, size_t room);
struct nxl_view nxl_reader_view(struct nxl_reader *reader); /* u32 length + bytes; lent */
size_t nxl_reader_left(const struct nxl_reader *reader);

#endif
