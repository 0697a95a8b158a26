// Measures the speed of each convolution and matrix product of a model, on one thread: in GFLOP/s, as a share of the
// core's f32 peak, which is measured alternately, and next to oneDNN's. Preparing weights is a row of its own; oneDNN
// reorders weights in each call. Winograd's algorithm multiplies less than is counted here, so it may exceed the peak.
#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "bench/benchmark.h"
#include "bench/kernel_calls.h"
#include "lockstep/backend/backend.h"
#include "lockstep/backend/cpu/f32_kernels.h"
#include "lockstep/backend/cpu/onednn.h"
#include "lockstep/base/random.h"

namespace lockstep::app {
namespace {

// Memory for an operand, filled with small numbers.
class Buffer {
 public:
  explicit Buffer(const CallOperand& o) : Buffer(o, o.layout) {}
  Buffer(const CallOperand& o, Layout layout) {
    if (o.shape.dim() == 0) return;
    view_ = {.dtype = o.dtype, .layout = layout_fits(layout, o.shape) ? layout : Layout::plain, .shape = o.shape};
    view_.data = memory_.get(std::max<std::size_t>(view_.bytes(), 1));
    const RandomKey key = random_key(0, {});
    for (std::int64_t i = 0; i < o.shape.numel(); ++i) set(i, random_uniform(key, static_cast<std::uint64_t>(i)) - 0.5);
  }
  const View& view() const { return view_; }

 private:
  void set(std::int64_t i, double value) {
    switch (view_.dtype) {
      case DType::f32: view_.as<float>()[i] = static_cast<float>(value); break;
      case DType::bf16: view_.as<BFloat16>()[i] = BFloat16(static_cast<float>(value)); break;
      case DType::f16: view_.as<Float16>()[i] = Float16(static_cast<float>(value)); break;
      default: fail("bench kernels: cannot measure products of {}", name(view_.dtype));
    }
  }

