// Internal: the collectives, as exchanges of blocks.
#pragma once

#include "lockstep/comm/transport.h"

namespace lockstep {

// Each collective begins with an exchange of the header, which detects ranks that disagree. Callers have checked sizes.

void all_reduce(Transport& transport, int channel, const CollectiveHeader& header, CommBuffer data,
                const TimeLimit& limit);
void broadcast(Transport& transport, int channel, const CollectiveHeader& header, CommBuffer data,
               const TimeLimit& limit);
void all_gather(Transport& transport, int channel, const CollectiveHeader& header, CommBuffer in, CommBuffer out,
                const TimeLimit& limit);
void barrier(Transport& transport, int channel, const CollectiveHeader& header, const TimeLimit& limit);

}  // namespace lockstep
