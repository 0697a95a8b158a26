#include "lockstep/backend/cuda/cudnn_conv_plan.h"

#include <algorithm>
#include <limits>
#include <span>

#include "lockstep/backend/cuda/library_status.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// Maximum workspace of an algorithm, in bytes per lane. Algorithms that need more are rarely faster.
constexpr std::size_t kMostWorkspace = std::size_t{1} << 30;
// More than cuDNN's number of algorithms for any pass, times two kinds of arithmetic.
constexpr int kMostResults = 24;

cudnnDataType_t cudnn_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return CUDNN_DATA_FLOAT;
    case DType::bf16: return CUDNN_DATA_BFLOAT16;
    case DType::f16: return CUDNN_DATA_HALF;
    case DType::f64: return CUDNN_DATA_DOUBLE;
    default: fail("conv2d: the input is {}, expected a floating type", name(dtype));
  }
}

std::string_view name(ConvPass pass) {
  switch (pass) {
    case ConvPass::forward: return "forward";
    case ConvPass::backward_data: return "backward data";
    case ConvPass::backward_weights: return "backward weights";
  }
  return "?";
}

template <typename Descriptor>
Descriptor created(cudnnStatus_t (*create)(Descriptor*), const char* call) {
  Descriptor descriptor = nullptr;
  check_cudnn(create(&descriptor), call);
  return descriptor;
}

// A refused call has done nothing. cuDNN may also report an unsupported combination as a bad parameter.
bool refused(cudnnStatus_t status) { return status >= CUDNN_STATUS_BAD_PARAM && status < CUDNN_STATUS_INTERNAL_ERROR; }

int as_int(std::int64_t n) {
  check(n >= 0 && n <= std::numeric_limits<int>::max(), "conv2d: an extent of {}, expected less than 2^31", n);
  return static_cast<int>(n);
}

}  // namespace

std::string ConvProblem::str() const {
  return fmt::format("conv2d {}, {} {}, x {}, w {}, stride {} {}, padding {} {}, dilation {} {}, groups {}", name(pass),
                     lockstep::name(dtype), lockstep::name(layout), x.str(), w.str(), options.stride[0],
                     options.stride[1], options.padding[0], options.padding[1], options.dilation[0],
                     options.dilation[1], options.groups);
}

ConvProblem::Key ConvProblem::key(int gpu) const {
  return {static_cast<int>(pass),
          static_cast<int>(dtype),
          static_cast<int>(layout),
          gpu,
          x[0],
          x[1],
          x[2],
          x[3],
          w[0],
          w[1],
          w[2],
          w[3],
          y[2],
          y[3],
          options.stride[0],
          options.stride[1],
          options.padding[0],
          options.padding[1],
          options.dilation[0],
          options.dilation[1],
          options.groups};
}

ConvPlan::Owned<cudnnTensorDescriptor_t> ConvPlan::tensor(const Shape& shape) const {
  Owned<cudnnTensorDescriptor_t> descriptor(created(cudnnCreateTensorDescriptor, "cudnnCreateTensorDescriptor"),
                                            cudnnDestroyTensorDescriptor);
  auto stride = [&](std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) {
    return as_int(offset4(problem_.layout, shape, n, c, h, w));
  };
  check_cudnn(cudnnSetTensor4dDescriptorEx(descriptor.get(), cudnn_type(problem_.dtype), as_int(shape[0]),
                                           as_int(shape[1]), as_int(shape[2]), as_int(shape[3]), stride(1, 0, 0, 0),
                                           stride(0, 1, 0, 0), stride(0, 0, 1, 0), stride(0, 0, 0, 1)),
              "cudnnSetTensor4dDescriptorEx");
  return descriptor;
}

