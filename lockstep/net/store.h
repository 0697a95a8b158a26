// A small key-value store through which the processes of a job find each other.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace lockstep {

class Store {
 public:
  virtual ~Store() = default;

  // Overwrites. Keys are at most 1,024 bytes, values at most 1 MiB.
  virtual void set(const std::string& key, std::string_view value) = 0;
  // Waits until the key is there. An Error that names the key when the time is over.
  virtual std::string get(const std::string& key, std::chrono::milliseconds timeout) = 0;
  // Adds to a decimal number (0 where the key is missing) and returns the sum: counts arrivals.
  virtual std::int64_t add(const std::string& key, std::int64_t amount) = 0;
  // Without waiting.
  virtual bool contains(const std::string& key) = 0;
};

// All keys with `prefix` before them: several groups share one store.
std::shared_ptr<Store> make_prefix_store(std::string prefix, std::shared_ptr<Store> store);

}  // namespace lockstep
