// Watching processes that are not children of the test.
#pragma once

#include <signal.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

namespace lockstep {

// A file of /proc; nothing of a process that is gone, also where it went while it was read.
inline std::string read_of_process(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();  // unlike an iterator of the buffer, it throws no error of the read
  return text.str();
}

// Until the process is gone, or a zombie that nobody here may wait for. False if it stays.
inline bool ends(pid_t process) {
  for (int i = 0; i < 2000; ++i) {
    if (::kill(process, 0) != 0) return true;
    const std::string text = read_of_process("/proc/" + std::to_string(process) + "/stat");
    if (text.empty() || text.find(") Z") != std::string::npos) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

}  // namespace lockstep
