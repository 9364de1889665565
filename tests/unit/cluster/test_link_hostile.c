/* test_link_hostile.c - strangers at the link's port, and far sides that do not keep to the
 * protocol. */
#include "link_rig.h"

#include "base/fd.h"
#include "cluster/link_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct rig {
    struct nxl_loop *loop;
    struct side a, b;
    struct nxl_bytes out, in;
    struct nxl_message_decoder *decoder;
    struct nxl_message got;
};

static int rig_open(void **state)
{
    struct rig *rig = nxl_new0(sizeof(*rig));
    struct nxl_err err;

    assert_int_equal(nxl_loop_open(&rig->loop, &err), NXL_OK);
    side_open(&rig->a, rig->loop, "node-a", "node-a/boot/1", "link.connect_timeout", "300ms",
              SETTINGS_END);
    rig->decoder = nxl_message_decoder_new();
    *state = rig;
    return 0;
}

static int rig_close(void **state)
{
    struct rig *rig = *state;

    side_close(&rig->a);
    if (rig->b.links != NULL)
        side_close(&rig->b);
    nxl_bytes_fini(&rig->out);
    nxl_bytes_fini(&rig->in);
    nxl_message_decoder_free(rig->decoder);
    nxl_loop_close(rig->loop);
    free(rig);
    return 0;
}

static int64_t failures(struct rig *rig, const char *reason)
{
    char label[64];

    (void)snprintf(label, sizeof(label), "reason=\"%s\"", reason);
    return side_metric(&rig->a, "nixlet_link_handshake_failures_total", label);
}

/* The next frame of type (others, such as pings, are passed over); 0 if the connection ended. */
static int frame_of(struct rig *rig, int fd, unsigned type)
{
    struct nxl_err err;

    while (raw_frame(rig->loop, fd, &rig->in) == 1) {
        assert_int_equal(nxl_message_decode(rig->decoder,
                                            (struct nxl_view){rig->in.data, rig->in.size},
                                            &rig->got, &err),
                         NXL_OK);
        if (rig->got.type == type)
            return 1;
    }
    return 0;
}

static void say(struct rig *rig, int fd, const struct nxl_message *message)
{
    struct nxl_err err;

    nxl_bytes_clear(&rig->out);
    assert_int_equal(nxl_message_encode(message, &rig->out, &err), NXL_OK);
    raw_send(fd, rig->out.data, rig->out.size);
}

static void say_hello(struct rig *rig, int fd, unsigned min, unsigned max, const char *cluster,
                      const char *node, const char *agent)
{
    nxl_bytes_clear(&rig->out);
    raw_hello(&rig->out, min, max, cluster, node, agent);
    raw_send(fd, rig->out.data, rig->out.size);
}

static int greeted(struct rig *rig, const char *agent)
{
    int fd = raw_connect(side_port(&rig->a));

    say_hello(rig, fd, 1, 1, "kl", "node-s", agent);
    assert_true(frame_of(rig, fd, NXL_MESSAGE_HELLO));
    assert_int_equal(rig->got.version_max, NXL_MESSAGE_VERSION_MAX);
    return fd;
}

/* The agent still serves somebody who behaves. */
static void assert_alive(struct rig *rig)
{
    side_open(&rig->b, rig->loop, "node-b", "node-b/boot/1", SETTINGS_END);
    (void)side_dial(&rig->b, nxl_links_address(rig->a.links), NULL);
    WAIT(rig->loop, side_is_up(&rig->a, &rig->b) && side_is_up(&rig->b, &rig->a));
}

/* ---- before the hello --------------------------------------------------------------------- */

static void first_bytes_that_are_no_hello_end_the_connection(void **state)
{
    static const struct {
        const char *bytes;
        size_t size;
    } rows[] = {
        {"GET / HTTP/1.1\r\n\r\n", 18},
        {"\0\0\0\0", 4},                        /* empty frame */
        {"\1\0\0\0x", 5},                       /* no room for a type */
        {"\xff\xff\xff\xff\1\0", 6},            /* 4 GiB */
        {"\0\0\1\0\1\0", 6},                    /* one byte above what a first frame may have */
        {"\2\0\0\0\1\0", 6},                    /* HELLO, cut off */
        {"\2\0\0\0\0\0", 6},                    /* type 0 */
        {"\x12\0\0\0\2\0aaaaaaaabbbbbbbb", 22}, /* PING before HELLO */
        {"\2\0\0\0\xff\xff", 6},                /* type 65535 */
    };
    struct rig *rig = *state;

    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        int64_t before = failures(rig, "malformed");
        int fd = raw_connect(side_port(&rig->a));

        raw_send(fd, rows[i].bytes, rows[i].size);
        if (!raw_ended(rig->loop, fd))
            fail_msg("row %zu was not ended", i);
        assert_int_equal(failures(rig, "malformed"), before + 1);
        (void)close(fd);
    }
    assert_int_equal(rig->a.ups, 0);
    assert_alive(rig);
}

