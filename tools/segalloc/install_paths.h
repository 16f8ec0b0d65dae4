/* Where our own files lie: beside this program, whether in the build folder or installed. */
#ifndef SG_INSTALL_PATHS_H
#define SG_INSTALL_PATHS_H

#include <stdbool.h>
#include <stddef.h>

enum { SG_PLACE_BYTES = 4096 };

/* libsegalloc.so: the file that SEGALLOC_LIB names, else the build folder's, else the one installed with this program,
   else the one in the compiled-in library folder. An absolute path; false when there is none that can be read. */
bool sg_place_library(char ret[SG_PLACE_BYTES]);

/* libsegalloc_torch_memory_saver.so: the build folder's, or the one installed. */
bool sg_place_memory_saver(char ret[SG_PLACE_BYTES]);

/* The folders of the simulated GPU's libraries with colons between them: one when installed. */
bool sg_place_simulator(char ret[SG_PLACE_BYTES]);

/* The folder of the Python module and its sitecustomize. */
bool sg_place_python(char ret[SG_PLACE_BYTES]);

/* A program of ours with this name: beside this one, or in its own folder of the build folder. */
bool sg_place_program(const char *name, char ret[SG_PLACE_BYTES]);

#endif
