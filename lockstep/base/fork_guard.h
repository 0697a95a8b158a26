// Internal: what fork() would break in this process. A child gets a copy of the memory, but not of the state that
// drivers keep for the parent: after this process has called CUDA, every CUDA call of a forked child fails.
#pragma once

#include <string_view>

namespace lockstep {

// Notes that a later fork() breaks `what`, such as "CUDA", in the child. The text must live as long as the process.
void note_broken_by_fork(const char* what);

// The noted text; empty if fork() breaks nothing.
std::string_view broken_by_fork();

// Whether this process is a forked child of the process that noted the text.
bool is_broken_by_fork();

}  // namespace lockstep