  Scratch memory_;
  View view_;
};

// A call with its data. Buffers are shared by copies.
using Work = std::function<void()>;

struct MeasuredKernels {
  ConvKernels* conv;
  MatmulKernels* matmul;
  std::optional<Layout> layout;  // replaces the recorded one
};

// Returns the operand for the result of kernels::PrepareMatmul for products with few rows.
CallOperand prepared_matrix(const MatmulKernels& matmul, const MatmulOptions& options, const CallOperand& b,
                            DType dtype) {
  return {.shape = {matmul.prepared_size(options, 1, b.shape, dtype)}};
}

Work work_of(const PrepareConvCall& c, const MeasuredKernels& kernels, KernelContext& context) {
  struct Data {
    Buffer w, prepared;
  };
  ConvKernels& conv = *kernels.conv;
  const CallOperand prepared{.shape = {conv.prepared_size(c.pass, c.options, c.x, c.w.shape, c.dtype)}};
  const auto d = std::make_shared<Data>(Data{Buffer(c.w), Buffer(prepared)});
  return [=, &conv, &context] {
    conv.run(context, kernels::PrepareConv{c.pass, c.options, c.x, d->w.view(), c.dtype, d->prepared.view()});
  };
}

Work work_of(const PrepareMatmulCall& c, const MeasuredKernels& kernels, KernelContext& context) {
  struct Data {
    Buffer b, prepared;
  };
  MatmulKernels& matmul = *kernels.matmul;
  const auto d = std::make_shared<Data>(Data{Buffer(c.b), Buffer(prepared_matrix(matmul, c.options, c.b, c.dtype))});
  return [=, &matmul, &context] {
    matmul.run(context, kernels::PrepareMatmul{c.options, d->b.view(), c.dtype, d->prepared.view()});
  };
}

Work work_of(const ConvCall& c, const MeasuredKernels& kernels, KernelContext& context) {
  struct Data {
    Buffer x, w, bias, y, prepared;
  };
  const auto buffer = [&](const CallOperand& o) { return kernels.layout ? Buffer(o, *kernels.layout) : Buffer(o); };
  CallOperand prepared;
  if (c.prepared && !kernels.layout) {
    prepared.shape = {kernels.conv->prepared_size(c.pass, c.options, c.x.shape, c.w.shape, c.x.dtype)};
  }
  const auto d = std::make_shared<Data>(Data{buffer(c.x), Buffer(c.w), Buffer(c.bias), buffer(c.y), Buffer(prepared)});
  const View &x = d->x.view(), &bias = d->bias.view(), &y = d->y.view();
  const WeightView w(d->w.view(), d->prepared.view());
  ConvKernels& conv = *kernels.conv;
  if (w.prepared) conv.run(context, kernels::PrepareConv{c.pass, c.options, x.shape, w, x.dtype, w.prepared});
  return [=, &conv, &context, options = c.options, pass = c.pass, keep = d] {
    switch (pass) {
      case ConvPass::forward: return conv.run(context, kernels::Conv{options, x, w, bias, y});
      case ConvPass::backward_data: return conv.run(context, kernels::ConvBackwardData{options, y, w, x});
      case ConvPass::backward_weights: return conv.run(context, kernels::ConvBackwardWeights{options, x, y, w, bias});
    }
  };
}

Work work_of(const MatmulCall& c, const MeasuredKernels& kernels, KernelContext& context) {
  struct Data {
    Buffer a, b, bias, c, prepared;
  };
  MatmulKernels& matmul = *kernels.matmul;
  CallOperand prepared;
  if (c.prepared && !kernels.layout) prepared = prepared_matrix(matmul, c.options, c.b, c.a.dtype);
  const auto d = std::make_shared<Data>(Data{Buffer(c.a), Buffer(c.b), Buffer(c.bias), Buffer(c.c), Buffer(prepared)});
  const WeightView b(d->b.view(), d->prepared.view());
  if (b.prepared) matmul.run(context, kernels::PrepareMatmul{c.options, b, c.a.dtype, b.prepared});
  return [=, &matmul, &context, options = c.options] {
    if (d->a.view().shape.dim() == 3)
      return matmul.run(context, kernels::BatchedMatmul{options, d->a.view(), b, d->c.view()});
    matmul.run(context, kernels::Matmul{options, d->a.view(), b, d->bias.view(), d->c.view()});
  };
}

// Repeats the work as often as it takes to be timed. Sets `times` to the number.
Work repeated(Work work, int& times) {
  constexpr double kSeconds = 2e-3;
  work();
  const double once = seconds_of(work);
  times = std::clamp(static_cast<int>(kSeconds / std::max(once, 1e-9)), 1, 10'000);
  return [work = std::move(work), times] {
    for (int i = 0; i < times; ++i) work();
  };
}

struct Speeds {
  double ms = 0, gflops = 0, share = 0;
  std::optional<double> peer_ms;
};

Speeds measure(const KernelCall& call, const MeasuredKernels& ours, const std::optional<MeasuredKernels>& peer,
               KernelContext& context, int rounds, Report& report) {
  constexpr std::int64_t kPeakRounds = 500'000;
  const auto work = [&](const MeasuredKernels& kernels, int& times) {
    return repeated(std::visit([&](const auto& c) { return work_of(c, kernels, context); }, call.call), times);
  };
  double peak_flops = 0;
  int times = 0, peer_times = 0;
  std::vector<Work> parts{[&] { peak_flops = cpu::f32_kernels().fma_peak(kPeakRounds); }, work(ours, times)};
  if (peer) parts.push_back(work(*peer, peer_times));
  const std::vector<Timing> timings = time_in_rounds(rounds, parts);
  report.timings(call.name(), timings);
  std::vector<double> shares;
  for (std::size_t r = 0; r < timings[0].rounds.size(); ++r) {
    shares.push_back(call.flops() * times / timings[1].rounds[r] / (peak_flops / timings[0].rounds[r]));
  }
  Speeds s{.ms = timings[1].median_ms() / times, .share = median(shares)};
  s.gflops = 1e-6 * call.flops() / s.ms;
  if (peer) s.peer_ms = timings[2].median_ms() / peer_times;
  return s;
}

void measure_kernels(TrainOptions o, const BenchOptions& common, Report& report) {
  o.devices = "cpu";
  o.num_devices = 1;
  o.trainer.split.shards = 1;
  o.threads_per_shard = 1;
  const std::vector<KernelCall> calls = kernel_calls(o);
  report.begin();
  report.set("model", o.model.name);
  report.set("batch size", o.trainer.batch_size);
  report.set("dtype", std::string(name(calls.empty() ? DType::f32 : calls.front().dtype())));
  report.set("direct", o.direct_conv);
  const std::unique_ptr<Backend> backend = make_cpu_backend({.direct_conv = o.direct_conv});
  const auto conv = make_onednn_conv();
  const auto matmul = make_onednn_matmul();
  const MeasuredKernels ours{backend->families().conv.get(), backend->families().matmul.get(), {}},
      onednn{conv.get(), matmul.get(), Layout::channels_last};
  const auto context = backend->make_context(nullptr, 1, nullptr);
  double ms = 0, compared_ms = 0, peer_ms = 0;
  std::vector<std::vector<Cell>> rows;
  for (const KernelCall& call : calls) {
    const bool counted = call.flops() > 0;
    const bool compared = counted && conv && call.dtype() == DType::f32;
    const Speeds s =
        measure(call, ours, compared ? std::optional(onednn) : std::nullopt, *context, common.rounds, report);
    ms += call.count * s.ms;
    if (compared) compared_ms += call.count * s.ms, peer_ms += call.count * *s.peer_ms;
    // The peak is for f32, so a share of it makes sense only for f32 products.
    const bool of_peak = counted && !backend->multiplies(call.dtype());
    rows.push_back({call.name(), Cell(call.count, 0), Cell(s.ms, 3), counted ? Cell(s.gflops, 1) : Cell("-"),
                    of_peak ? Cell(100 * s.share, 0) : Cell("-"),
                    compared ? Cell(1e-6 * call.flops() / *s.peer_ms, 1) : Cell("-")});
  }
  report.table("kernels", {"kernel", "calls a step", "ms a call", "GFLOP/s", "% of peak", "oneDNN GFLOP/s"}, rows);
  std::string note = fmt::format("a step: {:.2f} ms", ms);
  if (peer_ms > 0) {
    note += fmt::format(", of which {:.2f} without preparing weights; oneDNN {:.2f} ms", compared_ms, peer_ms);
  }
  report.note(note);
}

}  // namespace

Benchmark add_bench_kernels(CLI::App& app) {
  auto o = std::make_shared<TrainOptions>();
  o->trainer.batch_size = 32;
  o->add_to(app, {"--model", "--context", "--layers", "--heads", "--width", "--dtype", "--direct-conv"});
  app.add_option("--batch-size", o->trainer.batch_size, "Examples per shard")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20))
      ->capture_default_str();
  return [o, &app](const BenchOptions& common, Report& report) {
    o->choose_defaults(app);
    measure_kernels(*o, common, report);
  };
}

}  // namespace lockstep::app
