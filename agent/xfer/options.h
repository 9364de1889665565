/* options.h - reading the engine's settings and opening its metrics. Loop thread, at start. */
#ifndef NXL_XFER_OPTIONS_H
#define NXL_XFER_OPTIONS_H

#include "xfer/engine.h"

void xfer_options_read(struct nxl_xfer *xfer, const struct nxl_settings *settings);
void xfer_metrics_open(struct nxl_xfer *xfer);

#endif
