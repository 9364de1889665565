/* nixlet.h alone, as strict C11. Compiled only. */
#include <nixlet.h>

_Static_assert(sizeof(struct nxl_transfer_report) > 0, "complete");
