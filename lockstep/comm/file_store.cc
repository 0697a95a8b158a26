#include "lockstep/comm/file_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <span>
#include <system_error>
#include <thread>
#include <utility>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/file_descriptor.h"
#include "lockstep/base/sha256.h"
#include "lockstep/comm/store_protocol.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

std::string reason() { return std::generic_category().message(errno); }

}  // namespace

FileStore::FileStore(std::filesystem::path folder, milliseconds timeout)
    : folder_(std::move(folder)), timeout_(timeout) {
  const bool made = ::mkdir(folder_.c_str(), 0700) == 0 || errno == EEXIST;
  check(made, "store: cannot make {}: {}", folder_.string(), reason());
  check(std::filesystem::is_directory(folder_), "store: {} is no folder", folder_.string());
}

// Keys may be longer than names of files, and hold any byte.
std::filesystem::path FileStore::file_of(const std::string& key) const {
  check(!key.empty() && key.size() <= kLongestStoreKey, "store: a key of {} bytes, expected from 1 to {}",
        key.size(), kLongestStoreKey);
  Sha256 hash;
  hash.update(std::as_bytes(std::span(key)));
  return folder_ / hash.hex();
}

void FileStore::set(const std::string& key, std::string_view value) {
  check(value.size() <= kLongestStoreValue, "store: the value of \"{}\" has {} bytes, expected at most {}",
        key, value.size(), kLongestStoreValue);
  write_file_atomically(file_of(key), value);
}

std::string FileStore::get(const std::string& key, milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  for (milliseconds pause{1};; pause = std::min(2 * pause, milliseconds(100))) {
    if (contains(key)) return read_file(file_of(key), kLongestStoreValue);
    check(Clock::now() < deadline, "store: no process has set \"{}\" within {} s", key,
          static_cast<double>(timeout.count()) / 1000);
    std::this_thread::sleep_for(pause);
  }
}

std::int64_t FileStore::add(const std::string& key, std::int64_t amount) {
  const std::filesystem::path path = folder_ / "lock";
  // One at a time, on all hosts; closing lets go of it.
  const FileDescriptor lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  check(static_cast<bool>(lock), "store: cannot open {}: {}", path.string(), reason());
  // Its holder may have been stopped.
  const auto deadline = Clock::now() + timeout_;
  while (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    check(errno == EINTR || errno == EWOULDBLOCK, "store: cannot lock {}: {}", path.string(), reason());
    check(Clock::now() < deadline, "store: {} has been locked by another process for {} s", path.string(),
          static_cast<double>(timeout_.count()) / 1000);
    std::this_thread::sleep_for(milliseconds(1));
  }
  std::int64_t old = 0, sum = 0;
  if (contains(key)) {
    old = parse_integer(fmt::format("the store's \"{}\"", key), read_file(file_of(key), kLongestStoreValue),
                        INT64_MIN, INT64_MAX);
  }
  check(!__builtin_add_overflow(old, amount, &sum), "store: {} and {} in \"{}\" do not fit into 64 bits",
        amount, old, key);
  set(key, std::to_string(sum));
  return sum;
}

bool FileStore::contains(const std::string& key) { return std::filesystem::exists(file_of(key)); }

}  // namespace lockstep
