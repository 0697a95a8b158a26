// Teams of OpenMP threads, as the CPU back end and oneDNN open them. oneDNN plans for a number of threads and waits for all
// of them: with fewer its sums are wrong, or it waits forever.
#pragma once

namespace lockstep {

// From now on a parallel region of the calling thread has `threads` threads, whatever OMP_NUM_THREADS, OMP_DYNAMIC and
// OMP_MAX_ACTIVE_LEVELS say.
void use_openmp_threads(int threads);

// Opens such a region in a new thread, as lanes do. Throws if it has fewer threads, as OMP_THREAD_LIMIT may make it.
void check_openmp_threads(int threads);

}  // namespace lockstep
