// Arrays in files. Rows are read when they are used, so an array may be larger than the memory.
//
//   const FileArray images = read_npy("x.npy");  // u8 [60000, 28, 28]
//   std::vector<float> pixels(784);
//   images.read(0, 1, std::span(pixels));
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"

namespace LOCKSTEP_API lockstep {

class ByteSource;  // data/formats/byte_source.h

enum class ElementType : std::uint8_t { boolean, u8, i8, u16, i16, u32, i32, u64, i64, f16, bf16, f32, f64 };
std::string_view name(ElementType type);
// Throws for another name.
ElementType parse_element_type(std::string_view name);
std::size_t item_size(ElementType type);
bool is_floating(ElementType type);

// Where the elements are: row r begins at byte `offset` + r * `stride`, and its elements are contiguous.
struct ArrayLayout {
  ElementType type = ElementType::f32;
  bool big_endian = false;
  // Axis 0 has the rows.
  std::vector<std::int64_t> dims{};
  std::uint64_t offset = 0;
  // Bytes from one row to the next. 0: rows are contiguous.
  std::uint64_t stride = 0;
};

// Copies share the file. All functions may be called from several threads at once.
class FileArray {
 public:
  // Throws unless all elements are within the source. Errors call the array `name`.
  FileArray(std::shared_ptr<const ByteSource> source, ArrayLayout layout, std::string name);
  // An array in memory, contiguous and little-endian.
  FileArray(std::string bytes, ElementType type, std::vector<std::int64_t> dims, std::string name);

  const std::string& file() const { return name_; }
  ElementType type() const { return layout_.type; }
  const std::vector<std::int64_t>& dims() const { return layout_.dims; }
  // 1 if there are no axes.
  std::int64_t rows() const { return layout_.dims.empty() ? 1 : layout_.dims[0]; }
  std::int64_t row_elements() const { return row_elements_; }
  std::uint64_t bytes() const;
  // "u8 [60000, 28, 28]"
  std::string describe() const;

  // Reads rows [first, first + count) in row-major order into `out`, which has count * row_elements() elements. Rounds
  // to the nearest float or double. For integers, an element that is not a whole number within i64 is an error that
  // names the row.
  void read(std::int64_t first, std::int64_t count, std::span<float> out) const;
  void read(std::int64_t first, std::int64_t count, std::span<double> out) const;
  void read(std::int64_t first, std::int64_t count, std::span<std::int64_t> out) const;
  // Reads rows of u8 or bool unchanged. Throws for other types.
  void read(std::int64_t first, std::int64_t count, std::span<std::uint8_t> out) const;
  // Returns the bytes of a row, row_elements() elements of item_size(type()) bytes, if the bytes of the file are in
  // memory; null otherwise. Does not check that row < rows().
  const std::byte* row_in_memory(std::int64_t row) const;
  // Reads the bytes of rows as they are in the file.
  void read_bytes(std::int64_t first, std::int64_t count, std::span<std::byte> out) const;

 private:
  template <typename T>
  void read_as(std::int64_t first, std::int64_t count, std::span<T> out) const;

  std::shared_ptr<const ByteSource> source_;
  ArrayLayout layout_;
  std::string name_;
  std::int64_t row_elements_ = 1;
  std::uint64_t row_bytes_ = 0;
};

}  // namespace lockstep
