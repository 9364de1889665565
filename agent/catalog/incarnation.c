/* incarnation.c - the text form of an incarnation, "pod/container/session", and its prefixes. Pure.
 */
#include "catalog/peer.h"

#include <string.h>

int nxl_incarnation_covers(const char *prefix, const char *incarnation)
{
    size_t size = strlen(prefix);

    return size > 0 && strncmp(prefix, incarnation, size) == 0 &&
           (incarnation[size] == '\0' || incarnation[size] == '/');
}

static int component_char(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
}

int nxl_incarnation_valid(const char *text)
{
    size_t size = strnlen(text, NXL_INCARNATION_MAX + 1), in_component = 0;
    int components = 1;

    if (size > NXL_INCARNATION_MAX)
        return 0;
    for (size_t i = 0; i < size; i++) {
        if (text[i] != '/') {
            if (!component_char(text[i]))
                return 0;
            in_component++;
            continue;
        }
        if (in_component == 0 || ++components > 3)
            return 0;
        in_component = 0;
    }
    return in_component > 0;
}
