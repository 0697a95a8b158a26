// Loops over batches that lie where a model is: DataLoader::on() and DistributedDataParallel::batches().
//
//   for (auto [x, y] : loader.on(net)) {  // default_shards() of the batch size; {.shards = 8}: 8 shards
//     cross_entropy(net(x), y).backward();
//     sgd.step();
//   }
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <utility>

#include "lockstep/data/data_loader.h"
#include "lockstep/nn/module.h"
#include "lockstep/parallel/batch_splitter.h"
#include "lockstep/parallel/split.h"

namespace LOCKSTEP_API lockstep {

// Each element is a batch of examples of N parts, each part cut into shards. The loop copies from pinned memory where
// that helps, and throws unless the examples have N parts.
template <std::size_t N>
class Batches {
 public:
  Batches(DataLoader& loader, std::shared_ptr<BatchSplitter> splitter)
      : loader_(loader), splitter_(std::move(splitter)) {}

  class Iterator {
   public:
    Iterator(BatchSplitter& splitter, DataLoader::Iterator loop) : splitter_(splitter), loop_(std::move(loop)) {}
    std::array<Tensor, N> operator*() {
      std::vector<Tensor> parts = splitter_.split_loop(*loop_, loop_.examples(), N);
      std::array<Tensor, N> batch;
      std::move(parts.begin(), parts.end(), batch.begin());
      return batch;
    }
    Iterator& operator++() {
      ++loop_;
      return *this;
    }
    bool operator==(DataLoader::End end) const { return loop_ == end; }

   private:
    BatchSplitter& splitter_;
    DataLoader::Iterator loop_;
  };
  Iterator begin() { return {*splitter_, splitter_->begin_loop(loader_)}; }
  DataLoader::End end() const { return {}; }

 private:
  DataLoader& loader_;
  std::shared_ptr<BatchSplitter> splitter_;
};

// Returns a splitter of batches of this size for the model's devices. Places the model if nobody did. If the options
// give no number of shards, takes default_shards() on CPUs (and warns if devices are idle then), and one shard for each
// device on GPUs. Throws if DistributedDataParallel has the model: its batches are loader.on(ddp).
std::shared_ptr<BatchSplitter> splitter_for(const Module& model, SplitOptions options, std::int64_t batch_size);

// What DataLoader::on() returns.
template <std::size_t N>
Batches<N> batches_on(DataLoader& loader, const Module& model, const SplitOptions& options = {}) {
  return {loader, splitter_for(model, options, loader.batch_size())};
}

}  // namespace lockstep
