#include "lockstep/launch/node_link.h"

#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/net/numbered_text.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// Gives ranks time to report a lost host first, because they know what they were waiting for.
constexpr milliseconds kSlack{3'000};

}  // namespace

NodeLink::NodeLink(std::shared_ptr<Store> store, int nnodes, int node_rank, milliseconds timeout)
    : store_(make_prefix_store("launchers/", std::move(store))), nnodes_(nnodes), node_rank_(node_rank),
      timeout_(timeout) {}

std::string NodeLink::key(const std::string& name) const { return fmt::format("{}/{}", start_, name); }

std::string NodeLink::key(const std::string& name, int node) const {
  return fmt::format("{}/{}/{}", start_, name, node);
}

bool NodeLink::meet(const std::string& job, const std::function<bool()>& stop, milliseconds limit) {
  ++start_;
  heartbeats_.clear();
  const std::int64_t count = store_->add(key("count", node_rank_), 1);
  check(count == 1, "launch: another launcher is node {} already", node_rank_);
  store_->set(key("job", node_rank_), job);
  const auto deadline = Clock::now() + limit;
  for (int node = 0; node < nnodes_; ++node) {
    while (!store_->contains(key("job", node))) {
      if (stop()) return false;
      check(Clock::now() < deadline, "launch: node {} of {} did not join within {} s", node, nnodes_,
            static_cast<double>(limit.count()) / 1000);
      std::this_thread::sleep_for(milliseconds(50));
    }
    const std::string other = store_->get(key("job", node), milliseconds(0));
    check(other == job, "launch: node {} has {}, node {} has {}", node_rank_, job, node, other);
  }
  return true;
}

void NodeLink::fail_all(const JobFailure& failure) {
  if (store_->add(key("failures"), 1) == 1) {
    store_->set(key("failure"), NumberedText{failure.status, failure.message + "\n" + failure.cause}.str());
  }
}

std::optional<JobFailure> NodeLink::failure() {
  if (!store_->contains(key("failure"))) return {};
  const auto [status, text] =
      parse_numbered_text("a failed rank's status", store_->get(key("failure"), milliseconds(0)), 0, 255);
  const std::size_t line = text.find('\n');
  return JobFailure{status, text.substr(0, line), text.substr(line + 1)};
}

void NodeLink::interrupt() { store_->set("interrupted", ""); }

bool NodeLink::interrupted() { return store_->contains("interrupted"); }

void NodeLink::finish() { store_->set(key("finished", node_rank_), ""); }

bool NodeLink::all_finished() {
  store_->add(key("heartbeat", node_rank_), 1);
  bool all = true;
  for (int node = 0; node < nnodes_; ++node) {
    if (node == node_rank_ || store_->contains(key("finished", node))) continue;
    all = false;
    const std::string heartbeat_key = key("heartbeat", node);
    const std::string count = store_->contains(heartbeat_key) ? store_->get(heartbeat_key, milliseconds(0)) : "";
    const Heartbeat latest{count, TimeLimit(timeout_ + kSlack)};
    Heartbeat& heartbeat = heartbeats_.try_emplace(node, latest).first->second;
    if (heartbeat.count != count) heartbeat = latest;
    check(!heartbeat.limit.over(), "launch: no answer from node {}'s launcher within {} s", node,
          static_cast<double>(heartbeat.limit.length().count()) / 1000);
  }
  return all && store_->contains(key("finished", node_rank_));
}

void NodeLink::leave() {
  const std::string gone = key("gone");
  if (node_rank_ != 0) {
    store_->add(gone, 1);
    return;
  }
  // Counts only nodes that have joined, because others do not leave.
  int others = 0;
  for (int node = 1; node < nnodes_; ++node) others += store_->contains(key("job", node));
  const auto soon = Clock::now() + std::chrono::seconds(5);
  while (store_->add(gone, 0) < others && Clock::now() < soon) std::this_thread::sleep_for(milliseconds(20));
}

}  // namespace lockstep
