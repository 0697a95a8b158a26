#include "lockstep/data/formats/file_array.h"

#include <fmt/ranges.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "lockstep/data/formats/byte_source.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little, "arrays in memory are little-endian");

template <typename Visitor>
void visit_element_type(ElementType type, const Visitor& visitor) {
  switch (type) {
    case ElementType::boolean: return visitor(std::uint8_t{});
    case ElementType::u8: return visitor(std::uint8_t{});
    case ElementType::i8: return visitor(std::int8_t{});
    case ElementType::u16: return visitor(std::uint16_t{});
    case ElementType::i16: return visitor(std::int16_t{});
    case ElementType::u32: return visitor(std::uint32_t{});
    case ElementType::i32: return visitor(std::int32_t{});
    case ElementType::u64: return visitor(std::uint64_t{});
    case ElementType::i64: return visitor(std::int64_t{});
    case ElementType::f16: return visitor(Float16{});
    case ElementType::bf16: return visitor(BFloat16{});
    case ElementType::f32: return visitor(float{});
    case ElementType::f64: return visitor(double{});
  }
}

// Reads an element at any address, in either byte order.
template <typename From>
From element(const std::byte* at, bool big_endian) {
  std::byte bytes[sizeof(From)];
  for (std::size_t i = 0; i < sizeof(From); ++i) bytes[i] = at[big_endian ? sizeof(From) - 1 - i : i];
  From value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

// Converts half types to float, because C++ cannot compute with them.
template <typename From>
auto plain_number(From value) {
  if constexpr (is_half<From>) {
    return static_cast<float>(value);
  } else {
    return value;
  }
}

// Whether the number is a whole number within i64.
template <typename From>
bool fits_i64(From value) {
  if constexpr (std::is_floating_point_v<From>) {
    return value >= From(-0x1p63) && value < From(0x1p63) && value == std::trunc(value);
  } else if constexpr (std::is_same_v<From, std::uint64_t>) {
    return value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  } else {
    return true;
  }
}

}  // namespace

std::string_view name(ElementType type) {
  switch (type) {
    case ElementType::boolean: return "bool";
    case ElementType::u8: return "u8";
    case ElementType::i8: return "i8";
    case ElementType::u16: return "u16";
    case ElementType::i16: return "i16";
    case ElementType::u32: return "u32";
    case ElementType::i32: return "i32";
    case ElementType::u64: return "u64";
    case ElementType::i64: return "i64";
    case ElementType::f16: return "f16";
    case ElementType::bf16: return "bf16";
    case ElementType::f32: return "f32";
    case ElementType::f64: return "f64";
  }
  return "?";
}

ElementType parse_element_type(std::string_view text) {
  for (int i = 0; i <= static_cast<int>(ElementType::f64); ++i) {
    if (name(static_cast<ElementType>(i)) == text) return static_cast<ElementType>(i);
  }
  fail("element type \"{}\", expected one such as u8, i64, or f32", text);
}

std::size_t item_size(ElementType type) {
  std::size_t size = 0;
  visit_element_type(type, [&](auto element) { size = sizeof element; });
  return size;
}

bool is_floating(ElementType type) {
  return type == ElementType::f16 || type == ElementType::bf16 || type == ElementType::f32 || type == ElementType::f64;
}

FileArray::FileArray(std::shared_ptr<const ByteSource> source, ArrayLayout layout, std::string name)
    : source_(std::move(source)), layout_(std::move(layout)), name_(std::move(name)) {
  std::int64_t bytes = static_cast<std::int64_t>(item_size(layout_.type));
  bool countable = true;
  for (std::size_t axis = 1; axis < layout_.dims.size(); ++axis) {
    const std::int64_t dim = layout_.dims[axis];
    countable = countable && dim >= 0 && !__builtin_mul_overflow(bytes, dim, &bytes);
    row_elements_ = countable ? row_elements_ * dim : 0;
  }
  row_bytes_ = static_cast<std::uint64_t>(bytes);
  const std::int64_t count = rows();
  countable = countable && count >= 0;
  if (layout_.stride == 0) layout_.stride = row_bytes_;
  std::uint64_t needed = 0;
  if (countable && count > 0) {
    countable = !__builtin_mul_overflow(static_cast<std::uint64_t>(count - 1), layout_.stride, &needed) &&
                !__builtin_add_overflow(needed, row_bytes_, &needed);
  }
  check(countable, "{}: {} [{}] has more bytes than can be counted", name_, lockstep::name(layout_.type),
        fmt::join(layout_.dims, ", "));
  check(layout_.offset <= source_->size() && needed <= source_->size() - layout_.offset,
        "{}: truncated: {} takes {} bytes, the file has {}", name_, describe(), needed,
        source_->size() - std::min(layout_.offset, source_->size()));
}

