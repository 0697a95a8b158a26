// Dropout.
//
//   net.append(Linear({.out_features = 256})).append(ReLU()).append(Dropout(0.2));
#pragma once

#include <string>

#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

// In training, drops each element with probability p and multiplies the others by 1 / (1 - p) (Srivastava et al. 2014).
// Does nothing in evaluation. Throws unless 0 <= p < 1.
class Dropout : public Module {
 public:
  explicit Dropout(double p = 0.5) : p_(p) {
    check(p >= 0 && p < 1, "dropout: probability {}, expected at least 0 and below 1", p);
  }
  Tensor forward(const Tensor& x) override { return training() && p_ > 0 ? dropout(x, p_) : x; }

 protected:
  std::string extra_repr() const override;

 private:
  double p_;
};

}  // namespace lockstep
