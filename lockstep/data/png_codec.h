// Internal: what png.cc asks of a library for PNG: libspng (spng_codec.cc), or, in static programs, libpng
// (libpng_codec.cc). Each gives the same pixels.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "lockstep/data/image.h"

namespace lockstep {

// Decodes a file that has its end to height x width x 3 bytes: red, green, blue, without alpha; of 16 bits the upper 8.
void read_png(std::string_view bytes, const ImageInfo& info, std::span<std::uint8_t> rgb, std::string_view name);

}  // namespace lockstep
