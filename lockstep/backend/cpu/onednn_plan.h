// A kernel call as oneDNN runs it. Private to the CPU back end.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>

#include "lockstep/backend/cpu/onednn_problem.h"

namespace lockstep::onednn {

// Reorders into oneDNN's preferred formats, its primitive, and reorders back. Any number of threads may run a plan at
// once, each with its own scratch memory.
class Plan {
 public:
  // Call this and run() with an OpenMP thread count of problem.threads.
  explicit Plan(const Problem& problem);
  ~Plan();

  std::size_t scratch_bytes() const;
  // `data` in the order of Role; `scratch` is aligned to 64 bytes.
  void run(const std::array<void*, kRoles>& data, void* scratch);
  // oneDNN's name of the implementation, such as `brgconv_bwd_w:avx512_core_bf16_amx_bf16`.
  const std::string& implementation() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::onednn
