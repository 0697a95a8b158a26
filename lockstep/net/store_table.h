// The keys and values of a store's server, within bounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

namespace lockstep {

class StoreTable {
 public:
  // A client that loses its mind must not take the launcher's memory.
  explicit StoreTable(std::size_t most_bytes = std::size_t{256} << 20) : most_bytes_(most_bytes) {}

  // Null if there is none. Valid until the next change.
  const std::string* find(const std::string& key) const;
  // Throws if there is no room.
  void set(const std::string& key, std::string_view value);
  // The sum. Throws if the old value or the amount is no decimal integer, or the sum does not fit into 64 bits.
  std::int64_t add(const std::string& key, std::string_view amount);

 private:
  std::unordered_map<std::string, std::string> values_;
  std::size_t bytes_ = 0;
  std::size_t most_bytes_;
};

}  // namespace lockstep
