/* The environment, as it is and as it was when the library was loaded.

   Why both. Programs clear or overwrite their environment before they first allocate: daemons do, and so does a title
   that is written over it. The configuration must not depend on that moment.

   For example, SEGALLOC_CONF=limit:8GiB is set, and the program calls clearenv() before its first cudaMalloc. The value
   that the constructor kept is used, and the limit is 8 GiB. */
#ifndef SG_ENVIRONMENT_H
#define SG_ENVIRONMENT_H

/* Copies what is meant for us. For the constructor: programs clear or overwrite their environment later. */
void sg_environment_keep(void);

/* The value of `name` now, else the one kept, else NULL. Reads environ itself: programs replace getenv() by their
   own, bash among them. */
char *sg_environment(const char *name);

#endif
