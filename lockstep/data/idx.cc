#include "lockstep/data/idx.h"

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
#include "lockstep/data/gzip.h"
#include "lockstep/device/topology.h"

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

// A byte of a gzip file unpacks to at most this many.
constexpr std::uintmax_t kMostPerByte = 1032;

class IdxReader {
 public:
  // The stream has at most `most_bytes` bytes.
  IdxReader(std::istream& stream, const std::string& name, std::uintmax_t most_bytes)
      : name_(name), most_bytes_(most_bytes), input_(stream, name) {}

  IdxArray read() {
    IdxArray array;
    array.dims = read_dims();
    std::size_t total = 1;
    for (const std::int64_t dim : array.dims) {
      check(!__builtin_mul_overflow(total, static_cast<std::size_t>(dim), &total) && total <= array.data.max_size(),
            "{}: its header claims {} bytes of data, more than any memory holds", name_, fmt::join(array.dims, " x "));
    }
    check(total / kMostPerByte <= most_bytes_,
          "{}: truncated: the header claims {} = {} bytes of data, {} bytes cannot hold so many", name_,
          fmt::join(array.dims, " x "), total, most_bytes_);
    constexpr std::size_t kFirst = std::size_t{1} << 20;
    if (total > kFirst) check_memory(array.dims, total);
    // Doubles the memory as data arrives.
    while (array.data.size() < total) {
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
  // A small gzip file can unpack to more than the memory; the kernel would kill this process.
  void check_memory(const std::vector<std::int64_t>& dims, std::size_t total) const {
    const std::size_t memory = total_memory();
    check(total <= memory, "{}: its header claims {} = {} bytes of data, this process may use {}", name_,
          fmt::join(dims, " x "), total, memory);
  }

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
  std::uintmax_t most_bytes_;
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
  return IdxReader(file, path.string(), ignored ? UINTMAX_MAX : size).read();
}

IdxArray read_idx(std::istream& stream, const std::string& name) { return IdxReader(stream, name, UINTMAX_MAX).read(); }

}  // namespace lockstep
