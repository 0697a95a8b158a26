// Internal: teams of OpenMP threads, for oneDNN. oneDNN plans for a number of threads and waits for all of
// them. With fewer threads, its sums are wrong or it waits forever.
#pragma once

namespace lockstep {

// Makes later parallel regions of the calling thread have `threads` threads, whatever OMP_NUM_THREADS, OMP_DYNAMIC, and
// OMP_MAX_ACTIVE_LEVELS say.
void use_openmp_threads(int threads);

// Calls call(state, part) for each part in [0, parts) in a region of `threads` threads. Calls must not throw.
void openmp_region(int threads, int parts, void (*call)(void* state, int part), void* state);

// Opens a region of `threads` threads in a new thread, as lanes do. Throws if it gets fewer threads, for example
// because of OMP_THREAD_LIMIT.
void check_openmp_threads(int threads);

}  // namespace lockstep
