// Groups whose ranks are threads.
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "groups.h"
#include "lockstep/comm/socket_group.h"

namespace lockstep::testing {
namespace {

// A store for this process alone.
class MemoryStore final : public Store {
 public:
  void set(const std::string& key, std::string_view value) override {
    std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
  }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    std::unique_lock lock(mutex_);
    check(changed_.wait_for(lock, timeout, [&] { return values_.contains(key); }), "store: no key \"{}\"", key);
    return values_[key];
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override {
    std::lock_guard lock(mutex_);
    std::string& value = values_[key];
    value = std::to_string((value.empty() ? 0 : std::stoll(value)) + amount);
    return std::stoll(value);
  }
  bool contains(const std::string& key) override {
    std::lock_guard lock(mutex_);
    return values_.contains(key);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

}  // namespace

std::vector<ConformanceCase> conformance_cases() {
  std::vector<ConformanceCase> all;
  for (const char* backend : {"local", "shared_memory", "tcp"}) {
    for (int ranks : {1, 2, 3, 5, 8}) all.push_back({backend, ranks});
  }
  return all;
}

std::shared_ptr<Store> make_memory_store() { return std::make_shared<MemoryStore>(); }

std::vector<std::shared_ptr<ProcessGroup>> make_groups(const std::string& backend, int ranks,
                                                       std::chrono::milliseconds progress_timeout,
                                                       std::chrono::milliseconds timeout) {
  if (backend == "local") return make_local_groups(ranks, progress_timeout);
  const GroupTimeouts timeouts{.silence = timeout, .progress = progress_timeout};
  const auto transport = backend == "tcp" ? TransportChoice::tcp : TransportChoice::automatic;
  const auto store = make_memory_store();
  std::vector<std::shared_ptr<ProcessGroup>> groups(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      groups[static_cast<std::size_t>(r)] = make_socket_group(
          {.rank = r, .size = ranks, .store = store, .key = "0123456789abcdef", .address = "127.0.0.1"}, timeouts,
          transport);
    });
  }
  for (auto& thread : threads) thread.join();
  return groups;
}

}  // namespace lockstep::testing
