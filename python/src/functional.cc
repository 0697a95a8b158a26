// lockstep.nn.functional: activations, losses, convolutions, pooling, normalization, and functions that layers use.
#include <cmath>
#include <string>

#include "bindings.h"
#include "extents.h"
#include "in_place.h"
#include "words.h"

namespace lockstep::python {
namespace {

using Maybe = std::optional<Tensor>;

Tensor tensor_or_none(const Maybe& x) { return x.value_or(Tensor()); }

Reduction reduction_of(const std::string& word) {
  return value_of<Reduction>("reduction", word,
                             {{"none", Reduction::none}, {"mean", Reduction::mean}, {"sum", Reduction::sum}});
}

// Returns a loss in PyTorch's shape, without axes; the library's losses have shape [1].
Tensor loss_of(const Tensor& loss, Reduction reduction) {
  return reduction == Reduction::none ? loss : loss.reshape({});
}

// For functions of one tensor with PyTorch's `inplace`. Returns f(x), or x after a write of f(x) to it.
template <typename F>
TensorObject result_of(const char* name, const TensorObject& x, bool inplace, const F& f) {
  if (inplace) return TensorObject(write_in_place(name, x, f));
  const Tensor input = x.cast<Tensor>();
  Tensor y;
  {
    const WithoutLock describing;
    y = f(input);
  }
  return TensorObject(py::cast(y));
}

using Unary = Tensor (*)(const Tensor&);
void add_activation_functions(py::module_& m) {
  for (const auto& [name, f] : {std::pair<const char*, Unary>{"relu", relu},
                                {"relu6", relu6},
                                {"selu", selu},
                                {"silu", silu},
                                {"mish", mish},
                                {"hardsigmoid", hardsigmoid},
                                {"hardswish", hardswish}}) {
    m.def(
        name, [f = f, name = name](const TensorObject& x, bool inplace) { return result_of(name, x, inplace, f); },
        "input"_a, "inplace"_a = false);
  }
  for (const auto& [name, f] : {std::pair<const char*, Unary>{"logsigmoid", logsigmoid},
                                {"softsign", softsign},
                                {"tanhshrink", tanhshrink},
                                {"sigmoid", sigmoid},
                                {"tanh", tanh}}) {
    m.def(name, f, "input"_a, released());
  }
  // Functions of a tensor and a number.
  using WithNumber = Tensor (*)(const Tensor&, double);
  const auto with_number = [&](const char* name, WithNumber f, const char* number, double usual) {
    m.def(
        name,
        [f, name](const TensorObject& self, double value, bool inplace) {
          return result_of(name, self, inplace, [&](const Tensor& x) { return f(x, value); });
        },
        "input"_a, py::arg(number) = usual, "inplace"_a = false);
  };
  with_number("leaky_relu", leaky_relu, "negative_slope", 0.01);
  with_number("elu", elu, "alpha", 1);
  with_number("celu", celu, "alpha", 1);
  m.def("hardshrink", hardshrink, "input"_a, "lambd"_a = 0.5, released());
  m.def("softshrink", softshrink, "input"_a, "lambd"_a = 0.5, released());
  m.def("softplus", softplus, "input"_a, "beta"_a = 1.0, "threshold"_a = 20.0, released());
  m.def("glu", glu, "input"_a, "dim"_a = -1, released());
  m.def("prelu", prelu, "input"_a, "weight"_a, released());
  m.def(
      "hardtanh",
      [](const TensorObject& self, double low, double high, bool inplace) {
        return result_of("hardtanh", self, inplace, [&](const Tensor& x) { return hardtanh(x, low, high); });
      },
      "input"_a, "min_val"_a = -1.0, "max_val"_a = 1.0, "inplace"_a = false);
  m.def(
      "threshold",
      [](const TensorObject& self, double limit, double value, bool inplace) {
        return result_of("threshold", self, inplace, [&](const Tensor& x) { return threshold(x, limit, value); });
      },
      "input"_a, "threshold"_a, "value"_a, "inplace"_a = false);
  m.def(
      "gelu",
      [](const Tensor& x, const std::string& approximate) {
        return gelu(x, {.approximate = value_of<GeluApproximation>(
                            "gelu: approximate", approximate,
                            {{"none", GeluApproximation::none}, {"tanh", GeluApproximation::tanh}})});
      },
      "input"_a, py::kw_only(), "approximate"_a = "none", released());
  const auto in_type = [](const Tensor& x, std::optional<DType> dtype) { return dtype ? x.to(*dtype) : x; };
  m.def(
      "softmax", [in_type](const Tensor& x, int dim, std::optional<DType> t) { return softmax(in_type(x, t), dim); },
      "input"_a, "dim"_a, py::kw_only(), "dtype"_a = py::none(), released());
  m.def(
      "log_softmax",
      [in_type](const Tensor& x, int dim, std::optional<DType> t) { return log_softmax(in_type(x, t), dim); },
      "input"_a, "dim"_a, py::kw_only(), "dtype"_a = py::none(), released());
  m.def(
      "softmin", [in_type](const Tensor& x, int dim, std::optional<DType> t) { return softmax(in_type(-x, t), dim); },
      "input"_a, "dim"_a, py::kw_only(), "dtype"_a = py::none(), released());
}

void add_dropout(py::module_& m) {
  for (const auto& [name, f] : {std::pair<const char*, Tensor (*)(const Tensor&, double)>{"dropout", dropout},
                                {"dropout1d", dropout1d},
                                {"dropout2d", dropout2d}}) {
    m.def(
        name,
        [f = f, name = name](const TensorObject& self, double p, bool training, bool inplace) {
          check(p >= 0 && p <= 1, "dropout: p is {}, expected 0 to 1", p);
          if (!training || p == 0) return self;
          return result_of(name, self, inplace, [&](const Tensor& x) { return f(x, p); });
        },
        "input"_a, "p"_a = 0.5, "training"_a = true, "inplace"_a = false);
  }
}

void add_losses(py::module_& m) {
  for (const auto& [name, f] :
       {std::pair<const char*, Tensor (*)(const Tensor&, const Tensor&, const LossOptions&)>{"mse_loss", mse_loss},
        {"l1_loss", l1_loss},
        {"soft_margin_loss", soft_margin_loss},
        {"multilabel_margin_loss", multilabel_margin_loss}}) {
    m.def(
        name,
        [f = f](const Tensor& x, const Tensor& target, const std::string& word) {
          const Reduction reduction = reduction_of(word);
          return loss_of(f(x, target, {.reduction = reduction}), reduction);
        },
        "input"_a, "target"_a, py::kw_only(), "reduction"_a = "mean", released());
  }
  m.def(
      "cross_entropy",
      [](const Tensor& x, const Tensor& target, const Maybe& weight, std::int64_t ignored, const std::string& word,
         double smoothing) {
        const Reduction reduction = reduction_of(word);
        return loss_of(cross_entropy(x, target,
                                     {.weight = tensor_or_none(weight),
                                      .ignore_index = ignored,
                                      .reduction = reduction,
                                      .label_smoothing = smoothing}),
                       reduction);
      },
      "input"_a, "target"_a, "weight"_a = py::none(), py::kw_only(), "ignore_index"_a = kIgnoredLabel,
      "reduction"_a = "mean", "label_smoothing"_a = 0.0, released(),
      "Logits [N, C, ..], labels int64 [N, ..] or probabilities of the logits' shape.");
  m.def(
      "nll_loss",
      [](const Tensor& x, const Tensor& target, const Maybe& weight, std::int64_t ignored, const std::string& word) {
        const Reduction reduction = reduction_of(word);
        return loss_of(
            nll_loss(x, target, {.weight = tensor_or_none(weight), .ignore_index = ignored, .reduction = reduction}),
            reduction);
      },
      "input"_a, "target"_a, "weight"_a = py::none(), py::kw_only(), "ignore_index"_a = kIgnoredLabel,
      "reduction"_a = "mean", released(), "Log-probabilities [N, C, ..], labels int64 [N, ..].");
  m.def(
      "huber_loss",
      [](const Tensor& x, const Tensor& target, const std::string& word, double delta) {
        const Reduction reduction = reduction_of(word);
        return loss_of(huber_loss(x, target, {.reduction = reduction, .delta = delta}), reduction);
      },
      "input"_a, "target"_a, "reduction"_a = "mean", "delta"_a = 1.0, released());
  m.def(
      "smooth_l1_loss",
      [](const Tensor& x, const Tensor& target, const std::string& word, double beta) {
        const Reduction reduction = reduction_of(word);
        return loss_of(smooth_l1_loss(x, target, {.reduction = reduction, .beta = beta}), reduction);
      },
      "input"_a, "target"_a, py::kw_only(), "reduction"_a = "mean", "beta"_a = 1.0, released());
  m.def(
      "binary_cross_entropy_with_logits",
      [](const Tensor& x, const Tensor& target, const Maybe& weight, const std::string& word, const Maybe& pos_weight) {
        const Reduction reduction = reduction_of(word);
        return loss_of(
            binary_cross_entropy_with_logits(
                x, target,
                {.weight = tensor_or_none(weight), .reduction = reduction, .pos_weight = tensor_or_none(pos_weight)}),
            reduction);
      },
      "input"_a, "target"_a, "weight"_a = py::none(), py::kw_only(), "reduction"_a = "mean",
      "pos_weight"_a = py::none(), released());
  using OfProbabilities = Tensor (*)(const Tensor&, const Tensor&, const ProbabilityLossOptions&);
  for (const auto& [name, f] : {std::pair<const char*, OfProbabilities>{"binary_cross_entropy", binary_cross_entropy},
                                {"multilabel_soft_margin_loss", multilabel_soft_margin_loss}}) {
    m.def(
        name,
        [f = f](const Tensor& x, const Tensor& target, const Maybe& weight, const std::string& word) {
          const Reduction reduction = reduction_of(word);
          return loss_of(f(x, target, {.weight = tensor_or_none(weight), .reduction = reduction}), reduction);
        },
        "input"_a, "target"_a, "weight"_a = py::none(), py::kw_only(), "reduction"_a = "mean", released());
  }
  m.def(
      "gaussian_nll_loss",
      [](const Tensor& x, const Tensor& target, const Tensor& var, bool full, double eps, const std::string& word) {
        const Reduction reduction = reduction_of(word);
        return loss_of(gaussian_nll_loss(x, target, var, {.full = full, .eps = eps, .reduction = reduction}),
                       reduction);
      },
      "input"_a, "target"_a, "var"_a, "full"_a = false, "eps"_a = 1e-6, "reduction"_a = "mean", released());
  m.def(
      "poisson_nll_loss",
      [](const Tensor& x, const Tensor& target, bool log_input, bool full, double eps, const std::string& word) {
        const Reduction reduction = reduction_of(word);
        return loss_of(
            poisson_nll_loss(x, target, {.log_input = log_input, .full = full, .eps = eps, .reduction = reduction}),
            reduction);
      },
      "input"_a, "target"_a, "log_input"_a = true, "full"_a = false, py::kw_only(), "eps"_a = 1e-8,
      "reduction"_a = "mean", released());
  m.def(
      "triplet_margin_loss",
      [](const Tensor& anchor, const Tensor& positive, const Tensor& negative, double margin, double p, double eps,
         bool swap, const std::string& word) {
        const Reduction reduction = reduction_of(word);
        return loss_of(
            triplet_margin_loss(anchor, positive, negative,
                                {.margin = margin, .p = p, .eps = eps, .swap = swap, .reduction = reduction}),
            reduction);
      },
      "anchor"_a, "positive"_a, "negative"_a, "margin"_a = 1.0, "p"_a = 2.0, "eps"_a = 1e-6, "swap"_a = false,
      py::kw_only(), "reduction"_a = "mean", released());
  using OfPairs = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const MarginLossOptions&);
  for (const auto& [name, f] : {std::pair<const char*, OfPairs>{"margin_ranking_loss", margin_ranking_loss},
                                {"cosine_embedding_loss", cosine_embedding_loss}}) {
    m.def(
        name,
        [f = f](const Tensor& a, const Tensor& b, const Tensor& target, double margin, const std::string& word) {
          const Reduction reduction = reduction_of(word);
          return loss_of(f(a, b, target, {.margin = margin, .reduction = reduction}), reduction);
        },
        "input1"_a, "input2"_a, "target"_a, "margin"_a = 0.0, py::kw_only(), "reduction"_a = "mean", released());
  }
  m.def(
      "hinge_embedding_loss",
      [](const Tensor& x, const Tensor& target, double margin, const std::string& word) {
        const Reduction reduction = reduction_of(word);
        return loss_of(hinge_embedding_loss(x, target, {.margin = margin, .reduction = reduction}), reduction);
      },
      "input"_a, "target"_a, "margin"_a = 1.0, py::kw_only(), "reduction"_a = "mean", released());
  m.def(
      "multi_margin_loss",
      [](const Tensor& x, const Tensor& target, int p, double margin, const Maybe& weight, const std::string& word) {
        const Reduction reduction = reduction_of(word);
        return loss_of(
            multi_margin_loss(x, target,
                              {.p = p, .margin = margin, .weight = tensor_or_none(weight), .reduction = reduction}),
            reduction);
      },
      "input"_a, "target"_a, "p"_a = 1, "margin"_a = 1.0, "weight"_a = py::none(), py::kw_only(),
      "reduction"_a = "mean", released());
  m.def(
      "kl_div",
      [](const Tensor& x, const Tensor& target, const std::string& word, bool log_target) {
        const Reduction reduction = word == "batchmean" ? Reduction::batchmean : reduction_of(word);
        return loss_of(kl_div(x, target, {.reduction = reduction, .log_target = log_target}), reduction);
      },
      "input"_a, "target"_a, py::kw_only(), "reduction"_a = "mean", "log_target"_a = false, released());
  m.def(
      "ctc_loss",
      [](const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths, const Tensor& target_lengths,
         std::int64_t blank, const std::string& word, bool zero_infinity) {
        const Reduction reduction = reduction_of(word);
        return loss_of(ctc_loss(log_probs, targets, input_lengths, target_lengths,
                                {.blank = blank, .reduction = reduction, .zero_infinity = zero_infinity}),
                       reduction);
      },
      "log_probs"_a, "targets"_a, "input_lengths"_a, "target_lengths"_a, "blank"_a = 0, "reduction"_a = "mean",
      "zero_infinity"_a = false, released(), "log_probs [T, N, C], targets int64 [N, S], lengths int64 [N].");
}

// Defines a convolution. `f` is conv1d, conv2d, or conv3d.
template <std::size_t N, typename Options>
void add_conv(py::module_& m, const char* name,
              Tensor (*f)(const Tensor&, const Tensor&, const Tensor&, const Options&)) {
  m.def(
      name,
      [f](const Tensor& x, const Tensor& weight, const Maybe& bias, const Extents<N>& stride,
          const ConvPadding<N>& padding, const Extents<N>& dilation, std::int64_t groups) {
        return f(x, weight, tensor_or_none(bias),
                 {.stride = stride.in_options(),
                  .padding = padding.in_options(),
                  .dilation = dilation.in_options(),
                  .groups = groups});
      },
      "input"_a, "weight"_a, "bias"_a = py::none(), "stride"_a = 1, "padding"_a = 0, "dilation"_a = 1, "groups"_a = 1,
      released());
}
template <std::size_t N, typename Options>
void add_conv_transpose(py::module_& m, const char* name,
                        Tensor (*f)(const Tensor&, const Tensor&, const Tensor&, const Options&)) {
  m.def(
      name,
      [f](const Tensor& x, const Tensor& weight, const Maybe& bias, const Extents<N>& stride, const Extents<N>& padding,
          const Extents<N>& output_padding, std::int64_t groups, const Extents<N>& dilation) {
        return f(x, weight, tensor_or_none(bias),
                 {.stride = stride.in_options(),
                  .padding = padding.in_options(),
                  .output_padding = output_padding.in_options(),
                  .groups = groups,
                  .dilation = dilation.in_options()});
      },
      "input"_a, "weight"_a, "bias"_a = py::none(), "stride"_a = 1, "padding"_a = 0, "output_padding"_a = 0,
      "groups"_a = 1, "dilation"_a = 1, released());
}

template <std::size_t N, typename Options>
void add_pools(py::module_& m, const std::string& axes, Tensor (*largest)(const Tensor&, const Options&),
               Tensor (*average)(const Tensor&, const Options&)) {
  m.def(("max_pool" + axes).c_str(),
        [largest](const Tensor& x, const Extents<N>& kernel, const std::optional<Extents<N>>& stride,
                  const Extents<N>& padding, const Extents<N>& dilation, bool ceil_mode,
                  bool return_indices) -> std::variant<Tensor, std::pair<Tensor, Tensor>> {
          const Options options{.kernel_size = kernel.in_options(),
                                .stride = stride.value_or(kernel).in_options(),
                                .padding = padding.in_options(),
                                .ceil_mode = ceil_mode,
                                .dilation = dilation.in_options()};
          if (!return_indices) return largest(x, options);
          if constexpr (N == 2) {
            const MaxResult found = max_pool2d_with_indices(x, options);
            return std::pair(found.values, found.indices);
          } else {
            fail("max_pool: return_indices of {} axes, expected 2", N);
          }
        },
        "input"_a, "kernel_size"_a, "stride"_a = py::none(), "padding"_a = 0, "dilation"_a = 1, "ceil_mode"_a = false,
        "return_indices"_a = false, released());
  m.def(("avg_pool" + axes).c_str(),
        [average](const Tensor& x, const Extents<N>& kernel, const std::optional<Extents<N>>& stride,
                  const Extents<N>& padding, bool ceil_mode, bool count_include_pad) {
          return average(x, {.kernel_size = kernel.in_options(),
                             .stride = stride.value_or(kernel).in_options(),
                             .padding = padding.in_options(),
                             .count_include_pad = count_include_pad,
                             .ceil_mode = ceil_mode});
        },
        "input"_a, "kernel_size"_a, "stride"_a = py::none(), "padding"_a = 0, "ceil_mode"_a = false,
        "count_include_pad"_a = true, released());
}

template <std::size_t N, typename Size>
void add_adaptive(py::module_& m, const char* name, Tensor (*f)(const Tensor&, Size)) {
  m.def(
      name,
      [f](const Tensor& x, const OutputSize<N>& size) {
        if constexpr (N == 1) {
          return f(x, size.values[0] < 0 ? x.size(-1) : size.values[0]);
        } else {
          return f(x, size.values);
        }
      },
      "input"_a, "output_size"_a, released());
}

void add_windows(py::module_& m) {
  add_conv<1>(m, "conv1d", conv1d);
  add_conv<2>(m, "conv2d", conv2d);
  add_conv<3>(m, "conv3d", conv3d);
  add_conv_transpose<1>(m, "conv_transpose1d", conv_transpose1d);
  add_conv_transpose<2>(m, "conv_transpose2d", conv_transpose2d);
  add_pools<1, Pool1dOptions>(m, "1d", max_pool1d, avg_pool1d);
  add_pools<2, Pool2dOptions>(m, "2d", max_pool2d, avg_pool2d);
  add_pools<3, Pool3dOptions>(m, "3d", max_pool3d, avg_pool3d);
  add_adaptive<1>(m, "adaptive_avg_pool1d", adaptive_avg_pool1d);
  add_adaptive<2>(m, "adaptive_avg_pool2d", adaptive_avg_pool2d);
  add_adaptive<3>(m, "adaptive_avg_pool3d", adaptive_avg_pool3d);
  add_adaptive<1>(m, "adaptive_max_pool1d", adaptive_max_pool1d);
  add_adaptive<2>(m, "adaptive_max_pool2d", adaptive_max_pool2d);
  add_adaptive<3>(m, "adaptive_max_pool3d", adaptive_max_pool3d);
  m.def(
      "lp_pool2d",
      [](const Tensor& x, double norm, const Extents<2>& kernel, const std::optional<Extents<2>>& stride, bool ceil) {
        return lp_pool2d(
            x, norm,
            {.kernel_size = kernel.in_options(), .stride = stride.value_or(kernel).in_options(), .ceil_mode = ceil});
      },
      "input"_a, "norm_type"_a, "kernel_size"_a, "stride"_a = py::none(), "ceil_mode"_a = false, released());
  m.def(
      "max_unpool2d",
      [](const Tensor& x, const Tensor& indices, const Extents<2>& kernel, const std::optional<Extents<2>>& stride,
         const Extents<2>& padding, const std::optional<std::vector<std::int64_t>>& output_size) {
        std::array<std::int64_t, 2> size{};
        const Extents<2> step = stride.value_or(kernel);
        if (output_size) {
          check(output_size->size() >= 2, "max_unpool2d: output_size has {} extents, expected the image's two",
                output_size->size());
          std::copy(output_size->end() - 2, output_size->end(), size.begin());
        } else {
          for (std::size_t i = 0; i < 2; ++i) {
            size[i] = (x.size(static_cast<int>(i) - 2) - 1) * step.values[i] - 2 * padding.values[i] + kernel.values[i];
          }
        }
        return max_unpool2d(x, indices, size);
      },
      "input"_a, "indices"_a, "kernel_size"_a, "stride"_a = py::none(), "padding"_a = 0, "output_size"_a = py::none(),
      released());
  m.def(
      "unfold",
      [](const Tensor& x, const Extents<2>& kernel, const Extents<2>& dilation, const Extents<2>& padding,
         const Extents<2>& stride) {
        return unfold(x, {.kernel_size = kernel.in_options(),
                          .dilation = dilation.in_options(),
                          .padding = padding.in_options(),
                          .stride = stride.in_options()});
      },
      "input"_a, "kernel_size"_a, "dilation"_a = 1, "padding"_a = 0, "stride"_a = 1, released());
  m.def(
      "fold",
      [](const Tensor& x, const Extents<2>& size, const Extents<2>& kernel, const Extents<2>& dilation,
         const Extents<2>& padding, const Extents<2>& stride) {
        return fold(x, size.in_options(),
                    {.kernel_size = kernel.in_options(),
                     .dilation = dilation.in_options(),
                     .padding = padding.in_options(),
                     .stride = stride.in_options()});
      },
      "input"_a, "output_size"_a, "kernel_size"_a, "dilation"_a = 1, "padding"_a = 0, "stride"_a = 1, released());
  m.def("pixel_shuffle", pixel_shuffle, "input"_a, "upscale_factor"_a, released());
  m.def("pixel_unshuffle", pixel_unshuffle, "input"_a, "downscale_factor"_a, released());
  m.def(
      "pad",
      [](const Tensor& x, const std::vector<std::int64_t>& widths, const std::string& mode,
         std::optional<Scalar> value) {
        const PadMode in = value_of<PadMode>("pad: mode", mode,
                                             {{"constant", PadMode::constant},
                                              {"reflect", PadMode::reflect},
                                              {"replicate", PadMode::replicate},
                                              {"circular", PadMode::circular}});
        check(in == PadMode::constant || !value, "pad: value is given with mode '{}', expected with 'constant'", mode);
        if (in != PadMode::circular) return pad(x, widths, in, value.value_or(0));
        // As in PyTorch, elements that negative widths cut off do not reappear on the other side.
        Tensor kept = x;
        std::vector<std::int64_t> added = widths;
        for (std::size_t i = 0; i + 1 < widths.size() && i / 2 < static_cast<std::size_t>(x.dim()); i += 2) {
          const std::int64_t begin = std::max<std::int64_t>(-widths[i], 0);
          const std::int64_t end = std::max<std::int64_t>(-widths[i + 1], 0);
          if (begin == 0 && end == 0) continue;
          const int axis = x.dim() - 1 - static_cast<int>(i / 2);
          kept = kept.narrow(axis, begin, x.size(axis) - begin - end);
          added[i] += begin;
          added[i + 1] += end;
        }
        return pad(kept, added, in);
      },
      "input"_a, "pad"_a, "mode"_a = "constant", "value"_a = py::none(), released());
  m.def(
      "interpolate",
      [](const Tensor& x, const std::optional<Extents<2>>& size,
         const std::optional<std::variant<double, std::vector<double>>>& factor, const std::string& mode,
         std::optional<bool> align_corners) {
        InterpolateOptions options{.mode = value_of<Interpolation>("interpolate: mode", mode,
                                                                   {{"nearest", Interpolation::nearest},
                                                                    {"bilinear", Interpolation::bilinear},
                                                                    {"bicubic", Interpolation::bicubic},
                                                                    {"area", Interpolation::area}}),
                                   .align_corners = align_corners.value_or(false)};
        check(!align_corners || options.mode == Interpolation::bilinear || options.mode == Interpolation::bicubic,
              "interpolate: align_corners is given with mode '{}', expected with 'bilinear' or 'bicubic'", mode);
        if (size) options.size = size->values;
        if (factor) {
          const auto* const one = std::get_if<double>(&*factor);
          const auto all = one ? std::vector<double>{*one, *one} : std::get<std::vector<double>>(*factor);
          check(!all.empty() && std::ranges::all_of(all, [&](double f) { return f == all[0]; }),
                "interpolate: scale_factor has different numbers, expected one for both axes: use size");
          options.scale_factor = all[0];
        }
        return interpolate(x, options);
      },
      "input"_a, "size"_a = py::none(), "scale_factor"_a = py::none(), "mode"_a = "nearest",
      "align_corners"_a = py::none(), released(), "Images [N, C, H, W].");
  m.def(
      "grid_sample",
      [](const Tensor& x, const Tensor& grid, const std::string& mode, const std::string& padding,
         std::optional<bool> align_corners) {
        return grid_sample(
            x, grid,
            {.mode =
                 value_of<Interpolation>("grid_sample: mode", mode,
                                         {{"bilinear", Interpolation::bilinear}, {"nearest", Interpolation::nearest}}),
             .padding_mode = value_of<GridPadding>("grid_sample: padding_mode", padding,
                                                   {{"zeros", GridPadding::zeros}, {"border", GridPadding::border}}),
             .align_corners = align_corners.value_or(false)});
      },
      "input"_a, "grid"_a, "mode"_a = "bilinear", "padding_mode"_a = "zeros", "align_corners"_a = py::none(),
      released());
}

void add_norms(py::module_& m) {
  m.def(
      "layer_norm",
      [](const Tensor& x, const Shape& shape, const Maybe& weight, const Maybe& bias, double eps) {
        return layer_norm(x, shape, tensor_or_none(weight), tensor_or_none(bias), eps);
      },
      "input"_a, "normalized_shape"_a, "weight"_a = py::none(), "bias"_a = py::none(), "eps"_a = 1e-5, released());
  m.def(
      "rms_norm",
      [](const Tensor& x, const Shape& shape, const Maybe& weight, std::optional<double> eps) {
        return rms_norm(x, shape, tensor_or_none(weight), eps);
      },
      "input"_a, "normalized_shape"_a, "weight"_a = py::none(), "eps"_a = py::none(), released());
  m.def(
      "group_norm",
      [](const Tensor& x, std::int64_t groups, const Maybe& weight, const Maybe& bias, double eps) {
        return group_norm(x, groups, tensor_or_none(weight), tensor_or_none(bias), eps);
      },
      "input"_a, "num_groups"_a, "weight"_a = py::none(), "bias"_a = py::none(), "eps"_a = 1e-5, released());
  m.def(
      "_instance_norm",
      [](const Tensor& x, const Maybe& weight, const Maybe& bias, double eps) {
        return instance_norm(x, tensor_or_none(weight), tensor_or_none(bias), eps);
      },
      released());
  m.def("normalize", normalize, "input"_a, "p"_a = 2.0, "dim"_a = 1, "eps"_a = 1e-12, released());
  m.def("cosine_similarity", cosine_similarity, "x1"_a, "x2"_a, "dim"_a = 1, "eps"_a = 1e-8, released());
  m.def("pairwise_distance", pairwise_distance, "x1"_a, "x2"_a, "p"_a = 2.0, "eps"_a = 1e-6, "keepdim"_a = false,
        released());
}

void add_lookups(py::module_& m) {
  m.def(
      "linear",
      [](const Tensor& x, const Tensor& weight, const Maybe& bias) { return linear(x, weight, tensor_or_none(bias)); },
      "input"_a, "weight"_a, "bias"_a = py::none(), released(), "x weight^T + bias: [.., in], [out, in] -> [.., out].");
  m.def(
      "embedding",
      [](const Tensor& input, const Tensor& weight, std::optional<std::int64_t> padding_idx) {
        if (padding_idx && *padding_idx < 0) *padding_idx += weight.size(0);
        return embedding(input, weight, padding_idx);
      },
      "input"_a, "weight"_a, "padding_idx"_a = py::none(), released());
  m.def(
      "embedding_bag",
      [](const Tensor& input, const Tensor& weight, const Maybe& offsets, const std::string& mode,
         const Maybe& per_sample_weights, bool include_last_offset, std::optional<std::int64_t> padding_idx) {
        return embedding_bag(
            input, weight,
            {.mode = value_of<BagMode>("embedding_bag: mode", mode,
                                       {{"sum", BagMode::sum}, {"mean", BagMode::mean}, {"max", BagMode::max}}),
             .padding_idx = padding_idx,
             .per_sample_weights = tensor_or_none(per_sample_weights),
             .offsets = tensor_or_none(offsets),
             .include_last_offset = include_last_offset});
      },
      "input"_a, "weight"_a, "offsets"_a = py::none(), py::kw_only(), "mode"_a = "mean",
      "per_sample_weights"_a = py::none(), "include_last_offset"_a = false, "padding_idx"_a = py::none(), released());
  m.def(
      "one_hot",
      [](const Tensor& x, std::int64_t classes) {
        check(classes >= -1 && classes != 0, "one_hot: num_classes is {}, expected at least 1, or -1", classes);
        return one_hot(x, classes > 0 ? classes : max(x).item<std::int64_t>() + 1);
      },
      "tensor"_a, "num_classes"_a = -1, released(), "Without num_classes, waits for the largest number.");
  m.def(
      "scaled_dot_product_attention",
      [](const Tensor& query, const Tensor& key, const Tensor& value, const Maybe& mask, double dropout_p, bool causal,
         std::optional<double> scale, bool enable_gqa) {
        return scaled_dot_product_attention(query, key, value,
                                            {.attn_mask = tensor_or_none(mask),
                                             .dropout_p = dropout_p,
                                             .is_causal = causal,
                                             .scale = scale,
                                             .enable_gqa = enable_gqa});
      },
      "query"_a, "key"_a, "value"_a, "attn_mask"_a = py::none(), "dropout_p"_a = 0.0, "is_causal"_a = false,
      py::kw_only(), "scale"_a = py::none(), "enable_gqa"_a = false, released());
  m.def(
      "rotary_tables",
      [](std::int64_t dim, std::int64_t positions, double base) {
        const RotaryTables tables = rotary_tables(dim, positions, base);
        return std::pair(tables.cos, tables.sin);
      },
      "dim"_a, "positions"_a, "base"_a = 10000.0, released());
  m.def(
      "rotary_embedding",
      [](const Tensor& x, const Tensor& cos, const Tensor& sin, bool interleaved) {
        return rotary_embedding(x, cos, sin, {.interleaved = interleaved});
      },
      "input"_a, "cos"_a, "sin"_a, py::kw_only(), "interleaved"_a = true, released());
}

}  // namespace

void add_functional(py::module_& m) {
  py::module_ f = m.def_submodule("functional", "Functions that layers are made of.");
  add_activation_functions(f);
  add_dropout(f);
  add_losses(f);
  add_windows(f);
  add_norms(f);
  add_lookups(f);
}

}  // namespace lockstep::python
