#include "lockstep/checkpoint/checkpoint_directory.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/sha256.h"
#include "lockstep/checkpoint/json_input.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::string_view kManifest = "manifest.json";
constexpr std::string_view kFormat = "lockstep-checkpoint";
constexpr std::uint64_t kVersion = 1;
constexpr std::size_t kMaxManifestBytes = 1 << 20;
constexpr std::size_t kMaxManifestDepth = 3;  // {files: {name: {bytes: ...}}}
constexpr std::string_view kPrefix = "step-";
// A folder with this prefix is being written or removed, or its process died.
constexpr std::string_view kTemporaryPrefix = ".tmp-step-";

std::string folder_name(std::int64_t step) { return fmt::format("{}{:08}", kPrefix, step); }

std::optional<std::int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::int64_t step = -1;
  const char* end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + kPrefix.size(), end, step);
  if (parsed.ec != std::errc() || step < 0 || folder_name(step) != name) return std::nullopt;
  return step;
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == name.npos && name.find('\0') == name.npos &&
         name != kManifest;
}

void check_system(const std::error_code& error, const char* doing, const fs::path& path) {
  check(!error, "checkpoint: cannot {} {}: {}", doing, path.string(), error.message());
}

// The entries of a folder; none if it does not exist.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error != std::errc::no_such_file_or_directory) check_system(error, "list", folder);
  return names;
}

// All steps, newest first, including incomplete ones.
std::vector<std::int64_t> steps_in(const fs::path& folder) {
  std::vector<std::int64_t> steps;
  for (const std::string& name : names_in(folder)) {
    if (const auto step = step_of(name)) steps.push_back(*step);
  }
  std::ranges::sort(steps, std::ranges::greater{});
  return steps;
}

// Ends the name of a checkpoint that another one of its step is replacing, or that is being removed.
constexpr std::string_view kMovedAside = "-old";
fs::path moved_aside(const fs::path& folder, std::int64_t step) {
  return folder / fmt::format("{}{:08}{}", kTemporaryPrefix, step, kMovedAside);
}

// The steps of complete checkpoints that a writer moved aside and did not replace before it died. A checkpoint that the
// writer had begun to remove is incomplete.
std::vector<std::int64_t> moved_aside_in(const fs::path& folder) {
  std::vector<std::int64_t> steps;
  for (const std::string& name : names_in(folder)) {
    if (!name.starts_with(kTemporaryPrefix) || !name.ends_with(kMovedAside)) continue;
    try {
      const std::int64_t step = open_checkpoint(folder / name).step;
      if (name == moved_aside("", step) && !fs::exists(fs::symlink_status(folder / folder_name(step))))
        steps.push_back(step);
    } catch (const Error&) {
      // It was being removed.
    }
  }
  return steps;
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  if (fs::is_directory(folder, error)) return;
  if (folder.has_parent_path() && folder.parent_path() != folder) make_folder(folder.parent_path());
  fs::create_directory(folder, error);
  check_system(error, "make folder", folder);
  sync_folder(folder.has_parent_path() ? folder.parent_path() : ".");
}

void rename_folder(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  check_system(error, "rename", from);
}

// Removes what it can. A file that another process has open may stay on a network file system; the next writer tries
// again.
void discard(const fs::path& folder) {
  std::error_code ignored;
  fs::remove_all(folder, ignored);
}

// Renames the folder before removing it, so that no incomplete checkpoint is ever visible. It stays visible if its new
// name is taken by files that another process has open.
void retire(const fs::path& folder, std::int64_t step) {
  std::error_code error;
  fs::rename(folder / folder_name(step), moved_aside(folder, step), error);
  if (!error) discard(moved_aside(folder, step));
}

bool is_valid(const fs::path& path) {
  try {
    open_checkpoint(path);
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::string sha256_of(std::string_view bytes) {
  Sha256 digest;
  digest.update(std::as_bytes(std::span(bytes)));
  return digest.hex();
}

std::uint64_t count_at(const json& object, const char* key) {
  const json& count = object.at(key);
  check(count.is_number_unsigned() && count.get<std::uint64_t>() <= std::numeric_limits<std::int64_t>::max(),
        "{} is {}, expected a count", key, count.dump().substr(0, 40));
  return count.get<std::uint64_t>();
}

// Returns the file's bytes if they are those of the manifest.
std::string read_verified(const fs::path& path, std::uint64_t bytes, const std::string& sha256) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path, error);
  check(status.type() != fs::file_type::not_found, "{}: missing, expected {} bytes", path.string(), bytes);
  check_system(error, "read", path);
  check(status.type() == fs::file_type::regular, "{}: not a regular file", path.string());
  const std::uint64_t found = fs::file_size(path, error);
  check_system(error, "read", path);
  check(found == bytes, "{}: {} bytes, expected {}", path.string(), found, bytes);
  std::string contents = read_file(path, bytes);
  const std::string digest = sha256_of(contents);
  check(digest == sha256, "{}: SHA-256 is {}, expected {}", path.string(), digest, sha256);
  return contents;
}

