// Internal: the keys and values of a store's server, with a limit on their size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

namespace lockstep {

class StoreTable {
 public:
  // The limit protects the launcher's memory from a faulty client.
  explicit StoreTable(std::size_t most_bytes = std::size_t{256} << 20) : most_bytes_(most_bytes) {}

  // Returns null if the key is missing. The pointer is valid until the next change.
  const std::string* find(const std::string& key) const;
  // Throws if the limit would be exceeded.
  void set(const std::string& key, std::string_view value);
  // Returns the sum. Throws if the old value or the amount is not a decimal integer, or if the sum overflows 64 bits.
  std::int64_t add(const std::string& key, std::string_view amount);

 private:
  std::unordered_map<std::string, std::string> values_;
  std::size_t bytes_ = 0;
  std::size_t most_bytes_;
};

}  // namespace lockstep
