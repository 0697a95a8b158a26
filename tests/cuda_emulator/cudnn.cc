// The calls of cuDNN that Lockstep makes: plain loops on the stream.
#include <cudnn.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>

#include "tests/cuda_emulator/numbers.h"
#include "tests/cuda_emulator/stream.h"

using namespace cuda_emulator;

struct cudnnContext {
  cudaStream_t stream = nullptr;
};
struct cudnnTensorStruct {
  Type type = Type::f32;
  std::int64_t extents[4] = {}, strides[4] = {};
  std::int64_t at(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) const {
    return n * strides[0] + c * strides[1] + h * strides[2] + w * strides[3];
  }
  // A single pixel has both orders.
  bool channels_last() const { return strides[1] == 1 && extents[1] > 1 && extents[2] * extents[3] > 1; }
};
struct cudnnFilterStruct : cudnnTensorStruct {};
struct cudnnConvolutionStruct {
  std::int64_t padding[2] = {}, stride[2] = {1, 1}, dilation[2] = {1, 1}, groups = 1;
  cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
};

namespace {

std::optional<Type> type_of(cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_FLOAT: return Type::f32;
    case CUDNN_DATA_BFLOAT16: return Type::bf16;
    case CUDNN_DATA_HALF: return Type::f16;
    case CUDNN_DATA_DOUBLE: return Type::f64;
    default: return {};
  }
}

template <typename T>
cudnnStatus_t create(T** made) {
  *made = new T;
  return CUDNN_STATUS_SUCCESS;
}
template <typename T>
cudnnStatus_t destroy(T* made) {
  delete made;
  return CUDNN_STATUS_SUCCESS;
}

struct Conv {
  cudnnTensorStruct x, w, y;
  cudnnConvolutionStruct o;

  cudnnStatus_t checked() const {
    if (x.type != w.type || x.type != y.type) return CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE;
    if ((x.type == Type::f64) != (o.compute == CUDNN_DATA_DOUBLE)) return CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE;
    // Some combinations that cuDNN's manual omits, so that the caller needs another way.
    if (x.type == Type::f64 && (x.channels_last() || y.channels_last())) return CUDNN_STATUS_NOT_SUPPORTED_LAYOUT;
    const bool half = x.type == Type::bf16 || x.type == Type::f16;
    if (half && o.groups > 1 && x.channels_last()) return CUDNN_STATUS_NOT_SUPPORTED_LAYOUT;
    if (half && x.extents[1] == 1) return CUDNN_STATUS_BAD_PARAM;
    for (int i = 0; i < 2; ++i) {
      const std::int64_t reach = x.extents[2 + i] + 2 * o.padding[i] - o.dilation[i] * (w.extents[2 + i] - 1) - 1;
      if (reach < 0 || y.extents[2 + i] != reach / o.stride[i] + 1) return CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
    }
    const bool fits = x.extents[0] == y.extents[0] && x.extents[0] > 0 && y.extents[1] == w.extents[0] &&
                      x.extents[1] == w.extents[1] * o.groups && w.extents[0] % o.groups == 0;
    return fits ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
  }

  // Finds the position in x of kernel element (i, j) for output pixel (p, q); false if it is outside.
  bool source(std::int64_t p, std::int64_t q, std::int64_t i, std::int64_t j, std::int64_t& h, std::int64_t& v) const {
    h = p * o.stride[0] + i * o.dilation[0] - o.padding[0];
    v = q * o.stride[1] + j * o.dilation[1] - o.padding[1];
    return h >= 0 && h < x.extents[2] && v >= 0 && v < x.extents[3];
  }
};

// The index of step `i` of `n` under an algorithm. Each algorithm adds in a different order.
std::int64_t turn(int algorithm, std::int64_t i, std::int64_t n) { return algorithm % 2 == 0 ? i : n - 1 - i; }

template <typename Visit>
void for_each(const std::int64_t (&extents)[4], const Visit& visit) {
  for (std::int64_t a = 0; a < extents[0]; ++a)
    for (std::int64_t b = 0; b < extents[1]; ++b)
      for (std::int64_t c = 0; c < extents[2]; ++c)
        for (std::int64_t d = 0; d < extents[3]; ++d) visit(a, b, c, d);
}

