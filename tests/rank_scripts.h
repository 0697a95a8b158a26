// Shell scripts of ranks for tests of the launcher.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>

namespace lockstep {

// Rank 1 ends itself with the command `end`. The others go on when the launcher has noticed that: it forgets a process
// that has ended, so no signal reaches it any more. `folder` holds the number of rank 1's process.
inline std::string rank_one_ends_first(const std::string& folder, std::string_view end) {
  return fmt::format(
      "one={}/one$LOCKSTEP_RESTART_COUNT; [ $RANK != 1 ] || {{ echo $$ > $one.new; mv $one.new $one; {}; }}; "
      "while [ ! -e $one ]; do sleep 0.02; done; while kill -0 $(cat $one) 2> /dev/null; do sleep 0.02; done; ",
      folder, end);
}

}  // namespace lockstep
