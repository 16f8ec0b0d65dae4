/* The public interface of libsegalloc.so. */
#ifndef SEGALLOC_SEGALLOC_H
#define SEGALLOC_SEGALLOC_H
#endif
