#include "lockstep/data/formats/npy.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/data/formats/byte_source.h"
#include "lockstep/data/formats/csv.h"
#include "lockstep/data/formats/zip.h"
#include "lockstep/device/file_memory.h"

namespace lockstep {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kMostHeaderBytes = 1 << 20;
constexpr std::size_t kMostNpyAxes = 32;

struct NpyHeader {
  std::string descr;
  std::optional<bool> fortran_order;
  std::optional<std::vector<std::int64_t>> shape;
};

// Reads the Python dictionary {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }.
class NpyHeaderParser {
 public:
  NpyHeaderParser(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  NpyHeader parse() {
    NpyHeader header;
    bool has_descr = false;
    expect('{');
    while (!next_is('}')) {
      const std::string key = string("a key");
      expect(':');
      if (key == "descr") {
        check(!has_descr, "{}: its header has descr twice", name_);
        has_descr = true;
        check(!next_is('['), "{}: an array of records (fields with names), expected one of numbers", name_);
        header.descr = string("the type of the elements");
      } else if (key == "fortran_order") {
        check(!header.fortran_order, "{}: its header has fortran_order twice", name_);
        header.fortran_order = boolean();
      } else if (key == "shape") {
        check(!header.shape, "{}: its header has shape twice", name_);
        header.shape = shape();
      } else {
        fail("{}: its header has {}, expected descr, fortran_order, and shape", name_, quoted_cell(key));
      }
      if (!next_is('}')) expect(',');
    }
    expect('}');
    skip_space();
    check(at_ == text_.size(), "{}: its header goes on after }}", name_);
    check(has_descr && header.fortran_order && header.shape,
          "{}: its header lacks one of descr, fortran_order, and shape", name_);
    return header;
  }

 private:
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }
  bool next_is(char c) {
    skip_space();
    return at_ < text_.size() && text_[at_] == c;
  }
  void expect(char c) {
    check(next_is(c), "{}: its header has {} at byte {}, expected {}", name_, quoted_cell(text_.substr(at_, 1)), at_,
          c);
    ++at_;
  }
  std::string string(std::string_view what) {
    skip_space();
    const char quote = at_ < text_.size() ? text_[at_] : ' ';
    check(quote == '\'' || quote == '"', "{}: its header has {} at byte {}, expected {} in quotes", name_,
          quoted_cell(text_.substr(at_, 1)), at_, what);
    const std::size_t end = text_.find(quote, at_ + 1);
    check(end != text_.npos, "{}: its header has a quote that does not end", name_);
    const std::string found(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return found;
  }
  bool boolean() {
    skip_space();
    for (const std::string_view word : {"True", "False"}) {
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += word.size();
      return word == "True";
    }
    fail("{}: its header has {} for fortran_order, expected True or False", name_, quoted_cell(text_.substr(at_, 8)));
  }
  std::vector<std::int64_t> shape() {
    std::vector<std::int64_t> dims;
    expect('(');
    while (!next_is(')')) {
      std::int64_t dim = 0;
      const std::size_t begin = at_;
      for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
        check(!__builtin_mul_overflow(dim, 10, &dim) && !__builtin_add_overflow(dim, text_[at_] - '0', &dim),
              "{}: its shape has an extent beyond 64 bits", name_);
      }
      check(at_ > begin, "{}: its shape has {} at byte {}, expected a number", name_, quoted_cell(text_.substr(at_, 1)),
            at_);
      if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // a long of Python 2
      dims.push_back(dim);
      check(dims.size() <= kMostNpyAxes, "{}: more than {} axes", name_, kMostNpyAxes);
      if (!next_is(')')) expect(',');
    }
    expect(')');
    return dims;
  }

