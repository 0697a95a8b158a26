// Ranks report to the launcher which rank they have lost. The launcher does not see that by itself: a rank that notices
// the loss may end first, and a rank that stands still does not end at all.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>

#include "lockstep/net/comm_error.h"
#include "lockstep/net/tcp_store.h"

namespace lockstep {

using FailureReporter = std::function<void(const RankFailure&)>;

// A rank's part. The reporter writes to the launcher's store; it does nothing where there is none, or where the numbers
// given are not the launcher's. It acts once, never throws, and takes a second or two at most where the store is out of
// reach. Arguments as read_launch_environment()'s.
FailureReporter make_failure_reporter(int rank, int world_size);

// The launcher's part, for one start of all ranks.
class FailureReports {
 public:
  FailureReports(TcpStoreOptions store, int restart, int world_size);

  // Looks for new ones. Never throws: a store that is out of reach has none.
  void read() noexcept;
  // The rank that most others have lost, and how.
  std::optional<RankFailure> culprit() const;
  // Others have lost it and it has reported nothing: it stands still.
  bool is_silent(int rank) const;

 private:
  TcpStoreOptions options_;
  int restart_, world_size_;
  std::optional<TcpStore> store_;
  std::map<int, RankFailure> reports_;  // by who says so
};

}  // namespace lockstep
