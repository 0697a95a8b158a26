// Internal: what the codecs of pictures share. A codec decodes to rows of red, green, blue or of gray; image.cc makes
// tensors of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/data/formats/image.h"

namespace lockstep {

// Receives row after row of a picture and stores it as planes.
class ImageRows {
 public:
  // `channels` as in ImageOptions; `info` is what the header says. Allocates the tensor.
  ImageRows(const ImageInfo& info, std::int64_t channels);
  // width x 3 bytes, red, green, blue.
  void add_rgb(std::span<const std::uint8_t> row);
  // width bytes.
  void add_gray(std::span<const std::uint8_t> row);
  Tensor take() { return std::move(image_); }

 private:
  Tensor image_;
  std::uint8_t* planes_;
  std::size_t width_, plane_, row_ = 0;
  std::int64_t channels_;
};

// A picture to encode, as interleaved rows.
struct InterleavedImage {
  std::int64_t height, width, channels;
  std::string bytes;
};

// A file to decode. Its size in pixels has been checked against ImageOptions::max_pixels.
struct EncodedImage {
  std::string_view bytes, name;
  ImageInfo info;
  std::int64_t channels = 0;  // as in ImageOptions
  bool any_proportion = false;

  // Throws if the tensor and the `of_codec` bytes that the codec takes are too much memory for the size of the file.
  void check_memory(std::int64_t of_codec) const;
};

Tensor decode_jpeg(const EncodedImage& image);
Tensor decode_png(const EncodedImage& image);
std::string encode_jpeg(const InterleavedImage& image, int quality);
std::string encode_png(const InterleavedImage& image);
std::string jpeg_library_version();

// Reads a big-endian number of up to four bytes.
inline std::int64_t big_endian(std::string_view bytes) {
  std::int64_t value = 0;
  for (const char c : bytes) value = value << 8 | static_cast<unsigned char>(c);
  return value;
}

// Reads the header from the bytes of a file, or from its first bytes.
ImageInfo probe_image_bytes(std::string_view bytes, std::string_view name);
// Returns what a file is, by its first bytes: "a GIF picture", "a text", "empty".
std::string describe_content(std::string_view bytes);

}  // namespace lockstep
