// This process's end of a job's communication. Collectives are tasks on two lanes of their own, so they overlap
// computation. Each lane has the same order in all processes.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/autograd/tensor.h"
#include "lockstep/comm/process_group.h"

namespace LOCKSTEP_API lockstep {

class Backend;         // backend/backend.h
class DeviceSums;      // parallel/device_sums.h
class Engine;          // engine/engine.h
class Runtime;         // runtime/runtime.h
struct KernelContext;  // backend/context.h

class Communicator {
 public:
  // Collective. The runtime must outlive every tensor made here. `devices`: the devices that this rank trains on;
  // empty: all devices of the runtime. Throws if the group's back end is "nccl" and NCCL cannot be used.
  Communicator(Runtime& runtime, std::shared_ptr<ProcessGroup> group, std::vector<Device> devices = {});
  // Waits for everything pushed on its lanes. Tells ranks that still wait for this one that it has closed its group.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return group_->rank(); }
  int world_size() const { return group_->size(); }
  // The group of the tasks on the lanes. It is separate from the caller's group, which stays free for other uses.
  ProcessGroup& group() { return *lane_group_; }
  // Collective. Makes another group of all ranks, whose operations have their own order. It stays open as long as the
  // communicator, so that a rank ended by an exception can still report the reason.
  std::shared_ptr<ProcessGroup> make_group();
  // Tells the other ranks why this one gives up. All operations in progress fail, on every rank.
  void abort(const std::string& reason);

  // `body` runs on a lane; see ops::launch. reads and writes may be empty.
  void push(std::string_view name, CommChannel channel, std::span<const Array> reads, std::span<const Array> writes,
            std::function<void(KernelContext&)> body);
  Backend& backend();
  // The device of results that come from other processes, except sums of gradients.
  Device device() const { return device_; }
  // Sums gradients on this rank's first GPU with NCCL. Null: gradients are summed on device().
  const std::shared_ptr<DeviceSums>& sums() const { return sums_; }
  // The back end that moves gradients: "nccl", or the group's ("host" for "auto").
  std::string_view backend_name() const;
  // Why NCCL is not used although a rank has a GPU and requested no other back end; otherwise empty.
  const std::string& why_not_nccl() const { return why_not_nccl_; }

  // Collective. Returns the sum (or another reduction) of all ranks' x, on x's device. Does not wait. All ranks must
  // pass the same shape and type. Not differentiable; throws for cut tensors.
  Tensor all_reduce(const Tensor& x, ReduceOp op = ReduceOp::sum);

  // Exchanges between the describing threads of all processes. They do not wait for any lane. Every rank must call them
  // in the same order.
  std::vector<std::int64_t> gather_on_host(std::int64_t mine, std::string_view what);
  std::int64_t sum_on_host(std::int64_t mine, std::string_view what);
  void broadcast_on_host(CommBuffer data, std::string_view what);
  // Rank 0's text.
  std::string broadcast_on_host(std::string text, std::string_view what);
  // If any rank has a complaint, every rank throws the complaint of the lowest such rank: `rank 2: ...`.
  void agree(const std::string& complaint, std::string_view what);

 private:
  void look_at_gpus(const std::vector<Device>& devices);

  std::shared_ptr<Engine> engine_;
  Device device_;
  std::shared_ptr<ProcessGroup> group_;
  std::vector<std::shared_ptr<ProcessGroup>> groups_;
  std::shared_ptr<ProcessGroup> lane_group_;
  // For exchanges that do not wait for tasks.
  std::shared_ptr<ProcessGroup> host_group_;
  std::shared_ptr<DeviceSums> sums_;
  std::string why_not_nccl_;
  struct Lane;
  std::unique_ptr<Lane> lanes_[2];  // by channel
};

}  // namespace lockstep
