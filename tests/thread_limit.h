// A process that can make only one more thread.
#pragma once

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

namespace lockstep {

// The thread sanitizer has a thread of its own, and takes more than a stack for each other one.
#ifdef __SANITIZE_THREAD__
constexpr bool kThreadsCanBeLimited = false;
#else
constexpr bool kThreadsCanBeLimited = true;
#endif

// For a process that ends with the test. It has address space left for one stack and a half. (The number of a user's
// processes can be limited, too, but not that of root's.)
inline void allow_one_more_thread() {
  constexpr std::size_t kStack = 64 << 20;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStack);
  pthread_setattr_default_np(&attributes);
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t bytes = pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) + kStack * 3 / 2;
  const rlimit limit{bytes, bytes};
  ::setrlimit(RLIMIT_AS, &limit);
}

// Whether the calling thread is the process's only one. The system takes a moment to forget a thread that was joined.
inline bool is_only_thread() {
  for (int i = 0; i < 1000; ++i) {
    if (std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}) == 1) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

}  // namespace lockstep
