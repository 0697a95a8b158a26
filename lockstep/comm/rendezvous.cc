#include "lockstep/comm/rendezvous.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/hmac.h"
#include "lockstep/comm/launch_environment.h"
#include "lockstep/comm/secret.h"
#include "lockstep/comm/tcp_socket.h"
#include "lockstep/comm/tcp_store.h"
#include "lockstep/comm/tcp_store_server.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr std::string_view kLoopback = "127.0.0.1";

milliseconds left_until(Deadline deadline) { return milliseconds(milliseconds_until(deadline)); }

struct Connected {
  std::shared_ptr<Store> store;
  std::string address = std::string(kLoopback);
  bool hosted = false;  // by this process
};

std::unique_ptr<TcpStoreServer> make_server(const LaunchEnvironment& e, const std::string& secret) {
  const bool here = e.on_one_host() || e.world_size == 1;
  const auto listen = [&](int port) {
    return here ? std::make_unique<TcpStoreServer>(TcpStoreServerOptions{.port = port, .secret = secret})
                : listen_for_hosts(e.master_addr, port, secret);
  };
  if (e.store_port) return listen(*e.store_port);
  try {
    return listen(e.master_port);
  } catch (const ListenError& error) {
    // Who started the job may hold the port himself.
    if (error.code() != EADDRINUSE) throw;
    return listen(e.next_port);
  }
}

// Rank 0 makes the store and talks to it like everyone else.
Connected host_store(const LaunchEnvironment& e, const std::string& secret) {
  struct Hosted {
    std::unique_ptr<TcpStoreServer> server;
    std::optional<TcpStore> client;
  };
  auto hosted = std::make_shared<Hosted>();
  hosted->server = make_server(e, secret);
  const std::string address = hosted->server->address();
  const std::string host = address.substr(0, address.rfind(':'));
  const bool any = host == "0.0.0.0";
  const std::string at = any                     ? std::string(kLoopback)
                         : host.starts_with('[') ? host.substr(1, host.size() - 2)
                                                 : host;
  hosted->client.emplace(TcpStoreOptions{.host = at, .port = hosted->server->port(), .secret = secret});
  return {std::shared_ptr<Store>(hosted, &*hosted->client), at, true};
}

Connected connect_store(const LaunchEnvironment& e, const std::string& secret, Deadline deadline) {
  const bool here = !e.launcher_has_store && (e.on_one_host() || e.world_size == 1);
  TcpStoreOptions options{.host = here ? std::string(kLoopback) : e.master_addr,
                          .port = e.launcher_has_store ? e.master_port : e.store_port.value_or(e.master_port),
                          .secret = secret,
                          .connect_timeout = left_until(deadline)};
  const auto connect = [&] {
    const auto store = std::make_shared<TcpStore>(options);
    return Connected{store, store->local_host()};
  };
  if (e.launcher_has_store || e.store_port) return connect();
  // Rank 0 may have had to take the next port.
  for (;;) {
    for (const int port : {e.master_port, e.next_port}) {
      options.port = port;
      options.connect_timeout = std::min(left_until(deadline), milliseconds(1000));
      try {
        return connect();
      } catch (const ConnectionError&) {
        if (Clock::now() >= deadline) throw;
      }
    }
  }
}

// Tells processes apart, also of different containers.
std::string this_process() {
  char host[HOST_NAME_MAX + 1] = {};
  (void)::gethostname(host, sizeof host - 1);
  // Field 22, the time at which it started; the name before may hold anything, up to the last parenthesis.
  const std::string stat = read_file("/proc/self/stat", 1 << 16);
  std::istringstream fields(stat.substr(stat.rfind(')') + 1));
  std::string started;
  for (int field = 3; field <= 22; ++field) fields >> started;
  return fmt::format("process {} on {} (started at {})", ::getpid(), host, started);
}

