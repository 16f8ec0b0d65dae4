/* The kernels of kernels.cu, compiled for a device by NVRTC where that library is at hand: PyTorch's wheels bring it, and the toolkit.

   For example, a device of compute capability 9.0 and libnvrtc.so.13 on the loader's path. The image is made for sm_90, as nvcc
   -cubin -arch=native would make it. */
#ifndef PROBE_NVRTC_H
#define PROBE_NVRTC_H

/* The image, as cuModuleLoadData() takes it, to be freed; NULL: there is no NVRTC, or it can't compile for such a device. */
char *probe_compile_kernels(int major, int minor);

#endif
