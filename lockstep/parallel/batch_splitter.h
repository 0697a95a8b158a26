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
  // Makes the splitter of a process that is alone. It cuts batches as split_and_load() does.
  BatchSplitter(std::vector<Device> devices, const SplitOptions& options,
                std::shared_ptr<Communicator> communicator = nullptr);
  // Makes the splitter of a rank of a job, perhaps the only rank, from its own devices and the shares of all ranks.
  BatchSplitter(std::vector<Device> devices, JobShares shares, std::shared_ptr<Communicator> communicator);
  virtual ~BatchSplitter();
  BatchSplitter(const BatchSplitter&) = delete;
  BatchSplitter& operator=(const BatchSplitter&) = delete;

  // For your own loops. Cuts this rank's rows of a batch into its shards. All parts of `rows` must have the same number
  // of rows. Other ranks may have more or fewer rows, or none: ranks exchange their counts, and every sample has the
  // same weight. Collective: all ranks must call it the same number of times. A rank without data left passes zero
  // rows. Copies are asynchronous; do not change the host memory until they are done.
  std::vector<Tensor> split(std::span<const Tensor> rows);
  template <std::size_t N>
  std::array<Tensor, N> split(const Example& rows) {
    return parts<N>(split(std::span<const Tensor>(rows)));
  }
  // The same without communication, because all ranks know the size of the global batch, `samples`. The global batch is
  // cut into chunks of ceil(samples / V) rows, and `rows` must be the rows that rows_of(samples) returns.
  std::vector<Tensor> split(std::span<const Tensor> rows, std::int64_t samples);
  // Begins a loop over this rank's rows of each batch. Its batches are pinned for the first device.
  virtual DataLoader::Iterator begin_loop(DataLoader& loader);
  // Cuts a batch of such a loop; over all ranks it has `examples` rows. Throws unless its examples have `parts` parts.
  std::vector<Tensor> split_loop(std::span<const Tensor> rows, std::int64_t examples, std::size_t parts);
  // Cuts this rank's rows for a loss of this rank's own, as with torch's DistributedDataParallel: the result is a batch
  // of these rows alone, but batch norm's statistics cover all ranks. Collective. All ranks must have the same number
  // of rows, at least one, so that the mean of the ranks' losses weighs all samples equally.
  std::vector<Tensor> split_own(std::span<const Tensor> rows);
  // This rank's rows of a global batch: [first, last).
  std::pair<std::int64_t, std::int64_t> rows_of(std::int64_t samples) const;

  // Sets the number of shards of each device. The bits stay the same. Collective; call it between steps, outside a loop
  // over batches. A DistributedModel waits for the sums of earlier steps.
  virtual void set_shares(JobShares shares);
  const JobShares& shares() const { return shares_; }
  int shards() const { return shares_.shards(); }
  const std::vector<Device>& devices() const { return devices_; }
  Communicator& communicator() const { return *communicator_; }
  // The votes by which a trainer decides whether all ranks go on.
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
