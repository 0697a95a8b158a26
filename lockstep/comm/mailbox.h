// Internal: messages from other ranks that have not been received yet.
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

// The tag of a rank's last message, with which it closes its group. It sends no more.
constexpr int kEndOfMessages = -1;

// Limit of the bytes of one sender that wait at the receiver. The sender waits at this limit, so that it does not fill
// the receiver's memory. A single message may be larger.
constexpr std::size_t kMostUnreceived = std::size_t{64} << 20;

class Mailbox {
 public:
  void put(int source, int tag, Message message);
  // Notes that the connection with this source is gone.
  void close(int source);
  bool closed(int source) const;
  // Whether the source has sent its last message.
  bool ended(int source) const;
  // Bytes from this source that take() has not returned yet.
  std::size_t unreceived(int source) const;
  // Returns the oldest message of that source and tag. Waits for it; returns nothing if the time runs out, the source
  // is closed or has ended, or `give_up`, which is polled, returns true.
  std::optional<Message> take(int source, int tag, const TimeLimit& limit, const std::function<bool()>& give_up);

 private:
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<std::pair<int, int>, std::deque<Message>> messages_;  // by source and tag
  std::map<int, std::size_t> unreceived_;                        // by source
  std::set<int> closed_, ended_;
};

}  // namespace lockstep
