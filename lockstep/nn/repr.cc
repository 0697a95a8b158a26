// Prints layers as PyTorch prints the same layers.
#include <span>

#include "lockstep/nn/activations.h"
#include "lockstep/nn/batch_norm.h"
#include "lockstep/nn/conv.h"
#include "lockstep/nn/dropout.h"
#include "lockstep/nn/embedding.h"
#include "lockstep/nn/flatten.h"
#include "lockstep/nn/linear.h"
#include "lockstep/nn/normalization.h"
#include "lockstep/nn/pooling.h"
#include "lockstep/nn/recurrent.h"
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

// One number where both are equal.
std::string pair(const std::array<std::int64_t, 2>& extents) {
  return extents[0] == extents[1] ? std::to_string(extents[0]) : python(extents);
}

std::string tuple(std::int64_t value) { return python(std::vector{value}); }
std::string tuple(const HeightWidth& values) { return python(std::array<std::int64_t, 2>(values)); }

template <typename Options>
std::string conv(const Options& o, std::int64_t in_channels, const HeightWidth& output_padding = 0) {
  std::string text = fmt::format("{}, {}, kernel_size={}, stride={}", in_channels, o.out_channels, tuple(o.kernel_size),
                                 tuple(o.stride));
  if (o.padding != 0) text += ", padding=" + tuple(o.padding);
  if (o.dilation != 1) text += ", dilation=" + tuple(o.dilation);
  if (output_padding != 0) text += ", output_padding=" + tuple(output_padding);
  if (o.groups != 1) text += fmt::format(", groups={}", o.groups);
  if (!o.bias) text += ", bias=False";
  return text;
}

}  // namespace

std::string Linear::extra_repr() const {
  return fmt::format("in_features={}, out_features={}, bias={}", weight.shape()[1], options_.out_features,
                     python(options_.bias));
}
std::string Conv1d::extra_repr() const { return conv(options_, weight.shape()[1] * options_.groups); }
std::string Conv2d::extra_repr() const { return conv(options_, weight.shape()[1] * options_.groups); }
std::string ConvTranspose2d::extra_repr() const { return conv(options_, weight.shape()[0], options_.output_padding); }

std::string Embedding::extra_repr() const {
  const std::string text = fmt::format("{}, {}", options_.num_embeddings, options_.embedding_dim);
  return options_.padding_idx ? fmt::format("{}, padding_idx={}", text, *options_.padding_idx) : text;
}

std::string BatchNorm::extra_repr() const {
  return fmt::format("{}, eps={}, momentum={}, affine=True, track_running_stats=True{}", weight.shape()[0],
                     python(options_.eps), python(options_.momentum),
                     options_.synchronized ? ", synchronized=True" : "");
}
std::string LayerNorm::extra_repr() const {
  return fmt::format("{}, eps={}, elementwise_affine={}", python(options_.normalized_shape), python(options_.eps),
                     python(options_.elementwise_affine));
}
std::string RMSNorm::extra_repr() const {
  return fmt::format("{}, eps={}, elementwise_affine={}", python(options_.normalized_shape),
                     options_.eps ? python(*options_.eps) : "None", python(options_.elementwise_affine));
}
std::string GroupNorm::extra_repr() const {
  return fmt::format("{}, {}, eps={}, affine={}", options_.num_groups, options_.num_channels, python(options_.eps),
                     python(options_.affine));
}

std::string RecurrentModule::extra_repr() const {
  const RecurrentOptions& o = options_;
  std::string text = fmt::format("{}, {}", weights_[0].weight_ih.shape()[1], o.hidden_size);
  if (o.num_layers != 1) text += fmt::format(", num_layers={}", o.num_layers);
  if (!o.bias) text += ", bias=False";
  if (o.batch_first) text += ", batch_first=True";
  if (o.dropout != 0) text += ", dropout=" + python(o.dropout);
  if (o.bidirectional) text += ", bidirectional=True";
  return text;
}

std::string LeakyReLU::extra_repr() const { return "negative_slope=" + python(negative_slope_); }
std::string ELU::extra_repr() const { return "alpha=" + python(alpha_); }
std::string Softplus::extra_repr() const {
  return fmt::format("beta={}, threshold={}", python(beta_), python(threshold_));
}
std::string GELU::extra_repr() const {
  return options_.approximate == GeluApproximation::none ? "approximate='none'" : "approximate='tanh'";
}
std::string Softmax::extra_repr() const { return fmt::format("dim={}", dim_); }
std::string LogSoftmax::extra_repr() const { return fmt::format("dim={}", dim_); }
std::string Flatten::extra_repr() const { return fmt::format("start_dim={}, end_dim={}", start_dim_, end_dim_); }
std::string Unflatten::extra_repr() const {
  return fmt::format("dim={}, unflattened_size={}", dim_, python(unflattened_size_));
}
std::string MaxPool2d::extra_repr() const {
  return fmt::format("kernel_size={}, stride={}, padding={}, dilation=1, ceil_mode={}", pair(options_.kernel_size),
                     pair(options_.stride), pair(options_.padding), python(options_.ceil_mode));
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
  return fmt::format("kernel_size={}, stride={}, padding={}, dilation=1, ceil_mode={}", options_.kernel_size,
                     options_.stride, options_.padding, python(options_.ceil_mode));
}
std::string AvgPool1d::extra_repr() const {
  return fmt::format("kernel_size={}, stride={}, padding={}", tuple(options_.kernel_size), tuple(options_.stride),
                     tuple(options_.padding));
}
std::string AdaptiveAvgPool2d::extra_repr() const { return "output_size=" + python(output_size_); }
std::string Upsample::extra_repr() const {
  const std::string mode = options_.mode == Interpolation::nearest ? "'nearest'" : "'bilinear'";
  return options_.scale_factor ? fmt::format("scale_factor={}, mode={}", python(*options_.scale_factor), mode)
                               : fmt::format("size={}, mode={}", python(options_.size.value()), mode);
}
std::string Dropout::extra_repr() const { return fmt::format("p={}, inplace=False", python(p_)); }

}  // namespace lockstep
