#include <cstdio>

#include <jpeglib.h>

#include <jerror.h>

#include <csetjmp>
#include <cstdlib>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/formats/image_codec.h"

#ifndef LIBJPEG_TURBO_VERSION
#error "libjpeg is not libjpeg-turbo, whose decoder has the same bits on every processor"
#endif
#define LOCKSTEP_TEXT_OF(x) #x
#define LOCKSTEP_TEXT(x) LOCKSTEP_TEXT_OF(x)

namespace lockstep {
namespace {

// libjpeg leaves its functions by longjmp, which skips destructors. So each function that calls setjmp has no objects
// with destructors, and neither has a function that libjpeg calls.
struct JpegErrors {
  jpeg_error_mgr manager;
  std::jmp_buf back;
  char message[JMSG_LENGTH_MAX];
};

[[noreturn]] void leave_jpeg(j_common_ptr info) {
  auto* errors = reinterpret_cast<JpegErrors*>(info->err);
  errors->manager.format_message(info, errors->message);
  std::longjmp(errors->back, 1);
}

void leave_jpeg_at_warning(j_common_ptr info, int level) {
  if (level < 0) leave_jpeg(info);  // levels from 0 are traces
}

void stop_endless_scans(j_common_ptr info) {
  // A crafted file could decode the same pixels for hours. A typical progressive file has ten scans.
  constexpr int kMostScans = 500;
  if (info->is_decompressor && reinterpret_cast<j_decompress_ptr>(info)->input_scan_number > kMostScans) {
    auto* errors = reinterpret_cast<JpegErrors*>(info->err);
    std::snprintf(errors->message, sizeof(errors->message), "more than %d scans", kMostScans);
    std::longjmp(errors->back, 1);
  }
}

void set_up(JpegErrors& errors) {
  jpeg_std_error(&errors.manager);
  errors.manager.error_exit = leave_jpeg;
  errors.manager.emit_message = leave_jpeg_at_warning;
}

class JpegDecoder {
 public:
  JpegDecoder() {
    set_up(errors_);
    info_.err = &errors_.manager;
    progress_.progress_monitor = stop_endless_scans;
  }
  ~JpegDecoder() { jpeg_destroy_decompress(&info_); }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  // Each of these functions returns false after an error, which message() describes.
  bool read_header(std::string_view bytes) {
    if (setjmp(errors_.back) != 0) return false;
    jpeg_create_decompress(&info_);
    info_.progress = &progress_;
    jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
    jpeg_read_header(&info_, TRUE);
    return true;
  }
  bool start(J_COLOR_SPACE colors) {
    if (setjmp(errors_.back) != 0) return false;
    info_.out_color_space = colors;
    info_.dct_method = JDCT_ISLOW;
    info_.do_fancy_upsampling = FALSE;
    info_.do_block_smoothing = FALSE;
    jpeg_start_decompress(&info_);
    return true;
  }
  bool read_row(std::uint8_t* row) {
    if (setjmp(errors_.back) != 0) return false;
    JSAMPROW rows[] = {row};
    jpeg_read_scanlines(&info_, rows, 1);
    return true;
  }
  bool finish() {
    if (setjmp(errors_.back) != 0) return false;
    jpeg_finish_decompress(&info_);
    return true;
  }
  // libjpeg keeps a picture of several scans as 16-bit coefficients until the last scan. Others need a few rows.
  std::int64_t coefficient_bytes() {
    if (!jpeg_has_multiple_scans(&info_)) return 0;
    std::int64_t bytes = 0;
    for (const jpeg_component_info& c : std::span(info_.comp_info, static_cast<std::size_t>(info_.num_components))) {
      bytes += std::int64_t{c.width_in_blocks} * c.height_in_blocks * DCTSIZE2 * 2;
    }
    return bytes;
  }
  const jpeg_decompress_struct& info() const { return info_; }
  const char* message() const { return errors_.message; }

 private:
  jpeg_decompress_struct info_{};
  JpegErrors errors_{};
  jpeg_progress_mgr progress_{};
};

class JpegEncoder {
 public:
  JpegEncoder() {
    set_up(errors_);
    info_.err = &errors_.manager;
  }
  ~JpegEncoder() {
    jpeg_destroy_compress(&info_);
    std::free(bytes_);
  }
  JpegEncoder(const JpegEncoder&) = delete;
  JpegEncoder& operator=(const JpegEncoder&) = delete;