static void random_bytes_harm_nobody(void **state)
{
    struct rig *rig = *state;

    for (int round = 0; round < 200; round++) {
        unsigned char bytes[512];
        int fd = round % 2 ? raw_connect(side_port(&rig->a)) : greeted(rig, "node-s/boot/1");
        uint32_t size = sizeof(bytes) - 4;

        nxl_random(bytes, sizeof(bytes));
        if (round % 4 > 1) { /* a right size, so that the decoder sees the rest */
            memcpy(bytes, &size, 4);
            bytes[4] = (unsigned char)(round % 15);
            bytes[5] = 0;
        }
        raw_send(fd, bytes, sizeof(bytes));
        rig_turn(rig->loop);
        (void)close(fd);
    }
    assert_alive(rig);
}

static void a_stranger_who_says_nothing_is_ended_in_time(void **state)
{
    struct rig *rig = *state;
    int fd = raw_connect(side_port(&rig->a));
    uint64_t start = nxl_now_ns();

    assert_true(raw_ended(rig->loop, fd));
    assert_true(nxl_now_ns() - start >= 250 * NXL_MS);
    assert_int_equal(failures(rig, "timeout"), 1);
    (void)close(fd);
}

/* Byte by byte: the time limit is for the whole handshake, not for each byte. */
static void a_stranger_who_trickles_is_ended_in_time(void **state)
{
    struct rig *rig = *state;
    int fd = raw_connect(side_port(&rig->a));
    uint64_t end = nxl_now_ns() + 5 * NXL_SEC;
    size_t sent = 0;

    raw_hello(&rig->out, 1, 1, "kl", "node-s", "node-s/boot/1");
    while (failures(rig, "timeout") == 0 && nxl_now_ns() < end) {
        if (sent + 1 < rig->out.size)
            raw_send(fd, rig->out.data + sent++, 1);
        rig_turn(rig->loop);
        rig_run(rig->loop, 10 * NXL_MS);
    }
    assert_int_equal(failures(rig, "timeout"), 1);
    assert_true(raw_ended(rig->loop, fd));
    (void)close(fd);
}

static void many_silent_strangers_are_bounded_and_others_get_in(void **state)
{
    static int fds[LINK_HALF_OPEN_MAX + 100];
    struct rig *rig = *state;
    uint32_t most = 0;

    for (size_t i = 0; i < NXL_COUNT_OF(fds); i++) {
        fds[i] = raw_connect(side_port(&rig->a));
        rig_turn(rig->loop);
        if (rig->a.links->half_open > most)
            most = rig->a.links->half_open;
    }
    assert_true(most <= LINK_HALF_OPEN_MAX);
    assert_alive(rig); /* when the first ones timed out */
    for (size_t i = 0; i < NXL_COUNT_OF(fds); i++)
        (void)close(fds[i]);
}

/* ---- the hello ---------------------------------------------------------------------------- */

/* C-029: no common version. Both ranges are printed, on both sides. */
static void a_dialler_of_another_version_is_told_both_ranges(void **state)
{
    struct rig *rig = *state;
    int fd = raw_connect(side_port(&rig->a));

    say_hello(rig, fd, 9, 11, "kl", "node-s", "node-s/boot/1");
    assert_true(frame_of(rig, fd, NXL_MESSAGE_HELLO)); /* our range, for a reader of any version */
    assert_true(frame_of(rig, fd, NXL_MESSAGE_BYE));
    assert_int_equal(rig->got.code, NXL_VERSION);
    assert_non_null(strstr(rig->got.text, "9 to 11"));
    assert_non_null(strstr(rig->got.text, "1 to 1"));
    assert_true(raw_ended(rig->loop, fd));
    assert_int_equal(failures(rig, "version"), 1);
    (void)close(fd);
}

