#include "lockstep/data/files_digest.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <span>
#include <system_error>
#include <utility>

#include "lockstep/base/sha256.h"

namespace lockstep {
namespace {

void hash_file(const std::filesystem::path& path, Sha256& hash) {
  std::ifstream file(path, std::ios::binary);
  check(file.is_open(), "cannot read {}: {}", path.string(), std::generic_category().message(errno));
  std::vector<char> buffer(std::size_t{1} << 20);
  while (file) {
    file.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    hash.update(std::as_bytes(std::span(buffer).first(static_cast<std::size_t>(file.gcount()))));
  }
  check(file.eof(), "cannot read {}: {}", path.string(), std::generic_category().message(errno));
}

void add_to_digest(const std::string& name, const std::filesystem::path& file, const DigestOptions& options,
                   Sha256& all) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(file, error);
  check(!error, "cannot read {}: {}", file.string(), error.message());
  // NUL ends the name and the size, because a name may have any byte but NUL.
  const std::string entry = fmt::format("{}{}{}{}", name, '\0', size, '\0');
  all.update(std::as_bytes(std::span(entry)));
  if (!options.contents) return;
  Sha256 one;
  hash_file(file, one);
  const std::string hex = one.hex();
  all.update(std::as_bytes(std::span(hex)));
}

}  // namespace

std::string files_digest(const std::filesystem::path& root, const std::vector<std::filesystem::path>& files,
                         const DigestOptions& options) {
  std::vector<std::pair<std::string, std::filesystem::path>> sorted;
  for (const auto& file : files) {
    sorted.emplace_back(file == root ? std::string() : file.lexically_relative(root).generic_string(), file);
  }
  std::ranges::sort(sorted);
  Sha256 all;
  for (const auto& [name, file] : sorted) add_to_digest(name, file, options, all);
  return all.hex();
}

std::string files_digest_of_names(const std::filesystem::path& root, std::vector<std::string> names,
                                  const DigestOptions& options) {
  std::ranges::sort(names);
  Sha256 all;
  for (const std::string& name : names) add_to_digest(name, root / name, options, all);
  return all.hex();
}

}  // namespace lockstep
