#include "lockstep/launch/failure_reports.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "lockstep/launch/launch_environment.h"
#include "lockstep/net/numbered_text.h"
#include "lockstep/net/secret.h"

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kReportTimeout{1000};

std::string key(int restart, const std::string& name) { return fmt::format("failures/{}/{}", restart, name); }
std::string key_of(int restart, int rank) { return key(restart, fmt::format("rank/{}", rank)); }

}  // namespace

FailureReporter make_failure_reporter(int rank, int world_size) {
  const std::optional<LaunchEnvironment> e = read_launch_environment(rank, world_size);
  // Reports only under the number that the launcher assigned, because the launcher knows its ranks by these numbers.
  const std::optional<LaunchedRank> launched = read_launched_rank();
  const bool is_known = launched && e && launched->rank == e->rank && launched->world_size == e->world_size;
  if (!is_known || !e->launcher_has_store) return [](const RankFailure&) {};
  return
      [e = *e, secret = read_secret(), done = std::make_shared<std::atomic<bool>>(false)](const RankFailure& failure) {
        if (failure.culprit < 0 || done->exchange(true)) return;
        try {
          TcpStore store({.host = e.master_addr,
                          .port = e.master_port,
                          .secret = secret,
                          .connect_timeout = kReportTimeout,
                          .timeout = kReportTimeout});
          store.set(key_of(e.restart_count, e.rank), NumberedText{failure.culprit, failure.reason}.str());
          store.add(key(e.restart_count, "count"), 1);
        } catch (const std::exception&) {
          // Without a report, the launcher names the rank that ended first.
        }
      };
}

FailureReports::FailureReports(TcpStoreOptions store, int restart, int world_size)
    : options_(std::move(store)), restart_(restart), world_size_(world_size) {
  options_.connect_timeout = options_.timeout = kReportTimeout;
}

void FailureReports::read() noexcept {
  try {
    if (!store_) store_.emplace(options_);
    const std::int64_t count = store_->add(key(restart_, "count"), 0);
    if (count == count_) return;
    for (int r = 0; r < world_size_; ++r) {
      if (reports_.contains(r) || !store_->contains(key_of(restart_, r))) continue;
      const std::string report = store_->get(key_of(restart_, r), std::chrono::milliseconds(0));
      auto [culprit, reason] = parse_numbered_text("a lost rank", report, 0, world_size_ - 1);
      reports_[r] = {culprit, std::move(reason)};
    }
    count_ = count;
  } catch (const std::exception&) {
    // Without reports, the launcher names the rank that ended first.
  }
}

std::optional<RankFailure> FailureReports::culprit() const {
  std::map<int, int> votes;
  for (const auto& [rank, failure] : reports_) ++votes[failure.culprit];
  const auto most = std::ranges::max_element(votes, {}, [](const auto& vote) { return vote.second; });
  if (most == votes.end()) return {};
  for (const auto& [rank, failure] : reports_) {
    if (failure.culprit == most->first) return failure;
  }
  return {};
}

bool FailureReports::is_silent(int rank) const {
  return !reports_.contains(rank) &&
         std::ranges::any_of(reports_, [rank](const auto& report) { return report.second.culprit == rank; });
}

}  // namespace lockstep
