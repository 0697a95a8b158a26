#include "lockstep/checkpoint/folder_claim.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <chrono>
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

}  // namespace

FolderClaim::FolderClaim(const std::filesystem::path& folder, std::int64_t step) {
  const std::filesystem::path lock = folder / ".lock";
  std::error_code told_below;
  if (!std::filesystem::exists(folder, told_below)) CheckpointWriter(folder, step);  // makes the folder
  // Network file systems lock only files that are open for writing. If the file cannot be opened, there is no lock, and
  // CheckpointWriter below reports why nothing can be written.
  file_ = FileDescriptor(::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!file_) file_ = FileDescriptor(::open(lock.c_str(), O_RDONLY | O_CLOEXEC));
  const auto deadline = std::chrono::steady_clock::now() + 2s;
  while (file_ && is_locked_by_another(file_.get())) {
    check(std::chrono::steady_clock::now() < deadline,
          "checkpoint: another run writes to {}: stop it, or choose another folder", folder.string());
    std::this_thread::sleep_for(20ms);
  }
  CheckpointWriter(folder, step);  // leaves nothing behind
}

FolderClaim::~FolderClaim() {
  if (file_) ::flock(file_.get(), LOCK_UN);  // a forked process may still have the descriptor
}

}  // namespace lockstep
