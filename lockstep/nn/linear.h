// The fully connected layer.
//
//   Linear& out = make<Linear>("out", {.out_features = 10});
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/nn/module.h"

namespace LOCKSTEP_API lockstep {

struct LinearOptions {
  std::int64_t in_features = 0;  // 0: inferred at the first forward pass
  std::int64_t out_features = 0;
  bool bias = true;
};

// y = x weight^T + bias: [.., in] -> [.., out]. Throws if x's last extent is not in_features.
class Linear : public Module {
 public:
  using Options = LinearOptions;
  explicit Linear(LinearOptions options);
  Tensor forward(const Tensor& x) override;

  Parameter weight;  // [out, in]
  Parameter bias;    // [out]

 protected:
  std::string extra_repr() const override;

 private:
  LinearOptions options_;
};

}  // namespace lockstep
