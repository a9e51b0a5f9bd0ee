/* libcublasLt and libcuda as far as the bindings of nvmath-python ask for them: every function calls what a test has put in
   its place in the table. */
#include <stddef.h>
#include <stdint.h>

typedef int (*Function)();
typedef void *P;
Function table[12];

int cuDriverGetVersion(int *version) { *version = 13010; return 0; }
size_t cublasLtGetVersion(void) { return 130100; }
const char *cublasLtGetStatusName(int status) { return "CUBLAS_STATUS_OF_THE_STUB"; }
const char *cublasLtGetStatusString(int status) { return "as the library explains it"; }

int cublasLtCreate(P *handle) { return table[0](handle); }
int cublasLtMatmulDescCreate(P *made, int compute, int scale) { return table[1](made, compute, scale); }
int cublasLtMatmulDescSetAttribute(P owner, int name, const void *content, size_t size) {
    return table[2](owner, name, content, size);
}
int cublasLtMatrixLayoutCreate(P *made, int type, uint64_t rows, uint64_t columns, int64_t ld) {
    return table[3](made, type, rows, columns, ld);
}
int cublasLtMatrixLayoutSetAttribute(P owner, int name, const void *content, size_t size) {
    return table[4](owner, name, content, size);
}
int cublasLtMatmulPreferenceCreate(P *made) { return table[5](made); }
int cublasLtMatmulPreferenceSetAttribute(P owner, int name, const void *content, size_t size) {
    return table[6](owner, name, content, size);
}
int cublasLtMatmulPreferenceDestroy(P owner) { return table[7](owner); }
int cublasLtMatmulAlgoGetHeuristic(P handle, P desc, P a, P b, P c, P d, P preference, int asked, P results, int *count) {
    return table[8](handle, desc, a, b, c, d, preference, asked, results, count);
}
int cublasLtMatmul(P handle, P desc, const void *alpha, const void *a, P la, const void *b, P lb, const void *beta,
                   const void *c, P lc, P d, P ld, const void *algo, P workspace, size_t bytes, P stream) {
    return table[9](handle, desc, alpha, a, la, b, lb, beta, c, lc, d, ld, algo, workspace, bytes, stream);
}