// The ranks of one group come together. Every rank leaves a record; rank 0 reads them all and says whether this is a
// job. Groups of one store are told apart by how often a rank has come: its n-th group is everyone's n-th.
class Meeting {
 public:
  Meeting(const LaunchEnvironment& e, Connected connected, Deadline deadline, milliseconds timeout)
      : e_(e), connected_(std::move(connected)), deadline_(deadline), timeout_(timeout) {
    job_ = make_prefix_store(fmt::format("rendezvous/{}/", e.restart_count), connected_.store);
  }

  // What all agreed on: rank 0's random number.
  std::string meet() {
    const std::int64_t group = number_of_group();
    group_ = make_prefix_store(fmt::format("{}/", group), job_);
    group_->set(record_key(e_.rank), fmt::format("{} {}", e_.world_size, connected_.address));
    const std::string verdict = e_.rank == 0 ? decide() : await_verdict();
    std::istringstream words(verdict);
    std::string kind, number, hosts;
    int world_size = 0;
    words >> kind >> world_size >> number >> hosts;
    if (kind != "go") {
      // Rank 0 stays until this is read: it may have the store.
      if (e_.rank != 0) group_->set(told_key(e_.rank), "");
      throw CommError(verdict, lost_rank_);
    }
    check(world_size == e_.world_size, "rendezvous: rank {} says that the world size is {}, rank 0 says {}",
          e_.rank, e_.world_size, world_size);
    // The way to a store on one's own host says nothing about how others come here.
    if (hosts == "several" && is_loopback(connected_.address)) connected_.address = outward_host();
    return number;
  }

  std::shared_ptr<Store> store() const { return make_prefix_store("group/", group_); }
  const std::string& address() const { return connected_.address; }

 private:
  static std::string record_key(int rank) { return fmt::format("rank/{}", rank); }
  static std::string told_key(int rank) { return fmt::format("told/{}", rank); }

  std::int64_t number_of_group() {
    const std::string process_key = fmt::format("process of rank/{}", e_.rank), self = this_process();
    const std::int64_t group = job_->add(fmt::format("groups of rank/{}", e_.rank), 1);
    if (group == 1) {
      job_->set(process_key, self);
      return group;
    }
    const std::string first = job_->get(process_key, std::min(left_until(deadline_), milliseconds(5000)));
    if (first == self) return group;
    const std::string problem = fmt::format(
        "rendezvous: rank {} came twice: it is {}, and now {} says the same", e_.rank, first, self);
    // Those who still wait are told; a job that is under way goes on.
    const std::string verdict = "1/verdict";
    if (!job_->contains(verdict)) job_->set(verdict, problem);
    fail("{}", problem);
  }

  std::string decide() {
    bool several_hosts = false;
    for (int rank = 1; rank < e_.world_size; ++rank) {
      const std::optional<std::string> record = await(record_key(rank));
      if (!record) return give_up(describe_missing());
      if (group_->contains(kVerdict)) return group_->get(kVerdict, milliseconds(0));
      std::istringstream words(*record);
      int world_size = 0;
      std::string address;
      words >> world_size >> address;
      if (world_size != e_.world_size) {
        return give_up(fmt::format("rendezvous: rank {} says that the world size is {}, rank 0 says {}", rank,
                                   world_size, e_.world_size));
      }
      several_hosts |= !is_loopback(address);
    }
    several_hosts |= !is_loopback(connected_.address);
    const std::string verdict = fmt::format("go {} {} {}", e_.world_size, hexadecimal(random_bytes(32)),
                                            several_hosts ? "several" : "one");
    group_->set(kVerdict, verdict);
    return verdict;
  }

  // Rank 0 may hold the store, so it does not go before those who came have read why.
  std::string give_up(std::string problem) {
    group_->set(kVerdict, problem);
    const Deadline soon = Clock::now() + std::chrono::seconds(2);
    for (int rank = 1; rank < e_.world_size && connected_.hosted; ++rank) {
      while (group_->contains(record_key(rank)) && !group_->contains(told_key(rank)) && Clock::now() < soon) {
        std::this_thread::sleep_for(milliseconds(10));
      }
    }
    return problem;
  }

