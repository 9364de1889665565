/* directory_room.h - shared by the directory_*.c files; nobody else includes it. One struct, one
 * thread.
 *
 *   redis (main) ── heartbeat ── on_beat ─▶ directory_publish (what is dirty) ─▶ directory_facts
 * (queue) redis (follow) ── XREAD BLOCK changes, dead ─▶ directory_follow ─▶ on_record, on_fact,
 * wakes look-ups directory_scan: every few beats, the slow and complete way to the same knowledge
 */
#ifndef NXL_CLUSTER_DIRECTORY_ROOM_H
#define NXL_CLUSTER_DIRECTORY_ROOM_H

#include "cluster/directory.h"

#include "base/bytes.h"
#include "cluster/heartbeat.h"
#include "cluster/redis.h"

#include <hiredis/hiredis.h>
#include <uthash.h>

struct nxl_metric;
struct nxl_timer;

#define DIRECTORY_FIELD_MAX (NXL_INCARNATION_MAX + 1 + NXL_LABEL_MAX) /* incarnation#label */
#define DIRECTORY_KEY_MAX 512
#define DIRECTORY_RECORDS_MAX 16384u /* of ours */
#define DIRECTORY_PUBLISHING_MAX                                                                   \
    256u /* on their way at once: all of them share one deadline's patience */
#define DIRECTORY_RENEW_MAX 4096u /* names renewed with one beat */
#define DIRECTORY_LOOKUPS_MAX 4096u
#define DIRECTORY_FACTS_MAX 1024u      /* waiting to be told */
#define DIRECTORY_KNOWN_MAX 65536u     /* others' records that reconciling remembers */
#define DIRECTORY_INLINE_MAX 2048u     /* a larger record is fetched, not carried by `changes` */
#define DIRECTORY_FACT_MAX 2048u       /* bytes of a fact's text */
#define DIRECTORY_SIGNATURE_MAX 16384u /* signature and certificate */
#define DIRECTORY_SCAN_BEATS 10u
#define DIRECTORY_NAME_LEASES                                                                      \
    2u /* name:<ns>/<peer> outlives the lease by one, so it keeps its stamp */

/* A record of ours. Dirty until the store has answered for this generation of it. */
struct directory_record {
    UT_hash_handle hh;
    char field[DIRECTORY_FIELD_MAX + 1]; /* key */
    char ns[NXL_NAMESPACE_MAX + 1];
    char name[NXL_NAME_MAX + 1];
    char incarnation[NXL_INCARNATION_MAX + 1];
    char label[NXL_LABEL_MAX + 1];
    struct nxl_bytes bytes;
    uint64_t stamp;       /* store time of the first claim of the name; 0: not claimed yet */
    uint64_t generation;  /* changes with every publish */
    uint64_t name_due_ns; /* when the lease of its name is renewed next */
    int dirty, sent, stored;
    int queued; /* stands in the queue of dirty ones; never while sent */
    struct directory_record *prev, *next;
};

struct directory_lookup {
    UT_hash_handle hh;
    uint64_t ticket; /* key */
    char ns[NXL_NAMESPACE_MAX + 1];
    char name[NXL_NAME_MAX + 1];
    char label[NXL_LABEL_MAX + 1];
    char
        incarnation[NXL_INCARNATION_MAX + 1]; /* what the index said, while its record is fetched */
    uint64_t deadline_ns, due_ns;
    nxl_directory_found_fn *fn;
    void *arg;
    int once;     /* ends with the first answer */
    int busy;     /* a command of it is outstanding */
    int again;    /* woken while busy */
    int reached;  /* a command was sent at least once */
    int answered; /* the store answered at least once */
};

struct directory_fact {
    struct directory_fact *next;
    char prefix[NXL_INCARNATION_MAX + 1];
    enum nxl_life life;
    char reason[160];
    uint64_t since_ns;
};

/* What the scan saw at another node. */
struct directory_known {
    UT_hash_handle hh;
    char field[DIRECTORY_FIELD_MAX + 1]; /* key */
    char ns[NXL_NAMESPACE_MAX + 1];
    char name[NXL_NAME_MAX + 1];
    uint64_t digest, round;
};
struct directory_node {
    UT_hash_handle hh;
    char node[NXL_NODE_MAX + 1]; /* key */
    char agent[NXL_INCARNATION_MAX + 1];
    char version[24];
    uint64_t round;
    struct directory_known *records;
};

