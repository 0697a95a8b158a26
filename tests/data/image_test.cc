#include "lockstep/data/formats/image.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdio>

#include <jpeglib.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "lockstep/base/environment.h"
#include "lockstep/base/sha256.h"
#include "lockstep/data/formats/image_codec.h"
#include "tests/expect_error.h"
#include "tests/mutate.h"
#include "tests/process_limits.h"
#include "tests/temporary_folder.h"

namespace lockstep {
namespace {

using Pixels = std::vector<std::uint8_t>;

Tensor image_of(const Pixels& pixels, Shape shape) { return Tensor::from(std::span(pixels), shape); }
Pixels pixels_in(const Tensor& image) { return image.to_vector<std::uint8_t>(); }

// A smooth picture with some edges.
Tensor drawn_image(std::int64_t channels, std::int64_t height, std::int64_t width) {
  Pixels pixels;
  for (std::int64_t c = 0; c < channels; ++c) {
    for (std::int64_t y = 0; y < height; ++y) {
      for (std::int64_t x = 0; x < width; ++x) {
        const std::int64_t wave = (x * x / (5 + c) + y * (3 + c)) % 256;
        pixels.push_back(static_cast<std::uint8_t>((x / 8 + y / 8) % 3 == c ? 255 - wave : wave));
      }
    }
  }
  return image_of(pixels, {channels, height, width});
}

std::string image_hash(const Tensor& image) {
  const Pixels pixels = pixels_in(image);
  Sha256 hash;
  hash.update(std::as_bytes(std::span(pixels)));
  return hash.hex().substr(0, 16);
}

std::string big_endian_bytes(std::uint32_t x) {
  return {static_cast<char>(x >> 24), static_cast<char>(x >> 16), static_cast<char>(x >> 8), static_cast<char>(x)};
}

std::string png_chunk(std::string_view kind, std::string_view content) {
  const std::string both = std::string(kind) + std::string(content);
  const auto crc = crc32(0, reinterpret_cast<const Bytef*>(both.data()), static_cast<uInt>(both.size()));
  return big_endian_bytes(static_cast<std::uint32_t>(content.size())) + both +
         big_endian_bytes(static_cast<std::uint32_t>(crc));
}

std::string deflated(std::string_view bytes) {
  uLongf size = compressBound(bytes.size());
  std::string result(size, '\0');
  compress(reinterpret_cast<Bytef*>(result.data()), &size, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
  return result.substr(0, size);
}

// `rows` begin with the filter's byte each. `more` are chunks before the data.
std::string png_file(std::uint32_t width, std::uint32_t height, char bits, char color, std::string_view rows,
                     const std::string& more = {}, char interlaced = 0) {
  const std::string header =
      big_endian_bytes(width) + big_endian_bytes(height) + bits + color + '\0' + '\0' + interlaced;
  return "\x89PNG\r\n\x1a\n" + png_chunk("IHDR", header) + more + png_chunk("IDAT", deflated(rows)) +
         png_chunk("IEND", "");
}

std::string text_of(std::initializer_list<int> values) {
  std::string text;
  for (const int value : values) text += static_cast<char>(value);
  return text;
}

struct JpegKind {
  bool progressive = false;
  bool adobe = true;  // CMYK: its marker, which says that bytes are light, not ink
};

// Kinds that encode_jpeg() does not write. `pixels` has `channels` bytes each; four are CMYK.
std::string jpeg_file(const Pixels& pixels, std::uint32_t width, int channels, const JpegKind& kind) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors;
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &bytes, &size);
  info.image_width = width;
  info.image_height = static_cast<JDIMENSION>(pixels.size()) / width / static_cast<JDIMENSION>(channels);
  info.input_components = channels;
  info.in_color_space = channels == 4 ? JCS_CMYK : channels == 3 ? JCS_RGB : JCS_GRAYSCALE;
  jpeg_set_defaults(&info);
  info.dct_method = JDCT_ISLOW;
  if (!kind.adobe) info.write_Adobe_marker = FALSE;
  if (kind.progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    JSAMPROW row =
        const_cast<JSAMPROW>(pixels.data() + info.next_scanline * width * static_cast<std::uint32_t>(channels));
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  std::string file(reinterpret_cast<const char*>(bytes), size);
  jpeg_destroy_compress(&info);
  std::free(bytes);
  return file;
}

Pixels interleaved_pixels(const Tensor& image) { return pixels_in(image.permute({1, 2, 0})); }

TEST(ImageTest, PngKeepsEveryPixel) {
  const Tensor color = drawn_image(3, 13, 29), gray = drawn_image(1, 5, 3);
  EXPECT_EQ(pixels_in(decode_image(encode_png(color))), pixels_in(color));
  EXPECT_EQ(pixels_in(decode_image(encode_png(gray))), pixels_in(gray));
  EXPECT_EQ(decode_image(encode_png(gray)).shape(), (Shape{1, 5, 3}));
  EXPECT_EQ(decode_image(encode_png(gray.reshape({5, 3})), {.channels = 3}).shape(), (Shape{3, 5, 3}));
}

TEST(ImageTest, ReadsEveryKindOfPng) {
  // One row of two pixels.
  const auto decoded = [](const std::string& file) { return pixels_in(decode_image(file)); };
  EXPECT_EQ(decoded(png_file(2, 1, 8, 0, text_of({0, 7, 200}))), (Pixels{7, 200})) << "gray";
  EXPECT_EQ(decoded(png_file(2, 1, 8, 4, text_of({0, 7, 255, 200, 0}))), (Pixels{7, 200})) << "gray, transparency";
  EXPECT_EQ(decoded(png_file(2, 1, 16, 0, text_of({0, 7, 255, 200, 1}))), (Pixels{7, 200})) << "gray, 16 bits";
  EXPECT_EQ(decoded(png_file(2, 1, 1, 0, text_of({0, 0x40}))), (Pixels{0, 255})) << "gray, 1 bit";
  EXPECT_EQ(decoded(png_file(2, 1, 2, 0, text_of({0, 0x60}))), (Pixels{85, 170})) << "gray, 2 bits";
  EXPECT_EQ(decoded(png_file(2, 1, 4, 0, text_of({0, 0x1f}))), (Pixels{17, 255})) << "gray, 4 bits";
  EXPECT_EQ(decoded(png_file(2, 1, 8, 2, text_of({0, 1, 2, 3, 4, 5, 6}))), (Pixels{1, 4, 2, 5, 3, 6})) << "color";
  EXPECT_EQ(decoded(png_file(2, 1, 16, 2, text_of({0, 1, 9, 2, 9, 3, 9, 4, 255, 5, 255, 6, 255}))),
            (Pixels{1, 4, 2, 5, 3, 6}))
      << "color, 16 bits";
  EXPECT_EQ(decoded(png_file(2, 1, 8, 6, text_of({0, 1, 2, 3, 0, 4, 5, 6, 9}))), (Pixels{1, 4, 2, 5, 3, 6}))
      << "color, transparency";
  const std::string palette = png_chunk("PLTE", text_of({1, 2, 3, 4, 5, 6})) + png_chunk("tRNS", text_of({0, 0}));
  EXPECT_EQ(decoded(png_file(2, 1, 8, 3, text_of({0, 0, 1}), palette)), (Pixels{1, 4, 2, 5, 3, 6})) << "palette";
  EXPECT_EQ(decoded(png_file(2, 1, 1, 3, text_of({0, 0x40}), palette)), (Pixels{1, 4, 2, 5, 3, 6})) << "palette, 1 bit";
  // Adam7: of 2 x 2 pixels, pass 1 has the first, pass 6 the second, pass 7 the lower row.
  EXPECT_EQ(decoded(png_file(2, 2, 8, 0, text_of({0, 1, 0, 2, 0, 3, 4}), {}, 1)), (Pixels{1, 2, 3, 4})) << "interlaced";
}

TEST(ImageTest, GrayIsPillowsSumOfColors) {
  const std::string file = encode_png(image_of({255, 0, 0, 9, 0, 255, 0, 9, 0, 0, 255, 9}, {3, 1, 4}));
  EXPECT_EQ(pixels_in(decode_image(file, {.channels = 1})), (Pixels{76, 150, 29, 9}));
}

TEST(ImageTest, JpegHasTheSameBitsEverywhere) {
  // The hashes are those of libjpeg-turbo's loops without SIMD, too (JSIMD_FORCENONE=1).
  const std::string color = encode_jpeg(drawn_image(3, 45, 70)), gray = encode_jpeg(drawn_image(1, 45, 70));
  EXPECT_EQ(image_hash(decode_image(color)), "f4d48c58dfbf8200");
  EXPECT_EQ(image_hash(decode_image(color, {.channels = 1})), "6a060bbc09401adf");
  EXPECT_EQ(image_hash(decode_image(gray)), "8ca95d0f5582aa9c");
  const Pixels found = pixels_in(decode_image(encode_jpeg(drawn_image(1, 32, 32), {.quality = 100})));
  const Pixels expected = pixels_in(drawn_image(1, 32, 32));
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], 3) << i;
}

