#include "tests/failure/fault.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <thread>
#include <vector>

namespace lockstep::testing {
namespace {

// Simulates a lost network: nothing arrives any more in either direction.
void cut_all_connections() {
  std::vector<int> sockets;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    struct stat status;
    if (::fstat(fd, &status) != 0 || !S_ISSOCK(status.st_mode)) continue;
    // A lost network does not affect listening sockets.
    int listens = 0;
    socklen_t size = sizeof listens;
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0) sockets.push_back(fd);
  }
  for (const int fd : sockets) ::shutdown(fd, SHUT_RDWR);
}

std::atomic<int> threads_held{0};
std::atomic<bool> hold_threads{false};

void hold_this_thread(int) {
  ++threads_held;
  while (hold_threads.load()) ::usleep(100);
  --threads_held;
}

// Cuts all connections at one moment. If the rank kept running while they were cut one by one, it would send a shutdown
// message through the last one, and the others would report only the first loss.
void cut_at_once() {
  struct sigaction action {};
  action.sa_handler = hold_this_thread;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGUSR1, &action, nullptr);
  hold_threads = true;
  int asked = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    const pid_t thread = std::stoi(entry.path().filename());
    if (thread != ::gettid() && ::tgkill(::getpid(), thread, SIGUSR1) == 0) ++asked;
  }
  // A thread that ends meanwhile never arrives.
  for (int i = 0; threads_held < asked && i < 500; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  cut_all_connections();
  hold_threads = false;
}

// Cuts repeatedly, so that a connection made meanwhile is not left over.
void cut_for_good() {
  cut_at_once();
  std::thread([] {
    for (int pass = 0;; ++pass) {
      if (pass > 1000) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      cut_all_connections();
    }
  }).detach();
}

void strike(const std::string& kind) {
  std::printf("fault\n");
  std::fflush(stdout);
  if (kind == "kill") ::kill(::getpid(), SIGKILL);
  if (kind == "stop") ::kill(::getpid(), SIGSTOP);
  if (kind == "cut") cut_for_good();
  if (kind == "busy") std::this_thread::sleep_for(std::chrono::seconds(5));
  if (kind == "throw") throw std::runtime_error("out of luck");
}

}  // namespace

void FaultInjector::reach(const std::string& phase, const std::function<void()>& settle) {
  if (!waits_for(phase) || left_-- != 0) return;
  if (settle) settle();
  if (fault_.delay.count() == 0 || strikes_in_place()) return strike(fault_.kind);
  std::thread([fault = fault_] {
    std::this_thread::sleep_for(fault.delay);
    strike(fault.kind);
  }).detach();
}

}  // namespace lockstep::testing
