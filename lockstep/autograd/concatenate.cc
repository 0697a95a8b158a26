// Joins tensors.
#include "lockstep/autograd/concatenate.h"

#include "lockstep/autograd/functions.h"
#include "lockstep/autograd/lift.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/shape.h"

namespace lockstep {
namespace {

// The placement of parts joined along `axis`.
Placed place_side_by_side(std::string_view what, std::span<const Tensor> parts, int axis) {
  Placed placed = place(what, parts);
  if (placed.kind != Kind::cut) return placed;
  placed.cut = parts[0]->cut;
  const bool on_batch = placed.cut.axis == axis;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Tensor& part = parts[i];
    check(part->kind == Kind::cut && part->cut.axis == placed.cut.axis && part->cut.inner == placed.cut.inner &&
              (on_batch || part->cut == parts[0]->cut),
          "{}: the samples of {} and {} are in different places, expected them on the same axis, in the same order",
          what, parts[0], part);
    if (on_batch && i > 0) placed.cut.outer += part->cut.outer;
  }
  return placed;
}

}  // namespace

Tensor cat(std::span<const Tensor> tensors, int dim) {
  check(!tensors.empty(), "cat: no tensors");
  for (const Tensor& part : tensors) check(part.defined(), "cat: an input is undefined");
  const int axis = ops::resolve_axis("cat", tensors[0].shape(), dim);
  const auto joined = [axis](const Arrays& in) -> Lifted {
    std::vector<std::int64_t> extents;
    for (const Array& part : in) extents.push_back(part.size(axis));
    return {ops::cat({in.data(), in.size()}, axis), [extents, axis](const PartPass& p, const Array& dy) -> Arrays {
              Arrays back;
              std::int64_t start = 0;
              for (std::size_t i = 0; i < extents.size(); ++i) {
                back.push_back(p.needs(i) ? ops::slice(dy, axis, start, extents[i]) : Array());
                start += extents[i];
              }
              return back;
            }};
  };
  return lift("cat", place_side_by_side("cat", tensors, axis), tensors, joined, [&] {
    return OpTraits{{}, {{"axis", axis}}};
  });
}

Tensor cat(std::initializer_list<Tensor> tensors, int dim) {
  return cat(std::span(tensors.begin(), tensors.size()), dim);
}

Tensor stack(std::span<const Tensor> tensors, int dim) {
  check(!tensors.empty(), "stack: no tensors");
  std::vector<Tensor> parts;
  for (const Tensor& x : tensors) {
    check(x.defined() && x.shape() == tensors[0].shape(), "stack: found {} and {}, expected equal shapes", x,
          tensors[0]);
    parts.push_back(unsqueeze(x, dim));
  }
  return cat(parts, dim < 0 ? dim + parts[0].shape().dim() : dim);
}

Tensor stack(std::initializer_list<Tensor> tensors, int dim) {
  return stack(std::span(tensors.begin(), tensors.size()), dim);
}

Tensor concatenate(std::span<const Tensor> parts) {
  check(!parts.empty(), "concatenate: no tensors");
  for (const Tensor& part : parts) check(part.defined(), "concatenate: an input is undefined");
  const Placed placed = place("concatenate", parts);
  return placed.kind == Kind::whole && !placed.at ? concatenate(parts, placed.devices[0]) : cat(parts);
}

Tensor concatenate(std::span<const Tensor> parts, Device device) {
  std::vector<Array> arrays;
  std::vector<std::pair<Device, std::int64_t>> origin;
  for (const Tensor& part : parts) {
    check(part.defined() && part->kind != Kind::cut, "concatenate: {} to {}, expected it in one piece: gather() it",
          part, device.name());
    arrays.push_back(part->array());
    origin.emplace_back(part.device(), part.size(0));
  }
  std::vector<Tensor> all{ops::concatenate(arrays, device).with_shard(-1)};
  return record_mix(
      "concatenate", parts, std::move(all),
      [origin, device](const Node& node, const BackwardPass&, std::span<const Gradient> grads, std::span<Gradient> dx) {
        std::int64_t row = 0;
        const Array dy = ops::to_layout(grads[0].once(device), Layout::plain);
        for (std::size_t i = 0; i < origin.size(); ++i) {
          if (node.needs(i)) {
            dx[i].add_single(
                ops::to_device(ops::narrow(dy, row, origin[i].second), origin[i].first, {.non_blocking = true}));
          }
          row += origin[i].second;
        }
      })[0];
}

}  // namespace lockstep
