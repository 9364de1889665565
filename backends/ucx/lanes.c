/* lanes.c - finds out which transport an endpoint really uses, from what UCX prints of it: its
 * query call names transports only in later versions. Progress thread. */
#include "ucx.h"

#include "status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Interned: outcomes carry the pointer and outlive the connection. */
struct ucx_name {
    struct ucx_name *next;
    char text[];
};

static const char *name_intern(struct nxl_backend *backend, const char *text)
{
    struct ucx_name *name;
    size_t size = strlen(text) + 1;

    for (name = backend->own.names; name != NULL; name = name->next)
        if (strcmp(name->text, text) == 0)
            return name->text;
    name = malloc(sizeof(*name) + size);
    if (name == NULL)
        return "unknown";
    memcpy(name->text, text, size);
    name->next = backend->own.names;
    backend->own.names = name;
    return name->text;
}

void ucx_lanes_free(struct nxl_backend *backend)
{
    while (backend->own.names != NULL) {
        struct ucx_name *name = backend->own.names;

        backend->own.names = name->next;
        free(name);
    }
}

/* "#  lane[0]:  1:tcp/lo.0 md[0] -> ... am am_bw#0": the resource without its ".0"; where is its
 * rest. */
static char *lane_resource(char *line, char **ret_rest)
{
    char *at = strstr(line, "lane["), *end;

    if (at == NULL || (at = strchr(at, ':')) == NULL || (at = strchr(at + 1, ':')) == NULL)
        return NULL;
    at++;
    end = at + strcspn(at, " \n");
    *ret_rest = end;
    if (*end != '\0') {
        *end = '\0';
        *ret_rest = end + 1;
    }
    end = strrchr(at, '.');
    if (end != NULL)
        *end = '\0';
    return *at ? at : NULL;
}

static void lanes_parse(struct nxl_backend_conn *conn, char *text)
{
    const char *best = NULL;
    char *rest = NULL, *after;
    int best_rank = 0;

    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        char *resource = lane_resource(line, &after);
        int rank;

        if (resource == NULL)
            continue;
        /* Puts and gets take an rma lane if there is one; everything else goes by active messages.
         */
        rank = strstr(after, " rma#") || strstr(after, " rma ") ? 3 : strstr(after, " am ") ? 2 : 1;
        if (rank > best_rank) {
            best = resource;
            best_rank = rank;
        }
    }
    conn->own.device = name_intern(conn->backend, best ? best : "unknown");
    conn->own.path = ucx_status_path(conn->own.device);
}

void ucx_lanes_read(struct nxl_backend_conn *conn)
{
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);

    conn->own.device = "unknown";
    conn->own.path = NXL_PATH_TCP;
    if (stream == NULL)
        return;
    conn->backend->lib.ucp_ep_print_info(conn->own.ep, stream);
    if (fclose(stream) == 0 && text != NULL)
        lanes_parse(conn, text);
    free(text);
}
