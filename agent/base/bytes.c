/* bytes.c - the growing buffer and the bounds-checked reader. Used by whoever builds or takes apart
 * a message; no thread of its own. */
#include "base/bytes.h"
#include "base/assert.h"
#include "base/mem.h"

#include <endian.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_FIRST_ROOM 64u

void nxl_bytes_fini(struct nxl_bytes *bytes)
{
    free(bytes->data);
    *bytes = (struct nxl_bytes){0};
}

void nxl_bytes_clear(struct nxl_bytes *bytes)
{
    bytes->size = 0;
}

void *nxl_bytes_grow(struct nxl_bytes *bytes, size_t more)
{
    size_t room = bytes->room ? bytes->room : BYTES_FIRST_ROOM;

    NXL_ASSERT(more <= SIZE_MAX / 2 - bytes->size);
    if (!bytes->data || bytes->room - bytes->size < more) {
        while (room - bytes->size < more)
            room *= 2;
        bytes->data = nxl_resize(bytes->data, room, 1);
        bytes->room = room;
    }
    return bytes->data + bytes->size;
}

void nxl_bytes_put(struct nxl_bytes *bytes, const void *data, size_t size)
{
    void *to = nxl_bytes_grow(bytes, size);

    if (size > 0)
        memcpy(to, data, size);
    bytes->size += size;
}

void nxl_bytes_put_u8(struct nxl_bytes *bytes, uint8_t value)
{
    nxl_bytes_put(bytes, &value, sizeof(value));
}

void nxl_bytes_put_u16(struct nxl_bytes *bytes, uint16_t value)
{
    value = htole16(value);
    nxl_bytes_put(bytes, &value, sizeof(value));
}

void nxl_bytes_put_u32(struct nxl_bytes *bytes, uint32_t value)
{
    value = htole32(value);
    nxl_bytes_put(bytes, &value, sizeof(value));
}

void nxl_bytes_put_u64(struct nxl_bytes *bytes, uint64_t value)
{
    value = htole64(value);
    nxl_bytes_put(bytes, &value, sizeof(value));
}

void nxl_bytes_put_text(struct nxl_bytes *bytes, const char *text)
{
    size_t length = strlen(text);

    NXL_ASSERT(length <= UINT16_MAX);
    nxl_bytes_put_u16(bytes, (uint16_t)length);
    nxl_bytes_put(bytes, text, length);
}

void nxl_bytes_put_view(struct nxl_bytes *bytes, struct nxl_view view)
{
    NXL_ASSERT(view.size <= UINT32_MAX);
    nxl_bytes_put_u32(bytes, (uint32_t)view.size);
    nxl_bytes_put(bytes, view.data, view.size);
}

void nxl_bytes_printf(struct nxl_bytes *bytes, const char *fmt, ...)
{
    va_list args, again;
    size_t room;
    int length;

    va_start(args, fmt);
    va_copy(again, args);
    (void)nxl_bytes_grow(bytes, 1);
    room = bytes->room - bytes->size;
    length = vsnprintf((char *)bytes->data + bytes->size, room, fmt, args);
    NXL_ASSERT(length >= 0);
    if ((size_t)length >= room) {
        char *to = nxl_bytes_grow(bytes, (size_t)length + 1);

        (void)vsnprintf(to, (size_t)length + 1, fmt, again); /* same length as measured */
    }
    bytes->size += (size_t)length;
    va_end(again);
    va_end(args);
}

void nxl_bytes_drop(struct nxl_bytes *bytes, size_t size)
{
    NXL_ASSERT(size <= bytes->size);
    bytes->size -= size;
    if (size > 0 && bytes->size > 0)
        memmove(bytes->data, bytes->data + size, bytes->size);
}

struct nxl_reader nxl_reader_of(const void *data, size_t size)
{
    return (struct nxl_reader){.data = data, .size = size};
}

/* The next size bytes, or NULL and bad for good. */
static const void *reader_take(struct nxl_reader *reader, size_t size)
{
    const unsigned char *at;

    if (reader->bad || size > reader->size - reader->pos) {
        reader->bad = 1;
        return NULL;
    }
    at = reader->data ? reader->data + reader->pos : (const unsigned char *)"";
    reader->pos += size;
    return at;
}

uint8_t nxl_reader_u8(struct nxl_reader *reader)
{
    const unsigned char *at = reader_take(reader, 1);

    return at ? *at : 0;
}

uint16_t nxl_reader_u16(struct nxl_reader *reader)
{
    const void *at = reader_take(reader, sizeof(uint16_t));
    uint16_t value = 0;

    if (at)
        memcpy(&value, at, sizeof(value));
    return le16toh(value);
}

uint32_t nxl_reader_u32(struct nxl_reader *reader)
{
    const void *at = reader_take(reader, sizeof(uint32_t));
    uint32_t value = 0;

    if (at)
        memcpy(&value, at, sizeof(value));
    return le32toh(value);
}

uint64_t nxl_reader_u64(struct nxl_reader *reader)
{
    const void *at = reader_take(reader, sizeof(uint64_t));
    uint64_t value = 0;

    if (at)
        memcpy(&value, at, sizeof(value));
    return le64toh(value);
}

void nxl_reader_text(struct nxl_reader *reader, char *to, size_t room)
{
    size_t length = nxl_reader_u16(reader);
    const char *at = reader_take(reader, length);

    NXL_ASSERT(room > 0);
    to[0] = '\0';
    if (!at)
        return;
    if (length >= room || (length > 0 && memchr(at, '\0', length))) {
        reader->bad = 1;
        return;
    }
    memcpy(to, at, length);
    to[length] = '\0';
}

struct nxl_view nxl_reader_view(struct nxl_reader *reader)
{
    size_t size = nxl_reader_u32(reader);
    const void *at = reader_take(reader, size);

    return (struct nxl_view){.data = at, .size = at ? size : 0};
}

size_t nxl_reader_left(const struct nxl_reader *reader)
{
    return reader->bad ? 0 : reader->size - reader->pos;
}