// Calls `take` with the name and the bytes of each file that it has verified.
Checkpoint open_checkpoint(const fs::path& path, const std::function<void(const std::string&, std::string)>& take);

// Returns the steps in a folder, newest first, and the paths of their checkpoints.
std::vector<std::pair<std::int64_t, fs::path>> places_in(const fs::path& folder) {
  std::vector<std::pair<std::int64_t, fs::path>> places;
  for (std::int64_t step : steps_in(folder)) places.emplace_back(step, folder / folder_name(step));
  for (std::int64_t step : moved_aside_in(folder)) places.emplace_back(step, moved_aside(folder, step));
  std::ranges::sort(places, std::ranges::greater{});
  return places;
}

CheckpointContents read_contents(const fs::path& path) {
  CheckpointContents contents{.path = path};
  contents.step = open_checkpoint(path, [&](const std::string& name, std::string bytes) {
                    contents.files.emplace(name, std::move(bytes));
                  }).step;
  return contents;
}

}  // namespace

const std::string& CheckpointContents::file(const std::string& name) const {
  const auto found = files.find(name);
  check(found != files.end(), "checkpoint: {} has no file {}", path.string(), name);
  return found->second;
}

std::vector<fs::path> checkpoints_in(const fs::path& folder) {
  std::vector<fs::path> paths;
  for (const std::int64_t step : steps_in(folder)) paths.push_back(folder / folder_name(step));
  return paths;
}

fs::path Checkpoint::file(std::string_view name) const {
  check(std::ranges::find(files, name) != files.end(), "checkpoint: {} has no file {}", path.string(), name);
  return path / name;
}

Checkpoint open_checkpoint(const fs::path& path) {
  return open_checkpoint(path, [](const std::string&, const std::string&) {});
}

CheckpointManifest read_manifest(const fs::path& checkpoint) {
  const fs::path path = checkpoint / kManifest;
  const std::string text = read_file(path, kMaxManifestBytes);
  CheckpointManifest found;
  try {
    const json manifest = parse_json<json>(text, {.what = "it", .depth = kMaxManifestDepth});
    check(manifest.at("format") == kFormat, "format is not {}", kFormat);
    check(count_at(manifest, "version") == kVersion, "version is {}, expected {}", count_at(manifest, "version"),
          kVersion);
    found.step = static_cast<std::int64_t>(count_at(manifest, "step"));
    for (const auto& [name, record] : manifest.at("files").get_ref<const json::object_t&>()) {
      check(is_plain_name(name), "a file has the name {}", json(name).dump());
      found.files[name] = {count_at(record, "bytes"), record.at("sha256").get<std::string>()};
    }
  } catch (const std::exception& error) {
    fail("{}: damaged manifest: {}", path.string(), error.what());
  }
  const std::optional<std::int64_t> step = step_of(checkpoint.filename().string());
  check(!step || *step == found.step, "{}: step is {}, expected {} as in the folder's name", path.string(), found.step,
        step.value_or(0));
  return found;
}

namespace {

Checkpoint open_checkpoint(const fs::path& path, const std::function<void(const std::string&, std::string)>& take) {
  const CheckpointManifest manifest = read_manifest(path);
  Checkpoint checkpoint{path, manifest.step, {}};
  for (const auto& [name, file] : manifest.files) {
    take(name, read_verified(path / name, file.bytes, file.sha256));
    checkpoint.files.push_back(name);
  }
  return checkpoint;
}

}  // namespace

LatestCheckpoint find_latest_checkpoint(const fs::path& folder) {
  LatestCheckpoint latest;
  for (const auto& [step, path] : places_in(folder)) {
    try {
      latest.checkpoint = open_checkpoint(path);
      break;
    } catch (const Error& error) {
      latest.damaged.push_back(error.what());
    }
  }
  return latest;
}

std::optional<CheckpointContents> find_checkpoint(const fs::path& folder) {
  if (fs::exists(folder / kManifest)) return read_contents(folder);
  std::vector<std::string> damaged;
  for (const auto& [step, path] : places_in(folder)) {
    try {
      CheckpointContents found = read_contents(path);
      found.damaged = std::move(damaged);
      return found;
    } catch (const Error& error) {
      damaged.push_back(error.what());
    }
  }
  if (damaged.empty()) return std::nullopt;
  fail("{}: there is no valid checkpoint to resume from ({})", folder.string(), damaged.front());
}

CheckpointContents read_checkpoint(const fs::path& folder) {
  std::optional<CheckpointContents> found = find_checkpoint(folder);
  check(found.has_value(), "{}: there is no valid checkpoint to resume from", folder.string());
  return std::move(*found);
}

