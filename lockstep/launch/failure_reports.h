// Internal: ranks report to the launcher which rank they lost. The launcher cannot tell from exit statuses: a rank that
// notices the loss may end first, and a rank that hangs never ends.
#pragma once

#include <functional>
#include <map>
#include <optional>

#include "lockstep/net/rank_failure.h"
#include "lockstep/net/tcp_store.h"

namespace lockstep {

using FailureReporter = std::function<void(const RankFailure&)>;

// A rank's side. The reporter writes to the launcher's store. It does nothing if there is no such store or if the given
// numbers are not the launcher's. It reports once, never throws, and takes at most a second or two if the store is
// unreachable. The arguments are those of read_launch_environment().
FailureReporter make_failure_reporter(int rank, int world_size);

// The launcher's side, for one start of all ranks.
class FailureReports {
 public:
  FailureReports(TcpStoreOptions store, int restart, int world_size);

  // Fetches new reports. Never throws: an unreachable store has no reports.
  void read() noexcept;
  // The rank that most other ranks have lost, and the reason.
  std::optional<RankFailure> culprit() const;
  // Whether others have lost the rank while it reported nothing itself, so it hangs.
  bool is_silent(int rank) const;

 private:
  TcpStoreOptions options_;
  int restart_, world_size_;
  std::optional<TcpStore> store_;
  std::map<int, RankFailure> reports_;  // by the reporting rank
  // The count at the last read. It may be behind the reports: a rank can die after its report and before it counts.
  std::int64_t count_ = 0;
};

}  // namespace lockstep
