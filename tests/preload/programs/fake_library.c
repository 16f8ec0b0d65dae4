/* A library that is there by its name: MPI with CUDA, MPI without, or one that has nothing to say. */
#ifdef WITH_CUDA
int MPIX_Query_cuda_support(void);

__attribute__((visibility("default"))) int MPIX_Query_cuda_support(void)
{
    return WITH_CUDA;
}
#else
extern int nothing;
int nothing;
#endif
