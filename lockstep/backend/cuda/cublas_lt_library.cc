// Loads cuBLASLt at its first call. The library takes half a gigabyte; linking it would add 60 ms to every program's
// start, even without a GPU. The functions here have the library's names and forward to it.
#ifndef LOCKSTEP_CUDA_EMULATED
#include <cublasLt.h>
#include <dlfcn.h>

#include <string>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

void* library() {
  static void* const handle = [] {
    // Try the program's library path, then the path at build time.
    const std::string name = fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR);
    std::string why;
    for (const std::string& place : {name, std::string(LOCKSTEP_CUBLAS_LT)}) {
      if (void* found = ::dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL)) return found;
      why += fmt::format("{}{}", why.empty() ? "" : "; ", ::dlerror());
    }
    fail("cuBLASLt: cannot be loaded: {}", why);
  }();
  return handle;
}

// Returns the library's function `name`. The first argument, the function declared with that name, gives the type.
template <typename Function>
Function* theirs(Function*, const char* name) {
  void* symbol = ::dlsym(library(), name);
  check(symbol != nullptr, "cuBLASLt: the library has no {}", name);
  return reinterpret_cast<Function*>(symbol);
}

}  // namespace
}  // namespace lockstep

// Each function is looked up once. Exceptions may pass through, because no C code lies between these functions and
// their callers.
#define LOCKSTEP_FORWARD(function, ...)                               \
  static auto* const theirs = lockstep::theirs(&function, #function); \
  return theirs(__VA_ARGS__)

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) { LOCKSTEP_FORWARD(cublasLtCreate, handle); }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { LOCKSTEP_FORWARD(cublasLtDestroy, handle); }
const char* cublasLtGetStatusString(cublasStatus_t status) { LOCKSTEP_FORWARD(cublasLtGetStatusString, status); }
std::size_t cublasLtGetVersion() { LOCKSTEP_FORWARD(cublasLtGetVersion); }

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t description, std::size_t size,
                                               cublasComputeType_t compute, cudaDataType_t scale) {
  LOCKSTEP_FORWARD(cublasLtMatmulDescInit_internal, description, size, compute, scale);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              std::size_t size) {
  LOCKSTEP_FORWARD(cublasLtMatmulDescSetAttribute, description, attribute, value, size);
}
cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, std::size_t size, cudaDataType type,
                                                 std::uint64_t rows, std::uint64_t columns, std::int64_t stride) {
  LOCKSTEP_FORWARD(cublasLtMatrixLayoutInit_internal, layout, size, type, rows, columns, stride);
}
cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference, std::size_t size) {
  LOCKSTEP_FORWARD(cublasLtMatmulPreferenceInit_internal, preference, size);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    std::size_t size) {
  LOCKSTEP_FORWARD(cublasLtMatmulPreferenceSetAttribute, preference, attribute, value, size);
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int* found) {
  LOCKSTEP_FORWARD(cublasLtMatmulAlgoGetHeuristic, handle, description, a, b, c, d, preference, wanted, results, found);
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace, std::size_t workspace_bytes,
                              cudaStream_t stream) {
  LOCKSTEP_FORWARD(cublasLtMatmul, handle, description, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout,
                   algorithm, workspace, workspace_bytes, stream);
}

}  // extern "C"
#endif
