// A program that has the runtime within itself (nvcc -cudart static): only the driver's entry points can be answered.
#include <cstdio>

__global__ void add(float *values, float what, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        values[i] += what;
}

int main()
{
    const int n = 1 << 20;
    double total = 0;
    for (int turn = 1; turn <= 20; turn++) {
        float *values, *copy = new float[n];
        if (cudaMalloc(&values, n * sizeof *values) != cudaSuccess || cudaMemset(values, 0, n * sizeof *values) != cudaSuccess)
            return 1;
        add<<<n / 256, 256>>>(values, (float)turn, n);
        if (cudaMemcpy(copy, values, n * sizeof *values, cudaMemcpyDeviceToHost) != cudaSuccess || cudaFree(values) != cudaSuccess)
            return 2;
        for (int i = 0; i < n; i += 1000)
            total += copy[i];
        delete[] copy;
    }
    std::printf("%.0f\n", total);
    return 0;
}
