#include "lockstep/backend/cuda/algorithm_choices.h"

#include <algorithm>
#include <fstream>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/device/cuda/cuda_status.h"

namespace lockstep {
namespace {

// Returns the best time of several runs, because others may use the GPU meanwhile; infinity if run() returns false.
float milliseconds(cudaStream_t stream, const std::function<bool()>& run) {
  constexpr int kRuns = 4;
  if (!run()) return std::numeric_limits<float>::infinity();
  cudaEvent_t begin = nullptr, end = nullptr;
  check_cuda(cudaEventCreate(&begin), "cudaEventCreate");
  check_cuda(cudaEventCreate(&end), "cudaEventCreate");
  float best = std::numeric_limits<float>::infinity();
  for (int i = 0; i < kRuns; ++i) {
    check_cuda(cudaEventRecord(begin, stream), "cudaEventRecord");
    run();
    check_cuda(cudaEventRecord(end, stream), "cudaEventRecord");
    check_cuda(cudaEventSynchronize(end), "cudaEventSynchronize");
    float time = 0;
    check_cuda(cudaEventElapsedTime(&time, begin, end), "cudaEventElapsedTime");
    best = std::min(best, time);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return best;
}

}  // namespace

AlgorithmChoices::AlgorithmChoices(std::filesystem::path file) : file_(std::move(file)) {
  if (file_.empty() || !std::filesystem::exists(file_)) return;
  std::ifstream in(file_);
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    const std::size_t space = line.find(' ');
    const bool good = space != std::string::npos && space > 0 && space < 5 &&
                      std::all_of(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(space),
                                  [](char c) { return c >= '0' && c <= '9'; });
    check(good, "{}:{}: expected the number of an algorithm and a problem, found \"{}\"", file_.string(), number, line);
    chosen_[line.substr(space + 1)] = std::stoul(line.substr(0, space));
  }
  check(in.eof(), "{}: cannot be read", file_.string());
}

std::size_t AlgorithmChoices::choose(const std::string& problem, std::size_t candidates, cudaStream_t stream,
                                     const std::function<bool(std::size_t)>& run) {
  if (file_.empty()) return 0;
  std::scoped_lock lock(mutex_);
  if (const auto found = chosen_.find(problem); found != chosen_.end()) {
    check(found->second < candidates, "{}: algorithm {} for {}, expected one of {}: was it written for another GPU?",
          file_.string(), found->second, problem, candidates);
    return found->second;
  }
  std::size_t best = 0;
  float least = std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i < candidates; ++i) {
    const float time = milliseconds(stream, [&] { return run(i); });
    if (time < least) {
      least = time;
      best = i;
    }
  }
  chosen_[problem] = best;
  std::ofstream out(file_, std::ios::app);
  out << best << ' ' << problem << '\n' << std::flush;
  check(out.good(), "{}: cannot be written", file_.string());
  return best;
}

}  // namespace lockstep
