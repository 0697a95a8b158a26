// Layers without parameters.
#pragma once

#include "lockstep/nn/module.h"

namespace lockstep {

class ReLU : public Module {
 public:
  Tensor forward(const Tensor& x) override { return relu(x); }
};

class GELU : public Module {
 public:
  Tensor forward(const Tensor& x) override { return gelu(x); }
};

class Sigmoid : public Module {
 public:
  Tensor forward(const Tensor& x) override { return sigmoid(x); }
};

class Tanh : public Module {
 public:
  Tensor forward(const Tensor& x) override { return tanh(x); }
};

// Over the last axis.
class Softmax : public Module {
 public:
  Tensor forward(const Tensor& x) override { return softmax(x); }
};

// All axes but the first as one.
class Flatten : public Module {
 public:
  Tensor forward(const Tensor& x) override { return flatten(x, 1); }
};

class MaxPool2d : public Module {
 public:
  explicit MaxPool2d(Pool2dOptions options = {}) : options_(options) {}
  Tensor forward(const Tensor& x) override { return max_pool2d(x, options_); }

 private:
  Pool2dOptions options_;
};

class AvgPool2d : public Module {
 public:
  explicit AvgPool2d(Pool2dOptions options = {}) : options_(options) {}
  Tensor forward(const Tensor& x) override { return avg_pool2d(x, options_); }

 private:
  Pool2dOptions options_;
};

// [N, C, H, W] -> [N, C, 1, 1]
class GlobalAvgPool2d : public Module {
 public:
  Tensor forward(const Tensor& x) override { return global_avg_pool2d(x); }
};

// Drops each element with probability p in training; does nothing in evaluation.
class Dropout : public Module {
 public:
  explicit Dropout(double p = 0.5) : p_(p) {
    check(p >= 0 && p < 1, "dropout: probability {}, expected at least 0 and below 1", p);
  }
  Tensor forward(const Tensor& x) override { return training() && p_ > 0 ? dropout(x, p_) : x; }

 private:
  double p_;
};

}  // namespace lockstep
