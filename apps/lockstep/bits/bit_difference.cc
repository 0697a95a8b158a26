#include "apps/lockstep/bits/bit_difference.h"

#include <fmt/ranges.h>

#include <cstddef>
#include <cstring>
#include <fstream>
#include <iterator>

#include "lockstep/base/error.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::app {
namespace {

std::string value_text(DType dtype, const std::byte* at) {
  return visit_dtype(dtype, [&]<typename T>(T value) {
    std::memcpy(&value, at, sizeof(T));
    if constexpr (is_half<T>) {
      return fmt::format("{}", static_cast<float>(value));
    } else {
      return fmt::format("{}", value);
    }
  });
}

std::string bits_text(const std::byte* at, std::size_t size) {
  std::string text;
  for (std::size_t i = size; i-- > 0;) text += fmt::format("{:02x}", static_cast<unsigned>(at[i]));
  return text;
}

DType dtype_named(const std::string& text) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64, DType::i64, DType::u8, DType::f16, DType::boolean}) {
    if (name(dtype) == text) return dtype;
  }
  fail("bisect: found type {}", text);
}

std::string bytes_in(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  check(file.is_open(), "cannot open {}", path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

std::optional<BitDifference> compare_bits(const nlohmann::json& a, const nlohmann::json& b) {
  const DType dtype = dtype_named(a.at("dtype"));
  const std::size_t size = item_size(dtype);
  const std::string of[] = {bytes_in(a.at("value")), bytes_in(b.at("value"))};
  if (a.at("dtype") != b.at("dtype") || of[0].size() != of[1].size()) return std::nullopt;
  BitDifference found{.elements = static_cast<std::int64_t>(of[0].size() / size)};
  for (std::int64_t i = 0; i < found.elements; ++i) {
    const std::size_t at = static_cast<std::size_t>(i) * size;
    if (std::memcmp(of[0].data() + at, of[1].data() + at, size) == 0) continue;
    if (found.count++ > 0) continue;
    found.first = i;
    for (std::size_t k = 0; k < 2; ++k) {
      const auto* bytes = reinterpret_cast<const std::byte*>(of[k].data() + at);
      found.values[k] = value_text(dtype, bytes);
      found.bits[k] = bits_text(bytes, size);
    }
  }
  return found.count > 0 ? std::optional(found) : std::nullopt;
}

std::string shape_text(const nlohmann::json& shape) {
  return fmt::format("[{}]", fmt::join(shape.get<std::vector<std::int64_t>>(), ", "));
}

std::vector<std::int64_t> index_of(std::int64_t element, const nlohmann::json& shape) {
  std::vector<std::int64_t> index(shape.size());
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    const std::int64_t extent = shape[axis];
    index[axis] = element % extent;
    element /= extent;
  }
  return index;
}

}  // namespace lockstep::app
