// Splits a batch over devices, runs the model on each, and gathers the outputs on the first device
// (torch.nn.DataParallel).
#pragma once

#include <concepts>
#include <vector>

#include "lockstep/nn/module.h"
#include "lockstep/parallel/split.h"

namespace LOCKSTEP_API lockstep {

struct DataParallelOptions {
  // V of the recipe; 0: one shard for each device.
  int shards = 0;
  // See SplitOptions.
  std::vector<double> balance{};
};

// Wraps a model that was initialized on these devices. The wrapper is a module with the model's parameters, names (no
// `module.` prefix), and mode. There are no clones, because parameters have a replica on each device anyway. The
// model's forward() runs once for each shard, on tensors of that shard alone, so it sees what one replica sees.
template <typename M = Module>
class DataParallel : public Module {
 public:
  DataParallel(M& module, std::vector<Device> devices, DataParallelOptions options = {})
      : module_(module), devices_(std::move(devices)), options_(options) {
    check(!devices_.empty(), "data_parallel: no devices");
    pass_on(module);
  }

  // x [n, ...], in host memory or on any device. Returns the outputs of all n samples on the first device. n = 0 is an
  // error. Each shard has ceil(n / V) samples, so a short batch may leave devices idle.
  Tensor forward(const Tensor& x) override {
    if constexpr (requires(M & module) { module.forward(x); }) {
      return run(x);
    } else {
      return Module::forward(x);
    }
  }
  using Module::operator();
  // The same for a model with several input tensors, which are all split.
  template <typename... More>
  requires(sizeof...(More) > 0) Tensor operator()(const Tensor& x, const More&... more) { return run(x, more...); }

  M& module() { return module_; }
  const std::vector<Device>& devices() const { return devices_; }

 private:
  // Another forward() may hide the virtual one, which operator() calls.
  static constexpr bool kHasVirtualForward = requires { static_cast<Tensor (M::*)(const Tensor&)>(&M::forward); };

  template <typename... Xs>
  Tensor run(const Xs&... xs) {
    const auto replica = [this](const std::same_as<Tensor> auto&... shard) {
      // operator() lets summary() see the output.
      if constexpr (sizeof...(shard) == 1 && kHasVirtualForward) {
        return module_(shard...);
      } else {
        return module_.forward(shard...);
      }
    };
    return gather(
        per_shard(replica, split_and_load(xs, devices_, {.shards = options_.shards, .balance = options_.balance})...),
        devices_[0]);
  }

  M& module_;
  std::vector<Device> devices_;
  DataParallelOptions options_;
};

}  // namespace lockstep
