// Dropout.
//
//   net.append(Linear({.out_features = 256})).append(ReLU()).append(Dropout(0.2));
#pragma once

#include <string>

#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

// In training, drops each element with probability p and multiplies the others by 1 / (1 - p) (Srivastava et al. 2014).
// Does nothing in evaluation. p = 1 drops all. Throws unless 0 <= p <= 1.
class Dropout : public Module {
 public:
  explicit Dropout(double p = 0.5) : p_(p) { check(p >= 0 && p <= 1, "dropout: probability {}, expected 0 to 1", p); }
  Tensor forward(const Tensor& x) override { return training() && p_ > 0 ? dropout(x, p_) : x; }

 protected:
  std::string extra_repr() const override;

 private:
  double p_;
};

// Drops whole channels of sequences [N, C, L].
class Dropout1d : public Module {
 public:
  explicit Dropout1d(double p = 0.5) : p_(p) {
    check(p >= 0 && p <= 1, "dropout1d: probability {}, expected 0 to 1", p);
  }
  Tensor forward(const Tensor& x) override { return training() && p_ > 0 ? dropout1d(x, p_) : x; }

 protected:
  std::string extra_repr() const override;

 private:
  double p_;
};

// Drops whole channels of images [N, C, H, W].
class Dropout2d : public Module {
 public:
  explicit Dropout2d(double p = 0.5) : p_(p) {
    check(p >= 0 && p <= 1, "dropout2d: probability {}, expected 0 to 1", p);
  }
  Tensor forward(const Tensor& x) override { return training() && p_ > 0 ? dropout2d(x, p_) : x; }

 protected:
  std::string extra_repr() const override;

 private:
  double p_;
};

}  // namespace lockstep