TEST(ImageTest, ProgressiveJpegHasThePixelsOfAPlainOne) {
  for (const int channels : {1, 3}) {
    const Tensor image = drawn_image(channels, 45, 70);
    const std::string plain = encode_jpeg(image);
    const std::string progressive = jpeg_file(interleaved_pixels(image), 70, channels, {.progressive = true});
    EXPECT_NE(plain, progressive);
    EXPECT_EQ(pixels_in(decode_image(progressive)), pixels_in(decode_image(plain)));
    EXPECT_ERROR(decode_image(progressive.substr(0, progressive.size() / 2)), "a broken JPEG picture");
  }
}

TEST(ImageTest, CmykJpegBecomesColor) {
  Pixels flat;
  for (int i = 0; i < 64; ++i) flat.insert(flat.end(), {255, 128, 0, 204});
  const std::string adobe = jpeg_file(flat, 8, 4, {}), plain = jpeg_file(flat, 8, 4, {.adobe = false});
  const auto color = [](const Tensor& image) {
    const Pixels all = pixels_in(image);
    return std::vector<int>{all[0], all[64], all[128]};
  };
  EXPECT_EQ(decode_image(adobe).shape(), (Shape{3, 8, 8}));
  EXPECT_EQ(color(decode_image(adobe)), (std::vector<int>{204, 102, 0}));  // light times light / 255, as Pillow
  EXPECT_EQ(color(decode_image(plain)), (std::vector<int>{0, 25, 51}));    // the bytes are ink
  EXPECT_EQ(probe_image_bytes(adobe, "").channels, 3);
  EXPECT_EQ(decode_image(adobe, {.channels = 1}).shape(), (Shape{1, 8, 8}));
}

