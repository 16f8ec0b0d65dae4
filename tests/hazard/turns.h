/* Threads that do one after another what they are told: the program is the same in every run, but its calls come from
   several threads. */
#ifndef TURNS_H
#define TURNS_H

/* Calls `function` on thread `thread` and returns when it has; 0 is the caller's own. */
void turn(int thread, void (*function)(void *), void *data);

#endif
