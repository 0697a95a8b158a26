// A destination for bytes: a file, a digest, or both at once.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "lockstep/base/export.h"

namespace LOCKSTEP_API lockstep {

// Accepts all bytes or throws.
using ByteSink = std::function<void(std::span<const std::byte>)>;

}  // namespace lockstep
