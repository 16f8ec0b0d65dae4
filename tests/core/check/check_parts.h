/* What the files of the check share. */
#ifndef SG_CHECK_PARTS_H
#define SG_CHECK_PARTS_H

#define SG_CHECK_TEXT(line) #line
#define SG_CHECK_LINE(line) SG_CHECK_TEXT(line)

/* Ends the function with the condition where that does not hold. */
#define MUST(condition)                                                           \
    do {                                                                          \
        if (!(condition))                                                         \
            return CHECK_FILE ":" SG_CHECK_LINE(__LINE__) ": " #condition;        \
    } while (0)

/* Ends the function with what another one found. */
#define PASS(call)                                                                \
    do {                                                                          \
        const char *broken_there = (call);                                        \
        if (broken_there)                                                         \
            return broken_there;                                                  \
    } while (0)

#endif
