#include <spng.h>

#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/formats/image_codec.h"
#include "lockstep/data/formats/png_codec.h"

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

}  // namespace

void read_png(std::string_view bytes, const ImageInfo& info, bool interlaced,
              const std::function<void(std::span<const std::uint8_t> rgb)>& row, std::string_view name) {
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
  // The only one of libspng's formats that takes every kind of color.
  constexpr spng_format kFormat = SPNG_FMT_RGB8;
  const std::size_t width = 3 * static_cast<std::size_t>(info.width);
  if (interlaced) {
    std::vector<std::uint8_t> all(width * static_cast<std::size_t>(info.height));
    succeeded(spng_decode_image(png.get(), all.data(), all.size(), kFormat, 0));
    for (std::size_t at = 0; at < all.size(); at += width) row(std::span(all).subspan(at, width));
  } else {
    std::vector<std::uint8_t> rgb(width);
    succeeded(spng_decode_image(png.get(), nullptr, 0, kFormat, SPNG_DECODE_PROGRESSIVE));
    for (std::int64_t y = 0; y < info.height; ++y) {
      const int status = spng_decode_row(png.get(), rgb.data(), rgb.size());
      if (status != SPNG_EOI || y + 1 < info.height) succeeded(status);  // the last row says that it is
      row(rgb);
    }
  }
  succeeded(spng_decode_chunks(png.get()));  // those that follow
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

}  // namespace lockstep
