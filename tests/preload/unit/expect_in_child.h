/* EXPECT() for tests whose steps run in children. A failure ends the process, because cmocka's long jump would go on with
   the parent's tests there. */
#ifndef EXPECT_IN_CHILD_H
#define EXPECT_IN_CHILD_H

#include <stdio.h>
#include <unistd.h>

#define EXPECT(condition)                                                          \
    do {                                                                           \
        if (!(condition)) {                                                        \
            fprintf(stderr, "%s:%d: error: %s\n", __FILE__, __LINE__, #condition); \
            _exit(1);                                                              \
        }                                                                          \
    } while (0)

#endif
