#include "lockstep/comm/collectives.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "lockstep/comm/exchanges.h"
#include "lockstep/comm/tree_sum.h"

namespace lockstep {
namespace {

std::byte* bytes_of(const CommBuffer& buffer) { return static_cast<std::byte*>(buffer.data); }

// Returns the received blocks as leaves of a tree, with this rank's block in its place.
std::vector<const void*> leaves_of(const Exchanges& e, const void* own) {
  std::vector<const void*> leaves(e.size);
  for (std::size_t r = 0; r < e.size; ++r) leaves[r] = r == e.rank ? own : e.from[r].data;
  return leaves;
}

// Up to this many bytes, every rank receives everything and computes the whole sum: one exchange instead of two.
constexpr std::size_t kSmall = 4096;

}  // namespace

void all_reduce(Transport& transport, int channel, const CollectiveHeader& header, CommBuffer data,
                const TimeLimit& limit) {
  Exchanges e(transport, channel, header, limit);
  const std::size_t item = item_size(data.dtype);
  if (data.count * item <= kSmall) {
    e.to_all(bytes_of(data), data.count * item);
    std::fill(e.from.begin(), e.from.end(), MutableBlock{nullptr, data.count * item});
    e.exchange();
    if (data.count > 0) tree_reduce(header.op, data.dtype, leaves_of(e, data.data), data.data, data.count);
    return;
  }
  e.in_steps(data.count, item, [&](std::size_t begin, std::size_t length) {
    // Rank r reduces elements [bound(r), bound(r + 1)) of this step.
    const auto bound = [&](std::size_t r) { return begin + length * r / e.size; };
    const auto at = [&](std::size_t element) { return bytes_of(data) + element * item; };
    const std::size_t own = bound(e.rank), own_length = bound(e.rank + 1) - own;
    for (std::size_t r = 0; r < e.size; ++r) {
      e.to[r] = {at(bound(r)), (bound(r + 1) - bound(r)) * item};
      e.from[r] = {nullptr, own_length * item};
    }
    e.exchange();
    if (own_length > 0) tree_reduce(header.op, data.dtype, leaves_of(e, at(own)), at(own), own_length);
    e.to_all(at(own), own_length * item);
    for (std::size_t r = 0; r < e.size; ++r) e.from[r] = {at(bound(r)), (bound(r + 1) - bound(r)) * item};
    e.exchange();
  });
}

void broadcast(Transport& transport, int channel, const CollectiveHeader& header, CommBuffer data,
               const TimeLimit& limit) {
  Exchanges e(transport, channel, header, limit);
  const auto root = static_cast<std::size_t>(header.root);
  const std::size_t item = item_size(data.dtype);
  e.in_steps(data.count, item, [&](std::size_t begin, std::size_t length) {
    std::byte* at = bytes_of(data) + begin * item;
    if (e.rank == root) {
      e.to_all(at, length * item);
    } else {
      e.from[root] = {at, length * item};
    }
    e.exchange();
  });
}

void all_gather(Transport& transport, int channel, const CollectiveHeader& header, CommBuffer in, CommBuffer out,
                const TimeLimit& limit) {
  Exchanges e(transport, channel, header, limit);
  const std::size_t item = item_size(in.dtype);
  // Copies `in` first: received blocks may overwrite it if it lies in another rank's part of `out`.
  if (in.count > 0) std::memmove(bytes_of(out) + e.rank * in.count * item, in.data, in.count * item);
  e.in_steps(in.count, item, [&](std::size_t begin, std::size_t length) {
    const auto at = [&](std::size_t r) { return bytes_of(out) + (r * in.count + begin) * item; };
    e.to_all(at(e.rank), length * item);
    for (std::size_t r = 0; r < e.size; ++r) e.from[r] = {at(r), length * item};
    e.exchange();
  });
}

void barrier(Transport& transport, int channel, const CollectiveHeader& header, const TimeLimit& limit) {
  Exchanges(transport, channel, header, limit).exchange();
}

}  // namespace lockstep
