/* Words to `segalloc rehearse`, which has started this program and may run it once more in another way.

   For example, the program's first block is to be given away by a legacy handle, which fails. The word "ipc:always" has the
   rehearsal run it again with that, and its verdict is on a program that came to its end. */
#ifndef SG_REHEARSAL_H
#define SG_REHEARSAL_H

#include <stdbool.h>
#include <stddef.h>

/* Asks for the program to run once more with these settings too, at most 64 bytes of them. Nothing happens where there is no
   rehearsal. errno stays as it was. */
void sg_rehearsal_ask_for(const char *settings);

/* Notes that a tensor of so many bytes is sent to another process, for which it was copied: until it dies there are two. */
void sg_rehearsal_note_sent(size_t bytes);

/* Notes that the program asks how much memory the card has. `told`: the answer is the size of the largest card that was asked
   about; else it is that of the machine, which has no end. Only the first question of a process is written. */
void sg_rehearsal_note_question(bool told);

#endif
