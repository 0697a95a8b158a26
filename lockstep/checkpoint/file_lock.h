// Internal: an exclusive advisory lock (flock) of a file or folder. It ends with its object, or with the process.
#pragma once

#include <sys/file.h>

#include <cerrno>
#include <utility>

#include "lockstep/base/file_descriptor.h"

namespace lockstep {

class FileLock {
 public:
  FileLock() = default;
  explicit FileLock(FileDescriptor file) : file_(std::move(file)) {}
  FileLock(FileLock&&) noexcept = default;
  FileLock& operator=(FileLock&&) noexcept = default;
  ~FileLock() {
    if (file_) ::flock(file_.get(), LOCK_UN);  // a forked process may still have the descriptor
  }

  int get() const { return file_.get(); }
  explicit operator bool() const { return static_cast<bool>(file_); }

  // Does not wait. Returns false if another process, or another lock of this process, has the file. Returns true if the
  // file system has no locks: there the user must ensure that only one process writes.
  bool try_lock() const {
    int result;
    do {
      result = ::flock(file_.get(), LOCK_EX | LOCK_NB);
    } while (result != 0 && errno == EINTR);
    return result == 0 || errno != EWOULDBLOCK;
  }

 private:
  FileDescriptor file_;
};

}  // namespace lockstep
