// Layers with weights, and pooling.
#include "layers.h"

namespace lockstep::python {

// Padding whose attribute is the word that was given.
template <std::size_t N>
struct PaddingOrWord : ConvPadding<N> {
  std::string word;
};

}  // namespace lockstep::python

namespace pybind11::detail {

template <std::size_t N>
struct type_caster<lockstep::python::PaddingOrWord<N>> {
  using Padding = lockstep::python::ConvPadding<N>;
  PYBIND11_TYPE_CASTER(lockstep::python::PaddingOrWord<N>, make_caster<Padding>::name);
  bool load(handle source, bool convert) {
    make_caster<Padding> padding;
    if (!padding.load(source, convert)) return false;
    value.values = cast_op<Padding&>(padding).values;
    if (isinstance<str>(source)) value.word = source.cast<std::string>();
    return true;
  }
  static handle cast(const lockstep::python::PaddingOrWord<N>& padding, return_value_policy policy, handle parent) {
    if (!padding.word.empty()) return str(padding.word).release();
    return make_caster<Padding>::cast(padding, policy, parent);
  }
};

}  // namespace pybind11::detail

namespace lockstep::python {
namespace {

PadMode pad_mode(const std::string& name) {
  return value_of<PadMode>("conv: padding_mode", name,
                           {{"zeros", PadMode::zeros},
                            {"reflect", PadMode::reflect},
                            {"replicate", PadMode::replicate},
                            {"circular", PadMode::circular}});
}

template <typename M, std::size_t N>
void add_conv(py::module_& m, const char* name) {
  add_layer<M>(
      m, name,
      [](std::int64_t in_channels, std::int64_t out_channels, Extents<N> kernel_size, Extents<N> stride,
         PaddingOrWord<N> padding, Extents<N> dilation, std::int64_t groups, bool bias,
         const std::string& padding_mode) {
        return typename M::Options{.in_channels = in_channels,
                                   .out_channels = out_channels,
                                   .kernel_size = kernel_size.in_options(),
                                   .stride = stride.in_options(),
                                   .padding = padding.in_options(),
                                   .dilation = dilation.in_options(),
                                   .groups = groups,
                                   .bias = bias,
                                   .padding_mode = pad_mode(padding_mode)};
      },
      "in_channels"_a, "out_channels"_a, "kernel_size"_a, "stride"_a = 1, "padding"_a = 0, "dilation"_a = 1,
      "groups"_a = 1, "bias"_a = true, "padding_mode"_a = "zeros");
}

template <typename M, std::size_t N>
void add_conv_transpose(py::module_& m, const char* name) {
  add_layer<M>(
      m, name,
      [](std::int64_t in_channels, std::int64_t out_channels, Extents<N> kernel_size, Extents<N> stride,
         Extents<N> padding, Extents<N> output_padding, std::int64_t groups, bool bias, Extents<N> dilation,
         const std::string& padding_mode) {
        check(padding_mode == "zeros", "conv transpose: padding_mode '{}', expected 'zeros'", padding_mode);
        return typename M::Options{.in_channels = in_channels,
                                   .out_channels = out_channels,
                                   .kernel_size = kernel_size.in_options(),
                                   .stride = stride.in_options(),
                                   .padding = padding.in_options(),
                                   .output_padding = output_padding.in_options(),
                                   .groups = groups,
                                   .bias = bias,
                                   .dilation = dilation.in_options()};
      },
      "in_channels"_a, "out_channels"_a, "kernel_size"_a, "stride"_a = 1, "padding"_a = 0, "output_padding"_a = 0,
      "groups"_a = 1, "bias"_a = true, "dilation"_a = 1, "padding_mode"_a = "zeros");
}

template <typename M>
ModuleClass<M, BatchNorm> add_batch_norm(py::module_& m, const char* name) {
  ModuleClass<M, BatchNorm> c(m, name);
  def_constructor(
      c,
      [](std::int64_t num_features, double eps, std::optional<double> momentum, bool affine, bool track) {
        return BatchNormLayerOptions{
            .channels = num_features, .eps = eps, .momentum = momentum, .affine = affine, .track_running_stats = track};
      },
      "num_features"_a, "eps"_a = 1e-5, "momentum"_a = 0.1, "affine"_a = true, "track_running_stats"_a = true);
  return c;
}

template <typename M>
void add_instance_norm(py::module_& m, const char* name) {
  add_layer<M>(
      m, name,
      [](std::int64_t num_features, double eps, double momentum, bool affine, bool track) {
        return InstanceNormOptions{num_features, eps, momentum, affine, track};
      },
      "num_features"_a, "eps"_a = 1e-5, "momentum"_a = 0.1, "affine"_a = false, "track_running_stats"_a = false);
}

void refuse_indices(bool return_indices) {
  check(!return_indices, "max pool: return_indices=True, but there are no indices: expected False");
}

template <typename M, std::size_t N>
void add_max_pool(py::module_& m, const char* name) {
  add_layer<M>(
      m, name,
      [](Extents<N> kernel_size, std::optional<Extents<N>> stride, Extents<N> padding, Extents<N> dilation,
         bool return_indices, bool ceil_mode) {
        refuse_indices(return_indices);
        return typename M::Options{.kernel_size = kernel_size.in_options(),
                                   .stride = stride.value_or(kernel_size).in_options(),
                                   .padding = padding.in_options(),
                                   .ceil_mode = ceil_mode,
                                   .dilation = dilation.in_options()};
      },
      "kernel_size"_a, "stride"_a = py::none(), "padding"_a = 0, "dilation"_a = 1, "return_indices"_a = false,
      "ceil_mode"_a = false);
}

template <typename M, std::size_t N>
void add_avg_pool(py::module_& m, const char* name) {
  add_layer<M>(
      m, name,
      [](Extents<N> kernel_size, std::optional<Extents<N>> stride, Extents<N> padding, bool ceil_mode,
         bool count_include_pad, const std::optional<int>& divisor_override) {
        check(!divisor_override, "avg pool: divisor_override, expected None: multiply the result");
        return typename M::Options{.kernel_size = kernel_size.in_options(),
                                   .stride = stride.value_or(kernel_size).in_options(),
                                   .padding = padding.in_options(),
                                   .count_include_pad = count_include_pad,
                                   .ceil_mode = ceil_mode};
      },
      "kernel_size"_a, "stride"_a = py::none(), "padding"_a = 0, "ceil_mode"_a = false, "count_include_pad"_a = true,
      "divisor_override"_a = py::none());
}

template <std::size_t N>
auto in_options(const OutputSize<N>& size) {
  if constexpr (N == 1) {
    return size.values[0];
  } else {
    return size.values;
  }
}

template <typename M, std::size_t N>
void add_adaptive_avg(py::module_& m, const char* name) {
  add_layer<M>(
      m, name, [](OutputSize<N> size) { return std::make_unique<M>(in_options(size)); }, "output_size"_a);
}
template <typename M, std::size_t N>
void add_adaptive_max(py::module_& m, const char* name) {
  add_layer<M>(
      m, name,
      [](OutputSize<N> size, bool return_indices) {
        refuse_indices(return_indices);
        return std::make_unique<M>(in_options(size));
      },
      "output_size"_a, "return_indices"_a = false);
}

}  // namespace

void add_layers(py::module_& m) {
  add_containers(m);
  add_activations(m);
  add_recurrent_layers(m);
  add_models(m);

  add_layer<Linear>(
      m, "Linear",
      [](std::int64_t in_features, std::int64_t out_features, bool bias) {
        return LinearOptions{.in_features = in_features, .out_features = out_features, .bias = bias};
      },
      "in_features"_a, "out_features"_a, "bias"_a = true);
  add_conv<Conv1d, 1>(m, "Conv1d");
  add_conv<Conv2d, 2>(m, "Conv2d");
  add_conv<Conv3d, 3>(m, "Conv3d");
  add_conv_transpose<ConvTranspose1d, 1>(m, "ConvTranspose1d");
  add_conv_transpose<ConvTranspose2d, 2>(m, "ConvTranspose2d");

  ModuleClass<BatchNorm> batch_norm(m, "BatchNorm");
  batch_norm.def_property("synchronized", &BatchNorm::synchronized, &BatchNorm::set_synchronized);
  batch_norm.def_property("eps", &BatchNorm::eps, &BatchNorm::set_eps, "May be changed.");
  batch_norm.def_property("momentum", &BatchNorm::momentum, &BatchNorm::set_momentum, "May be changed.");
  batch_norm.def(
      "forward_fused",
      [](BatchNorm& self, const Tensor& x, const std::optional<Tensor>& residual, bool relu) {
        return self.forward_fused(x, residual.value_or(Tensor()), relu);
      },
      "x"_a, "residual"_a = py::none(), "relu"_a = false, released(), "relu(normalized x + residual) in one pass.");
  add_batch_norm<BatchNorm1d>(m, "BatchNorm1d");
  add_batch_norm<BatchNorm2d>(m, "BatchNorm2d");
  add_batch_norm<BatchNorm3d>(m, "BatchNorm3d");
  m.def(
      "convert_sync_batchnorm", [](Module& module) { convert_sync_batchnorm(module); }, "module"_a);
  add_instance_norm<InstanceNorm1d>(m, "InstanceNorm1d");
  add_instance_norm<InstanceNorm2d>(m, "InstanceNorm2d");
  add_instance_norm<InstanceNorm3d>(m, "InstanceNorm3d");
  add_layer<LayerNorm>(
      m, "LayerNorm",
      [](const Shape& shape, double eps, bool affine, bool bias) {
        return LayerNormOptions{.normalized_shape = shape, .eps = eps, .elementwise_affine = affine, .bias = bias};
      },
      "normalized_shape"_a, "eps"_a = 1e-5, "elementwise_affine"_a = true, "bias"_a = true);
  add_layer<RMSNorm>(
      m, "RMSNorm",
      [](const Shape& shape, std::optional<double> eps, bool affine) {
        return RMSNormOptions{.normalized_shape = shape, .eps = eps, .elementwise_affine = affine};
      },
      "normalized_shape"_a, "eps"_a = py::none(), "elementwise_affine"_a = true);
  add_layer<GroupNorm>(
      m, "GroupNorm",
      [](std::int64_t groups, std::int64_t channels, double eps, bool affine) {
        return GroupNormOptions{.num_groups = groups, .num_channels = channels, .eps = eps, .affine = affine};
      },
      "num_groups"_a, "num_channels"_a, "eps"_a = 1e-5, "affine"_a = true);
  add_layer<FeedForward>(
      m, "FeedForward",
      [](std::int64_t dim, std::int64_t hidden_dim, bool bias) {
        return FeedForwardOptions{.dim = dim, .hidden_dim = hidden_dim, .bias = bias};
      },
      "dim"_a, "hidden_dim"_a, "bias"_a = false);
  auto rotary = add_layer<RotaryPositionalEmbeddings>(
      m, "RotaryPositionalEmbeddings",
      [](std::int64_t dim, std::int64_t max_seq_len, double base, bool interleaved) {
        return RotaryPositionalEmbeddingsOptions{
            .dim = dim, .max_seq_len = max_seq_len, .base = base, .interleaved = interleaved};
      },
      "dim"_a, "max_seq_len"_a = 4096, "base"_a = 10000.0, "interleaved"_a = true);
  rotary.def(
      "forward",
      [](RotaryPositionalEmbeddings& self, const Tensor& x,
         const std::optional<std::variant<Tensor, std::int64_t>>& input_pos) {
        if (!input_pos) return self.forward(x);
        const auto* const places = std::get_if<Tensor>(&*input_pos);
        return places ? self.forward(x, *places) : self.forward(x, std::get<std::int64_t>(*input_pos));
      },
      "x"_a, "input_pos"_a = py::none(), released(),
      "input_pos: the position of the first token, or of each as int64 [L] or [.., L].");

  add_max_pool<MaxPool1d, 1>(m, "MaxPool1d");
  add_max_pool<MaxPool2d, 2>(m, "MaxPool2d");
  add_max_pool<MaxPool3d, 3>(m, "MaxPool3d");
  add_avg_pool<AvgPool1d, 1>(m, "AvgPool1d");
  add_avg_pool<AvgPool2d, 2>(m, "AvgPool2d");
  add_avg_pool<AvgPool3d, 3>(m, "AvgPool3d");
  add_layer<LPPool2d>(
      m, "LPPool2d",
      [](double norm_type, Extents<2> kernel, std::optional<Extents<2>> stride, bool ceil_mode) {
        return std::make_unique<LPPool2d>(norm_type, Pool2dOptions{.kernel_size = kernel.values,
                                                                   .stride = stride.value_or(kernel).values,
                                                                   .ceil_mode = ceil_mode});
      },
      "norm_type"_a, "kernel_size"_a, "stride"_a = py::none(), "ceil_mode"_a = false);
  add_adaptive_avg<AdaptiveAvgPool1d, 1>(m, "AdaptiveAvgPool1d");
  add_adaptive_avg<AdaptiveAvgPool2d, 2>(m, "AdaptiveAvgPool2d");
  add_adaptive_avg<AdaptiveAvgPool3d, 3>(m, "AdaptiveAvgPool3d");
  add_adaptive_max<AdaptiveMaxPool1d, 1>(m, "AdaptiveMaxPool1d");
  add_adaptive_max<AdaptiveMaxPool2d, 2>(m, "AdaptiveMaxPool2d");
  add_layer<GlobalAvgPool2d>(m, "GlobalAvgPool2d", [] { return std::make_unique<GlobalAvgPool2d>(); });
}

}  // namespace lockstep::python
