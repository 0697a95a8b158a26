// Sums all ranks' gradients in the tree over shards, on top of a transport.
#pragma once

#include <memory>

#include "lockstep/comm/transport.h"

namespace lockstep {

// A TreeReducer without the group around it: no channel, no timeout, and no operation names in errors.
class TransportTreeReducer {
 public:
  virtual ~TransportTreeReducer() = default;
  virtual CommBuffer contribution(std::size_t k) = 0;
  virtual void set_present(std::size_t k, std::size_t segment, bool present) = 0;
  virtual void reduce(const CollectiveHeader& header, const TimeLimit& limit) = 0;
  virtual std::span<const float> result() const = 0;
  virtual bool result_present(std::size_t segment) const = 0;
};

// Throws if the layout is invalid for this number of ranks.
void check_layout(const TreeLayout& layout, int ranks);
std::uint64_t hash_of(const TreeLayout& layout);
std::size_t elements_of(const TreeLayout& layout);

// A collective of the transport. Uses memory that all ranks share if the transport has it; otherwise pieces travel.
std::unique_ptr<TransportTreeReducer> make_transport_tree_reducer(Transport& transport, int channel, TreeLayout layout,
                                                                  const TimeLimit& limit);

}  // namespace lockstep
