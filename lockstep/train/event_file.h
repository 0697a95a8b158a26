// Internal: TensorBoard's record file: each record is its length (8 bytes, little-endian), the masked CRC-32C of these
// bytes, the record's bytes, and their masked CRC-32C. The format is that of TensorFlow's TFRecord.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

// CRC-32C (Castagnoli), rotated and shifted as the format wants it, so that a CRC over bytes that hold CRCs is no
// special case.
std::uint32_t masked_crc32c(std::string_view bytes);

class EventFile {
 public:
  // Makes a new file; throws if there is one of this name.
  explicit EventFile(std::filesystem::path path);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // Hands the record to the system at once, so that a killed process loses none and TensorBoard sees it. Throws with
  // the path and the system's reason, and then leaves no part of the record.
  void write(std::string_view record);
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  std::int64_t size_ = 0;
};

}  // namespace lockstep
