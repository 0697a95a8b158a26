#include "lockstep/ops/inter_op_parallel_guard.h"

#include <utility>

namespace lockstep {
namespace {

thread_local bool inter_op_parallel = false;

}  // namespace

InterOpParallelGuard::InterOpParallelGuard() : previous_(std::exchange(inter_op_parallel, true)) {}
InterOpParallelGuard::~InterOpParallelGuard() { inter_op_parallel = previous_; }
bool InterOpParallelGuard::active() { return inter_op_parallel; }

}  // namespace lockstep
