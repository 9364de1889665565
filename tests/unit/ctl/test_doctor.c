/* test_doctor.c - the pure halves of doctor: who listens, what UCX names; and the table of ports.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <nxl/ports.h>

#include "ctl/doctor.h"

static const char tcp[] = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when "
                          "retrnsmt   uid  timeout inode\n"
                          "   0: 00000000:1E3D 00000000:0000 0A 00000000:00000000 00:00000000 "
                          "00000000     0        0 12345 1 0 100 0 0 10 0\n"
                          "   1: 0100007F:1E3E 0100007F:D000 01 00000000:00000000 00:00000000 "
                          "00000000  1000        0 22222 1 0 20 4 30 10 -1\n"
                          "   2: 0100007F:1E3F 00000000:0000 0A 00000000:00000000 00:00000000 "
                          "00000000  1000        0 18446744073709551615 1\n"
                          "   3: 0100007F:1E3F 00000000:0000 0A 00000000:00000000 00:00000000 "
                          "00000000  1000        0 4 1\n";
static const char tcp6[] =
    "  sl  local_address                         remote_address                        st tx_queue "
    "rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    "   0: 00000000000000000000000000000000:1E40 00000000000000000000000000000000:0000 0A "
    "00000000:00000000 00:00000000 00000000     0        0 777 1 0 100 0 0 10 0\n";

static void listeners_are_found_by_port_and_state(void **state)
{
    unsigned long long inode = 1;

    assert_int_equal(doctor_listeners(tcp, 7741, &inode), 1);
    assert_int_equal(inode, 12345);
    inode = 1;
    assert_int_equal(doctor_listeners(tcp, 7742, &inode), 0); /* connected, does not listen */
    assert_int_equal(inode, 1);
    assert_int_equal(doctor_listeners(tcp, 7743, &inode), 2);
    assert_true(inode == UINT64_MAX);
    assert_int_equal(doctor_listeners(tcp6, 7744, &inode), 1);
    assert_int_equal(inode, 777);
    assert_int_equal(doctor_listeners("", 7741, &inode), 0);
    assert_int_equal(doctor_listeners("x\n\n 0: zz\n   0: 00000000:1E3D", 7741, &inode), 0);
}

static void transports_are_read_from_what_ucx_prints(void **state)
{
    static const char text[] = "#\n# UCP context\n#\n#     component 0  :  self\n#            md 0 "
                               " :  component 0  self \n#\n"
                               "#      resource 0  :  md 0  dev 0  flags -- self/memory0\n"
                               "#      resource 1  :  md 1  dev 1  flags -- tcp/eth0\n#\n";
    char names[64], little[8];

    doctor_ucx_resources(text, names, sizeof(names));
    assert_string_equal(names, "self/memory0 tcp/eth0");
    doctor_ucx_resources(text, little, sizeof(little)); /* cut, terminated */
    assert_string_equal(little, "self/me");
    doctor_ucx_resources("", names, sizeof(names));
    assert_string_equal(names, "");
}

static void default_ports_do_not_clash(void **state)
{
#define PORT(name, number, program, setting, about) number,
    static const unsigned ports[] = {NXL_PORTS(PORT)};
#undef PORT

    assert_int_equal(sizeof(ports) / sizeof(ports[0]), 4);
    for (size_t i = 0; i < 4; i++) {
        assert_in_range(ports[i], 1024, 32767); /* below what the kernel gives away by itself */
        for (size_t k = 0; k < i; k++)
            assert_int_not_equal(ports[i], ports[k]);
    }
    assert_int_equal(NXL_PORT_LINK, 7741);
    assert_int_equal(NXL_PORT_AGENT_HTTP, 7742);
    assert_int_equal(NXL_PORT_STREAM, 7743);
    assert_int_equal(NXL_PORT_OPERATOR_HTTP, 7744);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(listeners_are_found_by_port_and_state),
        cmocka_unit_test(transports_are_read_from_what_ucx_prints),
        cmocka_unit_test(default_ports_do_not_clash),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
