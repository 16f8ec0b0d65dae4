/* The functions of OpenBLAS that the trainer calls, for a machine that has none: right, and slow. */
#ifndef CBLAS_H
#define CBLAS_H

enum CBLAS_ORDER { CblasRowMajor = 101, CblasColMajor = 102 };
enum CBLAS_TRANSPOSE { CblasNoTrans = 111, CblasTrans = 112 };

/* c = alpha * op(a) * op(b) + beta * c, with op(a) m by k and op(b) k by n; only CblasRowMajor. */
void cblas_sgemm(enum CBLAS_ORDER order, enum CBLAS_TRANSPOSE of_a, enum CBLAS_TRANSPOSE of_b, int m, int n, int k,
                 float alpha, const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);

/* Nothing to set: there is one. */
void openblas_set_num_threads(int threads);

#endif
