// Internal: what receipts hash, as bytes that other programs can make, too.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>

#include "lockstep/autograd/tensor.h"
#include "lockstep/base/sha256.h"
#include "lockstep/receipt/merkle_tree.h"

namespace lockstep {

Digest digest_of(const Sha256& hash);
// Begins the hash of a leaf.
Sha256 leaf_hash();

// Adds 8 little-endian bytes.
void add_number(Sha256& hash, std::uint64_t number);
// Adds the length, then the bytes.
void add_text(Sha256& hash, std::string_view text);
// Adds type, axes, extents, and elements, row-major and little-endian. The tensor must be in plain host memory.
void add_tensor(Sha256& hash, const Tensor& tensor);

// Digest of a file's bytes.
Digest file_digest(const std::filesystem::path& file);

// Calls work(i) for all i in [0, count), with a thread for each core that this process may use. If calls throw, begins
// no further calls, and throws one of their exceptions.
void in_parallel(std::size_t count, const std::function<void(std::size_t)>& work);

}  // namespace lockstep
