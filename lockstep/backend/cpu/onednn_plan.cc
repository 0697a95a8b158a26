#include "lockstep/backend/cpu/onednn_plan.h"

#include <mutex>
#include <utility>
#include <vector>

#include "lockstep/backend/cpu/onednn_choice.h"

namespace lockstep::onednn {
namespace {

using dnnl::memory;
using Desc = memory::desc;

std::size_t round_up(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

std::array<int, kRoles> arguments(Kind kind) {
  switch (kind) {
    case Kind::conv_forward:
    case Kind::matmul: return {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST};
    case Kind::conv_backward_data: return {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DIFF_DST};
    case Kind::conv_backward_weights:
      return {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_BIAS, DNNL_ARG_DIFF_DST};
  }
  return {};
}

}  // namespace

// A plan is a list of primitives and their memory: the caller's operands and parts of the scratch memory.
struct Plan::Impl {
  static constexpr int kScratch = -1;

  struct Buffer {
    Desc desc;
    int role;  // the operand's role, or kScratch
    std::size_t offset = 0;
  };
  struct Step {
    dnnl::primitive primitive;
    std::vector<std::pair<int, std::size_t>> arguments;  // oneDNN's number, index of the buffer
  };
  // The state of one run. Later runs reuse it, because making oneDNN's memory objects costs more than a small product.
  struct Frame {
    dnnl::stream stream;
    std::vector<memory> memories;
    std::vector<std::vector<dnnl_exec_arg_t>> arguments;  // by step
  };

  explicit Impl(const Problem& problem);
  std::size_t add(Buffer buffer);
  void add_step(const dnnl::primitive_desc_base& pd, std::vector<std::pair<int, std::size_t>> step_arguments);
  std::unique_ptr<Frame> take_frame();
  void run(const std::array<void*, kRoles>& data, void* scratch);

  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  std::string implementation;
  std::vector<Buffer> buffers;
  std::vector<Step> steps;
  std::size_t scratch_bytes = 0;
  std::mutex mutex;
  std::vector<std::unique_ptr<Frame>> frames;  // frames not in use
};

Plan::Impl::Impl(const Problem& problem) {
  const Choice choice = choose(engine, problem);
  const dnnl::primitive_desc& main = choice.primitive;
  implementation = main.impl_info_str();

  const auto numbers = arguments(problem.kind);
  std::vector<std::pair<int, std::size_t>> main_arguments;
  std::vector<std::pair<std::size_t, std::size_t>> before, after;  // reorders, from buffer to buffer
  for (int role = 0; role < kRoles; ++role) {
    if (!problem.operands[role].shape.dim()) continue;
    const Desc inner = main.query_md(dnnl::query::exec_arg_md, numbers[role]);
    const std::size_t operand = add({choice.given[role], role});
    std::size_t used = operand;
    if (inner != choice.given[role]) {
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
    add_step(dnnl::reorder::primitive_desc(engine, buffers[from].desc, engine, buffers[to].desc, caller_scratchpad()),
             {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
  };
  for (auto [from, to] : before) add_reorder(from, to);
  add_step(main, main_arguments);
  for (auto [from, to] : after) add_reorder(from, to);
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
    frame->memories[i].set_data_handle(b.role == kScratch ? static_cast<std::byte*>(scratch) + b.offset : data[b.role]);
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

// Translates oneDNN's errors to lockstep::Error here, so that other files need not include its header.
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
