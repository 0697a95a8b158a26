// Activations as modules, for a Sequential: autograd/activations.h and softmax.h have the functions.
//
//   net.append(Linear({.out_features = 256})).append(ReLU());
#pragma once

#include <cstdint>
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

class GLU : public Module {
 public:
  explicit GLU(int dim = -1) : dim_(dim) {}
  Tensor forward(const Tensor& x) override { return glu(x, dim_); }

 protected:
  std::string extra_repr() const override;

 private:
  int dim_;
};

class Hardtanh : public Module {
 public:
  explicit Hardtanh(double min_val = -1, double max_val = 1) : min_val_(min_val), max_val_(max_val) {}
  Tensor forward(const Tensor& x) override { return hardtanh(x, min_val_, max_val_); }

 protected:
  std::string extra_repr() const override;

 private:
  double min_val_, max_val_;
};

class ReLU6 : public Module {
 public:
  Tensor forward(const Tensor& x) override { return relu6(x); }
};

class Hardsigmoid : public Module {
 public:
  Tensor forward(const Tensor& x) override { return hardsigmoid(x); }
};

class Hardswish : public Module {
 public:
  Tensor forward(const Tensor& x) override { return hardswish(x); }
};

struct PReLUOptions {
  std::int64_t num_parameters = 1;  // or the number of channels, on axis 1
  double init = 0.25;
};

// The slope below 0 is learned (He et al. 2015).
class PReLU : public Module {
 public:
  using Options = PReLUOptions;
  explicit PReLU(PReLUOptions options = {})
      : weight(add_parameter("weight", {.shape = {options.num_parameters}, .initializer = Constant{options.init}})),
        options_(options) {
    check(options.num_parameters > 0, "prelu: {} parameters, expected at least 1", options.num_parameters);
  }
  Tensor forward(const Tensor& x) override { return prelu(x, weight); }

  const Parameter weight;  // [num_parameters]

 protected:
  std::string extra_repr() const override;

 private:
  PReLUOptions options_;
};

class SELU : public Module {
 public:
  Tensor forward(const Tensor& x) override { return selu(x); }
};

class CELU : public Module {
 public:
  explicit CELU(double alpha = 1) : alpha_(alpha) {}
  Tensor forward(const Tensor& x) override { return celu(x, alpha_); }

 protected:
  std::string extra_repr() const override;

 private:
  double alpha_;
};

class Mish : public Module {
 public:
  Tensor forward(const Tensor& x) override { return mish(x); }
};

class LogSigmoid : public Module {
 public:
  Tensor forward(const Tensor& x) override { return logsigmoid(x); }
};

class Softsign : public Module {
 public:
  Tensor forward(const Tensor& x) override { return softsign(x); }
};

class Tanhshrink : public Module {
 public:
  Tensor forward(const Tensor& x) override { return tanhshrink(x); }
};

class Hardshrink : public Module {
 public:
  explicit Hardshrink(double lambd = 0.5) : lambd_(lambd) {}
  Tensor forward(const Tensor& x) override { return hardshrink(x, lambd_); }

 protected:
  std::string extra_repr() const override;

 private:
  double lambd_;
};

class Softshrink : public Module {
 public:
  explicit Softshrink(double lambd = 0.5) : lambd_(lambd) {}
  Tensor forward(const Tensor& x) override { return softshrink(x, lambd_); }

 protected:
  std::string extra_repr() const override;

 private:
  double lambd_;
};

class Threshold : public Module {
 public:
  Threshold(double threshold, double value) : threshold_(threshold), value_(value) {}
  Tensor forward(const Tensor& x) override { return threshold(x, threshold_, value_); }

 protected:
  std::string extra_repr() const override;

 private:
  double threshold_, value_;
};

class Softmin : public Module {
 public:
  explicit Softmin(int dim = -1) : dim_(dim) {}
  Tensor forward(const Tensor& x) override { return softmin(x, dim_); }

 protected:
  std::string extra_repr() const override;

 private:
  int dim_;
};

}  // namespace lockstep
