// Internal: what png.cc asks of libpng.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "lockstep/data/formats/image.h"

namespace lockstep {

// Decodes a complete file. Calls `row` for each row from the top with width x 3 bytes of red, green, blue: without
// alpha, and with the upper 8 of 16 bits. Holds an interlaced picture in memory as a whole before the first row.
void read_png(std::string_view bytes, const ImageInfo& info, bool interlaced,
              const std::function<void(std::span<const std::uint8_t> rgb)>& row, std::string_view name);

}  // namespace lockstep
