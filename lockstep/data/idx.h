// IDX: the file format of MNIST and its kin (yann.lecun.com/exdb/mnist). Two zero bytes, the element type,
// the number of dimensions, each dimension as 32 bits, big-endian, then the elements, the last dimension
// running fastest.
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

// An array of unsigned bytes of one to four dimensions, gzipped or not, whatever the name says. The file has
// to hold exactly that: whatever is missing, cut off, damaged, left over or of another kind throws an Error
// that names the file. Memory is taken as data arrives, never because a header claims it.
IdxArray read_idx(const std::filesystem::path& path);
// The same from a stream; `name` stands for it in errors.
IdxArray read_idx(std::istream& stream, const std::string& name);

}  // namespace lockstep
