/* The two majors that one source is built for. A table line says with its first word where it belongs. */
#ifndef SG_RT_MAJORS_H
#define SG_RT_MAJORS_H

#ifndef CUDART_MAJOR
#error "CUDART_MAJOR says which libcudart this is: 12 or 13"
#endif

#define IN_BOTH(...) __VA_ARGS__
#if CUDART_MAJOR == 12
#define IN_V12(...) __VA_ARGS__
#define IN_V13(...)
#define SG_RT_VERSION 12090
#elif CUDART_MAJOR == 13
#define IN_V12(...)
#define IN_V13(...) __VA_ARGS__
#define SG_RT_VERSION 13000
#else
#error "CUDART_MAJOR is 12 or 13"
#endif

/* (a, b) -> a, b */
#define UNPAREN(...) __VA_ARGS__

#endif
