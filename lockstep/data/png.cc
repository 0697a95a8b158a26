#include <spng.h>

#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/image_codec.h"

namespace lockstep {
namespace {

struct FreePng {
  void operator()(spng_ctx* context) const { spng_ctx_free(context); }
};
using PngContext = std::unique_ptr<spng_ctx, FreePng>;

PngContext new_png_context(int flags) {
  PngContext context(spng_ctx_new(flags));
  if (context == nullptr) throw std::bad_alloc();
  return context;
}

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
  const PngContext png = new_png_context(0);
  const auto succeeded = [&](int status) {
    if (status == SPNG_EMEM) throw std::bad_alloc();
    check(status == 0, "{}: a broken PNG picture: {}", name, spng_strerror(status));
  };
  // Profiles and texts are not read; a file must not make them large.
  constexpr std::size_t kMostOfOtherChunks = std::size_t{16} << 20;
  succeeded(spng_set_chunk_limits(png.get(), kMostOfOtherChunks, kMostOfOtherChunks));
  succeeded(spng_set_crc_action(png.get(), SPNG_CRC_ERROR, SPNG_CRC_ERROR));
  succeeded(spng_set_png_buffer(png.get(), bytes.data(), bytes.size()));
  spng_ihdr header{};
  succeeded(spng_get_ihdr(png.get(), &header));
  check(header.width == info.width && header.height == info.height,
        "{}: a broken PNG picture: one header says {} x {} pixels, another one {} x {}", name, info.width, info.height,
        header.width, header.height);
  // Deflated data has at most 1032 times its size.
  check(info.height * info.width / 8 / 1032 <= static_cast<std::int64_t>(bytes.size()),
        "{}: truncated: the header says {} x {} pixels, {} bytes cannot hold so many", name, info.width, info.height,
        bytes.size());
  const std::size_t row = 3 * static_cast<std::size_t>(info.width);
  std::vector<std::uint8_t> pixels(row * static_cast<std::size_t>(info.height));
  // The only one of libspng's formats that takes every kind of color.
  succeeded(spng_decode_image(png.get(), pixels.data(), pixels.size(), SPNG_FMT_RGB8, 0));
  succeeded(spng_decode_chunks(png.get()));  // those that follow
  ImageRows rows(info, channels);
  for (std::size_t at = 0; at < pixels.size(); at += row) rows.add_rgb(std::span(pixels).subspan(at, row));
  return rows.take();
}

std::string encode_png(const InterleavedImage& image) {
  const PngContext png = new_png_context(SPNG_CTX_ENCODER);
  const auto succeeded = [](int status) {
    if (status == SPNG_EMEM) throw std::bad_alloc();
    check(status == 0, "encode_png: {}", spng_strerror(status));
  };
  succeeded(spng_set_option(png.get(), SPNG_ENCODE_TO_BUFFER, 1));
  spng_ihdr header{};
  header.width = static_cast<std::uint32_t>(image.width);
  header.height = static_cast<std::uint32_t>(image.height);
  header.bit_depth = 8;
  header.color_type = image.channels == 1 ? SPNG_COLOR_TYPE_GRAYSCALE : SPNG_COLOR_TYPE_TRUECOLOR;
  succeeded(spng_set_ihdr(png.get(), &header));
  succeeded(spng_encode_image(png.get(), image.bytes.data(), image.bytes.size(), SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE));
  std::size_t size = 0;
  int status = 0;
  const std::unique_ptr<void, decltype(&std::free)> bytes(spng_get_png_buffer(png.get(), &size, &status), &std::free);
  succeeded(status);
  return {static_cast<const char*>(bytes.get()), size};
}

std::string png_library_version() { return std::string("libspng ") + spng_version_string(); }

}  // namespace lockstep
