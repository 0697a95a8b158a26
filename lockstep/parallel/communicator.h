// This process's end of the communication of a job, as the engine sees it: collectives are tasks on two lanes of their
// own, so that they run under computation, each lane in one order that is the same in all processes.
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
#include "lockstep/ops/launch.h"
#include "lockstep/parallel/device_sums.h"
#include "lockstep/runtime/runtime.h"

namespace LOCKSTEP_API lockstep {

class Communicator {
 public:
  // Collective. The runtime has to outlive every tensor made here. `devices`: that this rank trains on; empty: all of the
  // runtime's. Throws where the group's back end is "nccl" and that cannot be.
  Communicator(Runtime& runtime, std::shared_ptr<ProcessGroup> group, std::vector<Device> devices = {});
  // Waits for what was pushed on its lanes. Ranks that still wait for this one are told that it has closed its group.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return group_->rank(); }
  int world_size() const { return group_->size(); }
  // For tasks on the lanes, in their order: a group of its own, so the caller's stays free for other uses.
  ProcessGroup& group() { return *lane_group_; }
  // Collective: one more group of all ranks, whose operations have an order of their own. It stays open as long as the
  // communicator: a rank that an exception ends can still say why.
  std::shared_ptr<ProcessGroup> make_group();
  // Tells the others why this rank gives up; all that is under way fails, here and there.
  void abort(const std::string& reason);

  // `body` runs on a lane; see ops::launch. reads and writes may be empty.
  void push(std::string_view name, CommChannel channel, std::span<const Array> reads, std::span<const Array> writes,
            std::function<void(KernelContext&)> body);
  Backend& backend() { return *state_of(device_, "communicator").backend; }
  // Where results lie that come from other processes, but for sums of gradients.
  Device device() const { return device_; }
  // Where those are: in the memory of this rank's first GPU, between which NCCL moves the pieces. Null: with device().
  const std::shared_ptr<DeviceSums>& sums() const { return sums_; }
  // The back end that moves gradients: "nccl", or the group's ("host" for "auto").
  std::string_view backend_name() const;
  // Why it is not NCCL, where a rank has a GPU and did not ask for something else; else empty.
  const std::string& why_not_nccl() const { return why_not_nccl_; }

  // Collective, and does not wait: the sum (or another reduction) of all ranks' x, which have one shape and type, on
  // x's device, in host memory or on a device of this rank. Not differentiable, and not for tensors that are cut.
  Tensor all_reduce(const Tensor& x, ReduceOp op = ReduceOp::sum);

  // What the describing thread itself has to know; these wait for the other processes' describing threads, but for no
  // lane. Every rank calls them in the same order.
  std::vector<std::int64_t> gather_on_host(std::int64_t mine, std::string_view what);
  std::int64_t sum_on_host(std::int64_t mine, std::string_view what);
  void broadcast_on_host(CommBuffer data, std::string_view what);
  // Rank 0's text.
  std::string broadcast_on_host(std::string text, std::string_view what);
  // Every rank throws if any has a complaint, with that of the lowest rank: `rank 2: ...`.
  void agree(const std::string& complaint, std::string_view what);

 private:
  void look_at_gpus(const std::vector<Device>& devices);

  std::shared_ptr<Engine> engine_;
  Device device_;
  std::shared_ptr<ProcessGroup> group_;
  std::vector<std::shared_ptr<ProcessGroup>> groups_;
  std::shared_ptr<ProcessGroup> lane_group_;
  // For what does not wait for tasks.
  std::shared_ptr<ProcessGroup> host_group_;
  std::shared_ptr<DeviceSums> sums_;
  std::string why_not_nccl_;
  std::unique_ptr<KernelContext> contexts_[2];
  LaneId lanes_[2];
};

}  // namespace lockstep
