// Writes .npy and .npz files as NumPy does, for tests that read them. A copy of NumPy's own bytes is in npy_test.cc.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

template <typename T>
std::string bytes_of(const std::vector<T>& values, bool big_endian = false) {
  std::string bytes;
  for (const T& value : values) {
    std::string one(sizeof(T), '\0');
    std::memcpy(one.data(), &value, sizeof(T));
    bytes += big_endian ? std::string(one.rbegin(), one.rend()) : one;
  }
  return bytes;
}

// shape: "(2, 3)".
inline std::string npy(const std::string& descr, const std::string& shape, const std::string& data,
                       bool fortran = false, int version = 1) {
  std::string header =
      "{'descr': '" + descr + "', 'fortran_order': " + (fortran ? "True" : "False") + ", 'shape': " + shape + ", }";
  const std::size_t before = version == 1 ? 10 : 12;
  header.append(64 - (before + header.size() + 1) % 64, ' ');
  header += '\n';
  std::string file = "\x93NUMPY";
  file += static_cast<char>(version);
  file += '\0';
  for (std::size_t i = 0; i < before - 8; ++i) file += static_cast<char>(header.size() >> 8 * i);
  return file + header + data;
}

// The entries of an archive, stored or deflated.
inline std::string zip(const std::vector<std::pair<std::string, std::string>>& entries, bool packed) {
  const auto number = [](std::uint64_t value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> 8 * i);
    return text;
  };
  std::string file, directory;
  for (const auto& [name, content] : entries) {
    std::string data = content;
    if (packed) {
      z_stream z{};
      if (deflateInit2(&z, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
        throw std::runtime_error("deflateInit2 failed");
      }
      data.assign(deflateBound(&z, content.size()), '\0');
      z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
      z.avail_in = static_cast<uInt>(content.size());
      z.next_out = reinterpret_cast<Bytef*>(data.data());
      z.avail_out = static_cast<uInt>(data.size());
      deflate(&z, Z_FINISH);
      data.resize(z.total_out);
      deflateEnd(&z);
    }
    const uLong crc = crc32(0, reinterpret_cast<const Bytef*>(content.data()), static_cast<uInt>(content.size()));
    const std::string common = number(packed ? 8 : 0, 2) + number(0, 4) + number(crc, 4) + number(data.size(), 4) +
                               number(content.size(), 4) + number(name.size(), 2);
    directory += "PK\x01\x02" + number(45, 2) + number(45, 2) + number(0, 2) + common + number(0, 2) + number(0, 2) +
                 number(0, 2) + number(0, 2) + number(0, 4) + number(file.size(), 4) + name;
    file += "PK\x03\x04" + number(45, 2) + number(0, 2) + common + number(0, 2) + name + data;
  }
  const std::size_t begin = file.size();
  return file + directory + "PK\x05\x06" + number(0, 4) + number(entries.size(), 2) + number(entries.size(), 2) +
         number(directory.size(), 4) + number(begin, 4) + number(0, 2);
}

}  // namespace lockstep
