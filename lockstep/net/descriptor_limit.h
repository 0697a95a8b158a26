// How many files and sockets this process may have open. TCP needs about twelve for each other rank.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

// Raises the soft limit to the hard one, but at most to `most`, for this process and those that it starts: programs that
// go through all possible descriptors take minutes under the billion that some containers allow.
void raise_descriptor_limit(std::uint64_t most = 524'288);

// Whether such an error of socket() or accept() may pass once something else is closed.
bool is_out_of_descriptors(int error);
// "Too many open files (limit 1024)"
std::string describe_descriptor_error(int error);

// Closes all descriptors from that number on. Safe in a signal handler, and so between fork() and exec().
void close_descriptors_from(int first);

}  // namespace lockstep
