/* assert.c - the end of the program on our own bugs: one line with the place, then a core. */
#include "base/assert.h"
#include "base/log.h"

#include <stdlib.h>

_Noreturn void nxl_assert_failed(const char *expr, const char *file, int line)
{
    nxl_log_write(NXL_LOG_ERROR, "assert", "event=\"internal bug\" expr=%s file=%s line=%d",
                  nxl_quote(expr), file, line);
    abort();
}
