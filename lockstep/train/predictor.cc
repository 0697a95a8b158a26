#include "lockstep/train/predictor.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <typeindex>

#include "lockstep/autograd/forward_trace.h"
#include "lockstep/autograd/no_grad.h"
#include "lockstep/autograd/placement.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/checkpoint/weights_change.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/joined_scope.h"
#include "lockstep/ops/launch.h"
#include "lockstep/runtime/default_runtime.h"
#include "lockstep/runtime/device_state.h"
#include "lockstep/runtime/runtime.h"
#include "lockstep/tensor/storage.h"

namespace lockstep {
namespace {

constexpr const char* kHeld =
    "predictor: the weights cannot be changed while a Predictor has the model: use Predictor::load(), or end the "
    "Predictor before you train";

std::vector<Parameter> weights_of(const Module& model) {
  std::vector<Parameter> all = model.parameters();
  for (auto& [name, buffer] : model.named_buffers()) {
    if (std::ranges::find(all, buffer) == all.end()) all.push_back(buffer);
  }
  return all;
}

// A compute lane, shared by several calls only if all lanes are in use.
struct PredictorLane {
  Device device;
  int lane = 0;   // index among the lanes of the device
  int calls = 0;  // number of calls that use it now
};

// Calls that are computed in one pass. groups_mutex protects it.
struct CallGroup {
  std::vector<PredictorState::Request*> calls{};
  bool full = false;
  std::condition_variable changed{};
};

// Throws if a joined pass would mix the samples of its calls; each call is then a pass of its own.
class SamplesApart final : public ForwardTrace {
 public:
  void operation(std::string_view name, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                 OpTraits traits) override {
    const bool by_batch = name == "batch norm" && traits.kind.empty();  // with the statistics of its input
    if (std::ranges::any_of(inputs, cut) && (by_batch || !std::ranges::all_of(outputs, cut))) refuse(name);
  }
  void same(const Tensor& /*x*/, const Tensor& /*y*/) override {}
  void function(std::string_view name, std::span<const Tensor> inputs, std::span<const Tensor> /*outputs*/) override {
    if (std::ranges::any_of(inputs, cut)) refuse(name);
  }
  void read(std::string_view what, const Tensor& x) override {
    if (cut(x)) refuse(what);
  }
  void write(const Tensor& to, const Tensor& from) override {
    if (cut(to) || cut(from)) refuse("copy_from");
  }
  void enter(const void* /*module*/) override {}
  void leave() override {}

 private:
  static bool cut(const Tensor& x) { return x.defined() && x->kind == Kind::cut; }
  [[noreturn]] static void refuse(std::string_view name) {
    fail("predictor: {} may mix the samples of joined calls: set max_batch = 1", name);
  }
};

// Returns whether two results agree except for the last digits, which depend on the batch size in bf16 and on GPUs.
bool agree(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  return std::ranges::equal(a, b, [](const Tensor& x, const Tensor& y) {
    if (!x.defined() || !y.defined()) return x.defined() == y.defined();
    if (x.shape() != y.shape() || x.dtype() != y.dtype()) return false;
    const double digits = x.dtype() == DType::f32 || x.dtype() == DType::f64 ? 1e-4 : is_floating(x.dtype()) ? 0.03 : 0;
    const auto left = x.to(DType::f64).to_vector<double>(), right = y.to(DType::f64).to_vector<double>();
    double largest = 0;
    for (const double value : left) {
      if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
    }
    return std::ranges::equal(left, right, [&](double p, double q) {
      return p == q || (std::isnan(p) && std::isnan(q)) || std::abs(p - q) <= digits * largest;
    });
  });
}

// Calls can be joined if these members are equal.
struct CallShape {
  std::type_index kind;
  std::vector<std::size_t> sizes;
  std::vector<std::pair<Shape, DType>> inputs;
  bool operator==(const CallShape&) const = default;
};

CallShape call_shape(const PredictorState::Request& request) {
  CallShape shape{.kind = *request.kind, .sizes = request.sizes, .inputs = {}};
  for (const Tensor& x : request.inputs) shape.inputs.emplace_back(x.shape(), x.dtype());
  return shape;
}

[[noreturn]] void fail_by_rows() {
  fail(
      "predictor: the results of joined calls are others than those of separate ones: the model computes with the "
      "number "
      "of rows, as x.size(0), or draws random numbers: set max_batch = 1");
}

bool alike(const PredictorState::Request& a, const PredictorState::Request& b) {
  return call_shape(a) == call_shape(b);
}

}  // namespace

struct PredictorState::Impl {
  Impl(Module& m, const PredictorOptions& o) : model(m), weights(weights_of(m)), evaluation(m), options(o) {
    check(o.max_batch >= 1 && o.wait.count() >= 0, "predictor: max_batch {} and wait {} ns, expected at least 1 and 0",
          o.max_batch, o.wait.count());
    check(
        o.max_batch > 1 || o.wait == PredictorOptions().wait || o.wait.count() == 0,
        "predictor: wait is set with max_batch 1, which joins no calls, expected a larger max_batch, too, or no wait");
    check(!weights.empty(), "predictor: {} has no parameters, so it is on no device", m.kind());
    for (const Parameter& p : weights) check_free(p);
  }
  ~Impl() { set_held(nullptr); }

