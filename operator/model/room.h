/* room.h - memory for the model: zeroed, and the process stops when there is none. Inside model. */
#ifndef NXL_MODEL_ROOM_H
#define NXL_MODEL_ROOM_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline void *room_got(void *memory)
{
    if (memory == NULL) {
        fputs("out of memory\n", stderr);
        abort();
    }
    return memory;
}

static inline void *room_new(size_t size)
{
    return room_got(calloc(1, size));
}

static inline void *room_resize(void *memory, size_t count, size_t size)
{
    size_t bytes;

    if (__builtin_mul_overflow(count, size, &bytes))
        abort();
    return room_got(realloc(memory, bytes == 0 ? 1 : bytes));
}

static inline char *room_text(const char *text)
{
    return room_got(strdup(text));
}

/* FNV-1a over a text with its NUL, so that neighbours do not run into each other. */
static inline uint64_t room_hash(uint64_t hash, const char *text)
{
    do {
        hash = (hash ^ (unsigned char)*text) * 1099511628211ull;
    } while (*text++ != '\0');
    return hash;
}
#define ROOM_HASH_BEGIN 14695981039346656037ull

#endif
