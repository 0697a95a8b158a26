// Cuts the batches of a job: this rank's rows of a global batch into this rank's shards, on its devices.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/autograd/tensor.h"
#include "lockstep/data/data_loader.h"
#include "lockstep/parallel/balance.h"
#include "lockstep/parallel/split.h"

namespace LOCKSTEP_API lockstep {

class Communicator;  // parallel/communicator.h
class StopVotes;     // parallel/stop_votes.h

class BatchSplitter {
 public:
  // A process that is alone: its batches are those of split_and_load().
  BatchSplitter(std::vector<Device> devices, const SplitOptions& options,
                std::shared_ptr<Communicator> communicator = nullptr);
  // A rank of a job, perhaps the only one: its own devices, and the shares of all ranks' devices.
  BatchSplitter(std::vector<Device> devices, JobShares shares, std::shared_ptr<Communicator> communicator);
  virtual ~BatchSplitter();
  BatchSplitter(const BatchSplitter&) = delete;
  BatchSplitter& operator=(const BatchSplitter&) = delete;

  // For your own loops. Cuts this rank's rows of a batch into its shards. All parts of `rows` must have the same number
  // of rows. Other ranks may have more or fewer rows, or none: ranks exchange the numbers, and every sample has the
  // same weight. Collective: all ranks must call it the same number of times. A rank without data left passes zero
  // rows. Copies are asynchronous; do not change the host memory until they are done.
  std::vector<Tensor> split(std::span<const Tensor> rows);
  template <std::size_t N>
  std::array<Tensor, N> split(const Example& rows) {
    return parts<N>(split(std::span<const Tensor>(rows)));
  }
  // The same without communication, for a global batch of `samples` rows whose size all ranks know: it is cut into
  // chunks of ceil(samples / V), and `rows` must be those of rows_of(samples).
  std::vector<Tensor> split(std::span<const Tensor> rows, std::int64_t samples);
  // Begins a loop over this rank's rows of each batch. Its batches are pinned for the first device.
  virtual DataLoader::Iterator begin_loop(DataLoader& loader);
  // Cuts a batch of such a loop, of `examples` over all ranks. Throws if its examples do not have this many parts.
  std::vector<Tensor> split_loop(std::span<const Tensor> rows, std::int64_t examples, std::size_t parts);
  // This rank's rows, of which it has a loss of its own, as with torch's DistributedDataParallel: the result is a batch
  // of these rows alone, except for batch norm's statistics. Collective. All ranks must have the same number of rows,
  // at least one: the mean of the ranks' losses would not weigh all samples equally otherwise.
  std::vector<Tensor> split_own(std::span<const Tensor> rows);
  // This rank's rows of a global batch: [first, last).
  std::pair<std::int64_t, std::int64_t> rows_of(std::int64_t samples) const;

  // Sets the number of shards of each device. The bits stay the same. Collective; call it between steps, outside a loop
  // over batches. Waits for earlier steps of several ranks.
  virtual void set_shares(JobShares shares);
  const JobShares& shares() const { return shares_; }
  int shards() const { return shares_.shards(); }
  const std::vector<Device>& devices() const { return devices_; }
  Communicator& communicator() const { return *communicator_; }
  // For a trainer: whether all ranks go on.
  StopVotes& stop_votes() { return *stop_votes_; }

 protected:
  template <std::size_t N>
  static std::array<Tensor, N> parts(std::vector<Tensor> batches);
  void check_shares(const JobShares& shares) const;

 private:
  std::vector<std::int64_t> counts_of(std::span<const std::int64_t> rows_of_ranks) const;
  std::vector<Tensor> cut(std::span<const Tensor> rows, std::vector<std::int64_t> counts, bool own_loss = false) const;

  std::vector<Device> devices_;
  JobShares shares_;
  std::shared_ptr<Communicator> communicator_;
  std::shared_ptr<StopVotes> stop_votes_;
  bool exchanges_ = false;  // operations on its batches exchange shards with other ranks
  std::shared_ptr<const void> alive_ = std::make_shared<char>();
};

template <std::size_t N>
std::array<Tensor, N> BatchSplitter::parts(std::vector<Tensor> batches) {
  check(batches.size() == N, "split: examples have {} parts, expected {}", batches.size(), N);
  std::array<Tensor, N> parts;
  std::move(batches.begin(), batches.end(), parts.begin());
  return parts;
}

}  // namespace lockstep
