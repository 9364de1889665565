/* listen.h - listening sockets for HTTP: a unix path, or "host:port". Inside agent/status only. */
#ifndef NXL_STATUS_LISTEN_H
#define NXL_STATUS_LISTEN_H

#include <nxl/err.h>

/* Replaces a socket file that nobody listens on. NXL_BUSY: somebody does. Gives *ret. */
NXL_MUST_USE enum nxl_code status_listen_unix(const char *path, int *ret, struct nxl_err *err);
/* text: "127.0.0.1:7742", "[::1]:0", ":7742" (every address). NXL_BUSY: the port is taken.
 * *ret_address: with the real port, at most size bytes; *ret_loopback: no other host can come in.
 */
NXL_MUST_USE enum nxl_code status_listen_tcp(const char *text, int *ret, int *ret_loopback,
                                             char *ret_address, size_t size, struct nxl_err *err);
/* After our listener has closed: removes the file unless somebody else serves it by now. */
void status_unlink_unix(const char *path);

#endif
