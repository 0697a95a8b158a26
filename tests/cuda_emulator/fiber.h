// The threads of one block. Each has its own stack. All run in turn on one thread of the operating system.
#pragma once

#include <csetjmp>
#include <cstddef>
#include <functional>
#include <memory>

namespace cuda_emulator {

// Runs a function that can be suspended and resumed.
class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs `function` until it ends or calls suspend(). A fiber that has ended can be started again.
  void start(void (*function)(void*), void* argument);
  void resume();
  bool ended() const { return ended_; }
  // Called inside the function: returns to the caller of start() or resume().
  void suspend();

 private:
  static void entry(unsigned high, unsigned low);
  void loop();
  void switch_in();
  void switch_out();
  // Tells sanitizers of a switch of stacks, before and after.
  void announce(bool in);
  void arrived(bool in);

  std::byte* stack_;
  std::jmp_buf inside_, outside_;
  bool entered_ = false;
  bool ended_ = true;
  void (*function_)(void*) = nullptr;
  void* argument_ = nullptr;
  // For the sanitizers.
  void* fake_stack_[2] = {};
  const void* outside_stack_ = nullptr;
  std::size_t outside_size_ = 0;
  void* context_[2] = {};
};

}  // namespace cuda_emulator
