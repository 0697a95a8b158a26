// Chooses among several algorithms for a library call. Algorithms round differently, so the choice affects a run's
// bits. Each problem's choice is made once and kept.
//
// Without a file, the choice is the library's first suggestion, which depends only on the problem, the GPU's model, and
// the library's release. With a file, candidates are timed, the fastest is chosen, and a line of the file keeps it for
// all runs. The same file gives the same bits.
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
  // Reads the file if it exists. An empty path means no file.
  explicit AlgorithmChoices(std::filesystem::path file = {});

  // Returns which of `candidates` (at least one) to use. `run(i)` queues candidate i on `stream` to be timed, perhaps
  // several times. It returns false and queues nothing if the library cannot run candidate i after all.
  std::size_t choose(const std::string& problem, std::size_t candidates, cudaStream_t stream,
                     const std::function<bool(std::size_t)>& run);

 private:
  const std::filesystem::path file_;
  std::mutex mutex_;
  std::map<std::string, std::size_t> chosen_;
};

}  // namespace lockstep
