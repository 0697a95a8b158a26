// Internal: sizes of a layer that its constructor takes by position, as Linear(784, 256), beside its options.
#pragma once

#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep {

// Sets an option that the caller also may have set. Throws if that is another value, or if the size is below 1: sizes
// that the first input decides are left out in options, not 0 by position.
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
