// Watching processes that are not children of the test.
#pragma once

#include <signal.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

namespace lockstep {

// Until the process is gone, or a zombie that nobody here may wait for. False if it stays.
inline bool ends(pid_t process) {
  for (int i = 0; i < 2000; ++i) {
    if (::kill(process, 0) != 0) return true;
    std::ifstream stat("/proc/" + std::to_string(process) + "/stat");
    const std::string text{std::istreambuf_iterator<char>(stat), {}};
    if (text.empty() || text.find(") Z") != std::string::npos) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

}  // namespace lockstep
