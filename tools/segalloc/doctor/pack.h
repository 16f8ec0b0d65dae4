/* One file to send with a report that something is wrong: versions, the last self-test, options, and the head of a trace. Names of
   programs, files, users and hosts are not in it.

   For example, "trace:/home/ada/run.trace" of a configuration is packed as "trace" with the value "(a path)". A record that
   defines a text is packed without it. */
#ifndef SG_PACK_H
#define SG_PACK_H

#include "doctor/examination.h"

/* Writes it to a new file. `trace` may be NULL. An exit status; after a line on stderr where it is not 0. */
int sg_doctor_pack(const struct sg_examination *examination, const char *path, const char *trace);

#endif
