#include "lockstep/train/predictor.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <optional>
#include <shared_mutex>

#include "lockstep/autograd/no_grad.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/checkpoint/weights_change.h"
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

// A compute lane, for one call at a time if possible.
struct PredictorLane {
  Device device;
  int lane = 0;   // among those of the device
  int calls = 0;  // that use it now
};

}  // namespace

struct PredictorState::Impl {
  explicit Impl(Module& m) : model(m), weights(weights_of(m)), evaluation(m) {
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

  // The first call settles shapes that no file did.
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

  // A lane with the fewest calls; `on`: of this device, if it is one. Of several, the one with the fewest tasks.
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
      // Lanes of one device, so that the engine can choose.
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
  void leave_lane(PredictorLane& lane) {
    const std::lock_guard lock(lanes_mutex);
    --lane.calls;
  }

  Module& model;
  const std::vector<Parameter> weights;
  const EvalGuard evaluation;
  bool held = false;
  std::atomic<bool> settled{false};
  std::vector<Device> devices;  // the parameters' own list is exchanged with their replicas
  std::mutex lanes_mutex;
  std::vector<PredictorLane> lanes;
  std::mutex load_mutex;  // one load at a time
  // Calls describe their tasks with shared ownership; load() exchanges the weights alone. Each waits in `queue` first,
  // so that a stream of calls does not hold up a load.
  std::mutex queue;
  std::shared_mutex describing;
};

PredictorState::PredictorState(Module& model, const std::filesystem::path* weights)
    : impl_(std::make_unique<Impl>(model)) {
  model.devices();  // places it if nobody did
  if (weights != nullptr) load(*weights);
  impl_->find_lanes();
  impl_->hold_settled();
}

PredictorState::~PredictorState() = default;

void PredictorState::load(const std::filesystem::path& weights) {
  const std::lock_guard one(impl_->load_mutex);
  std::vector<ParameterChange> changes = weights_change(weights, impl_->model);
  const std::lock_guard first(impl_->queue);
  const std::unique_lock alone(impl_->describing);
  const bool held = impl_->held;
  impl_->set_held(nullptr);
  for (ParameterChange& change : changes) change.commit();
  if (held) impl_->set_held(kHeld);
}

struct PredictorState::Call::Impl {
  explicit Impl(PredictorState::Impl& s) : state(s) {}
  ~Impl() {
    if (lane) state.leave_lane(*lane);
  }

  PredictorState::Impl& state;
  Device device;     // of the inputs; host memory if none is on a device
  bool cut = false;  // an input is a batch that is cut over devices, which its shards' lanes compute
  PredictorLane* lane = nullptr;
  std::shared_lock<std::shared_mutex> describing{};
  std::optional<ops::ShardScope> scope{};
  std::optional<ops::CallerScope> caller{};
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

void PredictorState::Call::begin() {
  if (!impl_->cut) impl_->lane = &impl_->state.take_lane(impl_->device);
  {
    const std::lock_guard first(impl_->state.queue);
    impl_->describing = std::shared_lock(impl_->state.describing);
  }
  impl_->no_grad.emplace();
  if (!impl_->lane) return;
  impl_->scope.emplace(impl_->lane->lane);
  // The thread would only wait for its results.
  const bool waits = impl_->device.is_host();
  if (DeviceState& device = state_of(impl_->lane->device, "predictor"); waits && device.kind == DeviceKind::cpu) {
    impl_->caller.emplace(device);
  }
}

Tensor PredictorState::Call::place(const Tensor& x) const {
  if (!x.defined() || impl_->cut || !x.device().is_host()) return x;
  // A call without other inputs waits for its results before it returns, so nobody can change x before it is read.
  return x.to(impl_->lane->device, {.non_blocking = impl_->device.is_host()});
}

void PredictorState::Call::end() {
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
    // This thread waits anyway, and reads faster than it wakes the lane that copies.
    y.wait();
    const Tensor result = Tensor::host(y.shape(), y.dtype());
    if (y.numel() > 0) std::memcpy(result->view().data, y->view().data, y->view().bytes());
    return result;
  }
  // What the caller computes from it belongs to no shard.
  return y.device().is_host() ? y : Tensor(y->array().with_shard(-1));
}

}  // namespace lockstep
