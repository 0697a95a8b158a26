// Ranks that work together, and the collectives between them.
//
// Every rank calls the same collectives of a channel in the same order, with matching arguments. A channel's operations
// run one after the other: on a thread of the group's own, while the call returns at once, or on the caller's if it is
// to wait (CollectiveOptions::wait). Ranks that disagree (another operation, size, type or label at the same place) are
// told so instead of hanging. After a failure the group is of no further use: every later operation fails with the
// first error. So are groups of all the same ranks that it was made from, or were made from it.
//
// Sums are taken in the tree of base/tree.h over ranks, whatever the back end, so they have the same bits on all of
// them and from run to run.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/comm/work.h"
#include "lockstep/net/store.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep {

class SummingDevice;  // comm/summing_device.h

// Host memory, held by the caller until the Work is done. (A TreeReducer's may be a GPU's.)
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

// Small messages that others wait for do not queue behind large ones.
enum class CommChannel { urgent, bulk };

struct CollectiveOptions {
  // For errors and the check that ranks agree: "bucket 3, step 17".
  std::string label = {};
  CommChannel channel = CommChannel::bulk;
  // All ranks have to come within this time. 0: the group's progress_timeout.
  std::chrono::milliseconds timeout{0};
  // The call itself waits, and throws what Work::wait would: no other thread has to be told of the operation.
  bool wait = false;
};

// A TreeReducer sums arrays of segments (parameters), one array for each position in a tree of leaves. A rank
// holds the arrays of its positions; any segment of an array may be missing, and then lets its sibling pass unchanged.
struct TreeLayout {
  std::vector<std::size_t> segments;        // elements of each
  std::vector<std::vector<int>> positions;  // of each rank, ascending; disjoint
  // f32; or bf16: of the arrays, of what travels, and every sum of two is rounded to it.
  DType dtype = DType::f32;
};

// A sum over all ranks' arrays in the tree over positions: bit for bit what one process gets that holds them all. Its
// memory is shared between ranks where the back end can, so nothing is copied in or out. The result is f32. Destroyed
// before its group. With a SummingDevice, contributions and result are addresses in that GPU's memory: what writes and
// reads them is over before reduce() begins, and it is over when reduce() returns.
class TreeReducer {
 public:
  virtual ~TreeReducer() = default;
  // This rank's array for its k-th position, all segments one behind the other. Free to write between the end of a
  // reduce() and the beginning of the next.
  virtual CommBuffer contribution(std::size_t k) = 0;
  virtual void set_present(std::size_t k, std::size_t segment, bool present) = 0;
  // A collective, in order with the group's others of that channel; on the caller's thread: blocks until the sum is
  // there. Throws CommError.
  virtual void reduce(const CollectiveOptions& options) = 0;
  // The same memory throughout; overwritten when this rank calls reduce() again. Segments that no rank has are zeros.
  virtual std::span<const float> result() const = 0;
  virtual bool result_present(std::size_t segment) const = 0;
};

class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // ProcessGroupOptions::backend as given, or "local": ranks as threads.
  virtual std::string_view backend() const = 0;

  virtual Work all_reduce(CommBuffer data, ReduceOp op, CollectiveOptions options = {}) = 0;
  virtual Work broadcast(CommBuffer data, int root, CollectiveOptions options = {}) = 0;
  // out: size() times in, in the order of ranks.
  virtual Work all_gather(CommBuffer in, CommBuffer out, CollectiveOptions options = {}) = 0;
  // Between two ranks, in order for each pair and tag (0 or more), not in order with anything else.
  virtual Work send(CommBuffer data, int destination, int tag, CollectiveOptions options = {}) = 0;
  virtual Work receive(CommBuffer data, int source, int tag, CollectiveOptions options = {}) = 0;
  virtual Work barrier(CollectiveOptions options = {}) = 0;

  // Collective. Reducers of one group are used in one order on all ranks. `device`: all ranks have one, on a GPU that
  // is no other rank's, and use it with one reducer at a time. NCCL then moves the pieces.
  virtual std::unique_ptr<TreeReducer> make_tree_reducer(TreeLayout layout, CommChannel channel,
                                                         std::shared_ptr<SummingDevice> device = nullptr) = 0;
  // Collective over all ranks of this group: the new group of `ranks` (ascending), in that order; null for the others.
  virtual std::shared_ptr<ProcessGroup> subgroup(std::vector<int> ranks) = 0;

  // Tells the others why this rank gives up, so that they name it, and fails all that is under way here. Safe from any
  // thread.
  virtual void abort(const std::string& reason) = 0;
};

struct ProcessGroupOptions {
  // "gloo", as PyTorch calls what it has for CPUs: shared memory between the ranks of one host, TCP where they are on
  // several. Jobs that mpirun started are among them: its variables are read as torchrun's are. "nccl": the same, but
  // gradients stay on the ranks' GPUs, between which NCCL moves them. An error (Communicator) where a rank has no GPU
  // of its own, or no NCCL. "auto": as "nccl" where that can be, else as "gloo". "mpi": MPI's messages, between all
  // processes that mpirun started; a process can make one such group, and others from it. Without a store, or a secret.
  // A rank that is lost takes the whole job with it: mpirun ends the others.
  std::string backend = "auto";
  // -1: from the environment (RANK, WORLD_SIZE), as torchrun, `lockstep launch` and the usual schedulers set it.
  int rank = -1;
  int world_size = -1;
  // None: the one at MASTER_ADDR and MASTER_PORT (or LOCKSTEP_PORT); rank 0 makes it where there is none yet.
  std::shared_ptr<Store> store = {};
  // A rank that does not meet the others, or of whose process nothing is heard for so long, is lost. One that is busy
  // is not, since a thread of its group shows that it is alive. 0: LOCKSTEP_TIMEOUT (seconds), which `lockstep launch
  // --timeout` sets, or 60 s.
  std::chrono::milliseconds timeout{0};
  // A rank that is alive may take so long to come to an operation: a checkpoint, say, or a callback of rank 0. After
  // that it hangs, which ends the group. 0: LOCKSTEP_PROGRESS_TIMEOUT (seconds), or 30 times `timeout`.
  std::chrono::milliseconds progress_timeout{0};
};

// Every rank of the job calls it; returns when all have met. Groups open many sockets: the process's soft limit of open
// files is raised to its hard one.
std::shared_ptr<ProcessGroup> init_process_group(ProcessGroupOptions options = {});
// Waits for all ranks, then closes: so that a rank that is through is not taken for lost. The pointer is reset.
void destroy_process_group(std::shared_ptr<ProcessGroup>& group);

// Ranks as threads of this process: one group for each rank of a new world. None of them can be lost alone.
std::vector<std::shared_ptr<ProcessGroup>> make_local_groups(
    int world_size, std::chrono::milliseconds progress_timeout = std::chrono::minutes(30));

}  // namespace lockstep
