#include "lockstep/parallel/batches.h"

#include "lockstep/autograd/parameter_gradient.h"

namespace lockstep {

std::shared_ptr<BatchSplitter> splitter_for(const Module& model, const SplitOptions& options) {
  for (const auto& [name, p] : model.named_parameters()) {
    check(p.gradient_state().reducer() == nullptr,
          "loader.on: DistributedDataParallel has {}: expected loader.on(ddp), whose batches are cut over the ranks",
          name);
  }
  return std::make_shared<BatchSplitter>(model.devices(), options);
}

}  // namespace lockstep
