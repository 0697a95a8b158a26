#include "tests/cuda_emulator/block.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <vector>

#include "tests/cuda_emulator/fiber.h"

#define LOCKSTEP_DEFINE(name) constinit thread_local uint3 name{};
LOCKSTEP_KERNEL_COORDINATES(LOCKSTEP_DEFINE)
#undef LOCKSTEP_DEFINE

namespace cuda_emulator {
namespace {

[[noreturn]] void die(const char* what) {
  std::fprintf(stderr, "CUDA emulator: block (%u, %u, %u), thread (%u, %u, %u): %s\n", blockIdx.x, blockIdx.y,
               blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z, what);
  std::abort();
}

uint3 as_uint3(dim3 d) { return {d.x, d.y, d.z}; }
unsigned count(dim3 d) { return d.x * d.y * d.z; }

// The threads of the running block. A fiber runs one thread after another until one waits. That thread keeps the fiber,
// and another fiber takes the threads that have not begun. A kernel that never waits needs only one fiber.
class Block {
 public:
  // With `backwards`, the last runnable thread runs first, because no thread may rely on others being ahead.
  void run(const Launch& launch, bool backwards) {
    launch_ = &launch;
    backwards_ = backwards;
    size_ = count(launch.block);
    if (threads_.size() < size_) threads_.resize(size_);
    shared_.assign((launch.shared_bytes + 15) / 16, {~0ull, ~0ull});
    begun_ = ended_ = 0;
    for (unsigned i = 0; i < size_; ++i) threads_[i] = {};
    fibers_in_use_ = 0;
    for (Warp& warp : warps_) warp = {};
    while (begun_ < size_) {
      Fiber& fiber = next_fiber();
      fiber.start([](void* block) { static_cast<Block*>(block)->begin_threads(); }, this);
    }
    while (ended_ < size_) {
      bool moved = false;
      for (unsigned k = 0; k < size_; ++k) {
        const unsigned i = turn(k);
        if (threads_[i].state != State::ready) continue;
        moved = true;
        threads_[i].state = State::running;
        make_current(i);
        threads_[i].fiber->resume();
      }
      if (moved) continue;
      if (at_barrier_ != size_) die("threads wait for others that ended, or that wait elsewhere");
      at_barrier_ = 0;
      for (unsigned i = 0; i < size_; ++i) threads_[i].state = State::ready;
    }
  }

  void wait_for_block() {
    ++at_barrier_;
    wait(State::barrier);
  }

  std::uint64_t exchange(unsigned mask, std::uint64_t bits, unsigned source) {
    const unsigned self = current_, lane = self % 32;
    if (!(mask >> lane & 1)) die("a warp operation of a lane that is not in its mask");
    if (!(mask >> source % 32 & 1)) die("a shuffle from a lane that is not in the mask");
    Warp& warp = warps_[self / 32];
    if (warp.arrived != 0 && warp.mask != mask) die("lanes of a warp disagree about the mask");
    // Threads that are ahead write to the other half while the last ones still read.
    std::array<std::uint64_t, 32>& values = warp.values[threads_[self].turn ^= 1];
    values[lane] = bits;
    warp.mask = mask;
    warp.arrived |= 1u << lane;
    if (warp.arrived == mask) {
      warp.arrived = 0;
      const unsigned first = self / 32 * 32;
      for (unsigned i = first; i < first + 32 && i < size_; ++i) {
        if (threads_[i].state == State::warp && mask >> (i - first) & 1) threads_[i].state = State::ready;
      }
    } else {
      wait(State::warp);
    }
    return values[source % 32];
  }

  unsigned current() const { return current_; }
  void* shared_memory() { return shared_.data(); }

 private:
  enum class State : unsigned char { not_begun, running, barrier, warp, ready, ended };
  struct Thread {
    State state = State::not_begun;
    unsigned char turn = 0;
    Fiber* fiber = nullptr;
    uint3 index{};
  };
  struct Warp {
    unsigned mask = 0, arrived = 0;
    std::array<std::array<std::uint64_t, 32>, 2> values{};
  };

  unsigned turn(unsigned k) const { return backwards_ ? size_ - 1 - k : k; }

  Fiber& next_fiber() {
    if (fibers_in_use_ == fibers_.size()) fibers_.push_back(std::make_unique<Fiber>());
    return *(fiber_ = fibers_[fibers_in_use_++].get());
  }

  void begin_threads() {
    Fiber* const own = fiber_;
    while (begun_ < size_) {
      const unsigned i = turn(begun_++);
      const dim3& d = launch_->block;
      threads_[i] = {State::running, 0, own, {i % d.x, i / d.x % d.y, i / (d.x * d.y)}};
      make_current(i);
      launch_->run(launch_->arguments);
      threads_[i].state = State::ended;
      ++ended_;
      // The thread waited, and another fiber has continued with the rest.
      if (fiber_ != own) return;
    }
  }

  void make_current(unsigned i) {
    current_ = i;
    threadIdx = threads_[i].index;
  }

  void wait(State state) {
    threads_[current_].state = state;
    if (threads_[current_].fiber == fiber_) fiber_ = nullptr;
    threads_[current_].fiber->suspend();
  }

  const Launch* launch_ = nullptr;
  bool backwards_ = false;
  unsigned size_ = 0, current_ = 0, begun_ = 0, ended_ = 0, at_barrier_ = 0;
  std::vector<Thread> threads_;
  std::array<Warp, 32> warps_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::size_t fibers_in_use_ = 0;
  // The fiber that begins threads.
  Fiber* fiber_ = nullptr;
  std::vector<ulonglong2> shared_;
};

Block& this_block() {
  thread_local Block block;
  return block;
}

}  // namespace

std::uint64_t exchange(unsigned mask, std::uint64_t bits, unsigned source) {
  return this_block().exchange(mask, bits, source);
}

unsigned lane() { return this_block().current() % 32; }

void* dynamic_shared_memory() { return this_block().shared_memory(); }

// Every other launch runs from the last block and thread to the first, because kernels must not rely on an order.
void run_blocks(const Launch& launch) {
  thread_local bool backwards = true;
  backwards = !backwards;
  blockDim = as_uint3(launch.block);
  gridDim = as_uint3(launch.grid);
  const std::uint64_t blocks = std::uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z;
  for (std::uint64_t i = 0; i < blocks; ++i) {
    const std::uint64_t at = backwards ? blocks - 1 - i : i;
    blockIdx = {static_cast<unsigned>(at % launch.grid.x), static_cast<unsigned>(at / launch.grid.x % launch.grid.y),
                static_cast<unsigned>(at / launch.grid.x / launch.grid.y)};
    this_block().run(launch, backwards);
  }
}

}  // namespace cuda_emulator

void __syncthreads() { cuda_emulator::this_block().wait_for_block(); }

void __syncwarp(unsigned mask) {
  cuda_emulator::this_block().exchange(mask, 0, static_cast<unsigned>(__builtin_ctz(mask)));
}