  bool encode(const InterleavedImage& image, int quality) {
    if (setjmp(errors_.back) != 0) return false;
    jpeg_create_compress(&info_);
    jpeg_mem_dest(&info_, &bytes_, &size_);
    info_.image_width = static_cast<JDIMENSION>(image.width);
    info_.image_height = static_cast<JDIMENSION>(image.height);
    info_.input_components = static_cast<int>(image.channels);
    info_.in_color_space = image.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&info_);
    info_.dct_method = JDCT_ISLOW;
    jpeg_set_quality(&info_, quality, TRUE);
    jpeg_start_compress(&info_, TRUE);
    const auto* data = reinterpret_cast<const unsigned char*>(image.bytes.data());
    const std::size_t row = static_cast<std::size_t>(image.width) * static_cast<std::size_t>(image.channels);
    while (info_.next_scanline < info_.image_height) {
      JSAMPROW rows[] = {const_cast<unsigned char*>(data + info_.next_scanline * row)};
      jpeg_write_scanlines(&info_, rows, 1);
    }
    jpeg_finish_compress(&info_);
    return true;
  }
  std::string_view bytes() const { return {reinterpret_cast<const char*>(bytes_), size_}; }
  const char* message() const { return errors_.message; }

 private:
  jpeg_compress_struct info_{};
  JpegErrors errors_{};
  unsigned char* bytes_ = nullptr;
  unsigned long size_ = 0;
};

// Adobe's files hold 255 minus the ink.
void cmyk_to_rgb(std::span<const std::uint8_t> cmyk, bool inverted, std::span<std::uint8_t> rgb) {
  const auto light = [&](std::uint8_t ink) { return inverted ? ink : 255 - ink; };
  for (std::size_t x = 0; x < rgb.size() / 3; ++x) {
    for (std::size_t c = 0; c < 3; ++c)
      rgb[3 * x + c] = static_cast<std::uint8_t>((light(cmyk[4 * x + c]) * light(cmyk[4 * x + 3]) + 127) / 255);
  }
}

}  // namespace

Tensor decode_jpeg(const EncodedImage& image) {
  const std::string_view bytes = image.bytes, name = image.name;
  const ImageInfo& info = image.info;
  JpegDecoder decoder;
  const auto succeeded = [&](bool ok) { check(ok, "{}: a broken JPEG picture: {}", name, decoder.message()); };
  succeeded(decoder.read_header(bytes));
  const jpeg_decompress_struct& jpeg = decoder.info();
  check(jpeg.data_precision == 8, "{}: a JPEG picture of {} bits, expected 8", name, jpeg.data_precision);
  check(jpeg.image_width == info.width && jpeg.image_height == info.height,
        "{}: a broken JPEG picture: one header says {} x {} pixels, another one {} x {}", name, info.width, info.height,
        jpeg.image_width, jpeg.image_height);
  // Huffman codes spend at least a bit on each block of 64 samples.
  check(jpeg.arith_code || info.height * info.width / 512 <= static_cast<std::int64_t>(bytes.size()),
        "{}: truncated: the header says {} x {} pixels, {} bytes cannot hold so many", name, info.width, info.height,
        bytes.size());
  image.check_memory(decoder.coefficient_bytes());
  const bool gray = jpeg.num_components == 1, cmyk = jpeg.num_components == 4;
  succeeded(decoder.start(gray ? JCS_GRAYSCALE : cmyk ? JCS_CMYK : JCS_RGB));
  const auto width = static_cast<std::size_t>(info.width);
  std::vector<std::uint8_t> row(width * static_cast<std::size_t>(jpeg.output_components)), rgb(cmyk ? 3 * width : 0);
  ImageRows rows(info, image.channels);
  while (jpeg.output_scanline < jpeg.output_height) {
    succeeded(decoder.read_row(row.data()));
    if (cmyk) cmyk_to_rgb(row, jpeg.saw_Adobe_marker, rgb);
    if (gray) {
      rows.add_gray(row);
    } else {
      rows.add_rgb(cmyk ? rgb : row);
    }
  }
  succeeded(decoder.finish());
  return rows.take();
}

std::string encode_jpeg(const InterleavedImage& image, int quality) {
  JpegEncoder encoder;
  check(encoder.encode(image, quality), "encode_jpeg: {}", encoder.message());
  return std::string(encoder.bytes());
}

std::string jpeg_library_version() { return "libjpeg-turbo " LOCKSTEP_TEXT(LIBJPEG_TURBO_VERSION); }

}  // namespace lockstep
