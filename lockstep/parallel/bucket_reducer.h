// Sums gradients over processes while backward still runs. Parameters are gathered into buckets; a bucket's sum is one
// task, pushed as soon as all of backward is described, and run as soon as its gradients are computed. Buckets go in the
// order in which backward finds their gradients, learnt from the first step and then the same on all ranks.
//
// The sum is taken in the shards' tree: each rank gives the largest complete subtrees that it has (one, where the number
// of ranks divides V evenly into powers of two), so it has the bits that one process would get.
#pragma once

#include <memory>
#include <vector>

#include "lockstep/nn/parameter.h"
#include "lockstep/parallel/communicator.h"

namespace lockstep {

struct BucketOptions {
  std::int64_t bytes = 25 << 20;
  // The first one is small, so that communication begins early.
  std::int64_t first_bytes = 1 << 20;
};

class BucketReducer : public GradientReducer, public std::enable_shared_from_this<BucketReducer> {
 public:
  // Collective. Shapes have to be known, and the same on all ranks; f32. `shards` is V of the whole job.
  BucketReducer(std::shared_ptr<Communicator> communicator, std::vector<Parameter> parameters, int shards,
                BucketOptions options);
  ~BucketReducer() override;
  // The parameters' gradients come from here from now on, or no longer.
  void attach();
  void detach();

  void begin_backward();
  ReducedGradient sum(std::size_t index, Device device) override;
  void added(std::size_t index) override;
  void clear() override;

  // Parameter numbers by bucket, in order.
  std::vector<std::vector<std::size_t>> buckets() const;

 private:
  struct Bucket;

  void make_buckets(const std::vector<std::size_t>& order);
  void learn_order();
  void finish_round();
  void reduce(Bucket& bucket, std::size_t number);

  std::shared_ptr<Communicator> communicator_;
  std::vector<Parameter> parameters_;
  // Of this rank: first shards and sizes of its largest complete subtrees.
  std::vector<std::pair<std::size_t, std::size_t>> blocks_;
  std::vector<std::vector<int>> positions_;  // of all ranks' blocks
  BucketOptions options_;
  std::vector<std::unique_ptr<Bucket>> buckets_;
  std::vector<std::pair<std::size_t, std::size_t>> places_;  // of parameters: bucket, segment
  // Parameters in the order in which the first backward() found their gradients.
  std::vector<std::size_t> found_;
  bool learnt_ = false;
  bool waiting_ = false;   // a backward() whose gradients are not summed yet
  bool deferred_ = false;  // ... and which was under a NoSyncGuard
  int rounds_ = 0;         // summed since clear()
  std::int64_t sums_ = 0;  // of all time, for error messages
};

}  // namespace lockstep
