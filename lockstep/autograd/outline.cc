#include "lockstep/autograd/outline.h"

#include "lockstep/autograd/node.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/launch.h"

namespace lockstep {

Outline::Outline(const Tensor& t)
    : defined(t.defined()), kind(t->kind), shape(t.shape()), dtype(t.dtype()), devices(t.devices()), at(t->at),
      cut(t->cut) {}

bool Outline::fits(const Tensor& gradient) const {
  const Outline other(gradient);
  // sum_to() leaves the only sample of a batch where it is, because there is nothing to add.
  if (kind == Kind::replicated && other.kind == Kind::cut) {
    return shape == other.shape && dtype == other.dtype && shape[other.cut.axis] == 1;
  }
  if (kind == Kind::cut && (other.cut != cut || !same_placement(at, other.at))) return false;
  // A whole gradient suffices for a replicated input, because it is the same everywhere.
  const bool same_kind = kind == other.kind || (kind == Kind::replicated && other.kind == Kind::whole);
  return defined && same_kind && shape == other.shape && dtype == other.dtype &&
         (kind != Kind::whole || devices == other.devices);
}

std::string Outline::str() const {
  if (!defined) return "none";
  const std::string how = kind == Kind::cut          ? fmt::format("cut over the batch on axis {}", cut.axis)
                          : kind == Kind::replicated ? "replicated"
                                                     : "whole";
  return fmt::format("{} {} on {}, {}", shape.str(), name(dtype), describe_devices(devices), how);
}

Tensor as_tensor(const Gradient& g, const Outline& of, const BackwardPass& pass) {
  if (!g.defined()) return {};
  if (of.kind != Kind::cut) {
    const TotalGradient total(g, of.kind == Kind::replicated && of.at ? of.at : pass.at);
    std::vector<Array> parts;
    for (Device device : of.devices) parts.push_back(total.on(device));
    if (of.kind == Kind::replicated) return replicated_tensor(std::move(parts), of.at);
    return of.at ? shard_tensor(of.at, parts[0]) : Tensor(parts[0]);
  }
  return cut_tensor(of.at, of.cut, cut_parts(g, *of.at, of.cut, of.shape, of.dtype));
}

Tensor zeros_of(const Outline& of, const BackwardPass& pass) {
  Gradient none;
  if (of.kind != Kind::cut) {
    none.add_single(ops::full(of.shape, 0, of.dtype, of.devices.at(0)));
    return as_tensor(none, of, pass);
  }
  return cut_tensor(of.at, of.cut, cut_parts(none, *of.at, of.cut, of.shape, of.dtype));
}

void add_tensor(Gradient& sum, const Tensor& g, const Outline& of) {
  switch (g->kind) {
    case Kind::whole: return sum.add_single(g->array());
    case Kind::replicated:
      for (Device device : g.devices()) sum.add_part(g->on(device));
      return;
    case Kind::cut:
      for (std::size_t s = 0; s < g->parts.size(); ++s) {
        const auto [shard, device] = g->at->slots()[s];
        const bool counts = g->at->rows_of(shard) > 0;
        Array part = g->parts[s];
        // A shard without samples has an empty part. Its addend in a sum is zeros of the tensor's shape.
        if (of.kind != Kind::cut && !counts) {
          ops::ShardScope scope(shard);
          part = ops::full(of.shape, 0, of.dtype, device);
        }
        sum.add_addend(shard, part, counts);
      }
  }
}

}  // namespace lockstep
