// Dropout.
//
//   net.append(Linear({.out_features = 256})).append(ReLU()).append(Dropout(0.2));
#pragma once

#include <string>

#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

// The base of the dropout layers. Throws unless 0 <= p <= 1.
class DropoutLayer : public Module {
 public:
  explicit DropoutLayer(double p = 0.5) { set_p(p); }
  double p() const { return p_; }
  void set_p(double p) {
    check(p >= 0 && p <= 1, "dropout: probability {}, expected 0 to 1", p);
    p_ = p;
  }

 protected:
  bool drops() const { return p_ > 0 && training(); }
  std::string extra_repr() const override;

  double p_ = 0;
};

// In training, drops each element with probability p and multiplies the others by 1 / (1 - p) (Srivastava et al. 2014).
// Does nothing in evaluation. p = 1 drops all elements.
class Dropout : public DropoutLayer {
 public:
  using DropoutLayer::DropoutLayer;
  Tensor forward(const Tensor& x) override { return drops() ? dropout(x, p_) : x; }
};

// Drops whole channels of sequences [N, C, L].
class Dropout1d : public DropoutLayer {
 public:
  using DropoutLayer::DropoutLayer;
  Tensor forward(const Tensor& x) override { return drops() ? dropout1d(x, p_) : x; }
};

// Drops whole channels of images [N, C, H, W].
class Dropout2d : public DropoutLayer {
 public:
  using DropoutLayer::DropoutLayer;
  Tensor forward(const Tensor& x) override { return drops() ? dropout2d(x, p_) : x; }
};

}  // namespace lockstep
