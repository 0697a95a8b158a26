#pragma once

#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

struct BatchNorm2dOptions {
  std::int64_t channels = 0;  // 0: inferred at the first forward pass
  double eps = 1e-5;
  double momentum = 0.1;
  // Statistics over all shards of the batch instead of each shard's own.
  bool synchronized = false;
};

// Normalizes each channel over N, H and W. In training with the statistics of each shard; running statistics are moved towards
// those of all shards, merged in their tree, at every call. In evaluation with the running statistics.
class BatchNorm2d : public Module {
 public:
  using Options = BatchNorm2dOptions;
  explicit BatchNorm2d(BatchNorm2dOptions options = {});
  Tensor forward(const Tensor& x) override { return forward_fused(x, {}, false); }

  // y = normalized x, plus residual if defined, then a ReLU if asked for: one pass over memory.
  Tensor forward_fused(const Tensor& x, const Tensor& residual, bool relu);

  void set_synchronized(bool on) { options_.synchronized = on; }
  bool synchronized() const { return options_.synchronized; }

  Parameter weight;               // gamma [C]
  Parameter bias;                 // beta [C]
  Parameter running_mean;         // [C]
  Parameter running_var;          // [C]
  Parameter num_batches_tracked;  // i64 scalar

 protected:
  std::string extra_repr() const override;

 private:
  void settle(const Tensor& x);
  // With the statistics of x, which move the running ones.
  Tensor train_step(const Tensor& x, const Tensor& residual, const BatchNormOptions& options);
  // Moves the running statistics. stats[s] is shard s's, undefined for those of other processes; `values`: see gather_stats.
  void commit(const Placement* at, std::vector<ops::BatchStats> stats, std::int64_t values);

  BatchNorm2dOptions options_;
};

// Turns every batch norm of the model into a synchronized one.
void convert_sync_batchnorm(Module& module);

}  // namespace lockstep
