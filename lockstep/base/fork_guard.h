// Internal: what fork() would break in this process. A child gets a copy of the memory, but not of what drivers keep
// for the parent: once CUDA was called, every CUDA call of a forked child fails.
#pragma once

#include <string_view>

namespace lockstep {

// From now on, a fork() of this process breaks this for the child: "CUDA". The text must live as long as the process.
void note_broken_by_fork(const char* what);

// What fork() would break; empty if nothing.
std::string_view broken_by_fork();

// Whether it is broken here: a parent noted it, and this process is a fork of it.
bool is_broken_by_fork();

}  // namespace lockstep