  void check_free(const Parameter& p) const {
    if (!p.initialized() || !p.shape_known()) return;
    for (Device device : p.devices()) {
      check(p.data(device)->storage()->read_only != kHeld,
            "predictor: another Predictor has {}, expected one for each model", p.name());
    }
  }

  void set_held(const char* text) {
    if (text == nullptr && !held) return;
    held = text != nullptr;
    for (const Parameter& p : weights) {
      if (!p.initialized() || !p.shape_known()) continue;
      for (Device device : p.devices()) p.data(device)->storage()->read_only = text;
    }
  }

  // If no file sets all shapes, the first call does.
  void hold_settled() {
    if (settled) return;
    const std::lock_guard first(queue);
    const std::unique_lock alone(describing);
    settled = std::ranges::all_of(weights, &Parameter::shape_known);
    set_held(kHeld);
  }

  void find_lanes() {
    devices = weights[0].devices();
    check(!devices.empty(), "predictor: {} is not initialized, expected weights to load, or initialize() before",
          model.kind());
    for (Device device : devices) {
      const auto count = static_cast<int>(state_of(device, "predictor").compute_lanes.size());
      for (int lane = 0; lane < count; ++lane) lanes.push_back({device, lane});
    }
  }

  // Returns a lane with the fewest calls, of the device `on` unless that is host memory; of these, the least busy one.
  PredictorLane& take_lane(Device on) {
    const std::lock_guard lock(lanes_mutex);
    int fewest = -1;
    std::vector<PredictorLane*> free;
    for (PredictorLane& lane : lanes) {
      if (!on.is_host() && lane.device != on) continue;
      if (fewest < 0 || lane.calls < fewest) {
        fewest = lane.calls;
        free.clear();
      }
      // Keeps lanes of one device only, so that its engine can choose one.
      if (lane.calls == fewest && (free.empty() || free[0]->device == lane.device)) free.push_back(&lane);
    }
    if (free.empty()) {
      fail("predictor: an input is on {}, expected it in host memory or on a device of the model, {}", on.name(),
           str(devices));
    }
    PredictorLane* best = free[0];
    if (free.size() > 1) {
      const DeviceState& state = state_of(best->device, "predictor");
      std::vector<LaneId> ids;
      for (const PredictorLane* lane : free) ids.push_back(state.compute_lanes[static_cast<std::size_t>(lane->lane)]);
      const LaneId chosen = state.engine->choose_lane(ids, Task{});
      best = free[static_cast<std::size_t>(std::ranges::find(ids, chosen) - ids.begin())];
    }
    ++best->calls;
    return *best;
  }

  // Returns whether no joined pass of this kind has been compared yet.
  bool tries(const std::pair<CallShape, std::size_t>& joined) {
    const std::lock_guard lock(groups_mutex);
    return std::ranges::find(tried, joined) == tried.end();
  }
  bool agrees(const std::pair<CallShape, std::size_t>& joined, bool equal) {
    const std::lock_guard lock(groups_mutex);
    tried.push_back(joined);
    return equal;
  }

