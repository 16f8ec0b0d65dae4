/* Words to `segalloc rehearse`, which has started this program and may run it once more in another way.

   For example, the program's first block is to be given away by a legacy handle, which fails. The word "ipc:always" has the
   rehearsal run it again with that, and its verdict is on a program that came to its end. */
#ifndef SG_REHEARSAL_H
#define SG_REHEARSAL_H

/* Asks for the program to run once more with these settings too, at most 64 bytes of them. Nothing happens where there is no
   rehearsal. errno stays as it was. */
void sg_rehearsal_ask_for(const char *settings);

#endif
