/* The environment, as it is and as it was when the library was loaded. */
#ifndef SG_ENVIRONMENT_H
#define SG_ENVIRONMENT_H

/* Copies what is meant for us. For the constructor: programs clear or overwrite their environment later. */
void sg_environment_keep(void);

/* The value of `name` now, else the one kept, else NULL. Reads environ itself: programs replace getenv() by their
   own, bash among them. */
char *sg_environment(const char *name);

#endif