  std::string_view text_;
  const std::string& name_;
  std::size_t at_ = 0;
};

struct NpyType {
  ElementType type;
  bool big_endian;
};

NpyType parse_descr(const std::string& descr, const std::string& name) {
  struct Known {
    std::string_view code;
    ElementType type;
  };
  constexpr Known kKnown[] = {{"b1", ElementType::boolean}, {"i1", ElementType::i8},  {"i2", ElementType::i16},
                              {"i4", ElementType::i32},     {"i8", ElementType::i64}, {"u1", ElementType::u8},
                              {"u2", ElementType::u16},     {"u4", ElementType::u32}, {"u8", ElementType::u64},
                              {"f2", ElementType::f16},     {"f4", ElementType::f32}, {"f8", ElementType::f64}};
  const char order = descr.empty() ? ' ' : descr[0];
  const bool has_order = order == '<' || order == '>' || order == '|' || order == '=';
  const std::string_view code = std::string_view(descr).substr(has_order ? 1 : 0);
  for (const Known& known : kKnown) {
    if (known.code != code) continue;
    check(order != '|' || item_size(known.type) == 1, "{}: its type {} does not say the order of bytes", name,
          quoted_cell(descr));
    return {known.type, order == '>'};
  }
  std::string_view what = "elements of another type";
  switch (code.empty() ? ' ' : code[0]) {
    case 'O': what = "Python objects, which only Python reads: they contain code"; break;
    case 'c': what = "complex numbers"; break;
    case 'S':
    case 'a':
    case 'U': what = "texts"; break;
    case 'V': what = "records or raw bytes"; break;
    case 'M':
    case 'm': what = "dates or times"; break;
    case 'f': what = "floats of another size"; break;
  }
  fail("{}: its type {} has {}, expected booleans, integers of 8 to 64 bits, or floats of 16, 32, or 64 bits", name,
       quoted_cell(descr), what);
}

// Reads an array in Fortran order, whose first axis changes fastest in the file, into C order.
FileArray reorder(const ByteSource& source, std::uint64_t offset, const NpyType& type,
                  const std::vector<std::int64_t>& dims, const std::string& name) {
  const std::size_t item = item_size(type.type);
  const auto elements =
      static_cast<std::uint64_t>(std::accumulate(dims.begin(), dims.end(), std::int64_t{1}, std::multiplies<>()));
  const std::uint64_t bytes = elements * item;
  check_file_memory(bytes, bytes, name, "an array in Fortran order, which is reordered in memory");
  std::string out(bytes, '\0');
  // `to` is the index, in C order, of the next element of the file.
  std::vector<std::int64_t> at(dims.size(), 0), step(dims.size(), 1);
  for (std::size_t axis = dims.size() - 1; axis > 0; --axis) step[axis - 1] = step[axis] * dims[axis];
  std::int64_t to = 0;
  std::vector<std::byte> buffer(std::min<std::uint64_t>(bytes, (1 << 20) / item * item));
  for (std::uint64_t done = 0; done < bytes;) {
    const std::span<std::byte> piece = std::span(buffer).first(std::min<std::uint64_t>(bytes - done, buffer.size()));
    source.read(offset + done, piece);
    done += piece.size();
    for (std::size_t i = 0; i < piece.size(); i += item) {
      char* const element = out.data() + static_cast<std::size_t>(to) * item;
      std::memcpy(element, piece.data() + i, item);
      if (type.big_endian) std::reverse(element, element + item);
      for (std::size_t axis = 0; axis < dims.size(); ++axis) {
        to += step[axis];
        if (++at[axis] < dims[axis]) break;
        to -= step[axis] * dims[axis];
        at[axis] = 0;
      }
    }
  }
  return {std::move(out), type.type, dims, name};
}

// Reads the .npy file at bytes [offset, offset + size) of the source.
FileArray npy_at(const std::shared_ptr<const ByteSource>& source, std::uint64_t offset, std::uint64_t size,
                 const std::string& name) {
  const auto read = [&](std::uint64_t from, std::uint64_t count) {
    check(from <= size && count <= size - from, "{}: truncated: {} bytes, expected the header of an .npy file", name,
          size);
    std::string bytes(count, '\0');
    source->read(offset + from, std::as_writable_bytes(std::span(bytes)));
    return bytes;
  };
  const std::string start = read(0, std::min<std::uint64_t>(size, 8));
  check(start.size() == 8 && start.starts_with(kMagic), "{}: not an .npy file: it begins with {}, expected \\x93NUMPY",
        name, quoted_cell(start.substr(0, 6)));
  const auto major = static_cast<unsigned char>(start[6]), minor = static_cast<unsigned char>(start[7]);
  check(major >= 1 && major <= 3, "{}: version {}.{} of the format, expected 1 to 3", name, major, minor);
  const std::size_t length_bytes = major == 1 ? 2 : 4;
  const std::string length = read(8, length_bytes);
  std::uint32_t header_bytes = 0;
  std::memcpy(&header_bytes, length.data(), length_bytes);
  check(header_bytes <= kMostHeaderBytes, "{}: a header of {} bytes, expected at most {}", name, header_bytes,
        kMostHeaderBytes);
  const std::string text = read(8 + length_bytes, header_bytes);
  const NpyHeader header = NpyHeaderParser(text, name).parse();
  const NpyType type = parse_descr(header.descr, name);
  const std::uint64_t begin = 8 + length_bytes + header_bytes;
  const std::uint64_t data_bytes = size - begin;
  std::uint64_t needed = item_size(type.type);
  bool countable = true;
  for (const std::int64_t dim : *header.shape) {
    countable = countable && !__builtin_mul_overflow(needed, static_cast<std::uint64_t>(dim), &needed);
  }
  if (std::ranges::find(*header.shape, 0) != header.shape->end()) needed = 0;
  check((countable || needed == 0) && needed <= data_bytes,
        "{}: truncated: {} [{}] takes {} bytes, the file has {} after its header", name, lockstep::name(type.type),
        fmt::join(*header.shape, ", "), countable ? std::to_string(needed) : "more", data_bytes);
  check(needed == data_bytes, "{}: {} [{}] takes {} bytes, and {} more follow, expected one array a file", name,
        lockstep::name(type.type), fmt::join(*header.shape, ", "), needed, data_bytes - needed);
  if (*header.fortran_order && header.shape->size() > 1 && needed > 0) {
    return reorder(*source, offset + begin, type, *header.shape, name);
  }
  return {source, ArrayLayout{type.type, type.big_endian, *header.shape, offset + begin}, name};
}

std::map<std::string, FileArray> npz_of(const std::shared_ptr<const ByteSource>& source, const std::string& name) {
  constexpr std::string_view kEnding = ".npy";
  std::map<std::string, FileArray> arrays;
  for (ZipEntry& packed : read_zip(source, name)) {
    const ZipEntry entry = std::move(packed);  // its unpacked bytes are freed here if the array is reordered
    check(entry.name.ends_with(kEnding), "{}: has {}, expected arrays named .npy", name, quoted_cell(entry.name));
    const std::string array = entry.name.substr(0, entry.name.size() - kEnding.size());
    const std::string shown = quoted_cell(array);
    arrays.emplace(array, npy_at(entry.source, entry.offset, entry.size,
                                 fmt::format("{}: {}", name, shown.substr(1, shown.size() - 2))));
  }
  return arrays;
}

}  // namespace

FileArray read_npy(const std::filesystem::path& path) {
  const auto source = open_bytes(path);
  return npy_at(source, 0, source->size(), path.string());
}

FileArray parse_npy(std::string bytes, const std::string& name) {
  const auto source = bytes_in_memory(std::move(bytes));
  return npy_at(source, 0, source->size(), name);
}

std::map<std::string, FileArray> read_npz(const std::filesystem::path& path) {
  return npz_of(open_bytes(path), path.string());
}

std::map<std::string, FileArray> parse_npz(std::string bytes, const std::string& name) {
  return npz_of(bytes_in_memory(std::move(bytes)), name);
}

}  // namespace lockstep
