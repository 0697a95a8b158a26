// Collectives between the processes of a job, which overlap the work of the devices.
//
//   Tensor total = job.communicator()->all_reduce(count);
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/autograd/tensor.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/runtime/runtime.h"

namespace LOCKSTEP_API lockstep {

class Backend;         // backend/backend.h
class SummingGpu;      // parallel/summing_gpu.h
class Engine;          // engine/engine.h
struct LaneId;         // engine/task.h
struct KernelContext;  // backend/context.h

// This process's end of a job's communication. Collectives are tasks on two separate lanes, so they overlap
// computation. Each lane has the same order in all processes. A process that is alone waits for nobody: its collectives
// return at once, and it opens no sockets, and lanes only when a task is pushed. Several threads may use a communicator
// at once.
class Communicator {
 public:
  // Collective. The runtime must outlive every tensor made here. `devices`: the devices that this rank trains on;
  // empty: all devices of the runtime. Throws if the group's backend is "nccl" and NCCL cannot be used.
  Communicator(Runtime& runtime, std::shared_ptr<ProcessGroup> group, std::vector<Device> devices = {});
  // Makes the communicator of a process that is alone, on these devices.
  explicit Communicator(const std::vector<Device>& devices);
  // Waits for all work of the runtime if the communicator has lanes. If other ranks still wait for this rank, their
  // operations fail and say that this rank closed its group.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  bool alone() const { return world_size_ == 1; }
  // The group of the tasks on the lanes. It is separate from the caller's group, which stays free for other uses.
  ProcessGroup& group();
  // Collective. Makes another group of all ranks, whose operations have an order of their own. The group stays open as
  // long as the communicator, so that a rank that ends by an exception can still report the reason.
  std::shared_ptr<ProcessGroup> make_group();
  // Collective. Ends the use of the communicator on all ranks, after the operations in flight. If another rank is still
  // in an operation, both ranks throw and name it.
  void close();
  // Fails all operations in progress, on every rank, and tells the other ranks `reason`. Does nothing if alone.
  void abort(const std::string& reason);

  // `body` runs on a lane; see ops::launch. reads and writes may be empty.
  void push(std::string_view name, CommChannel channel, std::span<const Array> reads, std::span<const Array> writes,
            std::function<void(KernelContext&)> body);
  LaneId lane(CommChannel channel);
  Backend& backend();
  // The device of results that come from other processes, except sums of gradients.
  Device device() const { return device_; }
  // This rank's first GPU, if it sums gradients and NCCL moves them. Null: gradients are summed on device().
  const std::shared_ptr<SummingGpu>& summing_gpu() const { return summing_gpu_; }
  // What moves gradients: "nccl", or the group's backend() ("host" for "auto").
  std::string_view backend_name() const;
  // Why NCCL is not used, if a rank has a GPU and no other backend was requested; otherwise empty.
  const std::string& why_not_nccl() const { return why_not_nccl_; }

  // Collective. Returns the sum (or another reduction) of all ranks' x, on x's device. Does not wait. All ranks must
  // pass the same shape and type. Not differentiable; throws for cut tensors.
  Tensor all_reduce(const Tensor& x, ReduceOp op = ReduceOp::sum);

  // Collectives between the host threads of all ranks, which do not wait for any lane. Every rank must call them in the
  // same order. `what` names the exchange in errors. gather_on_host() returns each rank's number, in the order of
  // ranks.
  std::vector<std::int64_t> gather_on_host(std::int64_t mine, std::string_view what);
  std::int64_t sum_on_host(std::int64_t mine, std::string_view what);
  // Sums element by element, in the order of ranks.
  std::vector<double> sum_on_host(std::vector<double> mine, std::string_view what);
  void broadcast_on_host(CommBuffer data, std::string_view what);
  // Returns rank 0's text.
  std::string broadcast_on_host(std::string text, std::string_view what);
  // Every rank passes a complaint, or an empty text. If any rank complains, all ranks throw the complaint of the lowest
  // such rank: `rank 2: ...`.
  void agree(const std::string& complaint, std::string_view what);
  // Calls `work`; its exception is the complaint, for example if rank 0 cannot read a file. Alone: only calls `work`.
  void agree(std::string_view what, const std::function<void()>& work);

 private:
  void look_at_gpus(const std::vector<Device>& devices);
  // Call these two with `making_`, except in the constructor.
  void add_lane(CommChannel channel);
  std::shared_ptr<ProcessGroup> add_group();

  std::shared_ptr<Engine> engine_;
  Device device_;
  int rank_ = 0, world_size_ = 1;
  // Protects groups and lanes that are made late: alone, several threads may be the first to need them.
  std::mutex making_;
  std::shared_ptr<ProcessGroup> group_;  // null: alone, and nothing has needed a group yet
  std::vector<std::shared_ptr<ProcessGroup>> groups_;
  std::shared_ptr<ProcessGroup> lane_group_;
  // For exchanges that do not wait for tasks.
  std::shared_ptr<ProcessGroup> host_group_;
  std::shared_ptr<SummingGpu> summing_gpu_;
  std::string why_not_nccl_;
  struct CommLane;
  std::unique_ptr<CommLane> lanes_[2];  // by channel; alone: null until a task is pushed
};

}  // namespace lockstep