/* C-029: the same when we dialled. A hello of a far version may look different after the range. */
static void a_far_agent_of_another_version_is_refused_with_both_ranges(void **state)
{
    static const unsigned char hello[] = {8, 0, 0, 0, 1, 0, 7, 0, 8, 0, 0xff, 0xff};
    struct rig *rig = *state;
    char address[64];
    int port, fd = -1, listener = raw_listen(&port);

    (void)snprintf(address, sizeof(address), "127.0.0.1:%d", port);
    (void)side_dial(&rig->a, address, NULL);
    WAIT(rig->loop, (fd = accept(listener, NULL, NULL)) >= 0);
    assert_true(frame_of(rig, fd, NXL_MESSAGE_HELLO)); /* the dialling side speaks first */
    raw_send(fd, hello, sizeof(hello));
    WAIT(rig->loop, rig->a.downs > 0);
    assert_non_null(strstr(rig->a.why, "7 to 8"));
    assert_non_null(strstr(rig->a.why, "1 to 1"));
    assert_int_equal(failures(rig, "version"), 1);
    assert_int_equal(rig->a.gones, 0); /* it may be upgraded: dialled again */
    (void)close(fd);
    (void)close(listener);
}

/* A wider range that overlaps is fine (C-029: minor works). */
static void an_overlapping_range_is_fine(void **state)
{
    struct rig *rig = *state;
    int fd = raw_connect(side_port(&rig->a));

    say_hello(rig, fd, 0, 7, "kl", "node-s", "node-s/boot/1");
    assert_true(frame_of(rig, fd, NXL_MESSAGE_HELLO));
    WAIT(rig->loop, rig->a.ups == 1);
    (void)close(fd);
}

static void wrong_names_in_a_hello_are_refused_with_the_reason(void **state)
{
    static const struct {
        const char *cluster, *node, *agent, *word;
    } rows[] = {
        {"other", "node-s", "node-s/boot/1", "cluster"},
        {"kl", "node-s", "node-t/boot/1", "node"},
        {"kl", "", "/boot/1", "node"},
        {"kl", "no de", "no de/1", "node"},
        {"kl", "node-s", "node-s", "node"},
        {"kl", "node-a", "node-a/boot/1", "itself"},
    };
    struct rig *rig = *state;

    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        int fd = raw_connect(side_port(&rig->a));

        say_hello(rig, fd, 1, 1, rows[i].cluster, rows[i].node, rows[i].agent);
        assert_true(frame_of(rig, fd, NXL_MESSAGE_BYE));
        if (rig->got.code == NXL_OK || strstr(rig->got.text, rows[i].word) == NULL)
            fail_msg("row %zu: code %d text '%s'", i, rig->got.code, rig->got.text);
        assert_true(raw_ended(rig->loop, fd));
        (void)close(fd);
    }
    assert_int_equal(rig->a.ups, 0);
}

/* Plaintext needs both sides' word, even from a far side that speaks plaintext. */
static void plaintext_without_consent_is_refused(void **state)
{
    struct rig *rig = *state;
    int fd = raw_connect(side_port(&rig->a));

    raw_hello(&rig->out, 1, 1, "kl", "node-s", "node-s/boot/1");
    rig->out.data[10] = 0; /* u32 size, u16 type, two u16 versions, then flags */
    raw_send(fd, rig->out.data, rig->out.size);
    assert_true(frame_of(rig, fd, NXL_MESSAGE_BYE));
    assert_non_null(strstr(rig->got.text, "consent"));
    assert_int_equal(failures(rig, "plaintext"), 1);
    (void)close(fd);
}

/* ---- after the hello ---------------------------------------------------------------------- */

static void a_malformed_frame_ends_the_connection_and_not_the_link(void **state)
{
    static const struct {
        const char *bytes;
        size_t size;
    } rows[] = {
        {"\2\0\0\0\0\0", 6},                            /* type 0 */
        {"\1\0\0\0x", 5},                               /* too short */
        {"\1\0\x20\0\2\0", 6},                          /* one byte above link.frame_max */
        {"\3\0\0\0\2\0x", 7},                           /* PING, cut off */
        {"\x0e\0\0\0\1\0\1\0\1\0\0\0\0\0\0\0\0\0", 18}, /* a second HELLO, cut off */
    };
    struct rig *rig = *state;

    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        int64_t before = side_metric(&rig->a, "nixlet_link_malformed_total", "");
        unsigned downs = rig->a.downs;
        int fd = greeted(rig, "node-s/boot/1");

        raw_send(fd, rows[i].bytes, rows[i].size);
        if (!raw_ended(rig->loop, fd))
            fail_msg("row %zu was not ended", i);
        assert_int_equal(side_metric(&rig->a, "nixlet_link_malformed_total", ""), before + 1);
        assert_true(rig->a.downs > downs);
        (void)close(fd);
    }
    assert_int_equal(rig->a.gones, 0);
    assert_alive(rig);
}