ConvPlan::ConvPlan(const ConvProblem& problem, cudnnHandle_t handle, bool tf32)
    : problem_(problem), x_(tensor(problem.x)), y_(tensor(problem.y)),
      w_(created(cudnnCreateFilterDescriptor, "cudnnCreateFilterDescriptor"), cudnnDestroyFilterDescriptor),
      conv_(created(cudnnCreateConvolutionDescriptor, "cudnnCreateConvolutionDescriptor"),
            cudnnDestroyConvolutionDescriptor) {
  const Shape& w = problem.w;
  const Conv2dOptions& o = problem.options;
  check_cudnn(cudnnSetFilter4dDescriptor(w_.get(), cudnn_type(problem.dtype),
                                         problem.layout == Layout::plain ? CUDNN_TENSOR_NCHW : CUDNN_TENSOR_NHWC,
                                         as_int(w[0]), as_int(w[1]), as_int(w[2]), as_int(w[3])),
              "cudnnSetFilter4dDescriptor");
  check_cudnn(cudnnSetConvolution2dDescriptor(conv_.get(), as_int(o.padding[0]), as_int(o.padding[1]),
                                              as_int(o.stride[0]), as_int(o.stride[1]), as_int(o.dilation[0]),
                                              as_int(o.dilation[1]), CUDNN_CROSS_CORRELATION,
                                              problem.dtype == DType::f64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT),
              "cudnnSetConvolution2dDescriptor");
  check_cudnn(cudnnSetConvolutionGroupCount(conv_.get(), as_int(o.groups)), "cudnnSetConvolutionGroupCount");
  // cuDNN's default math mode for f32 is TF32.
  const bool fma = problem.dtype == DType::f32 && !tf32;
  const cudnnMathType_t math = fma                            ? CUDNN_FMA_MATH
                               : is_half_dtype(problem.dtype) ? CUDNN_TENSOR_OP_MATH
                                                              : CUDNN_DEFAULT_MATH;
  check_cudnn(cudnnSetConvolutionMathType(conv_.get(), math), "cudnnSetConvolutionMathType");

  int found = 0;
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  auto list = [&](auto get, auto results, const auto&... descriptors) {
    status = get(handle, descriptors.get()..., kMostResults, &found, results.data());
    if (status == CUDNN_STATUS_SUCCESS) keep(results, found, fma);
  };
  switch (problem.pass) {
    case ConvPass::forward:
      list(cudnnGetConvolutionForwardAlgorithm_v7, std::array<cudnnConvolutionFwdAlgoPerf_t, kMostResults>{}, x_, w_,
           conv_, y_);
      break;
    case ConvPass::backward_data:
      list(cudnnGetConvolutionBackwardDataAlgorithm_v7, std::array<cudnnConvolutionBwdDataAlgoPerf_t, kMostResults>{},
           w_, y_, conv_, x_);
      break;
    case ConvPass::backward_weights:
      list(cudnnGetConvolutionBackwardFilterAlgorithm_v7,
           std::array<cudnnConvolutionBwdFilterAlgoPerf_t, kMostResults>{}, x_, y_, conv_, w_);
      break;
  }
  // An unsupported problem has no candidates.
  if (!refused(status)) check_cudnn(status, "cudnnGetConvolution…Algorithm_v7");
  if (!candidates_.empty()) use(0);
}

template <typename Results>
void ConvPlan::keep(const Results& results, int found, bool fma) {
  for (const auto& r : std::span(results).first(static_cast<std::size_t>(found))) {
    const bool tensor_cores = r.mathType == CUDNN_TENSOR_OP_MATH || r.mathType == CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION;
    if (r.status != CUDNN_STATUS_SUCCESS || r.determinism != CUDNN_DETERMINISTIC || r.memory > kMostWorkspace) continue;
    if (fma && tensor_cores) continue;
    candidates_.push_back({static_cast<int>(r.algo), r.memory, fma ? CUDNN_FMA_MATH : r.mathType});
  }
}

void ConvPlan::use(std::size_t candidate) {
  used_ = candidate;
  check_cudnn(cudnnSetConvolutionMathType(conv_.get(), candidates_[candidate].math), "cudnnSetConvolutionMathType");
}

void ConvPlan::reject() {
  candidates_.erase(candidates_.begin() + static_cast<std::ptrdiff_t>(used_));
  if (!candidates_.empty()) use(0);
}

std::size_t ConvPlan::most_workspace_bytes() const {
  std::size_t most = 0;
  for (const Candidate& c : candidates_) most = std::max(most, c.memory);
  return most;
}

bool ConvPlan::run(cudnnHandle_t handle, const ConvOperands& operands, void* workspace) const {
  const double one = 1, zero = 0;
  const float one_f = 1, zero_f = 0;
  const bool wide = problem_.dtype == DType::f64;
  const void* alpha = wide ? static_cast<const void*>(&one) : &one_f;
  const void* beta = wide ? static_cast<const void*>(&zero) : &zero_f;
  const Candidate& c = candidates_[used_];
  const auto& [x, w, y] = operands;
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  switch (problem_.pass) {
    case ConvPass::forward:
      status = cudnnConvolutionForward(handle, alpha, x_.get(), x, w_.get(), w, conv_.get(),
                                       static_cast<cudnnConvolutionFwdAlgo_t>(c.algorithm), workspace, c.memory, beta,
                                       y_.get(), y);
      break;
    case ConvPass::backward_data:
      status = cudnnConvolutionBackwardData(handle, alpha, w_.get(), w, y_.get(), y, conv_.get(),
                                            static_cast<cudnnConvolutionBwdDataAlgo_t>(c.algorithm), workspace,
                                            c.memory, beta, x_.get(), x);
      break;
    case ConvPass::backward_weights:
      status = cudnnConvolutionBackwardFilter(handle, alpha, x_.get(), x, y_.get(), y, conv_.get(),
                                              static_cast<cudnnConvolutionBwdFilterAlgo_t>(c.algorithm), workspace,
                                              c.memory, beta, w_.get(), w);
      break;
  }
  if (refused(status) && !proven_) return false;
  check_cudnn(status, "cudnnConvolution…");
  return true;
}

}  // namespace lockstep
