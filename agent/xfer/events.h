/* events.h - the event kinds of nixlet.h, by number: the engine does not include the client's API.
 * tests/unit/xfer compares them with nixlet.h. */
#ifndef NXL_XFER_EVENTS_H
#define NXL_XFER_EVENTS_H

enum {
    XFER_EVENT_NOTICE = 1,
    XFER_EVENT_PEER_DOWN = 2,
    XFER_EVENT_PEER_SUSPECT = 3,
    XFER_EVENT_PEER_NEW = 4,
    XFER_EVENT_NOTICE_LOST = 6,
    XFER_EVENT_REGION_LOST = 7,
};

#endif
