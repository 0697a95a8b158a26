#include "lockstep/backend/cpu/onednn_plan.h"

#include <oneapi/dnnl/dnnl.hpp>

#include <algorithm>
#include <mutex>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/backend/cpu/onednn.h"

namespace lockstep::onednn {
namespace {

using dnnl::memory;
using Desc = memory::desc;
using Tag = memory::format_tag;

// Scratchpads belong to the caller: oneDNN's own are shared by all threads that run a primitive.
dnnl::primitive_attr caller_scratchpad() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

// Parts of the names of implementations that are wrong for a problem.
using Wrong = std::vector<std::string_view>;

bool is_one_of(const Wrong& wrong, const dnnl::primitive_desc& pd) {
  const std::string_view name = pd.impl_info_str();
  return std::ranges::any_of(wrong, [&](std::string_view part) { return name.find(part) != std::string_view::npos; });
}

// A primitive descriptor of Op, empty where oneDNN has no implementation that is right. Version 2 makes it of a description
// of the operation, which it reads again to go on to the next implementation, version 3 directly. `hint`, for
// backward kinds, is the forward pass.
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
    case Layout::plain:
      return Tag::nchw;
    case Layout::channels_last:
      return Tag::nhwc;
    case Layout::blocked16:
      return Tag::nChw16c;
  }
  return Tag::any;
}

memory::dims onednn_dims(const Shape& shape) { return {shape.begin(), shape.end()}; }

// Descriptions of what the caller has (`given`) and of what the primitive computes with (`wanted`), by role.
struct Formats {
  std::array<Desc, kRoles> given;
  std::array<Desc, kRoles> wanted;
};

// One way to compute a convolution: in these layouts (nullopt: in whichever oneDNN prefers). Directly: Winograd,
// which oneDNN 2 offers for f32, moves the first update of a batch norm's scale in ResNet-18 by 1 % of its norm.
struct Candidate {
  std::optional<Layout> x, y;
};

std::vector<Candidate> candidates(const Problem& p) {
  const Operand& x = p.operands[kX];
  const Operand& y = p.operands[kY];
  std::vector<Candidate> list;
  // bf16 in other layouts than channels-last costs 3 to 12 times as much; reordering is cheap beside that.
  if (x.dtype == DType::f32) {
    // With few channels (the first layer of a net) oneDNN goes from plain images to blocked ones.
    bool plain = y.layout == Layout::blocked16 && same_order(x.layout, Layout::plain, x.shape);
    list.push_back({plain ? Layout::plain : x.layout, y.layout});
  }
  list.push_back({Layout::channels_last, Layout::channels_last});
  list.push_back({std::nullopt, std::nullopt});
  return list;
}

memory::dims weight_dims(const Problem& p) {
  auto dims = onednn_dims(p.operands[kW].shape);
  if (p.conv.groups > 1) {
    dims[0] /= p.conv.groups;
    dims.insert(dims.begin(), p.conv.groups);
  }
  return dims;
}

Formats conv_formats(const Problem& p, const Candidate& candidate) {
  Formats f;
  auto image = [&](int role, std::optional<Layout> layout) {
    const Operand& o = p.operands[role];
    auto dims = onednn_dims(o.shape);
    bool same = layout && same_order(o.layout, *layout, o.shape);
    f.given[role] = Desc(dims, onednn_type(o.dtype), onednn_tag(same ? *layout : o.layout));
    f.wanted[role] = Desc(dims, onednn_type(o.dtype), onednn_tag(layout));
  };
  image(kX, candidate.x);
  image(kY, candidate.y);

  // Gradients of weights are summed in f32 and stay so.
  const Operand& w = p.operands[kW];
  DType type = p.is_output(kW) ? w.dtype : p.operands[kX].dtype;
  f.given[kW] = Desc(weight_dims(p), onednn_type(w.dtype), p.conv.groups > 1 ? Tag::goihw : Tag::oihw);
  f.wanted[kW] = Desc(weight_dims(p), onednn_type(type), Tag::any);

  const Operand& bias = p.operands[kBias];
  if (bias.shape.rank()) {
    f.given[kBias] = f.wanted[kBias] = Desc(onednn_dims(bias.shape), onednn_type(bias.dtype), Tag::x);
  }
  return f;
}

