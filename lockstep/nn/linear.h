// The fully connected layer.
//
//   Linear& out = make<Linear>("out", 256, 10);
//   Linear& lazy = make<Linear>("lazy", {.out_features = 10});  // the first input decides in_features
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

struct LinearOptions {
  std::int64_t in_features = 0;  // 0: inferred at the first forward pass
  std::int64_t out_features = 0;
  bool bias = true;
  // Another module's parameter [out, in] to share instead of a weight of its own; the last layer of a language model
  // may share the embedding's weight.
  Parameter weight{};
};

// y = x weight^T + bias: [.., in] -> [.., out]. Throws if x's last extent is not in_features.
class Linear : public Module {
 public:
  using Options = LinearOptions;
  explicit Linear(LinearOptions options);
  // The sizes, and the other options: Linear(784, 256), Linear(784, 256, {.bias = false}).
  Linear(std::int64_t in_features, std::int64_t out_features, LinearOptions more = {});
  Tensor forward(const Tensor& x) override;

  const Parameter weight;  // [out, in]
  const Parameter bias;    // [out]

 protected:
  std::string extra_repr() const override;

 private:
  LinearOptions options_;
};

}  // namespace lockstep
