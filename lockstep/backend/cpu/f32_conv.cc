#include "lockstep/backend/cpu/f32_conv.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "lockstep/backend/cpu/conv_depthwise_pass.h"
#include "lockstep/backend/cpu/conv_group.h"
#include "lockstep/backend/cpu/conv_row_pass.h"
#include "lockstep/backend/cpu/conv_thin_pass.h"
#include "lockstep/backend/cpu/conv_weight_pass.h"
#include "lockstep/backend/cpu/f32_kernels.h"
#include "lockstep/backend/cpu/f32_pack.h"
#include "lockstep/backend/cpu/f32_scratch.h"
#include "lockstep/backend/cpu/strided_images.h"
#include "lockstep/backend/cpu/winograd.h"

namespace lockstep {
namespace cpu {
namespace {

// Returns the weights [O, I, taps] of a group. In the forward pass, columns are outputs and sums run over inputs; for
// the gradient of the data, the reverse. In a depthwise convolution, a channel's sum has no other channels.
Weights weights_of(const ConvGroup& p, const float* w, ConvPass pass, DType rounded) {
  const std::int64_t taps = p.taps();
  Weights weights{.data = w, .taps = taps, .rounded = rounded};
  if (p.depthwise) {
    weights.terms = 1, weights.columns = p.outputs, weights.column_stride = taps;
  } else if (pass == ConvPass::backward_data) {
    weights.terms = p.outputs, weights.columns = p.inputs, weights.term_stride = p.inputs * taps,
    weights.column_stride = taps;
  } else {
    weights.terms = p.inputs, weights.columns = p.outputs, weights.term_stride = taps,
    weights.column_stride = p.inputs * taps;
  }
  return weights;
}

// Images from which the channels of one group can be sliced: a copy if groups begin within a block of channels.
class Groups {
 public:
  Groups(const View& v, std::int64_t groups, bool filled) : images_(StridedImages::of(v)), count_(v.shape[0]) {
    if (groups == 1 || images_.can_slice(images_.channels / groups)) return;
    copy_.resize(static_cast<std::size_t>(v.numel()));
    target_ = std::exchange(images_, StridedImages::channels_last(copy_.data(), images_.channels, images_.pixels));
    if (filled) copy_images(target_, images_, count_);
  }
  StridedImages group(std::int64_t g, std::int64_t channels) const { return images_.slice(g * channels, channels); }
  // Copies results back.
  void finish() const {
    if (!copy_.empty()) copy_images(images_, target_, count_);
  }

 private:
  StridedImages images_, target_;
  std::int64_t count_;
  std::vector<float> copy_;
};

class F32Conv final : public ConvKernels {
 public:
  explicit F32Conv(const F32ConvOptions& options) : options_(options) {}

  Layout preferred_layout(DType, std::int64_t channels) const override {
    return channels % kBlock == 0 ? Layout::blocked16 : Layout::channels_last;
  }

  std::int64_t prepared_size(ConvPass pass, const Conv2dOptions& options, const Shape& x, const Shape& w,
                             DType dtype) const override {
    const ConvGroup p(options, View{.shape = x}, View{.shape = w}, View{.shape = output_shape(options, x, w)});
    if (uses_winograd(p)) return winograd_weights(p, pass).weights_size();
    return p.groups * weights_of(p, nullptr, pass, dtype).packed_size();
  }

  void run(KernelContext& context, const kernels::PrepareConv& call) override {
    const ConvGroup p(call.options, View{.shape = call.x}, call.w,
                      View{.shape = output_shape(call.options, call.x, call.w.shape)});
    if (uses_winograd(p)) {
      return winograd_weights(p, call.pass)
          .transform(context, weights_of(p, call.w.as<float>(), call.pass, call.dtype),
                     call.pass == ConvPass::backward_data, call.prepared.as<float>());
    }
    for (std::int64_t g = 0; g < p.groups; ++g) {
      const Weights weights = weights_of(p, call.w.as<float>() + g * p.weights(), call.pass, call.dtype);
      pack(context, weights, call.prepared.as<float>() + g * weights.packed_size());
    }
  }

  void run(KernelContext& context, const kernels::Conv& call) override {
    if (call.y.numel() == 0) return;
    run_rows(context, ConvGroup(call.options, call.x, call.w, call.y, call.as_images), ConvPass::forward, call.x,
             call.w, call.bias, call.y);
  }

  void run(KernelContext& context, const kernels::ConvBackwardData& call) override {
    if (call.dx.numel() == 0) return;
    run_rows(context, ConvGroup(call.options, call.dx, call.w, call.dy, call.as_images), ConvPass::backward_data,
             call.dy, call.w, View(), call.dx);
  }

