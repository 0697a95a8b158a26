// The training log: JSON lines, one object a line, which other programs may read while it grows.
#pragma once

#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>

namespace lockstep {

struct LogWriterOptions {
  bool append = false;  // goes on after what the file holds, as a resumed run does
  // With append: which events stay. If it refuses some, they go, and a line that a process did not finish; the file is then
  // replaced as a whole.
  std::function<bool(const nlohmann::json& event)> keep{};
};

class LogWriter {
 public:
  explicit LogWriter(const std::filesystem::path& path, LogWriterOptions options = {});

  // Writes one line and hands it to the system, so that a killed process loses none. Numbers come back
  // exactly (shortest form that does), NaN and infinities are null, the order of the fields is kept. Throws
  // with the path and the system's reason if it cannot.
  void write(const nlohmann::ordered_json& event);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  std::filesystem::path path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace lockstep
