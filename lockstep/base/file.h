// Internal: whole files: read up to a size limit, and written atomically.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

// Returns the file's bytes. Throws, with the path and the system's reason, if the file is missing, unreadable, larger
// than max_bytes, or not a regular file, such as a directory or a pipe. Checks the size before it allocates memory.
std::string read_file(const std::filesystem::path& path, std::size_t max_bytes);

// A file that appears under its name only when commit() returns, complete and on disk. Until then, the bytes go to a
// temporary file in the same folder, and an older file of that name stays. The destructor removes the temporary file.
// Every error names the path and the system's reason. Symbolic links are followed. A path that exists and is not a
// regular file is an error.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  // Call it once, and last.
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int fd_ = -1;
};

void write_file_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes);
void write_file_atomically(const std::filesystem::path& path, std::string_view text);

// Syncs the folder's entries (files created, renamed, or removed in it) to disk.
void sync_folder(const std::filesystem::path& folder);

}  // namespace lockstep