// As torchvision's ImageFolder, whose pictures Pillow opens: a phone's portrait lies on its side.
TEST(ImageTest, ExifOrientationIsIgnored) {
  const std::string plain = encode_jpeg(drawn_image(3, 8, 12));
  // A directory of one entry: tag 0x112, a number of 16 bits, once, 6: turn by 90 degrees.
  std::string exif("Exif\0\0MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0", 32);
  std::string turned = plain;
  turned.insert(2, "\xff\xe1" + big_endian_bytes(static_cast<std::uint32_t>(exif.size()) + 2).substr(2) + exif);
  EXPECT_EQ(decode_image(turned).shape(), (Shape{3, 8, 12}));
  EXPECT_EQ(pixels_in(decode_image(turned)), pixels_in(decode_image(plain)));
}

TEST(ImageTest, TellsWhatAHeaderSays) {
  const ImageInfo png = probe_image_bytes(png_file(2, 1, 8, 4, {}), "");
  const ImageInfo jpeg = probe_image_bytes(encode_jpeg(drawn_image(3, 4, 6)), "");
  EXPECT_EQ(png.format, ImageFormat::png);
  EXPECT_EQ(std::tuple(png.height, png.width, png.channels), std::tuple(1, 2, 1));
  EXPECT_EQ(jpeg.format, ImageFormat::jpeg);
  EXPECT_EQ(std::tuple(jpeg.height, jpeg.width, jpeg.channels), std::tuple(4, 6, 3));

  // A camera's header may be longer than the first piece that is read.
  std::string long_header = encode_jpeg(drawn_image(1, 4, 6));
  for (int i = 0; i < 3; ++i) long_header.insert(2, "\xff\xe1\xff\xff" + std::string(65533, 'x'));
  const TemporaryFolder folder;
  EXPECT_EQ(probe_image(folder.write("long.jpg", long_header)).width, 6);
  EXPECT_EQ(read_image(folder / "long.jpg").shape(), (Shape{1, 4, 6}));
}

