/* ports.h - the one table of default ports. Option tables, deployment files and `nixletctl doctor`
 * are held against it. Strict C11, valid C++. */
#ifndef NXL_PORTS_H
#define NXL_PORTS_H

/* X(name, number, program, setting that moves it, what it serves) */
#define NXL_PORTS(X)                                                                               \
    X(LINK, 7741, "nixlet-agent", "link.listen", "link between agents (TLS)")                      \
    X(AGENT_HTTP, 7742, "nixlet-agent", "http.listen", "agent HTTP: metrics, health, local API")   \
    X(STREAM, 7743, "nixlet-operator", "stream.listen", "operator stream to agents (TLS)")         \
    X(OPERATOR_HTTP, 7744, "nixlet-operator", "http.listen", "operator HTTP: metrics, health")

enum nxl_port {
#define NXL_PORT_ENUM(name, number, program, setting, about) NXL_PORT_##name = number,
    NXL_PORTS(NXL_PORT_ENUM)
#undef NXL_PORT_ENUM
};

#endif
