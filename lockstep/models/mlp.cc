#include "lockstep/models/mlp.h"

#include <cstdint>
#include <memory>

#include "lockstep/nn/activations.h"
#include "lockstep/nn/flatten.h"
#include "lockstep/nn/linear.h"

namespace lockstep {

std::unique_ptr<Sequential> mlp(std::int64_t classes) {
  auto net = std::make_unique<Sequential>();
  net->append<Flatten>().append<Linear>(LinearOptions{.out_features = 256}).append<ReLU>();
  net->append<Linear>(LinearOptions{.out_features = classes});
  return net;
}

}  // namespace lockstep