static void a_second_hello_ends_the_connection(void **state)
{
    struct rig *rig = *state;
    int fd = greeted(rig, "node-s/boot/1");

    say_hello(rig, fd, 1, 1, "kl", "node-s", "node-s/boot/2");
    assert_true(raw_ended(rig->loop, fd));
    assert_null(nxl_links_find(rig->a.links, "node-s/boot/2"));
    (void)close(fd);
}

/* Duplicates, old and far numbers: each at most once, and every one is answered. */
static void notice_numbers_are_taken_at_most_once(void **state)
{
    static const uint64_t numbers[] = {1, 1, 2, 1, 7, 7, 3, 8};
    struct nxl_message notice = {.type = NXL_MESSAGE_NOTICE, .incarnation = "x/y/z"};
    struct rig *rig = *state;
    int fd = greeted(rig, "node-s/boot/1");

    for (size_t i = 0; i < NXL_COUNT_OF(numbers); i++) {
        notice.sequence = notice.transfer = numbers[i];
        say(rig, fd, &notice);
    }
    do
        assert_true(frame_of(rig, fd, NXL_MESSAGE_NOTICE_ACK));
    while (rig->got.sequence != 8);
    assert_int_equal(rig->a.notices, 4);
    assert_int_equal(rig->a.transfers[0], 1);
    assert_int_equal(rig->a.transfers[1], 2);
    assert_int_equal(rig->a.transfers[2], 7);
    assert_int_equal(rig->a.transfers[3], 8);
    (void)close(fd);
    /* The same incarnation with the same numbers after a reconnect. */
    WAIT(rig->loop, rig->a.downs > 0);
    fd = greeted(rig, "node-s/boot/1");
    say(rig, fd, &notice);
    assert_true(frame_of(rig, fd, NXL_MESSAGE_NOTICE_ACK));
    assert_int_equal(rig->a.notices, 4);
    (void)close(fd);
}

static void answers_to_notices_that_were_never_sent_are_harmless(void **state)
{
    struct rig *rig = *state;
    int fd = greeted(rig, "node-s/boot/1");

    say(rig, fd,
        &(struct nxl_message){.type = NXL_MESSAGE_NOTICE_ACK, .sequence = 99, .code = NXL_LIMIT});
    say(rig, fd,
        &(struct nxl_message){.type = NXL_MESSAGE_NOTICE_ACK, .sequence = UINT64_MAX, .flags = 1});
    say(rig, fd,
        &(struct nxl_message){.type = NXL_MESSAGE_PONG, .sequence = 5, .at_ns = UINT64_MAX});
    say(rig, fd, &(struct nxl_message){.type = NXL_MESSAGE_PING, .sequence = 77, .at_ns = 5});
    assert_true(frame_of(rig, fd, NXL_MESSAGE_PONG));
    assert_int_equal(rig->got.sequence, 77);
    assert_int_equal(rig->a.ends, 0);
    (void)close(fd);
}

/* A refusal in the far side's words must not be read as success. */
static void an_answer_with_a_code_that_is_none_is_a_failure(void **state)
{
    struct rig *rig = *state;
    int fd = greeted(rig, "node-s/boot/1");

    WAIT(rig->loop, rig->a.ups == 1);
    side_notify(&rig->a, rig->a.up_link, 0);
    assert_true(frame_of(rig, fd, NXL_MESSAGE_NOTICE));
    say(rig, fd,
        &(struct nxl_message){
            .type = NXL_MESSAGE_NOTICE_ACK, .sequence = rig->got.sequence, .code = 5});
    WAIT(rig->loop, rig->a.ends == 1);
    assert_true(side_ended(&rig->a, 0, NXL_UNKNOWN));
    (void)close(fd);
}

#define T(name) cmocka_unit_test_setup_teardown(name, rig_open, rig_close)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(first_bytes_that_are_no_hello_end_the_connection),
        T(random_bytes_harm_nobody),
        T(a_stranger_who_says_nothing_is_ended_in_time),
        T(a_stranger_who_trickles_is_ended_in_time),
        T(many_silent_strangers_are_bounded_and_others_get_in),
        T(a_dialler_of_another_version_is_told_both_ranges),
        T(a_far_agent_of_another_version_is_refused_with_both_ranges),
        T(an_overlapping_range_is_fine),
        T(wrong_names_in_a_hello_are_refused_with_the_reason),
        T(plaintext_without_consent_is_refused),
        T(a_malformed_frame_ends_the_connection_and_not_the_link),
        T(a_second_hello_ends_the_connection),
        T(notice_numbers_are_taken_at_most_once),
        T(answers_to_notices_that_were_never_sent_are_harmless),
        T(an_answer_with_a_code_that_is_none_is_a_failure),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
