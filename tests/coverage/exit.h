/* Coverage of processes that end by _exit(), as the children of tests do: the counts are written first. tests/coverage/run
   includes this file before every source. */
#ifndef SG_COVERAGE_EXIT_H
#define SG_COVERAGE_EXIT_H

void __gcov_dump(void);
void _exit(int status) __attribute__((noreturn));

static inline __attribute__((noreturn, unused)) void counted_exit(int status)
{
    __gcov_dump();
    _exit(status);
}
#define _exit counted_exit

#endif
