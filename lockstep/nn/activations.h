// Activations as modules, for a Sequential: autograd/activations.h and softmax.h have the functions.
//
//   net.append(Linear({.out_features = 256})).append(ReLU());
#pragma once

#include <string>

#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

class ReLU : public Module {
 public:
  Tensor forward(const Tensor& x) override { return relu(x); }
};

class LeakyReLU : public Module {
 public:
  explicit LeakyReLU(double negative_slope = 0.01) : negative_slope_(negative_slope) {}
  Tensor forward(const Tensor& x) override { return leaky_relu(x, negative_slope_); }

 protected:
  std::string extra_repr() const override;

 private:
  double negative_slope_;
};

class ELU : public Module {
 public:
  explicit ELU(double alpha = 1) : alpha_(alpha) {}
  Tensor forward(const Tensor& x) override { return elu(x, alpha_); }

 protected:
  std::string extra_repr() const override;

 private:
  double alpha_;
};

class SiLU : public Module {
 public:
  Tensor forward(const Tensor& x) override { return silu(x); }
};

class Softplus : public Module {
 public:
  explicit Softplus(double beta = 1, double threshold = 20) : beta_(beta), threshold_(threshold) {}
  Tensor forward(const Tensor& x) override { return softplus(x, beta_, threshold_); }

 protected:
  std::string extra_repr() const override;

 private:
  double beta_, threshold_;
};

class GELU : public Module {
 public:
  using Options = GeluOptions;
  explicit GELU(GeluOptions options = {}) : options_(options) {}
  Tensor forward(const Tensor& x) override { return gelu(x, options_); }

 protected:
  std::string extra_repr() const override;

 private:
  GeluOptions options_;
};

class Sigmoid : public Module {
 public:
  Tensor forward(const Tensor& x) override { return sigmoid(x); }
};

class Tanh : public Module {
 public:
  Tensor forward(const Tensor& x) override { return tanh(x); }
};

class Softmax : public Module {
 public:
  explicit Softmax(int dim = -1) : dim_(dim) {}
  Tensor forward(const Tensor& x) override { return softmax(x, dim_); }

 protected:
  std::string extra_repr() const override;

 private:
  int dim_;
};

class LogSoftmax : public Module {
 public:
  explicit LogSoftmax(int dim = -1) : dim_(dim) {}
  Tensor forward(const Tensor& x) override { return log_softmax(x, dim_); }

 protected:
  std::string extra_repr() const override;

 private:
  int dim_;
};

}  // namespace lockstep
