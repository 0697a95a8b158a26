// Thousands of damaged files: each is either read or refused with an Error. Under AddressSanitizer and
// UndefinedBehaviorSanitizer, the test also shows that no memory error occurs.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/weights.h"
#include "tests/mutate.h"

namespace lockstep {
namespace {

std::string valid_file() {
  static const std::array<std::byte, 96> data{};
  auto bytes = [&](std::size_t count) { return std::span(data).first(count); };
  const std::vector<TensorBytes> tensors{{"0.weight", DType::f32, Shape{2, 3, 2}, bytes(48)},
                                         {"0.bias", DType::bf16, Shape{2}, bytes(4)},
                                         {"1.num_batches_tracked", DType::i64, Shape{}, bytes(8)},
                                         {"empty", DType::f64, Shape{3, 0}, bytes(0)},
                                         {"pixels", DType::u8, Shape{5, 1, 1, 1, 1, 1}, bytes(5)}};
  std::string file;
  write_safetensors(
      [&](std::span<const std::byte> piece) { file.append(reinterpret_cast<const char*>(piece.data()), piece.size()); },
      tensors, {{"format", "pt"}});
  return file;
}

// Pieces of headers, and numbers at the edges of what integers hold.
constexpr std::array<std::string_view, 29> kPieces{"{",
                                                   "}",
                                                   "[",
                                                   "]",
                                                   ",",
                                                   ":",
                                                   "\"",
                                                   "-1",
                                                   "0",
                                                   "1",
                                                   "1.5",
                                                   "1e400",
                                                   "null",
                                                   "true",
                                                   "{}",
                                                   "[[]]",
                                                   "\"F32\"",
                                                   "\"U8\"",
                                                   "\"I64\"",
                                                   "\"BOOL\"",
                                                   "\"I32\"",
                                                   "\"F4\"",
                                                   "\\u0000",
                                                   "9223372036854775807",
                                                   "9223372036854775808",
                                                   "18446744073709551616",
                                                   "4294967296",
                                                   "__metadata__",
                                                   "\xc3"};

// With the header length put right, so that the mutation gets past the first check.
void correct_length(std::string& file) {
  const std::size_t end = file.find("}}");
  if (file.size() < 8 || end == file.npos || end < 8) return;
  const std::size_t last = file.find_last_of('}');
  const std::uint64_t size = (last + 1 - 8 + 7) / 8 * 8;
  std::memcpy(file.data(), &size, 8);
}

// Touches every byte that the reader says belongs to a tensor, so that a sanitizer sees a wrong one.
void check_consistent(const SafetensorsFile& file) {
  std::size_t bytes = 0;
  for (const TensorBytes& tensor : file.tensors) {
    EXPECT_EQ(tensor.bytes.size(), static_cast<std::size_t>(tensor.shape.numel()) * item_size(tensor.dtype));
    bytes += tensor.bytes.size();
    volatile std::byte sink{};
    for (std::byte b : tensor.bytes) sink = b;
    static_cast<void>(sink);
  }
  for (const ForeignTensor& tensor : file.foreign) {
    bytes += tensor.bytes.size();
    EXPECT_EQ(tensor.describe().find('\n'), std::string::npos);
    volatile std::byte sink{};
    for (std::byte b : tensor.bytes) sink = b;
    static_cast<void>(sink);
  }
  EXPECT_LE(as_tensors(file).size(), file.tensors.size() + file.foreign.size());
  EXPECT_LT(bytes, file.contents->size());
}

TEST(SafetensorsFuzz, DamagedFilesAreReadOrRefused) {
  const std::string valid = valid_file();
  constexpr int kRounds = 20000;
  int read = 0, refused = 0;
  for (int round = 0; round < kRounds; ++round) {
    Dice dice(static_cast<std::uint64_t>(round));
    std::string file = mutated(valid, dice, {.pieces = kPieces});
    if (dice.below(2) == 0) correct_length(file);
    try {
      check_consistent(parse_safetensors(file, "fuzz"));
      ++read;
    } catch (const Error& error) {
      EXPECT_TRUE(std::string_view(error.what()).starts_with("fuzz: ")) << error.what();
      ++refused;
    }
  }
  // Both happen often, or the mutations test nothing.
  EXPECT_GT(read, kRounds / 50);
  EXPECT_GT(refused, kRounds / 2);
}

TEST(SafetensorsFuzz, EveryPrefixIsRefused) {
  const std::string valid = valid_file();
  check_consistent(parse_safetensors(valid, "whole"));
  for (std::size_t size = 0; size < valid.size(); ++size) {
    EXPECT_THROW(parse_safetensors(valid.substr(0, size), "prefix"), Error) << size;
  }
}

}  // namespace
}  // namespace lockstep
