/* The contents of paused memory in files.

   Nouns. *Staging* is host memory by which bytes go between the device and a file, in two halves.

   Why: host memory is short where several cards are paused at once, and a disk is not. How: files
   stand in a folder that the program names. A block that fills staging has a file of its own. Smaller ones share one with
   their neighbours in the order of addresses, until it has as much; no block is in two. While one half of staging is written,
   the next copy fills the other. The system's cache lets a file go once it is written, so that no host memory stays behind.

   Room on the disk is taken before the first copy, so a full one is known early. Names are segalloc-PID-NUMBER.contents, only
   the user can read them, and they go after the resume, or at the end of the process.

   Why not one file for all: a block that is freed gives its room on the disk back. Why not one for each block: a model has
   thousands of small ones, and the disk is waited for once a file.

   Limits. A process that is killed leaves its files. A block that is freed leaves its part of a file that others share. A folder
   in memory (tmpfs) saves no memory, and a line says so.

   For example, staging has 256 MiB. A block of 300 MiB goes in parts of 128, 128 and 44 MiB: while the first is written, the
   second is copied. Three of 100 MiB behind it share the next file. */
#ifndef SG_CONTENTS_FILE_H
#define SG_CONTENTS_FILE_H

#include "serve/contents.h"

/* Where files go from here on, and the bytes of staging; 0: 256 MiB. A folder that is not there is made. False: the name
   is empty or too long. No order is carried out meanwhile. */
bool sg_contents_file_folder(const char *folder, uint64_t staging);

/* The functions of contents.h, for files. save: CUDA_ERROR_OUT_OF_MEMORY where the disk is full or the host has no memory,
   CUDA_ERROR_OPERATING_SYSTEM where the folder can't be used. A line says which. */
CUresult sg_contents_file_save(struct sg_contents *contents, const struct sg_memory_piece *pieces, size_t count);
CUresult sg_contents_file_restore(struct sg_contents *contents, const struct sg_memory_piece *pieces, size_t count);
bool sg_contents_file_has(const struct sg_contents *contents);
void sg_contents_file_end(const struct sg_contents *contents);
void sg_contents_file_freed(CUdeviceptr address);

/* Removes all files of this process, at its end. */
void sg_contents_file_close(void);

#endif
