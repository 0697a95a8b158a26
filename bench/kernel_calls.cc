#include "bench/kernel_calls.h"

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <mutex>

#include "apps/lockstep/initial_weights.h"
#include "apps/lockstep/options/data.h"
#include "lockstep/runtime/device_state.h"

namespace lockstep::app {
namespace {

// A log with a mutex, because lanes may call kernels at the same time.
class CallLog {
 public:
  void add(decltype(KernelCall::call) call) {
    const std::lock_guard lock(mutex_);
    const auto same = std::ranges::find(calls_, call, &KernelCall::call);
    if (same == calls_.end()) {
      calls_.push_back({std::move(call)});
    } else {
      ++same->count;
    }
  }
  std::vector<KernelCall> take() { return std::move(calls_); }

 private:
  std::mutex mutex_;
  std::vector<KernelCall> calls_;
};

PrepareConvCall logged(const kernels::PrepareConv& c) {
  return {c.pass, c.options, c.x, CallOperand::of(c.w), c.dtype};
}
PrepareMatmulCall logged(const kernels::PrepareMatmul& c) { return {c.options, CallOperand::of(c.b), c.dtype}; }
ConvCall logged(ConvPass pass, const Conv2dOptions& options, const View& x, const WeightView& w, const View& bias,
                const View& y) {
  const bool prepared(w.prepared);
  return {pass, options, CallOperand::of(x), CallOperand::of(w), CallOperand::of(bias), CallOperand::of(y), prepared};
}
ConvCall logged(const kernels::Conv& c) { return logged(ConvPass::forward, c.options, c.x, c.w, c.bias, c.y); }
ConvCall logged(const kernels::ConvBackwardData& c) {
  return logged(ConvPass::backward_data, c.options, c.dx, c.w, View(), c.dy);
}
ConvCall logged(const kernels::ConvBackwardWeights& c) {
  return logged(ConvPass::backward_weights, c.options, c.x, c.dw, c.db, c.dy);
}
MatmulCall logged(const kernels::Matmul& c) {
  const bool prepared(c.b.prepared);
  return {c.options, CallOperand::of(c.a), CallOperand::of(c.b), CallOperand::of(c.bias), CallOperand::of(c.c),
          prepared};
}
MatmulCall logged(const kernels::BatchedMatmul& c) {
  return {c.options, CallOperand::of(c.a), CallOperand::of(c.b), {}, CallOperand::of(c.c)};
}

// Logs a call and runs it.
struct Logging {
  void operator()(auto& kernels, KernelContext& context, const auto& call) const {
    log.add(logged(call));
    kernels.run(context, call);
  }
  CallLog& log;
};

class LoggedConv final : public KernelsWith<ConvKernels, Logging> {
 public:
  using KernelsWith::KernelsWith;
  Layout preferred_layout(DType dtype, std::int64_t channels) const override {
    return kernels().preferred_layout(dtype, channels);
  }
  std::int64_t prepared_size(ConvPass pass, const Conv2dOptions& options, const Shape& x, const Shape& w,
                             DType dtype) const override {
    return kernels().prepared_size(pass, options, x, w, dtype);
  }
};

class LoggedMatmul final : public KernelsWith<MatmulKernels, Logging> {
 public:
  using KernelsWith::KernelsWith;
  std::int64_t prepared_size(const MatmulOptions& options, std::int64_t rows, const Shape& b,
                             DType dtype) const override {
    return kernels().prepared_size(options, rows, b, dtype);
  }
};

std::string conv_name(ConvPass pass, const Conv2dOptions& options, const Shape& x, const Shape& w) {
  const char* const name = pass == ConvPass::forward         ? "forward"
                           : pass == ConvPass::backward_data ? "backward data"
                                                             : "backward weights";
  std::string text = fmt::format("conv2d {} {} {}x{} -> {}", name, x.str(), w[2], w[3], w[0]);
  if (options.stride[0] > 1) text += fmt::format(", stride {}", options.stride[0]);
  if (options.groups > 1) text += fmt::format(", {} groups", options.groups);
  return text;
}

std::string matrix_name(const Shape& shape, bool transposed) { return shape.str() + (transposed ? "^T" : ""); }

std::string name_of(const PrepareConvCall& c) { return "weights of " + conv_name(c.pass, c.options, c.x, c.w.shape); }

std::string name_of(const PrepareMatmulCall& c) {
  return "weights of matmul x " + matrix_name(c.b.shape, c.options.transpose_b);
}

std::string name_of(const ConvCall& c) { return conv_name(c.pass, c.options, c.x.shape, c.w.shape); }

std::string name_of(const MatmulCall& c) {
  return fmt::format("matmul {} x {}", matrix_name(c.a.shape, c.options.transpose_a),
                     matrix_name(c.b.shape, c.options.transpose_b));
}

double flops_of(const PrepareConvCall&) { return 0; }
double flops_of(const PrepareMatmulCall&) { return 0; }

double flops_of(const ConvCall& c) {
  return 2.0 * static_cast<double>(c.y.shape.numel()) * static_cast<double>(c.w.shape.numel() / c.w.shape[0]);
}

double flops_of(const MatmulCall& c) {
  const int dims = c.a.shape.dim();
  return 2.0 * static_cast<double>(c.c.shape.numel()) *
         static_cast<double>(c.a.shape[c.options.transpose_a ? dims - 2 : dims - 1]);
}

DType dtype_of(const PrepareConvCall& c) { return c.dtype; }
DType dtype_of(const PrepareMatmulCall& c) { return c.dtype; }
DType dtype_of(const ConvCall& c) { return c.x.dtype; }
DType dtype_of(const MatmulCall& c) { return c.a.dtype; }

}  // namespace

std::string KernelCall::name() const {
  return std::visit([](const auto& c) { return name_of(c); }, call);
}

double KernelCall::flops() const {
  return std::visit([](const auto& c) { return flops_of(c); }, call);
}

DType KernelCall::dtype() const {
  return std::visit([](const auto& c) { return dtype_of(c); }, call);
}

std::vector<KernelCall> kernel_calls(const TrainOptions& o) {
  CallLog log;  // must outlive the device whose kernels write to it
  ToolJob job = make_job(o);
  KernelFamilies& families = state_of(job.devices().at(0), "bench kernels").backend->families();
  families.conv = std::make_unique<LoggedConv>(std::move(families.conv), Logging{log});
  families.matmul = std::make_unique<LoggedMatmul>(std::move(families.matmul), Logging{log});
  const std::shared_ptr<const Dataset> examples = made_up_examples(o, o.trainer.batch_size);
  auto net = make_initialized_model(o, job, stand_in_schema(o));
  auto optimizer = o.make_optimizer(net->parameters());
  TrainerOptions training = o.trainer_options(job);
  training.epochs = 1;
  training.max_steps = 1;
  Trainer(*net, *optimizer, examples, nullptr, training).train();
  job.runtime().synchronize();  // train() waits only for the loss, not for the gradients
  return log.take();
}

}  // namespace lockstep::app