FileArray::FileArray(std::string bytes, ElementType type, std::vector<std::int64_t> dims, std::string name)
    : FileArray(bytes_in_memory(std::move(bytes)), ArrayLayout{.type = type, .dims = std::move(dims)},
                std::move(name)) {}

std::uint64_t FileArray::bytes() const { return row_bytes_ * static_cast<std::uint64_t>(rows()); }

std::string FileArray::describe() const {
  return fmt::format("{} [{}]", lockstep::name(layout_.type), fmt::join(layout_.dims, ", "));
}

void FileArray::read_bytes(std::int64_t first, std::int64_t count, std::span<std::byte> out) const {
  check(first >= 0 && count >= 0 && first <= rows() && count <= rows() - first, "{}: rows {} to {} of {}", name_, first,
        first + count, rows());
  check(out.size() == row_bytes_ * static_cast<std::uint64_t>(count), "{}: {} bytes for {} rows, expected {}", name_,
        out.size(), count, row_bytes_ * static_cast<std::uint64_t>(count));
  const std::uint64_t begin = layout_.offset + static_cast<std::uint64_t>(first) * layout_.stride;
  if (layout_.stride == row_bytes_) {
    source_->read(begin, out);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const auto row = static_cast<std::uint64_t>(i);
    source_->read(begin + row * layout_.stride, out.subspan(row * row_bytes_, row_bytes_));
  }
}

const std::byte* FileArray::row_in_memory(std::int64_t row) const {
  const std::byte* const all = source_->in_memory();
  return all ? all + layout_.offset + static_cast<std::uint64_t>(row) * layout_.stride : nullptr;
}

template <typename T>
void FileArray::read_as(std::int64_t first, std::int64_t count, std::span<T> out) const {
  check(std::ssize(out) == count * row_elements_, "{}: {} elements for {} rows, expected {}", name_, out.size(), count,
        count * row_elements_);
  std::vector<std::byte> buffer(row_bytes_ * static_cast<std::uint64_t>(count));
  read_bytes(first, count, buffer);
  const std::size_t size = item_size(layout_.type);
  visit_element_type(layout_.type, [&](auto kind) {
    using From = decltype(kind);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const auto value = plain_number(element<From>(buffer.data() + i * size, layout_.big_endian));
      if constexpr (std::is_same_v<T, std::int64_t>) {
        if (!fits_i64(value)) {
          fail("{}: row {} has {}, expected a whole number within 64 bits", name_,
               first + static_cast<std::int64_t>(i) / row_elements_, value);
        }
      }
      out[i] = static_cast<T>(value);
    }
  });
}

void FileArray::read(std::int64_t first, std::int64_t count, std::span<float> out) const { read_as(first, count, out); }
void FileArray::read(std::int64_t first, std::int64_t count, std::span<double> out) const {
  read_as(first, count, out);
}
void FileArray::read(std::int64_t first, std::int64_t count, std::span<std::int64_t> out) const {
  read_as(first, count, out);
}
void FileArray::read(std::int64_t first, std::int64_t count, std::span<std::uint8_t> out) const {
  if (layout_.type != ElementType::u8 && layout_.type != ElementType::boolean) {
    fail("{}: {}, expected u8 or bool", name_, describe());
  }
  read_bytes(first, count, std::as_writable_bytes(out));
}

}  // namespace lockstep
