#undef _FORTIFY_SOURCE  // its longjmp refuses to switch to another stack
#include "tests/cuda_emulator/fiber.h"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#define LOCKSTEP_NO_TSAN __attribute__((no_sanitize("thread"), noinline))
#else
#define LOCKSTEP_NO_TSAN
#endif

namespace cuda_emulator {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t kStack = 256 << 10;
#else
constexpr std::size_t kStack = 64 << 10;
#endif

std::size_t page() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace

Fiber::Fiber() {
  // The first page stays inaccessible, so a stack overflow ends the program at once.
  void* memory = mmap(nullptr, page() + kStack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  stack_ = static_cast<std::byte*>(memory) + page();
  if (mprotect(stack_, kStack, PROT_READ | PROT_WRITE) != 0) std::abort();
#if defined(__SANITIZE_THREAD__)
  context_[0] = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#if defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(context_[0]);
#endif
  munmap(stack_ - page(), page() + kStack);
}

void Fiber::start(void (*function)(void*), void* argument) {
  function_ = function;
  argument_ = argument;
  ended_ = false;
  switch_in();
}

void Fiber::resume() { switch_in(); }

void Fiber::suspend() { switch_out(); }

// setcontext enters the new stack. From then on, setjmp and longjmp switch, because unlike swapcontext they make no
// system call.
LOCKSTEP_NO_TSAN void Fiber::switch_in() {
#if defined(__SANITIZE_THREAD__)
  context_[1] = __tsan_get_current_fiber();
#endif
  if (_setjmp(outside_) == 0) {
    announce(true);
    if (entered_) _longjmp(inside_, 1);
    entered_ = true;
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = stack_;
    context.uc_stack.ss_size = kStack;
    context.uc_link = nullptr;
    auto self = reinterpret_cast<std::uintptr_t>(this);
    makecontext(&context, reinterpret_cast<void (*)()>(&Fiber::entry), 2, static_cast<unsigned>(self >> 32),
                static_cast<unsigned>(self));
    setcontext(&context);
  }
  arrived(false);
}

LOCKSTEP_NO_TSAN void Fiber::switch_out() {
  if (_setjmp(inside_) == 0) {
    announce(false);
    _longjmp(outside_, 1);
  }
  arrived(true);
}

void Fiber::entry(unsigned high, unsigned low) {
  auto* self = reinterpret_cast<Fiber*>(static_cast<std::uintptr_t>(high) << 32 | low);
  self->arrived(true);
  self->loop();
}

void Fiber::loop() {
  for (;;) {
    function_(argument_);
    ended_ = true;
    switch_out();
  }
}

LOCKSTEP_NO_TSAN void Fiber::announce([[maybe_unused]] bool in) {
#if defined(__SANITIZE_ADDRESS__)
  if (in) {
    __sanitizer_start_switch_fiber(&fake_stack_[0], stack_, kStack);
  } else {
    __sanitizer_start_switch_fiber(&fake_stack_[1], outside_stack_, outside_size_);
  }
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(context_[in ? 0 : 1], 0);
#endif
}

LOCKSTEP_NO_TSAN void Fiber::arrived([[maybe_unused]] bool in) {
#if defined(__SANITIZE_ADDRESS__)
  if (in) {
    __sanitizer_finish_switch_fiber(fake_stack_[1], &outside_stack_, &outside_size_);
  } else {
    __sanitizer_finish_switch_fiber(fake_stack_[0], nullptr, nullptr);
  }
#endif
}

}  // namespace cuda_emulator
