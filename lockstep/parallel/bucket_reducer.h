// Sums gradients over processes while backward still runs. Parameters are gathered into buckets; a bucket's sum is one
// task, pushed when backward() has been described, and run as soon as its gradients are computed. Buckets go in the order
// in which backward finds their gradients, learnt from the first step and then the same on all ranks.
//
// Only gradients that somebody uses travel: frozen parameters have no room in a bucket, nor those that no optimizer has
// where others have one. These are looked for again when the gradients of a step begin to come in.
//
// The sum is taken in the shards' tree: each rank gives the largest complete subtrees that it has (one, where the number
// of ranks divides V evenly into powers of two), so it has the bits that one process would get.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/nn/parameter.h"
#include "lockstep/parallel/balance.h"
#include "lockstep/parallel/communicator.h"

namespace LOCKSTEP_API lockstep {

struct BucketOptions {
  std::int64_t bytes = 25 << 20;
  // The first one is small, so that communication begins early.
  std::int64_t first_bytes = 1 << 20;
};

class BucketReducer : public GradientReducer, public std::enable_shared_from_this<BucketReducer> {
 public:
  // Collective. Shapes have to be known, and the same on all ranks; f32. `shares`: which rank has which shards, at least one
  // each. `dtype`: what gradients are rounded to (GradientTree::set_dtype) and travel as.
  BucketReducer(std::shared_ptr<Communicator> communicator, std::vector<Parameter> parameters, const JobShares& shares,
                DType dtype, BucketOptions options);
  ~BucketReducer() override;
  // The parameters' gradients come from here from now on, or no longer.
  void attach();
  void detach();

  // Collective, between steps: ranks have other shards from now on. Waits for what was pushed before.
  void set_shares(const JobShares& shares);

  // Sums what the trees hold over all ranks: a round. Without `sync`, or while held, it goes on waiting.
  void end_backward(bool sync) override;
  bool synchronizes() const override { return holds_ == 0; }
  bool has_shard(int shard) const override { return shard >= first_shard_ && shard < last_shard_; }
  // Between the two, backward passes do not synchronize. All ranks have to agree.
  void hold() { ++holds_; }
  void release() { --holds_; }
  ReducedGradient sum(std::size_t index, Device device) override;
  void added(std::size_t index) override;
  void clear(std::size_t index) override;
  Array destination(std::size_t index, int shard, Device device) override;

  // Parameter numbers by bucket, in order. Those that do not travel are in none.
  std::vector<std::vector<std::size_t>> buckets() const;

 private:
  struct Bucket;

  std::vector<std::size_t> wanted() const;
  bool in_bucket(std::size_t index) const;
  void settle_buckets();
  void wait_for_buckets() const;
  void place_shards(const JobShares& shares);
  void make_buckets(const std::vector<std::size_t>& order);
  void learn_order();
  Device place() const;
  void reduce(Bucket& bucket, std::size_t number, const std::string& when);
  // What this rank has of a bucket: for each segment and block, by place in the block.
  std::vector<std::vector<std::vector<Array>>> take_parts(const Bucket& bucket) const;
  // Moves them to where a GPU sums them, where they were not computed there.
  void gather_on_gpu(Bucket& bucket, std::vector<std::vector<std::vector<Array>>>& parts) const;

  std::shared_ptr<Communicator> communicator_;
  // Of its own: nobody else's operations come between.
  std::shared_ptr<ProcessGroup> group_;
  std::vector<Parameter> parameters_;
  // Of this rank: first shards and sizes of its largest complete subtrees.
  std::vector<std::pair<std::size_t, std::size_t>> blocks_;
  std::vector<std::vector<int>> positions_;  // of all ranks' blocks
  DType dtype_;
  BucketOptions options_;
  std::vector<std::unique_ptr<Bucket>> buckets_;
  std::vector<std::pair<std::size_t, std::size_t>> places_;  // of parameters: bucket (or kNone), segment
  std::vector<std::size_t> order_;                           // in which backward finds gradients, of all parameters
  // Those of them that have had one, in the order in which the first backward() found their gradients.
  std::vector<std::size_t> found_;
  bool learnt_ = false;
  int first_shard_ = 0, last_shard_ = 0;  // of this rank
  int holds_ = 0;
  bool waiting_ = false;          // passes that did not synchronize since the latest round
  std::vector<int> rounds_;       // of each parameter, since it was cleared
  std::int64_t all_rounds_ = 0;
  std::uint64_t step_ = 0;        // of the latest backward(), and
  std::int64_t backwards_ = 0;    // how many there have been in that step
};

// Holds a reducer while it lives.
class NoSyncGuard {
 public:
  explicit NoSyncGuard(std::shared_ptr<BucketReducer> reducer) : reducer_(std::move(reducer)) { reducer_->hold(); }
  ~NoSyncGuard() { reducer_->release(); }
  NoSyncGuard(const NoSyncGuard&) = delete;
  NoSyncGuard& operator=(const NoSyncGuard&) = delete;

 private:
  std::shared_ptr<BucketReducer> reducer_;
};

}  // namespace lockstep
