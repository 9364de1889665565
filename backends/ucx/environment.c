/* environment.c - reads /proc/self/maps and the environment. Loop thread, at open. */
#include "environment.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

extern char **environ;

static void text_add(char *text, size_t size, const char *more)
{
    size_t used = strlen(text);

    if (used + 1 < size)
        (void)snprintf(text + used, size - used, "%s%s", used > 0 ? " " : "", more);
}

/* The file name in a line of maps, if it is a libucs: NIXL's wheels rename it to libucs-<hash>.so.
 */
static const char *maps_libucs(char *line, char **ret_identity)
{
    char *path = strchr(line, '/');
    char *name, *cursor = line;

    if (path == NULL)
        return NULL;
    path[strcspn(path, "\n")] = '\0';
    name = strrchr(path, '/') + 1;
    if (strncmp(name, "libucs", 6) != 0 || strstr(name, ".so") == NULL)
        return NULL;
    for (unsigned field = 0; field < 3;
         field++) { /* range, rights, offset; then device and inode */
        cursor = strchr(cursor, ' ');
        if (cursor == NULL)
            return NULL;
        cursor++;
    }
    *ret_identity = cursor;
    return path;
}

unsigned ucx_environment_copies(char *paths, size_t size)
{
    char line[4096], seen[8][64];
    unsigned count = 0;
    FILE *maps = fopen("/proc/self/maps", "re");

    paths[0] = '\0';
    if (maps == NULL)
        return 0;
    while (fgets(line, sizeof(line), maps) != NULL && count < 8) {
        char *identity = NULL;
        const char *path = maps_libucs(line, &identity);
        unsigned i = 0;
        size_t length;

        if (path == NULL)
            continue;
        length = strcspn(identity, "/");
        if (length >= sizeof(seen[0]))
            length = sizeof(seen[0]) - 1;
        while (i < count && strncmp(seen[i], identity, length) != 0)
            i++;
        if (i < count)
            continue;
        memcpy(seen[count], identity, length);
        seen[count++][length] = '\0';
        text_add(paths, size, path);
    }
    (void)fclose(maps);
    return count;
}

unsigned ucx_environment_variables(char *text, size_t size)
{
    unsigned count = 0;

    text[0] = '\0';
    for (char **entry = environ; entry != NULL && *entry != NULL; entry++) {
        if (strncmp(*entry, "UCX_", 4) != 0)
            continue;
        count++;
        text_add(text, size, *entry);
    }
    return count;
}

int ucx_environment_rdma(void)
{
    DIR *folder = opendir("/sys/class/infiniband");
    struct dirent *entry;
    int found = 0;

    if (folder == NULL)
        return 0;
    while (!found && (entry = readdir(folder)) != NULL)
        found = entry->d_name[0] != '.';
    (void)closedir(folder);
    return found;
}
