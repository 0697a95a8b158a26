// Internal: how much memory a file may take when it is read.
//
// A file of a few KB can claim, or unpack to, more memory than any machine has. Before readers allocate, they therefore
// add up all memory that the file will take, including copies. docs/your-data.md and SECURITY.md state the ratio.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

// A file may take kMemoryPerFileByte times its size, or kMemoryOfSmallFile bytes if that is more. Usual tables and
// pictures stay below: a table packed by gzip takes some 30 to 150 times its size, a scanned page 100 times.
inline constexpr std::uint64_t kMemoryPerFileByte = 256;
inline constexpr std::uint64_t kMemoryOfSmallFile = std::uint64_t{64} << 20;

constexpr std::uint64_t memory_in_proportion(std::uint64_t file_bytes) {
  if (file_bytes > UINT64_MAX / kMemoryPerFileByte) return UINT64_MAX;
  const std::uint64_t bytes = file_bytes * kMemoryPerFileByte;
  return bytes > kMemoryOfSmallFile ? bytes : kMemoryOfSmallFile;
}

// File size for check_file_memory() that sets no limit in proportion to the file.
inline constexpr std::uint64_t kAnyProportion = UINT64_MAX;

// Returns three quarters of the memory that this process may use and does not use yet, in bytes.
std::uint64_t memory_left();
// Returns the bytes that a file of this size may take now: at most memory_in_proportion() and memory_left().
std::uint64_t memory_for_file(std::uint64_t file_bytes);

// Throws unless a file of `file_bytes` bytes may take `needed` bytes of memory. The error names the file, what it
// claims ("900 x 1024 x 1024 bytes"), the limit, and, if the file is too small, the way to read it nevertheless
// ("gunzip it first").
void check_file_memory(std::uint64_t needed, std::uint64_t file_bytes, std::string_view name, std::string_view claim,
                       std::string_view way = "");

}  // namespace lockstep
