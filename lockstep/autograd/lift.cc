#include "lockstep/autograd/lift.h"

#include <algorithm>

#include "lockstep/autograd/checkpoint_scope.h"
#include "lockstep/autograd/elementwise.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/launch.h"
#include "lockstep/ops/reduce.h"
#include "lockstep/tensor/storage.h"

namespace lockstep {
namespace {

bool is_cut(const Tensor& t) { return t.defined() && t->kind == Kind::cut; }

bool shares_memory(const Array& a, const Array& b) { return &a.storage()->owner() == &b.storage()->owner(); }

// Returns y, or a copy if it shares memory with an input.
Array apart_from(const Arrays& inputs, Array y) {
  const auto shares = [&](const Array& x) { return x.defined() && shares_memory(x, y); };
  if (std::ranges::none_of(inputs, shares)) return y;
  Array copy = ops::empty_like(y);
  ops::copy_(y, copy, {.non_blocking = true});
  return copy;
}

// The devices that have all replicated inputs.
std::vector<Device> devices_of_replicas(std::string_view what, Inputs inputs, const Tensor& replica) {
  std::vector<Device> devices;
  for (Device device : replica.devices()) {
    const bool everywhere = std::ranges::all_of(inputs, [&](const Tensor& x) {
      return !x.defined() || x->kind != Kind::replicated ||
             std::ranges::find(x->parts, device, &Array::device) != x->parts.end();
    });
    if (everywhere) devices.push_back(device);
  }
  check(!devices.empty(), "{}: no device has all of the tensors, expected them on one device: move them with to()",
        what);
  return devices;
}

// The device that combines whole tensors: a CPU device reads host memory in place, and a GPU does not.
Device meeting_place(std::string_view what, Inputs inputs, const Tensor& first, const Tensor* replica) {
  Device device = first.device();
  if (device.is_host() && replica) device = devices_of_replicas(what, inputs, *replica)[0];
  if (device.host_visible()) return device;
  for (const Tensor& x : inputs) {
    // In per_shard(), lift() copies it.
    if (!x.defined() || x->kind != Kind::whole || !x.device().is_host() || first->at) continue;
    fail("{}: {} is in host memory, another input on {}, which does not read it: copy it with to(x.device())", what,
         x.describe(), device.name());
  }
  return device;
}

}  // namespace

void fail_across_batch(std::string_view what, const Tensor& x, std::string_view why) {
  fail("{}: the samples of {} are on axis {}, {}: gather() puts them together, per_shard() computes each shard alone",
       what, x.describe(), x->cut.axis, why);
}

Placed place(std::string_view what, Inputs inputs) {
  Placed placed;
  const Tensor* cut = nullptr;
  const Tensor* whole = nullptr;
  const Tensor* shard = nullptr;    // whole, in per_shard()
  const Tensor* replica = nullptr;  // of a parameter
  const Tensor* result = nullptr;   // replicated, of a batch
  for (const Tensor& x : inputs) {
    if (!x.defined()) continue;
    switch (x->kind) {
      case Kind::cut:
        if (cut && !same_placement((*cut)->at, x->at)) {
          fail("{}: {} and {} are cut differently, expected tensors of one batch", what, cut->describe(), x.describe());
        }
        if (!cut) cut = &x;
        break;
      case Kind::whole:
        if (!whole || (whole->device().is_host() && !x.device().is_host())) whole = &x;
        if (!x->at) break;
        if (shard && (*shard)->at != x->at) {
          fail("{}: {} and {} come from different calls of per_shard(), expected one call", what, shard->describe(),
               x.describe());
        }
        shard = &x;
        break;
      case Kind::replicated: {
        const Tensor*& first = x->at ? result : replica;
        first = first ? first : &x;
      }
    }
  }
  const Tensor* batch = cut ? cut : result;
  if (shard && (cut || (result && !same_placement((*shard)->at->batch(), (*result)->at)))) {
    fail("{}: {} is of one shard, {} of a batch: pass both to per_shard()", what, shard->describe(), batch->describe());
  }
  if (cut && result && !same_placement((*cut)->at, (*result)->at)) {
    fail("{}: {} was computed from another batch than {}, expected the same batch, or a detached, whole tensor", what,
         result->describe(), cut->describe());
  }
  if (cut) {
    placed = {Kind::cut, (*cut)->at, (*cut)->cut, {}};
  } else if (result && !shard) {
    placed = {Kind::replicated, (*result)->at, {}, (*result)->at->devices()};
  } else if (whole) {
    const Tensor& first = shard ? *shard : *whole;
    placed = {Kind::whole, first->at, {}, {meeting_place(what, inputs, first, replica)}};
  } else if (replica) {
    placed = {Kind::replicated, nullptr, {}, devices_of_replicas(what, inputs, *replica)};
  } else {
    fail("{}: an input is undefined", what);
  }
  return placed;
}

Placed place_as(std::string_view what, const Tensor& x) { return place(what, {&x, 1}); }

Placed place_broadcast(std::string_view what, InputList list) {
  const Inputs inputs(list.begin(), list.size());
  Placed placed = place(what, inputs);
  if (placed.kind != Kind::cut) return placed;
  int dims = 0;
  const Tensor* first = nullptr;
  for (const Tensor& x : inputs) {
    if (!x.defined()) continue;
    dims = std::max(dims, x.shape().dim());
    if (!first && is_cut(x)) first = &x;
  }
  const int from_right = first->shape().dim() - (*first)->cut.axis;
  for (const Tensor& x : inputs) {
    if (!x.defined()) continue;
    const int axis = x.shape().dim() - from_right;
    if (is_cut(x)) {
      const Cut cut = x->cut;
      if (cut.axis != axis || cut.outer != (*first)->cut.outer || cut.inner != (*first)->cut.inner) {
        fail("{}: the samples of {} are on axis {}, those of {} on axis {}, expected them on the same one", what,
             first->describe(), (*first)->cut.axis, x.describe(), cut.axis);
      }
    } else if (axis >= 0 && x.size(axis) != 1) {
      fail(
          "{}: {} is cut over the batch, but {} beside it is not: expected extent 1 on its axis {}, or "
          "split_and_load() of both",
          what, first->describe(), x.describe(), axis);
    }
  }
  placed.cut.axis = dims - from_right;
  return placed;
}

Placed place_rows(std::string_view what, InputList samples, InputList parameters) {
  std::vector<Tensor> inputs(samples);
  inputs.insert(inputs.end(), parameters.begin(), parameters.end());
  Placed placed = place(what, inputs);
  if (placed.kind != Kind::cut) return placed;
  const Tensor& x = inputs[0];
  for (const Tensor& t : samples) {
    if (!t.defined()) continue;
    if (!is_cut(t))
      fail("{}: {} is not cut over the batch, but another input is: split_and_load() both", what, t.describe());
    if (t->cut.axis != 0) fail_across_batch(what, t, "expected axis 0");
    if (t->cut != x->cut)
      fail("{}: the samples of {} and {} are in different places, expected tensors cut in the same way", what,
           x.describe(), t.describe());
  }
  for (const Tensor& t : parameters) {
    if (is_cut(t)) fail_across_batch(what, t, "but a parameter is the same for all samples");
  }
  return placed;
}

Placed place_matmul(std::string_view what, const Tensor& a, const Tensor& b) {
  const Tensor inputs[] = {a, b};
  Placed placed = place(what, inputs);
  if (placed.kind != Kind::cut) return placed;
  // Batches of matrices are aligned from the right.
  const auto from_right = [](const Tensor& x) { return x.shape().dim() - 1 - x->cut.axis; };
  if (is_cut(a) && from_right(a) == 0) fail_across_batch(what, a, "and the product would sum over them");
  if (is_cut(b) && from_right(b) == 1) fail_across_batch(what, b, "and the product would sum over them");
  const Tensor &cut = is_cut(a) ? a : b, &other = is_cut(a) ? b : a;
  const int axis = from_right(cut);
  if (is_cut(other)) {
    if (axis < 2 || from_right(other) < 2) {
      fail_across_batch(what, b, "and so are the other operand's: each sample would meet all others");
    }
    const Cut x = cut->cut, z = other->cut;
    if (axis != from_right(other) || x.outer != z.outer || x.inner != z.inner) {
      fail("{}: the samples of {} are on axis {}, those of {} on axis {}, expected them on the same one", what,
           a.describe(), a->cut.axis, b.describe(), b->cut.axis);
    }
  } else if (axis >= 2 && other.shape().dim() > axis && other.size(-1 - axis) != 1) {
    fail(
        "{}: {} is cut over the batch, but {} beside it is not: expected extent 1 on its axis {}, or split_and_load() "
        "of both",
        what, cut.describe(), other.describe(), other.shape().dim() - 1 - axis);
  }
  placed.cut = cut->cut;
  placed.cut.axis = std::max(a.shape().dim(), b.shape().dim()) - 1 - axis;
  return placed;
}

Placed place_linear(std::string_view what, const Tensor& x, const Tensor& w, const Tensor& bias) {
  const Tensor inputs[] = {x, w, bias};
  const Placed placed = place(what, inputs);
  if (is_cut(x) && x->cut.axis == x.shape().dim() - 1)
    fail_across_batch(what, x, "and the product would sum over them");
  for (const Tensor* t : {&w, &bias}) {
    if (is_cut(*t)) fail_across_batch(what, *t, "but a parameter is the same for all samples");
  }
  return placed;
}

Placed place_permuted(std::string_view what, const Tensor& x, std::span<const int> axes) {
  Placed placed = place_as(what, x);
  if (placed.kind == Kind::cut) {
    placed.cut.axis = static_cast<int>(std::ranges::find(axes, x->cut.axis) - axes.begin());
  }
  return placed;
}

Placed place_reshaped(std::string_view what, const Tensor& x, const Shape& shape) {
  Placed placed = place_as(what, x);
  if (placed.kind != Kind::cut) return placed;
  // The new shape must also split into [before, samples, after].
  const Cut cut = x->cut;
  std::int64_t before = cut.outer, after = cut.inner;
  for (int i = 0; i < cut.axis; ++i) before *= x.size(i);
  for (int i = cut.axis + 1; i < x.shape().dim(); ++i) after *= x.size(i);
  std::int64_t left = 1;
  bool found = false;
  for (int i = 0; i < shape.dim(); ++i) {
    std::int64_t right = 1;
    for (int j = i + 1; j < shape.dim(); ++j) right *= shape[j];
    const bool fits = left > 0 && right > 0 && before % left == 0 && after % right == 0;
    if (fits && shape[i] == before / left * placed.at->samples() * (after / right)) {
      // Several axes fit if there is a single sample. Keep its axis if possible.
      const Cut here{i, before / left, after / right};
      if (!found || here == cut) placed.cut = here;
      found = true;
    }
    left *= shape[i];
  }
  if (found) return placed;
  fail_across_batch(what, x, fmt::format("but shape {} would split samples", shape.str()));
}

namespace {

Tensor lifted(std::string_view name, const Placed& placed, Inputs given, bool is_view,
              const std::function<Lifted(const Arrays&)>& f, const OpTraitsOf& traits) {
  SmallVector<Tensor, 4> inputs;
  for (const Tensor& x : given) {
    if (placed.kind == Kind::whole) {
      // In per_shard(), a whole tensor moves to the shard's device.
      const bool moves = placed.at && x.defined() && x->kind == Kind::whole && !x->at;
      inputs.push_back(moves ? x.to(placed.devices[0], {.non_blocking = true}) : x);
    } else {
      inputs.push_back(placed.at ? replicate(x, placed.at) : x);
    }
  }
  const bool records = needs_grad({inputs.data(), inputs.size()});
  const bool cut = placed.kind == Kind::cut;
  const std::size_t parts = cut ? placed.at->slots().size() : placed.devices.size();
  std::vector<Array> ys;
  std::vector<PartBackward> backward;
  ys.reserve(parts);
  if (records) backward.reserve(parts);
  for (std::size_t p = 0; p < parts; ++p) {
    const Device device = cut ? placed.at->slots()[p].device : placed.devices[p];
    Arrays in;
    for (const Tensor& x : inputs) {
      in.push_back(!x.defined()             ? Array()
                   : x->kind == Kind::cut   ? x->parts[p]
                   : x->kind == Kind::whole ? device.is_host() ? x->array() : ops::lend(x->array(), device)
                                            : x->on(device));
    }
    ops::ShardScope scope(cut                          ? placed.at->slots()[p].shard
                          : placed.kind == Kind::whole ? ops::ShardScope::current()
                                                       : -1);
    Lifted result = f(in);
    ys.push_back(is_view ? std::move(result.y) : apart_from(in, std::move(result.y)));
    if (records) backward.push_back(std::move(result.backward));
  }
  Tensor y;
  switch (placed.kind) {
    case Kind::cut: y = cut_tensor(placed.at, placed.cut, std::move(ys)); break;
    case Kind::replicated: y = replicated_tensor(std::move(ys), placed.at); break;
    case Kind::whole: y = placed.at ? shard_tensor(placed.at, std::move(ys[0])) : Tensor(std::move(ys[0]));
  }
  DtypeWatch::note(y.dtype());
  CheckpointScope::read(name, {inputs.data(), inputs.size()});
  if (ForwardTrace* const trace = ForwardTrace::current()) {
    trace->operation(name, {inputs.data(), inputs.size()}, {&y, 1}, traits());
  }
  if (!records) return y;
  auto node = make_node(name, {inputs.data(), inputs.size()}, {&y, 1});
  node->devices = placed.devices;
  node->parts = std::move(backward);
  return y;
}

}  // namespace

Tensor lift(std::string_view name, const Placed& placed, Inputs inputs, const std::function<Lifted(const Arrays&)>& f,
            const OpTraitsOf& traits) {
  return lifted(name, placed, inputs, false, f, traits);
}

Tensor lift_view(std::string_view name, const Placed& placed, const Tensor& x,
                 const std::function<Lifted(const Arrays&)>& f, const OpTraitsOf& traits) {
  return lifted(name, placed, {&x, 1}, true, f, traits);
}

bool shares_memory(const Tensor& a, const Tensor& b) {
  return std::ranges::any_of(a->parts, [&](const Array& x) {
    return std::ranges::any_of(b->parts, [&](const Array& y) { return shares_memory(x, y); });
  });
}

Tensor owned(const Tensor& y, const Tensor& x) { return shares_memory(y, x) ? clone(y) : y; }

Tensor mix_shards(std::string_view name, Mix how, const Placed& placed, InputList list,
                  const std::function<Lifted(const Arrays&)>& f, const MixFinish& finish, const OpTraitsOf& traits) {
  if (placed.kind != Kind::cut) {
    const auto finished = [&](const Arrays& in) {
      Lifted part = f(in);
      if (finish) part.y = finish(part.y, {});
      return part;
    };
    return lift(name, placed, list, finished, traits);
  }
  const auto& at = placed.at;
  const auto weight = [how, at](int shard) { return how == Mix::mean ? at->share(shard) : 1.0; };
  std::vector<PartBackward> backward;
  // As for cut results, one backward function and one input part for each slot.
  std::vector<Tensor> inputs;
  for (const Tensor& x : list) inputs.push_back(replicate(x, at));
  std::vector<Array> leaves(at->rows().size());
  for (std::size_t s = 0; s < at->slots().size(); ++s) {
    const auto [shard, device] = at->slots()[s];
    ops::ShardScope scope(shard);
    Arrays in;
    for (const Tensor& x : inputs) {
      in.push_back(!x.defined() ? Array() : x->kind == Kind::cut ? x->parts[s] : x->on(device));
    }
    Lifted part = f(in);
    part.y = apart_from(in, std::move(part.y));
    backward.push_back(std::move(part.backward));
    const double w = weight(shard);
    leaves[static_cast<std::size_t>(shard)] = w == 1 ? part.y : ops::affine(part.y, w, 0);
  }
  std::vector<Array> held = leaves;
  const Array like = held[static_cast<std::size_t>(at->slots()[0].shard)];
  exchange_leaves(*at, leaves, name);
  held.insert(held.end(), leaves.begin(), leaves.end());
  const Device home = at->slots()[0].device;
  ops::ShardScope scope(-1);
  std::optional<LaneId> lane = at->exchange() ? at->exchange()->lane(home) : std::nullopt;
  if (!lane) lane = state_of(home, name).urgent_lane;
  Array value = how == Mix::max ? ops::max_of(leaves, home) : ops::tree_sum(leaves, home, lane);
  if (!value.defined()) {
    // A sum over no elements.
    value = ops::empty(like.shape(), like.dtype(), home);
    ops::fill_(value, 0);
  }
  if (finish) value = finish(value, lane);
  Tensor y = replicated_tensor({std::move(value)}, at);
  TensorImpl::of(y).held = std::move(held);
  return record_mix(
      name, inputs, {y},
      [at, weight, backward = std::move(backward)](const Node& node, const BackwardPass& pass,
                                                   std::span<const Gradient> dy, std::span<Gradient> dx) {
        const TotalGradient total(dy[0], at);
        for (std::size_t s = 0; s < at->slots().size(); ++s) {
          const auto [shard, device] = at->slots()[s];
          const bool counts = at->rows_of(shard) > 0;
          ops::ShardScope scope(shard);
          const Arrays found = backward[s]({node, pass, counts ? shard : -1}, total.on(device, weight(shard)));
          for (std::size_t i = 0; i < dx.size(); ++i) {
            if (node.needs(i)) dx[i].add_addend(shard, found[i], counts);
          }
        }
      })[0];
}

Tensor replicate(const Tensor& x, const std::shared_ptr<const Placement>& at) {
  if (!x.defined() || x->kind != Kind::whole) return x;
  std::vector<Array> parts;
  for (Device device : at->devices())
    parts.push_back(ops::to_device(x->array().with_shard(-1), device, {.non_blocking = true}));
  return record_mix(
      "replicate", {x}, replicated_tensor(std::move(parts), at),
      [at, home = x.device()](const Node&, const BackwardPass&, std::span<const Gradient> dy, std::span<Gradient> dx) {
        const TotalGradient total(dy[0], at);
        if (total.defined()) dx[0].add_single(total.on(home));
      });
}

Tensor beside(const Tensor& x, const Tensor& constant) {
  if (!constant.defined() || constant->kind != Kind::whole) return constant;
  if (x->kind != Kind::whole && x->at) return replicate(constant, x->at);
  // Operations read it in place, or throw if they cannot.
  if (x.device().is_host() || (constant.device().is_host() && x.device().host_visible())) return constant;
  return constant.to(x.device());
}

}  // namespace lockstep
