/* node.h - one node agent: builds every module in order and tears down in reverse. Wiring only. */
#ifndef NXL_NODE_H
#define NXL_NODE_H

#include <nxl/err.h>

struct nxl_node;
struct nxl_settings;

/* Declares every module's options. plugin_dir as in "agent.plugin_dir" of an earlier pass, or NULL.
 */
void nxl_node_declare(struct nxl_settings *settings, const char *plugin_dir);
/* Borrows settings. Listens when it returns NXL_OK. Gives *ret to nxl_node_close(). */
NXL_MUST_USE enum nxl_code nxl_node_open(const struct nxl_settings *settings, struct nxl_node **ret,
                                         struct nxl_err *err);
/* Runs until SIGTERM, SIGINT or a fence. Returns the process's exit code. */
int nxl_node_run(struct nxl_node *node);
void nxl_node_close(struct nxl_node *node); /* accepts NULL and half-built ones */

#endif
