#include <array>
#include <cstring>
#include <span>

#include "lockstep/checkpoint/weights.h"
#include "tests/fuzz/reader.h"

namespace lockstep::fuzz {

Reader safetensors() {
  static const std::array<std::byte, 96> data{};
  const auto file = [](const std::vector<TensorBytes>& tensors) {
    std::string bytes;
    write_safetensors(
        [&](std::span<const std::byte> piece) {
          bytes.append(reinterpret_cast<const char*>(piece.data()), piece.size());
        },
        tensors, {{"format", "pt"}});
    return bytes;
  };
  const auto some = [](std::size_t count) { return std::span(data).first(count); };
  return {.read =
              [](const std::string& bytes) {
                const SafetensorsFile found = parse_safetensors(bytes, "fuzz");
                for (const ForeignTensor& tensor : found.foreign) tensor.describe();
                as_tensors(found);
              },
          .seeds = {file({}), file({{"weight", DType::f32, Shape{2, 3, 2}, some(48)},
                                    {"bias", DType::bf16, Shape{2}, some(4)},
                                    {"count", DType::i64, Shape{}, some(8)},
                                    {"empty", DType::f64, Shape{3, 0}, some(0)},
                                    {"pixels", DType::u8, Shape{5, 1, 1, 1, 1, 1}, some(5)}})},
          .words = json_words({"\"F32\"", "\"U8\"", "\"BOOL\"", "\"I32\"", "\"F8_E4M3\"", "\"C64\"", "\"F4\"",
                               "__metadata__", "dtype", "shape", "data_offsets", "[0,0]", "[0,4]"}),
          .repair =
              [](std::string& bytes) {
                const std::size_t end = bytes.rfind("}}");
                if (bytes.size() < 10 || end == bytes.npos || end < 8) return;
                const std::uint64_t header = end + 2 - 8;
                std::memcpy(bytes.data(), &header, sizeof header);
              },
          .memory_per_byte = 60};
}

}  // namespace lockstep::fuzz
