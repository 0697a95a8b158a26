// Hashes of the final weights of well-known recipes, for any processor, number of threads, and compiler.
#pragma once

#include <optional>
#include <string_view>

namespace lockstep::app {

// SHA-256 of the weights after `steps` steps of the recipe with this hash. Empty if it was never recorded.
std::optional<std::string_view> golden_hash(std::string_view recipe_hash, int steps);

}  // namespace lockstep::app
