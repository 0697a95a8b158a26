#include "lockstep/checkpoint/folder_claim.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
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

std::string this_host() {
  char host[HOST_NAME_MAX + 1] = {};
  (void)::gethostname(host, sizeof host - 1);
  return host;
}

// Returns `process 4711 on node0`, as the holder wrote it; empty if it could not.
std::string holder_of(int fd) {
  char text[512];
  const ssize_t n = ::pread(fd, text, sizeof text, 0);
  const std::string_view line(text, n > 0 ? static_cast<std::size_t>(n) : 0);
  return std::string(line.substr(0, line.find('\n')));
}

bool is_elsewhere(const std::string& holder) { return !holder.empty() && !holder.ends_with(" on " + this_host()); }

// Removes files that a killed process left (AtomicFile). Files of the last minute may belong to a running command.
void remove_left_files(const std::filesystem::path& folder) {
  std::error_code unknown;
  for (const auto& entry : std::filesystem::directory_iterator(folder, unknown)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(".lockstep-") || !name.ends_with(".tmp") || !entry.is_regular_file(unknown)) continue;
    const auto written = entry.last_write_time(unknown);
    if (!unknown && std::filesystem::file_time_type::clock::now() - written > 1min) {
      std::filesystem::remove(entry.path(), unknown);
    }
  }
}

void write_holder(int fd) {
  const std::string text = fmt::format("process {} on {}\n", ::getpid(), this_host());
  // Ignores errors, because only messages name the holder.
  if (::ftruncate(fd, 0) == 0) (void)!::pwrite(fd, text.data(), text.size(), 0);
}

void refuse_links(const std::filesystem::path& folder) {
  std::error_code unknown;
  for (const auto& entry : std::filesystem::directory_iterator(folder, unknown)) {
    check(!entry.is_symlink(unknown),
          "checkpoint: {} is a symbolic link, through which a run would write elsewhere: "
          "remove it, or choose another folder",
          entry.path().string());
  }
}

}  // namespace

std::string FolderClaim::holder_elsewhere(const std::filesystem::path& folder) {
  const FileLock lock(FileDescriptor(::open((folder / ".lock").c_str(), O_RDWR | O_CLOEXEC)));
  if (!lock || lock.try_lock()) return "";
  const std::string holder = holder_of(lock.get());
  return is_elsewhere(holder) ? holder : "";
}

FolderClaim::FolderClaim(const std::filesystem::path& folder, std::int64_t step, std::chrono::milliseconds elsewhere) {
  const std::filesystem::path file = folder / ".lock";
  std::error_code told_below;
  if (!std::filesystem::exists(folder, told_below)) CheckpointWriter(folder, step);  // makes the folder
  refuse_links(folder);
  // Network file systems lock only files that are open for writing. If the file cannot be opened, there is no lock, and
  // CheckpointWriter below reports why nothing can be written.
  lock_ = FileLock(FileDescriptor(::open(file.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666)));
  if (!lock_) lock_ = FileLock(FileDescriptor(::open(file.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC)));
  const auto begin = std::chrono::steady_clock::now();
  while (lock_ && !lock_.try_lock()) {
    const std::string holder = holder_of(lock_.get());
    const auto timeout = is_elsewhere(holder) ? std::max<std::chrono::milliseconds>(elsewhere, 2s) : 2s;
    check(std::chrono::steady_clock::now() - begin < timeout,
          "checkpoint: another run writes to {}{}: stop it, or choose another folder", folder.string(),
          holder.empty() ? "" : " (" + holder + ")");
    std::this_thread::sleep_for(20ms);
  }
  if (lock_) write_holder(lock_.get());
  CheckpointWriter(folder, step);  // only checks: its destructor removes its files
  remove_left_files(folder);
}

}  // namespace lockstep
