#include "lockstep/net/descriptor_limit.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <system_error>

namespace lockstep {
namespace {

// Returns -1 for a name that is not a number: "." and "..".
int parse_descriptor(const char* name) {
  int number = 0;
  for (; *name != '\0'; ++name) {
    if (*name < '0' || *name > '9') return -1;
    number = number * 10 + (*name - '0');
  }
  return number;
}

// Closes the descriptors that /proc lists. Avoids opendir(), which allocates memory. Returns false without /proc.
bool close_listed_from(int first) {
  const int folder = ::open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return false;
  alignas(std::uint64_t) char entries[4096];
  long bytes;
  while ((bytes = ::syscall(SYS_getdents64, folder, entries, sizeof entries)) > 0) {
    for (long at = 0; at < bytes;) {
      const char* entry = entries + at;
      std::uint16_t length;
      std::memcpy(&length, entry + offsetof(dirent64, d_reclen), sizeof length);
      const int descriptor = parse_descriptor(entry + offsetof(dirent64, d_name));
      if (descriptor >= first && descriptor != folder) ::close(descriptor);
      at += length;
    }
  }
  ::close(folder);
  return bytes == 0;
}

}  // namespace

void raise_descriptor_limit(std::uint64_t most) {
  rlimit limit;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = std::min<rlim_t>(limit.rlim_max, most);
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  // If raising fails, the old limit may still be enough.
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

bool is_out_of_descriptors(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

std::string describe_descriptor_error(int error) {
  const std::string text = std::generic_category().message(error);
  rlimit limit;
  if (error != EMFILE || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) return text;
  return fmt::format("{} (limit {})", text, limit.rlim_cur);
}

void close_descriptors_from(int first) {
  // Kernels before 5.9 lack this call, and some sandboxes forbid it.
  if (::close_range(static_cast<unsigned>(first), ~0U, 0) == 0 || close_listed_from(first)) return;
  rlimit limit{};
  (void)::getrlimit(RLIMIT_NOFILE, &limit);
  // The kernel gives out the lowest free descriptors, so a bound is safe even if the limit is in the billions.
  const auto end = static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 1 << 20));
  for (int descriptor = first; descriptor < end; ++descriptor) ::close(descriptor);
}

}  // namespace lockstep