  std::string await_verdict() {
    // Rank 0 may have come last and give the others as much time again; it says so then.
    const std::optional<std::string> verdict = await(kVerdict);
    return verdict ? *verdict : describe_missing();
  }

  // Nothing when the time is over, or when someone else has decided.
  std::optional<std::string> await(const std::string& key) {
    for (;;) {
      if (group_->contains(key)) return group_->get(key, milliseconds(0));
      if (Clock::now() >= deadline_ || (key != kVerdict && group_->contains(kVerdict))) return {};
      try {
        return group_->get(key, std::min(left_until(deadline_), milliseconds(500)));
      } catch (const ConnectionError&) {
        throw;
      } catch (const Error&) {
        // Not there yet.
      }
    }
  }

  std::string describe_missing() {
    if (group_->contains(kVerdict)) return group_->get(kVerdict, milliseconds(0));
    std::vector<int> missing;
    for (int rank = 0; rank < e_.world_size; ++rank) {
      if (!group_->contains(record_key(rank))) missing.push_back(rank);
    }
    const double seconds = static_cast<double>(timeout_.count()) / 1000;
    if (missing.empty()) {
      lost_rank_ = 0;
      return fmt::format("rendezvous: all {} ranks came, but rank 0 has not said so within {} s",
                         e_.world_size, seconds);
    }
    lost_rank_ = missing.front();
    return fmt::format("rendezvous: rank{} {} of {} did not come within {} s", missing.size() == 1 ? "" : "s",
                       fmt::join(missing, ", "), e_.world_size, seconds);
  }

  static constexpr const char* kVerdict = "verdict";

  const LaunchEnvironment& e_;
  Connected connected_;
  const Deadline deadline_;
  const milliseconds timeout_;
  std::shared_ptr<Store> job_, group_;
  int lost_rank_ = -1;
};

}  // namespace

Rendezvous resolve_rendezvous(const ProcessGroupOptions& options) {
  const std::optional<LaunchEnvironment> e = read_launch_environment(options.rank, options.world_size);
  check(e.has_value(),
        "init_process_group: neither .rank and .world_size nor the variables RANK and WORLD_SIZE are set");
  check(options.timeout >= milliseconds(0), "init_process_group: a timeout of {} ms, expected at least 0",
        options.timeout.count());
  const milliseconds timeout = options.timeout > milliseconds(0) ? options.timeout : default_timeout();
  const Deadline deadline = Clock::now() + timeout;
  const std::string secret = read_secret();
  const bool hosts = e->rank == 0 && !e->launcher_has_store;
  for (;;) {
    try {
      Connected connected = options.store ? Connected{options.store}
                            : hosts       ? host_store(*e, secret)
                                          : connect_store(*e, secret, deadline);
      Meeting meeting(*e, std::move(connected), deadline, timeout);
      const std::string number = meeting.meet();
      const bool local = e->local_rank && e->local_world_size;
      return {.rank = e->rank,
              .world_size = e->world_size,
              .local_rank = local ? *e->local_rank : 0,
              .local_world_size = local ? *e->local_world_size : 1,
              .store = meeting.store(),
              .timeout = timeout,
              .key = hmac_sha256(secret, "lockstep group " + number),
              .address = meeting.address()};
    } catch (const ConnectionError& error) {
      if (options.store || hosts || e->launcher_has_store) throw;
      // It may have been the store of the group before, which rank 0 was about to close.
      if (Clock::now() < deadline) continue;
      throw CommError(fmt::format("rendezvous: rank 0 of {} did not come within {} s, or is out of reach: {}",
                                  e->world_size, static_cast<double>(timeout.count()) / 1000, error.what()),
                      0);
    }
  }
}

}  // namespace lockstep
