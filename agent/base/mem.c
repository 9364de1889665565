/* mem.c - small allocations that end the program when there is no memory. Any thread. */
#include "base/mem.h"
#include "base/assert.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *nxl_new0(size_t size)
{
    void *ptr = calloc(1, size ? size : 1);

    NXL_ASSERT(ptr != NULL);
    return ptr;
}

static size_t product(size_t count, size_t size)
{
    size_t total = 0;

    NXL_ASSERT(size > 0 && !__builtin_mul_overflow(count, size, &total));
    return total;
}

void *nxl_new0_array(size_t count, size_t size)
{
    return nxl_new0(product(count, size));
}

void *nxl_resize(void *ptr, size_t count, size_t size)
{
    size_t total = product(count, size);

    /* Never zero bytes: realloc would free and the caller could not tell. */
    ptr = realloc(ptr, total ? total : 1);
    NXL_ASSERT(ptr != NULL);
    return ptr;
}

char *nxl_strdup(const char *text)
{
    char *copy = strdup(text);

    NXL_ASSERT(copy != NULL);
    return copy;
}

char *nxl_format(const char *fmt, ...)
{
    char *text = NULL;
    va_list args;
    int length;

    va_start(args, fmt);
    length = vasprintf(&text, fmt, args);
    va_end(args);
    NXL_ASSERT(length >= 0);
    return text;
}

void nxl_freep(void *pointer_to_pointer)
{
    void *ptr;

    memcpy(&ptr, pointer_to_pointer, sizeof(ptr));
    free(ptr);
    memset(pointer_to_pointer, 0, sizeof(ptr));
}

int nxl_copy_text(char *to, size_t size, const char *from)
{
    size_t length = strlen(from);

    NXL_ASSERT(size > 0);
    if (length < size) {
        memcpy(to, from, length + 1);
        return 0;
    }
    memcpy(to, from, size - 1);
    to[size - 1] = '\0';
    return -1;
}
