// Internal: the training log: one JSON object per line. Other programs may read the file while it grows.
#pragma once

#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lockstep {

struct LogWriterOptions {
  std::string what = "log";  // for errors
  bool append = false;       // continues the file, as a resumed run does
  // With append: returns whether to keep an event. If an event is dropped, or the last line is incomplete because a
  // process was killed, a new file without them replaces the file.
  std::function<bool(const nlohmann::json& event)> keep{};
};

class LogWriter {
 public:
  explicit LogWriter(const std::filesystem::path& path, LogWriterOptions options = {});

  // Writes one line and hands it to the system, so that a killed process loses no line. Numbers read back exactly, NaN
  // and infinities become null, and fields keep their order. Throws, with the path and the system's reason, if it
  // cannot write.
  void write(const nlohmann::ordered_json& event);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  std::string what_;
  std::filesystem::path path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace lockstep
