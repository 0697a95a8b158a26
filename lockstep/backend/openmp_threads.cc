#include "lockstep/backend/openmp_threads.h"

#include <omp.h>

#include <atomic>
#include <thread>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"

namespace lockstep {

// OpenMP keeps these settings per thread.
void use_openmp_threads(int threads) {
  if (omp_get_dynamic()) omp_set_dynamic(0);
  if (omp_get_max_active_levels() < 1) omp_set_max_active_levels(1);
  if (omp_get_max_threads() != threads) omp_set_num_threads(threads);
}

void openmp_region(int threads, int parts, void (*call)(void* state, int part), void* state) {
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int part = 0; part < parts; ++part) call(state, part);
}

void check_openmp_threads(int threads) {
  if (threads <= 1) return;
  std::atomic<int> team = 0;
  std::thread([&] {
    use_openmp_threads(threads);
#pragma omp parallel
    {
      if (omp_get_thread_num() == 0) team = omp_get_num_threads();
    }
  }).join();
  const auto limit = environment("OMP_THREAD_LIMIT");
  check(team == threads, "runtime: OpenMP gives {} of the {} threads that a shard needs{}", team.load(), threads,
        limit ? fmt::format("; OMP_THREAD_LIMIT is {}", *limit) : "");
}

}  // namespace lockstep
