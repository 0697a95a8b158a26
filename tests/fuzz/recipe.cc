#include "lockstep/checkpoint/training_checkpoint.h"
#include "tests/fuzz/reader.h"

namespace lockstep::fuzz {

Reader recipe() {
  const Recipe some{{"seed", 0}, {"shift", -3}, {"lr", 0.1}, {"nesterov", true}, {"model", "lenet"}};
  return {.read =
              [](const std::string& bytes) {
                const Recipe found = Recipe::from_json(bytes);
                check(Recipe::from_json(found.json()) == found, "a recipe does not come back from its JSON");
              },
          .seeds = {some.json(), "{}"},
          .words = json_words({}),
          .memory_per_byte = 60};
}

}  // namespace lockstep::fuzz
