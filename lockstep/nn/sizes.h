// Internal: sizes of a layer that its constructor takes by position, as Linear(784, 256), beside its options.
#pragma once

#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep {

// Sets an option to a size given by position. Throws if the options name another size, or if the size is below 1: a
// size that the first input decides must be omitted in the options, and cannot be 0 by position.
template <typename T>
void set_size(std::string_view layer, std::string_view name, T& option, const T& given, const T& unset = {}) {
  check(option == unset || option == given,
        "{}: {} is given by position and, differently, in the options, expected once", layer, name);
  if constexpr (requires { given < T{1}; }) {
    check(given >= T{1},
          "{}: {} is {}, expected at least 1 by position, or the options alone to let the first input "
          "decide",
          layer, name, given);
  }
  option = given;
}

}  // namespace lockstep
