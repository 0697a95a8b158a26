#include "lockstep/data/formats/image.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/option_error.h"
#include "lockstep/data/formats/image_codec.h"
#include "lockstep/data/formats/image_file.h"
#include "lockstep/device/file_memory.h"

namespace lockstep {
namespace {

constexpr std::string_view kPngSignature = "\x89PNG\r\n\x1a\n";
constexpr std::string_view kJpegSignature = "\xff\xd8\xff";

ImageInfo probe_png(std::string_view bytes, std::string_view name) {
  constexpr std::size_t kHeader = 33;  // the signature and the chunk IHDR
  check(bytes.size() >= kHeader, "{}: truncated: a PNG picture of {} bytes", name, bytes.size());
  check(bytes.substr(8, 8) == std::string_view("\0\0\0\rIHDR", 8), "{}: a broken PNG picture: no header", name);
  const unsigned char color = static_cast<unsigned char>(bytes[25]);
  constexpr unsigned char kGray = 0, kGrayAlpha = 4;
  return {ImageFormat::png, big_endian(bytes.substr(20, 4)), big_endian(bytes.substr(16, 4)),
          color == kGray || color == kGrayAlpha ? 1 : 3};
}

// Finds the frame header among the segments, each of which is: ff, kind, length of the rest (2 bytes), rest.
ImageInfo probe_jpeg(std::string_view bytes, std::string_view name) {
  std::size_t at = 2;
  while (at + 4 <= bytes.size()) {
    check(bytes[at] == '\xff', "{}: a broken JPEG picture: no marker at byte {}", name, at);
    const unsigned char kind = static_cast<unsigned char>(bytes[at + 1]);
    if (kind == 0xff) {  // padding
      ++at;
      continue;
    }
    const auto length = static_cast<std::size_t>(big_endian(bytes.substr(at + 2, 2)));
    check(kind != 0xd9 && kind != 0xda && length >= 2, "{}: a broken JPEG picture: no header of a frame", name);
    const bool frame = kind >= 0xc0 && kind <= 0xcf && kind != 0xc4 && kind != 0xc8 && kind != 0xcc;
    if (frame && at + 10 <= bytes.size()) {
      const int components = static_cast<unsigned char>(bytes[at + 9]);
      check(components == 1 || components == 3 || components == 4,
            "{}: a JPEG picture of {} components, expected 1, 3, or 4", name, components);
      return {ImageFormat::jpeg, big_endian(bytes.substr(at + 5, 2)), big_endian(bytes.substr(at + 7, 2)),
              components == 1 ? 1 : 3};
    }
    at += 2 + length;
  }
  fail("{}: truncated: a JPEG picture of {} bytes without a header of a frame", name, bytes.size());
}

constexpr std::size_t kPixelsAtOnce = 64;
using PixelBlock = std::array<std::uint8_t, 3 * kPixelsAtOnce>;

// A round moves byte i to 2 i modulo 191, so six rounds move it to 64 i: byte 3 p + c, color c of pixel p, becomes byte
// 64 c + p. Four times as fast as a loop over pixels, because processors have instructions for a round.
void riffle(const PixelBlock& in, PixelBlock& out) {
  constexpr std::size_t kHalf = PixelBlock().size() / 2;
  for (std::size_t i = 0; i < kHalf; ++i) {
    out[2 * i] = in[i];
    out[2 * i + 1] = in[kHalf + i];
  }
}

InterleavedImage interleaved(std::string_view function, const Tensor& image) {
  check(image.defined(), "{}: no picture", function);
  const std::int64_t axes = image.shape().dim();
  const std::int64_t channels = axes == 3 ? image.size(0) : 1;
  check(image.device().is_host() && image.dtype() == DType::u8 && (axes == 2 || axes == 3) &&
            (channels == 1 || channels == 3) && image.numel() > 0,
        "{}: found {}, expected u8 [channels, height, width] with 1 or 3 channels in host memory", function, image);
  InterleavedImage result{image.size(-2), image.size(-1), channels, {}};
  const std::vector<std::uint8_t> from = image.to_vector<std::uint8_t>();
  const auto plane = static_cast<std::size_t>(result.height * result.width);
  const auto count = static_cast<std::size_t>(channels);
  result.bytes.resize(plane * count);
  for (std::size_t c = 0; c < count; ++c) {
    for (std::size_t i = 0; i < plane; ++i) result.bytes[i * count + c] = static_cast<char>(from[c * plane + i]);
  }
  return result;
}

}  // namespace

ImageRows::ImageRows(const ImageInfo& info, std::int64_t channels)
    : width_(static_cast<std::size_t>(info.width)), plane_(width_ * static_cast<std::size_t>(info.height)),
      channels_(channels == 0 ? info.channels : channels) {
  image_ = Tensor::host({channels_, info.height, info.width}, DType::u8);
  planes_ = static_cast<std::uint8_t*>(image_->view().data);
}

void ImageRows::add_rgb(std::span<const std::uint8_t> row) {
  // Copies members, because the loops would read them again for each pixel: bytes may alias them.
  std::uint8_t* const to = planes_ + row_++ * width_;
  const std::uint8_t* const from = row.data();
  const std::size_t width = width_, plane = plane_;
  if (channels_ == 3) {
    std::size_t x = 0;
    for (; x + kPixelsAtOnce <= width; x += kPixelsAtOnce) {
      PixelBlock one, other;
      std::memcpy(one.data(), from + 3 * x, one.size());
      for (int rounds = 0; rounds < 6; rounds += 2) {
        riffle(one, other);
        riffle(other, one);
      }
      for (std::size_t c = 0; c < 3; ++c)
        std::memcpy(to + c * plane + x, one.data() + c * kPixelsAtOnce, kPixelsAtOnce);
    }
    for (; x < width; ++x) {
      for (std::size_t c = 0; c < 3; ++c) to[c * plane + x] = from[3 * x + c];
    }
  } else {  // for equal colors, this is the color: the weights' sum is 65536
    for (std::size_t x = 0; x < width; ++x) {
      const std::uint32_t sum = 19595U * from[3 * x] + 38470U * from[3 * x + 1] + 7471U * from[3 * x + 2];
      to[x] = static_cast<std::uint8_t>((sum + 32768U) >> 16);
    }
  }
}

void ImageRows::add_gray(std::span<const std::uint8_t> row) {
  std::uint8_t* to = planes_ + row_++ * width_;
  for (std::int64_t c = 0; c < channels_; ++c)
    std::copy(row.begin(), row.end(), to + static_cast<std::size_t>(c) * plane_);
}

void EncodedImage::check_memory(std::int64_t of_codec) const {
  const std::int64_t pixels = info.height * info.width;
  const std::int64_t needed = (channels == 0 ? info.channels : channels) * pixels + of_codec;
  if (static_cast<std::uint64_t>(needed) <= kMemoryOfSmallFile) return;
  try {
    check_file_memory(static_cast<std::uint64_t>(needed), any_proportion ? kAnyProportion : bytes.size(), name,
                      fmt::format("{} x {} pixels", info.width, info.height),
                      fmt::format("max_pixels = {} reads it", pixels));
  } catch (const Error& error) {
    throw OptionError(error.what(), {"max_pixels"});
  }
}

std::string describe_content(std::string_view bytes) {
  constexpr std::pair<std::string_view, std::string_view> kKnown[] = {
      {"GIF8", "a GIF picture"},
      {"BM", "a BMP picture"},
      {std::string_view("II*\0", 4), "a TIFF picture"},
      {std::string_view("MM\0*", 4), "a TIFF picture"},
      {"8BPS", "a Photoshop picture"},
      {"\xff\x0a", "a JPEG XL picture"},
      {std::string_view("\0\0\0\x0cJXL ", 8), "a JPEG XL picture"},
      {std::string_view("\0\0\0\x0cjP  ", 8), "a JPEG 2000 picture"},
      {"%PDF", "a PDF document"},
      {std::string_view("PK\x03\x04", 4), "a ZIP archive"},
      {"\x1f\x8b", "gzipped"},
      {"<svg", "an SVG picture"},
  };
  if (bytes.empty()) return "empty";
  for (const auto& [start, what] : kKnown) {
    if (bytes.starts_with(start)) return std::string(what);
  }
  if (bytes.starts_with("RIFF") && bytes.substr(0, 12).ends_with("WEBP")) return "a WebP picture";
  if (bytes.size() >= 12 && bytes.substr(4, 4) == "ftyp") {
    return bytes.substr(8, 4) == "avif" ? "an AVIF picture" : bytes.substr(8, 3) == "hei" ? "a HEIC picture" : "a film";
  }
  const std::string_view start = bytes.substr(0, 256);
  const bool text = std::all_of(start.begin(), start.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 32 || c == '\n' || c == '\r' || c == '\t';
  });
  return text ? "a text" : "of an unknown kind";
}

