// Makes a differentiable operation on logical tensors of one on arrays: says where the result lies, and runs the operation on
// every part.
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
// Rules: a tensor that is not cut counts as its replica on each device of the batch; all cut tensors of an operation have the
// same samples in the same places; whether an operation is allowed depends on shapes and cuts, never on the number of
// devices, shards or samples.
#pragma once

#include <functional>
#include <initializer_list>
#include <span>
#include <string_view>

#include "lockstep/autograd/node.h"
#include "lockstep/autograd/tensor.h"

namespace lockstep {

// Where a result lies.
struct Placed {
  Kind kind = Kind::whole;
  std::shared_ptr<const Placement> at;  // null for parameters, and for whole tensors outside of per_shard()
  Cut cut;
  std::vector<Device> devices;  // of a result that is not cut
};

// Undefined inputs (a bias that is left out, say) are passed over.
using Inputs = std::span<const Tensor>;
using InputList = std::initializer_list<Tensor>;

// Kind and placement that follow from the inputs', and the first cut input's cut.
Placed place(std::string_view what, Inputs inputs);
// The result has x's shape, or differs from it on axes without the batch.
Placed place_as(std::string_view what, const Tensor& x);
// Shapes are aligned from the right; cuts agree, or the other operand has extent 1 there.
Placed place_broadcast(std::string_view what, InputList inputs);
// Samples are on axis 0 of all of `samples` (the first one, and labels, residuals, ...) and of the result. Parameters have none.
Placed place_rows(std::string_view what, InputList samples, InputList parameters = {});
// [.., m, k] x [.., k, n]: samples are on m, n or an axis before, where both have them or one operand is the same for
// all.
Placed place_matmul(std::string_view what, const Tensor& a, const Tensor& b);
// x [.., k] and parameters: samples are on any axis of x but the last.
Placed place_linear(std::string_view what, const Tensor& x, const Tensor& w, const Tensor& bias);
// Axis i of the result is axis axes[i] of x.
Placed place_permuted(std::string_view what, const Tensor& x, std::span<const int> axes);
// x's elements as `shape`, without -1.
Placed place_reshaped(std::string_view what, const Tensor& x, const Shape& shape);

// The error for an operation that would need all samples together.
[[noreturn]] void fail_across_batch(std::string_view what, const Tensor& x, std::string_view why);

// One part's result and its backward function.
struct Lifted {
  Array y;
  PartBackward backward;
};

// Calls f for every part with the inputs' parts.
Tensor lift(std::string_view name, const Placed& placed, Inputs inputs, const std::function<Lifted(const Arrays&)>& f);
inline Tensor lift(std::string_view name, const Placed& placed, InputList inputs,
                   const std::function<Lifted(const Arrays&)>& f) {
  return lift(name, placed, Inputs(inputs.begin(), inputs.size()), f);
}

// A result of all shards: f's results for each shard, of equal shapes, are added in the shards' tree, weighted by their
// samples for a mean; or the largest of them is taken, without a history. Every process has to call it; the processes'
// parts are exchanged at once, not when somebody reads the result. Tensors that are not cut count as one shard.
enum class Mix { sum, mean, max };
Tensor mix_shards(std::string_view name, Mix how, const Placed& placed, InputList inputs,
                  const std::function<Lifted(const Arrays&)>& f);

// A whole tensor, the same in all processes, on every device of a batch; its gradient is the sum over all shards. Others, and
// undefined ones, as they are.
Tensor replicate(const Tensor& x, const std::shared_ptr<const Placement>& at);
// A whole tensor, such as a constant in host memory, where operations with x find it. Others as they are.
Tensor beside(const Tensor& x, const Tensor& constant);

}  // namespace lockstep
