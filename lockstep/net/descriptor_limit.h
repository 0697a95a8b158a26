// Internal: the limit on the files and sockets that this process may have open. TCP needs about twelve descriptors for
// each other rank.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

// Raises the soft limit of this process and its children to the hard limit, but to at most `most`: some containers
// allow a billion descriptors, and programs that visit every possible descriptor then take minutes.
void raise_descriptor_limit(std::uint64_t most = 524'288);

// Whether an error of socket() or accept() may go away after other descriptors are closed.
bool is_out_of_descriptors(int error);
// "Too many open files (limit 1024)"
std::string describe_descriptor_error(int error);

// Closes all descriptors from `first` on. Safe in a signal handler, and therefore between fork() and exec().
void close_descriptors_from(int first);

}  // namespace lockstep
