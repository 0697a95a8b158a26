#include "lockstep/launch/meeting.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/hmac.h"
#include "lockstep/base/version.h"
#include "lockstep/net/comm_error.h"
#include "lockstep/net/numbered_text.h"
#include "lockstep/net/rank_failure.h"
#include "lockstep/net/tcp_socket.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr const char* kVerdictKey = "verdict";

std::string record_key(int rank) { return fmt::format("rank/{}", rank); }
// This key is set when the rank has read the verdict.
std::string told_key(int rank) { return fmt::format("told/{}", rank); }

std::string other_world_size(int rank, int says, int expected) {
  return fmt::format("rendezvous: rank {} says that the world size is {}, rank 0 says {}", rank, says, expected);
}

std::string other_build(int rank, const std::string& has, const std::string& expected) {
  return fmt::format("rendezvous: rank {} has {}, rank 0 has {}: their bits may differ, expected one version", rank,
                     describe_build(has), describe_build(expected));
}

// Returns text that identifies this process, even across containers.
std::string this_process() {
  char host[HOST_NAME_MAX + 1] = {};
  (void)::gethostname(host, sizeof host - 1);
  // Field 22 is the start time. The program's name before it may hold anything, and ends at the last parenthesis.
  const std::string stat = read_file("/proc/self/stat", 1 << 16);
  std::istringstream fields(stat.substr(stat.rfind(')') + 1));
  std::string started;
  for (int field = 3; field <= 22; ++field) fields >> started;
  return fmt::format("process {} on {} (started at {})", ::getpid(), host, started);
}

}  // namespace

std::string build_id() { return fmt::format("{}/{}", LOCKSTEP_VERSION, LOCKSTEP_KERNEL_REVISION); }

std::string describe_build(const std::string& id) {
  if (id.empty()) return "an older Lockstep";
  const std::size_t slash = id.find('/');
  return fmt::format("Lockstep {} (kernel revision {})", id.substr(0, slash), id.substr(slash + 1));
}

std::string Meeting::Verdict::str() const { return (go ? "go " : "stop ") + NumberedText{of, text}.str(); }

Meeting::Verdict Meeting::parse_verdict(const std::string& text) {
  const std::size_t space = text.find(' ');
  auto [of, explanation] =
      parse_numbered_text("the verdict on the group", std::string_view(text).substr(space + 1), -1, INT_MAX);
  return {.go = text.substr(0, space) == "go", .of = of, .text = std::move(explanation)};
}

Meeting::Meeting(std::shared_ptr<Store> store, MeetingOptions options)
    : store_(std::move(store)), options_(std::move(options)), deadline_(options_.begin + options_.timeout) {}

std::string Meeting::meet() {
  const std::int64_t group = number_of_group();
  group_ = make_prefix_store(fmt::format("{}/", group), store_);
  group_->set(record_key(options_.rank),
              fmt::format("{} {} {}", options_.world_size, options_.address, options_.build));
  const Verdict verdict = options_.rank == 0 ? decide() : await_verdict();
  if (!verdict.go) {
    if (options_.rank != 0) group_->set(told_key(options_.rank), "");
    throw CommError(verdict.text, verdict.of);
  }
  if (verdict.of != options_.world_size) {
    throw CommError(other_world_size(options_.rank, options_.world_size, verdict.of), -1);
  }
  std::istringstream words(verdict.text);
  std::string number, hosts, build;
  words >> number >> hosts >> build;
  // Checks the build again, because an older rank 0 does not compare it.
  if (build != options_.build) throw CommError(other_build(options_.rank, options_.build, build), -1);
  // Without another address, the loopback route to the store says nothing about how other hosts reach this one.
  if (hosts == "several" && is_loopback(options_.address)) options_.address = address_for_others();
  return number;
}

std::string Meeting::address_for_others() {
  for (int rank = 0; rank < options_.world_size; ++rank) {
    std::istringstream record(group_->get(record_key(rank), milliseconds(0)));
    int world_size = 0;
    std::string address;
    record >> world_size >> address;
    if (is_loopback(address)) continue;
    // Uses the route to another rank, because some networks of a host may lead only to its containers.
    if (std::string own = host_towards(address); !own.empty() && !is_loopback(own)) return own;
  }
  std::string own = outward_host();
  if (own.empty()) {
    throw CommError(
        fmt::format("rendezvous: rank {} has no address but loopback, other hosts cannot reach it", options_.rank),
        options_.rank);
  }
  return own;
}

