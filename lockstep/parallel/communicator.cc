#include "lockstep/parallel/communicator.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <numeric>
#include <utility>

#include "lockstep/autograd/no_grad.h"
#include "lockstep/autograd/node.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/comm/transport_group.h"
#include "lockstep/device/topology.h"
#include "lockstep/launch/failure_reports.h"
#include "lockstep/net/comm_error.h"
#include "lockstep/ops/copy.h"
#include "lockstep/ops/launch.h"
#include "lockstep/parallel/rank_gpu.h"
#include "lockstep/parallel/summing_gpu.h"
#include "lockstep/runtime/runtime.h"
#include "lockstep/runtime/step_recorder.h"

namespace lockstep {

namespace {

// A CommError has already reached the other ranks.
bool is_comm_error(const std::exception_ptr& cause) try {
  if (cause) std::rethrow_exception(cause);
  return false;
} catch (const CommError&) {
  return true;
} catch (...) {
  return false;
}

}  // namespace

struct Communicator::CommLane {
  KernelContext context;
  LaneId id;
};

Communicator::Communicator(Runtime& runtime, std::shared_ptr<ProcessGroup> group, std::vector<Device> devices)
    : device_(state_of(runtime.devices().at(0), "communicator").host_visible_device()), group_(std::move(group)) {
  check(group_ != nullptr, "communicator: no process group");
  engine_ = state_of(device_, "communicator").engine;
  rank_ = group_->rank();
  world_size_ = group_->size();
  if (alone()) return;
  lane_group_ = add_group();
  host_group_ = add_group();
  look_at_gpus(devices.empty() ? runtime.devices() : devices);
  for (const CommChannel channel : {CommChannel::urgent, CommChannel::bulk}) add_lane(channel);
}

Communicator::Communicator(const std::vector<Device>& devices)
    : engine_(state_of(devices.at(0), "communicator").engine),
      device_(state_of(devices[0], "communicator").host_visible_device()) {}

// The lane may use all cores of this rank, and no others: it mostly waits, and sums on any free core. A core of another
// rank would be busy when that rank sums its own part.
void Communicator::add_lane(CommChannel channel) {
  const bool urgent = channel == CommChannel::urgent;
  std::unique_ptr<CommLane>& lane = lanes_[urgent ? 0 : 1] = std::make_unique<CommLane>();
  lane->id = engine_->add_lane({.name = urgent ? "communicate urgent" : "communicate bulk",
                                .device = fmt::format("rank {}", rank()),
                                .cpus = limited_by_quota() ? std::vector<int>() : available_cpus(),
                                .lane_data = &lane->context});
}

void Communicator::look_at_gpus(const std::vector<Device>& devices) {
  const auto gpu = std::ranges::find(devices, DeviceKind::cuda, &Device::kind);
  const Device device = gpu == devices.end() ? Device() : *gpu;
  const RankGpu own = describe_gpu(device, group_->backend());
  std::vector<RankGpu> ranks(static_cast<std::size_t>(world_size()));
  host_group_->all_gather({const_cast<RankGpu*>(&own), sizeof own, DType::u8},
                          {ranks.data(), ranks.size() * sizeof own, DType::u8},
                          {.label = "GPUs", .channel = CommChannel::urgent, .wait = true});
  const std::string why = lockstep::why_not_nccl(ranks);
  if (why.empty()) {
    summing_gpu_ = std::make_shared<SummingGpu>(device);
    return;
  }
  check(group_->backend() != "nccl" || world_size() == 1,
        "backend nccl cannot be used: {}: leave the backend out, which takes the best one, or name \"gloo\"", why);
  if (std::ranges::any_of(ranks, [](const RankGpu& rank) { return rank.uuid[0] != '\0'; })) why_not_nccl_ = why;
}

LaneId Communicator::lane(CommChannel channel) {
  const int number = channel == CommChannel::urgent ? 0 : 1;
  const std::lock_guard lock(making_);
  if (!lanes_[number]) add_lane(channel);
  return lanes_[number]->id;
}

ProcessGroup& Communicator::group() {
  const std::lock_guard lock(making_);
  if (!lane_group_) lane_group_ = add_group();
  return *lane_group_;
}

Backend& Communicator::backend() { return *state_of(device_, "communicator").backend; }

std::string_view Communicator::backend_name() const {
  if (summing_gpu_) return "nccl";
  if (alone()) return "host";
  return group_->backend() == "auto" || group_->backend() == "nccl" ? "host" : group_->backend();
}

void Communicator::abort(const std::string& reason) {
  if (!alone()) group_->abort(reason);  // also aborts all groups made from it
}

void Communicator::close() {
  if (alone()) return;
  std::vector<Work> closing;
  {
    // Close all groups and channels at once, because another rank may wait in any of them.
    const std::lock_guard lock(making_);
    std::vector<std::shared_ptr<ProcessGroup>> all = groups_;
    all.push_back(group_);
    for (const auto& group : all) std::ranges::move(begin_closing(*group), std::back_inserter(closing));
  }
  for (Work& work : closing) work.wait();
}

std::shared_ptr<ProcessGroup> Communicator::make_group() {
  const std::lock_guard lock(making_);
  return add_group();
}

std::shared_ptr<ProcessGroup> Communicator::add_group() {
  if (!group_) group_ = make_local_groups(1)[0];
  std::vector<int> everyone(static_cast<std::size_t>(group_->size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  return groups_.emplace_back(group_->subgroup(everyone));
}

Communicator::~Communicator() {
  if (!lanes_[0] && !lanes_[1]) return;
  try {
    engine_->wait_all();
  } catch (const TaskError& error) {
    // Nothing has read it: the next wait reports it.
    if (!is_comm_error(error.cause())) engine_->report_again(std::make_shared<const Failure>(error.failure()));
  } catch (const Error&) {
    // The failure of a lost rank is thrown where its data is read.
  }
}

void Communicator::push(std::string_view name, CommChannel channel, std::span<const Array> reads,
                        std::span<const Array> writes, std::function<void(KernelContext&)> body) {
  if (StepRecorder* recorder = StepRecorder::current()) recorder->refuse("it exchanges data with other processes");
  Task task;
  task.name = name;
  task.lane = lane(channel);
  for (const Array& t : reads) task.reads.push_back(t.resource());
  for (const Array& t : writes) task.writes.push_back(t.resource());
  // If this task is skipped, other ranks still wait in its exchange, and would pair it with a later one of this rank.
  task.told_if_skipped = world_size() > 1;
  task.run = [this, body = std::move(body)](const TaskContext& c) {
    if (c.skipped) {
      if (!c.skipped->cancelled && !is_comm_error(c.skipped->cause)) abort(c.skipped->message);
      return;
    }
    try {
      body(*static_cast<KernelContext*>(c.lane_data));
    } catch (const CommError&) {
      throw;
    } catch (const std::exception& error) {
      // Tell the other ranks first: they wait for this rank, whose main thread may be waiting for them.
      abort(error.what());
      throw;
    }
  };
  engine_->push(std::move(task));
}

Tensor Communicator::all_reduce(const Tensor& x, ReduceOp op) {
  check(x.defined(), "all_reduce: undefined tensor");
  check(x->kind != Kind::cut, "all_reduce: {} is cut over the batch, expected it in one piece: gather() it",
        x.describe());
  check(!grad_enabled() || !x.requires_grad(),
        "all_reduce: {} requires a gradient, but all_reduce is not differentiable: detach() it", x.describe());
  const Device home = x.device();
  if (alone()) {
    const Array copy = ops::empty(x.shape(), x.dtype(), home);
    ops::copy_(x->array(), copy);
    return copy;
  }
  const Array own = ops::to_layout(
      home == device_ ? x->array() : ops::to_device(x->array(), device_, {.non_blocking = true}), Layout::plain);
  Array sum = ops::empty(own.shape(), own.dtype(), device_);
  push("all_reduce", CommChannel::urgent, std::array{own}, std::array{sum},
       [group = lane_group_, op, from = own.view(), to = sum.view()](KernelContext&) {
         std::memcpy(to.data, from.data, to.bytes());
         group->all_reduce({to.data, static_cast<std::size_t>(to.numel()), to.dtype}, op,
                           {.label = "all_reduce", .channel = CommChannel::urgent, .wait = true});
       });
  return home == device_ ? sum : ops::to_device(sum, home, {.non_blocking = true});
}

std::vector<std::int64_t> Communicator::gather_on_host(std::int64_t mine, std::string_view what) {
  if (alone()) return {mine};
  std::vector<std::int64_t> all(static_cast<std::size_t>(world_size()));
  host_group_->all_gather({&mine, 1, DType::i64}, {all.data(), all.size(), DType::i64},
                          {.label = std::string(what), .channel = CommChannel::urgent, .wait = true});
  return all;
}

std::int64_t Communicator::sum_on_host(std::int64_t mine, std::string_view what) {
  std::int64_t sum = 0;
  for (std::int64_t part : gather_on_host(mine, what)) sum += part;
  return sum;
}

std::vector<double> Communicator::sum_on_host(std::vector<double> mine, std::string_view what) {
  if (alone()) return mine;
  std::vector<double> all(mine.size() * static_cast<std::size_t>(world_size()));
  host_group_->all_gather({mine.data(), mine.size(), DType::f64}, {all.data(), all.size(), DType::f64},
                          {.label = std::string(what), .channel = CommChannel::urgent, .wait = true});
  std::ranges::fill(mine, 0);
  for (std::size_t i = 0; i < all.size(); ++i) mine[i % mine.size()] += all[i];
  return mine;
}

void Communicator::broadcast_on_host(CommBuffer data, std::string_view what) {
  if (alone()) return;
  host_group_->broadcast(data, 0, {.label = std::string(what), .channel = CommChannel::urgent, .wait = true});
}

std::string Communicator::broadcast_on_host(std::string text, std::string_view what) {
  text.resize(static_cast<std::size_t>(gather_on_host(static_cast<std::int64_t>(text.size()), what).front()));
  broadcast_on_host({text.data(), text.size(), DType::u8}, what);
  return text;
}

void Communicator::agree(std::string_view what, const std::function<void()>& work) {
  if (alone()) return work();
  std::string complaint;
  try {
    work();
  } catch (const std::exception& error) {
    complaint = error.what();
    if (complaint.empty()) complaint = "an exception without a text";
  }
  agree(complaint, what);
}

void Communicator::agree(const std::string& complaint, std::string_view what) {
  if (alone()) return check(complaint.empty(), "{}", complaint);
  std::vector<std::int64_t> lengths = gather_on_host(static_cast<std::int64_t>(complaint.size()), what);
  auto first = std::ranges::find_if(lengths, [](std::int64_t length) { return length > 0; });
  if (first == lengths.end()) return;
  auto culprit = static_cast<int>(first - lengths.begin());
  std::string text = complaint;
  text.resize(static_cast<std::size_t>(*first));
  host_group_->broadcast({text.data(), text.size(), DType::u8}, culprit,
                         {.label = std::string(what), .channel = CommChannel::urgent, .wait = true});
  text = fmt::format("rank {}: {}", culprit, text);
  // No operation failed, so the group has reported nothing to the launcher.
  make_failure_reporter(rank(), world_size())({culprit, text});
  throw Error(text);
}

}  // namespace lockstep
