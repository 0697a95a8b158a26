#include "lockstep/autograd/gradient.h"

#include <algorithm>

#include "lockstep/ops/copy.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/launch.h"
#include "lockstep/ops/reduce.h"

namespace lockstep {

void Accumulator::add(const Array& g, int shard) {
  if (!value.defined()) {
    value = g;
    return;
  }
  ops::ShardScope scope(shard);
  if (own) {
    ops::add_(value, g);
  } else {
    value = ops::binary(BinaryOp::add, value, g);
    own = true;
  }
}

Array Gradient::Seed::make(Device device, double weight) const {
  const double value = factor * weight;
  const DType dtype = root.dtype();
  if (!scales.empty()) {
    const auto scale = std::ranges::find(scales, device, &Array::device);
    check(scale != scales.end(), "backward: there is no loss scale on {}", device.name());
    return ops::reshape(ops::convert(ops::affine(*scale, value, 0), dtype, Layout::plain), root.shape());
  }
  Array seed = ops::empty(root.shape(), dtype, device, root.layout());
  ops::fill_(seed, value);
  return seed;
}

void Gradient::add_addend(int shard, const Array& g, bool counts) {
  if (!g.defined()) return;
  const auto at = std::ranges::find(addends, shard, &Addend::shard);
  if (at == addends.end()) {
    addends.push_back({shard, {g, false}, counts});
  } else if (at->counts == counts) {
    const Device device = at->sum.value.device();
    at->sum.add(g.device() == device ? g : ops::to_device(g, device, {.non_blocking = true}), shard);
  } else if (counts) {
    // The shard has samples in one batch and none in another.
    *at = {shard, {g, false}, true};
  }
}

void Gradient::add_part(const Array& g) {
  if (!g.defined()) return;
  const auto at =
      std::ranges::find_if(parts, [&](const Accumulator& part) { return part.value.device() == g.device(); });
  if (at == parts.end()) {
    parts.push_back({g, false});
  } else {
    at->add(g, -1);
  }
}

void Gradient::add_single(const Array& g) {
  if (!g.defined()) return;
  const bool elsewhere = single.defined() && single.value.device() != g.device();
  single.add(elsewhere ? ops::to_device(g, single.value.device(), {.non_blocking = true}) : g, -1);
}

void Gradient::add(Gradient other) {
  if (!defined()) {
    *this = std::move(other);
    return;
  }
  for (const Addend& a : other.addends) add_addend(a.shard, a.sum.value, a.counts);
  const auto on = [](const Accumulator& part) { return part.value.device(); };
  if (parts.empty() || std::ranges::is_permutation(parts, other.parts, {}, on, on)) {
    for (const Accumulator& part : other.parts) add_part(part.value);
  } else if (!other.parts.empty()) {
    // The parts of `other` are equal, but lie on other devices. Added to some of these parts, they would make these
    // unequal. So one part of `other` is added as a contribution that counts once.
    add_single(other.parts[0].value);
  }
  add_single(other.single.value);
  if (other.seed && seed) other.seed->factor += seed->factor;
  if (other.seed) seed = std::move(other.seed);
}

std::optional<Gradient::Addend> Gradient::take_addend(int shard) {
  const auto at = std::ranges::find(addends, shard, &Addend::shard);
  if (at == addends.end()) return std::nullopt;
  std::optional<Addend> taken = std::move(*at);
  addends.erase(at);
  return taken;
}

Array Gradient::addend(int shard) const {
  const auto at = std::ranges::find(addends, shard, &Addend::shard);
  return at == addends.end() ? Array() : at->sum.value;
}

Array Gradient::part(Device device) const {
  const auto at = std::ranges::find_if(parts, [&](const Accumulator& part) { return part.value.device() == device; });
  return at == parts.end() ? Array() : at->value;
}

Array Gradient::once(Device device) const {
  Accumulator sum;
  if (const Array p = part(device); p.defined()) {
    sum.add(p, -1);
  } else if (!parts.empty()) {
    sum.add(ops::to_device(parts[0].value, device, {.non_blocking = true}), -1);
  }
  if (single.defined()) sum.add(ops::to_device(single.value, device, {.non_blocking = true}), -1);
  if (seed) sum.add(seed->make(device), -1);
  return sum.value;
}

std::vector<Array> cut_parts(const Gradient& gradient, const Placement& at, const Cut& cut, Shape shape, DType dtype) {
  std::vector<Array> parts;
  for (const auto& [shard, device] : at.slots()) {
    Array part = gradient.addend(shard);
    if (!part.defined()) {
      ops::ShardScope scope(shard);
      shape[cut.axis] = cut.outer * at.rows_of(shard) * cut.inner;
      part = ops::empty(shape, dtype, device);
      ops::fill_(part, 0);
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

void exchange_leaves(const Placement& at, std::vector<Array>& leaves, std::string_view what) {
  if (!at.exchange()) {
    for (std::size_t s = 0; s < leaves.size(); ++s) {
      if (at.rows()[s] == 0) leaves[s] = {};
    }
    return;
  }
  std::vector<std::vector<Array>> parts(leaves.size());
  for (const Slot& slot : at.slots()) {
    const auto s = static_cast<std::size_t>(slot.shard);
    parts[s] = {leaves[s]};
  }
  parts = at.exchange()->gather(std::move(parts), what);
  for (std::size_t s = 0; s < leaves.size(); ++s) leaves[s] = parts[s].empty() ? Array() : parts[s][0];
}

TotalGradient::TotalGradient(const Gradient& gradient, const std::shared_ptr<const Placement>& at) {
  const bool once = !gradient.parts.empty() || gradient.single.defined();
  if (gradient.addends.empty() && !once) {
    if (gradient.seed) seed_ = &*gradient.seed;
    return;
  }
  if (gradient.addends.empty()) {
    const Device home = gradient.single.defined() ? gradient.single.value.device() : gradient.parts[0].value.device();
    arrays_.push_back(gradient.once(home));
    return;
  }
  check(at != nullptr, "backward: gradients of shards without a batch");
  const Device home = at->slots()[0].device;
  std::vector<Array> leaves(at->rows().size());
  const Array& like = gradient.addends[0].sum.value;
  for (const Gradient::Addend& a : gradient.addends) {
    const auto s = static_cast<std::size_t>(a.shard);
    if (!at->exchange()) {
      // A loss of two batches may have more shards in one of them than in the other.
      if (s >= leaves.size()) leaves.resize(s + 1);
      if (a.counts) leaves[s] = a.sum.value;
      continue;
    }
    // The exchange brings only the shards of `at`, from the processes to which `at` assigns them.
    if (!at->slot_of(a.shard)) {
      fail(
          "backward: a tensor {} {} is used by two batches that are cut differently over the processes, one of them "
          "into {} shards: call backward() for the loss of each batch",
          like.shape().str(), name(like.dtype()), at->rows().size());
    }
    leaves[s] = a.sum.value;
  }
  for (const Slot& slot : at->slots()) {
    Array& leaf = leaves[static_cast<std::size_t>(slot.shard)];
    if (leaf.defined() || !at->exchange()) continue;
    // Every process has to contribute.
    ops::ShardScope scope(slot.shard);
    leaf = ops::empty(like.shape(), like.dtype(), slot.device);
    ops::fill_(leaf, 0);
  }
  if (at->exchange()) exchange_leaves(*at, leaves, "gradients");
  ops::ShardScope scope(-1);
  Accumulator total;
  total.add(ops::tree_sum(leaves, home, state_of(home, "gradients").urgent_lane), -1);
  if (const Array rest = gradient.once(home); rest.defined()) total.add(rest, -1);
  arrays_.push_back(total.value);
}

Array TotalGradient::on(Device device, double weight) const {
  if (seed_) return seed_->make(device, weight);
  auto there = std::ranges::find(arrays_, device, &Array::device);
  if (there == arrays_.end()) {
    arrays_.push_back(ops::to_device(arrays_[0], device, {.non_blocking = true}));
    there = arrays_.end() - 1;
  }
  return weight == 1 ? *there : ops::affine(*there, weight, 0);
}

}  // namespace lockstep
