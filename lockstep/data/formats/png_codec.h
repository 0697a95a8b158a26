// Internal: what png.cc asks of libpng.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "lockstep/data/formats/image.h"

namespace lockstep {

// Decodes a file that has its end, row by row from the top: width x 3 bytes of red, green, blue, without alpha; of 16
// bits the upper 8. An interlaced picture is in memory as a whole before its first row is.
void read_png(std::string_view bytes, const ImageInfo& info, bool interlaced,
              const std::function<void(std::span<const std::uint8_t> rgb)>& row, std::string_view name);

}  // namespace lockstep
