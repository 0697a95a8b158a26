#include "lockstep/parallel/distributed_data_parallel.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "lockstep/autograd/no_grad.h"
#include "lockstep/autograd/node.h"
#include "lockstep/autograd/tensor.h"
#include "lockstep/base/version.h"
#include "lockstep/parallel/balance.h"
#include "lockstep/parallel/bucket_reducer.h"
#include "lockstep/parallel/rank_exchange.h"
#include "lockstep/parallel/split.h"
#include "lockstep/parallel/stop_votes.h"

namespace lockstep {
namespace {

// Everything that ranks must agree on, one item per line.
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
  // Groups that meet through a store have compared versions there; MPI's groups have no store.
  text += fmt::format("Lockstep {} kernel revision {}\n", LOCKSTEP_VERSION, LOCKSTEP_KERNEL_REVISION);
  return text + fmt::format("shards {}\n", shards) + recipe;
}

// "" or the first line that differs.
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

NoSyncGuard::NoSyncGuard(std::shared_ptr<BucketReducer> reducer) : reducer_(std::move(reducer)) { reducer_->hold(); }
NoSyncGuard::~NoSyncGuard() { reducer_->release(); }

DistributedModel::DistributedModel(Module& module, std::vector<Device> devices,
                                   std::shared_ptr<Communicator> communicator, DistributedOptions options)
    : module_(module), devices_(std::move(devices)), communicator_(std::move(communicator)),
      stop_votes_(std::make_shared<StopVotes>(communicator_)) {
  check(communicator_ != nullptr && !devices_.empty(), "distributed data parallel: no communicator or no devices");
  std::vector<int> devices_of_rank;
  for (const std::int64_t count : communicator_->gather_on_host(std::ssize(devices_), "number of devices")) {
    devices_of_rank.push_back(static_cast<int>(count));
  }
  check(options.shards >= 0, "distributed data parallel: {} shards, expected at least one for each rank",
        options.shards);
  const int shards =
      options.shards > 0 ? options.shards : std::accumulate(devices_of_rank.begin(), devices_of_rank.end(), 0);
  compare_ranks(
      shards, fmt::format("balance {}\ngradients {}\nbuckets of {} and {} bytes\n{}", fmt::join(options.balance, ","),
                          name(options.gradients), options.buckets.first_bytes, options.buckets.bytes, options.recipe));
  shares_ = JobShares(shards, devices_of_rank, options.balance);
  reducer_ =
      std::make_shared<BucketReducer>(communicator_, module_.parameters(), shares_, options.gradients, options.buckets);
  broadcast_values();
  reducer_->attach();
}

DistributedModel::~DistributedModel() {
  if (reducer_) reducer_->detach();
}

void DistributedModel::compare_ranks(int shards, const std::string& recipe) {
  std::string mine = description(module_, shards, recipe);
  std::string first = communicator_->broadcast_on_host(mine, "description of the model");
  communicator_->agree(first_difference(mine, first), "comparison of models");
}

void DistributedModel::broadcast_values() {
  auto all = module_.named_parameters();
  auto buffers = module_.named_buffers();
  all.insert(all.end(), buffers.begin(), buffers.end());
  try {
    for (auto& [name, p] : all) {
      Tensor value = p.host_data();
      communicator_->broadcast_on_host({value.view().data, static_cast<std::size_t>(value.numel()), value.dtype()},
                                       name);
      p.set_data(value);
    }
  } catch (const std::exception& error) {
    // The caller has no DistributedDataParallel yet whose communicator could tell the other ranks.
    communicator_->abort(error.what());
    throw;
  }
}

std::pair<std::int64_t, std::int64_t> DistributedModel::rows_of(std::int64_t samples) const {
  const std::int64_t chunk = (samples + shards() - 1) / shards();
  const auto [first, last] = shares_.of_rank(communicator_->rank());
  return {std::min(first * chunk, samples), std::min(last * chunk, samples)};
}

void DistributedModel::set_shares(JobShares shares) {
  check(shares.shards() == shards() && shares.devices_of_ranks() == shares_.devices_of_ranks(),
        "distributed data parallel: shares {} of the devices, expected {} shards on as many devices as before",
        fmt::join(shares.all(), ","), shards());
  reducer_->set_shares(shares);
  shares_ = std::move(shares);
}

DataLoader::Iterator DistributedModel::begin_loop(DataLoader& loader) {
  DataLoader::Iterator loop = loader.begin([this](std::int64_t samples) { return rows_of(samples); });
  const auto orders =
      communicator_->gather_on_host(static_cast<std::int64_t>(loop.fingerprint()), "order of the examples");
  const auto other = std::ranges::find_if(orders, [&](std::int64_t order) { return order != orders[0]; });
  check(other == orders.end(),
        "batches: rank {} has different batches from rank 0, expected a loader of the whole data set with "
        "the same options on all "
        "ranks, and no DistributedSampler",
        other - orders.begin());
  return loop;
}

std::vector<Tensor> DistributedModel::split(std::span<const Tensor> rows, std::int64_t samples) {
  std::vector<std::int64_t> counts = split_sizes(samples, shards());
  counts.resize(static_cast<std::size_t>(shards()));
  return cut(rows, std::move(counts));
}

std::vector<Tensor> DistributedModel::split(std::span<const Tensor> rows) {
  check(!rows.empty() && rows[0].defined() && rows[0].shape().dim() >= 1,
        "split: no rows, expected at least one tensor");
  std::vector<std::int64_t> by_rank = communicator_->gather_on_host(rows[0].size(0), "sizes of the batch");
  std::vector<std::int64_t> counts;
  for (int r = 0; r < shares_.ranks(); ++r) {
    auto [first, last] = shares_.of_rank(r);
    auto sizes = split_sizes(by_rank[static_cast<std::size_t>(r)], last - first);
    sizes.resize(static_cast<std::size_t>(last - first));
    counts.insert(counts.end(), sizes.begin(), sizes.end());
  }
  return cut(rows, std::move(counts));
}

std::vector<Tensor> DistributedModel::cut(std::span<const Tensor> rows, std::vector<std::int64_t> counts) {
  std::vector<Slot> slots;
  const auto [first, last] = shares_.of_rank(communicator_->rank());
  const std::vector<int>& shares = shares_.devices_of(communicator_->rank());
  for (int s = first; s < last; ++s) {
    // A rank without samples takes part in the collectives with one empty shard.
    const bool stand_in = s + 1 == last && slots.empty();
    if (counts[static_cast<std::size_t>(s)] == 0 && !stand_in) continue;
    slots.push_back({s, devices_[device_of_shard(s - first, shares)]});
  }
  auto exchange = make_shard_exchange(communicator_, shares_, counts, stop_votes_);
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
