#include "apps/lockstep/bits/training_layout.h"

#include "apps/lockstep/options/usage_error.h"
#include "lockstep/base/environment.h"

namespace lockstep::app {

TrainingLayout parse_layout(const std::string& option, const std::string& text) {
  auto number = [&](std::string_view part) {
    return static_cast<int>(parse_integer(fmt::format("{}: '{}'", option, text), part, 1, 1024));
  };
  try {
    std::size_t x = text.find('x');
    if (x == std::string::npos) return {text, 1, number(text)};
    return {text, number(std::string_view(text).substr(0, x)), number(std::string_view(text).substr(x + 1))};
  } catch (const Error&) {
    throw UsageError(
        fmt::format("{}: '{}', expected D (devices in one process) or PxD (P processes of D devices), "
                    "each from 1 to 1024",
                    option, text));
  }
}

}  // namespace lockstep::app
