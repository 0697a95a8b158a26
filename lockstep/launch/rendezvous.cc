#include "lockstep/launch/rendezvous.h"

#include <cerrno>
#include <mutex>
#include <optional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/hmac.h"
#include "lockstep/launch/launch_environment.h"
#include "lockstep/launch/meeting.h"
#include "lockstep/net/comm_error.h"
#include "lockstep/net/descriptor_limit.h"
#include "lockstep/net/rank_failure.h"
#include "lockstep/net/secret.h"
#include "lockstep/net/tcp_socket.h"
#include "lockstep/net/tcp_store.h"
#include "lockstep/net/tcp_store_server.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr std::string_view kLoopback = "127.0.0.1";

milliseconds left_until(Deadline deadline) { return milliseconds(milliseconds_until(deadline)); }

struct Connected {
  std::shared_ptr<Store> store;
  std::string address = std::string(kLoopback);
  const TcpStoreServer* hosted = nullptr;  // set if this process hosts the store
};

// The store that rank 0 hosts. If it is unreachable, reports rank 0 as lost, without a retry, because a rank never
// comes back.
class StoreOfRankZero final : public Store {
 public:
  explicit StoreOfRankZero(std::shared_ptr<Store> store) : store_(std::move(store)) {}

  void set(const std::string& key, std::string_view value) override {
    reach([&] { store_->set(key, value); });
  }
  std::string get(const std::string& key, milliseconds timeout) override {
    return reach([&] { return store_->get(key, timeout); });
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override {
    return reach([&] { return store_->add(key, amount); });
  }
  bool contains(const std::string& key) override {
    return reach([&] { return store_->contains(key); });
  }

 private:
  template <typename Call>
  auto reach(const Call& call) -> decltype(call()) {
    {
      std::lock_guard lock(mutex_);
      if (lost_) throw_rank_failure(*lost_);
    }
    try {
      return call();
    } catch (const ConnectionError& error) {
      std::lock_guard lock(mutex_);
      lost_ = lost(0, fmt::format("its store is unreachable: {}", error.what()));
      throw_rank_failure(*lost_);
    }
  }

  const std::shared_ptr<Store> store_;
  std::mutex mutex_;
  std::optional<RankFailure> lost_;
};

int port_of_store(const LaunchEnvironment& e) { return e.store_port.value_or(e.master_port); }

std::unique_ptr<TcpStoreServer> make_server(const LaunchEnvironment& e, const std::string& secret) {
  const bool here = e.on_one_host() || e.world_size == 1;
  // A single rank takes a free port: no other rank connects to its store, and several such processes may share a host.
  const int port = e.world_size == 1 ? 0 : port_of_store(e);
  try {
    return here ? std::make_unique<TcpStoreServer>(TcpStoreServerOptions{.port = port, .secret = secret})
                : listen_for_hosts(e.master_addr, port, secret);
  } catch (const ListenError& error) {
    if (error.code() != EADDRINUSE) throw;
    // Rank 0 does not move to another port, because other ranks could reach another job's store there. If the launcher
    // uses MASTER_PORT itself, store_port has the store's port.
    fail("rendezvous: port {}: address already in use, expected a free port; set {} to one", port,
         e.store_port ? "LOCKSTEP_PORT" : "MASTER_PORT");
  }
}

// Rank 0 hosts the store, and uses it through a client like every other rank.
Connected host_store(const LaunchEnvironment& e, const std::string& secret, milliseconds timeout) {
  struct Hosted {
    std::unique_ptr<TcpStoreServer> server;
    std::optional<TcpStore> client;
  };
  auto hosted = std::make_shared<Hosted>();
  hosted->server = make_server(e, secret);
  const std::string address = hosted->server->address();
  const std::string host = address.substr(0, address.rfind(':'));
  const bool any = host == "0.0.0.0";
  const std::string at = any ? std::string(kLoopback) : host.starts_with('[') ? host.substr(1, host.size() - 2) : host;
  hosted->client.emplace(
      TcpStoreOptions{.host = at, .port = hosted->server->port(), .secret = secret, .timeout = timeout});
  return {std::shared_ptr<Store>(hosted, &*hosted->client), at, hosted->server.get()};
}

Connected connect_store(const LaunchEnvironment& e, const std::string& secret, milliseconds timeout,
                        Deadline deadline) {
  const bool here = !e.launcher_has_store && (e.on_one_host() || e.world_size == 1);
  const auto store =
      std::make_shared<TcpStore>(TcpStoreOptions{.host = here ? std::string(kLoopback) : e.master_addr,
                                                 .port = e.launcher_has_store ? e.master_port : port_of_store(e),
                                                 .secret = secret,
                                                 .connect_timeout = left_until(deadline),
                                                 .timeout = timeout});
  return {store, store->local_host()};
}

// The launcher's store outlives all starts of the job. The program may have been replaced between two starts.
void check_first_build(Store& store, const LaunchEnvironment& e, const std::string& build) {
  if (e.restart_count == 0) return store.set("first build", build);
  if (!store.contains("first build")) return;
  const std::string first = store.get("first build", milliseconds(0));
  if (first == build) return;
  throw CommError(fmt::format("rendezvous: rank {} has {}, the job began with {}: their bits may differ", e.rank,
                              describe_build(build), describe_build(first)),
                  -1);
}

std::string meet(Meeting& meeting, const TcpStoreServer* server) {
  try {
    return meeting.meet();
  } catch (const CommError& error) {
    const int accept_error = server ? server->accept_error() : 0;
    if (accept_error == 0) throw;
    throw CommError(fmt::format("{}; the store could not accept all of them: {}", error.what(),
                                describe_descriptor_error(accept_error)),
                    error.lost_rank());
  }
}

}  // namespace

