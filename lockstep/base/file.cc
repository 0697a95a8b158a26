#include "lockstep/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <random>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_system(const char* doing, const fs::path& path, int error) {
  fail("cannot {} {}: {}", doing, path.string(), std::generic_category().message(error));
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// Repeats a system call while a signal interrupts it.
template <typename F>
auto retry(F&& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

// Follows a symbolic link to a file that does not exist, as open() does when it creates a file.
fs::path missing_target(fs::path path) {
  constexpr int kMostLinks = 40;  // as in Linux; another process may make a loop meanwhile
  std::error_code error;
  for (int links = 0; fs::is_symlink(fs::symlink_status(path, error)); ++links) {
    if (links == kMostLinks) fail_system("write", path, ELOOP);
    const fs::path target = fs::read_symlink(path, error);
    if (error) fail_system("write", path, error.value());
    path = folder_of(path) / target;  // `target` alone if it is absolute
  }
  check(path.has_filename(), "cannot write \"{}\": it names no file", path.string());
  return path;
}

// The file to write for `path`: follows symbolic links, and refuses devices and folders.
fs::path write_target(const fs::path& path) {
  check(path.has_filename(), "cannot write \"{}\": it names no file", path.string());
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) return missing_target(path);
  if (error) fail_system("write", path, error.value());
  check(status.type() != fs::file_type::directory, "cannot write {}: it is a directory", path.string());
  check(status.type() == fs::file_type::regular, "cannot write {}: it is not a regular file", path.string());
  fs::path target = fs::canonical(path, error);
  if (error) fail_system("write", path, error.value());
  return target;
}

}  // namespace

std::string read_file(const fs::path& path, std::size_t max_bytes) {
  // O_NONBLOCK: opening a pipe to which nobody writes must not block.
  const Descriptor file(retry([&] { return ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC); }));
  if (file.get() < 0) fail_system("read", path, errno);
  struct stat status;
  if (::fstat(file.get(), &status) != 0) fail_system("read", path, errno);
  check(!S_ISDIR(status.st_mode), "cannot read {}: it is a directory", path.string());
  check(S_ISREG(status.st_mode), "cannot read {}: it is not a regular file", path.string());
  const auto expected = static_cast<std::size_t>(status.st_size);
  check(expected <= max_bytes, "cannot read {}: it has {} bytes, at most {} are allowed", path.string(), expected,
        max_bytes);

  // The size is only a hint: files in /proc report 0, and a file may grow while it is read.
  std::string bytes;
  std::size_t used = 0;
  for (;;) {
    if (used == bytes.size()) bytes.resize(std::max({expected + 1, 2 * used, std::size_t{4096}}));
    const ssize_t n = retry([&] { return ::read(file.get(), bytes.data() + used, bytes.size() - used); });
    if (n < 0) fail_system("read", path, errno);
    if (n == 0) break;
    used += static_cast<std::size_t>(n);
    check(used <= max_bytes, "cannot read {}: it has more than the {} bytes allowed", path.string(), max_bytes);
  }
  bytes.resize(used);
  return bytes;
}

AtomicFile::AtomicFile(const fs::path& path) : path_(write_target(path)) {
  std::random_device random;
  // Another process may use the same name, so try several. The umask sets the permissions, as for any file.
  for (int attempt = 0; attempt < 100; ++attempt) {
    temporary_ = folder_of(path_) / fmt::format(".lockstep-{:08x}{:08x}.tmp", random(), random());
    fd_ = retry([&] { return ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666); });
    if (fd_ >= 0 || errno != EEXIST) break;
  }
  if (fd_ < 0) fail_system("write", path_, errno);
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  check(fd_ >= 0, "cannot write {}: it is already committed", path_.string());
  while (!bytes.empty()) {
    const ssize_t n = retry([&] { return ::write(fd_, bytes.data(), bytes.size()); });
    if (n < 0) fail_system("write", path_, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
}

void AtomicFile::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

void AtomicFile::commit() {
  check(fd_ >= 0, "cannot write {}: it is already committed", path_.string());
  if (retry([&] { return ::fsync(fd_); }) != 0) fail_system("write", path_, errno);
  // Some file systems report a failed write only here. The descriptor is closed even if close() fails.
  if (::close(std::exchange(fd_, -1)) != 0 && errno != EINTR) fail_system("write", path_, errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_system("write", path_, errno);
  temporary_.clear();
  sync_folder(folder_of(path_));
}

void write_file_atomically(const fs::path& path, std::span<const std::byte> bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

void write_file_atomically(const fs::path& path, std::string_view text) {
  write_file_atomically(path, std::as_bytes(std::span(text)));
}

void sync_folder(const fs::path& folder) {
  const Descriptor descriptor(retry([&] { return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (descriptor.get() < 0) fail_system("sync", folder, errno);
  // EINVAL: the file system has nothing to sync for a folder.
  if (retry([&] { return ::fsync(descriptor.get()); }) != 0 && errno != EINVAL) fail_system("sync", folder, errno);
}

}  // namespace lockstep
