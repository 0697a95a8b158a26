// How a BucketReducer sums one bucket: it takes this rank's gradients from the trees of its parameters, and describes
// the task that sums them over all ranks.
#include "lockstep/autograd/gradient_tree.h"
#include "lockstep/backend/backend.h"
#include "lockstep/comm/tree_sum.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/launch.h"
#include "lockstep/parallel/bucket_reducer.h"
#include "lockstep/parallel/device_sums.h"

namespace lockstep {
namespace {

// Sums the arrays of one segment, by place in the tree, into its place in a contribution. One may have been computed
// there already.
void sum_block(Backend& backend, KernelContext& context, const std::vector<View>& block, const View& out) {
  if (block.size() == 1 && block[0].data == out.data) return;
  if (out.dtype == DType::f32) return backend.run(context, kernels::TreeSum{block, out});
  std::vector<const void*> leaves;
  for (const View& leaf : block) leaves.push_back(leaf.data);
  rounded_tree_sum(leaves, DType::bf16, out.data, static_cast<std::size_t>(out.numel()));
}

}  // namespace

std::vector<std::vector<std::vector<Array>>> BucketReducer::take_parts(const Bucket& bucket) const {
  std::vector<std::vector<std::vector<Array>>> parts(bucket.parameters.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    parts[i].resize(blocks_.size());
    for (auto& [shard, sum] : parameters_[bucket.parameters[i]].gradient_tree().take_subtrees()) {
      auto after = std::ranges::find_if(blocks_, [&](const auto& b) { return shard < b.first + b.second; });
      check(after != blocks_.end() && shard >= after->first,
            "distributed data parallel: a gradient of shard {}, which "
            "belongs to another rank",
            shard);
      auto& block = parts[i][static_cast<std::size_t>(after - blocks_.begin())];
      block.resize(std::max(block.size(), shard - after->first + 1));
      block[shard - after->first] = ops::readable_from(sum, place());
    }
  }
  return parts;
}

void BucketReducer::gather_on_gpu(Bucket& bucket, std::vector<std::vector<std::vector<Array>>>& parts) const {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (std::size_t k = 0; k < parts[i].size(); ++k) {
      std::vector<Array>& block = parts[i][k];
      if (block.empty()) continue;
      const Array& destination = bucket.destinations[k][i];
      const bool single = std::ranges::count_if(block, &Array::defined) == 1;
      // The last gradient is there.
      const Array sum =
          single ? block.back() : parameters_[bucket.parameters[i]].gradient_tree().tree_sum(block, place());
      if (sum.view().data != destination.view().data) ops::copy_(sum, destination);
      block = {destination};
    }
  }
}

void BucketReducer::reduce(Bucket& bucket, std::size_t number, const std::string& when) {
  auto parts = take_parts(bucket);
  const std::shared_ptr<DeviceSums> sums = communicator_->sums();
  if (sums) gather_on_gpu(bucket, parts);
  std::vector<Array> reads, writes{bucket.sum, bucket.present};
  std::vector<std::vector<std::vector<View>>> leaves(parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (std::size_t k = 0; k < parts[i].size(); ++k) {
      std::vector<View>& block = leaves[i].emplace_back();
      for (const Array& part : parts[i][k]) {
        block.push_back(part.defined() ? part.view() : View());
        if (part.defined()) reads.push_back(part);
      }
      if (block.empty() || bucket.destinations[k].empty()) continue;
      // A gradient computed elsewhere is copied to its destination. A GPU sums where the rounded gradients are.
      const Array& destination = bucket.destinations[k][i];
      if (sums || block[0].data != destination.view().data) writes.push_back(destination);
    }
  }
  // Sums of earlier rounds that are still needed continue in separate memory.
  std::vector<std::uint8_t> goes_on, moves;
  bool keeps_total = false;
  for (std::size_t i = 0; i < bucket.parameters.size(); ++i) {
    goes_on.push_back(rounds_[bucket.parameters[i]] > 0);
    moves.push_back(goes_on[i] && !bucket.in_total[i]);
    keeps_total = keeps_total || (goes_on[i] && bucket.in_total[i]);
  }
  bool several = std::ranges::count(goes_on, 1) > 0;
  bucket.in_total.assign(bucket.parameters.size(), several);
  if (several) {
    if (!bucket.total.defined()) {
      bucket.total = ops::empty_like(bucket.sum);
      bucket.total_present = ops::empty_like(bucket.present);
    }
    for (const Array& t : {bucket.sum, bucket.present}) reads.push_back(t);
    // Else it is written as a whole: a failed batch of an earlier step must not fail this one.
    if (keeps_total) {
      for (const Array& t : {bucket.total, bucket.total_present}) reads.push_back(t);
    }
    for (const Array& t : {bucket.total, bucket.total_present}) writes.push_back(t);
  }
  auto body = [backend = sums ? &sums->backend() : &communicator_->backend(), sums, reducer = bucket.reducer,
               leaves = std::move(leaves), offsets = bucket.offsets, sizes = bucket.sizes, flags = bucket.flags,
               sum = bucket.sum.view(), present = bucket.present.view(), total = bucket.total.view(),
               total_present = bucket.total_present.view(), goes_on, moves, several,
               label = fmt::format("bucket {}, {}", number, when)](KernelContext& lane) {
    KernelContext& context = sums ? sums->context() : lane;
    auto segment = [&](void* array, DType dtype, std::size_t i) {
      return View{static_cast<std::byte*>(array) + offsets[i] * item_size(dtype),
                  dtype,
                  Layout::plain,
                  {static_cast<std::int64_t>(sizes[i])}};
    };
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      if (moves[i]) {
        flags->total[i] = flags->latest[i];
        backend->run(context, kernels::Copy{segment(sum.data, DType::f32, i), segment(total.data, DType::f32, i)});
      }
      for (std::size_t k = 0; k < leaves[i].size(); ++k) {
        const std::vector<View>& block = leaves[i][k];
        reducer->set_present(k, i, !block.empty());
        if (block.empty()) continue;
        const CommBuffer contribution = reducer->contribution(k);
        View out = segment(contribution.data, contribution.dtype, i);
        out.shape = block.back().shape;
        sum_block(*backend, context, block, out);
      }
    }
    reducer->reduce({.label = label});
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      flags->latest[i] = reducer->result_present(i);
      if (!several) continue;
      const View from = segment(sum.data, DType::f32, i), to = segment(total.data, DType::f32, i);
      // The first sum is copied, because adding it to +0 would change -0.
      if (!goes_on[i] || !flags->total[i]) {
        backend->run(context, kernels::Copy{from, to});
        flags->total[i] = flags->latest[i];
      } else if (flags->latest[i]) {
        backend->run(context, kernels::Binary{BinaryOp::add, to, from, to});
      }
    }
    const auto show = [&](std::vector<std::uint8_t>& values, const View& to) {
      View from = to;
      from.data = values.data();
      backend->transfer(context, from, to, false);
    };
    show(flags->latest, present);
    if (several) show(flags->total, total_present);
    if (sums) sums->wait();
  };
  communicator_->push("all-reduce", CommChannel::bulk, reads, writes, std::move(body));
}

}  // namespace lockstep
