// Functions that join the shards of a batch, or run a function on each of them.
//
//   Tensor all = gather(logits, kHost);
#pragma once

#include <functional>
#include <span>
#include <tuple>
#include <type_traits>
#include <vector>

#include "lockstep/autograd/tensor.h"

namespace LOCKSTEP_API lockstep {

// Returns all samples of all processes as one whole tensor on `device` (kHost: host memory), in every process.
// Collective: every process must call it. Differentiable; the loss computed from the result must be the same in all
// processes. For a batch of this process's rows alone (BatchSplitter::split_own), returns these rows.
Tensor gather(const Tensor& x, Device device);
// The same on the batch's first device.
Tensor gather(const Tensor& x);

// Calls f once per shard of this process with whole tensors of that shard, and joins the results along axis 0, which
// must hold the shard's samples. Use it for operations that are errors on cut tensors. Inputs that are not cut are
// passed unchanged; all cut inputs must have their shards in the same places. A loss in f is the loss of that shard;
// parameters' gradients are summed over all shards.
std::vector<Tensor> per_shard(const std::function<std::vector<Tensor>(std::span<const Tensor>)>& f,
                              std::span<const Tensor> inputs);
// f returns a tensor, or several as a std::tuple, a std::pair, or a std::array; so does this.
template <typename F, typename... Inputs>
requires(sizeof...(Inputs) > 0 &&
         (std::is_convertible_v<const Inputs&, Tensor> && ...)) auto per_shard(const F& f, const Inputs&... inputs) {
  const Tensor all[] = {inputs...};
  const auto call = [&f]<std::size_t... I>(std::span<const Tensor> in, std::index_sequence<I...>) {
    return f(in[I]...);
  };
  constexpr std::index_sequence_for<Inputs...> each;
  using Result = decltype(call(all, each));
  const std::vector<Tensor> joined = per_shard(
      [&](std::span<const Tensor> in) {
        const Result result = call(in, each);
        if constexpr (std::is_convertible_v<Result, Tensor>) {
          return std::vector<Tensor>{result};
        } else {
          return std::apply([](const auto&... t) { return std::vector<Tensor>{t...}; }, result);
        }
      },
      std::span<const Tensor>(all));
  if constexpr (std::is_convertible_v<Result, Tensor>) {
    return joined[0];
  } else {
    return [&]<std::size_t... I>(std::index_sequence<I...>) { return Result{joined[I]...}; }
    (std::make_index_sequence<std::tuple_size_v<Result>>());
  }
}

}  // namespace lockstep
