#pragma once

#include "lockstep/nn/module.h"

namespace lockstep {

struct BatchNorm2dOptions {
  std::int64_t channels = 0;  // 0: inferred at the first forward pass
  double eps = 1e-5;
  double momentum = 0.1;
  // Statistics over all shards of the batch instead of each shard's own.
  bool synchronized = false;
};

// Normalizes each channel over N, H and W. In training with the statistics of the batch; running statistics of all
// shards, merged in their tree, are moved towards them once a batch. In evaluation with the running statistics.
class BatchNorm2d : public Module {
 public:
  explicit BatchNorm2d(BatchNorm2dOptions options = {});
  Tensor forward(const Tensor& x) override { return forward_fused(x, {}, false); }
  std::vector<Tensor> forward_shards(std::span<const Tensor> xs) override { return forward_fused(xs, {}, false); }
  bool mixes_shards() const override { return options_.synchronized && training(); }

  // y = normalized x, plus residual if defined, then a ReLU if asked for: one pass over memory.
  Tensor forward_fused(const Tensor& x, const Tensor& residual, bool relu);
  // residuals: none, or one for each shard.
  std::vector<Tensor> forward_fused(std::span<const Tensor> xs, std::span<const Tensor> residuals, bool relu);

  void set_synchronized(bool on) { options_.synchronized = on; }
  bool synchronized() const { return options_.synchronized; }

  Parameter weight;                  // gamma [C]
  Parameter bias;                    // beta [C]
  Parameter running_mean;            // [C]
  Parameter running_var;             // [C]
  Parameter num_batches_tracked;     // i64 scalar

 private:
  void settle(const Tensor& x);
  void keep(const Tensor& x, const ops::BatchStats& stats);
  void commit();

  BatchNorm2dOptions options_;
  // Of the batch that is running, by shard. What a batch left that ended with an error is dropped.
  std::vector<ops::BatchStats> pending_;
  std::int64_t pixels_ = 0;  // H * W
  std::uint64_t pending_batch_ = 0;
};

// Turns every batch norm of the model into a synchronized one.
void convert_sync_batchnorm(Module& module);

}  // namespace lockstep