  // The destructor waits for calls that have entered.
  void enter() {
    const std::lock_guard lock(lanes_mutex);
    ++inside;
  }
  void leave(PredictorLane* lane) {
    const std::lock_guard lock(lanes_mutex);
    if (lane) --lane->calls;
    if (--inside == 0) empty.notify_all();
  }
  void wait_empty() {
    {
      const std::lock_guard lock(groups_mutex);
      ending = true;
      for (const auto& group : open) group->changed.notify_all();
    }
    std::unique_lock lock(lanes_mutex);
    empty.wait(lock, [&] { return inside == 0; });
  }

  Module& model;
  const std::vector<Parameter> weights;
  const EvalGuard evaluation;
  const PredictorOptions options;
  bool held = false;
  std::atomic<bool> settled{false};
  std::vector<Device> devices;  // a copy, because the parameters' own list is exchanged with their replicas
  std::mutex lanes_mutex;
  std::vector<PredictorLane> lanes;
  int inside = 0;  // number of calls
  std::condition_variable empty;
  std::mutex groups_mutex;
  std::vector<CallShape> refused;                        // calls of models that compute with the number of rows
  std::vector<std::pair<CallShape, std::size_t>> tried;  // joined passes whose results were compared
  std::vector<std::shared_ptr<CallGroup>> open;          // groups that wait for more calls
  int passes = 0;                                        // number of passes in progress
  std::atomic<int> loads = 0;
  bool ending = false;
  std::mutex load_mutex;  // one load at a time
  // Calls describe their tasks with a shared lock; load() exchanges the weights with an exclusive one. Each first locks
  // `queue`, so that a stream of calls cannot hold up a load.
  std::mutex queue;
  std::shared_mutex describing;
};

PredictorState::PredictorState(Module& model, const std::filesystem::path* weights, const PredictorOptions& options)
    : impl_(std::make_unique<Impl>(model, options)) {
  model.devices();  // places it if nobody did
  if (weights != nullptr) load(*weights);
  impl_->find_lanes();
  impl_->hold_settled();
}

PredictorState::~PredictorState() { impl_->wait_empty(); }

void PredictorState::load(const std::filesystem::path& weights) {
  const std::lock_guard one(impl_->load_mutex);
  std::vector<ParameterChange> changes = weights_change(weights, impl_->model);
  const std::lock_guard first(impl_->queue);
  const std::unique_lock alone(impl_->describing);
  const bool held = impl_->held;
  ++impl_->loads;
  impl_->set_held(nullptr);
  for (ParameterChange& change : changes) change.commit();
  if (held) impl_->set_held(kHeld);
}

bool PredictorState::joins() const { return impl_->options.max_batch > 1; }

bool PredictorState::can_join(const Request& request) {
  const auto on_host = [](const Tensor& x) {
    return x.defined() && x->kind == Kind::whole && x.device().is_host() && x.shape().dim() > 0;
  };
  if (request.inputs.empty() || !std::ranges::all_of(request.inputs, on_host)) return false;
  const std::int64_t samples = request.inputs[0].size(0);
  for (const Tensor& x : request.inputs) {
    check(x.size(0) == samples, "predictor: inputs {} and {}, expected as many samples, on axis 0, to join calls",
          request.inputs[0], x);
  }
  return samples > 0;
}

void PredictorState::join(Request& request, const std::function<void(Requests)>& compute) {
  Impl& state = *impl_;
  state.enter();
  struct Leave {
    Impl& state;
    ~Leave() { state.leave(nullptr); }
  } leave{state};
  const auto compute_alone = [&] {
    Request* const alone = &request;
    compute({&alone, 1});
  };
  const std::int64_t most = state.options.max_batch / request.inputs[0].size(0);
  const CallShape shape = call_shape(request);
  std::unique_lock lock(state.groups_mutex);
  if (std::ranges::find(state.refused, shape) != state.refused.end()) fail_by_rows();
  const auto found = std::ranges::find_if(state.open, [&](const auto& g) { return alike(*g->calls[0], request); });
  if (found != state.open.end()) {
    const std::shared_ptr<CallGroup> group = *found;
    group->calls.push_back(&request);
    if (std::ssize(group->calls) >= most) {
      group->full = true;
      state.open.erase(found);
      group->changed.notify_all();
    }
    group->changed.wait(lock, [&] { return request.done; });
    lock.unlock();
    if (request.refused) fail_by_rows();
    if (request.alone) compute_alone();
    return;
  }
  // The first call of a group computes the whole group.
  const auto group = std::make_shared<CallGroup>();
  group->calls = {&request};
  if (most > 1 && state.passes > 0 && !state.ending) {
    state.open.push_back(group);
    const std::chrono::nanoseconds longest = std::chrono::hours(24);  // a longer wait could overflow the clock
    group->changed.wait_for(lock, std::min(state.options.wait, longest),
                            [&] { return group->full || state.passes == 0 || state.ending; });
    if (!group->full) std::erase(state.open, group);
  }
  ++state.passes;
  lock.unlock();
  std::exception_ptr failure;
  const std::pair joined(shape, group->calls.size());
  bool by_rows = false;
  try {
    const int loads = state.loads;
    compute(group->calls);
    // SamplesApart rejects operations that mix samples. Other uses of the number of rows show up in the results.
    if (joined.second > 1 && state.tries(joined)) {
      const std::vector<Tensor> found_joined = request.outputs;
      compute_alone();
      // Compares only results of the same weights.
      if (loads == state.loads) by_rows = !state.agrees(joined, agree(request.outputs, found_joined));
    }
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  if (by_rows) state.refused.push_back(shape);
  if (--state.passes == 0) {
    for (const auto& waiting : state.open) waiting->changed.notify_all();
  }
  for (Request* call : group->calls) {
    call->alone = failure != nullptr;
    call->refused = by_rows;
    call->done = true;
  }
  group->changed.notify_all();
  lock.unlock();
  if (by_rows) fail_by_rows();
  if (!failure) return;
  if (group->calls.size() == 1) std::rethrow_exception(failure);
  compute_alone();
}

struct PredictorState::Call::Impl {
  explicit Impl(PredictorState::Impl& s) : state(s) { state.enter(); }

  PredictorState::Impl& state;
  PredictorLane* lane = nullptr;
  // Its destructor must run last: ~Predictor() may continue then and destroy the mutex of `describing`.
  struct Leave {
    Impl& call;
    ~Leave() { call.state.leave(call.lane); }
  } leave{*this};
  Device device;                 // device of the inputs; host memory if no input is on a device
  bool cut = false;              // an input is cut over devices: the lanes of its shards compute
  std::vector<Tensor> inputs{};  // of joined calls, in host memory
  std::int64_t calls = 0;        // number of joined calls; 0 if the call cannot be joined
  std::shared_ptr<const Placement> placement{};
  std::shared_lock<std::shared_mutex> describing{};
  std::optional<ops::ShardScope> scope{};
  std::optional<ops::CallerScope> caller{};
  std::optional<ops::JoinedScope> joined{};
  std::optional<SamplesApart> apart{};
  std::optional<NoGradGuard> no_grad{};
};

PredictorState::Call::Call(PredictorState& state) : impl_(std::make_unique<Impl>(*state.impl_)) {}
PredictorState::Call::~Call() = default;

void PredictorState::Call::see(const Tensor& x) {
  if (!x.defined()) return;
  if (x->kind == Kind::cut) {
    impl_->cut = true;
  } else if (!x.device().is_host()) {
    impl_->device = x.device();
  }
}

void PredictorState::Call::join(Requests calls) {
  impl_->calls = std::ssize(calls);
  impl_->inputs = calls[0]->inputs;
  for (std::size_t i = 0; i < impl_->inputs.size(); ++i) {
    const auto rows_of = [&](std::size_t call) {
      return ops::to_layout(calls[call]->inputs[i]->array(), Layout::plain);
    };
    if (calls.size() == 1) continue;
    Shape shape = impl_->inputs[i].shape();
    shape[0] *= impl_->calls;
    const Tensor all = Tensor::host(shape, impl_->inputs[i].dtype());
    auto* to = static_cast<std::byte*>(all->view().data);
    for (std::size_t call = 0; call < calls.size(); ++call) {
      const Array rows = rows_of(call);
      rows.wait();
      if (rows.numel() > 0) std::memcpy(to, rows.view().data, rows.view().bytes());
      to += rows.view().bytes();
    }
    impl_->inputs[i] = all;
  }
}

void PredictorState::Call::begin() {
  if (!impl_->cut) impl_->lane = &impl_->state.take_lane(impl_->device);
  {
    const std::lock_guard first(impl_->state.queue);
    impl_->describing = std::shared_lock(impl_->state.describing);
  }
  impl_->no_grad.emplace();
  if (!impl_->lane) return;
  impl_->scope.emplace(impl_->lane->lane);
  if (impl_->calls > 0) {
    // The placement has one shard, so that operations know which axis has the samples.
    std::vector<std::int64_t> rows(static_cast<std::size_t>(impl_->lane->lane) + 1);
    rows.back() = impl_->inputs[0].size(0);
    impl_->placement =
        std::make_shared<Placement>(std::move(rows), std::vector<Slot>{{impl_->lane->lane, impl_->lane->device}});
    impl_->joined.emplace(impl_->calls);
    if (impl_->calls > 1) impl_->apart.emplace();
  }
  // The calling thread would only wait for its results, so it computes, too.
  const bool waits = impl_->device.is_host();
  if (DeviceState& device = state_of(impl_->lane->device, "predictor"); waits && device.kind == DeviceKind::cpu) {
    impl_->caller.emplace(device);
  }
}

Tensor PredictorState::Call::place(const Tensor& x) const {
  if (!x.defined() || impl_->cut || !x.device().is_host()) return x;
  // If all inputs are in host memory, the call waits for its results, so nobody can change x before it is read.
  return x.to(impl_->lane->device, {.non_blocking = impl_->device.is_host()});
}

Tensor PredictorState::Call::joined(std::size_t i) const { return scatter(impl_->inputs[i], impl_->placement); }

void PredictorState::Call::end() {
  impl_->apart.reset();
  impl_->joined.reset();
  impl_->caller.reset();
  impl_->scope.reset();
  impl_->describing.unlock();
  impl_->state.hold_settled();
}

Tensor PredictorState::Call::result(const Tensor& y) const {
  if (!y.defined() || impl_->cut || y->kind != Kind::whole || y->at) return y;
  if (impl_->device.is_host()) {
    if (y.device().is_host() || y.device().kind() != DeviceKind::cpu || y->array().layout() != Layout::plain)
      return y.to_host();
    // This thread waits anyway, and can copy before the lane for copies would wake up.
    y.wait();
    const Tensor result = Tensor::host(y.shape(), y.dtype());
    if (y.numel() > 0) std::memcpy(result->view().data, y->view().data, y->view().bytes());
    return result;
  }
  // Drops the shard, because what the caller computes from the result belongs to none.
  return y.device().is_host() ? y : Tensor(y->array().with_shard(-1));
}

Tensor PredictorState::Call::result_of(const Tensor& y, std::size_t call) const {
  if (!y.defined()) return y;
  check(y->kind == Kind::cut && same_placement(y->at, impl_->placement),
        "predictor: a result, {}, is not of the samples one by one, expected samples on one of its axes to join calls: "
        "set max_batch = 1",
        y);
  Array all = y->parts[0];
  if (all.layout() != Layout::plain || !all.device().host_visible()) {
    all = ops::to_device(ops::to_layout(all, Layout::plain), Device());
  }
  all.wait();
  Shape shape = y.shape();
  const Cut cut = y->cut;
  shape[cut.axis] /= impl_->calls;
  const Tensor result = Tensor::host(shape, y.dtype());
  std::int64_t blocks = cut.outer;
  for (int i = 0; i < cut.axis; ++i) blocks *= shape[i];
  if (result.numel() == 0) return result;
  const std::size_t bytes = result->view().bytes() / static_cast<std::size_t>(blocks);  // of one call in one block
  const auto* from = static_cast<const std::byte*>(all.view().data) + call * bytes;
  auto* to = static_cast<std::byte*>(result->view().data);
  for (std::int64_t b = 0; b < blocks; ++b, to += bytes) {
    std::memcpy(to, from, bytes);
    from += bytes * static_cast<std::size_t>(impl_->calls);
  }
  return result;
}

}  // namespace lockstep
