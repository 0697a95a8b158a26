#include "lockstep/train/log_writer.h"

#include <cerrno>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

[[noreturn]] void fail_write(const std::filesystem::path& path) {
  fail("log: cannot write {}: {}", path.string(), std::generic_category().message(errno));
}

// True if a process died in the middle of the last line.
bool ends_in_a_line(std::FILE* file) {
  return std::fseek(file, -1, SEEK_END) == 0 && std::fgetc(file) != '\n';
}

}  // namespace

LogWriter::LogWriter(const std::filesystem::path& path, LogWriterOptions options)
    : path_(path), file_(std::fopen(path.c_str(), options.append ? "a+e" : "we")) {
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
