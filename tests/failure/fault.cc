#include "tests/failure/fault.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <thread>
#include <vector>

namespace lockstep::testing {
namespace {

// As if the network were gone: nothing arrives any more, in neither direction.
void cut_all_connections() {
  std::vector<int> sockets;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    struct stat status;
    if (::fstat(fd, &status) != 0 || !S_ISSOCK(status.st_mode)) continue;
    // A network that is gone does not disturb who listens.
    int listens = 0;
    socklen_t size = sizeof listens;
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0) sockets.push_back(fd);
  }
  for (const int fd : sockets) ::shutdown(fd, SHUT_RDWR);
}

void strike(const std::string& kind) {
  std::printf("fault\n");
  std::fflush(stdout);
  if (kind == "kill") ::kill(::getpid(), SIGKILL);
  if (kind == "stop") ::kill(::getpid(), SIGSTOP);
  if (kind == "cut") cut_all_connections();
  if (kind == "throw") throw std::runtime_error("out of luck");
}

}  // namespace

void FaultInjector::reach(const std::string& phase, const std::function<void()>& settle) {
  if (!waits_for(phase) || left_-- != 0) return;
  if (settle) settle();
  if (fault_.delay.count() == 0 || fault_.kind == "throw") return strike(fault_.kind);
  std::thread([fault = fault_] {
    std::this_thread::sleep_for(fault.delay);
    strike(fault.kind);
  }).detach();
}

}  // namespace lockstep::testing