Wrong wrong_convs(const Problem& p) {
  if (DNNL_VERSION_MAJOR < 3) return {};
  const Shape &x = p.operands[kX].shape, &y = p.operands[kY].shape;
  // oneDNN 3.7, as found by convolutions of random shapes: generated code reads what it should not where images one pixel
  // wide come out of a stride wider than that, and plain images of one channel are not written to the end.
  if (y[3] == 1 && p.conv.stride[1] > 1) return {"brg", "jit:", "jit_"};
  if (x[1] == 1 || y[1] == 1) return {"ncsp"};
  return {};
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
    return describe<Forward>(
        engine, wrong,
        std::tuple(training, algorithm, x, w, bias, y, stride, dilation, padding, padding));
  }
  Desc forward_w(weight_dims(p), onednn_type(p.operands[kX].dtype), Tag::any);
  auto forward = describe<Forward>(
      engine, wrong,
      std::tuple(training, algorithm, x, forward_w, Desc(), y, stride, dilation, padding, padding));
  if (!forward) return {};
  if (p.kind == Kind::conv_backward_data) {
    return describe<dnnl::convolution_backward_data>(
        engine, wrong, std::tuple(algorithm, x, w, y, stride, dilation, padding, padding), forward);
  }
  return describe<dnnl::convolution_backward_weights>(
      engine, wrong, std::tuple(algorithm, x, w, bias, y, stride, dilation, padding, padding),
      forward);
}