void put(const cudnnTensorStruct& t, void* data, std::int64_t at, double alpha, double sum, double beta) {
  store(t.type, data, at, beta == 0 ? alpha * sum : alpha * sum + beta * load(t.type, data, at));
}

void forward(const Conv& c, int algorithm, double alpha, const void* x, const void* w, double beta, void* y) {
  const std::int64_t channels = c.w.extents[1], outputs = c.w.extents[0] / c.o.groups;
  for_each(c.y.extents, [&](std::int64_t n, std::int64_t k, std::int64_t p, std::int64_t q) {
    Sum sum(c.x.type);
    for (std::int64_t step = 0; step < channels; ++step) {
      const std::int64_t l = turn(algorithm, step, channels);
      for (std::int64_t i = 0; i < c.w.extents[2]; ++i) {
        for (std::int64_t j = 0; j < c.w.extents[3]; ++j) {
          std::int64_t h, v;
          if (!c.source(p, q, i, j, h, v)) continue;
          sum.add(load(c.x.type, x, c.x.at(n, k / outputs * channels + l, h, v)),
                  load(c.w.type, w, c.w.at(k, l, i, j)));
        }
      }
    }
    put(c.y, y, c.y.at(n, k, p, q), alpha, sum.value(), beta);
  });
}

void backward_data(const Conv& c, int algorithm, double alpha, const void* w, const void* y, double beta, void* x) {
  const std::int64_t channels = c.w.extents[1], outputs = c.w.extents[0] / c.o.groups;
  for_each(c.x.extents, [&](std::int64_t n, std::int64_t l, std::int64_t h, std::int64_t v) {
    Sum sum(c.x.type);
    const std::int64_t group = l / channels;
    for (std::int64_t step = 0; step < outputs; ++step) {
      const std::int64_t k = group * outputs + turn(algorithm, step, outputs);
      for (std::int64_t i = 0; i < c.w.extents[2]; ++i) {
        for (std::int64_t j = 0; j < c.w.extents[3]; ++j) {
          const std::int64_t a = h + c.o.padding[0] - i * c.o.dilation[0], b = v + c.o.padding[1] - j * c.o.dilation[1];
          if (a < 0 || b < 0 || a % c.o.stride[0] != 0 || b % c.o.stride[1] != 0) continue;
          const std::int64_t p = a / c.o.stride[0], q = b / c.o.stride[1];
          if (p >= c.y.extents[2] || q >= c.y.extents[3]) continue;
          sum.add(load(c.y.type, y, c.y.at(n, k, p, q)), load(c.w.type, w, c.w.at(k, l % channels, i, j)));
        }
      }
    }
    put(c.x, x, c.x.at(n, l, h, v), alpha, sum.value(), beta);
  });
}

void backward_filter(const Conv& c, int algorithm, double alpha, const void* x, const void* y, double beta, void* w) {
  const std::int64_t channels = c.w.extents[1], outputs = c.w.extents[0] / c.o.groups;
  for_each(c.w.extents, [&](std::int64_t k, std::int64_t l, std::int64_t i, std::int64_t j) {
    Sum sum(c.x.type);
    for (std::int64_t step = 0; step < c.y.extents[0]; ++step) {
      const std::int64_t n = turn(algorithm, step, c.y.extents[0]);
      for (std::int64_t p = 0; p < c.y.extents[2]; ++p) {
        for (std::int64_t q = 0; q < c.y.extents[3]; ++q) {
          std::int64_t h, v;
          if (!c.source(p, q, i, j, h, v)) continue;
          sum.add(load(c.x.type, x, c.x.at(n, k / outputs * channels + l, h, v)),
                  load(c.y.type, y, c.y.at(n, k, p, q)));
        }
      }
    }
    put(c.w, w, c.w.at(k, l, i, j), alpha, sum.value(), beta);
  });
}

// Algorithm 0 of the backward passes is the fastest and is nondeterministic; algorithm 2 needs memory.
constexpr std::size_t kWorkspace = 1000;

