// Messages from other ranks that wait to be received.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "lockstep/comm/collective_header.h"
#include "lockstep/net/time_limit.h"

namespace lockstep {

struct Message {
  CollectiveHeader header;
  std::vector<std::byte> bytes;
};

class Mailbox {
 public:
  void put(int source, int tag, Message message);
  // Nothing more will come from there.
  void close(int source);
  bool closed(int source) const;
  // The oldest message of that source and tag. Nothing if none has come when the time is over, the source is closed,
  // or `give_up`, asked now and then, says so.
  std::optional<Message> take(int source, int tag, const TimeLimit& limit, const std::function<bool()>& give_up);

 private:
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<std::pair<int, int>, std::deque<Message>> messages_;  // by source and tag
  std::set<int> closed_;
};

}  // namespace lockstep
