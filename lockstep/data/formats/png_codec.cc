#include "lockstep/data/formats/png_codec.h"

#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstring>
#include <exception>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/formats/image_codec.h"

namespace lockstep {
namespace {

// libpng leaves its functions by longjmp, which skips destructors. So each function that calls setjmp has no objects
// with destructors, and neither has a function that libpng calls while it fails.
struct PngErrors {
  std::jmp_buf back;
  char message[128];
};

[[noreturn]] void leave_png(png_structp png, const char* message) {
  auto* errors = static_cast<PngErrors*>(png_get_error_ptr(png));
  std::snprintf(errors->message, sizeof(errors->message), "%s", message);
  std::longjmp(errors->back, 1);
}

// What libpng warns of, such as a color profile that it does not like, changes no pixel.
void ignore_png_warning(png_structp, const char*) {}

class PngReader {
 public:
  explicit PngReader(std::string_view bytes)
      : left_(bytes), png_(png_create_read_struct(PNG_LIBPNG_VER_STRING, &errors_, leave_png, ignore_png_warning)) {
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
    if (info_ == nullptr) {
      png_destroy_read_struct(&png_, nullptr, nullptr);
      throw std::bad_alloc();
    }
  }
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  // Each of these functions returns false after an error, which message() describes.
  bool read_header() {
    if (setjmp(errors_.back) != 0) return false;
    // Profiles and texts are not used, so a file must not make them large.
    png_set_chunk_malloc_max(png_, png_alloc_size_t{16} << 20);
    png_set_user_limits(png_, 0x7fffffff, 0x7fffffff);  // the caller limits pixels
    png_set_crc_action(png_, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
    png_set_read_fn(png_, this, [](png_structp png, png_bytep to, std::size_t count) {
      auto& left = static_cast<PngReader*>(png_get_io_ptr(png))->left_;
      if (count > left.size()) png_error(png, "unexpected end");
      std::memcpy(to, left.data(), count);
      left.remove_prefix(count);
    });
    png_read_info(png_, info_);
    return true;
  }
  std::int64_t height() const { return png_get_image_height(png_, info_); }
  std::int64_t width() const { return png_get_image_width(png_, info_); }
  bool begin() {
    if (setjmp(errors_.back) != 0) return false;
    png_set_expand(png_);
    png_set_strip_16(png_);
    png_set_strip_alpha(png_);
    png_set_gray_to_rgb(png_);
    (void)png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return true;
  }
  bool read_row(png_bytep row) {
    if (setjmp(errors_.back) != 0) return false;
    png_read_row(png_, row, nullptr);
    return true;
  }
  bool read_all(png_bytepp rows) {
    if (setjmp(errors_.back) != 0) return false;
    png_read_image(png_, rows);
    return true;
  }
  bool end() {
    if (setjmp(errors_.back) != 0) return false;
    png_read_end(png_, nullptr);
    return true;
  }
  const char* message() const { return errors_.message; }

 private:
  PngErrors errors_{};
  std::string_view left_;
  png_structp png_;
  png_infop info_ = nullptr;
};

class PngWriter {
 public:
  PngWriter() : png_(png_create_write_struct(PNG_LIBPNG_VER_STRING, &errors_, leave_png, ignore_png_warning)) {
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
    if (info_ == nullptr) {
      png_destroy_write_struct(&png_, nullptr);
      throw std::bad_alloc();
    }
  }
  ~PngWriter() { png_destroy_write_struct(&png_, &info_); }
  PngWriter(const PngWriter&) = delete;
  PngWriter& operator=(const PngWriter&) = delete;

  bool encode(const InterleavedImage& image) {
    if (setjmp(errors_.back) != 0) return false;
    png_set_write_fn(
        png_, this,
        [](png_structp png, png_bytep from, std::size_t count) {
          if (!static_cast<PngWriter*>(png_get_io_ptr(png))->append(from, count)) png_error(png, "out of memory");
        },
        nullptr);
    png_set_IHDR(png_, info_, static_cast<png_uint_32>(image.width), static_cast<png_uint_32>(image.height), 8,
                 image.channels == 1 ? PNG_COLOR_TYPE_GRAY : PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(png_, info_);
    const auto* data = reinterpret_cast<png_const_bytep>(image.bytes.data());
    for (std::int64_t y = 0; y < image.height; ++y) png_write_row(png_, data + y * image.width * image.channels);
    png_write_end(png_, info_);
    return true;
  }
  std::string take() { return std::move(bytes_); }
  const char* message() const { return errors_.message; }

 private:
  bool append(const unsigned char* from, std::size_t count) {
    try {
      bytes_.append(reinterpret_cast<const char*>(from), count);
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }

  PngErrors errors_{};
  std::string bytes_;
  png_structp png_;
  png_infop info_ = nullptr;
};

}  // namespace

void read_png(std::string_view bytes, const ImageInfo& info, bool interlaced,
              const std::function<void(std::span<const std::uint8_t> rgb)>& row, std::string_view name) {
  PngReader reader(bytes);
  const auto succeeded = [&](bool ok) { check(ok, "{}: a broken PNG picture: {}", name, reader.message()); };
  succeeded(reader.read_header());
  check(reader.width() == info.width && reader.height() == info.height,
        "{}: a broken PNG picture: one header says {} x {} pixels, another one {} x {}", name, info.width, info.height,
        reader.width(), reader.height());
  succeeded(reader.begin());
  const std::size_t width = 3 * static_cast<std::size_t>(info.width), height = static_cast<std::size_t>(info.height);
  if (interlaced) {
    std::vector<std::uint8_t> all(width * height);
    std::vector<png_bytep> rows(height);
    for (std::size_t y = 0; y < height; ++y) rows[y] = all.data() + y * width;
    succeeded(reader.read_all(rows.data()));
    for (std::size_t y = 0; y < height; ++y) row(std::span(all).subspan(y * width, width));
  } else {
    std::vector<std::uint8_t> rgb(width);
    for (std::size_t y = 0; y < height; ++y) {
      succeeded(reader.read_row(rgb.data()));
      row(rgb);
    }
  }
  succeeded(reader.end());
}

std::string encode_png(const InterleavedImage& image) {
  PngWriter writer;
  check(writer.encode(image), "encode_png: {}", writer.message());
  return writer.take();
}

}  // namespace lockstep
