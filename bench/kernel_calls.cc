#include "bench/kernel_calls.h"

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <mutex>

#include "apps/lockstep/learning_task.h"
#include "apps/lockstep/train_options.h"
#include "lockstep/runtime/device_state.h"

namespace lockstep::app {
namespace {

// Lanes may call kernels at the same time.
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

class LoggedConv final : public ConvKernels {
 public:
  LoggedConv(std::unique_ptr<ConvKernels> kernels, CallLog& log) : kernels_(std::move(kernels)), log_(log) {}

  Layout preferred_layout(DType dtype, std::int64_t channels) const override {
    return kernels_->preferred_layout(dtype, channels);
  }
  std::int64_t prepared_size(ConvPass pass, const Conv2dOptions& options, const Shape& x, const Shape& w,
                             DType dtype) const override {
    return kernels_->prepared_size(pass, options, x, w, dtype);
  }
  void prepare(KernelContext& context, ConvPass pass, const Conv2dOptions& options, const Shape& x, const View& w,
               DType dtype, const View& prepared) override {
    log_.add(PrepareConvCall{pass, options, x, Operand::of(w), dtype});
    kernels_->prepare(context, pass, options, x, w, dtype, prepared);
  }
  void forward(KernelContext& context, const Conv2dOptions& options, const View& x, const WeightView& w,
               const View& bias, const View& y) override {
    add(ConvPass::forward, options, x, w, bias, y);
    kernels_->forward(context, options, x, w, bias, y);
  }
  void backward_data(KernelContext& context, const Conv2dOptions& options, const View& dy, const WeightView& w,
                     const View& dx) override {
    add(ConvPass::backward_data, options, dx, w, View(), dy);
    kernels_->backward_data(context, options, dy, w, dx);
  }
  void backward_weights(KernelContext& context, const Conv2dOptions& options, const View& x, const View& dy,
                        const View& dw, const View& db) override {
    add(ConvPass::backward_weights, options, x, dw, db, dy);
    kernels_->backward_weights(context, options, x, dy, dw, db);
  }

 private:
  void add(ConvPass pass, const Conv2dOptions& options, const View& x, const WeightView& w, const View& bias,
           const View& y) {
    const bool prepared(w.prepared);
    log_.add(ConvCall{pass, options, Operand::of(x), Operand::of(w), Operand::of(bias), Operand::of(y), prepared});
  }

  std::unique_ptr<ConvKernels> kernels_;
  CallLog& log_;
};

class LoggedMatmul final : public MatmulKernels {
 public:
  LoggedMatmul(std::unique_ptr<MatmulKernels> kernels, CallLog& log) : kernels_(std::move(kernels)), log_(log) {}

  std::int64_t prepared_size(const MatmulOptions& options, std::int64_t rows, const Shape& b,
                             DType dtype) const override {
    return kernels_->prepared_size(options, rows, b, dtype);
  }
  void prepare(KernelContext& context, const MatmulOptions& options, const View& b, DType dtype,
               const View& prepared) override {
    log_.add(PrepareMatmulCall{options, Operand::of(b), dtype});
    kernels_->prepare(context, options, b, dtype, prepared);
  }
  void matmul(KernelContext& context, const MatmulOptions& options, const View& a, const WeightView& b,
              const View& bias, const View& c) override {
    const bool prepared(b.prepared);
    log_.add(MatmulCall{options, Operand::of(a), Operand::of(b), Operand::of(bias), Operand::of(c), prepared});
    kernels_->matmul(context, options, a, b, bias, c);
  }
  void batched_matmul(KernelContext& context, const MatmulOptions& options, const View& a, const View& b,
                      const View& c) override {
    log_.add(MatmulCall{options, Operand::of(a), Operand::of(b), {}, Operand::of(c)});
    kernels_->batched_matmul(context, options, a, b, c);
  }

 private:
  std::unique_ptr<MatmulKernels> kernels_;
  CallLog& log_;
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

std::vector<KernelCall> kernel_calls(const JobOptions& options) {
  TrainOptions o;
  static_cast<JobOptions&>(o) = options;
  CallLog log;  // lives longer than the device whose kernels write it
  ToolJob job = make_job(o);
  KernelFamilies& families = state_of(job.devices().at(0), "bench kernels").backend->families();
  families.conv = std::make_unique<LoggedConv>(std::move(families.conv), log);
  families.matmul = std::make_unique<LoggedMatmul>(std::move(families.matmul), log);
  const Examples examples = made_up_examples(o, o.batch_size);
  auto net = make_initialized_model(o, job, examples.classes);
  auto optimizer = o.make_optimizer(net->parameters());
  TrainerOptions training = o.trainer_options(job);
  training.epochs = 1;
  training.max_steps = 1;
  Trainer(*net, *optimizer, examples.data, nullptr, training).train();
  job.runtime().synchronize();  // train() has waited for the loss, not for the gradients
  return log.take();
}

}  // namespace lockstep::app
