// Inter-op parallelism: independent operations of one device run at the same time.
//
//   Runtime runtime({.devices = 1});  // a compute lane for each core
//   std::vector<Tensor> y;
//   {
//     InterOpParallelGuard parallel;
//     for (const Tensor& x : matrices) y.push_back(matmul(x, x));  // on all cores at once
//   }
//
// A device of c cores has c compute lanes, or floor(c / T) lanes of T threads (T is RuntimeOptions::threads_per_shard).
// Without a guard, shard s runs on lane s modulo the number of lanes, and all operations on whole tensors run on the
// first lane. With a guard, the engine chooses the lane of each task: the lane of the task whose result it reads, if
// that task is the last one of its lane, otherwise the lane with the fewest unfinished tasks. Independent operations
// therefore run side by side, and a chain stays on one core.
//
// The bits are the same with and without a guard: every lane computes the same, and on any lane a task waits for what
// it reads. backward() and the optimizer's step() within the scope run in parallel, too. A RecordedStep repeats its
// tasks on the lanes that the engine chose for the recording.
//
// A guard helps if single operations are small. A large operation uses all cores by itself. A guard
// changes nothing on a device with one lane (T = 0, or one core), on a GPU, whose kernels use all of it, and in a
// serial Runtime.
#pragma once

#include "lockstep/base/export.h"

namespace LOCKSTEP_API lockstep {

// Spreads the operations of this thread over the compute lanes of their devices for the lifetime of the object.
class InterOpParallelGuard {
 public:
  InterOpParallelGuard();
  ~InterOpParallelGuard();
  InterOpParallelGuard(const InterOpParallelGuard&) = delete;
  InterOpParallelGuard& operator=(const InterOpParallelGuard&) = delete;

  // Whether this thread has a guard.
  static bool active();

 private:
  bool previous_;
};

}  // namespace lockstep