Formats matmul_formats(const Problem& p) {
  Formats f;
  auto matrix = [&](int role, DType wanted, bool transposed) {
    const Operand& o = p.operands[role];
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
  if (o[kBias].shape.rank()) {
    f.given[kBias] = f.wanted[kBias] = Desc({1, o[kBias].shape[0]}, onednn_type(o[kBias].dtype), Tag::ab);
  }
  return f;
}

dnnl::primitive_desc describe_matmul(const dnnl::engine& engine, const Problem& p, const Formats& f) {
  const auto& [x, w, bias, y] = f.wanted;
  // With AMX, oneDNN 2.6.3 gives wrong sums of exactly 63 products, or dies of an illegal instruction.
  const bool broken = p.operands[kX].shape[p.transpose_x ? 0 : 1] == 63;
  return describe<dnnl::matmul>(engine, broken ? Wrong{"amx"} : Wrong{}, std::tuple(x, w, bias, y));
}

std::size_t round_up(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

// The implementations in order of preference: generated code, then products of unfolded images, then plain
// loops.
int rank(const dnnl::primitive_desc& pd) {
  std::string name = pd.impl_info_str();
  if (name.find("ref") != std::string::npos) return 2;
  return name.find("gemm:") == std::string::npos || name.find("brg") != std::string::npos ? 0 : 1;
}

std::array<int, kRoles> arguments(Kind kind) {
  switch (kind) {
    case Kind::conv_forward:
    case Kind::matmul:
      return {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST};
    case Kind::conv_backward_data:
      return {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DIFF_DST};
    case Kind::conv_backward_weights:
      return {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_BIAS, DNNL_ARG_DIFF_DST};
  }
  return {};
}

}  // namespace

// A plan is a list of primitives and of the memory they work on: the caller's operands and parts of the
// scratch.
struct Plan::Impl {
  static constexpr int kScratch = -1;

  struct Buffer {
    Desc desc;
    int role;  // whose data it is, or kScratch
    std::size_t offset = 0;
  };
  struct Step {
    dnnl::primitive primitive;
    std::vector<std::pair<int, std::size_t>> arguments;  // oneDNN's number, index of the buffer
  };
  // What one run at a time needs. Kept between runs: making oneDNN's memory objects costs more than a small
  // product.
  struct Frame {
    dnnl::stream stream;
    std::vector<memory> memories;
    std::vector<std::vector<dnnl_exec_arg_t>> arguments;  // by step
  };

  explicit Impl(const Problem& problem);
  void choose(const Problem& problem);
  std::size_t add(Buffer buffer);
  void add_step(const dnnl::primitive_desc_base& pd, std::vector<std::pair<int, std::size_t>> step_arguments);
  std::unique_ptr<Frame> take_frame();
  void run(const std::array<void*, kRoles>& data, void* scratch);

  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  Formats formats;
  dnnl::primitive_desc main;
  std::string implementation;
  std::vector<Buffer> buffers;
  std::vector<Step> steps;
  std::size_t scratch_bytes = 0;
  std::mutex mutex;
  std::vector<std::unique_ptr<Frame>> frames;  // those not running
};

Plan::Impl::Impl(const Problem& problem) {
  choose(problem);
  implementation = main.impl_info_str();

  const auto numbers = arguments(problem.kind);
  std::vector<std::pair<int, std::size_t>> main_arguments;
  std::vector<std::pair<std::size_t, std::size_t>> before, after;  // reorders, from buffer to buffer
  for (int role = 0; role < kRoles; ++role) {
    if (!problem.operands[role].shape.rank()) continue;
    const Desc inner = main.query_md(dnnl::query::exec_arg_md, numbers[role]);
    const std::size_t operand = add({formats.given[role], role});
    std::size_t used = operand;
    if (inner != formats.given[role]) {
      used = add({inner, kScratch});
      if (problem.is_output(role)) {
        after.emplace_back(used, operand);
      } else {
        before.emplace_back(operand, used);
      }
    }
    main_arguments.emplace_back(numbers[role], used);
  }
  auto add_reorder = [&](std::size_t from, std::size_t to) {
    add_step(dnnl::reorder::primitive_desc(engine, buffers[from].desc, engine, buffers[to].desc,
                                           caller_scratchpad()),
             {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
  };
  for (auto [from, to] : before) add_reorder(from, to);
  add_step(main, main_arguments);
  for (auto [from, to] : after) add_reorder(from, to);
}

void Plan::Impl::choose(const Problem& problem) {
  auto offer = [&](const Formats& f, const dnnl::primitive_desc& pd) {
    if (!pd || (main && rank(main) <= rank(pd))) return;
    formats = f;
    main = pd;
  };
  if (problem.kind == Kind::matmul) {
    Formats f = matmul_formats(problem);
    offer(f, describe_matmul(engine, problem, f));
  } else {
    for (const Candidate& candidate : candidates(problem)) {
      Formats f = conv_formats(problem, candidate);
      offer(f, describe_conv(engine, problem, f));
      if (main && rank(main) == 0) break;
    }
  }
  check(bool(main), "onednn: no implementation for {} {}", problem.operands[kX].shape.str(),
        problem.operands[kW].shape.str());
}

std::size_t Plan::Impl::add(Buffer buffer) {
  if (buffer.role == kScratch) {
    buffer.offset = scratch_bytes;
    scratch_bytes += round_up(buffer.desc.get_size());
  }
  buffers.push_back(std::move(buffer));
  return buffers.size() - 1;
}

void Plan::Impl::add_step(const dnnl::primitive_desc_base& pd,
                          std::vector<std::pair<int, std::size_t>> step_arguments) {
  const Desc scratchpad = pd.scratchpad_desc();
  if (scratchpad.get_size()) step_arguments.emplace_back(DNNL_ARG_SCRATCHPAD, add({scratchpad, kScratch}));
  steps.push_back({dnnl::primitive(pd.get()), std::move(step_arguments)});
}

std::unique_ptr<Plan::Impl::Frame> Plan::Impl::take_frame() {
  {
    std::lock_guard lock(mutex);
    if (!frames.empty()) {
      auto frame = std::move(frames.back());
      frames.pop_back();
      return frame;
    }
  }
  auto frame = std::make_unique<Frame>(Frame{dnnl::stream(engine), {}, {}});
  for (const Buffer& buffer : buffers) frame->memories.emplace_back(buffer.desc, engine, nullptr);
  for (const Step& step : steps) {
    auto& list = frame->arguments.emplace_back();
    for (auto [number, buffer] : step.arguments) list.push_back({number, frame->memories[buffer].get()});
  }
  return frame;
}

void Plan::Impl::run(const std::array<void*, kRoles>& data, void* scratch) {
  auto frame = take_frame();
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const Buffer& b = buffers[i];
    frame->memories[i].set_data_handle(b.role == kScratch ? static_cast<std::byte*>(scratch) + b.offset
                                                          : data[b.role]);
  }
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const auto& list = frame->arguments[i];
    dnnl::error::wrap_c_api(dnnl_primitive_execute(steps[i].primitive.get(), frame->stream.get(),
                                                   static_cast<int>(list.size()), list.data()),
                            "onednn: a primitive failed");
  }
  frame->stream.wait();
  std::lock_guard lock(mutex);
  frames.push_back(std::move(frame));
}

namespace {

// Errors of oneDNN are not lockstep's: translated here, so that its header stays here.
template <typename F>
decltype(auto) translated(F&& f) {
  try {
    return f();
  } catch (const dnnl::error& e) {
    fail("onednn: {} (status {})", e.what(), static_cast<int>(e.status));
  }
}

}  // namespace

Plan::Plan(const Problem& problem) : impl_(translated([&] { return std::make_unique<Impl>(problem); })) {}
Plan::~Plan() = default;
std::size_t Plan::scratch_bytes() const { return impl_->scratch_bytes; }
void Plan::run(const std::array<void*, kRoles>& data, void* scratch) {
  translated([&] { impl_->run(data, scratch); });
}
const std::string& Plan::implementation() const { return impl_->implementation; }

}  // namespace lockstep::onednn

bool lockstep::has_native_bf16() {
  // Sets of instructions are bit masks: each holds those it extends.
  constexpr auto kWanted = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & kWanted) == kWanted;
}
