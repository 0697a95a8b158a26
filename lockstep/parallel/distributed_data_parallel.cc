#include "lockstep/parallel/distributed_data_parallel.h"

#include <algorithm>
#include <tuple>

#include "lockstep/autograd/node.h"
#include "lockstep/autograd/shards.h"
#include "lockstep/parallel/rank_exchange.h"
#include "lockstep/parallel/split.h"

namespace lockstep {
namespace {

// Everything that ranks have to agree on, one item a line.
std::string description(const Module& module, int shards, const std::string& recipe) {
  std::string text;
  auto add = [&](std::string_view kind, const std::vector<std::pair<std::string, Parameter>>& all) {
    for (const auto& [name, p] : all) {
      text += fmt::format("{}{} {} {} {}\n", kind == "parameter" && !p.trainable() ? "frozen " : "", kind, name,
                          p.shape().str(), lockstep::name(p.dtype()));
    }
  };
  add("parameter", module.named_parameters());
  add("buffer", module.named_buffers());
  return text + fmt::format("shards {}\n", shards) + recipe;
}

// "" or the first line where they differ.
std::string first_difference(std::string_view mine, std::string_view first) {
  while (!mine.empty() || !first.empty()) {
    auto line = [](std::string_view& text) {
      std::string_view head = text.substr(0, text.find('\n'));
      text.remove_prefix(std::min(text.size(), head.size() + 1));
      return head;
    };
    std::string_view a = line(mine), b = line(first);
    if (a == b) continue;
    auto quoted = [](std::string_view s) { return s.empty() ? std::string("nothing") : "'" + std::string(s) + "'"; };
    return fmt::format("has {} where rank 0 has {}: all ranks need the same model and recipe", quoted(a), quoted(b));
  }
  return "";
}

}  // namespace

DistributedDataParallel::DistributedDataParallel(Module& module, std::vector<Device> devices,
                                                 std::shared_ptr<Communicator> communicator, DistributedOptions options)
    : module_(module), devices_(std::move(devices)), communicator_(std::move(communicator)), shards_(options.shards) {
  check(communicator_ != nullptr && !devices_.empty(), "distributed data parallel: no communicator or no devices");
  int world = communicator_->world_size();
  if (shards_ == 0) {
    shards_ = static_cast<int>(
        communicator_->sum_on_host(static_cast<std::int64_t>(devices_.size()), "number of devices"));
  }
  compare_ranks(fmt::format("gradients {}\nbuckets of {} and {} bytes\n{}", name(options.gradients),
                            options.buckets.first_bytes, options.buckets.bytes, options.recipe));
  std::tie(first_shard_, last_shard_) = Communicator::shards_of_rank(communicator_->rank(), world, shards_);
  reducer_ = std::make_shared<BucketReducer>(communicator_, module_.parameters(), shards_, options.gradients,
                                             options.buckets);
  broadcast_values();
  reducer_->attach();
}

DistributedDataParallel::~DistributedDataParallel() {
  if (reducer_) reducer_->detach();
}

void DistributedDataParallel::compare_ranks(const std::string& recipe) {
  std::string mine = description(module_, shards_, recipe);
  std::string first = communicator_->broadcast_on_host(mine, "description of the model");
  communicator_->agree(first_difference(mine, first), "comparison of models");
}

void DistributedDataParallel::broadcast_values() {
  auto all = module_.named_parameters();
  auto buffers = module_.named_buffers();
  all.insert(all.end(), buffers.begin(), buffers.end());
  try {
    for (auto& [name, p] : all) {
      Tensor value = p.host_data();
      communicator_->broadcast_on_host({value.view().data, static_cast<std::size_t>(value.numel()), value.dtype()}, name);
      p.set_data(value);
    }
  } catch (const std::exception& error) {
    // The caller has no DistributedDataParallel yet to tell the others with.
    communicator_->abort(error.what());
    throw;
  }
}

std::pair<std::int64_t, std::int64_t> DistributedDataParallel::rows_of(std::int64_t samples) const {
  std::int64_t chunk = (samples + shards_ - 1) / shards_;
  return {std::min(first_shard_ * chunk, samples), std::min(last_shard_ * chunk, samples)};
}

DataLoader::Iterator DistributedDataParallel::begin_loop(DataLoader& loader) {
  DataLoader::Iterator loop = loader.begin([this](std::int64_t samples) { return rows_of(samples); });
  const auto orders = communicator_->gather_on_host(static_cast<std::int64_t>(loop.fingerprint()), "order of the examples");
  const auto other = std::ranges::find_if(orders, [&](std::int64_t order) { return order != orders[0]; });
  check(other == orders.end(),
        "batches: rank {} has other batches than rank 0, expected a loader of the whole data set with the same options on all "
        "ranks, and no DistributedSampler",
        other - orders.begin());
  return loop;
}

std::vector<Tensor> DistributedDataParallel::split(std::span<const Tensor> rows, std::int64_t samples) {
  std::vector<std::int64_t> counts = split_sizes(samples, shards_);
  counts.resize(static_cast<std::size_t>(shards_));
  return cut(rows, std::move(counts));
}

std::vector<Tensor> DistributedDataParallel::split(std::span<const Tensor> rows) {
  check(!rows.empty() && rows[0].defined() && rows[0].shape().rank() >= 1, "split: no rows, expected at least one tensor");
  std::vector<std::int64_t> by_rank = communicator_->gather_on_host(rows[0].size(0), "sizes of the batch");
  std::vector<std::int64_t> counts;
  int world = communicator_->world_size();
  for (int r = 0; r < world; ++r) {
    auto [first, last] = Communicator::shards_of_rank(r, world, shards_);
    auto sizes = split_sizes(by_rank[static_cast<std::size_t>(r)], last - first);
    sizes.resize(static_cast<std::size_t>(last - first));
    counts.insert(counts.end(), sizes.begin(), sizes.end());
  }
  return cut(rows, std::move(counts));
}

std::vector<Tensor> DistributedDataParallel::cut(std::span<const Tensor> rows, std::vector<std::int64_t> counts) {
  std::vector<Slot> slots;
  for (int s = first_shard_; s < last_shard_; ++s) {
    // A rank without samples still takes part in what ranks do together: with one empty shard.
    const bool stand_in = s + 1 == last_shard_ && slots.empty();
    if (counts[static_cast<std::size_t>(s)] == 0 && !stand_in) continue;
    slots.push_back({s, devices_[shard_device(s - first_shard_, last_shard_ - first_shard_, devices_.size())]});
  }
  auto exchange = make_shard_exchange(communicator_, counts);
  const auto at = std::make_shared<Placement>(std::move(counts), std::move(slots), std::move(exchange));
  std::vector<Tensor> parts;
  for (const Tensor& part : rows) parts.push_back(scatter(part, at));
  return parts;
}

void settle_shapes(Module& module, const Tensor& example, Device device) {
  NoGradGuard no_grad;
  EvalGuard mode(module);
  module.forward(example.to(device));
}

}  // namespace lockstep
