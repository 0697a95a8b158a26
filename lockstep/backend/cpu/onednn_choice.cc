#include "lockstep/backend/cpu/onednn_choice.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace lockstep::onednn {
namespace {

using dnnl::memory;
using Desc = memory::desc;
using Tag = memory::format_tag;

// Parts of the names of implementations that are wrong for a problem.
using Wrong = std::vector<std::string_view>;

bool is_one_of(const Wrong& wrong, const dnnl::primitive_desc& pd) {
  const std::string_view name = pd.impl_info_str();
  return std::ranges::any_of(wrong, [&](std::string_view part) { return name.find(part) != std::string_view::npos; });
}

// Returns a primitive descriptor of Op, empty if oneDNN has no correct implementation. oneDNN 2 makes it from a
// description of the operation, which next_impl() reads again; oneDNN 3 makes it directly. `hint`, for backward kinds,
// is the forward pass.
template <typename Op, typename... Args, typename... Hint>
typename Op::primitive_desc describe(const dnnl::engine& engine, const Wrong& wrong,
                                     const std::tuple<Args...>& operation, const Hint&... hint) {
  return std::apply(
      [&](const Args&... args) {
#if DNNL_VERSION_MAJOR >= 3
        typename Op::primitive_desc pd(engine, args..., hint..., caller_scratchpad(), true);
#else
        const typename Op::desc description(args...);
        typename Op::primitive_desc pd(description, caller_scratchpad(), engine, hint..., true);
#endif
        while (pd && is_one_of(wrong, pd)) {
          if (!pd.next_impl()) return typename Op::primitive_desc();
        }
        return pd;
      },
      operation);
}

memory::data_type onednn_type(DType dtype) {
  check(dtype == DType::f32 || dtype == DType::bf16, "onednn: no kernels for {}", name(dtype));
  return dtype == DType::f32 ? memory::data_type::f32 : memory::data_type::bf16;
}

Tag onednn_tag(std::optional<Layout> layout) {
  if (!layout) return Tag::any;
  switch (*layout) {
    case Layout::plain: return Tag::nchw;
    case Layout::channels_last: return Tag::nhwc;
    case Layout::blocked16: return Tag::nChw16c;
  }
  return Tag::any;
}

memory::dims onednn_dims(const Shape& shape) { return {shape.begin(), shape.end()}; }

// Formats of the caller's operands (`given`) and of the primitive's operands (`wanted`), by role.
struct Formats {
  std::array<Desc, kRoles> given;
  std::array<Desc, kRoles> wanted;
};

// The layouts of images to try, best first. Layouts other than channels-last cost 3 to 12 times as much, so reordering
// is cheap in comparison. Without a layout, oneDNN chooses.
constexpr std::array<std::optional<Layout>, 2> kImageLayouts{Layout::channels_last, std::nullopt};

memory::dims weight_dims(const Problem& p) {
  auto dims = onednn_dims(p.operands[kW].shape);
  if (p.conv.groups > 1) {
    dims[0] /= p.conv.groups;
    dims.insert(dims.begin(), p.conv.groups);
  }
  return dims;
}

Formats conv_formats(const Problem& p, std::optional<Layout> layout) {
  Formats f;
  auto image = [&](int role) {
    const OperandSpec& o = p.operands[role];
    auto dims = onednn_dims(o.shape);
    bool same = layout && same_order(o.layout, *layout, o.shape);
    f.given[role] = Desc(dims, onednn_type(o.dtype), onednn_tag(same ? *layout : o.layout));
    f.wanted[role] = Desc(dims, onednn_type(o.dtype), onednn_tag(layout));
  };
  image(kX);
  image(kY);

  // Gradients of weights are summed in f32 and stay f32.
  const OperandSpec& w = p.operands[kW];
  DType type = p.is_output(kW) ? w.dtype : p.operands[kX].dtype;
  f.given[kW] = Desc(weight_dims(p), onednn_type(w.dtype), p.conv.groups > 1 ? Tag::goihw : Tag::oihw);
  f.wanted[kW] = Desc(weight_dims(p), onednn_type(type), Tag::any);

  const OperandSpec& bias = p.operands[kBias];
  if (bias.shape.dim()) {
    f.given[kBias] = f.wanted[kBias] = Desc(onednn_dims(bias.shape), onednn_type(bias.dtype), Tag::x);
  }
  return f;
}

// Tests with convolutions of random shapes found these wrong implementations.
Wrong wrong_convs(const Problem& p) {
  const Shape &x = p.operands[kX].shape, &y = p.operands[kY].shape;
  Wrong wrong;
  // oneDNN 2.6.3 and 3.7: with fewer channels than vector lanes, the copy of every other pixel is written past its
  // place in the scratchpad, on any number of threads. It overwrites another thread's copy (wrong sums), the barrier of
  // all threads (an endless loop), or memory past the scratchpad.
  const std::int64_t channels = x[1] / p.conv.groups;
  if (p.kind == Kind::conv_backward_weights && (p.conv.stride[0] > 1 || p.conv.stride[1] > 1) && channels < 16) {
    wrong.push_back("jit_1x1:avx512");
  }
  // oneDNN 2.6.3 and 3.7: generated code reads out of bounds where a horizontal stride makes images one pixel wide.
  if (y[3] == 1 && p.conv.stride[1] > 1) wrong.insert(wrong.end(), {"brg", "jit:", "jit_"});
  // oneDNN 2.6.3 with AVX-512 BF16: products take pairs of output channels, and the gradient of the data pairs the last
  // of an odd number of channels with one of the next pixel.
  if (p.kind == Kind::conv_backward_data && y[1] / p.conv.groups % 2 == 1) wrong.push_back("jit_bf16_1x1");
  return wrong;
}

dnnl::primitive_desc describe_conv(const dnnl::engine& engine, const Problem& p, const Formats& f) {
  const auto& [x, w, bias, y] = f.wanted;
  auto dims = [](const std::array<std::int64_t, 2>& pair, std::int64_t minus = 0) {
    return memory::dims{pair[0] - minus, pair[1] - minus};
  };
  auto stride = dims(p.conv.stride);
  auto dilation = dims(p.conv.dilation, 1);  // oneDNN counts the holes
  auto padding = dims(p.conv.padding);

  using Forward = dnnl::convolution_forward;
  const auto training = dnnl::prop_kind::forward_training;
  const auto algorithm = dnnl::algorithm::convolution_direct;
  const Wrong wrong = wrong_convs(p);
  if (p.kind == Kind::conv_forward) {
    return describe<Forward>(engine, wrong,
                             std::tuple(training, algorithm, x, w, bias, y, stride, dilation, padding, padding));
  }
  Desc forward_w(weight_dims(p), onednn_type(p.operands[kX].dtype), Tag::any);
  auto forward = describe<Forward>(
      engine, wrong, std::tuple(training, algorithm, x, forward_w, Desc(), y, stride, dilation, padding, padding));
  if (!forward) return {};
  if (p.kind == Kind::conv_backward_data) {
    return describe<dnnl::convolution_backward_data>(
        engine, wrong, std::tuple(algorithm, x, w, y, stride, dilation, padding, padding), forward);
  }
  return describe<dnnl::convolution_backward_weights>(
      engine, wrong, std::tuple(algorithm, x, w, bias, y, stride, dilation, padding, padding), forward);
}

Formats matmul_formats(const Problem& p) {
  Formats f;
  auto matrix = [&](int role, DType wanted, bool transposed) {
    const OperandSpec& o = p.operands[role];
    auto dims = onednn_dims(o.shape);
    memory::dims strides{dims[1], 1};
    if (transposed) {
      std::swap(dims[0], dims[1]);
      std::swap(strides[0], strides[1]);
    }
    f.given[role] = Desc(dims, onednn_type(o.dtype), strides);
    f.wanted[role] = Desc(dims, onednn_type(wanted), strides);
  };
  const auto& o = p.operands;
  matrix(kX, o[kX].dtype, p.transpose_x);
  matrix(kW, o[kX].dtype, p.transpose_w);
  matrix(kY, o[kY].dtype, false);
  if (o[kBias].shape.dim()) {
    f.given[kBias] = f.wanted[kBias] = Desc({1, o[kBias].shape[0]}, onednn_type(o[kBias].dtype), Tag::ab);
  }
  return f;
}

dnnl::primitive_desc describe_matmul(const dnnl::engine& engine, const Problem& p, const Formats& f) {
  const auto& [x, w, bias, y] = f.wanted;
  // With AMX, oneDNN 2.6.3 computes sums of exactly 63 products wrongly, or crashes with an illegal instruction.
  const bool broken = p.operands[kX].shape[p.transpose_x ? 0 : 1] == 63;
  return describe<dnnl::matmul>(engine, broken ? Wrong{"amx"} : Wrong{}, std::tuple(x, w, bias, y));
}

// Returns an implementation's rank, best first: generated code, then products of unfolded images, then plain loops.
int rank(const dnnl::primitive_desc& pd) {
  std::string name = pd.impl_info_str();
  if (name.find("ref") != std::string::npos) return 2;
  return name.find("gemm:") == std::string::npos || name.find("brg") != std::string::npos ? 0 : 1;
}

}  // namespace

dnnl::primitive_attr caller_scratchpad() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

Choice choose(const dnnl::engine& engine, const Problem& problem) {
  Choice best;
  auto offer = [&](const Formats& f, const dnnl::primitive_desc& pd) {
    if (pd && (!best.primitive || rank(pd) < rank(best.primitive))) best = {f.given, pd};
  };
  if (problem.kind == Kind::matmul) {
    const Formats f = matmul_formats(problem);
    offer(f, describe_matmul(engine, problem, f));
  } else {
    for (std::optional<Layout> layout : kImageLayouts) {
      const Formats f = conv_formats(problem, layout);
      offer(f, describe_conv(engine, problem, f));
      if (best.primitive && rank(best.primitive) == 0) break;
    }
  }
  check(bool(best.primitive), "onednn: no implementation for {} {}", problem.operands[kX].shape,
        problem.operands[kW].shape);
  return best;
}

}  // namespace lockstep::onednn
