// Internal: sums gradients over processes while backward still runs. Parameters are grouped into buckets. A bucket's
// sum is one task, pushed when backward() has been described; it runs as soon as its gradients are computed. Buckets
// follow the order in which backward finds their gradients. The first step shows that order, and all ranks use the same
// one.
//
// Ranks exchange only gradients that are used. Buckets omit frozen parameters and, if other parameters belong to an
// optimizer, parameters that belong to none. The first synchronizing backward() of each step checks this again.
//
// The sum follows the shards' tree, so it has the bits of one process. Each rank contributes its largest complete
// subtrees; that is a single subtree per rank if V divided by the number of ranks is a power of two.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/autograd/reducer.h"
#include "lockstep/ops/copy.h"
#include "lockstep/parallel/distributed_data_parallel.h"

namespace lockstep {

class BucketReducer : public Reducer, public std::enable_shared_from_this<BucketReducer> {
 public:
  // Collective. Parameters are f32, and their shapes must be known and the same on all ranks. `shares`: which rank has
  // which shards, at least one each. `dtype`: the type to which gradients are rounded (ParameterGradient::set_dtype)
  // and in which they travel.
  BucketReducer(std::shared_ptr<Communicator> communicator, std::vector<Parameter> parameters, const JobShares& shares,
                DType dtype, BucketOptions options);
  ~BucketReducer() override;
  // attach() makes this the source of the parameters' gradients; detach() ends that.
  void attach();
  void detach();

  // Collective; call it between steps. Gives the ranks other shards. Waits for everything pushed before.
  void set_shares(const JobShares& shares);

  // Sums the contents of the trees over all ranks: one round. Without `sync`, or while held, the gradients stay in the
  // trees.
  void end_backward(const BackwardPass& pass) override;
  bool synchronizes() const override { return holds_ == 0; }
  bool waits() const override { return waiting_; }
  int once_shard(const BackwardPass& pass) const override;
  // Between hold() and release(), backward passes do not synchronize. All ranks must agree.
  void hold() { ++holds_; }
  void release() { --holds_; }
  ReducedGradient sum(std::size_t index, Device device) override;
  void added(std::size_t index) override;
  void clear(std::size_t index) override;
  const Passes& passes(std::size_t index) const override { return summed_[index]; }
  bool drop_failed(std::size_t index, bool read) override;
  std::uint64_t rounds() const override { return static_cast<std::uint64_t>(all_rounds_); }
  Array destination(std::size_t index, int shard, Device device) override;

  // Returns the parameter indices of each bucket, in order. Parameters whose gradients do not travel are in no bucket.
  std::vector<std::vector<std::size_t>> buckets() const;

 private:
  struct Bucket {
    std::vector<std::size_t> parameters;
    std::vector<std::size_t> offsets, sizes;  // of segments, in elements; there may be gaps between them
    std::shared_ptr<TreeReducer> reducer;
    Array sum;  // f32 [elements]: the reducer's result, in its memory
    // The segments of the reducer's contributions, in its memory: [subtree][segment]. On the host, only f32 subtrees of
    // a single shard have them. Each segment is an array of its own, written as a whole, so that the failure of one
    // segment is not cleared when the next segment succeeds.
    std::vector<std::vector<Array>> destinations;
    Array present;  // u8 [parameters]
    // The sums of several rounds, kept here because each round overwrites the reducer's result, and flags that tell
    // which parameters have a sum.
    Array total, total_present;
    std::vector<bool> in_total;
    // The contents of both `present` tensors, for the task.
    struct Flags {
      std::vector<std::uint8_t> latest, total;
    };
    std::shared_ptr<Flags> flags = std::make_shared<Flags>();

    Array segment(const Array& flat, std::size_t i, const Shape& shape) const {
      return ops::reshape(ops::narrow(flat, static_cast<std::int64_t>(offsets[i]), static_cast<std::int64_t>(sizes[i])),
                          shape);
    }
  };

  std::vector<std::size_t> wanted() const;
  bool in_bucket(std::size_t index) const;
  void update_buckets();
  void wait_for_buckets() const;
  void place_shards(const JobShares& shares);
  void make_buckets(const std::vector<std::size_t>& order);
  void learn_order();
  // The device that holds the sums.
  Device summing_device() const;
  void reduce(Bucket& bucket, std::size_t number, const std::string& when);
  // Takes this rank's gradients of a bucket: [segment][subtree][shard in the subtree].
  std::vector<std::vector<std::vector<Array>>> take_gradients(const Bucket& bucket) const;
  // Moves gradients that were computed elsewhere to where the GPU sums them.
  void gather_on_gpu(Bucket& bucket, std::vector<std::vector<std::vector<Array>>>& parts) const;

  std::shared_ptr<Communicator> communicator_;
  // Its own group, so that no other operations come between.
  std::shared_ptr<ProcessGroup> group_;
  std::vector<Parameter> parameters_;
  // First shards and sizes of this rank's largest complete subtrees. Each is one contribution to the reducers.
  std::vector<std::pair<std::size_t, std::size_t>> subtrees_;
  std::vector<std::vector<int>> positions_;  // the first shards of all ranks' subtrees
  DType dtype_;
  BucketOptions options_;
  std::vector<std::unique_ptr<Bucket>> buckets_;
  std::vector<std::pair<std::size_t, std::size_t>> places_;  // of each parameter: bucket (or kNone) and segment
  std::vector<std::size_t> order_;                           // all parameters, in backward's order
  // Parameters that had a gradient, in the order in which the first backward() found them.
  std::vector<std::size_t> found_;
  bool order_known_ = false;
  int first_shard_ = 0;  // of this rank
  int holds_ = 0;
  bool waiting_ = false;        // a pass since the latest round did not synchronize
  bool own_losses_ = false;     // ranks had losses of their own in the latest pass of a batch: sums become means
  Passes of_waiting_;           // the passes since the latest round
  std::vector<Passes> summed_;  // of each parameter since its gradient was cleared
  std::int64_t all_rounds_ = 0;
  std::uint64_t step_ = 0;      // step of the latest backward()
  std::int64_t backwards_ = 0;  // number of backward() calls in that step
};

}  // namespace lockstep
