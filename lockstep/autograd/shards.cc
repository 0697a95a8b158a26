#include "lockstep/autograd/shards.h"

#include <algorithm>
#include <numeric>

#include "lockstep/autograd/no_grad.h"
#include "lockstep/autograd/node.h"
#include "lockstep/autograd/placement.h"
#include "lockstep/autograd/shard_collector.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/elementwise.h"
#include "lockstep/ops/launch.h"
#include "lockstep/ops/shape.h"

namespace lockstep {
namespace {

// Swaps axis `axis` of x and axis 0.
Array with_axis_first(const Array& x, int axis) {
  if (axis == 0) return x;
  std::vector<int> axes(static_cast<std::size_t>(x.shape().dim()));
  std::iota(axes.begin(), axes.end(), 0);
  std::swap(axes[0], axes[static_cast<std::size_t>(axis)]);
  return ops::permute(x, axes);
}

// Shape of a part as [elements before the samples, samples, elements after them].
Shape as_blocks(const Array& part, const Cut& cut) {
  std::int64_t before = cut.outer, after = cut.inner;
  for (int i = 0; i < cut.axis; ++i) before *= part.size(i);
  for (int i = cut.axis + 1; i < part.shape().dim(); ++i) after *= part.size(i);
  const std::int64_t samples = part.size(cut.axis) / (cut.outer * cut.inner);
  return {before, samples, after};
}

// A part by sample, [samples, elements], which can be stacked.
Array samples_first(const Array& part, const Cut& cut) {
  const Array plain = ops::to_layout(part, Layout::plain);
  const Shape blocks = as_blocks(plain, cut);
  if (blocks[0] == 1) return ops::reshape(plain, {blocks[1], blocks[2]});
  return ops::reshape(with_axis_first(ops::reshape(plain, blocks), 1), {blocks[1], blocks[0] * blocks[2]});
}

// The reverse: [samples, elements] as a tensor of `shape`.
Array samples_back(const Array& rows, const Cut& cut, Shape shape) {
  std::int64_t before = cut.outer;
  for (int i = 0; i < cut.axis; ++i) before *= shape[i];
  const std::int64_t samples = rows.size(0);
  shape[cut.axis] = cut.outer * samples * cut.inner;
  if (before == 1) return ops::reshape(ops::to_layout(rows, Layout::plain), shape);
  const std::int64_t after = samples * before == 0 ? 0 : rows.numel() / samples / before;
  return ops::reshape(with_axis_first(ops::reshape(ops::to_layout(rows, Layout::plain), {samples, before, after}), 1),
                      shape);
}

// First row and number of rows of each slot of this process.
std::vector<std::pair<std::int64_t, std::int64_t>> slot_rows(const Placement& at) {
  std::vector<std::pair<std::int64_t, std::int64_t>> rows;
  std::int64_t row = 0;
  for (const Slot& slot : at.slots()) {
    rows.emplace_back(row, at.rows_of(slot.shard));
    row += at.rows_of(slot.shard);
  }
  return rows;
}

// Joins the rows of all processes. Shards are padded to the longest one for the exchange.
Array join_all(const Tensor& x, Device device) {
  const Placement& at = *x->at;
  if (!at.exchange()) return join_parts(x, device);
  const std::int64_t most = std::ranges::max(at.rows());
  std::vector<std::vector<Array>> parts(at.rows().size());
  for (std::size_t s = 0; s < at.slots().size(); ++s) {
    ops::ShardScope scope(at.slots()[s].shard);
    const Array rows = samples_first(x->parts[s], x->cut);
    const std::int64_t elements = x.numel() / std::max<std::int64_t>(at.samples(), 1);
    Array padded = rows;
    if (rows.size(0) != most) {
      padded = ops::empty({most, elements}, rows.dtype(), rows.device());
      ops::fill_(padded, 0);
      if (rows.numel() > 0) ops::copy_(rows, ops::narrow(padded, 0, rows.size(0)));
    }
    parts[static_cast<std::size_t>(at.slots()[s].shard)] = {padded};
  }
  parts = at.exchange()->gather(std::move(parts), "gather");
  std::vector<Array> rows;
  for (std::size_t s = 0; s < parts.size(); ++s) {
    if (!parts[s].empty()) rows.push_back(ops::narrow(parts[s][0], 0, at.rows()[s]));
  }
  // On the device of the exchange, where kernels can reorder axes.
  const Device there = rows.at(0).device();
  return ops::to_device(samples_back(ops::concatenate(rows, there), x->cut, x.shape()), device);
}

// Adds the gradient of slot s's samples, [samples, elements], in the shape of a part of a tensor of `shape`.
void add_rows(const Array& rows, const Placement& at, std::size_t s, const Cut& cut, const Shape& shape,
              Gradient& gradient) {
  const auto [shard, device] = at.slots()[s];
  const Array there = ops::to_device(rows.with_shard(shard), device, {.non_blocking = true});
  ops::ShardScope scope(shard);
  gradient.add_addend(shard, samples_back(there, cut, shape), at.rows_of(shard) > 0);
}

// Part s of x, as that shard's whole tensor.
Tensor shard_of(const Tensor& x, std::size_t s, const std::shared_ptr<const Placement>& alone) {
  const auto [shard, device] = alone->slots()[0];
  return record_mix("shard", {x}, shard_tensor(alone, x->parts[s]),
                    [shard = shard, device = device, counts = alone->rows_of(shard) > 0](
                        const Node&, const BackwardPass&, std::span<const Gradient> dy, std::span<Gradient> dx) {
                      ops::ShardScope scope(shard);
                      dx[0].add_addend(shard, dy[0].once(device).with_shard(shard), counts);
                    });
}

}  // namespace

Tensor scatter(const Tensor& x, std::shared_ptr<const Placement> at) {
  const auto rows = slot_rows(*at);
  const std::int64_t expected = rows.back().first + rows.back().second;
  check(x.defined() && x->kind == Kind::whole && x.shape().dim() >= 1,
        "scatter: the batch is {}, expected at least one axis", x);
  check(x.size(0) == expected, "scatter: this process has {} rows, expected {}", x.size(0), expected);
  // The gradient of x would cover this process's rows alone, although other processes may share the history.
  check(
      !at->exchange() || !grad_enabled() || !x->grad || !x->grad->node,
      "split: {} has a history, but other processes have other rows: expected data, rows that are computed after they "
      "are cut, or a call of the DistributedDataParallel with these rows, whose loss is this rank's own",
      x);
  std::vector<Array> parts;
  for (std::size_t s = 0; s < rows.size(); ++s) {
    const auto [shard, device] = at->slots()[s];
    const Array piece = ops::narrow(x->array(), rows[s].first, rows[s].second).with_shard(shard);
    parts.push_back(ops::to_device(piece, device, {.non_blocking = true}));
  }
  return record_mix("scatter", {x}, cut_tensor(at, {}, std::move(parts)),
                    [home = x.device(), shape = x.shape(), dtype = x.dtype(), at](
                        const Node&, const BackwardPass&, std::span<const Gradient> dy, std::span<Gradient> dx) {
                      std::vector<Array> parts = cut_parts(dy[0], *at, {}, shape, dtype);
                      for (Array& part : parts) part = ops::to_layout(part, Layout::plain);
                      dx[0].add_single(ops::concatenate(parts, home).with_shard(-1));
                    });
}

Array join_parts(const Tensor& x, Device device) {
  const Placement& at = *x->at;
  const Cut cut = x->cut;
  if (x->parts.size() == 1) return ops::to_device(x->parts[0].with_shard(-1), device);
  std::vector<Array> rows;
  for (std::size_t s = 0; s < at.slots().size(); ++s) {
    ops::ShardScope scope(at.slots()[s].shard);
    rows.push_back(cut.axis == 0 && cut.outer == 1 ? x->parts[s] : samples_first(x->parts[s], cut));
  }
  if (cut.axis == 0 && cut.outer == 1) return ops::concatenate(rows, device).with_shard(-1);
  const Array all = samples_back(ops::concatenate(rows, at.slots()[0].device), cut, x.shape());
  return ops::to_device(all.with_shard(-1), device);
}

Tensor gather(const Tensor& x) {
  check(x.defined(), "gather: undefined tensor");
  return x->kind == Kind::whole ? x : gather(x, x.device());
}

Tensor gather(const Tensor& x, Device device) {
  check(x.defined(), "gather: undefined tensor");
  if (x->kind != Kind::cut) return x.to(device);
  const auto& at = x->at;
  check(at->samples() > 0, "gather: the batch is empty");
  return record_mix("gather", {x}, Tensor(join_all(x, device)),
                    [at, cut = x->cut, home = x.device()](const Node&, const BackwardPass&,
                                                          std::span<const Gradient> dy, std::span<Gradient> dx) {
                      const Array whole = dy[0].once(home);
                      std::int64_t row = 0;
                      const Array rows = samples_first(whole, cut);
                      std::size_t s = 0;
                      for (std::size_t shard = 0; shard < at->rows().size(); ++shard) {
                        const std::int64_t count = at->rows()[shard];
                        if (s < at->slots().size() && at->slots()[s].shard == static_cast<int>(shard)) {
                          add_rows(ops::narrow(rows, row, count), *at, s++, cut, whole.shape(), dx[0]);
                        }
                        row += count;
                      }
                    });
}

std::vector<Tensor> per_shard(const std::function<std::vector<Tensor>(std::span<const Tensor>)>& f,
                              std::span<const Tensor> inputs) {
  const auto first = std::ranges::find_if(inputs, [](const Tensor& x) { return x->kind == Kind::cut; });
  // No input is cut, so a single call has all samples.
  if (first == inputs.end()) return f(inputs);
  const std::shared_ptr<const Placement> at = (*first)->at;
  ShardCollector collector;
  std::vector<std::vector<Tensor>> results;  // by slot
  for (std::size_t s = 0; s < at->slots().size(); ++s) {
    const Slot& slot = at->slots()[s];
    std::vector<std::int64_t> rows(at->rows().size());
    rows[static_cast<std::size_t>(slot.shard)] = at->rows_of(slot.shard);
    auto alone = std::make_shared<Placement>(std::move(rows), std::vector{slot});
    alone->set_collector(&collector, at);
    // A tensor that f keeps must not point to the collector, which ends with this call.
    const std::unique_ptr<Placement, void (*)(Placement*)> end(alone.get(), [](Placement* p) { p->end_collection(); });
    std::vector<Tensor> in;
    for (const Tensor& x : inputs) {
      if (x->kind != Kind::cut) {
        in.push_back(x);
        continue;
      }
      check(same_placement(x->at, at),
            "per_shard: {} and {} are cut differently, expected the same shards in the same places", first->describe(),
            x);
      in.push_back(shard_of(x, s, alone));
    }
    ops::ShardScope scope(slot.shard);
    results.push_back(f(in));
    check(results[s].size() == results[0].size(), "per_shard: {} results for one shard, {} for another",
          results[s].size(), results[0].size());
  }
  collector.finish(*at);
  std::vector<Tensor> joined;
  for (std::size_t i = 0; i < results[0].size(); ++i) {
    std::vector<Array> parts;
    std::vector<Tensor> pieces;
    for (std::size_t s = 0; s < results.size(); ++s) {
      const Tensor& y = results[s][i];
      const auto [shard, device] = at->slots()[s];
      const std::int64_t count = at->rows_of(shard);
      check(y.defined() && y->kind == Kind::whole && y.shape().dim() > 0 && y.size(0) == count,
            "per_shard: result {} of shard {} is {}, expected the shard's {} samples on axis 0", i, shard, y, count);
      Shape shape = y.shape();
      shape[0] = results[0][i].size(0);
      check(shape == results[0][i].shape() && y.dtype() == results[0][i].dtype(),
            "per_shard: result {} is {} for one shard, {} "
            "for another",
            i, results[0][i], y);
      parts.push_back(ops::to_device(y->array(), device, {.non_blocking = true}).with_shard(shard));
      pieces.push_back(y);
    }
    joined.push_back(
        record_mix("per shard", pieces, {cut_tensor(at, {}, std::move(parts))},
                   [at](const Node&, const BackwardPass&, std::span<const Gradient> dy, std::span<Gradient> dx) {
                     for (std::size_t s = 0; s < dx.size(); ++s) {
                       dx[s].add_single(dy[0].addend(at->slots()[s].shard));
                     }
                   })[0]);
  }
  return joined;
}

void ShardCollector::add(const void* owner, int shard, std::any value,
                         std::function<void(std::vector<std::any>)> finish) {
  // The owner's first entry without a value for this shard.
  auto entry = std::ranges::find_if(entries_, [&](const Entry& e) {
    return e.owner == owner && std::ranges::find(e.values, shard, &std::pair<int, std::any>::first) == e.values.end();
  });
  if (entry == entries_.end()) entry = entries_.insert(entry, {owner, {}, std::move(finish)});
  entry->values.emplace_back(shard, std::move(value));
}

void ShardCollector::finish(const Placement& at) {
  for (Entry& entry : entries_) {
    std::vector<std::any> values(at.rows().size());
    for (auto& [shard, value] : entry.values) values[static_cast<std::size_t>(shard)] = std::move(value);
    entry.finish(std::move(values));
  }
  entries_.clear();
}

}  // namespace lockstep
