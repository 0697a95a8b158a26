// Internal: files that are secrets, such as the key of a group of ranks, or the one that signs receipts.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace lockstep {

// Throws if users other than its owner may read or change the file, or put another one in its place: by its mode, which
// the owner's group may read, by its owner, who must be this process's user or root, and by the folder that it is in.
// `status` is of the open file; errors begin with `what`.
void check_private(const std::filesystem::path& file, const struct stat& status, std::string_view what);

// Reads a private file of at most max_bytes. What is checked is what is read.
std::string read_private_file(const std::filesystem::path& file, std::size_t max_bytes, std::string_view what);

}  // namespace lockstep
