// Whole files: read within a bound, and written so that nobody ever sees half of one.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/base/export.h"

namespace LOCKSTEP_API lockstep {

// The file's bytes. Throws, with the path and the system's reason, if it is missing, a directory, not
// readable or larger than max_bytes (then nothing of its size is allocated).
std::string read_file(const std::filesystem::path& path, std::size_t max_bytes);

// A file that appears under its name, whole and on the disk, when commit() returns, or not at all. Until then
// the bytes go to a temporary file in the same folder, which the destructor removes; an older file of that
// name stays. Every error names the path and the system's reason. A symbolic link is followed; what exists
// and is no regular file is refused.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  // Once, and last.
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int fd_ = -1;
};

void write_file_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes);
void write_file_atomically(const std::filesystem::path& path, std::string_view text);

// Puts the folder's entries (files created, renamed or removed in it) on the disk.
void sync_folder(const std::filesystem::path& folder);

}  // namespace lockstep