TEST(ImageTest, RefusesOtherFormatsByTheirContent) {
  const TemporaryFolder folder;
  EXPECT_ERROR(read_image(folder.write("a.jpg", "GIF89a....")), "a.jpg: it is a GIF picture, expected a JPEG or PNG");
  EXPECT_ERROR(decode_image("RIFF....WEBPVP8 "), "a WebP picture");
  EXPECT_ERROR(decode_image("one,two\n1,2\n"), "a text");
  EXPECT_ERROR(decode_image(""), "empty");
  EXPECT_ERROR(read_image(folder / "none.png"), "none.png: No such file");
  EXPECT_ERROR(read_image(folder.path()), "not a regular file");
  EXPECT_ERROR(read_image(folder.write("b\xff\n.png", "x")), "b\\xff\\x0a.png: it is a text");
}

TEST(ImageTest, LimitsPixelsBeforeItAllocates) {
  EXPECT_ERROR(decode_image(png_file(60000, 60000, 8, 2, {}), {}, "big.png"),
               "big.png: 60000 x 60000 = 3600000000 pixels, the limit (max_pixels) is 178956970");
  EXPECT_ERROR(decode_image(png_file(10000, 10000, 8, 2, {})), "truncated: the header says 10000 x 10000 pixels");
  EXPECT_ERROR(decode_image(png_file(4293813092, 4038840264, 8, 2, {})), "a picture of 4293813092 x 4038840264 pixels");
  std::string jpeg = encode_jpeg(drawn_image(1, 8, 8));
  jpeg.replace(jpeg.find("\xff\xc0") + 5, 4, "\x27\x10\x27\x10");
  EXPECT_ERROR(decode_image(jpeg), "truncated: the header says 10000 x 10000 pixels");
  // Arithmetic codes spend less than a bit on a block.
  jpeg.replace(jpeg.find("\xff\xc0"), 2, "\xff\xc9");
  const MemoryLimit limit(rlim_t{80} << 20);
  EXPECT_ERROR(decode_image(jpeg, {}, "a.jpg"),
               fmt::format("a.jpg: 10000 x 10000 pixels: takes 100000000 bytes of memory, the limit for a file of {} "
                           "bytes is 67108864; max_pixels = 100000000 reads it",
                           jpeg.size()));
  EXPECT_ERROR(decode_image(encode_png(drawn_image(1, 8, 8)), {.max_pixels = 63}), "8 x 8 = 64 pixels");
}

// A bit for each pixel, all black.
std::string large_png(std::uint32_t edge, bool interlaced = false) {
  return png_file(edge, edge, 1, 0, std::string((std::size_t{edge} / 8 + 2) * edge * (interlaced ? 2 : 1), '\0'), {},
                  interlaced ? 1 : 0);
}

