#include "lockstep/train/log_writer.h"

#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/checkpoint/json_input.h"

namespace lockstep {
namespace {

[[noreturn]] void fail_write(const std::string& what, const std::filesystem::path& path) {
  fail("{}: cannot write {}: {}", what, path.string(), std::generic_category().message(errno));
}

// Returns true if a process was killed in the middle of the last line.
bool ends_in_a_line(std::FILE* file) { return std::fseek(file, -1, SEEK_END) == 0 && std::fgetc(file) != '\n'; }

using Keep = std::function<bool(const nlohmann::json&)>;

// Calls `use(line, kept)` for each line of the file.
template <typename Use>
void for_each_line(const std::filesystem::path& path, const Keep& keep, const Use& use) {
  std::ifstream file(path, std::ios::binary);
  for (std::string line; std::getline(file, line);) {
    const bool torn = file.eof();
    const auto event = find_json<nlohmann::json>(line);
    use(line, event ? keep(*event) : !torn);
  }
  check(file.eof(), "log: cannot read {}", path.string());
}

// Removes the events that `keep` rejects. A device, or a file that does not exist, has none. A folder that cannot be
// written to is an error only if events must be removed.
void drop_events(const std::filesystem::path& path, const Keep& keep) {
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(path, unknown)) return;
  bool drops = false;
  for_each_line(path, keep, [&](const std::string&, bool kept) { drops = drops || !kept; });
  if (!drops) return;
  AtomicFile file(path);
  for_each_line(path, keep, [&](const std::string& line, bool kept) {
    if (kept) file.write(line + "\n");
  });
  file.commit();
}

}  // namespace

LogWriter::LogWriter(const std::filesystem::path& path, LogWriterOptions options)
    : what_(std::move(options.what)), path_(path) {
  if (options.append && options.keep) drop_events(path, options.keep);
  file_.reset(std::fopen(path.c_str(), options.append ? "a+e" : "we"));
  if (!file_) fail_write(what_, path_);
  if (options.append && ends_in_a_line(file_.get()) && std::fputc('\n', file_.get()) == EOF) fail_write(what_, path_);
}

void LogWriter::write(const nlohmann::ordered_json& event) {
  const std::string line = event.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  if (std::fwrite(line.data(), 1, line.size(), file_.get()) != line.size() || std::fflush(file_.get()) != 0) {
    fail_write(what_, path_);
  }
}

}  // namespace lockstep
