// Splits a batch over devices, runs the model on each, and gathers the outputs on the first device
// (torch.nn.DataParallel).
#pragma once

#include <concepts>
#include <tuple>
#include <type_traits>
#include <vector>

#include "lockstep/nn/module.h"
#include "lockstep/parallel/split.h"

namespace LOCKSTEP_API lockstep {

// Wraps a model that is on these devices (default: all of the model's). The wrapper is a module with the model's
// parameters, names (no `module.` prefix), and mode. It makes no clones, because each parameter already has a replica
// on each device. The model's forward() runs once for each shard, on tensors of that shard alone, as it would on one
// replica.
template <typename M = Module>
class DataParallel : public Module {
 public:
  DataParallel(M& module, std::vector<Device> devices, SplitOptions options = {})
      : module_(module), devices_(std::move(devices)), options_(std::move(options)) {
    check(!devices_.empty(), "data_parallel: no devices");
    pass_on(module);
  }

  explicit DataParallel(M& module) : DataParallel(module, static_cast<Module&>(module).devices()) {}

  // x [n, ...], in host memory or on any device. Returns the outputs of all n samples on the first device. n = 0 is an
  // error. Each shard has ceil(n / V) samples, so a short batch may leave devices idle. All inputs are cut in the same
  // way. If the model returns several tensors (std::tuple, std::pair, std::array), each of them is gathered.
  template <typename... Xs>
  auto operator()(const Tensor& x, const Xs&... more) {
    if constexpr (sizeof...(more) == 0 && kMakesOneOfOne) {
      return Module::operator()(x);
    } else {
      return run(x, more...);
    }
  }
  // The model's output, if it takes one tensor and returns one.
  Tensor forward(const Tensor& x) override {
    if constexpr (kMakesOneOfOne) {
      return run(x);
    } else {
      return Module::forward(x);
    }
  }

  // Returns x as it is, because the wrapper cuts its inputs itself.
  Tensor placed(const Tensor& x) const override { return x; }

  M& module() { return module_; }
  const std::vector<Device>& devices() const { return devices_; }

 private:
  static constexpr bool kMakesOneOfOne = requires(M & m, const Tensor& x) {
    { m.forward(x) } -> std::convertible_to<Tensor>;
  };

  template <typename... Xs>
  auto run(const Xs&... xs) {
    const auto replica = [this](const std::same_as<Tensor> auto&... shard) { return call_model(module_, shard...); };
    const auto whole = [this](const Tensor& y) { return gather(y, devices_[0]); };
    const auto y = per_shard(replica, split_and_load(xs, devices_, options_)...);
    if constexpr (std::same_as<decltype(y), const Tensor>) {
      return whole(y);
    } else {
      return std::apply([&](const auto&... t) { return std::decay_t<decltype(y)>{whole(t)...}; }, y);
    }
  }

  M& module_;
  std::vector<Device> devices_;
  SplitOptions options_;
};

}  // namespace lockstep
