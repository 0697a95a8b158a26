// Internal: bytes in a file or in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

// All functions may be called from several threads at once.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual std::uint64_t size() const = 0;
  // Throws if the range is not within the source, or the file does not have it any more.
  virtual void read(std::uint64_t offset, std::span<std::byte> out) const = 0;
  // All bytes, if they are in memory; null otherwise.
  virtual const std::byte* in_memory() const { return nullptr; }
};

// Reads a file of at most 64 MiB into memory at once, and leaves a larger file on disk until its bytes are asked for.
// Throws if the file is missing, unreadable, or not a regular file.
std::shared_ptr<const ByteSource> open_bytes(const std::filesystem::path& path);
std::shared_ptr<const ByteSource> bytes_in_memory(std::string bytes);
std::shared_ptr<const ByteSource> bytes_in_memory(std::vector<std::uint8_t> bytes);
std::shared_ptr<const ByteSource> bytes_in_memory(std::shared_ptr<const std::string> bytes);

}  // namespace lockstep
