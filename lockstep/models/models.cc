#include "lockstep/models/models.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/models/lenet.h"
#include "lockstep/models/mlp.h"
#include "lockstep/models/resnet.h"

namespace lockstep {

std::vector<std::string> model_names() { return {"resnet18", "lenet", "mlp"}; }

std::unique_ptr<Sequential> make_model(std::string_view name, std::int64_t classes) {
  check(classes >= 1, "model: {} classes, expected at least 1", classes);
  if (name == "resnet18") return resnet18(classes);
  if (name == "lenet") return lenet(classes);
  if (name == "mlp") return mlp(classes);
  fail("unknown model {}: expected resnet18, lenet, or mlp", name);
}

Initializer model_initializer(std::string_view name) {
  if (name == "lenet") return Xavier{};
  return Normal{0.01};
}

}  // namespace lockstep
