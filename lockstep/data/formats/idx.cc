#include "lockstep/data/formats/idx.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <span>
#include <string_view>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/data/formats/gzip.h"
#include "lockstep/device/file_memory.h"

namespace lockstep {
namespace {

constexpr std::uint8_t kUnsignedByte = 0x08;
constexpr int kMaxAxes = 4;

std::string_view type_name(std::uint8_t type) {
  switch (type) {
    case 0x09: return "signed bytes";
    case 0x0b: return "16-bit integers";
    case 0x0c: return "32-bit integers";
    case 0x0d: return "32-bit floats";
    case 0x0e: return "64-bit floats";
  }
  return "an unknown type of elements";
}

class IdxReader {
 public:
  // `file_bytes` is the size of the file, for check_file_memory().
  IdxReader(std::istream& stream, const std::string& name, std::uint64_t file_bytes)
      : name_(name), file_bytes_(file_bytes), input_(stream, name) {}

  IdxArray read() {
    IdxArray array;
    array.dims = read_dims();
    std::size_t total = 1;
    for (const std::int64_t dim : array.dims) {
      check(!__builtin_mul_overflow(total, static_cast<std::size_t>(dim), &total) && total <= array.data.max_size(),
            "{}: its header claims {} bytes of data, more than any memory holds", name_, fmt::join(array.dims, " x "));
    }
    check(input_.packed() || total <= file_bytes_,
          "{}: truncated: the header claims {} = {} bytes of data, the file has {}", name_,
          fmt::join(array.dims, " x "), total, file_bytes_);
    if (total > kMemoryOfSmallFile) {
      check_file_memory(total, file_bytes_, name_,
                        fmt::format("the header claims {} = {} bytes of data", fmt::join(array.dims, " x "), total),
                        "gunzip it first");
    }
    if (file_bytes_ != kAnyProportion) array.data.reserve(total);  // a pipe may never deliver so many
    while (array.data.size() < total) {
      constexpr std::size_t kFirst = std::size_t{1} << 20;
      const std::size_t have = array.data.size();
      array.data.resize(std::min(total, std::max(2 * have, kFirst)));
      const std::span<std::uint8_t> wanted = std::span(array.data).subspan(have);
      const std::size_t got = input_.read(wanted);
      check(got == wanted.size(), "{}: truncated: the header claims {} = {} bytes of data, the file has {}", name_,
            fmt::join(array.dims, " x "), total, have + got);
    }
    // Reading a gzip stream to its end verifies its checksum.
    std::uint8_t extra;
    check(input_.read({&extra, 1}) == 0, "{}: more data follows the {} = {} bytes that its header claims", name_,
          fmt::join(array.dims, " x "), total);
    return array;
  }

 private:
  void read_header(std::span<std::uint8_t> out) {
    check(input_.read(out) == out.size(), "{}: too short for the header of an IDX file", name_);
  }

  std::vector<std::int64_t> read_dims() {
    std::array<std::uint8_t, 4> word;
    read_header(word);
    check(word[0] == 0 && word[1] == 0, "{}: not an IDX file, it begins with {:02x}, expected 00 00 08", name_,
          fmt::join(word, " "));
    check(word[2] == kUnsignedByte, "{}: holds {} (0x{:02x}), expected unsigned bytes (0x08)", name_,
          type_name(word[2]), word[2]);
    check(word[3] >= 1 && word[3] <= kMaxAxes, "{}: has {} dimensions, expected 1 to {}", name_, word[3], kMaxAxes);
    std::vector<std::int64_t> dims(word[3]);
    for (std::int64_t& dim : dims) {
      read_header(word);
      dim = std::int64_t{word[0]} << 24 | std::int64_t{word[1]} << 16 | std::int64_t{word[2]} << 8 | word[3];
    }
    return dims;
  }

  std::string name_;
  std::uint64_t file_bytes_;
  GzipReader input_;
};

}  // namespace

IdxArray read_idx(const std::filesystem::path& path) {
  std::error_code ignored;
  check(!std::filesystem::is_directory(path, ignored), "cannot read {}: it is a directory", path.string());
  std::ifstream file(path, std::ios::binary);
  check(file.is_open(), "cannot read {}: {}", path.string(), std::generic_category().message(errno));
  // A pipe has no size.
  const std::uintmax_t size = std::filesystem::file_size(path, ignored);
  return IdxReader(file, path.string(), ignored ? kAnyProportion : size).read();
}

IdxArray read_idx(std::istream& stream, const std::string& name) {
  return IdxReader(stream, name, kAnyProportion).read();
}

}  // namespace lockstep
