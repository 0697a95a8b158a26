#include "lockstep/parallel/batch_splitter.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "lockstep/autograd/placement.h"
#include "lockstep/parallel/communicator.h"
#include "lockstep/parallel/rank_exchange.h"
#include "lockstep/parallel/slots.h"
#include "lockstep/parallel/stop_votes.h"

namespace lockstep {
namespace {

JobShares shares_of(const std::vector<Device>& devices, const SplitOptions& options) {
  check(!devices.empty(), "split: no devices");
  check(options.shards >= 0, "split: {} shards, expected at least 1", options.shards);
  const int count = static_cast<int>(devices.size());
  return JobShares(options.shards > 0 ? options.shards : count, {&count, 1}, options.balance.fixed_weights("split"));
}

}  // namespace

BatchSplitter::BatchSplitter(std::vector<Device> devices, const SplitOptions& options,
                             std::shared_ptr<Communicator> communicator)
    : devices_(std::move(devices)), shares_(shares_of(devices_, options)),
      communicator_(communicator ? std::move(communicator) : std::make_shared<Communicator>(devices_)),
      stop_votes_(std::make_shared<StopVotes>(communicator_)) {
  check(communicator_->alone(), "split: {} ranks, expected the shares of all of them", communicator_->world_size());
}

BatchSplitter::BatchSplitter(std::vector<Device> devices, JobShares shares, std::shared_ptr<Communicator> communicator)
    : devices_(std::move(devices)), shares_(std::move(shares)), communicator_(std::move(communicator)),
      stop_votes_(std::make_shared<StopVotes>(communicator_)), exchanges_(true) {}

BatchSplitter::~BatchSplitter() = default;

std::pair<std::int64_t, std::int64_t> BatchSplitter::rows_of(std::int64_t samples) const {
  const std::int64_t chunk = (samples + shards() - 1) / shards();
  const auto [first, last] = shares_.of_rank(communicator_->rank());
  return {std::min(first * chunk, samples), std::min(last * chunk, samples)};
}

void BatchSplitter::check_shares(const JobShares& shares) const {
  check(shares.shards() == shards() && shares.devices_of_ranks() == shares_.devices_of_ranks(),
        "split: shares {} of the devices, expected {} shards on as many devices as before",
        fmt::join(shares.all(), ","), shards());
}

void BatchSplitter::set_shares(JobShares shares) {
  check_shares(shares);
  shares_ = std::move(shares);
}

std::vector<Tensor> BatchSplitter::split(std::span<const Tensor> rows, std::int64_t samples) {
  std::vector<std::int64_t> counts = split_sizes(samples, shards());
  counts.resize(static_cast<std::size_t>(shards()));
  return cut(rows, std::move(counts));
}

DataLoader::Iterator BatchSplitter::begin_loop(DataLoader& loader) { return loader.begin_for(devices_[0]); }

std::vector<Tensor> BatchSplitter::split_loop(std::span<const Tensor> rows, std::int64_t examples, std::size_t parts) {
  check(rows.size() == parts,
        "batches: examples have {} parts, expected {}: write loader.on<{}>(net), batches<{}>(loader)", rows.size(),
        parts, rows.size(), rows.size());
  // A process that is alone may load only some of the rows (DataLoaderOptions::rows).
  return split(rows, communicator_->alone() ? rows[0].size(0) : examples);
}

std::vector<Tensor> BatchSplitter::split(std::span<const Tensor> rows) {
  check(!rows.empty() && rows[0].defined() && rows[0].shape().dim() >= 1,
        "split: no rows, expected at least one tensor");
  return cut(rows, counts_of(communicator_->gather_on_host(rows[0].size(0), "sizes of the batch")));
}

std::vector<Tensor> BatchSplitter::split_own(std::span<const Tensor> rows) {
  check(!rows.empty() && rows[0].dim() > 0, "distributed data parallel: no rows, expected a tensor with a batch axis");
  const auto all = communicator_->gather_on_host(rows[0].size(0), "rows of the batch");
  for (std::size_t r = 1; r < all.size(); ++r) {
    check(all[r] == all[0],
          "distributed data parallel: rank 0 has {} rows of this batch, rank {} has {}: the mean of the ranks' losses "
          "would not weigh all samples equally. Expected equal numbers: a DistributedSampler, or loader.on(ddp), which "
          "takes any number",
          all[0], r, all[r]);
  }
  check(all[0] > 0, "distributed data parallel: the batch has no rows");
  return cut(rows, counts_of(all), true);
}

// Returns the number of samples of each shard.
std::vector<std::int64_t> BatchSplitter::counts_of(std::span<const std::int64_t> rows_of_ranks) const {
  std::vector<std::int64_t> counts;
  for (int r = 0; r < shares_.ranks(); ++r) {
    auto [first, last] = shares_.of_rank(r);
    auto sizes = split_sizes(rows_of_ranks[static_cast<std::size_t>(r)], last - first);
    sizes.resize(static_cast<std::size_t>(last - first));
    counts.insert(counts.end(), sizes.begin(), sizes.end());
  }
  return counts;
}

std::vector<Tensor> BatchSplitter::cut(std::span<const Tensor> rows, std::vector<std::int64_t> counts,
                                       bool own_loss) const {
  std::vector<Slot> slots = slots_of(counts, devices_, shares_, communicator_->rank());
  auto exchange = exchanges_ ? make_shard_exchange(communicator_, shares_, counts, stop_votes_) : nullptr;
  auto at = std::make_shared<Placement>(counts, slots, std::move(exchange));
  if (own_loss) {
    const auto [first, last] = shares_.of_rank(communicator_->rank());
    std::fill(counts.begin(), counts.begin() + first, 0);
    std::fill(counts.begin() + last, counts.end(), 0);
    at = std::make_shared<Placement>(std::move(counts), std::move(slots), nullptr, std::move(at));
  }
  if (exchanges_) at->set_wrapper(alive_);
  std::vector<Tensor> parts;
  for (const Tensor& part : rows) parts.push_back(scatter(part, at));
  return parts;
}

}  // namespace lockstep
