/* identity.h - which texts may name a cluster, namespace, node, peer, incarnation or address. Pure;
 * every name that comes from a store, a blob or another agent passes here before anybody keeps it.
 */
#ifndef NXL_CLUSTER_IDENTITY_H
#define NXL_CLUSTER_IDENTITY_H

#include <stddef.h>

/* Letters, digits, '.', '_', '-'; at most max bytes; "" is no label. Clusters, namespaces, nodes.
 */
int nxl_identity_is_label(const char *text, size_t max);
/* A peer's name: 1 to NXL_NAME_MAX bytes without control characters (names are the application's).
 */
int nxl_identity_is_name(const char *text);
/* Non-empty segments between '/', of letters, digits and "._:@+=-": an incarnation or its prefix.
 */
int nxl_identity_is_incarnation(const char *text);
/* "host:port" with a port of 1 to 65535; host is a name, an IPv4 or a bracketed IPv6 address. */
int nxl_identity_is_address(const char *text);
/* True if agent is an incarnation that lives on node: "node/...". */
int nxl_identity_is_agent_of(const char *agent, const char *node);
/* Order in which two agents win a crossing: <0 if the first does. Never 0 for two lives. */
int nxl_identity_order(const char *node, const char *agent, const char *other_node,
                       const char *other_agent);

/* Splits "host:port" into host (brackets removed) and port 0 to 65535; -1 if it is no such thing.
 */
int nxl_identity_split_address(const char *text, char *host, size_t room, int *ret_port);

#endif