  void run(KernelContext& context, const kernels::ConvBackwardWeights& call) override {
    if (call.dy.numel() == 0) {
      for (const View& v : {call.dw, call.db}) {
        if (v) std::fill_n(v.as<float>(), v.numel(), 0.f);
      }
      return;
    }
    const ConvGroup p(call.options, call.x, call.dw, call.dy);
    const bool winograd = uses_winograd(p), only_bias = winograd || p.depthwise;
    const auto run = [&](const auto& pass) {
      ScratchParts parts;
      parts.add(pass.scratch(context.threads));
      pass.run(context, call.dw.as<float>(), parts.take(context));
    };
    if (winograd)
      run(WinogradWeightPass({p.rows, p.columns}, p.images, StridedImages::of(call.x), StridedImages::of(call.dy)));
    if (p.depthwise) run(DepthwiseWeightPass(p, StridedImages::of(call.x), StridedImages::of(call.dy)));
    if (only_bias && !call.db) return;
    const Groups inputs(call.x, p.groups, true), gradients(call.dy, p.groups, true);
    for (std::int64_t g = 0; g < p.groups; ++g) {
      if (!only_bias && ThinWeightPass::pays(p)) {
        const ThinWeightPass pass(p, inputs.group(g, p.inputs), gradients.group(g, p.outputs));
        ScratchParts parts;
        parts.add(pass.scratch(context.threads));
        pass.run(context, call.dw.as<float>() + g * p.weights(),
                 call.db ? call.db.as<float>() + g * p.outputs : nullptr, parts.take(context));
        continue;
      }
      const WeightPass pass(p, inputs.group(g, p.inputs), gradients.group(g, p.outputs), only_bias);
      ScratchParts parts;
      const std::int64_t packed = parts.add(only_bias ? 0 : pass.packed_size()),
                         panels = parts.add(pass.scratch() * context.threads);
      float* const scratch = parts.take(context);
      if (!only_bias) pass.run(context, scratch + packed, call.dw.as<float>() + g * p.weights(), scratch + panels);
      if (call.db) pass.run_bias(context, call.db.as<float>() + g * p.outputs, scratch + panels);
    }
  }

 private:
  void run_rows(KernelContext& context, const ConvGroup& p, ConvPass direction, const View& from, const WeightView& w,
                const View& bias, const View& to) {
    const bool backward = direction == ConvPass::backward_data;
    if (uses_winograd(p)) return run_winograd(context, p, direction, from, w, bias, to);
    const Groups sources(from, p.groups, true), targets(to, p.groups, false);
    for (std::int64_t g = 0; g < p.groups; ++g) {
      const Weights weights = weights_of(p, w.as<float>() + g * p.weights(), direction, from.dtype);
      const std::int64_t columns = weights.columns;
      const StridedImages source = sources.group(g, backward ? p.outputs : p.inputs),
                          target = targets.group(g, columns);
      const auto run = [&](const auto& pass) {
        ScratchParts parts;
        const std::int64_t own = parts.add(w.prepared ? 0 : weights.packed_size()),
                           padded = parts.add(round_up(columns));
        const std::int64_t panels = parts.add(pass.scratch() * context.threads);
        float* const scratch = parts.take(context);
        if (!w.prepared) pack(context, weights, scratch + own);
        if (bias) {
          std::fill_n(scratch + padded, round_up(columns), 0.f);
          std::copy_n(bias.as<float>() + g * columns, columns, scratch + padded);
        }
        pass.run(context, w.prepared ? w.prepared.as<float>() + g * weights.packed_size() : scratch + own,
                 bias ? scratch + padded : nullptr, scratch + panels);
      };
      if (ThinPass::pays(p, direction)) {
        run(ThinPass(p, direction, source, target));
      } else {
        run(RowPass(backward ? backward_classes(p.rows) : forward_classes(p.rows),
                    backward ? backward_classes(p.columns) : forward_classes(p.columns), p.columns,
                    backward ? p.columns.output : p.columns.input, backward ? p.columns.input : p.columns.output,
                    p.taps(), p.images, source, target, p.depthwise));
      }
    }
    targets.finish();
  }

  static Shape output_shape(const Conv2dOptions& o, const Shape& x, const Shape& w) {
    const auto extent = [&](int axis) {
      const auto i = static_cast<std::size_t>(axis);
      return (x[2 + axis] + 2 * o.padding[i] - o.dilation[i] * (w[2 + axis] - 1) - 1) / o.stride[i] + 1;
    };
    return {x[0], w[0], extent(0), extent(1)};
  }

  static WinogradTiles winograd_tiles(const ConvGroup& p, ConvPass direction) {
    return direction == ConvPass::backward_data ? WinogradTiles{turned(p.rows), turned(p.columns)}
                                                : WinogradTiles{p.rows, p.columns};
  }

  // Returns a pass that is used only to transform weights.
  static WinogradPass winograd_weights(const ConvGroup& p, ConvPass direction) {
    const bool backward = direction == ConvPass::backward_data;
    const StridedImages from = StridedImages::blocked(nullptr, backward ? p.outputs : p.inputs, 1);
    const StridedImages to = StridedImages::blocked(nullptr, backward ? p.inputs : p.outputs, 1);
    return {winograd_tiles(p, direction), p.images, from, to};
  }

  void run_winograd(KernelContext& context, const ConvGroup& p, ConvPass direction, const View& from,
                    const WeightView& w, const View& bias, const View& to) {
    const WinogradPass pass(winograd_tiles(p, direction), p.images, StridedImages::of(from), StridedImages::of(to));
    ScratchParts parts;
    const std::int64_t own = parts.add(w.prepared ? 0 : pass.weights_size()),
                       panels = parts.add(pass.scratch() * context.threads);
    float* const scratch = parts.take(context);
    if (!w.prepared) {
      pass.transform(context, weights_of(p, w.as<float>(), direction, from.dtype), direction == ConvPass::backward_data,
                     scratch + own);
    }
    pass.run(context, w.prepared ? w.prepared.as<float>() : scratch + own, bias ? bias.as<float>() : nullptr,
             scratch + panels);
  }

  bool uses_winograd(const ConvGroup& p) const {
    return !options_.direct && p.groups == 1 && !p.depthwise &&
           winograd_pays(p.rows, p.columns, p.as_images, p.inputs, p.outputs);
  }

  F32ConvOptions options_;
};

}  // namespace
}  // namespace cpu

std::unique_ptr<ConvKernels> make_f32_conv(const F32ConvOptions& options) {
  return std::make_unique<cpu::F32Conv>(options);
}

}  // namespace lockstep
