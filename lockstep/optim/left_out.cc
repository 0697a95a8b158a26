#include "lockstep/optim/left_out.h"

namespace lockstep {

LeftOutGuard::LeftOutGuard(const Module& module) {
  for (const Parameter& p : module.parameters()) {
    if (!p.trainable() || p.optimized()) continue;
    p.set_trainable(false);
    frozen_.push_back(p);
  }
}

LeftOutGuard::~LeftOutGuard() {
  for (const Parameter& p : frozen_) p.set_trainable(true);
}

}  // namespace lockstep
