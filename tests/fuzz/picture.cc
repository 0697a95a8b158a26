#include <zlib.h>

#include <cstring>

#include "lockstep/data/formats/image.h"
#include "tests/fuzz/reader.h"

namespace lockstep::fuzz {
namespace {

constexpr std::int64_t kMostPixels = 1 << 20;

void decode(const std::string& bytes) { decode_image(bytes, {.max_pixels = kMostPixels}, "fuzz"); }

Tensor drawn(std::int64_t channels, std::int64_t height, std::int64_t width) {
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(channels * height * width));
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i * i / 7);
  return Tensor::from(pixels, {channels, height, width});
}

std::uint32_t big_endian(const std::string& bytes, std::size_t at) {
  std::uint32_t value = 0;
  std::memcpy(&value, &bytes[at], sizeof value);
  return __builtin_bswap32(value);
}

// The checksums of all chunks.
void repair_png(std::string& bytes) {
  for (std::size_t at = 8; at + 12 <= bytes.size();) {
    const std::size_t size = big_endian(bytes, at);
    if (size > bytes.size() - at - 12) break;
    const uLong checksum = crc32(0, reinterpret_cast<const Bytef*>(&bytes[at + 4]), static_cast<uInt>(size + 4));
    const std::uint32_t stored = __builtin_bswap32(static_cast<std::uint32_t>(checksum));
    std::memcpy(&bytes[at + 8 + size], &stored, sizeof stored);
    at += 12 + size;
  }
}

}  // namespace

// Of kMostPixels at most, so that memory has a limit: three channels of eight or sixteen bits, and a copy.
Reader png() {
  return {.read = decode,
          .seeds = {encode_png(drawn(1, 5, 3)), encode_png(drawn(3, 13, 29))},
          .words = {"IHDR", "PLTE", "IDAT", "IEND", "tRNS", "gAMA", "iCCP", "zTXt", "tEXt", "eXIf", "sPLT",
                    std::string_view("\0\0\0\x0d", 4), "\x89PNG\r\n\x1a\n"},
          .repair = repair_png,
          .memory = 16 * kMostPixels};
}

// The same; a progressive one keeps all coefficients, of two bytes.
Reader jpeg() {
  return {.read = decode,
          .seeds = {encode_jpeg(drawn(1, 8, 8)), encode_jpeg(drawn(3, 20, 33))},
          .words = {"\xff\xd8\xff", "\xff\xc0", "\xff\xc2", "\xff\xc4", "\xff\xda", "\xff\xdb", "\xff\xd9", "\xff\xe0",
                    "\xff\xee", "\xff\xdd", "\xff\xc9", "\xff\xd0", "Adobe", "JFIF"},
          .memory = 16 * kMostPixels};
}

}  // namespace lockstep::fuzz
