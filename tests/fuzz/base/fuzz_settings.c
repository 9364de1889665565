/* fuzz_settings.c - any bytes as a settings file: taken whole or refused with a sentence that names
 * the file; never half. */
#include "base/assert.h"
#include "base/log.h"
#include "unit/base/option_table.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void assert_defaults(struct nxl_settings *settings)
{
    NXL_ASSERT(strcmp(nxl_settings_text(settings, "name"), "node") == 0);
    NXL_ASSERT(strcmp(nxl_settings_text(settings, "store.url"), "none") == 0);
    NXL_ASSERT(nxl_settings_number(settings, "store.timeout") == 500000000);
    NXL_ASSERT(nxl_settings_number(settings, "link.port") == 7741);
    NXL_ASSERT(nxl_settings_number(settings, "link.window_size") == 1 << 20);
    NXL_ASSERT(nxl_settings_number(settings, "backends.ucx.workers") == 1);
}

static void assert_ranges(struct nxl_settings *settings)
{
    int64_t timeout = nxl_settings_number(settings, "store.timeout");
    int64_t port = nxl_settings_number(settings, "link.port");

    NXL_ASSERT(timeout >= 1000000 && timeout <= 60000000000);
    NXL_ASSERT(port >= 0 && port <= 65535);
    NXL_ASSERT(nxl_settings_number(settings, "link.window_size") >= 4096);
    NXL_ASSERT(nxl_settings_number(settings, "link.min-path") <= 2);
    NXL_ASSERT(strlen(nxl_settings_text(settings, "name")) <= 4095);
    (void)nxl_settings_bool(settings, "store.tls");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct nxl_settings *settings = table_settings();
    struct nxl_err err = {0};
    enum nxl_code code =
        nxl_settings_parse_yaml(settings, "fuzz.yaml", (struct nxl_view){data, size}, &err);

    if (code == NXL_OK) {
        assert_ranges(settings);
    } else {
        NXL_ASSERT(code == NXL_CONFIG && err.code == NXL_CONFIG);
        NXL_ASSERT(strncmp(err.text, "fuzz.yaml:", 10) == 0);
        assert_defaults(settings);
    }
    nxl_settings_free(settings);
    return 0;
}
