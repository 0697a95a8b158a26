// Pictures as tensors: JPEG and PNG, decoded to the same bits on every machine, and written.
//
//   Tensor photo = read_image("cat.jpg");                          // u8 [3, height, width], red, green, blue
//   write_png("gray.png", read_image("cat.jpg", {.channels = 1}));
//   auto [format, height, width, channels] = probe_image("cat.jpg");
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "lockstep/autograd/tensor.h"

namespace LOCKSTEP_API lockstep {

enum class ImageFormat { jpeg, png };

// What a file's header says.
struct ImageInfo {
  ImageFormat format = ImageFormat::png;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 0;  // 1: gray, 3: color
};

// Pillow refuses larger pictures, too.
inline constexpr std::int64_t kMaxImagePixels = 178'956'970;

struct ImageOptions {
  // 1: gray, by (19595 R + 38470 G + 7471 B + 32768) >> 16, as Pillow. 3: color. 0: as in the file.
  std::int64_t channels = 0;
  // A picture with more pixels is an error before memory is allocated for it. 0: kMaxImagePixels, and decoding may take
  // no more than 64 MiB or 256 times the size of the file, whichever is more.
  std::int64_t max_pixels = 0;
};

// Returns the picture as a host tensor, u8 [channels, height, width], as torchvision.io.decode_image. `bytes` is a
// whole file; its content, not its name, says which format it has. Throws an error that calls it `name` for other
// formats (named if known), truncated or damaged data, and too many pixels.
//
// JPEG: the integer inverse DCT and plain upsampling of libjpeg-turbo, which have the same bits on every processor;
// Pillow interpolates colors between pixels and so differs by a few levels. CMYK becomes RGB. Whatever libjpeg warns
// about is an error. PNG: a palette becomes color, 16-bit samples keep their high byte, transparency is dropped as by
// Pillow's convert("RGB"), and gamma is ignored. Orientation (EXIF) is ignored, as by default in torchvision.
Tensor decode_image(std::string_view bytes, const ImageOptions& options = {}, std::string_view name = "image");
Tensor read_image(const std::filesystem::path& path, const ImageOptions& options = {});

// Reads the header only, usually a few KB of a file.
ImageInfo probe_image(const std::filesystem::path& path);

// Returns the bytes of a PNG file. `image` is a u8 host tensor [channels, height, width] with one or three channels, or
// [height, width].
std::string encode_png(const Tensor& image);
void write_png(const std::filesystem::path& path, const Tensor& image);

struct JpegOptions {
  int quality = 75;  // 1 to 100
};
std::string encode_jpeg(const Tensor& image, const JpegOptions& options = {});
void write_jpeg(const std::filesystem::path& path, const Tensor& image, const JpegOptions& options = {});

// JPEG decoder, which decides pixels, for the recipe of a training run: "libjpeg-turbo 2.1.5". PNG is lossless.
std::string image_decoder_version();

}  // namespace lockstep
