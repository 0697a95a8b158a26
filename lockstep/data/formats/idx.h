// Internal: IDX, the file format of MNIST (yann.lecun.com/exdb/mnist): two zero bytes, the element type, the number of
// dimensions, each dimension as a big-endian 32-bit number, then the elements in row-major order.
#pragma once

#include <cstdint>
#include <filesystem>
#include <istream>
#include <string>
#include <vector>

namespace lockstep {

struct IdxArray {
  std::vector<std::int64_t> dims;
  std::vector<std::uint8_t> data;
};

// Reads an array of unsigned bytes with one to four dimensions, gzipped or not, whatever the file's name. A missing,
// truncated, or damaged file, extra bytes, and other element types are Errors that name the file, and so is a small
// gzipped file that claims more than check_file_memory() allows.
IdxArray read_idx(const std::filesystem::path& path);
// The same from a stream. Errors call it `name`.
IdxArray read_idx(std::istream& stream, const std::string& name);

}  // namespace lockstep