// An algorithm that is suggested but refused when called.
bool empty_promise(const Conv& conv, bool backward, int algorithm) {
  return conv.w.extents[2] == 1 && conv.o.stride[0] > 1 && algorithm == (backward ? 1 : 0);
}

template <typename Result, typename Algorithm>
cudnnStatus_t list(const Conv& conv, bool backward, int requested, int* found, Result* results) {
  *found = 0;
  if (const cudnnStatus_t status = conv.checked(); status != CUDNN_STATUS_SUCCESS) return status;
  for (int i = 0; i < 4 && i < requested; ++i) {
    Result& r = results[(*found)++];
    r = {};
    r.algo = static_cast<Algorithm>(i);
    r.status = i == 3 ? CUDNN_STATUS_NOT_SUPPORTED : CUDNN_STATUS_SUCCESS;
    r.memory = i == 2 ? kWorkspace : 0;
    r.determinism = backward && i == 0 ? CUDNN_NON_DETERMINISTIC : CUDNN_DETERMINISTIC;
    r.mathType = conv.o.math;
  }
  return CUDNN_STATUS_SUCCESS;
}

template <typename Work>
cudnnStatus_t queue(cudnnHandle_t handle, const Conv& conv, bool backward, int algorithm, void* workspace,
                    std::size_t bytes, const Work& work) {
  if (const cudnnStatus_t status = conv.checked(); status != CUDNN_STATUS_SUCCESS) return status;
  if (empty_promise(conv, backward, algorithm)) return CUDNN_STATUS_NOT_SUPPORTED_SHAPE;
  if (algorithm == 2 && bytes < kWorkspace) return CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT;
  Stream* stream = find_stream(handle->stream);
  if (!stream) return CUDNN_STATUS_BAD_PARAM;
  stream->enqueue([=, device = stream->device()] {
    if (device_error(device) != cudaSuccess) return;
    if (algorithm == 2) std::memset(workspace, 0xff, kWorkspace);
    work();
  });
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

std::size_t cudnnGetVersion() { return 0; }
const char* cudnnGetErrorString(cudnnStatus_t status) {
  thread_local char text[64];
  std::snprintf(text, sizeof text, "cuDNN status %d", static_cast<int>(status));
  return text;
}
void cudnnGetLastErrorString(char* message, std::size_t size) {
  if (size > 0) *message = '\0';
}
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) { return current_device(), create(handle); }
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) { return current_device(), destroy(handle); }
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* d) { return create(d); }
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t d) { return destroy(d); }
cudnnStatus_t cudnnSetTensor4dDescriptorEx(cudnnTensorDescriptor_t d, cudnnDataType_t type, int n, int c, int h, int w,
                                           int n_stride, int c_stride, int h_stride, int w_stride) {
  if (!type_of(type) || n <= 0 || c <= 0 || h <= 0 || w <= 0) return CUDNN_STATUS_BAD_PARAM;
  *d = {*type_of(type), {n, c, h, w}, {n_stride, c_stride, h_stride, w_stride}};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* d) { return create(d); }
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t d) { return destroy(d); }
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t d, cudnnDataType_t type, cudnnTensorFormat_t format,
                                         int k, int c, int h, int w) {
  if (!type_of(type) || k <= 0 || c <= 0 || h <= 0 || w <= 0) return CUDNN_STATUS_BAD_PARAM;
  static_cast<cudnnTensorStruct&>(*d) = {*type_of(type), {k, c, h, w}, {}};
  std::int64_t(&s)[4] = d->strides;
  if (format == CUDNN_TENSOR_NHWC) {
    s[0] = std::int64_t{c} * h * w, s[1] = 1, s[2] = std::int64_t{w} * c, s[3] = c;
  } else {
    s[0] = std::int64_t{c} * h * w, s[1] = std::int64_t{h} * w, s[2] = w, s[3] = 1;
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* d) { return create(d); }
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t d) { return destroy(d); }
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t d, int pad_h, int pad_w, int stride_h,
                                              int stride_w, int dilation_h, int dilation_w, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t compute) {
  *d = {.padding = {pad_h, pad_w},
        .stride = {stride_h, stride_w},
        .dilation = {dilation_h, dilation_w},
        .compute = compute};
  return mode == CUDNN_CROSS_CORRELATION ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}
cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t d, int groups) {
  d->groups = groups;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t d, cudnnMathType_t math) {
  d->math = math;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t, const cudnnTensorDescriptor_t x,
                                                     const cudnnFilterDescriptor_t w,
                                                     const cudnnConvolutionDescriptor_t conv,
                                                     const cudnnTensorDescriptor_t y, const int requested, int* found,
                                                     cudnnConvolutionFwdAlgoPerf_t* results) {
  return list<cudnnConvolutionFwdAlgoPerf_t, cudnnConvolutionFwdAlgo_t>({*x, *w, *y, *conv}, false, requested, found,
                                                                        results);
}
cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t, const cudnnFilterDescriptor_t w,
                                                          const cudnnTensorDescriptor_t dy,
                                                          const cudnnConvolutionDescriptor_t conv,
                                                          const cudnnTensorDescriptor_t dx, const int requested,
                                                          int* found, cudnnConvolutionBwdDataAlgoPerf_t* results) {
  return list<cudnnConvolutionBwdDataAlgoPerf_t, cudnnConvolutionBwdDataAlgo_t>({*dx, *w, *dy, *conv}, true, requested,
                                                                                found, results);
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnnHandle_t, const cudnnTensorDescriptor_t x,
                                                            const cudnnTensorDescriptor_t dy,
                                                            const cudnnConvolutionDescriptor_t conv,
                                                            const cudnnFilterDescriptor_t dw, const int requested,
                                                            int* found, cudnnConvolutionBwdFilterAlgoPerf_t* results) {
  return list<cudnnConvolutionBwdFilterAlgoPerf_t, cudnnConvolutionBwdFilterAlgo_t>({*x, *dw, *dy, *conv}, true,
                                                                                    requested, found, results);
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha, const cudnnTensorDescriptor_t x,
                                      const void* x_data, const cudnnFilterDescriptor_t w, const void* w_data,
                                      const cudnnConvolutionDescriptor_t conv, cudnnConvolutionFwdAlgo_t algorithm,
                                      void* workspace, std::size_t bytes, const void* beta,
                                      const cudnnTensorDescriptor_t y, void* y_data) {
  const Conv c{*x, *w, *y, *conv};
  const double a = scale(c.x.type, alpha), b = scale(c.x.type, beta);
  return queue(handle, c, false, algorithm, workspace, bytes,
               [=] { forward(c, algorithm, a, x_data, w_data, b, y_data); });
}
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha, const cudnnFilterDescriptor_t w,
                                           const void* w_data, const cudnnTensorDescriptor_t dy, const void* dy_data,
                                           const cudnnConvolutionDescriptor_t conv,
                                           cudnnConvolutionBwdDataAlgo_t algorithm, void* workspace, std::size_t bytes,
                                           const void* beta, const cudnnTensorDescriptor_t dx, void* dx_data) {
  const Conv c{*dx, *w, *dy, *conv};
  const double a = scale(c.x.type, alpha), b = scale(c.x.type, beta);
  return queue(handle, c, true, algorithm, workspace, bytes,
               [=] { backward_data(c, algorithm, a, w_data, dy_data, b, dx_data); });
}
cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void* alpha, const cudnnTensorDescriptor_t x,
                                             const void* x_data, const cudnnTensorDescriptor_t dy, const void* dy_data,
                                             const cudnnConvolutionDescriptor_t conv,
                                             cudnnConvolutionBwdFilterAlgo_t algorithm, void* workspace,
                                             std::size_t bytes, const void* beta, const cudnnFilterDescriptor_t dw,
                                             void* dw_data) {
  const Conv c{*x, *dw, *dy, *conv};
  const double a = scale(c.x.type, alpha), b = scale(c.x.type, beta);
  return queue(handle, c, true, algorithm, workspace, bytes,
               [=] { backward_filter(c, algorithm, a, x_data, dy_data, b, dw_data); });
}

}  // extern "C"