TEST(ImageTest, ASmallFileTakesLittleMemory) {
  const std::string file = large_png(10'000);
  ASSERT_LT(file.size(), 20'000U);
  {
    const MemoryLimit limit(rlim_t{80} << 20);
    EXPECT_ERROR(decode_image(file, {}, "a.png"), "a.png: 10000 x 10000 pixels: takes 100030000 bytes of memory");
    // Eight thousand pixels are within any limit, and of color they are not.
    EXPECT_EQ(decode_image(large_png(8'000)).numel(), 64'000'000);
    EXPECT_ERROR(decode_image(large_png(8'000), {.channels = 3}), "takes 192024000 bytes of memory");
    EXPECT_ERROR(decode_image(large_png(4'160, true)), "takes 69222400 bytes of memory");
  }
  // Nothing is there three times: the tensor, and a row of colors.
  const MemoryLimit limit(rlim_t{130} << 20);
  EXPECT_EQ(decode_image(file, {.max_pixels = 100'000'000}).numel(), 100'000'000);
}

TEST(ImageTest, TruncatedFilesAreErrors) {
  for (const std::string& file : {encode_jpeg(drawn_image(3, 20, 20)), encode_png(drawn_image(3, 20, 20))}) {
    for (std::size_t size = 0; size < file.size(); size += size + 64 < file.size() ? 13 : 1)
      EXPECT_ERROR(decode_image(file.substr(0, size), {}, "cut.jpg"), "cut.jpg: ");
  }
  std::string damaged = encode_jpeg(drawn_image(3, 20, 20));
  damaged.insert(damaged.size() - 2, std::string(50, 'x'));
  EXPECT_ERROR(decode_image(damaged, {}, "cat.jpg"), "cat.jpg: a broken JPEG picture: Corrupt JPEG data");
}

TEST(ImageTest, EncodersCheckTheirPicture) {
  EXPECT_ERROR(encode_png(Tensor::host({3, 2, 2})), "encode_png: found [3, 2, 2] f32");
  EXPECT_ERROR(encode_png(Tensor::host({4, 2, 2}, DType::u8)), "1 or 3 channels");
  EXPECT_ERROR(encode_jpeg(drawn_image(1, 2, 2), {.quality = 0}), "quality 0, expected 1 to 100");
}

TEST(ImageTest, DamagedFilesAreReadOrRefused) {
  constexpr std::string_view kPieces[] = {"\xff\xd8", "\xff\xda", "\xff\xc2", "\xff\xdb",
                                          "\xff\xc4", "\xff\xee", "IHDR",     "IDAT",
                                          "PLTE",     "tRNS",     "IEND",     "\xff\xff\xff\xff"};
  const std::string files[] = {encode_jpeg(drawn_image(3, 17, 9)), encode_jpeg(drawn_image(1, 9, 9)),
                               encode_png(drawn_image(3, 9, 5)),
                               png_file(2, 2, 8, 0, text_of({0, 1, 0, 2, 0, 3, 4}), {}, 1)};
  Dice dice(static_cast<std::uint64_t>(environment_integer("LOCKSTEP_TEST_SEED", 0, 1 << 30).value_or(7)));
  // For a search: LOCKSTEP_TEST_CASES=1000000 LOCKSTEP_TEST_SEED=1.
  const std::int64_t count = environment_integer("LOCKSTEP_TEST_CASES", 1, 100'000'000).value_or(2000);
  std::int64_t refused = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::string file = mutated(files[dice.below(std::size(files))], dice, {.pieces = kPieces, .front = 200});
    try {
      decode_image(file, {.channels = static_cast<std::int64_t>(dice.below(2)), .max_pixels = 1 << 20});
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, count / 2);
}

}  // namespace
}  // namespace lockstep
