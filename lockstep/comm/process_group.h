// A group of ranks, and the collectives between them.
//
// Every rank calls the same collectives of a channel in the same order, with matching arguments. The operations of a
// channel run one after the other. By default, a call returns at once; the operation runs on the group's thread or on a
// thread that waits for it. With CollectiveOptions::wait, the call waits. If ranks disagree on the operation, size,
// type, or label, each rank gets an error instead of a hang. After a failure, every later operation of the group fails
// with the first error. Groups of the same ranks that were made from one another fail together.
//
// Sums follow the tree of base/tree.h over ranks. They have the same bits with every transport and in every run.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/tensor/dtype.h"

namespace LOCKSTEP_API lockstep {

class Store;          // net/store.h
class SummingDevice;  // comm/summing_device.h

// A handle to a collective in progress. Copies refer to the same operation. The operation continues without handles.
class Work {
 public:
  Work() = default;
  // Waits until the operation is complete on this rank. Throws its CommError, and throws it again in later calls.
  void wait() const;
  bool done() const;

  struct State;
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;
};

// Host memory, which must stay valid until the Work is done. (A TreeReducer's buffer may be GPU memory.)
struct CommBuffer {
  void* data = nullptr;
  std::size_t count = 0;  // elements
  DType dtype = DType::u8;

  template <typename T>
  std::span<T> as() const {
    check(dtype == dtype_of<T>, "buffer: {} of {}, expected {}", count, name(dtype), name(dtype_of<T>));
    return {static_cast<T*>(data), count};
  }
};

enum class ReduceOp : std::uint8_t { sum, min, max };

// `urgent` is for small messages, so that they do not wait for large ones of the other channel.
enum class CommChannel { urgent, bulk };

struct CollectiveOptions {
  // A name that errors show and that must be equal on all ranks: "bucket 3, step 17".
  std::string label = {};
  CommChannel channel = CommChannel::bulk;
  // Time to wait for all ranks to join. 0: the group's progress_timeout.
  std::chrono::milliseconds timeout{0};
  // True: the call returns when the operation is done, and throws what Work::wait() would throw. This saves waking the
  // group's thread.
  bool wait = false;
};

// The shape of a TreeReducer's sum. Each leaf of the tree has a position and an array; an array is a row of segments
// (parameters). A rank holds the arrays of its positions. Any segment of an array may be missing; the segment of its
// sibling then passes unchanged.
struct TreeLayout {
  std::vector<std::size_t> segments;        // number of elements of each segment
  std::vector<std::vector<int>> positions;  // positions of each rank, ascending and disjoint
  // f32 or bf16. With bf16, the arrays and the messages are bf16, and each sum of two elements is rounded to bf16.
  DType dtype = DType::f32;
};

// Sums all ranks' arrays in the tree over positions, with the same bits as one process that holds all arrays. Ranks of
// one host share the memory of contributions and result, so nothing is copied in or out. The result is f32. Destroy the
// reducer before its group. With a SummingDevice, contributions and result lie in that GPU's memory. Work on that
// memory must be finished before reduce() is called; the sum is finished when reduce() returns.
class TreeReducer {
 public:
  virtual ~TreeReducer() = default;
  // This rank's array for its k-th position, with all segments in a row. Write to it between the end of one reduce()
  // and the start of the next.
  virtual CommBuffer contribution(std::size_t k) = 0;
  virtual void set_present(std::size_t k, std::size_t segment, bool present) = 0;
  // A collective, in order with the group's other operations on its channel. Returns when the sum is ready. Throws
  // CommError.
  virtual void reduce(const CollectiveOptions& options) = 0;
  // The sum. It always lies in the same memory, which the next reduce() overwrites. Segments that no rank has are zero.
  virtual std::span<const float> result() const = 0;
  virtual bool result_present(std::size_t segment) const = 0;
};

class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // The backend of ProcessGroupOptions ("host" for "gloo"), or "local" if ranks are threads.
  virtual std::string_view backend() const = 0;

