// Prints layers as PyTorch prints the same layers.
#include <algorithm>
#include <span>

#include "lockstep/nn/activations.h"
#include "lockstep/nn/batch_norm.h"
#include "lockstep/nn/conv.h"
#include "lockstep/nn/dropout.h"
#include "lockstep/nn/embedding.h"
#include "lockstep/nn/flatten.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/normalization.h"
#include "lockstep/nn/padding.h"
#include "lockstep/nn/parameter_list.h"
#include "lockstep/nn/pooling.h"
#include "lockstep/nn/recurrent.h"
#include "lockstep/nn/rotary.h"
#include "lockstep/nn/unfold.h"
#include "lockstep/nn/upsample.h"

namespace lockstep {
namespace {

// Python's notation.
std::string python(bool value) { return value ? "True" : "False"; }

std::string python(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

std::string python(std::span<const std::int64_t> extents) {
  std::string text = "(";
  for (std::size_t i = 0; i < extents.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(extents[i]);
  return text + (extents.size() == 1 ? ",)" : ")");
}

std::string python(const Shape& shape) { return python(shape.sizes()); }

// One number where all are equal.
std::string triple(const DepthHeightWidth& n) {
  const std::array<std::int64_t, 3>& all = n;
  return n[0] == n[1] && n[1] == n[2] ? std::to_string(n[0]) : python(std::span<const std::int64_t>(all));
}

// One number where both are equal.
std::string pair(const std::array<std::int64_t, 2>& extents) {
  return extents[0] == extents[1] ? std::to_string(extents[0]) : python(extents);
}

std::string tuple(std::int64_t value) { return python(std::vector{value}); }
std::string tuple(const DepthHeightWidth& values) { return python(std::array<std::int64_t, 3>(values)); }
std::string tuple(const HeightWidth& values) { return python(std::array<std::int64_t, 2>(values)); }

std::string windows(const UnfoldOptions& o) {
  return fmt::format("kernel_size={}, dilation={}, padding={}, stride={}", pair(o.kernel_size), pair(o.dilation),
                     pair(o.padding), pair(o.stride));
}

const char* name_of(Interpolation mode) {
  switch (mode) {
    case Interpolation::nearest: return "nearest";
    case Interpolation::bilinear: return "bilinear";
    case Interpolation::bicubic: return "bicubic";
    case Interpolation::area: break;
  }
  return "area";
}

bool is_same(std::int64_t padding) { return padding == kSame; }
bool is_same(const HeightWidth& padding) { return padding == kSame; }
bool is_same(const DepthHeightWidth& padding) { return padding == kSame; }

const char* padding_mode(PadMode mode) {
  switch (mode) {
    case PadMode::reflect: return "reflect";
    case PadMode::replicate: return "replicate";
    case PadMode::circular: return "circular";
    case PadMode::zeros: break;
  }
  return "zeros";
}

template <typename Options>
std::string conv(const Options& o, std::int64_t in_channels) {
  std::string text = fmt::format("{}, {}, kernel_size={}, stride={}", in_channels, o.out_channels, tuple(o.kernel_size),
                                 tuple(o.stride));
  if (o.padding != 0) text += ", padding=" + (is_same(o.padding) ? "same" : tuple(o.padding));
  if (o.dilation != 1) text += ", dilation=" + tuple(o.dilation);
  if constexpr (requires { o.output_padding; }) {
    if (o.output_padding != 0) text += ", output_padding=" + tuple(o.output_padding);
  }
  if (o.groups != 1) text += fmt::format(", groups={}", o.groups);
  if (!o.bias) text += ", bias=False";
  if constexpr (requires { o.padding_mode; }) {
    if (o.padding_mode != PadMode::zeros) text += fmt::format(", padding_mode={}", padding_mode(o.padding_mode));
  }
  return text;
}

// "(0): Parameter containing: [torch.float32 of size 2x3]", a line for each. A single one stays on the module's line.
std::string listed(const std::vector<std::pair<std::string, Parameter>>& parameters, const char* f32, const char* f64) {
  std::string text;
  for (const auto& [name, p] : parameters) {
    std::string size;
    for (const std::int64_t extent : p.shape()) size += (size.empty() ? "" : "x") + std::to_string(extent);
    text += fmt::format("{}  ({}): Parameter containing: [torch.{} of size {}]", parameters.size() > 1 ? "\n  " : "",
                        name, p.dtype() == DType::f64 ? f64 : f32, size);
  }
  return parameters.size() > 1 ? text + "\n" : text;
}

}  // namespace

std::string Linear::extra_repr() const {
  return fmt::format("in_features={}, out_features={}, bias={}", weight.shape()[1], options_.out_features,
                     python(options_.bias));
}
std::string Conv1d::extra_repr() const { return conv(options_, weight.shape()[1] * options_.groups); }
std::string Conv2d::extra_repr() const { return conv(options_, weight.shape()[1] * options_.groups); }
std::string Conv3d::extra_repr() const { return conv(options_, weight.shape()[1] * options_.groups); }
std::string ConvTranspose1d::extra_repr() const { return conv(options_, weight.shape()[0]); }
std::string ConvTranspose2d::extra_repr() const { return conv(options_, weight.shape()[0]); }

std::string PaddingLayer::extra_repr() const { return python(widths_); }
std::string ConstantPad1d::extra_repr() const {
  return fmt::format("padding={}, value={}", python(widths_), python(value_));
}
std::string ConstantPad2d::extra_repr() const {
  return fmt::format("padding={}, value={}", python(widths_), python(value_));
}

std::string ParameterList::extra_repr() const { return listed(named_parameters(false), "float32", "float64"); }
std::string ParameterDict::extra_repr() const { return listed(named_parameters(false), "FloatTensor", "DoubleTensor"); }
bool ParameterDict::contains(std::string_view key) const {
  const auto all = named_parameters(false);
  return std::ranges::any_of(all, [&](const auto& item) { return item.first == key; });
}

std::string Embedding::extra_repr() const {
  const std::string text = fmt::format("{}, {}", options_.num_embeddings, options_.embedding_dim);
  return options_.padding_idx ? fmt::format("{}, padding_idx={}", text, *options_.padding_idx) : text;
}

std::string EmbeddingBag::extra_repr() const {
  const char* const modes[] = {"sum", "mean", "max"};
  const std::string text = fmt::format("{}, {}, mode='{}'", options_.num_embeddings, options_.embedding_dim,
                                       modes[static_cast<std::size_t>(options_.mode)]);
  return options_.padding_idx ? fmt::format("{}, padding_idx={}", text, *options_.padding_idx) : text;
}

std::string BatchNorm::extra_repr() const {
  return fmt::format("{}, eps={}, momentum={}, affine={}, track_running_stats={}{}", known_channels(),
                     python(options_.eps), options_.momentum ? python(*options_.momentum) : "None",
                     python(options_.affine), python(options_.track_running_stats),
                     options_.synchronized ? ", synchronized=True" : "");
}
std::string InstanceNorm::extra_repr() const {
  const std::int64_t channels = options_.affine                ? weight.shape()[0]
                                : options_.track_running_stats ? running_mean.shape()[0]
                                                               : options_.num_features;
  return fmt::format("{}, eps={}, momentum={}, affine={}, track_running_stats={}", channels, python(options_.eps),
                     python(options_.momentum), python(options_.affine), python(options_.track_running_stats));
}
std::string LayerNorm::extra_repr() const {
  return fmt::format("{}, eps={}, elementwise_affine={}", python(options_.normalized_shape), python(options_.eps),
                     python(options_.elementwise_affine));
}
std::string RMSNorm::extra_repr() const {
  return fmt::format("{}, eps={}, elementwise_affine={}", python(options_.normalized_shape),
                     options_.eps ? python(*options_.eps) : "None", python(options_.elementwise_affine));
}
std::string RotaryPositionalEmbeddings::extra_repr() const {
  return fmt::format("dim={}, max_seq_len={}, base={}, interleaved={}", options_.dim, options_.max_seq_len,
                     python(options_.base), python(options_.interleaved));
}
std::string GroupNorm::extra_repr() const {
  return fmt::format("{}, {}, eps={}, affine={}", options_.num_groups, options_.num_channels, python(options_.eps),
                     python(options_.affine));
}

std::string RecurrentModule::extra_repr() const {
  const RecurrentOptions& o = options_;
  std::string text = fmt::format("{}, {}", weights_[0].weight_ih.shape()[1], o.hidden_size);
  if (o.proj_size != 0) text += fmt::format(", proj_size={}", o.proj_size);
  if (o.num_layers != 1) text += fmt::format(", num_layers={}", o.num_layers);
  if (!o.bias) text += ", bias=False";
  if (o.batch_first) text += ", batch_first=True";
  if (o.dropout != 0) text += ", dropout=" + python(o.dropout);
  if (o.bidirectional) text += ", bidirectional=True";
  return text;
}

std::string RecurrentCell::extra_repr() const {
  return fmt::format("{}, {}{}", weight_ih.shape()[1], options_.hidden_size, options_.bias ? "" : ", bias=False");
}
std::string RNNCell::extra_repr() const {
  return RecurrentCell::extra_repr() + (nonlinearity_ == Nonlinearity::relu ? ", nonlinearity=relu" : "");
}

std::string LeakyReLU::extra_repr() const { return "negative_slope=" + python(negative_slope_); }
std::string ELU::extra_repr() const { return "alpha=" + python(alpha_); }
std::string Softplus::extra_repr() const {
  return fmt::format("beta={}, threshold={}", python(beta_), python(threshold_));
}
std::string GELU::extra_repr() const {
  return options_.approximate == GeluApproximation::none ? "approximate='none'" : "approximate='tanh'";
}
std::string GLU::extra_repr() const { return fmt::format("dim={}", dim_); }
std::string Hardtanh::extra_repr() const {
  return fmt::format("min_val={}, max_val={}", python(min_val_), python(max_val_));
}
std::string PReLU::extra_repr() const { return fmt::format("num_parameters={}", options_.num_parameters); }
std::string CELU::extra_repr() const { return "alpha=" + python(alpha_); }
std::string Hardshrink::extra_repr() const { return python(lambd_); }
std::string Softshrink::extra_repr() const { return python(lambd_); }
std::string Threshold::extra_repr() const {
  return fmt::format("threshold={}, value={}", python(threshold_), python(value_));
}
std::string Softmin::extra_repr() const { return fmt::format("dim={}", dim_); }
std::string Softmax::extra_repr() const { return fmt::format("dim={}", dim_); }
std::string LogSoftmax::extra_repr() const { return fmt::format("dim={}", dim_); }
std::string Flatten::extra_repr() const { return fmt::format("start_dim={}, end_dim={}", start_dim_, end_dim_); }
std::string Unflatten::extra_repr() const {
  return fmt::format("dim={}, unflattened_size={}", dim_, python(unflattened_size_));
}
std::string MaxPool2d::extra_repr() const {
  return fmt::format("kernel_size={}, stride={}, padding={}, dilation={}, ceil_mode={}", pair(options_.kernel_size),
                     pair(options_.stride), pair(options_.padding), pair(options_.dilation),
                     python(options_.ceil_mode));
}
std::string AvgPool2d::extra_repr() const {
  return fmt::format("kernel_size={}, stride={}, padding={}", pair(options_.kernel_size), pair(options_.stride),
                     pair(options_.padding));
}
std::string LPPool2d::extra_repr() const {
  return fmt::format("norm_type={}, kernel_size={}, stride={}, ceil_mode={}", python(norm_type_),
                     pair(options_.kernel_size), pair(options_.stride), python(options_.ceil_mode));
}
std::string MaxPool1d::extra_repr() const {
  return fmt::format("kernel_size={}, stride={}, padding={}, dilation={}, ceil_mode={}", options_.kernel_size,
                     options_.stride, options_.padding, options_.dilation, python(options_.ceil_mode));
}
std::string AvgPool1d::extra_repr() const {
  return fmt::format("kernel_size={}, stride={}, padding={}", tuple(options_.kernel_size), tuple(options_.stride),
                     tuple(options_.padding));
}
std::string AdaptivePoolingLayer1d::extra_repr() const { return fmt::format("output_size={}", output_size_); }
std::string AdaptivePoolingLayer2d::extra_repr() const { return "output_size=" + python(output_size_); }
std::string AdaptivePoolingLayer3d::extra_repr() const { return "output_size=" + python(output_size_); }
std::string MaxPool3d::extra_repr() const {
  return fmt::format("kernel_size={}, stride={}, padding={}, dilation={}, ceil_mode={}", triple(options_.kernel_size),
                     triple(options_.stride), triple(options_.padding), triple(options_.dilation),
                     python(options_.ceil_mode));
}
std::string AvgPool3d::extra_repr() const {
  return fmt::format("kernel_size={}, stride={}, padding={}", triple(options_.kernel_size), triple(options_.stride),
                     triple(options_.padding));
}
std::string Unfold::extra_repr() const { return windows(options_); }
std::string Fold::extra_repr() const {
  return fmt::format("output_size={}, {}", pair(output_size_), windows(options_));
}
std::string PixelShuffle::extra_repr() const { return fmt::format("upscale_factor={}", factor_); }
std::string PixelUnshuffle::extra_repr() const { return fmt::format("downscale_factor={}", factor_); }
std::string Upsample::extra_repr() const {
  const std::string mode = fmt::format("'{}'", name_of(options_.mode));
  return options_.scale_factor ? fmt::format("scale_factor={}, mode={}", python(*options_.scale_factor), mode)
                               : fmt::format("size={}, mode={}", python(options_.size.value()), mode);
}
std::string DropoutLayer::extra_repr() const { return fmt::format("p={}, inplace=False", python(p_)); }

}  // namespace lockstep
