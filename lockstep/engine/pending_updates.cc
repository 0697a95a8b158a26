#include "lockstep/engine/pending_updates.h"

#include <utility>

namespace lockstep {

void PendingUpdates::add(const std::shared_ptr<Engine>& engine, Resource done) {
  if (pending_.empty()) reports_ = engine->reports();
  pending_.push_back({engine, std::move(done)});
  while (pending_.size() > 1) {
    const std::shared_ptr<Engine> first = pending_.front().engine.lock();
    // An update that was left out must still be counted.
    if (first && (!first->unused(pending_.front().done) || first->failure(pending_.front().done))) return;
    pending_.pop_front();
  }
}

std::int64_t PendingUpdates::take_left_out() {
  if (pending_.empty()) return 0;
  const std::shared_ptr<Engine> engine = pending_.back().engine.lock();
  if (!engine) return 0;
  const std::uint64_t reports = engine->reports();
  return std::exchange(reports_, reports) == reports ? 0 : wait_left_out();
}

std::int64_t PendingUpdates::wait_left_out() {
  std::int64_t left_out = 0;
  for (const auto& [owner, done] : std::exchange(pending_, {})) {
    const std::shared_ptr<Engine> of_update = owner.lock();
    if (!of_update) continue;
    of_update->wait_unused(done);
    const FailurePtr failure = of_update->failure(done);
    left_out += failure && !failure->cancelled;
  }
  return left_out;
}

}  // namespace lockstep
