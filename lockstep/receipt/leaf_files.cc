#include "lockstep/receipt/leaf_files.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"

namespace lockstep {
namespace {

std::vector<Digest> leaves_of(const std::string& bytes) {
  std::vector<Digest> leaves(bytes.size() / sizeof(Digest));
  std::memcpy(leaves.data(), bytes.data(), leaves.size() * sizeof(Digest));
  return leaves;
}

struct StateRecord {
  std::uint64_t step = 0, count = 0;
};

// Calls `use` for each whole record until it returns false. Returns the number of bytes of the records before that.
std::uintmax_t for_each_record(std::ifstream& in, const std::function<bool(StateRecord, std::vector<Digest>)>& use) {
  in.seekg(0, std::ios::end);
  const auto all = static_cast<std::uintmax_t>(std::max<std::streamoff>(in.tellg(), 0));
  in.seekg(0);
  std::uintmax_t bytes = 0;
  for (StateRecord record; in.read(reinterpret_cast<char*>(&record), sizeof record);) {
    if (record.count > (all - std::min(all, bytes + sizeof record)) / sizeof(Digest)) break;  // the file ends before
    std::vector<Digest> leaves(record.count);
    const std::size_t size = leaves.size() * sizeof(Digest);
    if (!in.read(reinterpret_cast<char*>(leaves.data()), static_cast<std::streamsize>(size))) break;
    if (!use(record, std::move(leaves))) break;
    bytes += sizeof record + size;
  }
  return bytes;
}

}  // namespace

std::filesystem::path leaf_file(const std::filesystem::path& receipt, std::string_view kind) {
  std::filesystem::path file = receipt;
  if (file.extension() == ".json") file.replace_extension();
  return file += "." + std::string(kind) + ".leaves";
}

void write_leaves(const std::filesystem::path& file, std::span<const Digest> leaves) {
  write_file_atomically(file, std::as_bytes(leaves));
}

std::optional<std::vector<Digest>> read_leaves(const std::filesystem::path& file, std::int64_t count,
                                               const Digest& root) {
  std::error_code unknown;
  const std::size_t expected = static_cast<std::size_t>(count) * sizeof(Digest);
  if (!std::filesystem::is_regular_file(file, unknown) || std::filesystem::file_size(file, unknown) != expected) {
    return std::nullopt;
  }
  const std::string bytes = read_file(file, expected);
  if (bytes.size() != expected) return std::nullopt;
  std::vector<Digest> leaves = leaves_of(bytes);
  if (merkle_root(leaves) != root) return std::nullopt;
  return leaves;
}

StateLeaves::StateLeaves(std::filesystem::path file, std::int64_t step) : file_(std::move(file)) {
  std::error_code error;
  std::uintmax_t kept = 0;
  if (std::filesystem::is_regular_file(file_, error)) {
    std::ifstream in(file_, std::ios::binary);
    kept = for_each_record(
        in, [&](StateRecord record, const std::vector<Digest>&) { return std::cmp_less_equal(record.step, step); });
  } else {
    std::ofstream(file_, std::ios::binary).flush();
  }
  std::filesystem::resize_file(file_, kept, error);
  check(!error, "receipt: cannot write {}: {}", file_.string(), error.message());
}

void StateLeaves::add(std::int64_t step, std::span<const Digest> leaves) {
  const StateRecord record{static_cast<std::uint64_t>(step), leaves.size()};
  std::ofstream out(file_, std::ios::binary | std::ios::app);
  out.write(reinterpret_cast<const char*>(&record), sizeof record);
  out.write(reinterpret_cast<const char*>(leaves.data()), static_cast<std::streamsize>(leaves.size_bytes()));
  out.flush();
  check(out.good(), "receipt: cannot write {}: {}", file_.string(), std::generic_category().message(errno));
}

std::optional<std::vector<Digest>> read_state_leaves(const std::filesystem::path& file, std::int64_t step,
                                                     const Digest& root) {
  std::optional<std::vector<Digest>> found;
  std::ifstream in(file, std::ios::binary);
  for_each_record(in, [&](StateRecord record, std::vector<Digest> leaves) {
    if (record.step == static_cast<std::uint64_t>(step) && merkle_root(leaves) == root) found = std::move(leaves);
    return !found;
  });
  return found;
}

}  // namespace lockstep