ImageInfo probe_image_bytes(std::string_view bytes, std::string_view name) {
  const bool png = bytes.starts_with(kPngSignature);
  check(png || bytes.starts_with(kJpegSignature), "{}: it is {}, expected a JPEG or PNG picture", name,
        describe_content(bytes));
  const ImageInfo info = png ? probe_png(bytes, name) : probe_jpeg(bytes, name);
  constexpr std::int64_t kMostPixels = INT32_MAX;  // of a side, by PNG's specification
  check(info.height > 0 && info.width > 0 && info.height <= kMostPixels && info.width <= kMostPixels,
        "{}: a picture of {} x {} pixels", name, info.width, info.height);
  return info;
}

ImageInfo probe_image(const std::filesystem::path& path) { return ImageFile(path).probe(); }

Tensor decode_image(std::string_view bytes, const ImageOptions& options, std::string_view name) {
  check(options.channels == 0 || options.channels == 1 || options.channels == 3,
        "decode_image: {} channels, expected 1 (gray), 3 (color), or 0 (as in the file)", options.channels);
  check_option(options.max_pixels >= 0, "max_pixels", "decode_image: max_pixels is {}, expected at least 0",
               options.max_pixels);
  const ImageInfo info = probe_image_bytes(bytes, name);
  const std::int64_t most = options.max_pixels > 0 ? options.max_pixels : kMaxImagePixels;
  check_option(info.height <= most / info.width, "max_pixels", "{}: {} x {} = {} pixels, the limit (max_pixels) is {}",
               name, info.width, info.height, info.width * info.height, most);
  const EncodedImage image{bytes, name, info, options.channels, options.max_pixels > 0};
  return info.format == ImageFormat::jpeg ? decode_jpeg(image) : decode_png(image);
}

Tensor read_image(const std::filesystem::path& path, const ImageOptions& options) {
  return ImageFile(path).decode(options);
}

std::string encode_png(const Tensor& image) { return encode_png(interleaved("encode_png", image)); }
void write_png(const std::filesystem::path& path, const Tensor& image) {
  write_file_atomically(path, encode_png(image));
}

std::string encode_jpeg(const Tensor& image, const JpegOptions& options) {
  check(options.quality >= 1 && options.quality <= 100, "encode_jpeg: quality {}, expected 1 to 100", options.quality);
  return encode_jpeg(interleaved("encode_jpeg", image), options.quality);
}
void write_jpeg(const std::filesystem::path& path, const Tensor& image, const JpegOptions& options) {
  write_file_atomically(path, encode_jpeg(image, options));
}

std::string image_decoder_version() { return jpeg_library_version(); }

}  // namespace lockstep
