// The collectives, in exchanges of blocks.
#pragma once

#include "lockstep/comm/mesh.h"

namespace lockstep {

// All of them begin with the header's exchange, by which ranks that disagree are found. Sizes are checked already.

void all_reduce(Mesh& mesh, int lane, const CollectiveHeader& header, CommBuffer data, const TimeLimit& limit);
void broadcast(Mesh& mesh, int lane, const CollectiveHeader& header, CommBuffer data, const TimeLimit& limit);
void all_gather(Mesh& mesh, int lane, const CollectiveHeader& header, CommBuffer in, CommBuffer out,
                const TimeLimit& limit);
void barrier(Mesh& mesh, int lane, const CollectiveHeader& header, const TimeLimit& limit);

}  // namespace lockstep