void copy_checkpoint(const CheckpointContents& checkpoint, const fs::path& folder, CheckpointWriterOptions options) {
  CheckpointWriter writer(folder, checkpoint.step, options);
  for (const auto& [name, contents] : checkpoint.files) writer.add_file(name, contents);
  writer.publish();
}

CheckpointWriter::CheckpointWriter(const fs::path& folder, std::int64_t step, CheckpointWriterOptions options)
    : folder_(folder), step_(step), keep_(options.keep) {
  check(step >= 0, "checkpoint: step is {}, expected 0 or more", step);
  check(keep_ >= 1, "checkpoint: keep is {}, expected 1 or more", keep_);
  make_folder(folder_);
  lock_ = FileLock(FileDescriptor(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
  check(static_cast<bool>(lock_), "checkpoint: cannot open {}: {}", folder_.string(),
        std::generic_category().message(errno));
  check(lock_.try_lock(), "checkpoint: another process is writing to {}", folder_.string());
  for (std::int64_t lost : moved_aside_in(folder_)) {
    rename_folder(moved_aside(folder_, lost), folder_ / folder_name(lost));
  }
  for (const std::string& name : names_in(folder_)) {
    if (name.starts_with(kTemporaryPrefix)) discard(folder_ / name);
  }
  for (std::int64_t later : steps_in(folder_)) {
    if (later <= step_ || options.replace_later) break;
    check(!is_valid(folder_ / folder_name(later)),
          "checkpoint: {} holds step {}, cannot add step {}: resume from there or use another folder", folder_.string(),
          later, step_);
  }
  fs::path temporary = folder_ / fmt::format("{}{:08}", kTemporaryPrefix, step_);
  std::error_code error;
  const bool made = fs::create_directory(temporary, error);
  check_system(error, "make folder", temporary);
  check(made, "checkpoint: {} exists, another process is writing it", temporary.string());
  temporary_ = std::move(temporary);
}

CheckpointWriter::~CheckpointWriter() {
  std::error_code ignored;  // the next writer removes leftovers
  if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
}

void CheckpointWriter::add_file(std::string_view name, const std::function<void(const ByteSink&)>& write) {
  check(!temporary_.empty(), "checkpoint: step {} is published, no file can be added", step_);
  check(is_plain_name(name), "checkpoint: \"{}\" cannot be the name of a file", name);
  check(!files_.contains(std::string(name)), "checkpoint: file {} already exists", name);
  AtomicFile file(temporary_ / name);
  Sha256 digest;
  CheckpointManifest::File record;
  write([&](std::span<const std::byte> bytes) {
    file.write(bytes);
    digest.update(bytes);
    record.bytes += bytes.size();
  });
  file.commit();
  record.sha256 = digest.hex();
  files_.emplace(name, std::move(record));
}

void CheckpointWriter::add_file(std::string_view name, std::string_view contents) {
  add_file(name, [&](const ByteSink& sink) { sink(std::as_bytes(std::span(contents))); });
}

std::string CheckpointWriter::manifest() const {
  ordered_json files = ordered_json::object();
  for (const auto& [name, record] : files_) files[name] = {{"bytes", record.bytes}, {"sha256", record.sha256}};
  ordered_json manifest{{"format", kFormat}, {"version", kVersion}, {"step", step_}, {"files", files}};
  try {
    return manifest.dump(2) + "\n";
  } catch (const json::exception&) {
    fail("checkpoint: the name of a file in step {} is not valid UTF-8", step_);
  }
}

void CheckpointWriter::publish() {
  check(!temporary_.empty(), "checkpoint: step {} is published already", step_);
  write_file_atomically(temporary_ / kManifest, manifest());
  replace_published();
  sync_folder(folder_);
  temporary_.clear();
  remove_others();
  sync_folder(folder_);
}

void CheckpointWriter::replace_published() const {
  const fs::path published = folder_ / folder_name(step_);
  std::error_code error;
  if (!fs::exists(fs::symlink_status(published, error))) return rename_folder(temporary_, published);
  // Exchange both atomically if the file system supports it, so that one of the two always exists.
  if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, published.c_str(), RENAME_EXCHANGE) == 0) {
    sync_folder(folder_);  // before the old one is removed
    return discard(temporary_);
  }
  const fs::path old = moved_aside(folder_, step_);
  rename_folder(published, old);
  rename_folder(temporary_, published);
  sync_folder(folder_);
  discard(old);
}

void CheckpointWriter::remove_others() const {
  int kept = 0;
  for (std::int64_t step : steps_in(folder_)) {
    if (step > step_ || ++kept > keep_) retire(folder_, step);
  }
}

}  // namespace lockstep