std::int64_t Meeting::number_of_group() {
  const std::string process_key = fmt::format("process of rank/{}", options_.rank), self = this_process();
  const std::int64_t group = store_->add(fmt::format("groups of rank/{}", options_.rank), 1);
  if (group == 1) {
    store_->set(process_key, self);
    return group;
  }
  const std::string first = store_->get(process_key, milliseconds(5000));
  if (first == self) return group;
  // Tells ranks that still wait for their first group. A job that already runs continues.
  group_ = make_prefix_store("1/", store_);
  const Verdict verdict{
      .text = fmt::format("rendezvous: rank {} joined twice: first as {}, now as {}", options_.rank, first, self)};
  if (!group_->contains(kVerdictKey)) announce(verdict);
  throw CommError(verdict.text, -1);
}

Meeting::Verdict Meeting::decide() {
  Verdict verdict{.go = true, .of = options_.world_size};
  bool several_hosts = !is_loopback(options_.address);
  for (int rank = 1; rank < options_.world_size && verdict.go; ++rank) {
    const std::optional<std::string> record = await(record_key(rank));
    if (!record) {
      verdict = verdict_on_missing();
      break;
    }
    std::istringstream words(*record);
    int world_size = 0;
    std::string address, build;
    words >> world_size >> address >> build;
    if (world_size != options_.world_size) {
      verdict = {.text = other_world_size(rank, world_size, options_.world_size)};
    } else if (build != options_.build) {
      verdict = {.text = other_build(rank, build, options_.build)};
    }
    several_hosts |= !is_loopback(address);
  }
  if (verdict.go)
    verdict.text = hexadecimal(random_bytes(32)) + (several_hosts ? " several " : " one ") + options_.build;
  announce(verdict);
  // Keeps the store alive until the ranks that joined have read the reason.
  const auto soon = Clock::now() + std::chrono::seconds(2);
  for (int rank = 1; rank < options_.world_size && !verdict.go && options_.holds_store; ++rank) {
    while (group_->contains(record_key(rank)) && !group_->contains(told_key(rank)) && Clock::now() < soon) {
      std::this_thread::sleep_for(milliseconds(10));
    }
  }
  return verdict;
}

Meeting::Verdict Meeting::await_verdict() {
  // Waits for the whole timeout, because rank 0 may have joined later and waits equally long.
  const std::optional<std::string> text = await(kVerdictKey);
  return text ? parse_verdict(*text) : verdict_on_missing();
}

Meeting::Verdict Meeting::verdict_on_missing() {
  if (group_->contains(kVerdictKey)) return parse_verdict(group_->get(kVerdictKey, milliseconds(0)));
  std::vector<int> missing;
  for (int rank = 0; rank < options_.world_size; ++rank) {
    if (!group_->contains(record_key(rank))) missing.push_back(rank);
  }
  const double seconds = static_cast<double>(options_.timeout.count()) / 1000;
  if (missing.empty()) {
    return {.of = 0,
            .text = fmt::format("rendezvous: all {} ranks joined, but rank 0 did not confirm it within {} s",
                                options_.world_size, seconds)};
  }
  return {.of = missing.front(),
          .text = fmt::format("rendezvous: rank{} {} of {} did not join within {} s", missing.size() == 1 ? "" : "s",
                              fmt::join(missing, ", "), options_.world_size, seconds)};
}

void Meeting::announce(const Verdict& verdict) { group_->set(kVerdictKey, verdict.str()); }

std::optional<std::string> Meeting::await(const std::string& key) {
  for (;;) {
    if (group_->contains(key)) return group_->get(key, milliseconds(0));
    if (Clock::now() >= deadline_ || group_->contains(kVerdictKey)) return {};
    try {
      return group_->get(key, std::min(milliseconds(milliseconds_until(deadline_)), milliseconds(500)));
    } catch (const ConnectionError&) {
      throw;
    } catch (const Error&) {
      // The key is not set yet.
    }
  }
}

}  // namespace lockstep
