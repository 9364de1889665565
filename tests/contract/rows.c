/* rows.c - the backends that the contract suite runs over: one row each. */
#include "contract/rig.h"

#include <string.h>

static const struct rig_row rows[] = {
    {.name = "null", .moves = 0, .again = "queue=4"},
    {.name = "shm", .moves = 1, .fair = 1, .again = "queue=4"},
    /* Its own queue bounds nothing that the suite could reach. */
    {.name = "ucx", .moves = 1},
};

const struct rig_row *rig_row_find(const char *name)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    return NULL;
}
