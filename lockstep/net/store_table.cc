#include "lockstep/net/store_table.h"

#include <limits>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// The approximate cost of an entry besides its bytes.
constexpr std::size_t kEntryBytes = 128;

std::int64_t parse(std::string_view what, std::string_view text) {
  using Limits = std::numeric_limits<std::int64_t>;
  return parse_integer(what, text, Limits::min(), Limits::max());
}

}  // namespace

const std::string* StoreTable::find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

void StoreTable::set(const std::string& key, std::string_view value) {
  const std::string* old = find(key);
  const std::size_t before = old ? old->size() : 0, after = value.size() + (old ? 0 : key.size() + kEntryBytes);
  check(bytes_ - before + after <= most_bytes_, "store: full: {} more bytes exceed the limit of {}", after,
        most_bytes_);
  values_[key] = value;
  bytes_ += after - before;
}

std::int64_t StoreTable::add(const std::string& key, std::string_view amount) {
  const std::string* old = find(key);
  std::int64_t sum = 0;
  const bool fits = !__builtin_add_overflow(old ? parse(fmt::format("the store's \"{}\"", key), *old) : 0,
                                            parse("the amount to add", amount), &sum);
  check(fits, "store: the sum of {} and {} in \"{}\" does not fit in 64 bits", amount, old ? *old : "0", key);
  set(key, std::to_string(sum));
  return sum;
}

}  // namespace lockstep
