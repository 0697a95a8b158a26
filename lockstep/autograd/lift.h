// Internal: turns an operation on arrays into a differentiable operation on logical tensors: decides where the result
// lies, and runs the operation on every part.
//
//   Tensor relu(const Tensor& x) {
//     return lift("relu", place_as("relu", {x}), {x}, [](const Arrays& in) -> Lifted {
//       Array y = ops::unary(UnaryOp::relu, in[0]);
//       return {y, [saved = SavedArray(y)](const PartPass& p, const Array& dy) -> Arrays {
//                 return {ops::unary_backward(UnaryOp::relu, saved.get(p.name()), dy)};
//               }};
//     });
//   }
//
// Rules: a tensor that is not cut acts as its replica on each device of the batch. All cut tensors of an operation must
// have the same samples in the same places. Shapes and cuts decide whether an operation is allowed; the number of
// devices, shards, or samples never does.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>

#include "lockstep/autograd/forward_trace.h"
#include "lockstep/autograd/node.h"
#include "lockstep/autograd/tensor.h"

namespace lockstep {

// Where a result lies.
struct Placed {
  Kind kind = Kind::whole;
  std::shared_ptr<const Placement> at;  // null for parameters, and for whole tensors outside per_shard()
  Cut cut;
  std::vector<Device> devices;  // devices of a result that is not cut
};

// Undefined inputs, such as an omitted bias, are ignored.
using Inputs = std::span<const Tensor>;
using InputList = std::initializer_list<Tensor>;

// The kind and placement that follow from the inputs, with the cut of the first cut input.
Placed place(std::string_view what, Inputs inputs);
// The result has x's shape, or differs from it on axes without the batch.
Placed place_as(std::string_view what, const Tensor& x);
// Shapes are aligned from the right; cuts agree, or the other operand has extent 1 there.
Placed place_broadcast(std::string_view what, InputList inputs);
// Samples are on axis 0 of all of `samples` (the first one, and labels, residuals, ...) and of the result. Parameters
// have none.
Placed place_rows(std::string_view what, InputList samples, InputList parameters = {});
// [.., m, k] x [.., k, n]: samples are on m, n, or an earlier axis. On an earlier axis, both operands have them, or one
// operand is the same for all.
Placed place_matmul(std::string_view what, const Tensor& a, const Tensor& b);
// x [.., k] and parameters: samples are on any axis of x but the last.
Placed place_linear(std::string_view what, const Tensor& x, const Tensor& w, const Tensor& bias);
// Axis i of the result is axis axes[i] of x.
Placed place_permuted(std::string_view what, const Tensor& x, std::span<const int> axes);
// The result has x's elements in `shape`, which contains no -1.
Placed place_reshaped(std::string_view what, const Tensor& x, const Shape& shape);

// Throws the error for an operation that would need all samples in one place.
[[noreturn]] void fail_across_batch(std::string_view what, const Tensor& x, std::string_view why);

// One part's result and its backward function.
struct Lifted {
  Array y;
  PartBackward backward;
};

// Calls f for every part with the inputs' parts. `traits`: what decides the result besides the inputs, for a trace. The
// result has memory of its own: an input that f returns, or a part of one, is copied.
Tensor lift(std::string_view name, const Placed& placed, Inputs inputs, const std::function<Lifted(const Arrays&)>& f,
            const OpTraitsOf& traits = {});
inline Tensor lift(std::string_view name, const Placed& placed, InputList inputs,
                   const std::function<Lifted(const Arrays&)>& f, const OpTraitsOf& traits = {}) {
  return lift(name, placed, Inputs(inputs.begin(), inputs.size()), f, traits);
}

// The same for views, and for conversions that may change nothing: the result may share x's memory.
Tensor lift_view(std::string_view name, const Placed& placed, const Tensor& x,
                 const std::function<Lifted(const Arrays&)>& f, const OpTraitsOf& traits = {});

bool shares_memory(const Tensor& a, const Tensor& b);
// Returns y, or a copy if it shares memory with x: for composed functions that must not return a view.
Tensor owned(const Tensor& y, const Tensor& x);

// Computes a result of all shards. Calls f for each shard, adds the results, which have equal shapes, in the shards'
// tree, and weights them by samples for a mean. max takes the largest: turn gradients off first. Every process must
// call it; they exchange their parts in the call, not when the result is read. Uncut tensors count as one shard.
enum class Mix { sum, mean, max };
// Computes the result from what the shards' tree gave, on the same device, on `lane` if there is one. For tensors that
// are not cut, it runs once for each device. Backward functions of parts get the gradient of the result.
using MixFinish = std::function<Array(const Array& mixed, std::optional<LaneId> lane)>;
Tensor mix_shards(std::string_view name, Mix how, const Placed& placed, InputList inputs,
                  const std::function<Lifted(const Arrays&)>& f, const MixFinish& finish = {},
                  const OpTraitsOf& traits = {});

// Puts a whole tensor, the same in all processes, on every device of a batch; its gradient is the sum over all shards.
// Returns other and undefined tensors unchanged.
Tensor replicate(const Tensor& x, const std::shared_ptr<const Placement>& at);
// Moves a whole tensor, such as a constant in host memory, to where operations with x can use it. Returns other tensors
// unchanged.
Tensor beside(const Tensor& x, const Tensor& constant);

}  // namespace lockstep
