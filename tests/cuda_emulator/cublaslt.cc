// The calls of cuBLASLt that Lockstep makes: plain loops on the stream.
#include <cublasLt.h>

#include <cstring>
#include <new>
#include <optional>
#include <utility>

#include "tests/cuda_emulator/numbers.h"
#include "tests/cuda_emulator/stream.h"

using namespace cuda_emulator;

struct cublasLtContext {};

namespace {

// The contents of cuBLASLt's semi-opaque structs.
struct Product {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  std::int32_t bias_type = -1;
};
struct Matrix {  // column-major
  cudaDataType_t type;
  std::int64_t rows, columns, leading;
};
struct Preference {
  std::size_t workspace = 0;
  std::uint32_t alignment = 256;
  std::uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_MASK;
};
struct Algorithm {
  std::uint64_t number, workspace, alignment;
  std::uint64_t output_type;  // partial sums are rounded to the result's type
};

template <typename Inside, typename Outside>
Inside& as(Outside* outside) {
  static_assert(sizeof(Inside) <= sizeof(Outside) && alignof(Inside) <= alignof(Outside));
  return *reinterpret_cast<Inside*>(outside);
}

std::optional<Type> type_of(cudaDataType_t type) {
  switch (type) {
    case CUDA_R_32F: return Type::f32;
    case CUDA_R_16BF: return Type::bf16;
    case CUDA_R_16F: return Type::f16;
    case CUDA_R_64F: return Type::f64;
    default: return {};
  }
}

template <typename T>
bool read(T& to, const void* from, std::size_t bytes) {
  if (bytes != sizeof(T)) return false;
  std::memcpy(&to, from, bytes);
  return true;
}

cublasStatus_t status(bool good) { return good ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE; }

// The combinations of Lockstep's types that cuBLASLt's manual lists.
bool supported(const Product& p, const Matrix& a, const Matrix& b, const Matrix& c) {
  if (a.type != b.type) return false;
  const bool f64 = a.type == CUDA_R_64F;
  if (f64 != (c.type == CUDA_R_64F) || f64 != (p.compute == CUBLAS_COMPUTE_64F)) return false;
  if (p.scale != (f64 ? CUDA_R_64F : CUDA_R_32F)) return false;
  if (c.type != CUDA_R_32F && c.type != a.type) return false;
  if (p.epilogue != CUBLASLT_EPILOGUE_DEFAULT && f64) return false;
  return p.epilogue == CUBLASLT_EPILOGUE_DEFAULT || p.bias_type == -1 || p.bias_type == c.type;
}

bool shapes_match(const Product& p, const Matrix& a, const Matrix& b, const Matrix& d) {
  const std::int64_t m = p.a == CUBLAS_OP_N ? a.rows : a.columns, k = p.a == CUBLAS_OP_N ? a.columns : a.rows;
  const std::int64_t kb = p.b == CUBLAS_OP_N ? b.rows : b.columns, n = p.b == CUBLAS_OP_N ? b.columns : b.rows;
  return m == d.rows && n == d.columns && k == kb && a.leading >= a.rows && b.leading >= b.rows && d.leading >= d.rows;
}

bool aligned(const void* p, std::uint64_t alignment) { return reinterpret_cast<std::uintptr_t>(p) % alignment == 0; }

struct Call {
  Product p;
  Matrix a, b, c, d;
  const void *a_data, *b_data, *c_data;
  void* d_data;
  double alpha, beta;
  Algorithm algorithm;
  void* workspace;

