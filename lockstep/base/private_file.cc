#include "lockstep/base/private_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/file_descriptor.h"
#include "lockstep/base/printable.h"

namespace lockstep {
namespace {

bool is_trusted(uid_t owner) { return owner == ::geteuid() || owner == 0; }

// In a folder with the sticky bit, such as /tmp, only the owners of the file and of the folder can replace the file.
bool others_replace_files(const struct stat& folder) {
  const bool others_write = (folder.st_mode & (S_IWGRP | S_IWOTH)) != 0;
  return !is_trusted(folder.st_uid) || (others_write && (folder.st_mode & S_ISVTX) == 0);
}

}  // namespace

void check_private(const std::filesystem::path& file, const struct stat& status, std::string_view what) {
  check((status.st_mode & (S_IRWXO | S_IWGRP)) == 0,
        "{}: {} has mode {:03o}: other users may read or change it; run chmod 600 {}", what, file.string(),
        status.st_mode & 0777, shell_quoted(file.string()));
  check(is_trusted(status.st_uid), "{}: {} belongs to user {}, expected user {} or root", what, file.string(),
        status.st_uid, ::geteuid());
  std::error_code unknown;
  const std::filesystem::path folder = std::filesystem::canonical(file, unknown).parent_path();
  struct stat above {};
  if (unknown || ::stat(folder.c_str(), &above) != 0) return;  // opened by its descriptor, such as /dev/fd/3
  check(!others_replace_files(above),
        "{}: {} is in {}, of user {} and mode {:03o}: other users may replace it; expected a folder of user {} or root "
        "that others cannot write to",
        what, file.string(), folder.string(), above.st_uid, above.st_mode & 07777, ::geteuid());
}

std::string read_private_file(const std::filesystem::path& file, std::size_t max_bytes, std::string_view what) {
  // O_NONBLOCK: opening a pipe must not block.
  const FileDescriptor open(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  const bool known = open && ::fstat(open.get(), &status) == 0;
  check(known, "{}: cannot read {}: {}", what, file.string(), std::generic_category().message(errno));
  check(S_ISREG(status.st_mode), "{}: {} is not a regular file", what, file.string());
  check_private(file, status, what);
  check(static_cast<std::size_t>(status.st_size) <= max_bytes, "{}: {} has {} bytes, at most {} are allowed", what,
        file.string(), status.st_size, max_bytes);
  std::string bytes(static_cast<std::size_t>(status.st_size), '\0');
  const ssize_t size = ::read(open.get(), bytes.data(), bytes.size());
  check(size >= 0, "{}: cannot read {}: {}", what, file.string(), std::generic_category().message(errno));
  bytes.resize(static_cast<std::size_t>(size));
  return bytes;
}

}  // namespace lockstep
