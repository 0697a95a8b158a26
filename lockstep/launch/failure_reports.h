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

// Makes a rank's reporter, which writes to the launcher's store. The reporter does nothing if there is no such store or
// if the given numbers are not the launcher's. It reports once, never throws, and takes at most a second or two if the
// store is unreachable. The arguments are those of read_launch_environment().
FailureReporter make_failure_reporter(int rank, int world_size);

// The reports that the launcher receives after one start of all ranks.
class FailureReports {
 public:
  FailureReports(TcpStoreOptions store, int restart, int world_size);

  // Fetches new reports. Never throws: if the store is unreachable, there are no new reports.
  void read() noexcept;
  // The rank that most reports call lost, and the reason; empty without reports.
  std::optional<RankFailure> culprit() const;
  // Whether the rank hangs: other ranks have reported it as lost, and it has reported nothing.
  bool is_silent(int rank) const;

 private:
  TcpStoreOptions options_;
  int restart_, world_size_;
  std::optional<TcpStore> store_;
  std::map<int, RankFailure> reports_;  // by the reporting rank
  // The count at the last read. It may lag the reports, because a rank can die between its report and the count.
  std::int64_t count_ = 0;
};

}  // namespace lockstep
