// Which of several algorithms a library's call uses. Another algorithm rounds otherwise, so the choice is part of what
// decides a run's bits: it is made once for each problem and kept.
//
// Without a file it is the library's first suggestion, which depends on the problem, the GPU's model and the library's
// release alone. With a file, candidates are timed, the fastest is chosen, and a line of the file keeps it for all runs:
// the same file gives the same bits.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <string>

namespace lockstep {

class AlgorithmChoices {
 public:
  // Reads the file if there is one. Empty: no file.
  explicit AlgorithmChoices(std::filesystem::path file = {});

  // Which of `candidates` (at least one). `run` queues one on `stream`, which times it; it may run any of them often. False,
  // and nothing is queued: the library cannot do it after all.
  std::size_t choose(const std::string& problem, std::size_t candidates, cudaStream_t stream,
                     const std::function<bool(std::size_t)>& run);

 private:
  const std::filesystem::path file_;
  std::mutex mutex_;
  std::map<std::string, std::size_t> chosen_;
};

}  // namespace lockstep
