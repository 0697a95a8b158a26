// Internal: files that are secrets, such as the key of a group of ranks, or the one that signs receipts.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace lockstep {

// Throws if the mode lets others read the file or anyone but its owner write it (its group may read it), if its owner
// is neither this process's user nor root, or if its folder belongs to another user or lets its group or all users
// replace the file. `status` is of the open file; errors begin with `what`.
void check_private(const std::filesystem::path& file, const struct stat& status, std::string_view what);

// Reads a private file of at most max_bytes. Checks the open file, so that the check and the read see the same file.
std::string read_private_file(const std::filesystem::path& file, std::size_t max_bytes, std::string_view what);

}  // namespace lockstep