GroupTimeouts timeouts_of(const RendezvousOptions& options) {
  for (const milliseconds timeout : {options.timeout, options.progress_timeout}) {
    check(timeout >= milliseconds(0), "init_process_group: a timeout of {} ms, expected at least 0", timeout.count());
  }
  const milliseconds silence = options.timeout > milliseconds(0) ? options.timeout : default_timeout();
  return {.silence = silence,
          .progress = options.progress_timeout > milliseconds(0) ? options.progress_timeout
                                                                 : default_progress_timeout(silence)};
}

Rendezvous resolve_rendezvous(const RendezvousOptions& options) {
  const std::optional<LaunchEnvironment> e = read_launch_environment(options.rank, options.world_size);
  check(e.has_value(),
        "init_process_group: neither .rank and .world_size nor the variables RANK and WORLD_SIZE are set: set them, or "
        "start the ranks with `lockstep launch`");
  check(e->world_size <= kMaxRanks, "init_process_group: {} ranks, expected at most {}", e->world_size, kMaxRanks);
  const GroupTimeouts timeouts = timeouts_of(options);
  const milliseconds timeout = timeouts.silence;
  const auto begin = Clock::now();
  const Deadline deadline = begin + timeout;
  std::string secret = read_secret();
  const bool hosts = e->rank == 0 && !e->launcher_has_store;
  if (hosts && e->world_size == 1 && secret.empty()) secret = make_secret();  // no other process has to know it
  for (;;) {
    try {
      Connected connected = options.store ? Connected{options.store}
                            : hosts       ? host_store(*e, secret, timeout)
                                          : connect_store(*e, secret, timeout, deadline);
      const std::string build = options.build.empty() ? build_id() : options.build;
      if (e->launcher_has_store) check_first_build(*connected.store, *e, build);
      Meeting meeting(make_prefix_store(fmt::format("rendezvous/{}/", e->restart_count), connected.store),
                      {.rank = e->rank,
                       .world_size = e->world_size,
                       .address = connected.address,
                       .holds_store = connected.hosted != nullptr,
                       .build = build,
                       .timeout = timeout,
                       .begin = begin});
      const std::string number = meet(meeting, connected.hosted);
      const bool local = e->local_rank && e->local_world_size;
      std::shared_ptr<Store> store = meeting.group_store();
      if (!options.store && !hosts && !e->launcher_has_store) store = std::make_shared<StoreOfRankZero>(store);
      return {.rank = e->rank,
              .world_size = e->world_size,
              .local_rank = local ? *e->local_rank : 0,
              .local_world_size = local ? *e->local_world_size : 1,
              .store = std::move(store),
              .timeouts = timeouts,
              .key = hmac_sha256(secret, "lockstep group " + number),
              .address = meeting.address()};
    } catch (const ConnectionError& error) {
      if (options.store || hosts || e->launcher_has_store) throw;
      // Retries: this may have been the store of the previous group, which rank 0 was about to close.
      if (Clock::now() < deadline) continue;
      throw CommError(fmt::format("rendezvous: rank 0 of {} did not join within {} s, or is unreachable: {}",
                                  e->world_size, static_cast<double>(timeout.count()) / 1000, error.what()),
                      0);
    }
  }
}

}  // namespace lockstep
