// A layout of `verify` and `audit`. "3": three devices in one process. "2x1": two processes of one device each.
#pragma once

#include <string>

namespace lockstep::app {

struct TrainingLayout {
  std::string text;
  int processes = 1;
  int devices = 1;
};

// Throws UsageError with a message that begins with the option.
TrainingLayout parse_layout(const std::string& option, const std::string& text);

}  // namespace lockstep::app
