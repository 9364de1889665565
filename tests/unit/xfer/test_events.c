/* The engine has the event kinds of nixlet.h by number, because it does not include the client's
 * API. They are compared here, when this is compiled. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <nixlet.h>

#include "xfer/events.h"
#include "xfer/xfer.h"

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours)
SAME(XFER_EVENT_NOTICE, NXL_EVENT_NOTICE);
SAME(XFER_EVENT_PEER_DOWN, NXL_EVENT_PEER_DOWN);
SAME(XFER_EVENT_PEER_SUSPECT, NXL_EVENT_PEER_SUSPECT);
SAME(XFER_EVENT_PEER_NEW, NXL_EVENT_PEER_NEW);
SAME(XFER_EVENT_NOTICE_LOST, NXL_EVENT_NOTICE_LOST);
SAME(XFER_EVENT_REGION_LOST, NXL_EVENT_REGION_LOST);
SAME(NXL_XFER_MD_REGIONS, NXL_MD_REGIONS);
SAME(NXL_XFER_MD_ADDRESS, NXL_MD_ADDRESS);

/* The asserts above are the test; this one shows that they were compiled. */
static void the_engine_and_the_client_number_events_alike(void **state)
{
    assert_int_equal(XFER_EVENT_REGION_LOST, NXL_EVENT_REGION_LOST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_engine_and_the_client_number_events_alike),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
