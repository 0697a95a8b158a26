// Internal: TensorBoard's record file. Each record has its length (8 bytes, little-endian), the masked CRC-32C of the
// length, the record's bytes, and their masked CRC-32C. The format is that of TensorFlow's TFRecord.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

// Returns the CRC-32C (Castagnoli), rotated and offset by a constant as the format requires, because a CRC of bytes
// that contain their own CRC is weak.
std::uint32_t masked_crc32c(std::string_view bytes);

class EventFile {
 public:
  // Makes a new file; throws if there is one of this name.
  explicit EventFile(std::filesystem::path path);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // Hands the record to the system at once, so that a killed process loses none and TensorBoard sees it. On failure,
  // throws with the path and the system's reason, and removes a partly written record.
  void write(std::string_view record);
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  std::int64_t size_ = 0;
};

}  // namespace lockstep
