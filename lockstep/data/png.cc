#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/image_codec.h"
#include "lockstep/data/png_codec.h"

namespace lockstep {
namespace {

// Chunks are: the content's length (4 bytes), kind (4), content, checksum (4). libspng accepts a file that lacks the
// last checksum.
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

Tensor decode_png(std::string_view bytes, const ImageInfo& info, std::int64_t channels, std::string_view name) {
  check_is_whole(bytes, name);
  // Deflated data has at most 1032 times its size.
  check(info.height * info.width / 8 / 1032 <= static_cast<std::int64_t>(bytes.size()),
        "{}: truncated: the header says {} x {} pixels, {} bytes cannot hold so many", name, info.width, info.height,
        bytes.size());
  const std::size_t row = 3 * static_cast<std::size_t>(info.width);
  std::vector<std::uint8_t> pixels(row * static_cast<std::size_t>(info.height));
  read_png(bytes, info, pixels, name);
  ImageRows rows(info, channels);
  for (std::size_t at = 0; at < pixels.size(); at += row) rows.add_rgb(std::span(pixels).subspan(at, row));
  return rows.take();
}

}  // namespace lockstep