  virtual Work all_reduce(CommBuffer data, ReduceOp op, CollectiveOptions options = {}) = 0;
  virtual Work broadcast(CommBuffer data, int root, CollectiveOptions options = {}) = 0;
  // `out` holds every rank's `in`, in the order of ranks: size() times as many elements.
  virtual Work all_gather(CommBuffer in, CommBuffer out, CollectiveOptions options = {}) = 0;
  // Point-to-point messages. Messages arrive in order only if they have the same sender, receiver, and tag (0 or more).
  // A send is done when its message is in flight. Except with "mpi", a send waits while 64 MiB from this sender wait at
  // the receiver.
  virtual Work send(CommBuffer data, int destination, int tag, CollectiveOptions options = {}) = 0;
  virtual Work receive(CommBuffer data, int source, int tag, CollectiveOptions options = {}) = 0;
  virtual Work barrier(CollectiveOptions options = {}) = 0;

  // A collective. All ranks must use a group's reducers in the same order. With `device`, NCCL moves the pieces; every
  // rank must then pass a device on its own GPU, and use that device with one reducer at a time.
  virtual std::unique_ptr<TreeReducer> make_tree_reducer(TreeLayout layout, CommChannel channel,
                                                         std::shared_ptr<SummingDevice> device = nullptr) = 0;
  // A collective over all ranks of this group. Returns the new group on the given ranks (ascending), and null on other
  // ranks.
  virtual std::shared_ptr<ProcessGroup> subgroup(std::vector<int> ranks) = 0;

  // Fails all operations in progress on this rank. Sends `reason` to the other ranks, whose errors then state it. Safe
  // to call from any thread.
  virtual void abort(const std::string& reason) = 0;
};

struct ProcessGroupOptions {
  // "host": shared memory if all ranks are on one host, else TCP; also works in jobs that mpirun started. "gloo",
  // PyTorch's name for its CPU backend, is an alias of "host". "nccl": like "host", but gradients stay on the ranks'
  // GPUs, and NCCL moves them; Communicator throws if a rank has no GPU to itself or no NCCL. "auto": "nccl" if
  // possible, else "host". "mpi": MPI messages between all processes that mpirun started, without a store or a secret.
  // A process can make only one such group, and subgroups of it. A lost rank ends the whole job, because mpirun then
  // kills the other ranks.
  std::string backend = "auto";
  // -1: read from the environment variables of torchrun, `lockstep launch`, mpirun, or Slurm (see read_launched_rank).
  int rank = -1;
  int world_size = -1;
  // Null: the store at MASTER_ADDR and MASTER_PORT (or LOCKSTEP_PORT). Rank 0 hosts it unless the launcher does.
  std::shared_ptr<Store> store = {};
  // A rank is lost if it does not join within this time, or if its process is silent for this long. A busy rank is not
  // silent: its group sends heartbeats. 0: LOCKSTEP_TIMEOUT (seconds), which `lockstep launch --timeout` sets, or 60 s.
  std::chrono::milliseconds timeout{0};
  // Time that a rank may take to reach an operation while its process is alive, for example while rank 0 writes a
  // checkpoint. After this time the rank counts as hung, and the group ends. 0: LOCKSTEP_PROGRESS_TIMEOUT (seconds), or
  // 30 times `timeout`.
  std::chrono::milliseconds progress_timeout{0};
};

// A collective of all ranks of the job. Returns when all have joined; throws CommError if a rank does not join within
// the timeout. Raises the soft limit of open files to the hard limit, because groups open many sockets.
std::shared_ptr<ProcessGroup> init_process_group(ProcessGroupOptions options = {});
// Waits for all ranks, then closes the group, so that a rank that finishes early does not count as lost. Resets the
// pointer.
void destroy_process_group(std::shared_ptr<ProcessGroup>& group);

// Makes groups for ranks that are threads of this process: one group for each rank of a new world. A single thread
// cannot be lost, so there is no `timeout`.
std::vector<std::shared_ptr<ProcessGroup>> make_local_groups(
    int world_size, std::chrono::milliseconds progress_timeout = std::chrono::minutes(30));

}  // namespace lockstep
