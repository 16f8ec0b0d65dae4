/* The machine's settings for a process whose environment was cleaned. A real GPU stays where it is when a program starts another
   one by `env -i`, and so does the simulated one.

   An example. `segalloc run --sim 1GiB -- sh -c 'env -i LD_LIBRARY_PATH=$LD_LIBRARY_PATH ./program'`: the program has no
   SEGALLOC_SIM, but its parent, the shell, began with one. It is on that card of 1 GiB. */
#ifndef SIM_INHERITED_H
#define SIM_INHERITED_H

/* The value of SEGALLOC_SIM in this process's environment. Where there is none it is looked for in
   what this process has besides, and then each ancestor in turn. That is the environment with which the process began, and an
   open memory file. NULL: none of them has a value. Ancestors of another user can't be
   read, and have none. Static storage; the first call decides, and may be made on any thread. */
const char *sim_inherited_setting(void);

/* For a tool, before it becomes or starts the program: opens such a memory file, which stays open in what it becomes by exec.
   One that is open already goes. Where no file can be opened there is none. */
void sim_inherited_publish(const char *setting);

#endif
