#include <cstdint>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/data/formats/image_codec.h"
#include "lockstep/data/formats/png_codec.h"

namespace lockstep {
namespace {

// Chunks are: the content's length (4 bytes), kind (4), content, checksum (4).
void check_is_whole(std::string_view bytes, std::string_view name) {
  std::size_t at = 8;
  for (bool end = false; !end;) {
    constexpr std::size_t kFrame = 12;
    const std::size_t left = bytes.size() - at;
    const std::size_t length = left < kFrame ? 0 : static_cast<std::size_t>(big_endian(bytes.substr(at, 4)));
    check(left >= kFrame && length <= left - kFrame, "{}: truncated: a PNG picture of {} bytes has no end", name,
          bytes.size());
    end = bytes.substr(at + 4, 4) == "IEND";
    at += kFrame + length;
  }
}

}  // namespace

Tensor decode_png(const EncodedImage& image) {
  const std::string_view bytes = image.bytes, name = image.name;
  const ImageInfo& info = image.info;
  check_is_whole(bytes, name);
  // Deflate expands data at most 1032 times.
  check(info.height * info.width / 8 / 1032 <= static_cast<std::int64_t>(bytes.size()),
        "{}: truncated: the header says {} x {} pixels, {} bytes cannot hold so many", name, info.width, info.height,
        bytes.size());
  constexpr std::size_t kInterlaceMethod = 28;  // in the chunk IHDR
  const bool interlaced = bytes[kInterlaceMethod] != '\0';
  // An interlaced picture has no complete row before its end.
  const std::int64_t rows_at_once = interlaced ? info.height : 1;
  image.check_memory(3 * info.width * rows_at_once);
  ImageRows rows(info, image.channels);
  read_png(
      bytes, info, interlaced, [&](std::span<const std::uint8_t> rgb) { rows.add_rgb(rgb); }, name);
  return rows.take();
}

}  // namespace lockstep
