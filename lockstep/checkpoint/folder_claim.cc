#include "lockstep/checkpoint/folder_claim.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <string_view>
#include <system_error>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/checkpoint_directory.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

bool is_locked_by_another(int fd) {
  int result;
  do {
    result = ::flock(fd, LOCK_EX | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  // Other errors mean a file system without locks. There the user must ensure that only one run writes.
  return result != 0 && errno == EWOULDBLOCK;
}

std::string this_host() {
  char host[HOST_NAME_MAX + 1] = {};
  (void)::gethostname(host, sizeof host - 1);
  return host;
}

// `process 4711 on node0`, as the holder wrote it; empty if it could not.
std::string holder_of(int fd) {
  char text[512];
  const ssize_t n = ::pread(fd, text, sizeof text, 0);
  const std::string_view line(text, n > 0 ? static_cast<std::size_t>(n) : 0);
  return std::string(line.substr(0, line.find('\n')));
}

bool is_elsewhere(const std::string& holder) { return !holder.empty() && !holder.ends_with(" on " + this_host()); }

void sign(int fd) {
  const std::string text = fmt::format("process {} on {}\n", ::getpid(), this_host());
  // Only errors name the holder.
  if (::ftruncate(fd, 0) == 0) (void)!::pwrite(fd, text.data(), text.size(), 0);
}

}  // namespace

std::string FolderClaim::holder_elsewhere(const std::filesystem::path& folder) {
  const FileDescriptor file(::open((folder / ".lock").c_str(), O_RDWR | O_CLOEXEC));
  if (!file || !is_locked_by_another(file.get())) return "";  // a lock of our own ends here
  const std::string holder = holder_of(file.get());
  return is_elsewhere(holder) ? holder : "";
}

FolderClaim::FolderClaim(const std::filesystem::path& folder, std::int64_t step, std::chrono::milliseconds elsewhere) {
  const std::filesystem::path lock = folder / ".lock";
  std::error_code told_below;
  if (!std::filesystem::exists(folder, told_below)) CheckpointWriter(folder, step);  // makes the folder
  // Network file systems lock only files that are open for writing. If the file cannot be opened, there is no lock, and
  // CheckpointWriter below reports why nothing can be written.
  file_ = FileDescriptor(::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!file_) file_ = FileDescriptor(::open(lock.c_str(), O_RDONLY | O_CLOEXEC));
  const auto begin = std::chrono::steady_clock::now();
  while (file_ && is_locked_by_another(file_.get())) {
    const std::string holder = holder_of(file_.get());
    const auto patience = is_elsewhere(holder) ? std::max<std::chrono::milliseconds>(elsewhere, 2s) : 2s;
    check(std::chrono::steady_clock::now() - begin < patience,
          "checkpoint: another run writes to {}{}: stop it, or choose another folder", folder.string(),
          holder.empty() ? "" : " (" + holder + ")");
    std::this_thread::sleep_for(20ms);
  }
  if (file_) sign(file_.get());
  CheckpointWriter(folder, step);  // leaves nothing behind
}

FolderClaim::~FolderClaim() {
  if (file_) ::flock(file_.get(), LOCK_UN);  // a forked process may still have the descriptor
}

}  // namespace lockstep
