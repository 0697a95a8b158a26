// The collectives, in exchanges of blocks.
#pragma once

#include "lockstep/comm/transport.h"

namespace lockstep {

// All of them begin with the header's exchange, by which ranks that disagree are found. Sizes are checked already.

void all_reduce(Transport& transport, int channel, const CollectiveHeader& header, CommBuffer data, const TimeLimit& limit);
void broadcast(Transport& transport, int channel, const CollectiveHeader& header, CommBuffer data, const TimeLimit& limit);
void all_gather(Transport& transport, int channel, const CollectiveHeader& header, CommBuffer in, CommBuffer out,
                const TimeLimit& limit);
void barrier(Transport& transport, int channel, const CollectiveHeader& header, const TimeLimit& limit);

}  // namespace lockstep
