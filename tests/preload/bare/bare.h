#ifndef BARE_H
#define BARE_H

/* All its allocations are here. */
#define BARE_ADDRESS 0x700000000000ull

#endif
