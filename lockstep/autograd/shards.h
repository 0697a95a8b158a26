// Joins the shards of a batch, or runs a function on each of them.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "lockstep/autograd/tensor.h"

namespace LOCKSTEP_API lockstep {

// Returns all samples of all processes as one whole tensor on `device` (kHost: host memory), in every process.
// Collective: every process must call it. Differentiable; the loss computed from the result must be the same in all
// processes.
Tensor gather(const Tensor& x, Device device);
// The same on the batch's first device.
Tensor gather(const Tensor& x);

// Calls f once per shard of this process with whole tensors of that shard, and joins the results along axis 0, which
// must hold the shard's samples. Use it for operations that are errors on cut tensors. Inputs that are not cut are
// passed unchanged; all cut inputs must have their shards in the same places. A loss in f is the loss of that shard;
// parameters' gradients are summed over all shards.
std::vector<Tensor> per_shard(const std::function<std::vector<Tensor>(std::span<const Tensor>)>& f,
                              std::span<const Tensor> inputs);
template <typename F, typename... Inputs>
requires(sizeof...(Inputs) > 0 && (std::is_convertible_v<const Inputs&, Tensor> && ...)) Tensor
    per_shard(const F& f, const Inputs&... inputs) {
  const Tensor all[] = {inputs...};
  return per_shard(
      [&f](std::span<const Tensor> in) {
        return [&]<std::size_t... I>(std::index_sequence<I...>) { return std::vector<Tensor>{f(in[I]...)}; }
        (std::index_sequence_for<Inputs...>());
      },
      std::span<const Tensor>(all))[0];
}

}  // namespace lockstep
