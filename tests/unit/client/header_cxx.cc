// nixlet.h alone, as C++17. Compiled only.
#include <nixlet.h>

static_assert(sizeof(struct nxl_transfer_report) > 0, "complete");
