#include "lockstep/train/log_writer.h"

#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"

namespace lockstep {
namespace {

[[noreturn]] void fail_write(const std::filesystem::path& path) {
  fail("log: cannot write {}: {}", path.string(), std::generic_category().message(errno));
}

// True if a process died in the middle of the last line.
bool ends_in_a_line(std::FILE* file) {
  return std::fseek(file, -1, SEEK_END) == 0 && std::fgetc(file) != '\n';
}

// The file without the events that `keep` refuses. A device, or a file that is not there, has none.
void drop_events(const std::filesystem::path& path, const std::function<bool(const nlohmann::json&)>& keep) {
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(path, unknown)) return;
  std::ifstream file(path, std::ios::binary);
  AtomicFile kept(path);
  bool dropped = false;
  for (std::string line; std::getline(file, line);) {
    const bool torn = file.eof();
    const auto event = nlohmann::json::parse(line, nullptr, false);
    if (event.is_discarded() ? torn : !keep(event)) {
      dropped = true;
    } else {
      kept.write(line + "\n");
    }
  }
  check(file.eof(), "log: cannot read {}", path.string());
  if (dropped) kept.commit();
}

}  // namespace

LogWriter::LogWriter(const std::filesystem::path& path, LogWriterOptions options) : path_(path) {
  if (options.append && options.keep) drop_events(path, options.keep);
  file_.reset(std::fopen(path.c_str(), options.append ? "a+e" : "we"));
  if (!file_) fail_write(path_);
  if (options.append && ends_in_a_line(file_.get()) && std::fputc('\n', file_.get()) == EOF)
    fail_write(path_);
}

void LogWriter::write(const nlohmann::ordered_json& event) {
  const std::string line = event.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  if (std::fwrite(line.data(), 1, line.size(), file_.get()) != line.size() || std::fflush(file_.get()) != 0) {
    fail_write(path_);
  }
}

}  // namespace lockstep
