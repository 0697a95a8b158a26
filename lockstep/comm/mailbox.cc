#include "lockstep/comm/mailbox.h"

namespace lockstep {

void Mailbox::put(int source, int tag, Message message) {
  {
    std::lock_guard lock(mutex_);
    if (tag == kEndOfMessages) {
      ended_.insert(source);
    } else {
      unreceived_[source] += message.bytes.size();
      messages_[{source, tag}].push_back(std::move(message));
    }
  }
  arrived_.notify_all();
}

void Mailbox::close(int source) {
  {
    std::lock_guard lock(mutex_);
    closed_.insert(source);
  }
  arrived_.notify_all();
}

bool Mailbox::closed(int source) const {
  std::lock_guard lock(mutex_);
  return closed_.contains(source);
}

bool Mailbox::ended(int source) const {
  std::lock_guard lock(mutex_);
  return ended_.contains(source);
}

std::size_t Mailbox::unreceived(int source) const {
  std::lock_guard lock(mutex_);
  const auto found = unreceived_.find(source);
  return found == unreceived_.end() ? 0 : found->second;
}

std::optional<Message> Mailbox::take(int source, int tag, const TimeLimit& limit,
                                     const std::function<bool()>& give_up) {
  constexpr std::chrono::milliseconds kBetweenLooks{20};
  std::unique_lock lock(mutex_);
  for (;;) {
    if (auto queue = messages_.find({source, tag}); queue != messages_.end()) {
      Message message = std::move(queue->second.front());
      queue->second.pop_front();
      if (queue->second.empty()) messages_.erase(queue);
      unreceived_[source] -= message.bytes.size();
      return message;
    }
    const auto is_over = [&] { return closed_.contains(source) || ended_.contains(source); };
    if (is_over() || limit.over()) return std::nullopt;
    // Calls give_up() without the lock, so that messages can arrive meanwhile.
    lock.unlock();
    if (give_up()) return std::nullopt;
    lock.lock();
    arrived_.wait_for(lock, kBetweenLooks, [&] { return messages_.contains({source, tag}) || is_over(); });
  }
}

}  // namespace lockstep
