// One process's part in a job: its process group, its devices, and its communicator. A program that makes a Job runs as
// several ranks under a launcher, and as a single rank without a launcher.
//
//   Job job;                               // `lockstep launch` sets the rank and the world size
//   Net net;                               // its devices are this rank's
//   DistributedDataParallel ddp(net);
//   for (auto [x, y] : loader.on(ddp)) {   // this rank's rows of each batch
//     mse_loss(ddp(x), y).backward();
//     optimizer.step();
//   }
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/autograd/tensor.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/communicator.h"
#include "lockstep/runtime/runtime.h"

namespace LOCKSTEP_API lockstep {

class LivingJob;  // parallel/living_jobs.h

struct JobOptions {
  ProcessGroupOptions group{};
  // If it names no devices, its devices are those of the list below. Without a list: this rank's share of the host's
  // GPUs, or one CPU device if there is no GPU.
  RuntimeOptions runtime{};
  // A list of devices ("cuda:0,cuda:1"). Rank r of a host trains on entry r; a job of one rank trains on all of them.
  // Empty or "auto": each rank trains on all devices of its runtime. If `runtime` names no devices, "cuda" is this
  // rank's share of the host's GPUs (an error if there is none), and "cpu" one CPU device. If it names devices, "cuda"
  // and "cpu" list its devices of that kind.
  std::string devices{};
};

class Job {
 public:
  // Collective. Waits until all ranks have joined. Without a launcher, this process is the only rank unless the options
  // say otherwise. Throws if a launcher's variables are set but give no rank and world size.
  explicit Job(JobOptions options = {});
  // Collective. The ranks have met already, and this rank trains on these devices of its runtime; empty: on all.
  Job(std::shared_ptr<ProcessGroup> group, std::unique_ptr<Runtime> runtime, std::vector<Device> devices = {});
  Job(Job&&) = default;
  // Calls close() and ignores its errors; call close() to see them. During stack unwinding, it aborts the group instead
  // of waiting for the other ranks.
  ~Job();
  Job& operator=(Job&&) = delete;

  // Collective. Waits for this rank's work and for all ranks, so that a finished rank is not mistaken for a lost one.
  // Throws if work failed or a rank was lost. If another rank waits in a collective instead, both throw at once, with
  // its name. Do not use the job after that.
  void close();

  int rank() const { return group_->rank(); }
  int world_size() const { return group_->size(); }
  // Collective: see Communicator::all_reduce().
  Tensor all_reduce(const Tensor& x, ReduceOp op = ReduceOp::sum) { return communicator_->all_reduce(x, op); }
  // This rank's devices.
  const std::vector<Device>& devices() const { return devices_; }
  Runtime& runtime() const { return *runtime_; }
  const std::shared_ptr<ProcessGroup>& group() const { return group_; }
  const std::shared_ptr<Communicator>& communicator() const { return communicator_; }

 private:
  void begin();

  std::shared_ptr<ProcessGroup> group_;
  std::unique_ptr<Runtime> runtime_;
  std::vector<Device> devices_;
  std::shared_ptr<Communicator> communicator_;
  std::shared_ptr<const LivingJob> living_;
  int exceptions_ = std::uncaught_exceptions();  // number in flight when the job was made
};

// Returns the communicator of the Job that these devices belong to, which Trainer and DistributedDataParallel join.
// Null if there is no such Job.
std::shared_ptr<Communicator> find_job(const std::vector<Device>& devices);
// Does the same, but throws if there is no such Job; the error begins with `what`.
std::shared_ptr<Communicator> job_of(const std::vector<Device>& devices, std::string_view what);

}  // namespace lockstep
