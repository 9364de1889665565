/* frame.c - the table of frames and fields, framing, digests, and the order of resource versions.
 * Pure; any thread. */
#include "stream/frame_internal.h"

#include "base/bytes.h"
#include "base/mem.h"

#include <string.h>
#define XXH_STATIC_LINKING_ONLY /* the size of a state on the stack */
#include <xxhash.h>

#define FIELD(key, form, max, required, member)                                                    \
    {                                                                                              \
        key, STREAM_##form, (max), (required), offsetof(struct nxl_stream_frame, member)           \
    }
#define SEQ FIELD("seq", U64, 0, 1, seq)
#define RV FIELD("rv", TEXT, NXL_STREAM_VERSION_TEXT_MAX, 0, rv)
#define PEERS FIELD("peers", MEMBERS, 0, 0, members)

static const struct stream_shape shapes[NXL_STREAM_TYPES] = {
    [NXL_STREAM_HELLO] = {"HELLO",
                          {FIELD("version", RANGE, 0, 1, version_min),
                           FIELD("node", TEXT, NXL_NODE_MAX, 1, node),
                           FIELD("agent", TEXT, NXL_INCARNATION_MAX, 1, agent),
                           FIELD("cluster", TEXT, NXL_NAMESPACE_MAX, 1, cluster),
                           FIELD("token", TEXT, NXL_STREAM_TOKEN_MAX, 0, token),
                           FIELD("seq", U64, 0, 0, seq),
                           FIELD("epoch", TEXT, NXL_STREAM_VERSION_TEXT_MAX, 0, epoch),
                           FIELD("csr", TEXT, NXL_STREAM_PEM_MAX, 0, csr)}},
    [NXL_STREAM_WELCOME] = {"WELCOME",
                            {FIELD("version", U32, 0, 1, version),
                             FIELD("operator", TEXT, NXL_NODE_MAX, 1, operator_id),
                             FIELD("epoch", TEXT, NXL_STREAM_VERSION_TEXT_MAX, 1, epoch),
                             FIELD("ping_ms", U32, 0, 1, ping_ms),
                             FIELD("cert", TEXT, NXL_STREAM_PEM_MAX, 0, cert),
                             FIELD("bundle", TEXT, NXL_STREAM_PEM_MAX, 0, bundle)}},
    [NXL_STREAM_REFUSE] = {"REFUSE",
                           {FIELD("code", I32, 0, 1, code),
                            FIELD("text", TEXT, NXL_STREAM_TEXT_MAX, 0, text)}},
    [NXL_STREAM_SNAPSHOT] = {"SNAPSHOT",
                             {FIELD("part", PART, 0, 1, part), FIELD("seq", U64, 0, 0, seq), RV,
                              FIELD("digest", HEX, 0, 0, digest), PEERS,
                              FIELD("policies", POLICIES, 0, 0, policies)}},
    [NXL_STREAM_DELTA] = {"DELTA", {SEQ, RV, PEERS, FIELD("dead", DEAD, 0, 0, members)}},
    [NXL_STREAM_POLICY] = {"POLICY", {SEQ, RV, FIELD("policies", POLICIES, 0, 0, policies)}},
    [NXL_STREAM_PING] = {"PING",
                         {SEQ, RV, FIELD("digest", HEX, 0, 1, digest),
                          FIELD("at_ns", U64, 0, 1, at_ns)}},
    [NXL_STREAM_PONG] = {"PONG",
                         {FIELD("at_ns", U64, 0, 1, at_ns), FIELD("digest", HEX, 0, 1, digest),
                          FIELD("seq", U64, 0, 0, seq)}},
    [NXL_STREAM_ACK] = {"ACK",
                        {SEQ, FIELD("purged", U32, 0, 0, purged), FIELD("us", U64, 0, 0, us)}},
    [NXL_STREAM_LOCAL] = {"LOCAL",
                          {FIELD("facts", MEMBERS, 0, 0, members),
                           FIELD("pods", PODS, 0, 0, pods)}},
    [NXL_STREAM_SUSPECT] = {"SUSPECT",
                            {FIELD("i", TEXT, NXL_INCARNATION_MAX, 0, id),
                             FIELD("node", TEXT, NXL_NODE_MAX, 0, node),
                             FIELD("evidence", TEXT, NXL_STREAM_TEXT_MAX, 0, text)}},
    [NXL_STREAM_GOAWAY] = {"GOAWAY",
                           {FIELD("text", TEXT, NXL_STREAM_TEXT_MAX, 0, text),
                            FIELD("after_ms", U32, 0, 0, after_ms)}},
    [NXL_STREAM_CERT] = {"CERT",
                         {FIELD("csr", TEXT, NXL_STREAM_PEM_MAX, 0, csr),
                          FIELD("cert", TEXT, NXL_STREAM_PEM_MAX, 0, cert),
                          FIELD("bundle", TEXT, NXL_STREAM_PEM_MAX, 0, bundle)}},
};

const char *const stream_part_words[STREAM_PARTS] = {"begin", "peers", "end"};
const char *const stream_life_words[STREAM_LIVES] = {"live", "draining", "dead"};

const struct stream_shape *stream_shape_of(unsigned type)
{
    return type < NXL_STREAM_TYPES && shapes[type].name != NULL ? &shapes[type] : NULL;
}

int stream_word(const char *const *words, unsigned count, const char *word)
{
    for (unsigned i = 0; i < count; i++) {
        if (strcmp(words[i], word) == 0)
            return (int)i;
    }
    return -1;
}

int nxl_stream_split(struct nxl_view data, struct nxl_view *ret_body, size_t *ret_used)
{
    struct nxl_reader reader = nxl_reader_of(data.data, data.size);
    uint32_t size;

    if (data.size < NXL_STREAM_HEAD)
        return 0;
    size = nxl_reader_u32(&reader);
    if (size == 0 || size > NXL_STREAM_FRAME_MAX)
        return -1;
    if (data.size - NXL_STREAM_HEAD < size)
        return 0;
    *ret_body = (struct nxl_view){(const unsigned char *)data.data + NXL_STREAM_HEAD, size};
    *ret_used = NXL_STREAM_HEAD + size;
    return 1;
}

/* ---- digests ------------------------------------------------------------------------------ */

static void hash_text(XXH64_state_t *state, const char *text)
{
    static const char none[] = "";

    if (text == NULL)
        text = none;
    (void)XXH64_update(state, text, strlen(text) + 1); /* with its NUL: a|bc is not ab|c */
}

uint64_t nxl_stream_member_hash(const struct nxl_stream_member *member)
{
    const unsigned char flags[2] = {member->life, member->suspect};
    XXH64_state_t state;

    (void)XXH64_reset(&state, 0);
    hash_text(&state, member->id);
    hash_text(&state, member->group);
    hash_text(&state, member->node);
    hash_text(&state, member->version);
    hash_text(&state, member->revision);
    hash_text(&state, member->topology);
    (void)XXH64_update(&state, flags, sizeof(flags));
    return XXH64_digest(&state);
}

uint64_t nxl_stream_policy_hash(struct nxl_view text)
{
    return XXH64(text.data, text.size, 1);
}

/* ---- small things ------------------------------------------------------------------------- */

int nxl_stream_version_order(const char *a, const char *b)
{
    size_t a_size, b_size;

    a += strspn(a, "0");
    b += strspn(b, "0");
    a_size = strlen(a);
    b_size = strlen(b);
    if (a_size != b_size)
        return a_size < b_size ? -1 : 1;
    return strcmp(a, b);
}

size_t nxl_stream_uid_size(const char *id)
{
    return strcspn(id, "/");
}
