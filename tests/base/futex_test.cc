#include "lockstep/base/futex.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <new>
#include <thread>

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// A word in memory that a child process shares.
class SharedWord {
 public:
  SharedWord()
      : memory_(::mmap(nullptr, sizeof(FutexWord), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    EXPECT_NE(memory_, MAP_FAILED);
    word_ = new (memory_) FutexWord(0);
  }
  ~SharedWord() { ::munmap(memory_, sizeof(FutexWord)); }
  FutexWord& operator*() { return *word_; }

 private:
  void* memory_;
  FutexWord* word_;
};

// Far beyond any test: a thread that nobody wakes ends then.
Clock::time_point lost() { return Clock::now() + 30s; }

TEST(Futex, AnotherThreadWakes) {
  for (const FutexScope scope : {FutexScope::process, FutexScope::shared_memory}) {
    FutexWord word{0};
    std::jthread other([&] {
      std::this_thread::sleep_for(5ms);
      word.store(1);
      futex_wake_one(word, scope);
    });
    const auto end = lost();
    while (word.load() == 0) futex_wait(word, 0, scope, end);
    EXPECT_LT(Clock::now(), end);
  }
}

TEST(Futex, AnotherProcessWakesThroughSharedMemory) {
  SharedWord word;
  const pid_t child = ::fork();
  if (child == 0) {
    const auto end = lost();
    while ((*word).load() == 0 && Clock::now() < end) futex_wait(*word, 0, FutexScope::shared_memory, end);
    ::_exit(Clock::now() < end ? 0 : 1);
  }
  std::this_thread::sleep_for(20ms);  // the child sleeps now
  (*word).store(1);
  futex_wake_all(*word, FutexScope::shared_memory);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(Futex, AnotherValueIsNotWaitedFor) {
  const FutexWord word{1};
  futex_wait(word, 0, FutexScope::process);
}

// The limit is an absolute time; one that has passed is no error.
TEST(Futex, TheTimeLimitEndsTheWait) {
  const FutexWord word{0};
  for (const auto limit : {2ms, 0ms, -5ms}) {
    const auto end = Clock::now() + limit;
    while (Clock::now() < end) futex_wait(word, 0, FutexScope::process, end);
    futex_wait(word, 0, FutexScope::process, end);
  }
}

}  // namespace
}  // namespace lockstep
