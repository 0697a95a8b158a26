// Internal: the process group of every transport: checks arguments, queues operations, and adds the operation to each
// failure.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/comm/device_links.h"
#include "lockstep/comm/link_traffic.h"
#include "lockstep/comm/operation_queue.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/summing_device.h"
#include "lockstep/comm/transport.h"
#include "lockstep/launch/failure_reports.h"
#include "lockstep/net/comm_error.h"

namespace lockstep {

class TransportGroup final : public ProcessGroup {
 public:
  // `report` is called with the first failure, before the failed operation ends. `counters` are those of another group
  // of the same ranks; null: the group makes its own.
  TransportGroup(std::unique_ptr<Transport> transport, std::string backend, const GroupTimeouts& timeouts,
                 FailureReporter report = {}, std::shared_ptr<LinkCounters> counters = nullptr);
  // Ends all operations in progress with an error, on all ranks.
  ~TransportGroup() override;

  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }
  std::string_view backend() const override { return backend_; }

  Work all_reduce(CommBuffer data, ReduceOp op, CollectiveOptions options) override;
  Work broadcast(CommBuffer data, int root, CollectiveOptions options) override;
  Work all_gather(CommBuffer in, CommBuffer out, CollectiveOptions options) override;
  Work send(CommBuffer data, int destination, int tag, CollectiveOptions options) override;
  Work receive(CommBuffer data, int source, int tag, CollectiveOptions options) override;
  Work barrier(CollectiveOptions options) override;
  std::unique_ptr<TreeReducer> make_tree_reducer(TreeLayout layout, CommChannel channel,
                                                 std::shared_ptr<SummingDevice> device) override;
  std::shared_ptr<ProcessGroup> subgroup(std::vector<int> ranks) override;
  void abort(const std::string& reason) override;  // also aborts subgroups
  LinkTraffic traffic() const { return counters_->read(); }
  // Tells all ranks, after the messages in flight, that this rank sends no more. A rank that waits for another message
  // gets an error.
  Work end_messages();

 private:
  using Run = std::function<void(int channel, const CollectiveHeader& header, const TimeLimit& limit)>;

  Work submit(const CollectiveHeader& header, const CollectiveOptions& options, Run run);
  Work submit_to(OperationQueue& queue, int channel, const CollectiveHeader& header, const CollectiveOptions& options,
                 Run run);
  void run_guarded(int channel, const CollectiveHeader& header, std::chrono::milliseconds timeout, const Run& run);
  // Transports of the groups that were made from one another and have the same ranks (MPI: congruent communicators). A
  // group that loses a rank fails the other groups, too; otherwise each of them would wait until its own timeout.
  struct CongruentTransports {
    std::mutex mutex;
    // Holds transports, not groups: a thread that held a group for a moment could become its last owner and run its
    // destructor, which waits for operations.
    std::vector<Transport*> transports;
  };
  void fail_congruent(const RankFailure& failure);
  // Notes the first error. Returns the error with this operation's name.
  CommError failed(const RankFailure& own, const CollectiveHeader& header);
  std::shared_ptr<OperationQueue> stream(int peer, int tag, bool sending);
  bool is_sending() const;
  void check_root(std::string_view operation, int root) const;
  void check_peer(std::string_view operation, int peer, int tag) const;

  const std::shared_ptr<LinkCounters> counters_;
  std::unique_ptr<Transport> transport_;
  std::shared_ptr<DeviceLinks> device_links_;  // made for the first reducer on GPUs
  std::string backend_;
  const GroupTimeouts timeouts_;
  const FailureReporter report_;
  std::array<std::shared_ptr<OperationQueue>, kChannels> channels_;
  mutable std::mutex mutex_;
  // One queue for each (other rank, tag, direction): messages of one stream keep their order and do not wait for other
  // streams. A program may use each tag only once, so idle queues are removed when there are many.
  static constexpr std::size_t kManyStreams = 64;
  std::map<std::tuple<int, int, bool>, std::shared_ptr<OperationQueue>> streams_;
  std::optional<CommError> first_error_;
  std::vector<std::weak_ptr<TransportGroup>> subgroups_;
  std::shared_ptr<CongruentTransports> congruent_ = std::make_shared<CongruentTransports>();
  int subgroups_made_ = 0;
};

// Begins to close a group in all its channels at once, because another rank may wait in any of them. The work is done
// when all ranks close the group, and fails on all ranks if one of them waits for something else.
std::vector<Work> begin_closing(ProcessGroup& group);

}  // namespace lockstep
