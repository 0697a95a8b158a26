// Where bytes go as they are made: a file, a digest, or both at once.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

namespace lockstep {

// Takes everything it is given, or throws.
using ByteSink = std::function<void(std::span<const std::byte>)>;

}  // namespace lockstep
