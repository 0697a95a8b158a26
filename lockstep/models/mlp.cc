#include "lockstep/models/mlp.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/nn/activations.h"
#include "lockstep/nn/flatten.h"
#include "lockstep/nn/linear.h"

namespace lockstep {

std::unique_ptr<Sequential> mlp(std::int64_t classes, const std::vector<std::int64_t>& hidden) {
  auto net = std::make_unique<Sequential>();
  net->append<Flatten>();
  for (const std::int64_t units : hidden) net->append<Linear>(LinearOptions{.out_features = units}).append<ReLU>();
  net->append<Linear>(LinearOptions{.out_features = classes});
  return net;
}

}  // namespace lockstep