  void run() const {
    if (algorithm.workspace > 0) std::memset(workspace, 0xff, algorithm.workspace);
    const Type in = *type_of(a.type), out = *type_of(d.type), sums = in == Type::f64 ? Type::f64 : Type::f32;
    const std::int64_t k = p.a == CUBLAS_OP_N ? a.columns : a.rows;
    auto part = [&](const Sum& sum) {
      double value = sum.value();
      if (algorithm.output_type) store(out, &value, 0, value), value = load(out, &value, 0);
      return value;
    };
    for (std::int64_t j = 0; j < d.columns; ++j) {
      for (std::int64_t i = 0; i < d.rows; ++i) {
        Sum sum(sums), first(sums);
        for (std::int64_t step = 0; step < k; ++step) {
          if (algorithm.output_type && step == k / 2) first = std::exchange(sum, Sum(sums));
          const std::int64_t l = algorithm.number % 2 == 0 ? step : k - 1 - step;
          sum.add(load(in, a_data, p.a == CUBLAS_OP_N ? l * a.leading + i : i * a.leading + l),
                  load(in, b_data, p.b == CUBLAS_OP_N ? j * b.leading + l : l * b.leading + j));
        }
        double value = alpha * (part(first) + part(sum));
        if (beta != 0) value += beta * load(out, c_data, j * c.leading + i);
        if (p.epilogue == CUBLASLT_EPILOGUE_BIAS) value += load(out, p.bias, i);
        store(out, d_data, j * d.leading + i, value);
      }
    }
  }
};

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  current_device();
  return *handle = new cublasLtContext, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  current_device();
  return delete handle, CUBLAS_STATUS_SUCCESS;
}
std::size_t cublasLtGetVersion() { return 0; }
const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS         ? "success"
         : status == CUBLAS_STATUS_NOT_SUPPORTED ? "the functionality is not supported"
                                                 : "an invalid value was given";
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t descriptor, std::size_t size,
                                               cublasComputeType_t compute, cudaDataType_t scale) {
  new (descriptor) Product{compute, scale};
  return status(size == sizeof *descriptor);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t descriptor, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  Product& p = as<Product>(descriptor);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return status(read(p.a, value, bytes));
    case CUBLASLT_MATMUL_DESC_TRANSB: return status(read(p.b, value, bytes));
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return status(read(p.epilogue, value, bytes));
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return status(read(p.bias, value, bytes));
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return status(read(p.bias_type, value, bytes));
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, std::size_t size, cudaDataType type,
                                                 std::uint64_t rows, std::uint64_t columns, std::int64_t leading) {
  new (layout) Matrix{type, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns), leading};
  return status(size == sizeof *layout && type_of(type).has_value() && rows > 0 && columns > 0);
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference, std::size_t size) {
  new (preference) Preference;
  return status(size == sizeof *preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    std::size_t bytes) {
  Preference& p = as<Preference>(preference);
  std::uint32_t number = 0;
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return status(read(p.workspace, value, bytes));
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return status(read(p.reduction, value, bytes));
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      if (!read(number, value, bytes)) return CUBLAS_STATUS_INVALID_VALUE;
      p.alignment = number < p.alignment ? number : p.alignment;
      return CUBLAS_STATUS_SUCCESS;
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                              cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference,
                                              int requested, cublasLtMatmulHeuristicResult_t* results, int* found) {
  const Product& p = as<Product>(product);
  const Matrix &ma = as<Matrix>(a), &mb = as<Matrix>(b), &mc = as<Matrix>(c), &md = as<Matrix>(d);
  *found = 0;
  if (!shapes_match(p, ma, mb, md)) return CUBLAS_STATUS_INVALID_VALUE;
  if (!supported(p, ma, mb, mc) || mc.type != md.type) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (p.epilogue == CUBLASLT_EPILOGUE_BIAS) {
    if (p.bias == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    if (md.rows == 1) return CUBLAS_STATUS_NOT_SUPPORTED;  // so that callers need another way
  }
  const Preference& wish = as<Preference>(preference);
  if (wish.reduction & CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE && *found < requested) {
    cublasLtMatmulHeuristicResult_t& r = results[(*found)++];
    r = {};
    as<Algorithm>(&r.algo) = {3, 0, wish.alignment, 1};
    r.state = CUBLAS_STATUS_SUCCESS;
  }
  const std::size_t workspaces[] = {0, 4096, 0};
  // The first one is unusable; only its state shows that.
  results[(*found)++] = {.state = CUBLAS_STATUS_NOT_SUPPORTED};
  for (int i = 0; i < 3 && *found < requested; ++i) {
    if (workspaces[i] > wish.workspace) continue;
    cublasLtMatmulHeuristicResult_t& r = results[(*found)++];
    r = {};
    as<Algorithm>(&r.algo) = {static_cast<std::uint64_t>(i), workspaces[i], wish.alignment, 0};
    r.workspaceSize = workspaces[i];
    r.state = CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t product, const void* alpha, const void* a_data,
                              cublasLtMatrixLayout_t a, const void* b_data, cublasLtMatrixLayout_t b, const void* beta,
                              const void* c_data, cublasLtMatrixLayout_t c, void* d_data, cublasLtMatrixLayout_t d,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace, std::size_t workspace_bytes,
                              cudaStream_t stream) {
  Call call{as<Product>(product),
            as<Matrix>(a),
            as<Matrix>(b),
            as<Matrix>(c),
            as<Matrix>(d),
            a_data,
            b_data,
            c_data,
            d_data,
            0,
            0,
            as<const Algorithm>(algorithm),
            workspace};
  const Type scales = call.p.scale == CUDA_R_64F ? Type::f64 : Type::f32;
  call.alpha = scale(scales, alpha);
  call.beta = scale(scales, beta);
  if (!shapes_match(call.p, call.a, call.b, call.d) || !supported(call.p, call.a, call.b, call.c)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (call.algorithm.workspace > workspace_bytes || !aligned(workspace, 256)) return CUBLAS_STATUS_INVALID_VALUE;
  for (const void* p : {a_data, b_data, c_data, static_cast<const void*>(d_data)}) {
    if (!aligned(p, call.algorithm.alignment)) return CUBLAS_STATUS_INVALID_VALUE;
  }
  Stream* queue = find_stream(stream);
  if (!queue) return CUBLAS_STATUS_INVALID_VALUE;
  queue->enqueue([call, device = queue->device()] {
    if (device_error(device) == cudaSuccess) call.run();
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