struct nxl_directory {
    struct nxl_loop *loop;
    struct nxl_trust *trust;
    struct nxl_directory_ops ops;
    void *arg;
    char cluster[NXL_NAMESPACE_MAX + 1];
    char node[NXL_NODE_MAX + 1];
    char agent[NXL_INCARNATION_MAX + 1];
    char address[300];
    char url_text[256];
    char prefix[NXL_NAMESPACE_MAX + 16];
    char node_key[DIRECTORY_KEY_MAX], peers_key[DIRECTORY_KEY_MAX], epoch_key[DIRECTORY_KEY_MAX];
    char changes_key[DIRECTORY_KEY_MAX], dead_key[DIRECTORY_KEY_MAX];
    uint64_t heartbeat_ns, lease_ns, wait_poll_ns, command_timeout_ns, stream_max;

    int enabled, up, fenced, closed, entered;
    struct nxl_redis *redis, *follow;
    struct nxl_heartbeat *heartbeat;
    char epoch[40];
    uint64_t quiet_until_ns;        /* after a wipe nobody is judged before that */
    uint64_t store_us, store_at_ns; /* the server's time, and when by our clock it was that */

    struct directory_record *records;
    struct directory_record *dirty; /* queue of those to be sent */
    uint32_t record_count, publishing;
    uint64_t generation;

    struct directory_lookup *lookups;
    uint64_t ticket;
    struct nxl_timer *lookup_timer;
    uint64_t lookup_armed_ns; /* when it comes; 0: not armed */

    struct directory_fact *first_fact, *last_fact;
    uint32_t fact_count;

    struct {
        int reading;
        char changes_id[48], dead_id[48]; /* "": not known yet */
        struct nxl_timer *retry;
    } tail;

    struct {
        int running;
        uint32_t beats, outstanding;
        uint64_t round, known, lapsed;
        char cursor[24];
        struct directory_node *nodes;
    } scan;

    struct nxl_record *scratch; /* decoding only; too large for the stack */
    struct {
        struct nxl_metric *up, *beats, *missed, *round_trip, *records, *lookups, *refused, *facts,
            *lapsed, *wiped;
    } metric;
};

/* Every way in from the loop stands between these; a close inside frees in leave(). */
void directory_enter(struct nxl_directory *directory);
void directory_leave(struct nxl_directory *directory);
void directory_key(const struct nxl_directory *directory, char *to, const char *kind,
                   const char *rest);
/* name:<ns>/<peer> */
void directory_name_key(const struct nxl_directory *directory, char *to, const char *ns,
                        const char *name);
int directory_reply_text(const struct redisReply *reply, const char *text); /* a string and equal */
/* Copies a string reply that fits and holds no NUL; 0: it did. */
int directory_reply_copy(const struct redisReply *reply, char *to, size_t room);
void directory_complain(struct nxl_directory *directory, const char *doing,
                        const struct nxl_err *err);

/* directory_publish.c */
void directory_flush(struct nxl_directory *directory); /* sends what is dirty */
void directory_all_dirty(struct nxl_directory *directory);
void directory_check_records(struct nxl_directory *directory, uint64_t stored);
void directory_renew_names(struct nxl_directory *directory);
void directory_leave_store(struct nxl_directory *directory); /* at close */
void directory_free_records(struct nxl_directory *directory);

/* directory_lookup.c */
void directory_on_lookup_timer(void *arg);
void directory_wake_lookups(struct nxl_directory *directory, const char *ns,
                            const char *name); /* NULL: all */
void directory_end_lookups(struct nxl_directory *directory);

/* directory_facts.c */
void directory_send_facts(struct nxl_directory *directory);
void directory_free_facts(struct nxl_directory *directory);
/* One entry of `dead`: checked, then told. */
void directory_hear_fact(struct nxl_directory *directory, struct nxl_view text,
                         struct nxl_view signature);

struct directory_fact_text {
    char cluster[NXL_NAMESPACE_MAX + 1];
    char prefix[NXL_INCARNATION_MAX + 1];
    enum nxl_life life;
    char reason[160];
    char witness[NXL_INCARNATION_MAX + 1];
};
/* Pure: the text that is signed. */
void directory_fact_encode(const struct directory_fact_text *fact, struct nxl_bytes *to);
NXL_MUST_USE enum nxl_code
directory_fact_decode(struct nxl_view text, struct directory_fact_text *ret, struct nxl_err *err);

/* directory_follow.c */
void directory_follow(struct nxl_directory *directory); /* reads on, if connected and not reading */
void directory_follow_from(struct nxl_directory *directory,
                           uint64_t store_us); /* start, or again after a wipe */
void directory_on_follow_retry(void *arg);

/* directory_scan.c */
void directory_scan_beat(struct nxl_directory *directory);
void directory_free_scan(struct nxl_directory *directory);
/* Tells a record that came from outside, after checking that it is what its place says. */
void directory_tell_record(struct nxl_directory *directory, struct nxl_view bytes,
                           const char *incarnation);
void directory_tell_withdrawn(struct nxl_directory *directory, const char *ns, const char *name,
                              const char *incarnation, const char *node, const char *agent);

#endif
