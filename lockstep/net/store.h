// Internal: a small key-value store through which the processes of a job find each other.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "lockstep/base/export.h"

namespace lockstep {

class Store {
 public:
  virtual ~Store() = default;

  // Overwrites an earlier value. Keys have at most 1,024 bytes, values at most 1 MiB.
  virtual void set(const std::string& key, std::string_view value) = 0;
  // Waits until the key is set. Throws an Error that names the key if the time runs out.
  virtual std::string get(const std::string& key, std::chrono::milliseconds timeout) = 0;
  // Adds `amount` to a decimal number, 0 if the key is missing, and returns the sum. Ranks count arrivals with it.
  virtual std::int64_t add(const std::string& key, std::int64_t amount) = 0;
  // Does not wait.
  virtual bool contains(const std::string& key) = 0;
};

// A view of `store` that puts `prefix` before every key, so that several groups can share one store.
std::shared_ptr<Store> make_prefix_store(std::string prefix, std::shared_ptr<Store> store);

}  // namespace lockstep
