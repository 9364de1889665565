/* identity.c - checks of names; pure, called by record, message users, trust and link. */
#include "cluster/identity.h"

#include <nxl/types.h>
#include <string.h>

static int is_word_char(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
}

int nxl_identity_is_label(const char *text, size_t max)
{
    size_t size = strlen(text);

    if (size == 0 || size > max)
        return 0;
    for (size_t i = 0; i < size; i++) {
        if (!is_word_char((unsigned char)text[i]))
            return 0;
    }
    return 1;
}

int nxl_identity_is_name(const char *text)
{
    size_t size = strlen(text);

    if (size == 0 || size > NXL_NAME_MAX)
        return 0;
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];

        if (c < 0x20 || c == 0x7f)
            return 0;
    }
    return 1;
}

int nxl_identity_is_incarnation(const char *text)
{
    size_t size = strlen(text);
    int after_slash = 1; /* so that a leading or a doubled slash is caught */

    if (size == 0 || size > NXL_INCARNATION_MAX)
        return 0;
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];

        if (c == '/') {
            if (after_slash)
                return 0;
            after_slash = 1;
            continue;
        }
        if (!is_word_char(c) && c != ':' && c != '@' && c != '+' && c != '=')
            return 0;
        after_slash = 0;
    }
    return !after_slash;
}

static int port_of(const char *text)
{
    int port = 0;

    if (*text == '\0' || strlen(text) > 5)
        return -1;
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9')
            return -1;
        port = port * 10 + (*text - '0');
    }
    return port <= 65535 ? port : -1;
}

int nxl_identity_split_address(const char *text, char *host, size_t room, int *ret_port)
{
    const char *start = text;
    const char *end;
    const char *colon = strrchr(text, ':');
    int port;

    if (colon == NULL)
        return -1;
    end = colon;
    if (*text == '[') {
        start = text + 1;
        end = colon - 1;
        if (end <= start || *end != ']')
            return -1;
    } else if (memchr(text, ':', (size_t)(colon - text)) != NULL) {
        return -1; /* a bare IPv6 address: where the port begins is a guess */
    }
    if (end <= start || (size_t)(end - start) >= room)
        return -1;
    for (const char *c = start; c < end; c++) {
        if (!is_word_char((unsigned char)*c) && !(*text == '[' && (*c == ':' || *c == '%')))
            return -1;
    }
    port = port_of(colon + 1);
    if (port < 0)
        return -1;
    memcpy(host, start, (size_t)(end - start));
    host[end - start] = '\0';
    *ret_port = port;
    return 0;
}

int nxl_identity_is_address(const char *text)
{
    char host[300];
    int port;

    return nxl_identity_split_address(text, host, sizeof(host), &port) == 0 && port > 0;
}

int nxl_identity_is_agent_of(const char *agent, const char *node)
{
    size_t size = strlen(node);

    return nxl_identity_is_incarnation(agent) && size > 0 && strncmp(agent, node, size) == 0 &&
           agent[size] == '/';
}

int nxl_identity_order(const char *node, const char *agent, const char *other_node,
                       const char *other_agent)
{
    int order = strcmp(node, other_node);

    return order != 0 ? order : strcmp(agent, other_agent);
}
